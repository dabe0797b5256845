"""The connection to a Ray cluster, and what can go wrong with it in one sentence each."""

from __future__ import annotations

import importlib
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hansfree.errors import OptionError, RunError, not_installed

_SECONDS = 10  # to wait for a head node to answer; Ray itself goes on for minutes


@contextmanager
def connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, give the module ``ray``, and part from it at the end."""
    ray = _import_ray()
    # Of a cluster that is started here; who started another one has decided.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address not in (None, "auto"):
        _check_address(str(address))
    try:
        # What workers print would break the progress bars; what they warn of comes back with their work.
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=False)
    except (ConnectionError, RuntimeError, ValueError, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise RunError(
            f"Ray cannot be reached at {address or 'the address that it found'} ({reason}). Start it with "
            "`ray start --head`, and hansfree on a machine of that cluster."
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _import_ray() -> Any:
    try:
        return importlib.import_module("ray")
    except ModuleNotFoundError as error:
        raise not_installed(error.name, extra="ray") from error


def _check_address(address: str) -> None:
    """Refuse what is no address, and one where nobody answers."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise OptionError(f"The address of the Ray cluster is {address!r}. Allowed: auto, or HOST:PORT.")
    try:
        socket.create_connection((host, int(port)), timeout=_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise RunError(
            f"Nobody answers at {address} ({error}). `ray start --head` on the first machine prints the address."
        ) from error
