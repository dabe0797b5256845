"""The corrected model as the user's own weights: folded, checked, as safetensors or ONNX.

What makes a whole delivery of a run folder (``hansfree.export.run``) is imported apart: it needs the report's drawing.
"""

from hansfree.export.folding import Folding, fold_projection
from hansfree.export.run import export_run
from hansfree.export.weights import Exported, export_model, export_onnx, load_corrected

__all__ = [
    "Exported",
    "Folding",
    "export_model",
    "export_onnx",
    "export_run",
    "fold_projection",
    "load_corrected",
]
