"""hansfree: find the shortcut a trained vision model relies on, unlearn it, and prove how much is gone.

    acts = hf.collect_activations(model, "layer4.1.add", loader)
    cav = hf.SignalCAV().fit(acts.pooled, acts.has_artifact)
    fixed = hf.RRClArC(cav, strength=1.0).correct(model, acts)

Names are imported on first use, so that ``import hansfree`` costs nothing that is not needed.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "activations": (
        "Activations",
        "collect_activations",
    ),
    "data.artifacts": (
        "Artifact",
        "Brightness",
        "FromFunction",
        "LSB",
        "Patch",
        "Plaster",
        "Timestamp",
    ),
    "pipeline.auto_pairs": (
        "make_auto_pairs",
        "measure_auto_pairs",
    ),
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
        "AClArC",
        "Augmented",
        "Correction",
        "LatentCorrection",
        "DFR",
        "LEACE",
        "LogitPairing",
        "OneSidedPClArC",
        "PClArC",
        "RClArC",
        "RRClArC",
        "RRClArCStep",
        "RRR",
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
    "data.examples": (
        "Example",
        "ImageDataset",
        "Normalize",
    ),
    "data.datasets": (
        "LabelledImages",
        "InMemory",
        "WithMasks",
    ),
    "data.insertion": ("WithArtifact",),
    "data.lesions": ("SyntheticLesions",),
    "cavs.diagnostics": (
        "Diagnosis",
        "diagnose_cav",
    ),
    "errors": ("HansfreeError",),
    "evaluation.evaluate": ("SideEffects", "evaluate", "measure_side_effects"),
    "export": (
        "export_model",
        "export_onnx",
        "load_corrected",
    ),
    "evaluation.forgetting": (
        "Forgetting",
        "Probe",
        "Relearning",
        "RelearningCurve",
        "probe_artifact",
        "relearn",
        "reset_head",
    ),
    "evaluation.heatmaps": (
        "artifact_relevance",
        "compute_heatmaps",
    ),
    "evaluation.localisation": (
        "compute_cav_heatmaps",
        "masks_from_heatmaps",
    ),
    "pipeline.layer_search": (
        "LayerChoice",
        "choose_layer",
    ),
    "metrics": (
        "Evidence",
        "Metric",
        "Score",
    ),
    "models": (
        "adapt",
        "build_model",
        "load_model",
        "plain",
        "plain_state",
        "preprocessing_of",
        "recommend_layer",
    ),
    "export.monitor": ("Monitor",),
    "paper.runner": ("Reproduction",),
    "report.figures": ("draw_side_effects",),
    "report.tables": ("write_side_effects",),
    "models.surgery": (
        "Cut",
        "list_layers",
        "split",
    ),
    "data.biased": ("BiasedData",),
    "data.user_images": ("UserImages",),
    "paper.dataset": ("BenchmarkDataset",),
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
