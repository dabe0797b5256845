"""Search a run file's images: suspects and layers."""

from __future__ import annotations

import os
from collections import Counter
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
from hansfree.activations import plan_pass
from hansfree.activations.shards import is_whole, live_tensors, shard_path, shard_ranges, write_shard
from hansfree.datasets import Flagged, Normalize
from hansfree.datasets.images import ImageFiles, check_images
from hansfree.errors import DataError, check_choice
from hansfree.layer_choice import LayerChoice, choose_layer
from hansfree.models import Preprocessing
from hansfree.models.surgery import on_device
from hansfree.report.suspects import write_suspects_page
from hansfree.runfile.config import RunFile
from hansfree.runfile.opening import Opened, first_logits, load_run_model, model_facts
from hansfree.studies import OwnImages
from hansfree.studies.listing import PARTS, find_image, number_labels, read_folders, read_groups, read_rows, read_split
from hansfree.suspects import Cluster, Suspects, find_suspects, measure_images, relevance_features


@dataclass(frozen=True, eq=False, kw_only=True)
class Unlabelled:
    """A run file's model and all of its images, in the order of the table or of the folders' paths.

    Images that cannot be read are left out everywhere (``skipped``), so that all sequences go image by image.
    """

    run: RunFile
    model: nn.Module  # adapted: it gives one logit per class
    layer: str
    images: Flagged  # of all parts; its artifact bits are all False, for nobody knows them
    paths: Sequence[str]  # of the files
    names: Sequence[str]  # of the images, as the table calls them; below the root where folders are the list
    parts: Sequence[str] | None  # train, val or test; None where neither table nor folders tell
    rows: Sequence[Mapping[str, str]]  # what the table says, all columns; of folders image, label and where told split
    remarks: tuple[str, ...]
    skipped: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]  # what was found or chosen: a name and a sentence each


def looking_folder(run: RunFile) -> Path:
    """Return where suspects and marks are kept: beside the run's own folder, which has to be empty to begin with."""
    return run.out.with_name(f"{run.out.name}-label")


def open_unlabelled(run: RunFile, *, progress: Progress = silent) -> Unlabelled:
    """Load the model, read the list, check every picture and pass a first batch; raise what does not fit.

    What the run file says about the artifact is left alone: it is not known yet.
    """
    loaded = load_run_model(run)
    remarks: list[str] = []
    rows, paths, class_names, labels = _read_list(run, remarks)
    good, skipped = check_images(paths, skip_bad=run.data.skip_bad, option=OwnImages.skip_option, progress=progress)
    images = _flagged(loaded.preprocessing, [paths[row] for row in good], labels[good], class_names, good, len(paths))
    logits = first_logits(loaded.model, images)
    kept = [rows[row] for row in good]
    return Unlabelled(
        run=run,
        model=loaded.model,
        layer=loaded.layer,
        images=images,
        paths=[os.fspath(paths[row]) for row in good],
        names=[row["image"] for row in kept],
        parts=[row["split"] for row in kept] if "split" in rows[0] else None,
        rows=kept,
        remarks=tuple(remarks),
        skipped=tuple(skipped),
        facts=(
            *model_facts(run, loaded, logits),
            ("images", _counted(images)),
            *(("note", remark) for remark in remarks),
            *(("left out", sentence) for sentence in skipped),
        ),
    )


def _read_list(
    run: RunFile, remarks: list[str]
) -> tuple[list[dict[str, str]], Sequence[str | Path], tuple[str, ...], np.ndarray]:
    """Return rows, paths, class names and labels; the split, where it is told, is checked."""
    root, table = run.data.root, run.data.table
    if table is None:
        return _read_folders(run)
    filled = ("image",) if run.model.label is not None else ("image", "label")
    rows = read_rows(table, ("image", "label"), filled=filled)
    cells = [row["label"] for row in rows]
    names, labels = number_labels(cells, run.data.classes, label=run.model.label, place=table)
    read_split(rows, read_groups(rows, table=table, remarks=remarks), table=table)
    paths = [find_image(root, row["image"]) for row in rows]
    twice = [path for path, count in Counter(paths).items() if count > 1]
    if twice:
        raise DataError(f"{table} lists {twice[0]} twice.")
    return rows, paths, names, labels


def _read_folders(run: RunFile) -> tuple[list[dict[str, str]], Sequence[str | Path], tuple[str, ...], np.ndarray]:
    root = run.data.root
    found = read_folders(root)
    names, labels = number_labels(found.labels, run.data.classes, also=found.names, place=root)
    rows = [{"image": os.path.relpath(path, root), "label": label} for path, label in zip(found.paths, found.labels)]
    for part, inside in zip(PARTS, found.parts or ()):
        for row in inside:
            rows[row]["split"] = part
    return rows, found.paths, names, labels


def _flagged(
    seen: Preprocessing,
    paths: Sequence[str | Path],
    labels: np.ndarray,
    class_names: tuple[str, ...],
    ids: np.ndarray,
    count: int,
) -> Flagged:
    source = ImageFiles(
        paths,
        labels,
        class_names=class_names,
        size=seen.size,
        ids=ids,
        id_range=range(count),
        resize=seen.resize,
        channels=1 if seen.channels == 1 else 3,
    )
    return Flagged(source, np.zeros(len(source), dtype=bool), transform=Normalize(seen.mean, seen.std))


def _counted(images: Flagged) -> str:
    counts = np.bincount(images.labels, minlength=len(images.class_names))
    return f"{len(images)}: " + ", ".join(f"{count} {name}" for count, name in zip(counts, images.class_names))


_BATCH = 64


@dataclass(frozen=True, eq=False)
class Passed:
    """What the model makes of every image."""

    pooled: np.ndarray  # (images, channels)
    logits: np.ndarray  # (images, classes)


def pass_once(opened: Unlabelled, *, progress: Progress = silent) -> Passed:
    """Return pooled activations and logits of all images; what is on disk is not computed again.

    Whole maps are not kept: nobody here needs them, and those of 10,000 images take gigabytes at a layer of VGG-16.
    """
    run, images = opened.run, opened.images
    # What the logits are depends on the head and the adapter too, so the key is not that of a cache of activations.
    key = fingerprint(
        fingerprint_model(opened.model), opened.layer, images.fingerprint, run.model.output, str(run.model.label)
    )
    home = looking_folder(run) / "activations" / key
    ranges = shard_ranges(len(images), _BATCH)
    missing = [rows for rows in ranges if not is_whole(shard_path(home, rows), rows)]
    if missing:
        _fill(home, opened, missing, progress)
    shards = [load_file(shard_path(home, rows)) for rows in ranges]
    pooled, logits = (np.concatenate([shard[name] for shard in shards]) for name in ("pooled", "logits"))
    return Passed(pooled, logits)


def _fill(home: Path, opened: Unlabelled, missing: Sequence[range], progress: Progress) -> None:
    """Make shards that hold logits in place of the layer's output."""
    device = opened.run.device
    loader = DataLoader(opened.images, batch_size=_BATCH, num_workers=opened.run.workers)
    plan = plan_pass(opened.model, opened.layer, loader, device=device)
    plan.cut.eval_mode()
    phi, head = (on_device(part, device) for part in (plan.cut.phi, plan.cut.head))
    for shard, rows in zip(plan.make(missing, progress=progress), missing):
        with torch.inference_mode():
            batches = zip(*(torch.split(tensor.to(device), _BATCH) for tensor in live_tensors(shard)))
            logits = torch.cat([head(*phi(*live)) for live in batches]).float().cpu()
        kept = {"pooled": shard["pooled"], "labels": shard["labels"], "logits": logits}
        write_shard(shard_path(home, rows), kept)


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


def choose_run_layer(opened: Opened, *, tries: int = 3, progress: Progress = silent) -> LayerChoice:
    """Choose a layer with the run file's recipe and budgets; nothing is written.

    Args:
        tries: At how many of the best layers the model is corrected.
    """
    setting = opened.setting
    return choose_layer(
        setting.model,
        setting.data,
        confirm=tries,
        tuning=setting.tuning,
        train=setting.train,
        budget=setting.rule.budget,
        class_budgets=setting.rule.class_budgets,
        seed=opened.run.seed,
        progress=progress,
    )
