"""Find groups of images that may carry an unknown artifact, and show them on a page."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from matplotlib.axes import Axes
from pydantic import TypeAdapter
from torch import nn
from torch.nn import functional

from hansfree._internal.files import open_templates, write_text
from hansfree._internal.progress import Progress, silent
from hansfree.data import ImageDataset, to_rgb
from hansfree.discovery.clustering import MIN_CLASS, Cluster, by_anomaly, find_clusters, reduce_features
from hansfree.discovery.properties import FloatArray, IntArray, Measurements, Property, compare_properties
from hansfree.errors import DataError
from hansfree.evaluation.heatmaps import compute_heatmaps, explanation_of
from hansfree.metrics import log_odds
from hansfree.report.figures import FAINT, INK, KINDS, WIDTH, Drawing, new_figure
from hansfree.report.images import data_address, picture_of

FORMAT: Literal["hansfree.suspects.1"] = "hansfree.suspects.1"
_MAX_EMBEDDED = 6  # classes
_MOST_POINTS = 1000  # of a class in its embedding: t-SNE of more takes minutes
_PERPLEXITY = 30.0
_CAUTION = "A cluster or property may be a true feature of the class: look at the images."
_EXPLAINED = 256  # images between two traces of the model, and between two steps of the bar
_REST = "#BBBBBB"
_SHOWN_CLUSTERS, _SHOWN_PROPERTIES, _SHOWN_IMAGES = 10, 15, 6


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
        return "clear" in {*(found.level for found in self.clusters), *(found.level for found in self.properties)}

    @property
    def listed(self) -> list[tuple[int, Cluster]]:
        """The clusters that the page lists, with their ranks."""
        ranked = enumerate(self.clusters[:_SHOWN_CLUSTERS], start=1)
        return [(rank, cluster) for rank, cluster in ranked if cluster.level != "none"]

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


def draw_suspects(suspects: Suspects, embedding: Embedding, images: ImageDataset) -> Drawing:
    """Draw the embedding of one class, with its clusters and their central images.

    Clusters are numbered by rank; those that are not listed are not drawn.
    """
    label, name = embedding.label, suspects.class_names[embedding.label]
    shown = [(rank, found) for rank, found in suspects.listed if found.label == label][: len(KINDS)]
    figure = new_figure(width=WIDTH, height=max(3.6, 0.95 * len(shown)))
    grid = figure.add_gridspec(max(len(shown), 1), _SHOWN_IMAGES + 1, width_ratios=[4.5] + [1] * _SHOWN_IMAGES)
    _draw_embedding(figure.add_subplot(grid[:, 0]), embedding, shown)
    for line, (rank, cluster) in enumerate(shown):
        for column in range(_SHOWN_IMAGES):
            axes = figure.add_subplot(grid[line, column + 1])
            axes.set(xticks=[], yticks=[])
            axes.spines[:].set(color=KINDS[line][0], linewidth=1.6)
            if column < len(cluster.centre):
                axes.imshow(to_rgb(images.pixels(cluster.centre[column])[0]))
            else:
                axes.set_axis_off()
            if column == 0:
                axes.set_ylabel(f"{rank}", color=INK, fontsize=10, rotation=0, ha="right", va="center")
    numbers = "; ".join(f"cluster {rank}: {found.size} images" for rank, found in shown)
    return Drawing(
        f"suspects-{label}",
        figure,
        f"The images of class {name!r} in two dimensions, with its clusters and images at their centres ({numbers}).",
        f"Class {name!r}. Left: images that are alike lie together (t-SNE). Right: the images nearest to the centre of "
        "each cluster, in its colour; the number is its rank.",
    )


def _draw_embedding(axes: Axes, embedding: Embedding, shown: list[tuple[int, Cluster]]) -> None:
    across, up = np.array(embedding.points).T
    rows = np.array(embedding.rows)
    member = np.zeros(len(rows), dtype=bool)
    for line, (rank, cluster) in enumerate(shown):
        inside = np.isin(rows, cluster.rows)
        member |= inside
        colour, marker = KINDS[line]
        axes.scatter(across[inside], up[inside], s=14, c=colour, marker=marker, linewidths=0, label=f"{rank}", zorder=2)
    axes.scatter(across[~member], up[~member], s=8, c=_REST, marker=".", linewidths=0, zorder=1)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_color(FAINT)
    axes.set_aspect("equal", adjustable="datalim")
    if shown:
        axes.legend(loc="best", fontsize=8, frameon=False, handletextpad=0.2, title="cluster", title_fontsize=8)


def write_suspects_page(suspects: Suspects, path: Path, *, images: ImageDataset, title: str = "") -> None:
    """Write the page as one self-contained HTML file."""
    labels = {cluster.label for _, cluster in suspects.listed}
    drawings = [draw_suspects(suspects, each, images) for each in suspects.embeddings if each.label in labels]
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
            properties=[found for found in suspects.properties if found.level != "none"][:_SHOWN_PROPERTIES],
            pictures=[(drawing, _png(drawing)) for drawing in drawings],
        )
    )
    write_text(path, text)


def _png(drawing: Drawing) -> str:
    buffer = io.BytesIO()
    drawing.figure.savefig(buffer, format="png", dpi=120)
    return data_address(buffer.getvalue(), "PNG")
