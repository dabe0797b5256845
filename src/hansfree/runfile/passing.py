"""The one pass of images whose artifact nobody has marked: pooled activations and logits, kept for all who look."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from torch.utils.data import DataLoader

from hansfree.activations import Activations, collect_activations, cut_again
from hansfree.datasets import Part
from hansfree.files import written_atomically
from hansfree.fingerprints import fingerprint, fingerprint_model
from hansfree.progress import Progress, silent
from hansfree.runfile.unlabelled import Unlabelled, looking_folder

_CHUNK = 512  # images between two writes: what a kill costs at most
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
    key = fingerprint(fingerprint_model(opened.model), opened.layer, images.fingerprint, str(_CHUNK))
    # What the logits are depends on the adapter too, which no weight tells.
    folder = looking_folder(run) / "activations" / fingerprint(key, run.model.output, str(run.model.label))
    starts = range(0, len(images), _CHUNK)
    chunks = []
    for start in progress(starts, total=len(starts), label=f"activations at {opened.layer}"):
        kept = folder / f"{start:08d}.safetensors"
        if not kept.exists():
            some = Part(images, range(start, min(start + _CHUNK, len(images))))
            loader = DataLoader(some, batch_size=_BATCH, num_workers=run.workers)
            found = collect_activations(opened.model, opened.layer, loader, device=run.device)
            with written_atomically(kept) as temporary:
                save_file({"pooled": np.ascontiguousarray(found.pooled), "logits": _logits(opened, found)}, temporary)
        chunks.append(load_file(kept))
    pooled, logits = (np.concatenate([chunk[name] for chunk in chunks]) for name in ("pooled", "logits"))
    return Passed(pooled, logits)


@torch.inference_mode()
def _logits(opened: Unlabelled, activations: Activations) -> np.ndarray:
    cut = cut_again(opened.model, activations)
    cut.eval_mode()
    parts = [cut.head(*cut.phi(*live)) for live in activations.stream(batch_size=_BATCH)]
    return np.ascontiguousarray(torch.cat(parts).float().cpu().numpy())
