"""The page over HTTP: few addresses, each of one call of the session."""

from __future__ import annotations

from importlib.resources import files
from typing import Annotated, Literal

from fastapi import FastAPI, Request, Response
from fastapi import Path as InPath
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt

from hansfree.errors import HansfreeError
from hansfree.label.finishing import Finish
from hansfree.label.guard import Guard
from hansfree.label.ranking import Choice
from hansfree.label.session import Ordered, Session, State

_KINDS = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_MOST = 100_000  # images in one step

Image = Annotated[int, InPath(ge=0)]
Part = Literal[
    "page.js",
    "grid.js",
    "header.js",
    "heatmaps.js",
    "held.js",
    "marking.js",
    "offers.js",
    "views.js",
    "page.css",
    "icon.svg",
]


class Answer(BaseModel):
    """A mark: the same answer for some images."""

    model_config = ConfigDict(extra="forbid")

    images: Annotated[list[Annotated[StrictInt, Field(ge=0)]], Field(min_length=1, max_length=_MOST)]
    has_artifact: StrictBool


class Taken(BaseModel):
    """A suspected cluster to take as marks."""

    model_config = ConfigDict(extra="forbid")

    suspect: Annotated[str, Field(max_length=200)]


class Undone(BaseModel):
    """What an undo took back."""

    images: list[int]
    state: State


class Suspect(BaseModel):
    """A cluster before it is taken."""

    name: str
    count: int
    title: str
    sentence: str
    centre: list[int]


class Catalogue(BaseModel):
    """What does not change: the images' names and classes, and the clusters that may be taken."""

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
    def part(name: Part) -> Response:
        return _page(name)

    @app.get("/api/catalogue")
    def catalogue() -> Catalogue:
        material = session.material
        return Catalogue(
            names=list(material.names),
            labels=material.labels.tolist(),
            class_names=list(material.class_names),
            suspects=[
                Suspect(
                    name=name,
                    count=len(offer.images),
                    title=offer.title,
                    sentence=offer.sentence,
                    centre=list(offer.centre),
                )
                for name, offer in material.suspects.items()
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
    def ranking() -> Ordered:
        return session.ordered()

    @app.post("/api/marks")
    def mark(answer: Answer) -> State:
        return session.mark(answer.images, has_artifact=answer.has_artifact)

    @app.post("/api/undo")
    def undo() -> Undone:
        images, now = session.undo()
        return Undone(images=images, state=now)

    @app.post("/api/suspects")
    def take(taken: Taken) -> State:
        return session.take(taken.suspect)

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
    content = (files("hansfree.label") / "page" / name).read_bytes()
    return Response(content, media_type=_KINDS[name.rpartition(".")[2]], headers={"cache-control": "no-store"})
