"""The labelling page: mark which images carry the artifact, with the model's own activations to find the rest."""

from hansfree.label.marks import Marks, read_marks
from hansfree.label.opening import Material, open_material
from hansfree.label.ranking import Ranking
from hansfree.label.serving import check_installed, serve, write_redirect
from hansfree.label.session import Session, State

__all__ = [
    "Marks",
    "Material",
    "Ranking",
    "Session",
    "State",
    "check_installed",
    "open_material",
    "read_marks",
    "serve",
    "write_redirect",
]
