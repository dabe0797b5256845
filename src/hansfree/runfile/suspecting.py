"""Look for suspects in the images of a run file: one pass through the model, kept on disk, then page and lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch.utils.data import DataLoader

from hansfree.activations import Activations, collect_activations, cut_again
from hansfree.datasets import Part
from hansfree.errors import check_choice
from hansfree.files import write_json, write_text, written_atomically
from hansfree.fingerprints import fingerprint, fingerprint_model
from hansfree.progress import Progress, silent
from hansfree.report.suspects import write_suspects_page
from hansfree.runfile.unlabelled import Unlabelled, looking_folder
from hansfree.suspects import Cluster, Suspects, find_suspects, measure_images, relevance_features

By = Literal["activations", "relevance"]

_CHUNK = 512  # images between two writes: what a kill costs at most
_BATCH = 64
_MOST_LISTS = 10  # clusters that are offered as marks


@dataclass(frozen=True)
class Looked:
    """What was found, and where it is written."""

    suspects: Suspects
    page: Path
    lists: tuple[Path, ...]  # the images of the oddest clusters, for the labelling page


def look_for_suspects(opened: Unlabelled, *, by: By = "activations", progress: Progress = silent) -> Looked:
    """Rank clusters and properties of all images; write ``suspects.html``, ``suspects.json`` and ``suspect-<n>.json``.

    Args:
        by: what images are clustered by: what the layer sees, or where the model looks.
    """
    check_choice("by", by, By)
    folder, images = looking_folder(opened.run), opened.images
    pooled, logits = _pass_once(opened, folder / "suspects", progress)
    features = pooled if by == "activations" else relevance_features(opened.model, images, progress=progress)
    suspects = find_suspects(
        features,
        images.labels,
        logits,
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
    title = f"{opened.run.model.source}, images clustered by {by} at {opened.layer}"
    page = write_suspects_page(suspects, folder / "suspects.html", images=images, title=title)
    return Looked(suspects, page, lists)


def _write_list(path: Path, cluster: Cluster, names: Sequence[str]) -> Path:
    write_json(path, [names[row] for row in cluster.rows])
    return path


def _pass_once(opened: Unlabelled, folder: Path, progress: Progress) -> tuple[np.ndarray, np.ndarray]:
    """Return pooled activations and logits of all images; what is on disk is not computed again.

    Whole maps are not kept: those of 10,000 images take gigabytes at a convolution of VGG-16.
    """
    run, images = opened.run, opened.images
    home = folder / fingerprint(fingerprint_model(opened.model), opened.layer, images.fingerprint, str(_CHUNK))
    starts = range(0, len(images), _CHUNK)
    chunks = []
    for start in progress(starts, total=len(starts), label=f"activations at {opened.layer}"):
        kept = home / f"{start:08d}.safetensors"
        if not kept.exists():
            some = Part(images, range(start, min(start + _CHUNK, len(images))))
            loader = DataLoader(some, batch_size=_BATCH, num_workers=run.workers)
            found = collect_activations(opened.model, opened.layer, loader, device=run.device)
            content = {"pooled": np.ascontiguousarray(found.pooled), "logits": _logits(opened, found)}
            with written_atomically(kept) as temporary:
                save_file(content, temporary)
        chunks.append(load_file(kept))
    pooled, logits = (np.concatenate([chunk[name] for chunk in chunks]) for name in ("pooled", "logits"))
    return pooled, logits


@torch.inference_mode()
def _logits(opened: Unlabelled, activations: Activations) -> np.ndarray:
    cut = cut_again(opened.model, activations)
    cut.eval_mode()
    parts = [cut.head(*cut.phi(*live)) for live in activations.stream(batch_size=_BATCH)]
    return np.ascontiguousarray(torch.cat(parts).float().cpu().numpy())
