"""A labelling session: artifact labels with undo, screens, cluster suggestions, and the table it writes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from hansfree._internal.files import display_path
from hansfree._internal.progress import Progress, silent
from hansfree.cavs import SignalCAV
from hansfree.data import find_class, read_table
from hansfree.discovery.clustering import Cluster
from hansfree.discovery.label.images import as_jpeg, check_inside, draw_heatmap, draw_thumbnail
from hansfree.discovery.label.ranking import (
    MIN_LABELS,
    NO,
    UNKNOWN,
    YES,
    ArtifactLabels,
    Choice,
    DebouncedWorker,
    LabelDiagnostics,
    Ranking,
    diagnose_labels,
    labels_of,
    needs_clean_labels,
    write_labels,
)
from hansfree.discovery.opening import UnlabelledImages, collect_pooled, label_directory, open_unlabelled_images
from hansfree.discovery.properties import WORDS
from hansfree.discovery.suspects import Suspects
from hansfree.errors import DataError, RunError
from hansfree.pipeline import RunConfig

SCREEN = 12  # images per screen: fewer would flicker, more would waste labels
_SHOWN = 6  # images of a suggestion without a centre


@dataclass(frozen=True)
class ClusterSuggestion:
    """A cluster that can be accepted as artifact labels."""

    name: str
    images: list[int]
    centre: list[int]  # the images nearest to its centre
    title: str  # class and most distinctive property
    sentence: str


def read_suggestions(
    folder: Path, index_of: Mapping[str, int], *, classes: Sequence[str]
) -> dict[str, ClusterSuggestion]:
    """Return the suggested clusters by name, in the order of their ranks; ``classes`` names each image's class."""
    clusters: tuple[Cluster, ...] = ()  # none where the lists were written by hand
    if (folder / "suspects.json").exists():
        clusters = Suspects.from_json((folder / "suspects.json").read_bytes()).clusters
    cluster_of = {f"suspect-{rank}": cluster for rank, cluster in enumerate(clusters, start=1)}
    found: dict[str, ClusterSuggestion] = {}
    for path in sorted(folder.glob("suspect-*.json"), key=lambda path: (len(path.name), path.name)):  # 10 after 9
        try:
            listed = TypeAdapter(list[str]).validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            raise DataError(f"{path} is not a list of images ({error}).") from error
        images = sorted({index_of[name] for name in listed if name in index_of})
        if not images:
            continue
        title, sentence, centre = classes[images[0]], "", images[:_SHOWN]
        cluster = cluster_of.get(path.stem)
        if cluster is not None and cluster.size == len(listed):
            sentence = cluster.sentence
            # By name: the order of the images may have changed since the search.
            name_of = dict(zip(cluster.rows, listed))
            centre = [index_of[name_of[row]] for row in cluster.centre if name_of[row] in index_of]
            if cluster.distinct is not None and cluster.distinct_auc is not None:
                title += f", {WORDS[cluster.distinct][cluster.distinct_auc < 0.5]}"
        found[path.stem] = ClusterSuggestion(path.stem, images, centre, title, sentence)
    return found


@dataclass(frozen=True, eq=False, kw_only=True)
class LabellingData:
    """What a session works on; all sequences have one entry per image."""

    file: Path  # the run file
    table: Path  # where the labels are written
    opened: UnlabelledImages
    biased_class: int | None
    pooled: np.ndarray
    artifact_labels: np.ndarray
    suspects: Mapping[str, ClusterSuggestion]  # by name


@contextmanager
def open_labelling(run: RunConfig, *, file: Path, progress: Progress = silent) -> Iterator[LabellingData]:
    """Open the images of a run file for labelling, in one process at a time."""
    folder = label_directory(run)
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock", timeout=0)
    try:
        held = lock.acquire()
    except Timeout:
        raise RunError(_in_use(folder)) from None
    with held:
        address_file(folder).unlink(missing_ok=True)  # left by a killed process
        opened = open_unlabelled_images(run, progress=progress)
        images, table, column, biased = opened.images, folder / "artifacts.csv", run.artifact.column, None
        if run.artifact.biased_class is not None:
            biased = find_class(run.artifact.biased_class, images.class_names, option="biased_class")
        rows, place = opened.rows, run.data.table or run.data.root
        if table.exists():
            rows, place = read_table(table, ("image",)), table
        for path in opened.paths:
            check_inside(path, run.data.root)
        index_of = {name: row for names in (opened.paths, opened.names) for row, name in enumerate(names)}
        yield LabellingData(
            file=file,
            table=table,
            opened=opened,
            biased_class=biased,
            pooled=collect_pooled(opened, progress=progress)[0],
            artifact_labels=labels_of(rows, opened.names, column=column, place=place),
            suspects=read_suggestions(folder, index_of, classes=[images.class_names[label] for label in images.labels]),
        )


def address_file(folder: Path) -> Path:
    """Return the file with the address of the running page, which a second `hansfree label` prints."""
    return folder / ".address"


def _in_use(folder: Path) -> str:
    in_use = f"{folder} is in use: "
    try:
        return f"{in_use}the page is already open at {address_file(folder).read_text(encoding='utf-8')}"
    except OSError:  # not served yet, or of another user
        return f"{in_use}another `hansfree label` is starting and will print the page's address in its terminal."


@dataclass(frozen=True)
class Finish:
    """The text of the last dialog."""

    title: str
    missing: str  # why the labels do not suffice for a run; empty where they do
    proposed: str  # about the images without a label; empty where there are none
    sentence: str  # how to start the run


def describe_finish(data: LabellingData, diagnostics: LabelDiagnostics | None, *, unlabelled: int) -> Finish:
    """Return whether the labels suffice for a run, by their diagnostics; None where they are not available yet."""
    key = "data.artifacts" if data.opened.run.data.table is None else "data.table"
    how = f"set {key} in {data.file} to {data.table}, then: hansfree run {data.file}"
    proposed = ""
    if unlabelled:
        proposed = (
            f"{unlabelled:,} of the {len(data.opened.names):,} images are not labelled. A run uses the proposed labels "
            "for them: review them first, in the list of all images."
        )
    if diagnostics is not None and diagnostics.level in ("good", "fair"):
        return Finish("Ready for a run", "", proposed, f"{how[0].upper()}{how[1:]}")
    missing = "The diagnostics are not finished." if diagnostics is None else diagnostics.verdict
    return Finish("Saved, but not ready for a run", missing, proposed, f"To run anyway: {how}")


@dataclass(frozen=True, kw_only=True)
class State:
    """What the page shows above the images."""

    images: int
    yes: int
    no: int
    proposed: int  # labelled or proposed as with the artifact
    version: int  # of the labels: heatmaps of an older version are out of date
    can_undo: bool
    advice: str  # what to do next
    saved: str  # the path of the table
    diagnostics: LabelDiagnostics | None  # the latest; of older labels while `is_diagnosing`
    is_diagnosing: bool


@dataclass(frozen=True)
class Undone:
    """The images of an undone step."""

    images: list[int]
    state: State


@dataclass(frozen=True, kw_only=True)
class RankedImages:
    """All images, the most likely first; scores and artifact labels by image."""

    order: list[int]
    scores: list[float] | None
    labels: list[int]
    proposed: list[int]


class Session:
    """The state behind the page; thread-safe. A label is on disk before the call returns."""

    def __init__(self, data: LabellingData) -> None:
        self.data = data
        self._artifact_labels = ArtifactLabels(data.artifact_labels)
        self._ranking = Ranking(data.pooled, seed=data.opened.run.seed)
        self._lock = threading.RLock()
        self._worker = DebouncedWorker(self._diagnose)
        self._shown = np.zeros(len(data.pooled), dtype=bool)
        self._version = 0
        self._refresh()
        self._screen = self._choose()

    def close(self) -> None:
        """Stop the background worker."""
        self._worker.close()

    def state(self) -> State:
        """Return the counts and the diagnostics of the direction."""
        with self._lock:
            yes, no = (int((self._artifact_labels.values == value).sum()) for value in (YES, NO))
            diagnostics, is_diagnosing = self._worker.look() if yes + no else (None, False)
            return State(
                images=len(self._shown),
                yes=yes,
                no=no,
                proposed=len(self._proposed()),
                version=self._version,
                can_undo=self._artifact_labels.can_undo,
                advice=_advice(yes, no, len(self._shown)),
                saved=display_path(self.data.table),
                diagnostics=diagnostics,
                is_diagnosing=is_diagnosing,
            )

    def label(self, images: Sequence[int], *, has_artifact: bool) -> State:
        """Label images, update the ranking and write the table."""
        with self._lock:
            self._artifact_labels.set(images, has_artifact=has_artifact)
            self._refresh()
            self._save()
            return self.state()

    def undo(self) -> Undone:
        """Undo the last step, if there is one."""
        with self._lock:
            images = self._artifact_labels.undo()
            if images:
                self._refresh()
                self._save()
            return Undone(images, self.state())

    def screen(self) -> list[Choice]:
        """Return the current images to label."""
        with self._lock:
            return list(self._screen)

    def next_screen(self) -> list[Choice]:
        """Return the next images to label; skipped ones come last."""
        with self._lock:
            self._screen = self._choose()
            return list(self._screen)

    def ordered(self) -> RankedImages:
        """Return all images, the most likely first; in their own order before there is a ranking."""
        with self._lock:
            scores = self._scores
            order = np.arange(len(self._shown)) if scores is None else np.argsort(-scores, kind="stable")
            return RankedImages(
                order=order.tolist(),
                scores=None if scores is None else np.round(scores.astype(np.float64), 3).tolist(),
                labels=self._artifact_labels.values.tolist(),
                proposed=self._proposed().tolist(),
            )

    def finish(self) -> Finish:
        """Return how to start a run, and whether the labels suffice; raise where there is no ranking yet."""
        with self._lock:
            if self._scores is None:
                raise DataError(f"Not yet: {self.state().advice}")
            self._save()
        self.wait()  # for the diagnostics of these very labels
        now = self.state()
        diagnostics = None if now.is_diagnosing else now.diagnostics
        return describe_finish(self.data, diagnostics, unlabelled=now.images - now.yes - now.no)

    def accept(self, suspect: str) -> State:
        """Label the images of a suggested cluster in one step; existing labels are not changed."""
        found = self.data.suspects.get(suspect)
        if found is None:
            raise DataError(f"There is no suspect {suspect!r}. Known: {', '.join(self.data.suspects) or 'none'}.")
        with self._lock:
            unknown = [image for image in found.images if self._artifact_labels.values[image] == UNKNOWN]
            return self.label(unknown, has_artifact=True) if unknown else self.state()

    def thumbnail(self, image: int) -> bytes:
        """Return an image as JPEG."""
        self._check(image)
        return as_jpeg(draw_thumbnail(self.data.opened, image))

    def heatmap(self, image: int) -> bytes:
        """Return an image with the heatmap of the CAV of the labels."""
        self._check(image)
        cav = self._cav
        if cav is None:
            raise DataError("A heatmap needs images labelled with and without the artifact.")
        return as_jpeg(draw_heatmap(self.data.opened, image, cav))

    def wait(self, timeout: float = 60) -> bool:
        """Wait for the diagnostics of all labels; return whether they are available."""
        return self._worker.wait(timeout)

    def _check(self, image: int) -> None:
        if not 0 <= image < len(self._shown):
            raise DataError(f"There is no image {image}: they are numbered 0 to {len(self._shown) - 1}.")

    def _proposed(self) -> np.ndarray:
        values = self._artifact_labels.values
        likely = False if self._scores is None else self._scores > 0
        return np.flatnonzero((values == YES) | (likely & (values == UNKNOWN)))

    def _refresh(self) -> None:
        values, pooled = self._artifact_labels.values, self.data.pooled
        self._version += 1
        self._scores = self._ranking.score(values)
        rows = np.flatnonzero(values != UNKNOWN)
        can_fit = len(np.unique(values[rows])) == 2 and np.ptp(pooled[rows], axis=0).max() > 0
        # Of the heatmaps: this CAV locates artifacts best (paper, Q1).
        self._cav = SignalCAV().fit(pooled[rows], values[rows] == YES) if can_fit else None
        if len(rows):
            self._worker.ask(values)

    def _choose(self) -> list[Choice]:
        values, images = self._artifact_labels.values, self.data.opened.images
        classes = len(images.class_names)
        short = needs_clean_labels(images.labels, values, self.data.biased_class, classes=classes)
        chosen = self._ranking.choose(values, self._scores, count=SCREEN, shown=self._shown, short=short)
        if self._shown[[choice.image for choice in chosen]].any():
            self._shown[:] = False  # all were skipped once: start again
        self._shown[[choice.image for choice in chosen]] = True
        return chosen

    def _save(self) -> None:
        table, opened = self.data.table, self.data.opened
        proposed = None if self._scores is None else self._scores > 0
        try:
            write_labels(table, opened.rows, self._artifact_labels.values, proposed, column=opened.run.artifact.column)
        except OSError as error:
            raise RunError(f"{table} cannot be written ({error.strerror}): the last label is not saved.") from error

    def _diagnose(self, values: np.ndarray) -> LabelDiagnostics:
        opened = self.data.opened
        return diagnose_labels(
            self._ranking,
            self.data.pooled,
            opened.images.labels,
            values,
            cav=opened.run.correction.cav,
            names=opened.names,
            class_names=opened.images.class_names,
            biased_class=self.data.biased_class,
        )


def _advice(yes: int, no: int, images: int) -> str:
    missing = MIN_LABELS - yes - no
    if yes + no == images:
        return "All images are labelled."
    if yes == 0 and missing <= 0:
        return "No image with the artifact yet. Continue, or look for one among all images."
    if missing > 0:
        some = "" if yes else ", at least one with the artifact"
        return f"Label {missing} more image{'s' if missing > 1 else ''}{some}. Then all others are ranked."
    if no == 0:
        return "Label some images without the artifact, too. Until then, unlabelled images are taken as such."
    return "Continue until the proposed labels are right. Review them in the list of all images."
