"""The last word of the labelling page: whether the marks are enough for a run, and how to start one."""

from __future__ import annotations

from dataclasses import dataclass

from hansfree.label.judging import Judgement
from hansfree.label.opening import Material


@dataclass(frozen=True)
class Finish:
    """What is told, in the order in which it is read."""

    title: str
    missing: str  # what speaks against a run; empty where nothing does
    proposed: str  # about the images that nobody marked; empty where there are none
    sentence: str  # how to start the run


def describe_finish(material: Material, judgement: Judgement | None, *, unmarked: int) -> Finish:
    """Say whether a run can rest on the marks, by what the doctor found.

    Args:
        judgement: Of the marks as they are; None where it is not there yet.
        unmarked: How many images have a proposed bit.
    """
    key = "data.table" if material.is_table else "data.artifacts"
    how = f"set {key} in {material.file} to {material.table}, then: hansfree run {material.file}"
    proposed = ""
    if unmarked:
        proposed = (
            f"Not marked: {unmarked:,} of the {len(material.names):,} images. Their bits are proposed, and a run takes "
            "them for true. Look through them first, in the list of all images."
        )
    if judgement is not None and judgement.level in ("good", "fair"):
        return Finish("Ready for a run", "", proposed, f"{how[0].upper()}{how[1:]}")
    missing = "The doctor has not answered yet." if judgement is None else f"The doctor says: {judgement.verdict}"
    return Finish("Saved, but not ready for a run", missing, proposed, f"To run all the same: {how}")
