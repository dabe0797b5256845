"""A CAV as a detector: flags images with the artifact at run time, at a rate of false alarms that was asked for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import save
from scipy.stats import beta
from torch import Tensor, nn

from hansfree._internal.files import written_atomically
from hansfree.activations import Activations, Pooling, cut_again
from hansfree.activations.cache import fingerprint_trunk, pool
from hansfree.cavs import CAV
from hansfree.cavs.base import read_tensors
from hansfree.datasets.pairs import check_bits
from hansfree.errors import CacheError, DataError, OptionError, RunError
from hansfree.models.surgery import Order, Split, split, take_out

FORMAT = "hansfree.monitor.1"


@dataclass(frozen=True)
class Rate:
    """A share of held-out images that were flagged."""

    flagged: int
    n: int

    @property
    def value(self) -> float:
        """The share."""
        return self.flagged / self.n

    @property
    def interval(self) -> tuple[float, float]:
        """The exact 95 % interval of the share (Clopper and Pearson)."""
        low = beta.ppf(0.025, self.flagged, self.n - self.flagged + 1) if self.flagged else 0.0
        high = beta.ppf(0.975, self.flagged + 1, self.n - self.flagged) if self.flagged < self.n else 1.0
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.1%} of {self.n} images (95 % interval {low:.1%} to {high:.1%})"


@dataclass(frozen=True)
class _Facts:
    """What a monitor is beside its CAV and its model; all of it is in its file."""

    layer: str
    pooling: Pooling
    trunk: str  # fingerprint of the weights that images pass through
    order: Order | None
    threshold: float
    asked: float  # the rate of false alarms that the threshold was set for
    calibrated_on: int
    false_fires: Rate
    hits: Rate | None


class Monitor:
    """Flags images whose score along a CAV is above a threshold.

    The threshold is set on clean held-out images so that a new clean image is flagged with a probability of at most
    ``false_fire_rate``; that holds for any scores, as long as the new image is of the same kind as those. How often it
    really fires is then counted on other held-out images, and kept with the monitor. A correction leaves the trunk as
    it is, so the monitor of a model is that of its corrected versions too.

    Attributes:
        threshold: of the CAV's ``decision_function``.
        false_fires: share of clean test images that were flagged.
        hits: share of test images with the artifact that were flagged; None where there were none.

    Example:
        >>> import torch, hansfree as hf
        >>> with torch.random.fork_rng():
        ...     _ = torch.manual_seed(0)
        ...     model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 8), torch.nn.Linear(8, 4))
        >>> def seen(share, start):
        ...     images = hf.Stamped(hf.SyntheticLesions(40, size=16, start=start), hf.Timestamp(), share=share)
        ...     return hf.collect_activations(model, "1", images)
        >>> train = seen(0.5, 0)
        >>> cav = hf.SignalCAV().fit(train.pooled, train.has_artifact)
        >>> monitor = hf.Monitor.fit(
        ...     model, cav, clean=seen(0, 40), test_clean=seen(0, 80), test_biased=seen(1, 80), false_fire_rate=0.1
        ... )
        >>> monitor.flags(torch.zeros(2, 3, 16, 16)).shape
        (2,)
    """

    def __init__(self, cut: Split, cav: CAV, facts: _Facts) -> None:
        self._cut, self.cav, self._facts = cut, cav, facts
        self.layer, self.threshold = facts.layer, facts.threshold
        self.false_fires, self.hits = facts.false_fires, facts.hits

    @classmethod
    def fit(
        cls,
        model: nn.Module,
        cav: CAV,
        *,
        clean: Activations,
        test_clean: Activations,
        test_biased: Activations | None = None,
        false_fire_rate: float = 0.01,
    ) -> Monitor:
        """Set the threshold on clean held-out images, and count on others how often it fires.

        Args:
            cav: fitted on training images, at the layer of the activations and with their pooling.
            clean: held-out images without the artifact, such as the validation images; at least
                ``1 / false_fire_rate - 1`` of them.
            test_clean: other held-out images without it.
            test_biased: held-out images with it; None where there are none, and how many are found cannot be known.
            false_fire_rate: how often a clean image may be flagged, above 0 and below 1.
        """
        if not 0 < false_fire_rate < 1:
            raise OptionError(f"false_fire_rate is a share, above 0 and below 1, not {false_fire_rate!r}.")
        _check_sets(clean, test_clean, test_biased)
        cav.check_layer(clean.layer, clean.pooled.shape[1])
        cut = cut_again(take_out(model)[0], clean)
        threshold = _threshold(cav.decision_function(clean.pooled), false_fire_rate)

        def fired(images: Activations) -> Rate:
            return Rate(int(np.sum(cav.decision_function(images.pooled) > threshold)), len(images))

        facts = _Facts(
            layer=clean.layer,
            pooling=clean.pooling,
            trunk=clean.trunk,
            order=clean.order,
            threshold=threshold,
            asked=false_fire_rate,
            calibrated_on=len(clean),
            false_fires=fired(test_clean),
            hits=None if test_biased is None else fired(test_biased),
        )
        return cls(cut, cav, facts)

    def scores(self, images: Tensor, *, batch_size: int = 64) -> np.ndarray:
        """Return the CAV's decision for images (n, channels, height, width), normalised as the model takes them."""
        found = []
        for start in range(0, len(images), batch_size):
            some = images[start : start + batch_size]
            with torch.inference_mode():
                found.append(pool(self._cut.trunk(some.float().cpu())[0], self._facts.pooling).numpy())
        if not found:
            return np.zeros(0)
        return self.cav.decision_function(np.concatenate(found))

    def flags(self, images: Tensor, *, batch_size: int = 64) -> np.ndarray:
        """Return which of the images show the artifact, bool (n,)."""
        is_flagged: np.ndarray = self.scores(images, batch_size=batch_size) > self.threshold
        return is_flagged

    def describe(self) -> str:
        """Say in a few sentences what the monitor is worth."""
        facts = self._facts
        hits = "unknown: no test image had it" if self.hits is None else str(self.hits)
        told = (
            f"Set on {facts.calibrated_on} clean images to flag at most {facts.asked:.1%} of such. On other images: "
            f"false alarms {self.false_fires}; artifact found {hits}."
        )
        if self.hits is not None and self.hits.interval[0] <= self.false_fires.interval[1]:
            told += " Do not use this monitor: by these intervals it may find no more than it falsely flags."
        return told

    def save(self, path: str | Path) -> None:
        """Write the monitor as one safetensors file, without the model; no pickle is involved."""
        metadata = {"format": FORMAT, "cav": self.cav.to_header(), "monitor": json.dumps(asdict(self._facts))}
        with written_atomically(Path(path)) as unfinished:
            unfinished.write_bytes(save(self.cav.to_tensors(), metadata=metadata))

    @classmethod
    def load(cls, path: str | Path, model: nn.Module, *, example: Tensor | None = None) -> Monitor:
        """Read a monitor for the model that it was made for, or for a corrected version of it.

        Args:
            example: a batch of images; a model that cannot be traced needs it.
        """
        path = Path(path)
        tensors, metadata = read_tensors(path, FORMAT, what="monitor")
        try:
            cav, facts = CAV.from_tensors(tensors, metadata["cav"]), _facts(json.loads(metadata["monitor"]))
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{str(path)!r} is damaged, or of another version of hansfree ({error!r}).") from error
        cut = split(take_out(model)[0], facts.layer, example=example, order=facts.order)
        if fingerprint_trunk(cut) != facts.trunk:
            raise CacheError(
                f"The monitor {str(path)!r} was made for another model: the weights up to {facts.layer!r} differ."
            )
        return cls(cut, cav, facts)


def _threshold(scores: np.ndarray, rate: float) -> float:
    """Return the smallest score that a new one of the same kind exceeds with a probability of at most ``rate``.

    A new score has any rank among the n + 1 with the same probability, so the border has to leave rate * (n + 1) ranks.
    """
    place = ceil((len(scores) + 1) * (1 - rate) - 1e-9)
    if place > len(scores):
        raise DataError(
            f"{len(scores)} clean images cannot set a threshold for a false-fire rate of {rate:g}: at least "
            f"{ceil(1 / rate - 1e-9) - 1} are needed."
        )
    return float(np.sort(scores)[place - 1])


def _check_sets(clean: Activations, test_clean: Activations, test_biased: Activations | None) -> None:
    """Refuse sets that are not of one layer, whose bits are wrong, or that overlap."""
    others = [test_clean] if test_biased is None else [test_clean, test_biased]
    for images in (clean, *others):
        if not len(images):
            raise DataError("A monitor needs images in every set; leave test_biased out where there are none.")
        if (images.layer, images.trunk, images.pooling) != (clean.layer, clean.trunk, clean.pooling):
            raise DataError("The activations come from different layers, models or poolings.")
    for images in (clean, test_clean):
        check_bits(images, test_biased)
    for images in others:
        if shared := _count_shared(clean, images):
            raise DataError(
                f"{shared} images set the threshold and test it: the rates would look better than they are. "
                "Take other images."
            )


def _count_shared(first: Activations, second: Activations) -> int:
    """Return how many images are in both: same id, same activation.

    Datasets without ids of their own are numbered from 0, so that an id alone does not tell.
    """
    _, rows, others = np.intersect1d(first.ids, second.ids, return_indices=True)
    # Another batch may round otherwise.
    return int(np.isclose(first.pooled[rows], second.pooled[others], rtol=1e-4, atol=1e-6).all(axis=1).sum())


def _facts(known: dict[str, Any]) -> _Facts:
    if set(known) != {field.name for field in fields(_Facts)}:
        raise KeyError(", ".join(sorted(known)))
    rates = {name: known[name] and Rate(**known[name]) for name in ("false_fires", "hits")}
    order = None if known["order"] is None else tuple(known["order"])
    return _Facts(**{**known, **rates, "order": order})
