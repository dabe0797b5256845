"""A user's own images: a listing, its artifact labels or an artifact to insert, the split, and the biased class."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

import numpy as np

from hansfree._internal.progress import Progress, silent
from hansfree.data.artifacts import Artifact
from hansfree.data.biased import MIN_IMAGES, BiasedData, check_share, insert_bias, natural_bias
from hansfree.data.examples import IMAGENET, Normalize
from hansfree.data.images import Channels, Resize
from hansfree.data.listing import PART_NAMES, Listing, find_class, listed
from hansfree.data.splits import split_rows
from hansfree.errors import DataError, OptionError, check_count, nearest

_COLUMN = "artifact"
_ALTERNATIVES = (
    "Without artifact labels, label the images on a page (`hansfree label FILE.yaml`), or insert an artifact "
    "(`insert:` under `artifact:`)."
)
_NAMED = 3  # images in a sentence
_CLEARLY = 2  # times the share of the given class: less may be chance
SHARES = (0.8, 0.1, 0.1)
"""Of training, validation and test images, as in the paper."""


class UserImages:
    """A user's images with a natural bias, an inserted one, or a natural one tested by insertion.

    With artifact labels alone (a column of the table, or a list), the biased images are those that have it. With
    ``insert`` alone, it is inserted into a ``share`` of one class. With both, the direction is learned from the natural
    artifact, and held-out images without it are compared with themselves after insertion.

    ``root``, ``table``, ``classes`` and ``label`` are those of `Listing.read`; the table may have the artifact column.

    Args:
        artifacts: For class folders, a text or CSV file that lists the images with the artifact.
        biased_class: The class that the artifact is correlated with; None: the one with the largest share of it.
        shares: Of training, validation and test images, where the split is not given.
        share: Of the biased class's training images that ``insert`` is inserted into.
        skip_bad: Leave out unreadable images, and record them in ``skipped``; otherwise the first is an error.
        listing: Read already, in place of ``root`` and ``table``.
        has_artifact: The artifact label of each of its rows, where known.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from PIL import Image
        >>> with TemporaryDirectory() as root:  # a folder per class
        ...     for number in range(80):
        ...         (Path(root) / "ab"[number % 2]).mkdir(exist_ok=True)
        ...         Image.new("RGB", (16, 16), (number, 0, 0)).save(f"{root}/{'ab'[number % 2]}/{number}.png")
        ...     data = UserImages(root=Path(root), insert=Artifact.named("timestamp")(), size=16).data()
        >>> data.biased_class, len(data.train)
        (0, 64)
    """

    skip_option = "data.skip_bad: true"

    def __init__(
        self,
        *,
        root: Path = Path(),
        table: Path | None = None,
        artifacts: Path | None = None,
        classes: Sequence[str] | None = None,
        label: str | None = None,
        listing: Listing | None = None,
        has_artifact: np.ndarray | None = None,
        artifact_column: str = _COLUMN,
        biased_class: str | None = None,
        shares: Sequence[float] = SHARES,
        insert: Artifact | None = None,
        share: float = 0.5,
        size: int = 224,
        resize: Resize = "squash",
        channels: Channels = 3,
        transform: Normalize = IMAGENET,
        seed: int = 0,
        skip_bad: bool = False,
        progress: Progress = silent,
    ) -> None:
        check_share(share)
        if len(shares) != len(PART_NAMES):
            raise OptionError(f"shares are three numbers, of {listed(PART_NAMES)} images, not {list(shares)}.")
        check_count("seed", seed, least=0)
        if len(transform.mean) != channels or len(transform.std) != channels:
            raise OptionError(
                f"channels is {channels}, but the transform has {len(transform.mean)} means and {len(transform.std)} "
                "stds: give one of each per channel."
            )
        if table is not None and artifacts is not None:
            raise OptionError("Give either a table with an artifact column or a list of artifacts, not both.")
        if table is None and label is not None:
            raise OptionError("label selects one of several labels of an image, which only a table can have.")
        if insert is not None and type(insert).insert is not Artifact.insert:
            raise OptionError(f"The artifact {insert.name!r} cannot be inserted into a finished image.")
        self.root, self.size, self.resize, self.channels, self.transform = root, size, resize, channels, transform
        self.seed, self.skip_bad, self.shares = seed, skip_bad, tuple(shares)
        self.inserted, self._share = insert, share
        self.remarks: list[str] = []  # sentences for the report: what the files leave open
        self.doubts: list[str] = []  # those of them that name something wrong

        self.listing = listing or Listing.read(root, table=table, classes=classes, label=label)
        self.artifact_labels = has_artifact  # by row of the listing; None where there are none
        self.is_annotated: np.ndarray | None = None  # by row: whether a person gave the label; None where not known
        if table is not None:
            self._read_column(artifact_column)
        elif artifacts is not None:
            self.artifact_labels, self.is_annotated = self.listing.read_artifact_list(artifacts, column=artifact_column)
        elif insert is None and has_artifact is None:
            place = self.listing.place
            raise DataError(f"{place} has no artifact labels: give a list (data.artifacts). {_ALTERNATIVES}")
        self.artifact = artifact_column if insert is None or self.is_natural else insert.name
        self._given_class: int | None = None
        if biased_class is not None:
            self._given_class = find_class(biased_class, self.listing.class_names, option="biased_class")
        self.is_drawn = self.listing.parts is None  # the split
        self._remark_on_listing(are_classes_given=classes is not None or label is not None)
        self._open_files(progress)

    def _read_column(self, column: str) -> None:
        columns = self.listing.columns
        if column in columns:
            self.artifact_labels = self.listing.artifact_labels(column)
            self.is_annotated = self.listing.is_annotated(column)
        elif self.inserted is None or column != _COLUMN:
            raise missing_column(self.listing, column)

    def _remark_on_listing(self, *, are_classes_given: bool) -> None:
        self.remarks += filter(None, [self.listing.group_note])
        if self.is_drawn:
            self.remarks.append(
                "The split is random: if the model was trained on some of these images, its test scores are too good. "
                "Give the split of its training, where you know it."
            )
        elif self.shares != SHARES:
            self.remarks.append(f"The split is given: the shares {list(self.shares)} are not used.")
        if self.artifact_labels is not None and self.is_annotated is not None:
            self.remarks.append(describe_annotations(self.is_annotated, self.artifact_labels))
        if not are_classes_given:
            self.remarks.append(
                f"No classes were given: the outputs are taken to be {listed(self.listing.class_names)}, in that order."
            )

    def _open_files(self, progress: Progress) -> None:
        """Check every image, split them, and find the biased class.

        The split is drawn before the images are checked: an image keeps its part when another one is unreadable.
        """
        listing = self.listing
        parts = listing.parts
        if parts is None:  # by class and artifact, so that every part has its share of both
            kinds = 2 * listing.labels + (0 if self.artifact_labels is None else self.artifact_labels)
            parts = split_rows(kinds, shares=self.shares, groups=listing.groups, seed=self.seed)
        opened = listing.open(
            size=self.size,
            resize=self.resize,
            channels=self.channels,
            skip_bad=self.skip_bad,
            option=self.skip_option,
            progress=progress,
        )
        self.source = opened.source
        self.skipped = opened.skipped  # a sentence per image that was left out
        self.parts = opened.split(parts)
        self._remark_on_copies(opened.rows, parts)
        if lost := opened.untrained_classes(self.parts[0]):
            self.remarks.append(f"No training image is of {listed(lost)}: a correction may harm what it never sees.")
        if len(np.unique(self.source.labels)) < 2:
            only = listing.class_names[self.source.labels[0]]
            raise DataError(f"All images of {listing.place} are of class {only!r}: there is nothing to tell apart.")
        if self.artifact_labels is not None:
            self._check_artifact_labels(self.artifact_labels)
            return
        if self._given_class is not None:
            self.biased_class = self._given_class
        else:
            self.biased_class = int(self.parts[0].labels.min())
            name = listing.class_names[self.biased_class]
            self.remarks.append(f"No biased class was given: the artifact is inserted into {name!r}, the first.")

    def _doubt(self, sentence: str) -> None:
        self.doubts.append(sentence)
        self.remarks.append(sentence)

    def _remark_on_copies(self, rows: np.ndarray, parts: Sequence[np.ndarray]) -> None:
        """Note images with the same content: in two parts they make scores too good, and their labels may differ."""
        listing = self.listing
        part_of = np.empty(len(listing.labels), dtype=np.int64)
        for number, part in enumerate(parts):
            part_of[part] = number
        across: dict[tuple[int, ...], list[np.ndarray]] = {}
        within: list[np.ndarray] = []
        contrary: list[np.ndarray] = []
        for copies in listing.find_copies(rows):
            found = tuple(np.unique(part_of[copies]).tolist())
            within.append(copies) if len(found) == 1 else across.setdefault(found, []).append(copies)
            labels = [listing.labels, *([] if self.artifact_labels is None else [self.artifact_labels])]
            if any(len(np.unique(each[copies])) > 1 for each in labels):
                contrary.append(copies)
        for found, groups in across.items():
            names = " and ".join(PART_NAMES[number] for number in found)
            self._doubt(
                f"Some {names} images have the same content ({_name_copies(groups, listing.paths)}), which makes "
                "scores too good. Keep each image in one split."
            )
        for groups, sentence in (
            (within, "Images of one split have the same content ({}): each counts as often as it is listed."),
            (contrary, "Images with the same content have different labels ({}): some of these labels are wrong."),
        ):
            if groups:
                self._doubt(sentence.format(_name_copies(groups, listing.paths)))

    def _check_artifact_labels(self, by_row: np.ndarray) -> None:
        place, n = self.listing.place, len(self.source)
        bits = [by_row[part.ids] for part in self.parts]
        total = sum(int(part.sum()) for part in bits)
        if total in (0, n):
            which = "None" if total == 0 else "Each"
            raise DataError(
                f"{which} of the {n} images of {place} has the artifact: images with and without it are needed."
            )
        if bits[0].sum() < MIN_IMAGES:
            raise DataError(
                f"{bits[0].sum()} of the {len(bits[0])} training images of {place} have the artifact: a direction "
                f"needs at least {MIN_IMAGES}."
            )
        for name, part in zip(PART_NAMES[1:], bits[1:]):
            if part.all():
                raise DataError(f"Each {name} image of {place} has the artifact: some without it are needed.")
            if not part.any() and self.inserted is None:
                self.remarks.append(f"No {name} image has the artifact: its effect on them is not available.")
        labels, names = self.parts[0].labels, self.listing.class_names
        if full := [names[label] for label in np.unique(labels) if bits[0][labels == label].all()]:
            self._doubt(
                f"All training images of {listed(full)} have the artifact: nothing shows what a network should see "
                "without it. Check these artifact labels."
            )
        if 2 * bits[0].sum() > len(bits[0]):
            self._doubt(
                f"{100 * bits[0].mean():.0f} % of the training images have the artifact. Check that 1 means with the "
                "artifact, and 0 without."
            )
        self._choose_class(labels, bits[0])

    def _choose_class(self, labels: np.ndarray, bits: np.ndarray) -> None:
        """Find the biased class, and reject one whose training images show no difference to learn from."""
        names, given = self.listing.class_names, self._given_class
        carry, all_of = (np.bincount(each, minlength=len(names)) for each in (labels[bits], labels))
        share = carry / np.maximum(all_of, 1)
        known = np.where(carry < MIN_IMAGES, -1, share)  # a class of one image has a share of 0 or 1
        self.biased_class = int(np.lexsort((carry, known))[-1]) if given is None else given
        name, some, every = names[self.biased_class], carry[self.biased_class], all_of[self.biased_class]
        most, doubt = int(carry.argmax()), ""
        if given is None:
            self.remarks.append(
                f"No biased class was given: {name!r} is taken, {some} of whose {every} training images have the "
                "artifact, the largest share."
            )
        # More than half of the images with the artifact are of another class, and not because that class is large.
        elif 2 * carry[most] > carry.sum() and share[most] >= _CLEARLY * share[given]:
            doubt = (
                f"biased_class is {name!r}, but {carry[most]} of the {carry.sum()} training images with the artifact "
                f"({100 * carry[most] / carry.sum():.0f} %) are of {names[most]!r}, and {some} of {name!r}. Is it the "
                "class that the artifact is correlated with?"
            )
            self._doubt(doubt)
        _check_enough(name, some, every, doubt)

    def data(self) -> BiasedData:
        """Return training images, and held-out images without and with the artifact."""
        if self.artifact_labels is not None:
            return natural_bias(
                self.parts,
                self.artifact_labels,
                name=self.artifact,
                biased_class=self.biased_class,
                insert=self.inserted,
                seed=self.seed,
                transform=self.transform,
            )
        data = insert_bias(
            self.parts,
            cast(Artifact, self.inserted),  # without artifact labels, one was required
            biased_class=self.biased_class,
            share=self._share,
            seed=self.seed,
            transform=self.transform,
        )
        bits = data.train.has_artifact[data.train.labels == self.biased_class]
        _check_enough(data.train.class_names[self.biased_class], int(bits.sum()), len(bits))
        return data

    @property
    def is_natural(self) -> bool:
        """Whether training images have the artifact by nature; otherwise it is inserted into them."""
        return self.artifact_labels is not None


def missing_column(listing: Listing, column: str) -> DataError:
    """Return the error for a table without artifact labels."""
    return DataError(
        f"{listing.place} has no column {column!r} with artifact labels.{nearest(column, listing.columns)} "
        f"It has: {', '.join(listing.columns)}. {_ALTERNATIVES}"
    )


def _name_copies(groups: Sequence[np.ndarray], paths: Sequence[str | Path]) -> str:
    """Return how many groups of copies there are, and the first of them by name."""
    shown = [" = ".join(Path(paths[index]).name for index in group[:_NAMED]) for group in groups[:_NAMED]]
    return f"{len(groups)}: {', '.join([*shown, *['...'] * (len(groups) > _NAMED)])}"


def _check_enough(name: str, some: int, every: int, doubt: str = "") -> None:
    """Reject a biased class if too few of its training images have, or do not have, the artifact."""
    if some < MIN_IMAGES or every - some < MIN_IMAGES:
        sentence = (
            f"{some} of the {every} training images of the biased class {name!r} have the artifact. The direction "
            f"is learned within that class, from at least {MIN_IMAGES} with and {MIN_IMAGES} without."
        )
        raise DataError(f"{sentence} {doubt}".rstrip())


def describe_annotations(is_annotated: np.ndarray, has_artifact: np.ndarray) -> str:
    """Return how many artifact labels are a person's, how many were proposed, and what that means for a run."""
    n, annotated = len(is_annotated), int(is_annotated.sum())
    if annotated == n:
        return f"A person gave all {n:,} artifact labels."
    positive = int((has_artifact & ~is_annotated).sum())
    return (
        f"A person gave {annotated:,} of the {n:,} artifact labels, and the labelling page proposed {n - annotated:,} "
        f"({positive:,} of these with the artifact). All are taken as correct: a wrong proposal makes the direction "
        "and the scores wrong, too."
    )
