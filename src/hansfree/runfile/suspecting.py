"""Look for suspects in the images of a run file: one pass through the model, kept on disk, then page and lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

from hansfree.errors import check_choice
from hansfree.files import write_json, write_text
from hansfree.progress import Progress, silent
from hansfree.report.suspects import write_suspects_page
from hansfree.runfile.passing import pass_once
from hansfree.runfile.unlabelled import Unlabelled, looking_folder
from hansfree.suspects import Cluster, Suspects, find_suspects, measure_images, relevance_features

By = Literal["activations", "relevance"]

_MOST_LISTS = 10  # clusters that are offered as marks


@dataclass(frozen=True)
class SuspectsFound:
    """What was found, and where it is written."""

    suspects: Suspects
    page: Path
    lists: tuple[Path, ...]  # the images of the oddest clusters, for the labelling page


def look_for_suspects(opened: Unlabelled, *, by: By = "activations", progress: Progress = silent) -> SuspectsFound:
    """Rank clusters and properties of all images; write ``suspects.html``, ``suspects.json`` and ``suspect-<n>.json``.

    Args:
        by: what images are clustered by: what the layer sees, or where the model looks.
    """
    check_choice("by", by, By)
    folder, images = looking_folder(opened.run), opened.images
    passed = pass_once(opened, progress=progress)
    features = passed.pooled if by == "activations" else relevance_features(opened.model, images, progress=progress)
    suspects = find_suspects(
        features,
        images.labels,
        passed.logits,
        class_names=images.class_names,
        measured=measure_images(images, paths=opened.paths, progress=progress),
        seed=opened.run.seed,
        progress=progress,
    )
    for old in folder.glob("suspect-*.json"):
        old.unlink()  # of an earlier look: the labelling page would offer it beside the new ones
    lists = tuple(
        _write_list(folder / f"suspect-{number}.json", cluster, opened.names)
        for number, cluster in enumerate(suspects.clusters[:_MOST_LISTS], start=1)
        if cluster.level != "none"
    )
    write_text(folder / "suspects.json", suspects.to_json() + "\n")
    title = f"{PurePath(opened.run.model.source).name}, images clustered by {by} at {opened.layer}"
    page = write_suspects_page(suspects, folder / "suspects.html", images=images, title=title)
    return SuspectsFound(suspects, page, lists)


def _write_list(path: Path, cluster: Cluster, names: Sequence[str]) -> Path:
    write_json(path, [names[row] for row in cluster.rows])
    return path
