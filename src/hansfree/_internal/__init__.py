"""Tools without knowledge of the domain: files, hashes, progress, registries, run directories."""
