"""How much room a run takes on the disk, told before it starts."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

from hansfree.errors import RunError
from hansfree.experiments import Setting
from hansfree.files import format_bytes
from hansfree.splitting import split
from hansfree.studies import SETS


def tell_disk(out: Path, setting: Setting, *, with_pairs: bool = False, further: int = 0) -> str:
    """Say how much the cache takes; refuse what cannot fit, rather than stop in the middle.

    Args:
        with_pairs: The run needs training images with the artifact put in, too.
        further: How many images more, with other artifacts put in.
    """
    example = setting.data.train.batch([0]).image
    live = split(setting.model, setting.layer, example=example).trunk(example)
    each = sum(4 * math.prod(tensor.shape[1:]) for tensor in live)
    sets = (*SETS, "train_biased") if with_pairs else SETS
    count = sum(len(getattr(setting.data, part)) for part in sets) + further
    # The layer's output, and at most as much again for what is computed from it; a run that goes on has some of it.
    there = sum(file.stat().st_size for file in (out / "activations").rglob("*") if file.is_file())
    needed = max(0, 2 * each * count - there)
    place = next(folder for folder in (out, *out.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise RunError(
            f"The run needs up to {format_bytes(needed)} in {out}, where {format_bytes(free)} are free. Choose another "
            f"folder, or a later layer: {setting.layer!r} has {format_bytes(each)} per image."
        )
    at_layer = f"{format_bytes(each)} each at the layer"
    return f"up to {format_bytes(needed)} for {count} images ({at_layer}); {format_bytes(free)} are free"
