"""Choose an engine by its name, and refuse one that is not there before any work starts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

from hansfree.engines.ray import connected, ray_crew
from hansfree.errors import OptionError, check_choice
from hansfree.runfile.running import Engine, alone

EngineName = Literal["local", "ray"]


@contextmanager
def open_engine(name: str, *, address: str | None = None) -> Iterator[Engine]:
    """Give the engine for the length of the block.

    Args:
        address: Of a Ray cluster, ``HOST:PORT`` or ``auto``. None is the one that Ray finds, in ``RAY_ADDRESS`` or
            running on this machine; where there is none, Ray is started here and ends with the block.
    """
    check_choice("engine", name, EngineName)
    if name == "local":
        if address is not None:
            raise OptionError("An address is that of a Ray cluster: give --engine ray with it.")
        yield alone
        return
    with connected(address) as ray:
        yield partial(ray_crew, ray)
