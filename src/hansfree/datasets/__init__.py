"""Images with their labels, with or without artifacts."""

from hansfree.datasets.base import IMAGENET, Example, ExampleSet, ImageSource, Normalize
from hansfree.datasets.flagged import Flagged
from hansfree.datasets.lesions import SyntheticLesions
from hansfree.datasets.masked import Masked
from hansfree.datasets.memory import InMemory
from hansfree.datasets.part import Part
from hansfree.datasets.pasted import Pasted
from hansfree.datasets.printed import PrintedSkin
from hansfree.datasets.shortcuts import Shortcuts
from hansfree.datasets.stamped import Stamped

__all__ = [
    "IMAGENET",
    "Example",
    "ExampleSet",
    "Flagged",
    "ImageSource",
    "InMemory",
    "Masked",
    "Normalize",
    "Part",
    "Pasted",
    "PrintedSkin",
    "Shortcuts",
    "Stamped",
    "SyntheticLesions",
]
