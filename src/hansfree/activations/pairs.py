"""The same images without and with the artifact, in one cache: joined by their ids, told apart by their bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hansfree.activations.cache import Activations
from hansfree.errors import CacheError, DataError


def join(first: Activations, second: Activations) -> Activations:
    """Return the images of both, taken at one layer of one model; what follows from them is kept in memory."""
    if (first.layer, first.trunk, first.pooling) != (second.layer, second.trunk, second.pooling):
        raise CacheError("Only activations of the same layer of the same model can be joined.")
    bits = (first.has_artifact, second.has_artifact)
    return replace(
        first,
        pooled=np.concatenate([first.pooled, second.pooled]),
        labels=np.concatenate([first.labels, second.labels]),
        ids=np.concatenate([first.ids, second.ids]),
        has_artifact=None if bits[0] is None or bits[1] is None else np.concatenate([bits[0], bits[1]]),
        shards=first.shards + second.shards,
        folder=None,
    )


def find_pairs(activations: Activations) -> np.ndarray:
    """Return the rows of each image without and with the artifact, ``(pairs, 2)``."""
    bits = activations.has_artifact
    if bits is None:
        raise DataError("To find pairs one needs to know which images carry the artifact.")
    twins = {int(activations.ids[row]): int(row) for row in np.flatnonzero(bits)}
    pairs = np.array(
        [(row, twins[image]) for row in np.flatnonzero(~bits) if (image := int(activations.ids[row])) in twins],
        dtype=np.int64,
    ).reshape(-1, 2)
    if not len(pairs):
        raise DataError(
            "Pairs are every image twice, without and with the artifact put in, under one id. Collect the activations "
            "of both sets together (torch.utils.data.ConcatDataset); the sets must yield ids (hansfree.Example), for "
            "plain tuples are numbered in a row, each as an image of its own."
        )
    if not np.array_equal(*np.asarray(activations.labels)[pairs].T):
        raise DataError("Some images have one label without the artifact and another with it put in.")
    return pairs
