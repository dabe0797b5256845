"""The HTTP server of the labelling page, with token and origin checks."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from fastapi import FastAPI, Request, Response
from fastapi import Path as InPath
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from hansfree.discovery.label.ranking import Choice
from hansfree.discovery.label.session import (
    Finish,
    RankedImages,
    Session,
    State,
    address_file,
)
from hansfree.errors import HansfreeError, RunError, not_installed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send


LOOPBACK = "127.0.0.1"


_HEADERS = {
    # The page loads nothing from elsewhere, is in no frame, and does not leak its address with the token.
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
    """Reject every request without the token, or with a foreign host or origin.

    The first part of the path is the token, so that the page's own relative addresses carry it. A foreign host is DNS
    rebinding, a foreign origin another page. Links to the page itself are allowed from anywhere: the browser starts at
    a local file.
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
        if not slash:  # otherwise the page's relative addresses would lose the token
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


_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}

_MOST = 100_000  # images per request


Image = Annotated[int, InPath(ge=0)]

PageFile = Literal[
    "page.js",
    "grid.js",
    "header.js",
    "heatmaps.js",
    "store.js",
    "labelling.js",
    "suggestions.js",
    "views.js",
    "page.css",
    "icon.svg",
]


class NewLabel(BaseModel):
    """An artifact label for some images."""

    model_config = ConfigDict(extra="forbid")

    images: Annotated[list[Annotated[StrictInt, Field(ge=0)]], Field(min_length=1, max_length=_MOST)]
    has_artifact: StrictBool


class Accepted(BaseModel):
    """A suggested cluster to accept as artifact labels."""

    model_config = ConfigDict(extra="forbid")

    suspect: Annotated[str, Field(max_length=200)]


class Undone(BaseModel):
    """The images of an undone step."""

    images: list[int]
    state: State


class Suspect(BaseModel):
    """A suggested cluster."""

    name: str
    count: int
    title: str
    sentence: str
    centre: list[int]


class Catalogue(BaseModel):
    """What does not change: the images' names and classes, and the suggested clusters."""

    names: list[str]
    labels: list[int]
    class_names: list[str]
    suspects: list[Suspect]


def create_app(session: Session, *, token: str, port: int) -> Guard:
    """Return the application; every address starts with ``/<token>/``."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.exception_handler(HansfreeError)
    def refuse(_request: Request, error: HansfreeError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=400)

    @app.get("/")
    def index() -> Response:
        return _page("index.html")

    @app.get("/{name}")
    def part(name: PageFile) -> Response:
        return _page(name)

    @app.get("/api/catalogue")
    def catalogue() -> Catalogue:
        data = session.data
        return Catalogue(
            names=list(data.names),
            labels=data.labels.tolist(),
            class_names=list(data.class_names),
            suspects=[
                Suspect(
                    name=name,
                    count=len(suggestion.images),
                    title=suggestion.title,
                    sentence=suggestion.sentence,
                    centre=list(suggestion.centre),
                )
                for name, suggestion in data.suspects.items()
            ],
        )

    @app.get("/api/state")
    def state() -> State:
        return session.state()

    @app.get("/api/screen")
    def screen() -> list[Choice]:
        return session.screen()

    @app.post("/api/screen/next")
    def next_screen() -> list[Choice]:
        return session.next_screen()

    @app.get("/api/ranking")
    def ranking() -> RankedImages:
        return session.ordered()

    @app.post("/api/labels")
    def label(new: NewLabel) -> State:
        return session.label(new.images, has_artifact=new.has_artifact)

    @app.post("/api/undo")
    def undo() -> Undone:
        images, now = session.undo()
        return Undone(images=images, state=now)

    @app.post("/api/suspects")
    def accept(accepted: Accepted) -> State:
        return session.accept(accepted.suspect)

    @app.post("/api/finish")
    def finish() -> Finish:
        return session.finish()

    @app.get("/thumbnails/{image}.jpg")
    def thumbnail(image: Image) -> Response:
        return Response(
            session.thumbnail(image), media_type="image/jpeg", headers={"cache-control": "private, max-age=3600"}
        )

    @app.get("/heatmaps/{image}.jpg")
    def heatmap(image: Image) -> Response:
        return Response(session.heatmap(image), media_type="image/jpeg", headers={"cache-control": "no-store"})

    return Guard(app, token=token, port=port)


def _page(name: str) -> Response:
    content = (files("hansfree.discovery.label") / "page" / name).read_bytes()
    return Response(content, media_type=_KINDS[name.rpartition(".")[2]], headers={"cache-control": "no-store"})


def check_installed() -> None:
    """Check that the packages of the server are installed, before any image is read."""
    try:
        import fastapi  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise not_installed(error.name, extra="label") from error


def write_redirect(folder: Path, address: str) -> Path:
    """Write a page that redirects to the address, and that only this user can read.

    The browser is started with this file: all users of a computer can see the arguments of a process.
    """
    return _write_secret(
        folder / "open.html",
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>hansfree label</title>'
        f'<meta http-equiv="refresh" content="0; url={address}"><a href="{address}">Open the labelling page</a>\n',
    )


def _write_secret(path: Path, text: str) -> Path:
    """Write a new file that only this user can read."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_text(text, encoding="utf-8")
    return path


def serve(session: Session, *, port: int = 0, ready: Callable[[str], None]) -> None:
    """Serve a session on the loopback address until the process is stopped.

    Args:
        port: 0 takes a free one.
        ready: called with the page's address, whose token changes with every start.
    """
    check_installed()
    import uvicorn

    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((LOOPBACK, port))
            listener.listen()  # a browser that is faster than the server waits
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
        kept = _write_secret(address_file(session.data.table.parent), address)  # for a second `hansfree label`
        try:
            ready(address)
            server.run(sockets=[listener])
        finally:
            kept.unlink(missing_ok=True)
