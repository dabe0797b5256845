"""Find groups of images that may carry an unknown artifact, and show them on a page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from pydantic import TypeAdapter
from torch import nn
from torch.nn import functional

from hansfree._internal.files import open_templates, write_text
from hansfree._internal.progress import Progress, silent
from hansfree.data import ImageDataset
from hansfree.discovery.clustering import MIN_CLASS, Cluster, by_anomaly, find_clusters, reduce_features
from hansfree.discovery.properties import IntArray, Measurements, Property, compare_properties
from hansfree.errors import DataError
from hansfree.evaluation.heatmaps import compute_heatmaps, explanation_of
from hansfree.metrics import log_odds
from hansfree.report.images import picture_of

FORMAT: Literal["hansfree.suspects.1"] = "hansfree.suspects.1"
_CAUTION = "A cluster or property may be a true feature of the class: look at the images."
_EXPLAINED = 256  # images between two traces of the model, and between two steps of the bar
_SHOWN_CLUSTERS, _SHOWN_PROPERTIES = 10, 15


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
    remarks: tuple[str, ...]

    @property
    def is_loud(self) -> bool:
        """Whether anything is clearly anomalous."""
        return "clear" in {*(found.level for found in self.clusters), *(found.level for found in self.properties)}

    @property
    def listed(self) -> list[tuple[int, Cluster]]:
        """The clusters that the page lists, with their ranks."""
        ranked = enumerate(self.clusters[:_SHOWN_CLUSTERS], start=1)
        return [(rank, cluster) for rank, cluster in ranked if cluster.level != "none"]

    @property
    def listed_properties(self) -> list[Property]:
        """The properties that the page lists."""
        return [found for found in self.properties[:_SHOWN_PROPERTIES] if found.level != "none"]

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return TypeAdapter(Suspects).dump_json(self, indent=1).decode()

    @classmethod
    def from_json(cls, text: str | bytes) -> Suspects:
        """Rebuild what `to_json` wrote."""
        try:
            return TypeAdapter(cls).validate_json(text)
        except ValueError as error:
            raise DataError(f"These are no suspects in the format {FORMAT!r}, or damaged ({error}).") from error


def relevance_features(
    model: nn.Module, images: ImageDataset, *, grid: int = 12, progress: Progress = silent
) -> npt.NDArray[np.float32]:
    """Return the relevance for each image's own class, summed over the cells of a grid: (n, grid * grid).

    Each heatmap is divided by its total: only the location counts.
    """
    explanation = explanation_of(model, images.batch([0]).image)
    starts = range(0, len(images), _EXPLAINED)
    parts = []
    for start in progress(starts, total=len(starts), label=f"heatmaps by {explanation}"):
        rows = np.arange(start, min(start + _EXPLAINED, len(images)))
        batch = images.batch(rows)
        labels = torch.as_tensor(images.labels[rows])
        maps = compute_heatmaps(model, batch.image, labels, explanation=explanation)
        cells = functional.adaptive_avg_pool2d(maps[:, None].float(), grid).flatten(1)
        parts.append(cells / cells.abs().sum(dim=1, keepdim=True).clamp_min(torch.finfo(torch.float32).tiny))
    return torch.cat(parts).numpy()


def find_suspects(
    features: npt.NDArray[np.floating],
    labels: npt.NDArray[np.integer],
    logits: npt.NDArray[np.floating],
    *,
    class_names: Sequence[str],
    measured: Measurements,
    permutations: int = 999,
    seed: int = 0,
    progress: Progress = silent,
) -> Suspects:
    """Rank clusters within classes, and image properties, by how anomalous they are.

    Clusters come from spectral clustering per class (SpRAy). A cluster is anomalous if it is well separated, small,
    confidently predicted, and has a distinctive property. A small p-value excludes chance; it does not prove an
    artifact.

    Args:
        features: (n, d): pooled activations at the layer, or `relevance_features`.
        labels: True classes; logits: (n, classes).
        measured: Properties of the images, by `measure_images`.
        permutations: Of the labels, for the p-values of properties, which are at least 1 / (1 + permutations).
    """
    true = np.asarray(labels, dtype=np.int64)
    answers = np.asarray(logits, dtype=np.float64)
    if not np.isfinite(features).all() or not np.isfinite(answers).all():
        raise DataError("Some features or logits are not finite numbers: check the model's weights and the images.")
    confidence = log_odds(answers)
    large = np.flatnonzero(np.bincount(true, minlength=len(class_names)) >= MIN_CLASS)
    if not large.size:
        raise DataError(f"No class has {MIN_CLASS} images, which clusters need.")
    clusters: list[Cluster] = []
    for label in progress(large.tolist(), total=len(large), label="clusters per class"):
        rows = np.flatnonzero(true == label)
        clusters += find_clusters(
            reduce_features(features[rows]),
            rows,
            confidence[rows, label],
            measured=measured,
            label=label,
            class_name=class_names[label],
            tests=len(large),
            seed=seed,
        )
    clusters.sort(key=by_anomaly)
    properties = compare_properties(
        measured,
        true,
        answers.argmax(axis=1) != true,
        class_names=class_names,
        permutations=permutations,
        seed=seed,
        progress=progress,
    )
    return Suspects(
        class_names=tuple(class_names),
        n=len(true),
        seed=seed,
        verdict=_verdict(clusters, properties),
        clusters=tuple(clusters),
        properties=properties,
        remarks=_remarks(true, class_names),
    )


def _remarks(labels: IntArray, class_names: Sequence[str]) -> tuple[str, ...]:
    counts = np.bincount(labels, minlength=len(class_names))
    small = [repr(name) for name, count in zip(class_names, counts) if count < MIN_CLASS]
    shown = ", ".join(small[:5]) + (f" and {len(small) - 5} more" if len(small) > 5 else "")
    return (f"Too few images for clusters (below {MIN_CLASS}): {shown}.",) if small else ()


def _verdict(clusters: Sequence[Cluster], properties: Sequence[Property]) -> str:
    """Return the sentences of the first clear cluster and property."""
    clear = [[each.sentence for each in kind if each.level == "clear"][:1] for kind in (clusters, properties)]
    if not any(clear):
        return "Nothing is clearly anomalous. This does not prove that the model uses no artifact."
    return " ".join([*clear[0], *clear[1], _CAUTION])


def write_suspects_page(suspects: Suspects, path: Path, *, images: ImageDataset, title: str = "") -> None:
    """Write the page as one self-contained HTML file."""
    text = (
        open_templates("report", is_html=True)
        .get_template("suspects.html.jinja")
        .render(
            title=title,
            suspects=suspects,
            lines=[
                (rank, cluster, [picture_of(images.pixels(row)[0]) for row in cluster.centre])
                for rank, cluster in suspects.listed
            ],
            left_out=sum(found.level != "none" for found in suspects.clusters) - len(suspects.listed),
            properties=suspects.listed_properties,
        )
    )
    write_text(path, text)
