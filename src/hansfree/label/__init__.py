"""The labelling page: mark which images carry the artifact, with the model's own activations to find the rest."""

from hansfree.label.ranking import Marks, Ranking, read_marks
from hansfree.label.server import check_installed, serve, write_redirect
from hansfree.label.session import Material, Session, State, open_material

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
