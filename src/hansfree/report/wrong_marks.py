"""The images that the doctor takes for wrongly marked, shown: whoever looks at them knows whether he is right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hansfree.doctor import Diagnosis
from hansfree.files import read_arrays
from hansfree.report.pictures import picture_of


@dataclass(frozen=True)
class ShownMark:
    """An image as the page shows it."""

    source: str
    name: str
    listed: str  # in words


def show_wrong_marks(diagnosis: Diagnosis | None, path: Path) -> list[ShownMark]:
    """Return the most suspicious images, of which the run kept pictures in ``path``; nothing where it kept none."""
    if diagnosis is None or not path.is_file():
        return []
    pictures = read_arrays(path, stage=path.parent / "stages" / "doctor.json")["pictures"]
    return [
        ShownMark(
            picture_of(picture), str(mark.id), f"listed {'with' if mark.has_artifact else 'without'} the artifact"
        )
        for mark, picture in zip(diagnosis.wrong_marks, pictures)
    ]
