"""What a model must not use: each artifact puts one into an image and says which pixels it touched.

To add one, write a class with ``stamp`` in a file of its own, name it in its class line, and import it here.
"""

# ruff: noqa: I001 (imported in the paper's order, which is the order of tables)

from hansfree.artifacts.base import Artifact
from hansfree.artifacts.timestamp import Timestamp
from hansfree.artifacts.brightness import Brightness
from hansfree.artifacts.lsb import LSB
from hansfree.artifacts.plaster import Plaster
from hansfree.artifacts.patch import Patch, Place

__all__ = ["LSB", "Artifact", "Brightness", "Patch", "Place", "Plaster", "Timestamp"]
