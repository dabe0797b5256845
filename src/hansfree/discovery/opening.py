"""Search a run file's images: suspects and layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Literal

import numpy as np
import torch
from safetensors.numpy import load_file
from torch import nn
from torch.utils.data import DataLoader

from hansfree._internal.files import write_json, write_text
from hansfree._internal.hashing import fingerprint, fingerprint_model
from hansfree._internal.progress import Progress, silent
from hansfree.activations import is_whole, live_tensors, plan_pass, shard_path, shard_ranges, write_shard
from hansfree.data import LabelledImages, Listing, Normalize, UserImages
from hansfree.discovery.properties import measure_images
from hansfree.discovery.suspects import Suspects, find_suspects, relevance_features, write_suspects_page
from hansfree.errors import check_choice
from hansfree.models.surgery import on_device
from hansfree.pipeline import RunConfig, first_logits, load_run_model, model_facts

By = Literal["activations", "relevance"]

_BATCH = 64


@dataclass(frozen=True, eq=False, kw_only=True)
class UnlabelledImages:
    """A run file's model and all of its images, in the order of the table or of the paths.

    Unreadable images are left out of all sequences.
    """

    run: RunConfig
    model: nn.Module  # adapted: it gives one logit per class
    layer: str
    images: LabelledImages  # of all parts; the artifact labels are all False, as they are not known
    paths: Sequence[str]  # of the files
    names: Sequence[str]  # as in the table; for class folders, paths below the root
    rows: Sequence[Mapping[str, str]]  # all columns of the table; of folders image, label and split
    facts: tuple[tuple[str, str], ...]  # name and sentence


def label_directory(run: RunConfig) -> Path:
    """Return the directory of suspects and labels, beside the run directory."""
    return run.out.with_name(f"{run.out.name}-label")


def open_unlabelled_images(run: RunConfig, *, progress: Progress = silent) -> UnlabelledImages:
    """Load the model, read and check the images, and run a first batch.

    The artifact section of the run file is not used: the artifact is not known yet.
    """
    loaded = load_run_model(run)
    seen = loaded.preprocessing
    listing = Listing.read(run.data.root, table=run.data.table, classes=run.data.classes, label=run.model.label)
    opened = listing.open(
        size=seen.size,
        resize=seen.resize,
        channels=1 if seen.channels == 1 else 3,
        skip_bad=run.data.skip_bad,
        option=UserImages.skip_option,
        progress=progress,
    )
    unlabelled = np.zeros(len(opened.source), dtype=bool)
    images = LabelledImages(opened.source, unlabelled, transform=Normalize(seen.mean, seen.std))
    logits = first_logits(loaded.model, images)
    rows = [listing.rows[row] for row in opened.rows]
    sizes = np.bincount(images.labels, minlength=len(images.class_names))
    counts = ", ".join(f"{count} {name}" for count, name in zip(sizes, images.class_names))
    return UnlabelledImages(
        run=run,
        model=loaded.model,
        layer=loaded.layer,
        images=images,
        paths=[str(listing.paths[row]) for row in opened.rows],
        names=[row["image"] for row in rows],
        rows=rows,
        facts=(
            *model_facts(run, loaded, logits),
            ("images", f"{len(images)}: {counts}"),
            *([("note", listing.group_note)] if listing.group_note else []),
            *(("left out", sentence) for sentence in opened.skipped),
        ),
    )


def collect_pooled(opened: UnlabelledImages, *, progress: Progress = silent) -> tuple[np.ndarray, np.ndarray]:
    """Return pooled activations (images, channels) and logits (images, classes), cached on disk.

    Unpooled maps are not cached: those of 10,000 images take gigabytes at a layer of VGG-16.
    """
    run, images = opened.run, opened.images
    # Logits also depend on the head and the adapter, so the key differs from that of cached activations.
    key = fingerprint(
        fingerprint_model(opened.model), opened.layer, images.fingerprint, run.model.output, str(run.model.label)
    )
    home = label_directory(run) / "activations" / key
    ranges = shard_ranges(len(images), _BATCH)
    missing = [rows for rows in ranges if not is_whole(shard_path(home, rows))]
    if missing:
        device = run.device
        loader = DataLoader(images, batch_size=_BATCH, num_workers=run.workers)
        plan = plan_pass(opened.model, opened.layer, loader, device=device)
        plan.cut.eval_mode()
        phi, head = (on_device(part, device) for part in (plan.cut.phi, plan.cut.head))
        for shard, rows in zip(plan.make(missing, progress=progress), missing):
            with torch.inference_mode():
                batches = zip(*(torch.split(tensor.to(device), _BATCH) for tensor in live_tensors(shard)))
                outputs = torch.cat([head(*phi(*live)) for live in batches]).float().cpu()
            facts = {"pooled": shard["pooled"], "labels": shard["labels"], "logits": outputs}
            write_shard(shard_path(home, rows), facts)
    shards = [load_file(shard_path(home, rows)) for rows in ranges]
    pooled, logits = (np.concatenate([shard[name] for shard in shards]) for name in ("pooled", "logits"))
    return pooled, logits


@dataclass(frozen=True)
class SuspectsFound:
    """Suspects and the files that they are written to."""

    suspects: Suspects
    page: Path
    lists: tuple[Path, ...]  # the images of the first clusters, for the labelling page


def search_suspects(opened: UnlabelledImages, *, by: By = "activations", progress: Progress = silent) -> SuspectsFound:
    """Rank clusters and properties of all images; write ``suspects.html``, ``suspects.json`` and ``suspect-<n>.json``.

    Args:
        by: Cluster pooled activations at the layer, or the relevance of heatmaps.
    """
    check_choice("by", by, By)
    folder, images = label_directory(opened.run), opened.images
    pooled, logits = collect_pooled(opened, progress=progress)
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
        old.unlink()  # of an earlier search
    lists = []
    for rank, cluster in suspects.listed:
        lists.append(folder / f"suspect-{rank}.json")
        write_json(lists[-1], [opened.names[row] for row in cluster.rows])
    write_text(folder / "suspects.json", suspects.to_json() + "\n")
    title = f"{PurePath(opened.run.model.source).name}, images clustered by {by} at {opened.layer}"
    write_suspects_page(suspects, folder / "suspects.html", images=images, title=title)
    return SuspectsFound(suspects, folder / "suspects.html", tuple(lists))
