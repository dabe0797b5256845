"""The HTTP server of the labelling page, with token and origin checks."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Awaitable, Callable
from importlib.resources import files
from pathlib import Path
from typing import Annotated

from fastapi import Body, FastAPI, HTTPException, Request, Response
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from hansfree.discovery.label.session import ClusterSuggestion, Session, State, address_file
from hansfree.errors import HansfreeError, RunError, import_optional

LOOPBACK = "127.0.0.1"
_MAX_IMAGES = 100_000  # per request
_PAGE = {part.name: part for part in (files("hansfree.discovery.label") / "page").iterdir()}
_MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_FRESH = {"cache-control": "no-store"}

_HEADERS = {
    # The page loads nothing from elsewhere, is in no frame, and does not leak its address with the token.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}

Image = Annotated[int, InPath(ge=0)]


class NewLabel(BaseModel):
    """An artifact label for some images."""

    model_config = ConfigDict(extra="forbid")

    images: Annotated[list[Annotated[StrictInt, Field(ge=0)]], Field(min_length=1, max_length=_MAX_IMAGES)]
    has_artifact: StrictBool


class Catalogue(BaseModel):
    """What does not change: the images' names and classes, and the suggested clusters."""

    names: list[str]
    labels: list[int]
    class_names: list[str]
    suspects: list[ClusterSuggestion]


def create_app(session: Session, *, token: str, port: int) -> FastAPI:
    """Return the application; every address starts with ``/<token>/``, so that relative addresses include it."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    hosts = {f"{name}:{port}" for name in (LOOPBACK, "localhost")}

    @app.middleware("http")
    async def guard(request: Request, call_next: Callable[[Request], Awaitable[Response]]) -> Response:
        given, slash, rest = request.scope["path"].removeprefix("/").partition("/")
        is_page = not rest and request.method == "GET"
        if not secrets.compare_digest(given.encode(), token.encode()) or not _is_ours(request, hosts, is_page=is_page):
            return HTMLResponse(_PAGE["refused.html"].read_bytes(), 403)
        if not slash:  # otherwise the page's relative addresses would lose the token
            return RedirectResponse(f"/{given}/")
        request.scope.update(path=f"/{rest}", raw_path=f"/{rest}".encode())
        response = await call_next(request)
        response.headers.update(_HEADERS)
        return response

    @app.exception_handler(HansfreeError)
    def refuse(_request: Request, error: HansfreeError) -> JSONResponse:
        return JSONResponse({"detail": str(error)}, status_code=400)

    @app.get("/")
    @app.get("/{name}")
    def part(name: str = "index.html") -> Response:
        if name not in _PAGE:
            raise HTTPException(404)
        return Response(_PAGE[name].read_bytes(), media_type=_MEDIA_TYPES[name.rpartition(".")[2]], headers=_FRESH)

    @app.get("/api/catalogue")
    def catalogue() -> Catalogue:
        opened = session.data.opened
        return Catalogue(
            names=list(opened.names),
            labels=opened.images.labels.tolist(),
            class_names=list(opened.images.class_names),
            suspects=list(session.data.suspects.values()),
        )

    for path, read in (("state", session.state), ("screen", session.screen), ("ranking", session.ordered)):
        app.add_api_route(f"/api/{path}", read, methods=["GET"])
    for path, change in (("screen/next", session.next_screen), ("undo", session.undo), ("finish", session.finish)):
        app.add_api_route(f"/api/{path}", change, methods=["POST"])

    @app.post("/api/labels")
    def label(new: NewLabel) -> State:
        return session.label(new.images, has_artifact=new.has_artifact)

    @app.post("/api/suspects")
    def accept(suspect: Annotated[str, Body(embed=True)]) -> State:
        return session.accept(suspect)

    @app.get("/thumbnails/{image}.jpg")
    def thumbnail(image: Image) -> Response:
        headers = {"cache-control": "private, max-age=3600"}
        return Response(session.thumbnail(image), media_type="image/jpeg", headers=headers)

    @app.get("/heatmaps/{image}.jpg")
    def heatmap(image: Image) -> Response:
        return Response(session.heatmap(image), media_type="image/jpeg", headers=_FRESH)

    return app


def _is_ours(request: Request, hosts: set[str], *, is_page: bool) -> bool:
    """Return whether a request comes from the page, or is a link to it that a browser opens.

    A foreign host is DNS rebinding, a foreign origin another page. Links to the page itself are allowed from anywhere:
    the browser starts at a local file.
    """
    host, origins, sites = (request.headers.getlist(name) for name in ("host", "origin", "sec-fetch-site"))
    headers = request.headers
    is_link = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return (
        len(host) == 1
        and host[0] in hosts
        and all(origin.removeprefix("http://") in hosts and origin.startswith("http://") for origin in origins)
        and ((is_page and is_link) or all(site in ("same-origin", "none") for site in sites))
    )


def check_installed() -> None:
    """Check that the packages of the server are installed, before any image is read."""
    for package in ("fastapi", "uvicorn"):
        import_optional(package, extra="label")


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
            message = f"Port {port} cannot be used ({error.strerror}). Leave out --port to take a free one."
            raise RunError(message) from error
        taken = listener.getsockname()[1]
        token = secrets.token_urlsafe(24)
        app = create_app(session, token=token, port=taken)
        # No access log: it would hold the token.
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False, server_header=False))
        address = f"http://{LOOPBACK}:{taken}/{token}/"
        address_of_page = _write_secret(address_file(session.data.table.parent), address)
        try:
            ready(address)
            server.run(sockets=[listener])
        finally:
            address_of_page.unlink(missing_ok=True)
