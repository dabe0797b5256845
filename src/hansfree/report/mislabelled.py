"""The images that the doctor takes for wrongly marked, shown: whoever looks at them knows whether he is right."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hansfree.doctor import Diagnosis
from hansfree.files import read_arrays
from hansfree.report.pictures import picture_of


@dataclass(frozen=True)
class Mislabelled:
    """An image as the page shows it."""

    source: str
    name: str
    listed: str  # in words


def show_mislabelled(diagnosis: Diagnosis | None, path: Path) -> list[Mislabelled]:
    """Return the most suspicious images, of which the run kept pictures in ``path``; nothing where it kept none."""
    if diagnosis is None or not path.is_file():
        return []
    pictures = read_arrays(path, stage=path.parent / "stages" / "doctor.json")["pictures"]
    return [
        Mislabelled(
            picture_of(picture), str(suspect.id), f"listed {'with' if suspect.has_artifact else 'without'} the artifact"
        )
        for suspect, picture in zip(diagnosis.suspects, pictures)
    ]
