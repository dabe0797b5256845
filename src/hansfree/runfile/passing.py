"""The one pass of images whose artifact nobody has marked: pooled activations and logits, kept for all who look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import load_file
from torch.utils.data import DataLoader

from hansfree.activations import plan_pass
from hansfree.activations.shards import is_whole, live_tensors, shard_path, shard_ranges, write_shard
from hansfree.fingerprints import fingerprint, fingerprint_model
from hansfree.progress import Progress, silent
from hansfree.runfile.unlabelled import Unlabelled, looking_folder
from hansfree.splitting import on_device

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
