"""Several biases as one CAV, without the directions that must stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hansfree.cavs.base import CAV, ClassMeans, FloatArray
from hansfree.errors import DataError

LEAST_ANGLE = 10.0  # degrees between a CAV and what is protected; below, less than a fifth of it would be left
_RANK = 1e-6  # of the largest size: below, a direction is rounding noise


class JointCAV(CAV):
    """The biases of several CAVs together, made by `join_cavs`; it is not fitted itself.

    The penalty of RR-ClArC along it is the sum of the penalties along the joined CAVs; no direction belongs to a single
    artifact. Its class means are those without any of the artifacts and with all of them at once.

    Attributes:
        joint_size_: (k,), size of the artifacts' changes along each direction, largest first.
        angles_: in degrees, of each CAV with what is protected: 90 where they share nothing.
        label_: what results call it, such as ``signal: ruler + ink; kept: hair``; ``joint`` where nothing has a name.
    """

    name: ClassVar[str] = "joint"  # not registered: there is nothing to fit

    joint_size_: FloatArray
    angles_: FloatArray
    label_: str

    @property
    def label(self) -> str:
        """The names of the joined and the protected CAVs."""
        self._check_fitted()
        return str(self.label_)

    @property
    def size_(self) -> FloatArray:
        """The size of the artifacts' changes along each direction."""
        self._check_fitted()
        return self.joint_size_

    def _direction(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        raise DataError("A joint CAV is not fitted: fit one CAV for each artifact, and join them by join_cavs.")


CAV.made[JointCAV.name] = JointCAV


def join_cavs(
    cavs: Sequence[CAV] | Mapping[str, CAV], *, protect: Sequence[CAV | ArrayLike] | Mapping[str, CAV | ArrayLike] = ()
) -> JointCAV:
    """Join the CAVs of several artifacts, so that one correction unlearns all of them.

    Args:
        cavs: fitted at the same layer, one for each artifact, for errors and results by the artifacts' names.
        protect: what the correction must not touch: CAVs of benign concepts, or directions of any length, (channels,)
            or (k, channels), such as `class_direction`. What an artifact shares with them stays in the model.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> has = np.arange(100) % 2 == 0
    >>> shifts = np.array([[0.0, 50.0, 0.0], [0.0, 0.0, 30.0]])
    >>> from hansfree.cavs import SignalCAV
    >>> cavs = [SignalCAV().fit(rng.normal(size=(100, 3)) + np.outer(has, shift), has) for shift in shifts]
    >>> join_cavs(cavs).size_.round(-1).tolist()
    [50.0, 30.0]
    >>> join_cavs(cavs, protect=[np.array([1.0, 0.0, 0.0])]).angles_.round(-1).tolist()
    [90.0, 90.0]
    """
    if not cavs:
        raise DataError("There is no CAV to join.")
    label, names = JointCAV.name, [f"CAV {i} of {len(cavs)}" for i in range(1, len(cavs) + 1)]
    if isinstance(cavs, Mapping):
        names, kinds = list(cavs), " and ".join(dict.fromkeys(cav.name for cav in cavs.values()))
        kept = f"; kept: {' + '.join(protect)}" if protect and isinstance(protect, Mapping) else ""
        label, cavs = f"{kinds}: {' + '.join(cavs)}{kept}", list(cavs.values())
    changes = [cav.size_[:, None] * cav.directions_ for cav in cavs]  # refuses a CAV that is not fitted
    channels = changes[0].shape[1]
    for cav, change in zip(cavs, changes):
        if change.shape[1] != channels:
            raise DataError(
                f"Only CAVs of the same layer can be joined, but one has {channels} channels and another "
                f"{change.shape[1]}."
            )
        if not np.any(change):
            raise DataError(f"The {cav.name} CAV has no size: artifact and clean images score alike along it.")
    benign = _protected(list(protect.values()) if isinstance(protect, Mapping) else protect, channels)
    rest = [change - change @ benign.T @ benign for change in changes]
    joint = JointCAV()
    left = [np.linalg.norm(after) / np.linalg.norm(before) for before, after in zip(changes, rest)]
    joint.angles_ = np.degrees(np.arcsin(np.minimum(left, 1.0)))
    for name, cav, angle in zip(names, cavs, joint.angles_):
        if angle < LEAST_ANGLE:
            raise DataError(
                f"{name} ({cav.name}) lies at {angle:.1f} degrees to what is protected; at least "
                f"{LEAST_ANGLE:g} are needed. The artifact and what you want to keep look alike at this layer: protect "
                "less, or take another layer."
            )
    # Singular vectors, not Gram and Schmidt's: no order of the artifacts, and the sum of squares stays what it is.
    _, sizes, directions = np.linalg.svd(np.concatenate(rest), full_matrices=False)
    joint.joint_size_ = sizes[sizes > _RANK * sizes[0]]
    joint.n_features_in_ = channels
    joint.label_ = label
    # From the mean of the clean samples, every artifact's own counting alike, all shifts lead to that with all of them.
    clean = np.mean([cav.class_mean_[0] for cav in cavs], axis=0)
    shift = np.sum([cav.class_mean_[1] - cav.class_mean_[0] for cav in cavs], axis=0)
    count = np.sum([cav.class_count_ for cav in cavs], axis=0)
    means = ClassMeans(np.array([False, True]), count, np.stack([clean, clean + shift]))
    joint._settle(directions[: len(joint.joint_size_)], means)
    return joint


def class_direction(X: ArrayLike, labels: ArrayLike, label: int, *, has_artifact: ArrayLike) -> FloatArray:
    """Return the unit vector from the mean of all other classes to that of a class, both without artifacts.

    Args:
        X: pooled activations, (samples, channels).
        has_artifact: which samples carry any artifact; they are left out.
    """
    features, classes = np.asarray(X, dtype=np.float64), np.asarray(labels)
    is_clean = ~np.asarray(has_artifact, dtype=bool)
    inside, outside = features[is_clean & (classes == label)], features[is_clean & (classes != label)]
    if not len(inside) or not len(outside):
        raise DataError(
            f"The direction of class {label} needs images without an artifact of this class and of others; there are "
            f"{len(inside)} and {len(outside)}."
        )
    difference = inside.mean(axis=0) - outside.mean(axis=0)
    length = float(np.linalg.norm(difference))
    if not (np.isfinite(length) and length > 0):
        raise DataError(f"Class {label} has no direction: its mean activation is that of the others, or not finite.")
    return np.asarray(difference / length)


def _protected(protect: Sequence[CAV | ArrayLike], channels: int) -> FloatArray:
    """Return an orthonormal basis of all that is protected, (k, channels)."""
    rows = []
    for each in protect:
        given = np.atleast_2d(each.directions_ if isinstance(each, CAV) else np.asarray(each, dtype=np.float64))
        if given.ndim != 2 or given.shape[1] != channels:
            raise DataError(
                f"A protected direction has the shape {given.shape}, but the CAVs have {channels} channels."
            )
        lengths = np.linalg.norm(given, axis=1, keepdims=True)
        if not (np.all(np.isfinite(lengths)) and np.all(lengths > 0)):
            raise DataError("A protected direction has no length, or is not finite.")
        rows.append(given / lengths)
    if not rows:
        return np.zeros((0, channels))
    _, sizes, directions = np.linalg.svd(np.concatenate(rows), full_matrices=False)
    return np.asarray(directions[sizes > _RANK * sizes[0]])
