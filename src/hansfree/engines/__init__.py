"""Where a run is computed: in this process, or on the machines of a Ray cluster."""

from hansfree.engines.opening import EngineName, open_engine

__all__ = ["EngineName", "open_engine"]
