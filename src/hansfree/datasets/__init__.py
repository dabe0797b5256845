"""Images with their labels, with or without artifacts."""

from hansfree.datasets.base import IMAGENET, Example, ExampleSet, ImageSource, Normalize
from hansfree.datasets.datasets import Flagged, InMemory, Masked, Part
from hansfree.datasets.insertion import Pasted, Shortcuts, Stamped
from hansfree.datasets.lesions import SyntheticLesions
from hansfree.datasets.printed import PrintedSkin

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
