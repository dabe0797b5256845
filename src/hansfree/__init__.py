"""hansfree: find the shortcut a trained vision model relies on, unlearn it, and prove how much is gone.

    acts = hf.collect_activations(model, "layer4.1.add", loader)
    cav = hf.SignalCAV().fit(acts.pooled, acts.has_artifact)
    fixed = hf.RRClArC(cav, strength=1.0).correct(model, acts)

Names are imported on first use, so that ``import hansfree`` costs nothing that is not needed.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "activations": ("Activations", "collect_activations"),
    "artifacts": ("LSB", "Artifact", "Brightness", "Patch", "Plaster", "Timestamp"),
    "auto_pairs": ("make_auto_pairs", "measure_auto_pairs"),
    "cavs": (
        "CAV",
        "JointCAV",
        "LassoCAV",
        "LogisticCAV",
        "PairCAV",
        "RidgeCAV",
        "SVMCAV",
        "SignalCAV",
        "class_direction",
        "join_cavs",
        "load_cavs",
        "save_cavs",
    ),
    "corrections": (
        "DFR",
        "LEACE",
        "RRR",
        "AClArC",
        "Augmented",
        "Correction",
        "LogitPairing",
        "OneSidedPClArC",
        "PClArC",
        "RClArC",
        "RRClArC",
        "RRClArCStep",
        "Vanilla",
    ),
    "corrections.deep": (
        "DeepCorrection",
        "DeepValidation",
        "Match",
        "NetworkTuning",
        "Transplant",
        "choose_candidate",
    ),
    "datasets": (
        "Example",
        "ExampleSet",
        "Flagged",
        "InMemory",
        "Masked",
        "Normalize",
        "Stamped",
        "SyntheticLesions",
    ),
    "cavs.diagnostics": ("Diagnosis", "examine_cav"),
    "errors": ("HansfreeError",),
    "evaluation": ("evaluate",),
    "export": ("export_model", "export_onnx", "load_corrected"),
    "forgetting": (
        "Forgetting",
        "Probe",
        "Relearning",
        "RelearningCurve",
        "probe_artifact",
        "relearn",
        "reset_head",
    ),
    "heatmaps": ("artifact_relevance", "compute_cav_heatmaps", "compute_heatmaps", "masks_from_heatmaps"),
    "layer_choice": ("LayerChoice", "choose_layer"),
    "metrics": ("Evidence", "Metric", "Score"),
    "models": ("adapt", "build_model", "load_model", "plain", "plain_state", "preprocessing_of", "recommend_layer"),
    "monitor": ("Monitor",),
    "reproduce": ("Reproduction",),  # its function `reproduce` has the room's own name, and would hide it
    "side_effects": ("SideEffects", "measure_side_effects"),
    "models.surgery": ("Split", "list_layers", "split"),
    "studies": ("BiasedData", "OwnImages", "Study"),
    "corrections.training": ("FineTuning",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'hansfree' has no attribute {name!r}")
    return getattr(import_module(f"hansfree.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
