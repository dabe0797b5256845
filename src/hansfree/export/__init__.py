"""The corrected model as the user's own weights: folded, checked, as safetensors or ONNX, with its card."""

from hansfree.export.folding import Folding, fold_projection
from hansfree.export.monitor import Monitor, MonitorClassifier
from hansfree.export.run import ExportedRun, export_run, open_corrected, open_example, read_run
from hansfree.export.weights import Exported, export_model, export_onnx, load_corrected
