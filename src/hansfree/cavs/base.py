"""The CAV estimator, class means, and how CAVs are stored."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_is_fitted, validate_data
from typing_extensions import Self

from hansfree._internal.files import ordered_metadata, written_atomically
from hansfree._internal.hashing import fingerprint
from hansfree._internal.registry import Registered
from hansfree.errors import DataError, HansfreeError, RunError

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class ClassMeans:
    """Counts and means of two classes."""

    classes: NDArray[Any]  # sorted labels; the second is the artifact
    count: NDArray[np.int64]
    mean: FloatArray  # (classes, features)

    @classmethod
    def of(cls, X: FloatArray, y: NDArray[Any]) -> ClassMeans:
        """Summarise samples of two classes."""
        labels = np.unique(y)
        if len(labels) == 1:
            raise DataError(
                "A CAV needs samples of two classes, without and with the artifact, but all "
                f"{len(y)} samples are of one class: {labels.tolist()[0]!r}."
            )
        groups = [X[y == label] for label in labels]
        return cls(labels, np.array([len(group) for group in groups]), np.stack([_mean(group) for group in groups]))

    @property
    def difference(self) -> FloatArray:
        """The artifact mean minus the clean mean."""
        return np.asarray(self.mean[1] - self.mean[0])

    @property
    def center(self) -> FloatArray:
        """The mean over all samples of both classes."""
        return np.asarray(self.mean[0] + self.difference * (self.count[1] / self.count.sum()))


def _mean(samples: FloatArray) -> FloatArray:
    """Average around the first sample: exact for constant features, where plain summing leaves rounding noise."""
    return np.asarray(samples[0] + (samples - samples[0]).mean(axis=0))


class CAV(Registered, ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]  # scikit-learn has no types
    """A bias as directions in activation space, found from samples without and with the artifact.

    Fitted on activations (samples, channels) and labels of two values, the larger of which is the artifact. A subclass
    writes ``_direction`` and is a full scikit-learn classifier.

    Attributes:
        directions_: (k, channels), orthonormal rows, oriented towards the artifact; the sign of one along which it
            moves images both ways (``scale_`` 0, such as a Pair-CAV's further ones) means nothing.
        clean_score_, artifact_score_: (k,), mean of ``score_along`` over the samples without and with the artifact.
        scale_: (k,), ``artifact_score_ - clean_score_``: the artifact's own size along each direction, never negative.
        intercept_: added to the score by ``decision_function``, so that zero is the border between the classes.
        class_count_, class_mean_: (2,) and (2, channels), samples and mean activation of each class.
        classes_, n_features_in_: as in scikit-learn.

    Examples:
        >>> from hansfree.cavs import SignalCAV
        >>> cav = SignalCAV().fit([[0.0, 1.0], [2.0, 1.0]], [0, 1])
        >>> cav.scale_.tolist(), cav.predict([[1.9, 0.0]]).tolist()
        ([2.0], [1])
    """

    needs_pairs: ClassVar[bool] = False  # it is learned from the same images without and with the artifact
    is_mean_difference: ClassVar[bool] = False  # its first direction is the way between two means: a pattern, no filter
    made: ClassVar[dict[str, type[CAV]]] = {}  # by name, CAVs that are combined from others and cannot be fitted

    directions_: FloatArray
    clean_score_: FloatArray
    artifact_score_: FloatArray
    scale_: FloatArray
    intercept_: float
    class_count_: NDArray[np.int64]
    class_mean_: FloatArray
    classes_: NDArray[Any]
    n_features_in_: int

    @classmethod
    def from_marks(cls) -> dict[str, type[Self]]:
        """Return the members that marked images are enough for, in order."""
        return {name: member for name, member in cls.members().items() if not member.needs_pairs}

    @abstractmethod
    def _direction(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        """Return one direction (channels,) or several (k, channels) of any length; ``X`` comes centred."""

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Find the directions from the clean samples to those with the artifact."""
        features, labels = self._validated(X, y, reset=True)
        means = ClassMeans.of(features, labels)
        if np.all(features == features[0]):
            raise DataError(
                f"All {features.shape[1]} features are constant over all {len(features)} samples, so no direction can "
                "separate the classes. Are these the activations of a dead layer?"
            )
        self._settle(self._direction(features - means.center, labels == means.classes[1]), means)
        return self

    def fit_pairs(self, clean: ArrayLike, biased: ArrayLike) -> Self:
        """Fit on the same images without and with the artifact, (pairs, channels) each, in the same order."""
        return self.fit(*samples_of_pairs(clean, biased))

    def score_along(self, X: ArrayLike) -> FloatArray:
        """Return the coordinates of the samples along the directions, (samples, k)."""
        self._check_fitted()
        return np.asarray(self._validated(X, reset=False)[0] @ self.directions_.T)

    def decision_function(self, X: ArrayLike) -> FloatArray:
        """Return the score minus the border between the classes; several directions are combined by ``scale_``."""
        return np.asarray(self.score_along(X) @ self.combination_ + self.intercept_)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the label of each sample: on which side of the border it lies."""
        is_artifact = self.decision_function(X) > 0
        return np.asarray(self.classes_[is_artifact.astype(int)])

    def check_layer(self, layer: str, channels: int) -> None:
        """Refuse a layer with another number of channels than it was fitted on."""
        own = len(self.direction_)  # an error of its own where it is not fitted
        if own != channels:
            raise DataError(
                f"The CAV has {own} channels, the layer {layer!r} has {channels}: it was fitted on another layer."
            )

    @property
    def label(self) -> str:
        """The name in results."""
        return self.name

    @property
    def direction_(self) -> FloatArray:
        """The first direction, (channels,): the only one of the paper's CAVs."""
        self._check_fitted()
        return np.asarray(self.directions_[0])

    @property
    def size_(self) -> FloatArray:
        """How far the artifact moves an image along each direction, (k,): the unit of a penalty's derivative."""
        self._check_fitted()
        return self.scale_

    @property
    def combination_(self) -> FloatArray:
        """Weights of the directions, (k,) of length 1, that lead from one class mean to the other."""
        self._check_fitted()
        size = np.linalg.norm(self.scale_)
        return np.asarray(self.scale_ / size if size > 0 else np.eye(len(self.scale_))[0])

    def to_tensors(self) -> dict[str, NDArray[Any]]:
        """Return all that was learned and is a number, by attribute name; ``to_header`` has the rest."""
        self._check_fitted()
        # In C's order: safetensors writes the raw memory.
        return {name: np.array(value, order="C") for name, value in self._learned().items() if _is_numeric(value)}

    def to_header(self) -> str:
        """Return the method's name, its options and what was learned but is not a number (string labels), as JSON."""
        self._check_fitted()
        words = {
            name: {"values": np.asarray(value).tolist(), "dtype": np.asarray(value).dtype.str}
            for name, value in self._learned().items()
            if not _is_numeric(value)
        }
        return json.dumps({"name": self.name, "options": self.get_params(), "words": words})

    @staticmethod
    def from_tensors(tensors: Mapping[str, NDArray[Any]], header: str) -> CAV:
        """Rebuild a fitted CAV from what ``to_tensors`` and ``to_header`` returned; no pickle is involved."""
        described = json.loads(header)
        method = described["name"]
        cav: CAV = (CAV.made.get(method) or CAV.named(method))(**described["options"])
        for name, words in described["words"].items():
            setattr(cav, name, np.array(words["values"], dtype=words["dtype"]))
        for name, value in tensors.items():
            setattr(cav, name, value.item() if value.ndim == 0 else np.array(value))
        return cav

    def _settle(self, raw: FloatArray, means: ClassMeans) -> None:
        """Turn what ``_direction`` found into the fitted attributes."""
        self.classes_, self.class_count_, self.class_mean_ = means.classes, means.count, means.mean
        directions = _orthonormal(np.atleast_2d(raw))
        # From the difference of the means, not of the scores: no cancellation where the features lie far from zero.
        along, rounding = directions @ means.difference, 1e-9 * np.linalg.norm(means.difference)
        # One that is orthogonal to the difference keeps its sign, and has no size: rounding must not decide.
        self.directions_ = np.where((along >= -rounding)[:, None], directions, -directions)
        self.scale_ = np.where(np.abs(along) > rounding, np.abs(along), 0.0)
        self.clean_score_, self.artifact_score_ = means.mean @ self.directions_.T
        midpoint = (self.clean_score_ + self.artifact_score_) / 2
        self.intercept_ = -float(midpoint @ self.combination_)

    def _validated(self, X: ArrayLike, y: Any = "no_validation", *, reset: bool) -> tuple[FloatArray, NDArray[Any]]:
        """Check by scikit-learn's rules, and raise our error class."""
        try:
            checked = validate_data(self, X, y, reset=reset, dtype=np.float64)
            if isinstance(y, str):
                return checked, np.empty(0)
            features, labels = checked
            check_classification_targets(labels)
            kind = type_of_target(labels, input_name="y", raise_unknown=True)
        except ValueError as error:
            raise DataError(f"{type(self).__name__} cannot use these samples: {error}") from error
        if kind != "binary":
            raise DataError(f"Only binary classification is supported. The type of the target is {kind}.")
        return features, labels

    def _learned(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name.endswith("_") and not name.startswith("_")}

    def _check_fitted(self) -> None:
        check_is_fitted(
            self, msg="This %(name)s has no direction yet: fit it on samples without and with the artifact first."
        )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "directions_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def samples_of_pairs(clean: ArrayLike, biased: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return pairs as single samples, the clean ones first, and their artifact labels."""
    without, within = np.asarray(clean), np.asarray(biased)
    if without.ndim != 2 or without.shape != within.shape:
        raise DataError(
            f"Pairs are the same images twice, (pairs, channels) each, but the shapes are {without.shape} without "
            f"and {within.shape} with the artifact."
        )
    return np.concatenate([without, within]), np.arange(2 * len(without)) >= len(without)


def _orthonormal(raw: FloatArray) -> FloatArray:
    """Orthonormalise rows in their order, so that the first keeps its direction."""
    sizes = np.abs(raw).max(axis=1, keepdims=True)
    if not np.all(np.isfinite(raw)) or not np.all(sizes > 0):
        raise DataError(
            "The samples without and with the artifact do not differ in any way that this CAV could point to "
            "(the direction has no length, or is not finite)."
        )
    basis, triangle = np.linalg.qr((raw / sizes).T)
    lengths = np.diagonal(triangle)
    if len(lengths) < len(raw) or np.any(np.abs(lengths) < 1e-10 * np.linalg.norm(raw / sizes, axis=1)):
        raise DataError(f"The {len(raw)} directions are not linearly independent: ask for fewer.")
    return np.asarray((basis * np.sign(lengths)).T)


def _is_numeric(value: Any) -> bool:
    return np.asarray(value).dtype.kind in "biuf"


FORMAT = "hansfree.cavs.1"


def save_cavs(path: str | Path, cavs: Mapping[str, CAV]) -> None:
    """Write fitted CAVs under names of your choice, as tensors such as ``signal.directions_``; atomically."""
    path = Path(path)
    tensors = {f"{key}.{name}": value for key, cav in cavs.items() for name, value in cav.to_tensors().items()}
    headers = json.dumps({key: cav.to_header() for key, cav in cavs.items()})
    metadata = {"format": FORMAT, "cavs": headers, "fingerprint": fingerprint_tensors(tensors, headers)}
    with written_atomically(path) as unfinished:
        unfinished.write_bytes(ordered_metadata(save(tensors, metadata=metadata)))


def load_cavs(path: str | Path) -> dict[str, CAV]:
    """Read what ``save_cavs`` wrote, in the same order."""
    path = Path(path)
    tensors, metadata = read_tensors(path, FORMAT, what="CAVs")
    try:
        if fingerprint_tensors(tensors, metadata["cavs"]) != metadata["fingerprint"]:
            raise ValueError("another fingerprint")
        headers: dict[str, str] = json.loads(metadata["cavs"])
        own: dict[str, dict[str, NDArray[Any]]] = {key: {} for key in headers}
        for name, value in tensors.items():
            key, _, attribute = name.rpartition(".")
            own[key][attribute] = value
        return {key: CAV.from_tensors(own[key], header) for key, header in headers.items()}
    except HansfreeError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{str(path)!r} is damaged, or of another version of hansfree ({error!r}).") from error


def fingerprint_tensors(tensors: Mapping[str, NDArray[Any]], *headers: str) -> str:
    """Return a hash by which damage shows: the format has no checksum."""
    return fingerprint(*headers, *(part for item in sorted(tensors.items()) for part in item))


def read_tensors(path: Path, format: str, *, what: str) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return the tensors and the metadata of a file in this format; ``what`` it holds is for the errors."""
    if not path.is_file():
        raise RunError(f"There is no file {str(path)!r} to read {what} from.")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  # not a dict
    except SafetensorError as error:
        raise RunError(f"{str(path)!r} is not a readable safetensors file ({error}).") from error
    if metadata.get("format") != format:
        raise RunError(
            f"{str(path)!r} holds no {what} in the format {format!r}; its format is {metadata.get('format')!r}."
        )
    return tensors, metadata
