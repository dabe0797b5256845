"""How much room a run takes on the disk, told before it starts."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from hansfree.errors import RunError
from hansfree.experiments import Setting
from hansfree.files import format_bytes
from hansfree.models import plain_state
from hansfree.splitting import split
from hansfree.studies import SETS


def tell_disk(out: Path, setting: Setting, *, methods: int, with_pairs: bool = False, further: int = 0) -> str:
    """Say how much activations and weights take; refuse what cannot fit, rather than stop in the middle.

    All else, such as report, scores and heatmaps, is small beside them. What a run that goes on has already counts as
    there.

    Args:
        methods: How many corrected models are kept, beside the original one and one that is exported.
        with_pairs: The run needs training images with the artifact put in, too.
        further: How many images more, with other artifacts put in.
    """
    example = setting.data.train.batch([0]).image
    live = split(setting.model, setting.layer, example=example).trunk(example)
    each = sum(4 * math.prod(tensor.shape[1:]) for tensor in live)
    sets = (*SETS, "train_biased") if with_pairs else SETS
    count = sum(len(getattr(setting.data, part)) for part in sets) + further
    models = methods + 2
    # The layer's output, and at most as much again for what is computed from it.
    activations = max(0, 2 * each * count - _taken(out, "activations/**/*"))
    of_model = sum(tensor.numel() * tensor.element_size() for tensor in plain_state(setting.model).values())
    weights = max(0, of_model * models - _taken(out, "original.safetensors", "corrected/*", "exported/**/*"))
    needed = activations + weights
    place = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise RunError(
            f"The run needs up to {format_bytes(needed)} in {out}, where {format_bytes(free)} are free. Choose another "
            f"folder, or a later layer: {setting.layer!r} has {format_bytes(each)} per image."
        )
    return (
        f"up to {format_bytes(needed)}: {format_bytes(activations)} for {count} images ({format_bytes(each)} each at "
        f"the layer), {format_bytes(weights)} for the weights of {models} models; {format_bytes(free)} are free"
    )


def _taken(out: Path, *patterns: str) -> int:
    """Return how many bytes a run has in some of its files."""
    return sum(file.stat().st_size for pattern in patterns for file in out.glob(pattern) if file.is_file())
