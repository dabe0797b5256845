"""A labelling session: artifact labels with undo, screens, cluster suggestions, and the table it writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout

from hansfree._internal.files import tell_path
from hansfree._internal.progress import Progress, silent
from hansfree.cavs import SignalCAV
from hansfree.errors import DataError, RunError
from hansfree.label.pictures import Heatmaps, Pictures
from hansfree.label.ranking import (
    FIRST_MARKS,
    NO,
    UNKNOWN,
    YES,
    Background,
    Choice,
    Judgement,
    Marks,
    Ranking,
    judge_marks,
    lacks_clean,
    marks_of,
    read_marks,
    write_marks,
)
from hansfree.runfile import RunFile
from hansfree.runfile.discovery import Unlabelled, looking_folder, open_unlabelled, pass_once
from hansfree.studies.listing import find_class
from hansfree.suspects import Cluster, Suspects
from hansfree.suspects.clustering import WORDS

_SHOWN = 6


@dataclass(frozen=True)
class Offer:
    """A cluster that may be taken as marks, and what a person should see of it before."""

    images: tuple[int, ...]
    centre: tuple[int, ...]  # those that show best what it is
    title: str  # the class and the property that sets the cluster apart
    sentence: str


def read_offers(folder: Path, index_of: Mapping[str, int], *, classes: Sequence[str]) -> dict[str, Offer]:
    """Return the clusters by name, those with the lowest rank first.

    Args:
        index_of: The number of an image by its name.
        classes: The name of each image's class.
    """
    told = _read_told(folder / "suspects.json")
    found: dict[str, Offer] = {}
    for path in sorted(folder.glob("suspect-*.json"), key=lambda path: (len(path.name), path.name)):  # 10 after 9
        try:
            listed = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise DataError(f"{path} cannot be read: {error}.") from error
        if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
            raise DataError(f"{path} is not a list of images.")
        if any(name in index_of for name in listed):
            found[path.stem] = _describe(listed, index_of, classes, told.get(path.stem))
    return found


def _describe(
    listed: Sequence[str], index_of: Mapping[str, int], classes: Sequence[str], cluster: Cluster | None
) -> Offer:
    known = sorted({index_of[name] for name in listed if name in index_of})
    title, sentence, centre = classes[known[0]], "", known[:_SHOWN]
    if cluster is not None and cluster.size == len(listed):
        sentence = cluster.sentence
        # By name: the images may have another order now than when they were looked at.
        name_of = dict(zip(cluster.rows, listed))
        centre = [index_of[name_of[row]] for row in cluster.centre if name_of[row] in index_of]
        if cluster.distinct is not None and cluster.distinct_auc is not None:
            title += f", {WORDS[cluster.distinct][cluster.distinct_auc < 0.5]}"
    return Offer(tuple(known), tuple(centre), title, sentence)


def _read_told(path: Path) -> dict[str, Cluster]:
    """Return what was said of the clusters; nothing, where somebody wrote the lists without it."""
    if not path.exists():
        return {}
    clusters = Suspects.from_json(path.read_text(encoding="utf-8")).clusters
    return {f"suspect-{rank}": cluster for rank, cluster in enumerate(clusters, start=1)}


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


@dataclass(frozen=True)
class Finish:
    """What is told, in the order in which it is read."""

    title: str
    missing: str  # what speaks against a run; empty where nothing does
    proposed: str  # about the images that nobody marked; empty where there are none
    sentence: str  # how to start the run


def describe_finish(material: Material, judgement: Judgement | None, *, unmarked: int) -> Finish:
    """Say whether a run can rest on the marks, by what the doctor found.

    Args:
        judgement: Of the marks as they are; None where it is not there yet.
        unmarked: How many images have a proposed bit.
    """
    key = "data.table" if material.is_table else "data.artifacts"
    how = f"set {key} in {material.file} to {material.table}, then: hansfree run {material.file}"
    proposed = ""
    if unmarked:
        proposed = (
            f"Not marked: {unmarked:,} of the {len(material.names):,} images. Their bits are proposed, and a run takes "
            "them for true. Look through them first, in the list of all images."
        )
    if judgement is not None and judgement.level in ("good", "fair"):
        return Finish("Ready for a run", "", proposed, f"{how[0].upper()}{how[1:]}")
    missing = "The doctor has not answered yet." if judgement is None else f"The doctor says: {judgement.verdict}"
    return Finish("Saved, but not ready for a run", missing, proposed, f"To run all the same: {how}")


SCREEN = 12  # images to mark between two looks at the ranking: fewer would flicker, more would waste marks


@dataclass(frozen=True, kw_only=True)
class State:
    """What the page shows above the images."""

    images: int
    yes: int
    no: int
    proposed: int  # with the marked ones
    version: int  # of the marks: what a page holds of an older one is out of date
    can_undo: bool
    advice: str  # what to do next
    saved: str  # the path of the table
    judgement: Judgement | None  # of the marks as they are, or as they were while it is being judged
    is_judging: bool


@dataclass(frozen=True, kw_only=True)
class Ordered:
    """All images, the likeliest first; scores and marks by image."""

    order: list[int]
    scores: list[float] | None
    marks: list[int]
    proposed: list[int]


class Session:
    """Everything behind the page; calls may come from several threads.

    A mark is on disk before the call returns.
    """

    def __init__(self, material: Material) -> None:
        self.material = material
        self._marks = Marks(material.marks)
        self._ranking = Ranking(material.pooled, seed=material.seed)
        self._lock = threading.RLock()
        self._background = Background(self._judge)
        self._shown = np.zeros(len(material.names), dtype=bool)
        self._version = 0
        self._refresh()
        self._screen = self._choose()

    def close(self) -> None:
        """End the work in the background."""
        self._background.close()

    def state(self) -> State:
        """Return the counts and what is known about the direction."""
        with self._lock:
            yes, no = self._marks.count(YES), self._marks.count(NO)
            judgement, is_judging = self._background.look() if yes + no else (None, False)
            return State(
                images=len(self._shown),
                yes=yes,
                no=no,
                proposed=len(self._proposed()),
                version=self._version,
                can_undo=self._marks.steps > 0,
                advice=_advice(yes, no, len(self._shown)),
                saved=tell_path(self.material.table),
                judgement=judgement,
                is_judging=is_judging,
            )

    def mark(self, images: Sequence[int], *, has_artifact: bool) -> State:
        """Mark images, rank all others anew and write the table."""
        with self._lock:
            self._marks.set(images, has_artifact=has_artifact)
            self._refresh()
            self._save()
            return self.state()

    def undo(self) -> tuple[list[int], State]:
        """Take back the last step; return its images, none where there is no step left."""
        with self._lock:
            images = self._marks.undo()
            if images:
                self._refresh()
                self._save()
            return images, self.state()

    def screen(self) -> list[Choice]:
        """Return the images to mark now; they stay until the next screen is asked for."""
        with self._lock:
            return list(self._screen)

    def next_screen(self) -> list[Choice]:
        """Return the next images to mark; those passed over come last."""
        with self._lock:
            self._screen = self._choose()
            return list(self._screen)

    def ordered(self) -> Ordered:
        """Return all images, the likeliest first; in their own order before there is a ranking."""
        with self._lock:
            scores = self._scores
            order = np.arange(len(self._shown)) if scores is None else np.argsort(-scores, kind="stable")
            return Ordered(
                order=order.tolist(),
                scores=None if scores is None else np.round(scores.astype(np.float64), 3).tolist(),
                marks=self._marks.values.tolist(),
                proposed=self._proposed().tolist(),
            )

    def finish(self) -> Finish:
        """Return how to go on to a run, and what speaks against it; there has to be a ranking to go on with."""
        with self._lock:
            if self._scores is None:
                raise DataError(f"Not yet: {_advice(self._marks.count(YES), self._marks.count(NO), len(self._shown))}")
            self._save()
        self.wait()  # what the doctor says has to be of these very marks
        now = self.state()
        judgement = None if now.is_judging else now.judgement
        return describe_finish(self.material, judgement, unmarked=now.images - now.yes - now.no)

    def take(self, suspect: str) -> State:
        """Mark the images of a suspected cluster, as one step; what was marked before stays as it was."""
        found = self.material.suspects.get(suspect)
        if found is None:
            raise DataError(f"There is no suspect {suspect!r}. Known: {', '.join(self.material.suspects) or 'none'}.")
        with self._lock:
            unknown = [image for image in found.images if self._marks.values[image] == UNKNOWN]
            return self.mark(unknown, has_artifact=True) if unknown else self.state()

    def thumbnail(self, image: int) -> bytes:
        """Return a picture as JPEG."""
        return self.material.pictures.thumbnail(self._checked(image))

    def heatmap(self, image: int) -> bytes:
        """Return a picture that glows where the CAV of the marks looks."""
        row = self._checked(image)
        with self._lock:
            cav = self._cav
        if cav is None:
            raise DataError("A heatmap needs images marked with and without the artifact.")
        return self.material.heatmaps.show(row, cav)

    def wait(self, timeout: float = 60) -> bool:
        """Wait for the judgement of all marks; say whether it is there."""
        return self._background.wait(timeout)

    def _checked(self, image: int) -> int:
        if not 0 <= image < len(self._shown):
            raise DataError(f"There is no image {image}: they are numbered 0 to {len(self._shown) - 1}.")
        return image

    def _proposed(self) -> np.ndarray:
        values = self._marks.values
        likely = np.zeros(len(values), dtype=bool) if self._scores is None else self._scores > 0
        return np.flatnonzero((values == YES) | (likely & (values == UNKNOWN)))

    def _refresh(self) -> None:
        values = self._marks.values
        self._version += 1
        self._scores = self._ranking.score(values)
        self._cav = self._fit_cav(values)
        if (values != UNKNOWN).any():
            self._background.ask(values)

    def _fit_cav(self, values: np.ndarray) -> SignalCAV | None:
        """Return the direction that heatmaps show: the signal's outlines an artifact best of all (paper, Q1)."""
        rows = np.flatnonzero(values != UNKNOWN)
        if len(np.unique(values[rows])) < 2 or np.ptp(self.material.pooled[rows], axis=0).max() == 0:
            return None
        return SignalCAV().fit(self.material.pooled[rows], values[rows] == YES)

    def _choose(self) -> list[Choice]:
        values, material = self._marks.values, self.material
        short = lacks_clean(material.labels, values, material.biased_class, classes=len(material.class_names))
        chosen = self._ranking.choose(values, self._scores, count=SCREEN, shown=self._shown, short=short)
        if self._shown[[choice.image for choice in chosen]].any():
            self._shown[:] = False  # all were passed over once: begin anew
        self._shown[[choice.image for choice in chosen]] = True
        return chosen

    def _save(self) -> None:
        material = self.material
        proposed = None if self._scores is None else self._scores > 0
        try:
            write_marks(material.table, material.rows, self._marks.values, proposed, column=material.column)
        except OSError as error:
            raise RunError(
                f"{material.table} cannot be written ({error.strerror}): the last mark is not saved."
            ) from error

    def _judge(self, values: np.ndarray) -> Judgement:
        material = self.material
        return judge_marks(
            self._ranking,
            material.pooled,
            material.labels,
            values,
            cav=material.cav,
            names=material.names,
            class_names=material.class_names,
            biased_class=material.biased_class,
        )


def _advice(yes: int, no: int, images: int) -> str:
    missing = FIRST_MARKS - yes - no
    if yes + no == images:
        return "Every image is marked."
    if yes == 0 and missing <= 0:
        return "None has the artifact yet: go on, or look for one among all images."
    if missing > 0:
        some = "" if yes else ", at least one with the artifact"
        return f"Mark {missing} more image{'s' if missing > 1 else ''}{some}: then all others are ranked."
    if no == 0:
        return "Mark some without the artifact, too: so far unmarked images stand for them."
    return "Go on until the proposed ones are right: look through them in the list of all images."
