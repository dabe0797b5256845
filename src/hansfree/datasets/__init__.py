"""Images with their labels, with or without artifacts."""

from hansfree.datasets.base import IMAGENET, Example, ImageSource, Normalize
from hansfree.datasets.lesions import SyntheticLesions
from hansfree.datasets.stamped import InMemory, Stamped

__all__ = ["IMAGENET", "Example", "ImageSource", "InMemory", "Normalize", "Stamped", "SyntheticLesions"]
