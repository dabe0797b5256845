"""CAVs from and to captum's TCAV."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hansfree.cavs.base import CAV, FloatArray
from hansfree.errors import DataError, import_optional, nearest

if TYPE_CHECKING:
    from captum import concept as captum


class GivenCAV(CAV):
    """A CAV along a direction that is known already; ``fit`` measures the artifact's size along it.

    Examples:
        >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0], [3.0, 1.0]])
        >>> GivenCAV([1.0, 0.0]).fit(X, [0, 0, 1, 1]).scale_.tolist()
        [3.0]
    """

    name: ClassVar[str] = "given"  # not registered: a run cannot fit it

    def __init__(self, direction: ArrayLike = ()) -> None:
        self.direction = direction

    def _direction(self, X: FloatArray, has_artifact: NDArray[np.bool_]) -> FloatArray:
        direction = np.asarray(self.direction, dtype=np.float64)
        if direction.shape[-1:] != X.shape[1:]:
            raise DataError(f"The direction has the shape {direction.shape}, the samples have {X.shape[1]} features.")
        return direction


CAV.made[GivenCAV.name] = GivenCAV


def from_captum(cav: captum.CAV, X: ArrayLike, y: ArrayLike, *, concept: str | int = 0) -> GivenCAV:
    """Return captum's CAV as one that corrections and `hansfree.evaluate` take.

    Args:
        X: Pooled activations without and with the artifact, of the layer: they tell the artifact's size.
        concept: The artifact, by captum's name or id of the concept; the others are the images without it.

    Examples:
        >>> from types import SimpleNamespace as Some  # captum.concept.CAV has these attributes
        >>> stats = {"weights": np.array([[1.0, 0.0], [-1.0, 0.0]]), "classes": [0, 1]}
        >>> ruler = Some(concepts=[Some(id=0, name="ruler"), Some(id=1, name="none")], stats=stats)
        >>> from_captum(ruler, [[0.0, 1.0], [2.0, 1.0]], [0, 1], concept="ruler").scale_.tolist()
        [2.0]
    """
    ids = {str(each.name): each.id for each in cav.concepts}
    if isinstance(concept, str) and concept not in ids:
        raise DataError(f"The CAV has no concept {concept!r}.{nearest(concept, ids)} It has: {', '.join(ids)}.")
    wanted = ids[concept] if isinstance(concept, str) else concept
    stats: Any = cav.stats
    classes = np.asarray(stats["classes"]).tolist()
    if wanted not in classes:
        raise DataError(f"The CAV has no weights of concept {wanted}. It has: {classes}.")
    weights = np.asarray(stats["weights"], dtype=np.float64)
    return GivenCAV(weights[classes.index(wanted)].tolist()).fit(X, y)


def to_captum(cav: CAV, layer: str, *, concept: str = "artifact") -> captum.CAV:
    """Return a fitted CAV as captum's, with two concepts: the artifact is the first.

    captum computes TCAV on a layer's flattened output, so that a CAV of pooled activations fits flat layers.

    Examples:
        >>> from hansfree.cavs import SignalCAV
        >>> cav = SignalCAV().fit([[0.0, 1.0], [2.0, 1.0]], [0, 1])
        >>> try:
        ...     name = to_captum(cav, "fc").concepts[0].name
        ... except ValueError:  # without captum
        ...     name = "artifact"
        >>> name
        'artifact'
    """
    library = import_optional("captum.concept", extra="captum")
    import torch

    direction = torch.from_numpy(np.stack([cav.direction_, -cav.direction_])).float()
    concepts = [library.Concept(number, name, None) for number, name in enumerate((concept, "none"))]
    stats = {"weights": direction, "classes": [0, 1]}
    found: captum.CAV = library.CAV(concepts, layer, stats)
    return found
