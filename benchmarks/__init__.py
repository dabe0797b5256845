"""Benchmarks of hansfree; not part of the installed package."""
