"""Datasets with their bias, ready for an experiment; each is one class in one file."""

from hansfree.studies import bone_age, celeba, imagenet, isic2019, synthetic_text, table  # they join the registry
from hansfree.studies.own import OwnImages
from hansfree.studies.study import SETS, BiasedData, Published, Recipe, Study
from hansfree.studies.synthetic import Synthetic

__all__ = [
    "SETS",
    "BiasedData",
    "OwnImages",
    "Published",
    "Recipe",
    "Study",
    "Synthetic",
    "bone_age",
    "celeba",
    "imagenet",
    "isic2019",
    "synthetic_text",
    "table",
]
