"""The page of suspects: clusters with their central images, embeddings, properties."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from PIL import Image

from hansfree._internal.files import open_templates, write_text
from hansfree.data import ImageDataset, to_rgb
from hansfree.discovery.clustering import Cluster
from hansfree.discovery.suspects import Embedding, Suspects
from hansfree.errors import DataError
from hansfree.report.figures import FAINT, INK, KINDS, WIDTH, Drawing, new_figure
from hansfree.report.images import data_address

_REST = "#BBBBBB"
_DPI = 120
_SHOWN_CLUSTERS, _SHOWN_PROPERTIES, _SHOWN_IMAGES = 10, 15, 6
_THUMBNAIL = 112  # pixels


def draw_suspects(suspects: Suspects, label: int, images: ImageDataset) -> Drawing:
    """Draw the embedding of one class, with its clusters and their central images.

    Clusters are numbered by rank; those that are not listed are not drawn.
    """
    embedding = next((found for found in suspects.embeddings if found.label == label), None)
    if embedding is None:
        known = ", ".join(repr(suspects.class_names[found.label]) for found in suspects.embeddings)
        raise DataError(f"Class {label} has no embedding among these suspects. They have: {known or 'none'}.")
    shown = [(rank, found) for rank, found in _listed(suspects) if found.label == label][: len(KINDS)]
    figure = new_figure(width=WIDTH, height=max(3.6, 0.95 * len(shown)))
    grid = figure.add_gridspec(max(len(shown), 1), _SHOWN_IMAGES + 1, width_ratios=[4.5] + [1] * _SHOWN_IMAGES)
    _draw_embedding(figure.add_subplot(grid[:, 0]), embedding, shown)
    for line, (rank, cluster) in enumerate(shown):
        colour = KINDS[line][0]
        for column in range(_SHOWN_IMAGES):
            axes = figure.add_subplot(grid[line, column + 1])
            if column < len(cluster.centre):
                axes.imshow(_rgb(images, cluster.centre[column]))
                axes.set(xticks=[], yticks=[])
                axes.spines[:].set_color(colour)
                axes.spines[:].set_linewidth(1.6)
            else:
                axes.set_axis_off()
            if column == 0:
                axes.set_ylabel(f"{rank}", color=INK, fontsize=10, rotation=0, ha="right", va="center")
    name = suspects.class_names[label]
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


def write_suspects_page(suspects: Suspects, path: Path, *, images: ImageDataset, title: str = "") -> Path:
    """Write the page as one self-contained HTML file; return its path."""
    if len(images) != suspects.n:
        raise DataError(f"These suspects are among {suspects.n} images, but {len(images)} were given.")
    listed = _listed(suspects)
    labels = {cluster.label for _, cluster in listed}
    drawings = [draw_suspects(suspects, found.label, images) for found in suspects.embeddings if found.label in labels]
    template = open_templates("report", is_html=True).get_template("suspects.html.jinja")
    text = template.render(
        title=title,
        suspects=suspects,
        lines=[(rank, cluster, [_thumbnail(images, row) for row in cluster.centre]) for rank, cluster in listed],
        left_out=sum(found.level != "none" for found in suspects.clusters) - len(listed),
        properties=[found for found in suspects.properties if found.level != "none"][:_SHOWN_PROPERTIES],
        pictures=[(drawing, _png(drawing)) for drawing in drawings],
    )
    write_text(path, text)
    return path


def _listed(suspects: Suspects) -> list[tuple[int, Cluster]]:
    """Return the listed clusters with their ranks."""
    ranked = enumerate(suspects.clusters[:_SHOWN_CLUSTERS], start=1)
    return [(rank, found) for rank, found in ranked if found.level != "none"]


def _png(drawing: Drawing) -> str:
    buffer = io.BytesIO()
    drawing.figure.savefig(buffer, format="png", dpi=_DPI)
    return data_address(buffer.getvalue(), "PNG")


def _thumbnail(images: ImageDataset, row: int) -> str:
    picture = Image.fromarray(_rgb(images, row)).resize((_THUMBNAIL, _THUMBNAIL))
    buffer = io.BytesIO()
    picture.save(buffer, format="JPEG", quality=85)
    return data_address(buffer.getvalue(), "JPEG")


def _rgb(images: ImageDataset, row: int) -> np.ndarray:
    image, _ = images.pixels(row)
    return to_rgb(image)
