"""Serve the page on this computer until the process is stopped."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from pathlib import Path

from hansfree.errors import RunError, not_installed
from hansfree.label.guard import LOOPBACK
from hansfree.label.opening import address_file
from hansfree.label.session import Session


def check_installed() -> None:
    """Refuse to begin where the packages that serve a page are missing, before any image is read."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise not_installed(error.name, extra="label") from error


def write_redirect(folder: Path, address: str) -> Path:
    """Write a page that leads to the address, which only this user can read.

    A browser is started with the name of this file: what a process was started with, all users of a computer can see.
    """
    return _write_secret(
        folder / "open.html",
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>hansfree label</title>'
        f'<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">Open the labelling page</a>\n',
    )


def _write_secret(path: Path, text: str) -> Path:
    """Write a file that only this user can read; it was never another."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")
    return path


def serve(session: Session, *, port: int = 0, ready: Callable[[str], None]) -> None:
    """Serve a session on the loopback address; return when the process is asked to stop.

    Args:
        port: 0 takes any that is free.
        ready: called with the page's address, whose token changes with every start.
    """
    check_installed()
    import uvicorn

    from hansfree.label.server import create_app

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen()  # a browser that is quicker than the server waits instead of failing
        except OSError as error:
            raise RunError(
                f"Port {port} cannot be used ({error.strerror}). Leave out --port to take a free one."
            ) from error
        taken = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        app = create_app(session, token=token, port=taken)
        # No access log: it would hold the token.
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, server_header=False))
        address = f"http://{LOOPBACK}:{taken}/{token}/"
        kept = _write_secret(address_file(session.material.table.parent), address)  # for a second `hansfree label`
        try:
            ready(address)
            server.run(sockets=[listener])
        finally:
            kept.unlink(missing_ok=True)
