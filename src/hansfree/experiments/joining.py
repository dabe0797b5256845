"""The direction that corrections go along: the artifact's own, with those of others, and without what is kept."""

from __future__ import annotations

from typing import Any

import numpy as np

from hansfree.activations import collect
from hansfree.cavs import CAV, JointCAV, join_cavs, load_cavs, save_cavs
from hansfree.experiments.concepts import Concept
from hansfree.experiments.material import Material

_JOINT = "joint"


def corrected_cav(material: Material, kind: str) -> CAV:
    """Return what corrections go along; the artifact's own CAV where the setting names nothing beside it.

    A joint CAV is kept in the run folder with those that it is made of, so that all who correct share it.
    """
    setting = material.setting
    if not (setting.removed or setting.protected):
        return material.cav_named(kind)
    kept = material.folder / f"cav-{kind}-{_JOINT}.safetensors"
    if not kept.exists():
        removed = {_own_name(material): material.cav_named(kind), **_fitted(material, kind, setting.removed)}
        protected = _fitted(material, kind, setting.protected)
        joint = join_cavs(removed, protect=protected)
        save_cavs(kept, {_JOINT: joint, **{f"of {name}": cav for name, cav in (removed | protected).items()}})
    return load_cavs(kept)[_JOINT]


def describe_joint(material: Material) -> dict[str, Any]:
    """Return for the report what is removed, the own artifact first, and what is kept; nothing where none is joined.

    What is removed comes with its angle to all that is kept, in degrees: at 90 they share nothing, at 30 half of the
    length of the artifact's change is left to be removed.
    """
    cav, setting = corrected_cav(material, material.setting.cav), material.setting
    if not isinstance(cav, JointCAV):
        return {}
    names = [_own_name(material), *(concept.name for concept in setting.removed)]
    return {
        "removed": dict(zip(names, cav.angles_.tolist())),
        "protected": [concept.name for concept in setting.protected],
    }


def _own_name(material: Material) -> str:
    """Return what the experiment's own artifact is called; nobody may have said what it is."""
    return material.data.artifact or "artifact"


def _fitted(material: Material, kind: str, concepts: tuple[Concept, ...]) -> dict[str, CAV]:
    return {concept.name: _fit(material, kind, concept) for concept in concepts}


def _fit(material: Material, kind: str, concept: Concept) -> CAV:
    """Fit the kind of CAV that the experiment uses; marked images are no pairs, and a kind of pairs takes the means."""
    seen = material.activations["train"].pooled[concept.rows]
    if isinstance(concept.told_by, np.ndarray):
        return CAV.named(kind)().fit(seen, concept.told_by)
    plan = material.plan(f"train with {concept.name}", concept.told_by)
    return CAV.named(kind)().fit_pairs(seen, collect(plan, progress=material.progress).pooled)
