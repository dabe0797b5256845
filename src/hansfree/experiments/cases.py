"""Single test images for the report: small pictures, and what each model makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from PIL import Image

from hansfree.datasets import ExampleSet
from hansfree.datasets.images import in_colour
from hansfree.metrics import Condition, Evidence
from hansfree.results import ORIGINAL
from hansfree.studies import BiasedData

_MOST = 200  # images of the sample: more points hide each other
EXTREMES = 6  # images that a method helped most, and as many that it harmed most
_SIDE = 64  # pixels; the report holds several hundred of them
NOTABLE = 0.01  # change of a probability; what is smaller is neither help nor harm
_CONDITIONS: tuple[Condition, ...] = ("clean", "biased")


def probabilities_of(evidence: Evidence) -> dict[str, np.ndarray]:
    """Return, per image without and with the artifact, the probabilities of the biased and of the true class."""
    kept = {}
    for condition in _CONDITIONS:
        logits, labels = evidence.logits(condition), evidence.labels_of(condition)
        with np.errstate(invalid="ignore"):  # a model that diverged has no probabilities: NaN says so
            shares = np.exp(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)).astype(np.float32)
        kept[f"biased_class_{condition}"] = shares[:, evidence.biased_class]
        kept[f"true_class_{condition}"] = shares[np.arange(len(labels)), labels]
    return kept


def collect_cases(
    data: BiasedData, kept: Mapping[str, Mapping[str, np.ndarray]], *, seed: int
) -> dict[str, np.ndarray]:
    """Return a sample of the test images and the extreme cases of each method, with all that is told of them.

    Nothing, where no test image carries the artifact, or the model as it came gives no probabilities.

    Args:
        kept: What each finished stage kept per image, the model as it came among them.
    """
    known = {name: arrays for name, arrays in kept.items() if _is_known(arrays)}
    n = len(data.test_biased)
    if not n or ORIGINAL not in known:
        return {}
    sample = np.random.default_rng(seed).choice(n, min(n, _MOST), replace=False)
    before = known[ORIGINAL]["true_class_biased"]
    changes = {name: arrays["true_class_biased"] - before for name, arrays in known.items() if name != ORIGINAL}
    extremes = [np.argsort(change, kind="stable")[each] for change in changes.values() for each in _ends(n)]
    rows = np.unique(np.concatenate([sample, *extremes]))
    cases = {
        "labels": data.test_biased.labels[rows],
        "is_sampled": np.isin(rows, sample),
        "pictures_biased": small_pictures(data.test_biased, rows),
    }
    if data.is_inserted:
        cases["pictures_clean"] = small_pictures(data.test_clean, rows)
    conditions = _CONDITIONS if data.is_inserted else ("biased",)  # by nature, the clean images are others
    for name, arrays in known.items():
        for condition in conditions:
            for told in ("biased_class", "true_class", "predicted"):
                cases[f"{told}_{condition}/{name}"] = arrays[f"{told}_{condition}"][rows]
    for name, change in changes.items():
        cases[f"counts/{name}"] = np.array([n, (change >= NOTABLE).sum(), (change <= -NOTABLE).sum()])
    return cases


def _is_known(arrays: Mapping[str, np.ndarray]) -> bool:
    told = (arrays[f"{which}_class_{condition}"] for which in ("biased", "true") for condition in _CONDITIONS)
    return all(np.isfinite(values).all() for values in told)


def _ends(n: int) -> tuple[slice, slice]:
    """Return which of ``n`` sorted images are the extremes."""
    return slice(0, EXTREMES), slice(max(0, n - EXTREMES), n)


def small_pictures(images: ExampleSet, rows: Iterable[int], *, side: int = _SIDE) -> np.ndarray:
    """Return pictures of some images, uint8 (n, height, width, 3), no side longer than ``side``."""
    return np.stack([_shrunk(images.pixels(int(row))[0], side) for row in rows])


def _shrunk(image: np.ndarray, side: int) -> np.ndarray:
    picture = Image.fromarray(in_colour(image))
    picture.thumbnail((side, side))  # never larger than it is
    return np.asarray(picture)
