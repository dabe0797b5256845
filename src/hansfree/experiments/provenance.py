"""What a result was made of, by hash: images, model, corrected weights."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hansfree.experiments.setting import Setting
from hansfree.files import hash_file
from hansfree.fingerprints import fingerprint, hash_weights
from hansfree.models import plain_state
from hansfree.studies import SETS


def hash_contents(setting: Setting, folder: Path, methods: Sequence[str]) -> dict[str, str]:
    """Return hashes by what they are of, for whoever wants to know whether theirs is the same.

    Images and the original weights have hansfree's fingerprints, which do not depend on how files are written; the
    corrected weights have the SHA-256 of their files. The model card names the weights alike.
    """
    hashes = {
        f"images, {name.replace('_', ' ')}": fingerprint(getattr(setting.data, name).fingerprint) for name in SETS
    }
    hashes["original weights"] = hash_weights(plain_state(setting.model))
    weights = {name: folder / "corrected" / f"{name}.safetensors" for name in methods}
    return hashes | {f"weights, {name}": hash_file(path) for name, path in weights.items() if path.exists()}
