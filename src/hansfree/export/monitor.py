"""A CAV as a detector: flags images with the artifact at run time, at a rate of false alarms that was asked for."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import ArrayLike
from pydantic import TypeAdapter
from safetensors.numpy import save
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted, check_X_y
from torch import Tensor, nn
from typing_extensions import Self

from hansfree._internal.files import suggest_path, written_atomically
from hansfree._internal.progress import Progress, silent
from hansfree._internal.statistics import binomial_interval
from hansfree._internal.store import RunStore
from hansfree.activations import Activations, Pooling, collect_activations, cut_at, fingerprint_trunk, pool
from hansfree.cavs import CAV, SignalCAV, fingerprint_tensors, read_tensors
from hansfree.data import SETS, ImageFiles, Images, as_tensor, check_artifact_labels, check_images, list_images
from hansfree.errors import CacheError, DataError, OptionError, RunError
from hansfree.export.run import read_run
from hansfree.models.surgery import AxisOrder, Cut, remove_inserted, split
from hansfree.pipeline import PreparedRun, Workspace, check_unchanged, is_deep, prepare_run, read_run_file, weights_file

FORMAT = "hansfree.export.monitor.1"


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
        return binomial_interval(self.flagged, self.n, method="exact")

    def __str__(self) -> str:
        low, high = self.interval
        return f"{self.value:.1%} of {self.n} images (95 % interval {low:.1%} to {high:.1%})"


@dataclass(frozen=True)
class _Facts:
    """What the file of a monitor holds beside the CAV."""

    layer: str
    pooling: Pooling
    trunk: str  # fingerprint of the weights that images pass through
    order: AxisOrder | None
    threshold: float
    asked: float  # the rate of false alarms that the threshold was set for
    calibrated_on: int
    false_fires: Rate
    hits: Rate | None


class Monitor:
    """Flags images whose score along a CAV is above a threshold.

    The threshold is set on clean held-out images so that a new clean image of the same kind is flagged with a
    probability of at most ``false_fire_rate``; how often it really fires is counted on other held-out images. A
    correction of the head leaves the trunk unchanged, so the monitor serves corrected versions of the model too.

    Attributes:
        threshold: of the CAV's ``decision_function``.
        false_fires: share of clean test images that were flagged.
        hits: share of test images with the artifact that were flagged; None where there were none.

    Examples:
        >>> import torch, hansfree as hf
        >>> with torch.random.fork_rng():
        ...     _ = torch.manual_seed(0)
        ...     model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 8), torch.nn.Linear(8, 4))
        >>> def seen(share, start):
        ...     images = hf.WithArtifact(hf.SyntheticLesions(40, size=16, start=start), hf.Timestamp(), share=share)
        ...     return hf.collect_activations(model, "1", images)
        >>> train = seen(0.5, 0)
        >>> cav = hf.SignalCAV().fit(train.pooled, train.has_artifact)
        >>> monitor = hf.Monitor.fit(
        ...     model, cav, clean=seen(0, 40), test_clean=seen(0, 80), test_biased=seen(1, 80), false_fire_rate=0.1
        ... )
        >>> monitor.flags(torch.zeros(2, 3, 16, 16)).shape
        (2,)
    """

    def __init__(self, cut: Cut, cav: CAV, facts: _Facts) -> None:
        self._cut, self.cav, self._facts = cut, cav, facts
        self.layer, self.threshold = facts.layer, facts.threshold
        self.false_fires, self.hits = facts.false_fires, facts.hits

    @classmethod
    def fit(
        cls,
        model: nn.Module,
        cav: CAV,
        *,
        clean: Activations | Images,
        test_clean: Activations | Images,
        test_biased: Activations | Images | None = None,
        layer: str | None = None,
        pooling: Pooling = "max",
        false_fire_rate: float = 0.01,
    ) -> Monitor:
        """Set the threshold on clean held-out images, and count on others how often it fires.

        Args:
            cav: fitted on training images, at the layer of the activations and with their pooling.
            clean: held-out images without the artifact, at least ``1 / false_fire_rate - 1`` of them.
            test_clean: other held-out images without it.
            test_biased: held-out images with it; None where there are none.
            layer: where activations are taken if datasets are given, with ``pooling``.
            false_fire_rate: how often a clean image may be flagged, above 0 and below 1.
        """
        _check_rate(false_fire_rate)

        def activations_of(data: Activations | Images) -> Activations:
            if isinstance(data, Activations):
                return data
            if layer is None:
                raise OptionError("Datasets need a layer. Pass layer=NAME, or activations.")
            return collect_activations(model, layer, data, pooling=pooling)

        clean, test_clean = activations_of(clean), activations_of(test_clean)
        test_biased = None if test_biased is None else activations_of(test_biased)
        _check_sets(clean, test_clean, test_biased)
        cav.check_layer(clean.layer, clean.pooled.shape[1])
        cut = cut_at(remove_inserted(model)[0], clean)
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

    def scores(self, images: Tensor | Images, *, batch_size: int = 64) -> np.ndarray:
        """Return the CAV's decision for images (n, channels, height, width), normalised as the model takes them."""
        images, found = as_tensor(images), []
        for start in range(0, len(images), batch_size):
            some = images[start : start + batch_size]
            with torch.inference_mode():
                found.append(pool(self._cut.trunk(some.float().cpu())[0], self._facts.pooling).numpy())
        if not found:
            return np.zeros(0)
        return self.cav.decision_function(np.concatenate(found))

    def flags(self, images: Tensor | Images, *, batch_size: int = 64) -> np.ndarray:
        """Return which of the images show the artifact, bool (n,)."""
        is_flagged: np.ndarray = self.scores(images, batch_size=batch_size) > self.threshold
        return is_flagged

    @property
    def is_usable(self) -> bool:
        """Whether it finds the artifact more often than it flags clean images, as far as test images can say."""
        return self.hits is None or self.hits.interval[0] > self.false_fires.interval[1]

    def describe(self) -> str:
        """Return the calibration and the error rates in a few sentences."""
        facts = self._facts
        hits = "unknown: no test image had it" if self.hits is None else str(self.hits)
        summary = (
            f"Set on {facts.calibrated_on} clean images to flag at most {facts.asked:.1%} of such. On other images: "
            f"false alarms {self.false_fires}; artifact found {hits}."
        )
        if not self.is_usable:
            summary += " Do not use this monitor: by these intervals it may find no more than it falsely flags."
        return summary

    def save(self, path: str | Path) -> None:
        """Write the monitor as one safetensors file, without the model; no pickle is involved."""
        header, facts, tensors = self.cav.to_header(), json.dumps(asdict(self._facts)), self.cav.to_tensors()
        found = fingerprint_tensors(tensors, header, facts)
        metadata = {"format": FORMAT, "cav": header, "monitor": facts, "fingerprint": found}
        with written_atomically(Path(path)) as unfinished:
            unfinished.write_bytes(save(tensors, metadata=metadata))

    @classmethod
    def load(cls, path: str | Path, model: nn.Module, *, example: Tensor | None = None) -> Monitor:
        """Read a monitor for the model that it was made for, or for a corrected version of it.

        Args:
            example: a batch of images; a model that cannot be traced needs it.
        """
        path = Path(path)
        tensors, metadata = read_tensors(path, FORMAT, what="monitor")
        try:
            if fingerprint_tensors(tensors, metadata["cav"], metadata["monitor"]) != metadata["fingerprint"]:
                raise ValueError("another fingerprint")
            cav = CAV.from_tensors(tensors, metadata["cav"])
            facts = TypeAdapter(_Facts).validate_json(metadata["monitor"])
        except (KeyError, TypeError, ValueError) as error:
            raise RunError(f"{str(path)!r} is damaged, or of another version of hansfree ({error!r}).") from error
        cut = split(remove_inserted(model)[0], facts.layer, example=example, order=facts.order)
        if fingerprint_trunk(cut) != facts.trunk:
            raise CacheError(
                f"The monitor {str(path)!r} was made for another model: the weights up to {facts.layer!r} differ."
            )
        return cls(cut, cav, facts)


class MonitorClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """A `Monitor` on features, as a step of a scikit-learn pipeline: the larger of two labels is the artifact.

    Half of the clean samples and all with the artifact fit the CAV; the other half sets the threshold.

    Args:
        cav: an estimator; None is a signal-CAV.
        false_fire_rate: how often a clean sample may be flagged, above 0 and below 1.
        seed: draws the halves.

    Attributes:
        cav_: the fitted CAV.
        threshold_: of its ``decision_function``.

    Examples:
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> y = np.arange(200) % 2
        >>> X = np.random.default_rng(0).normal(size=(200, 5)) + 3 * y[:, None]
        >>> model = make_pipeline(StandardScaler(), MonitorClassifier(false_fire_rate=0.1)).fit(X, y)
        >>> model.score(X, y) > 0.9
        True
    """

    def __init__(self, cav: CAV | None = None, *, false_fire_rate: float = 0.01, seed: int = 0) -> None:
        self.cav, self.false_fire_rate, self.seed = cav, false_fire_rate, seed

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the CAV, and set the threshold on clean samples that it has not seen."""
        _check_rate(self.false_fire_rate)
        features, labels = check_X_y(X, y)
        clean = np.random.default_rng(self.seed).permutation(np.flatnonzero(labels == np.unique(labels)[0]))
        held_out = clean[len(clean) // 2 :]
        seen = np.setdiff1d(np.arange(len(labels)), held_out)
        self.cav_ = clone(self.cav or SignalCAV()).fit(features[seen], labels[seen])
        self.threshold_ = _threshold(self.cav_.decision_function(features[held_out]), self.false_fire_rate)
        self.classes_, self.n_features_in_ = self.cav_.classes_, features.shape[1]
        return self

    def decision_function(self, X: ArrayLike) -> np.ndarray:
        """Return the score of each sample, above zero where it is flagged."""
        check_is_fitted(self, "threshold_")
        return np.asarray(self.cav_.decision_function(X) - self.threshold_)

    def predict(self, X: ArrayLike) -> np.ndarray:
        """Return the label of each sample."""
        return np.asarray(self.classes_[(self.decision_function(X) > 0).astype(int)])


def _check_rate(rate: float) -> None:
    if not 0 < rate < 1:
        raise OptionError(f"false_fire_rate is a share, above 0 and below 1, not {rate!r}.")


def _threshold(scores: np.ndarray, rate: float) -> float:
    """Return the smallest score that a new one of the same kind exceeds with a probability of at most ``rate``.

    A new score has any rank among the n + 1 with the same probability.
    """
    place = ceil((len(scores) + 1) * (1 - rate) - 1e-9)
    if place > len(scores):
        raise DataError(
            f"{len(scores)} clean images cannot set a threshold for a false-fire rate of {rate:g}: at least "
            f"{ceil(1 / rate - 1e-9) - 1} are needed."
        )
    return float(np.sort(scores)[place - 1])


def _check_sets(clean: Activations, test_clean: Activations, test_biased: Activations | None) -> None:
    """Check that the sets are of one layer, correctly labelled, and do not overlap."""
    others = [test_clean] if test_biased is None else [test_clean, test_biased]
    for images in (clean, *others):
        if not len(images):
            raise DataError("A monitor needs images in every set; leave test_biased out where there are none.")
        if (images.layer, images.trunk, images.pooling) != (clean.layer, clean.trunk, clean.pooling):
            raise DataError("The activations come from different layers, models or poolings.")
    for images in (clean, test_clean):
        check_artifact_labels(images, test_biased)
    for images in others:
        # Datasets without ids of their own are numbered from 0: an image is the same if its activation is too.
        _, rows, same = np.intersect1d(clean.ids, images.ids, return_indices=True)
        is_shared = np.isclose(clean.pooled[rows], images.pooled[same], rtol=1e-4, atol=1e-6).all(axis=1)
        if shared := int(is_shared.sum()):
            raise DataError(
                f"{shared} images set the threshold and test it: the rates would look better than they are. "
                "Take other images."
            )


_BATCH = 64


@dataclass(frozen=True, eq=False)
class RunMonitor:
    """A run's monitor, stored in its folder for `Monitor.load` too."""

    monitor: Monitor
    prepared: PreparedRun
    file: Path
    network: str | None  # the correction whose network it reads; None: the original model and its corrected heads
    unreadable: str | None = None  # the recommended correction, where its network no longer shows the artifact

    def score_images(
        self, images: Sequence[Path], *, skip_bad: bool = False, progress: Progress = silent
    ) -> tuple[list[ScoredImage], list[str]]:
        """Return scores of image files, also in folders, and a sentence for each that cannot be read.

        Without ``skip_bad`` the first of these is an error.
        """
        paths = _list_images(images)
        good, skipped = check_images(paths, skip_bad=skip_bad, progress=progress)
        known = self.prepared.images
        files = ImageFiles(
            [paths[row] for row in good],
            np.zeros(len(good), dtype=np.int64),
            class_names=("unknown",),
            size=known.size,
            resize=known.resize,
            channels=known.channels,
        )
        looked: list[ScoredImage] = []
        starts = range(0, len(files), _BATCH)
        for start in progress(starts, total=len(starts), label="looking at the images"):
            rows = range(start, min(start + _BATCH, len(files)))
            scores = self.monitor.scores(torch.stack([known.transform(files.image(row)) for row in rows]))
            looked += [
                ScoredImage(files.paths[row], float(score), bool(score > self.monitor.threshold))
                for row, score in zip(rows, scores)
            ]
        return looked, skipped


@dataclass(frozen=True)
class ScoredImage:
    """One image, its score along the direction, and whether that is above the threshold."""

    image: str
    score: float
    is_flagged: bool


def monitor_run(folder: Path, *, false_fire_rate: float = 0.01, progress: Progress = silent) -> RunMonitor:
    """Fit a monitor from the cache of a finished run, and store it as ``monitor.safetensors`` in its folder.

    Where the run recommends a correction of the whole network, it is fitted anew to that network, and to the original
    model if that network no longer shows the artifact. The threshold is set on the clean validation images; its rates
    are counted on the test images.
    """
    file = folder / "run.yaml"
    if not file.is_file() or not (folder / "results.csv").is_file():
        raise RunError(
            f"{folder} is not the folder of a finished `hansfree run`: it has no run.yaml or no results.csv."
        )
    run = read_run_file(file)
    store = RunStore(folder)
    weights = str(weights_file(store).absolute())
    store.check_file(weights_file(store))
    section = run.model.model_copy(update={"weights": weights})
    prepared = prepare_run(run.model_copy(update={"out": folder, "model": section}), progress=progress)
    check_unchanged(prepared)
    workspace, finished = (
        Workspace(prepared.setting, folder, folder / "activations", progress=progress),
        read_run(folder),
    )
    method = str(finished.results.meta.get("recommended"))
    network = finished.network(method, prepared.setting.model) if is_deep(method) else None

    def fitted(workspace: Workspace) -> Monitor:
        held_out = workspace.activations
        return Monitor.fit(
            workspace.setting.model,
            workspace.cav,
            clean=held_out["val_clean"],
            test_clean=held_out["test_clean"],
            test_biased=held_out.get("test_biased"),
            false_fire_rate=false_fire_rate,
        )

    monitor = None
    if network is not None:
        sets = [name for name in SETS if name != "val_biased"]
        with TemporaryDirectory(dir=folder, prefix=".network-") as temporary:
            of_network = workspace.of_network(network, Path(temporary), cache=workspace.cache, name=method, sets=sets)
            monitor = fitted(of_network)
    is_readable = monitor is not None and monitor.is_usable
    if monitor is None or not is_readable:
        monitor = fitted(workspace)
    stored = folder / "monitor.safetensors"
    monitor.save(stored)
    unreadable = method if network is not None and not is_readable else None
    return RunMonitor(monitor, prepared, stored, method if is_readable else None, unreadable)


def to_csv(looked: Sequence[ScoredImage]) -> str:
    """Return a CSV table: image, score, flagged."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", "score", "flagged"))
    writer.writerows((one.image, f"{one.score:.6g}", int(one.is_flagged)) for one in looked)
    return text.getvalue()


def _list_images(given: Sequence[Path]) -> list[str]:
    """Return files, and the images in folders in the order of their paths."""
    found: list[str] = []
    for path in given:
        if path.is_dir():
            inside = list_images(path)
            if not inside:
                raise DataError(f"{path} holds no pictures.")
            found += inside
        elif path.is_file():
            found.append(str(path))
        else:
            raise DataError(f"There is no file or folder {path}.{suggest_path(path)}")
    return found
