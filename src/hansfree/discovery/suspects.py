"""Find groups of images that may carry an unknown artifact."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import TypeAdapter
from torch import nn
from torch.nn import functional

from hansfree._internal.progress import Progress, silent
from hansfree.data import ImageDataset
from hansfree.discovery.clustering import MIN_CLASS, Cluster, by_anomaly, find_clusters, reduce_features
from hansfree.discovery.properties import FloatArray, IntArray, Measurements, Property, compare_properties
from hansfree.errors import DataError, OptionError
from hansfree.evaluation.heatmaps import compute_heatmaps, explanation_of
from hansfree.metrics import log_odds

FORMAT: Literal["hansfree.suspects.1"] = "hansfree.suspects.1"
_MAX_EMBEDDED = 6  # classes
_MOST_POINTS = 1000  # of a class in its embedding: t-SNE of more takes minutes
_PERPLEXITY = 30.0
_CAUTION = "A cluster or property may be a true feature of the class: look at the images."


@dataclass(frozen=True, kw_only=True)
class Embedding:
    """Two-dimensional embedding of the images of one class."""

    label: int
    rows: tuple[int, ...]
    points: tuple[tuple[float, float], ...]


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """Clusters and properties, the most anomalous first."""

    format: Literal["hansfree.suspects.1"] = FORMAT
    class_names: tuple[str, ...]
    n: int
    seed: int
    verdict: str
    clusters: tuple[Cluster, ...]
    properties: tuple[Property, ...]
    embeddings: tuple[Embedding, ...]  # of the classes with the most anomalous clusters
    remarks: tuple[str, ...]

    @property
    def is_loud(self) -> bool:
        """Whether anything is clearly anomalous."""
        levels = [cluster.level for cluster in self.clusters] + [found.level for found in self.properties]
        return "clear" in levels

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return json.dumps(asdict(self), indent=1, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str) -> Suspects:
        """Rebuild what `to_json` wrote."""
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValueError as error:
            raise DataError(f"These are no suspects in the format {FORMAT!r}, or damaged ({error}).") from error


def relevance_features(
    model: nn.Module, images: ImageDataset, *, grid: int = 12, batch_size: int = 64, progress: Progress = silent
) -> npt.NDArray[np.float32]:
    """Return the relevance for each image's own class, summed over the cells of a grid: (n, grid * grid).

    Each heatmap is divided by its total: only the location counts.
    """
    explanation = explanation_of(model, images.batch([0]).image)
    starts = range(0, len(images), batch_size)
    parts = []
    for start in progress(starts, total=len(starts), label=f"heatmaps by {explanation}"):
        rows = np.arange(start, min(start + batch_size, len(images)))
        batch = images.batch(rows)
        labels = torch.as_tensor(images.labels[rows])
        maps = compute_heatmaps(model, batch.image, labels, explanation=explanation, batch_size=batch_size)
        cells = functional.adaptive_avg_pool2d(maps[:, None].float(), grid).flatten(1)
        parts.append(cells / cells.abs().sum(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny))
    return torch.cat(parts).numpy()


def find_suspects(
    features: npt.NDArray[np.floating],
    labels: npt.NDArray[np.integer],
    logits: npt.NDArray[np.floating],
    *,
    class_names: Sequence[str],
    measured: Measurements | None = None,
    permutations: int = 999,
    seed: int = 0,
    progress: Progress = silent,
) -> Suspects:
    """Rank clusters within classes, and image properties, by how anomalous they are.

    Clusters come from spectral clustering per class (SpRAy). A cluster is anomalous if it is well separated, small,
    confidently predicted, and has a distinctive property. A small p-value excludes chance; it does not prove an
    artifact.

    Args:
        features: (n, d): pooled activations at the layer, or relevance
            (:func:`~hansfree.discovery.suspects.relevance_features`).
        labels: True classes; logits: (n, classes).
        measured: Properties of the images (:func:`measure_images`); None leaves them out.
        permutations: Of the labels, for the p-values of properties, which are at least 1 / (1 + permutations).
    """
    true = np.asarray(labels, dtype=np.int64)
    answers = np.asarray(logits, dtype=np.float64)
    _check(features, true, answers, class_names, measured, permutations, seed)
    confidence = log_odds(answers)
    large = np.flatnonzero(np.bincount(true, minlength=len(class_names)) >= MIN_CLASS)
    clusters: list[Cluster] = []
    points: dict[int, tuple[IntArray, FloatArray]] = {}
    for label in progress(large.tolist(), total=len(large), label="clusters per class"):
        rows = np.flatnonzero(true == label)
        points[label] = rows, reduce_features(features[rows])
        clusters += find_clusters(
            points[label][1],
            rows,
            confidence[rows, label],
            measured=measured,
            label=label,
            class_name=class_names[label],
            tests=len(large),
            seed=seed,
        )
    clusters.sort(key=by_anomaly)
    properties: tuple[Property, ...] = ()
    if measured is not None:
        properties = compare_properties(
            measured,
            true,
            answers.argmax(axis=1) != true,
            class_names=class_names,
            permutations=permutations,
            seed=seed,
            progress=progress,
        )
    shown = list(dict.fromkeys(cluster.label for cluster in clusters))[:_MAX_EMBEDDED]
    return Suspects(
        class_names=tuple(class_names),
        n=len(true),
        seed=seed,
        verdict=_verdict(clusters, properties),
        clusters=tuple(clusters),
        properties=properties,
        embeddings=tuple(
            _embed(label, *points[label], seed=seed) for label in progress(shown, total=len(shown), label="embeddings")
        ),
        remarks=_remarks(true, class_names),
    )


def _check(
    features: npt.NDArray[np.floating],
    labels: IntArray,
    logits: FloatArray,
    class_names: Sequence[str],
    measured: Measurements | None,
    permutations: int,
    seed: int,
) -> None:
    n = len(labels)
    if features.ndim != 2 or len(features) != n:
        raise DataError(f"{n} labels need as many rows of features, not an array of shape {features.shape}.")
    if logits.shape != (n, len(class_names)):
        raise DataError(f"{n} images of {len(class_names)} classes need logits for each, not of shape {logits.shape}.")
    if not np.isfinite(features).all() or not np.isfinite(logits).all():
        raise DataError("Some features or logits are not finite numbers: check the model's weights and the images.")
    if n and not 0 <= labels.min() <= labels.max() < len(class_names):
        raise DataError(f"Labels run from 0 to {len(class_names) - 1}, but there are {labels.min()} to {labels.max()}.")
    if measured is not None and len(measured) != n:
        raise DataError(f"{n} labels need as many measured images, not {len(measured)}.")
    if permutations < 19:
        raise OptionError(f"permutations is {permutations}; below 19 no p-value can reach 0.05.")
    if seed < 0:
        raise OptionError(f"A seed is 0 or more, not {seed}.")
    if np.bincount(labels, minlength=1).max() < MIN_CLASS:
        raise DataError(f"No class has {MIN_CLASS} images, which clusters need.")


def _remarks(labels: IntArray, class_names: Sequence[str]) -> tuple[str, ...]:
    counts = np.bincount(labels, minlength=len(class_names))
    small = [repr(name) for name, count in zip(class_names, counts) if count < MIN_CLASS]
    if not small:
        return ()
    shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
    return (f"Too few images for clusters (below {MIN_CLASS}): {shown}.",)


def _verdict(clusters: Sequence[Cluster], properties: Sequence[Property]) -> str:
    """Return the sentences of the first clear cluster and property."""
    clear = [[each.sentence for each in kind if each.level == "clear"][:1] for kind in (clusters, properties)]
    if not any(clear):
        return "Nothing is clearly anomalous. This does not prove that the model uses no artifact."
    return " ".join([*clear[0], *clear[1], _CAUTION])


def _embed(label: int, rows: IntArray, points: FloatArray, *, seed: int) -> Embedding:
    """Embed the images of a class by t-SNE; of a large class, a random sample."""
    from sklearn.manifold import TSNE

    shown = np.arange(len(rows))
    if len(rows) > _MOST_POINTS:
        shown = np.sort(np.random.default_rng(seed).choice(len(rows), _MOST_POINTS, replace=False))
    start = points[shown, :2] if points.shape[1] > 1 else np.column_stack([points[shown, 0], np.zeros(len(shown))])
    start = 1e-4 * start / max(float(start[:, 0].std()), np.finfo(np.float32).tiny)
    perplexity = min(_PERPLEXITY, (len(shown) - 1) / 3)
    placed = TSNE(2, perplexity=perplexity, init=start, random_state=seed).fit_transform(points[shown])
    return Embedding(
        label=label,
        rows=tuple(rows[shown].tolist()),
        points=tuple((round(float(x), 3), round(float(y), 3)) for x, y in placed),
    )
