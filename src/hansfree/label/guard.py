"""Who may talk to the page: this computer only, through the address with the token, from the page itself."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

LOOPBACK = "127.0.0.1"

_HEADERS = {
    # The page asks nobody else for anything, is in no frame, and tells no other place its address with the token.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_REFUSED = b"""<!doctype html>
<html lang="en">
<title>Refused</title>
<link rel="icon" href="data:,">
<p>Refused: open the address that <code>hansfree label</code> printed, with its token.</p>
</html>
"""  # with an empty icon, so that the browser does not ask for one and is refused again
_FOLLOWED = {(b"sec-fetch-mode", b"navigate"), (b"sec-fetch-dest", b"document")}  # a link, in a window of its own


class Guard:
    """Refuses every request whose address lacks the token, or whose host or origin is not the page's own.

    The first part of the path is the token, so that the page's own addresses, which are all relative, carry it by
    themselves. A wrong host is a foreign name that was made to point here; a foreign origin is another page. A link may
    lead to the page from anywhere, for it shows nothing to where it came from: the browser itself starts at a file.
    """

    def __init__(self, app: ASGIApp, *, token: str, port: int) -> None:
        self._app, self._token = app, token.encode()
        self._hosts = {f"{name}:{port}".encode() for name in (LOOPBACK, "localhost")}
        self._origins = {b"http://" + host for host in self._hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on without its token, or answer it with 403."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        first, slash, rest = scope["path"].removeprefix("/").partition("/")
        is_page = not rest and scope.get("method") == "GET"
        if scope["type"] != "http" or not self._is_ours(scope["headers"], first, is_page=is_page):
            await _refuse(scope, send)
            return
        if not slash:  # from here the page's relative addresses would lose the token
            moved = [(b"location", f"/{first}/".encode())]
            await send({"type": "http.response.start", "status": 307, "headers": moved})
            await send({"type": "http.response.body"})
            return

        async def send_guarded(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                own = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
                message = {**message, "headers": [*message.get("headers", ()), *own]}  # type: ignore[misc]
            await send(message)

        inner = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode(), "root_path": ""}
        await self._app(inner, receive, send_guarded)  # type: ignore[arg-type]

    def _is_ours(self, headers: list[tuple[bytes, bytes]], token: str, *, is_page: bool) -> bool:
        hosts = [value for name, value in headers if name == b"host"]
        origins = [value for name, value in headers if name == b"origin"]
        sites = [value for name, value in headers if name == b"sec-fetch-site"]
        is_followed = is_page and set(headers) >= _FOLLOWED
        return (
            len(hosts) == 1
            and hosts[0] in self._hosts
            and all(origin in self._origins for origin in origins)
            and (is_followed or all(site in (b"same-origin", b"none") for site in sites))
            and secrets.compare_digest(token.encode(), self._token)
        )


async def _refuse(scope: Scope, send: Send) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"text/html; charset=utf-8"), (b"content-length", str(len(_REFUSED)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": _REFUSED})
