"""Images with their labels, with or without artifacts, and the studies that are made of them."""

from hansfree.datasets import bone_age, celeba, image_table, imagenet, isic2019, printed  # studies join the registry
from hansfree.datasets.base import IMAGENET, Example, ExampleSet, ImageSource, Normalize
from hansfree.datasets.flagged import Flagged
from hansfree.datasets.lesions import SyntheticLesions
from hansfree.datasets.masked import Masked
from hansfree.datasets.shortcuts import Shortcuts
from hansfree.datasets.stamped import InMemory, Stamped
from hansfree.datasets.study import SETS, BiasedData, Published, Recipe, Study
from hansfree.datasets.synthetic import Synthetic

__all__ = [
    "IMAGENET",
    "SETS",
    "BiasedData",
    "Example",
    "ExampleSet",
    "Flagged",
    "ImageSource",
    "InMemory",
    "Masked",
    "Normalize",
    "Published",
    "Recipe",
    "Shortcuts",
    "Stamped",
    "Study",
    "Synthetic",
    "SyntheticLesions",
    "bone_age",
    "celeba",
    "image_table",
    "imagenet",
    "isic2019",
    "printed",
]
