"""Other artifacts of a run: removed with its own, protected, or only tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hansfree.cavs import CAV
from hansfree.data import (
    MIN_IMAGES,
    STANDARD_COLUMNS,
    Artifact,
    BiasedData,
    Listing,
    SourceSubset,
    UserImages,
    WithArtifact,
    insertable_artifacts,
)
from hansfree.errors import DataError, OptionError, nearest
from hansfree.pipeline.config import RunConfig
from hansfree.pipeline.workspace import Concept

ConceptLabels = Mapping[str, np.ndarray]  # by column of the table, for every row


def read_concept_labels(run: RunConfig) -> ConceptLabels:
    """Return the columns that ``remove`` and ``keep`` name; raise OptionError for unknown names."""
    given = run.artifact
    if not (given.remove or given.keep):
        return {}
    listing = None
    if run.data.table is not None:
        listing = Listing.read(run.data.root, table=run.data.table, classes=run.data.classes, label=run.model.label)
    others = () if listing is None else listing.columns
    columns = [name for name in others if name not in (*STANDARD_COLUMNS, given.column)]
    insertable = [name for name in insertable_artifacts() if name not in (*columns, given.insert)]
    known = [*columns, *insertable]
    for key, names in (("remove", given.remove), ("keep", given.keep)):
        for name in names:
            if name not in known:
                raise OptionError(
                    f"artifact.{key}: {name!r} is no further column of the table, and no artifact that can be inserted "
                    f"by its name.{nearest(name, known)} Further columns: {', '.join(columns) or 'none'}. "
                    f"Insertable: {', '.join(insertable)}."
                )
    wanted = [name for name in (*given.remove, *given.keep) if name in columns]
    return {} if listing is None else {name: listing.artifact_labels(name) for name in wanted}


def find_concepts(
    names: Sequence[str], labels: ConceptLabels, *, images: UserImages, data: BiasedData, cav: str
) -> tuple[Concept, ...]:
    """Return where the direction of each name is learned, from training images without the run's own artifact.

    A column is as good as for the artifact itself; only a kind of CAV that is learned from pairs puts in what it can.
    """
    wants_pairs, clean = CAV.named(cav).needs_pairs, np.flatnonzero(~data.train.has_artifact)
    concepts: list[Concept] = []
    for name in names:
        if name in labels and not (wants_pairs and name in insertable_artifacts()):
            concepts.append(_from_labels(name, labels[name], data))
        else:
            concepts.append(
                Concept(name=name, rows=clean, inserted=insert_into(images, 0, name, data.train.ids[clean]))
            )
    return tuple(concepts)


def describe_concept(concept: Concept, data: BiasedData) -> str:
    """Say in a few words where a direction comes from."""
    if concept.labels is None:
        return f"{concept.name}, inserted into {len(concept.rows)} training images"
    label = data.train.class_names[data.train.labels[concept.rows[0]]]
    return f"{concept.name}, in {int(concept.labels.sum())} of {len(concept.rows)} training images of {label!r}"


def insert_into(images: UserImages, part: int, artifact: str, ids: np.ndarray) -> WithArtifact:
    """Return some images of a part, in its order, with an artifact in each."""
    source = images.parts[part]
    some = SourceSubset(source, np.flatnonzero(np.isin(source.ids, ids)))
    return WithArtifact(some, Artifact.named(artifact)(), share=1, seed=images.seed, transform=images.transform)


def _from_labels(name: str, by_row: np.ndarray, data: BiasedData) -> Concept:
    """Learn within one class, as the run's own direction is: the one with the largest share of such images."""
    train = data.train
    bits, is_clean, n = by_row[train.ids], ~train.has_artifact, len(train.class_names)
    carry = np.bincount(train.labels[is_clean & bits], minlength=n)
    others = np.bincount(train.labels[is_clean & ~bits], minlength=n)
    is_enough = (carry >= MIN_IMAGES) & (others >= MIN_IMAGES)
    if not is_enough.any():
        raise DataError(
            f"{name}: no class has {MIN_IMAGES} training images with it and {MIN_IMAGES} without, none of which "
            "carries the run's own artifact. So its direction cannot be learned."
        )
    share = np.where(is_enough, carry / np.maximum(carry + others, 1), -1)
    rows = np.flatnonzero(is_clean & (train.labels == share.argmax()))
    return Concept(name=name, rows=rows, labels=bits[rows])
