"""The corrected model as the user's own weights: folded, checked, as safetensors or ONNX, with its card."""

from hansfree.export.folding import Folding as Folding, fold_projection as fold_projection
from hansfree.export.monitor import Monitor as Monitor, MonitorClassifier as MonitorClassifier
from hansfree.export.run import (
    ExportedRun as ExportedRun,
    export_run as export_run,
    open_corrected as open_corrected,
    open_example as open_example,
    read_run as read_run,
)
from hansfree.export.weights import (
    Exported as Exported,
    export_model as export_model,
    export_onnx as export_onnx,
    load_corrected as load_corrected,
)
