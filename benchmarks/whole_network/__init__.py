"""Correct networks that learned an artifact as a whole, on real images: ``python -m benchmarks.whole_network``."""
