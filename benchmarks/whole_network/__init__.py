"""Correct networks that were trained as a whole with an artifact, on real images: ``python -m benchmarks.whole_network``."""
