"""Open what is to be marked: the run file's images, each once through the model, and the marks made so far."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from hansfree.errors import RunError
from hansfree.label.marks import marks_of, read_marks
from hansfree.label.offers import Offer, read_offers
from hansfree.label.pictures import Heatmaps, Pictures
from hansfree.progress import Progress, silent
from hansfree.runfile import RunFile
from hansfree.runfile.passing import pass_once
from hansfree.runfile.unlabelled import Unlabelled, looking_folder, open_unlabelled
from hansfree.studies.classes import find_class


@dataclass(frozen=True, eq=False, kw_only=True)
class Material:
    """What a session works on; all sequences go image by image."""

    file: Path  # the run file
    table: Path  # where the marks are written
    is_table: bool  # whether the run file has a table; else folders are the list
    column: str
    rows: Sequence[Mapping[str, str]]
    names: Sequence[str]
    labels: np.ndarray
    class_names: tuple[str, ...]
    biased_class: int | None
    pooled: np.ndarray
    marks: np.ndarray
    pictures: Pictures
    heatmaps: Heatmaps
    suspects: Mapping[str, Offer]  # clusters that may be taken as marks, by name
    facts: tuple[tuple[str, str], ...]
    cav: str
    seed: int


@contextmanager
def open_material(run: RunFile, *, file: Path, progress: Progress = silent) -> Iterator[Material]:
    """Open the images of a run file for marking, by one process at a time."""
    folder = looking_folder(run)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        held = lock.acquire()
    except Timeout:
        raise RunError(_in_use(folder)) from None
    with held:
        address_file(folder).unlink(missing_ok=True)  # of a process that was killed
        opened = open_unlabelled(run, progress=progress)
        source = opened.images.source
        pictures = Pictures(
            opened.paths,
            root=run.data.root,
            folder=folder / "thumbnails",
            resize=source.resize,  # type: ignore[attr-defined]  # of image files
            channels=source.channels,  # type: ignore[attr-defined]
        )
        names, biased = opened.images.class_names, run.artifact.biased_class
        yield Material(
            file=file,
            table=folder / "artifacts.csv",
            is_table=run.data.table is not None,
            column=run.artifact.column,
            rows=opened.rows,
            names=opened.names,
            labels=opened.images.labels,
            class_names=names,
            biased_class=None if biased is None else find_class(biased, names, option="biased_class"),
            pooled=pass_once(opened, progress=progress).pooled,
            marks=_first_marks(opened, folder / "artifacts.csv"),
            pictures=pictures,
            heatmaps=Heatmaps(opened.model, opened.layer, opened.images, pictures),
            suspects=read_offers(folder, _index_of(opened), classes=[names[label] for label in opened.images.labels]),
            facts=opened.facts,
            cav=run.correction.cav,
            seed=run.seed,
        )


def address_file(folder: Path) -> Path:
    """Return where the address of a page that is served is kept, for whoever asks for it a second time."""
    return folder / ".address"


def _in_use(folder: Path) -> str:
    told = f"{folder} is in use: "
    try:
        return f"{told}the page is open already, at {address_file(folder).read_text(encoding='utf-8')}"
    except OSError:  # not served yet, or of another user
        return f"{told}another `hansfree label` is opening it, and will print the page's address in its terminal."


def _first_marks(opened: Unlabelled, table: Path) -> np.ndarray:
    """Return the marks of the last session, or those that the user's own table came with."""
    column = opened.run.artifact.column
    if table.exists():
        return read_marks(table, opened.names, column=column)
    place = opened.run.data.table or opened.run.data.root
    return marks_of(opened.rows, opened.names, column=column, place=place)


def _index_of(opened: Unlabelled) -> dict[str, int]:
    """Return the number of each image, by its name and by its path."""
    return {name: index for names in (opened.paths, opened.names) for index, name in enumerate(names)}
