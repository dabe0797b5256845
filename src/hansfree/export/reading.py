"""A finished run folder as an export needs it: its model, its corrected weights, its scores."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from hansfree.activations import Pooling
from hansfree.cavs import CAV
from hansfree.corrections import Correction, RRClArC, split_name
from hansfree.datasets.base import IMAGENET, Normalize
from hansfree.errors import OptionError, RunError, nearest
from hansfree.export.saving import load_corrected, run_quietly
from hansfree.files import read_arrays
from hansfree.models import adapt, build_model, load_model, plain
from hansfree.report.loading import load_results
from hansfree.report.reading import Results
from hansfree.results import Row
from hansfree.splitting.layout import layer_order
from hansfree.weights import fill_with_weights, read_weights

_IMAGES = 8  # to compare logits on, where the run shows none
_TOLERANCE = 1e-3  # of the largest logit: evaluation starts from the cached activations, in another order of sums
_RUN_FILE = "run.yaml"  # the user's, as it was read
_ORIGINALS = ("original.safetensors", "model.safetensors")  # a user's own model, or one that the run trained itself


@dataclass(frozen=True)
class FinishedRun:
    """What a run folder says."""

    path: Path
    config: dict[str, Any]
    results: Results

    def chosen(self, method: str) -> list[Row]:
        """Return all scores of a method's weights: those of its first variant, for the others are repeats."""
        variant = self.results.variant(method)
        return [row for row in self.results.rows if row.chosen and type(variant).of(row) == variant] if variant else []

    def method_to_export(self, method: str | None) -> str:
        """Return the method to export, by default what the run recommends, or RR-ClArC where it says nothing.

        One whose weights are not there is an error, and so is none where the run recommends none. Weights of a method
        that the results do not list are of an earlier run in this folder: nothing is known of them.
        """
        listed = self.results.selection
        known = [name for name in listed if self.chosen(name) and self.weights_of(name).is_file()]
        there = f" There are: {', '.join(known)}." if known else ""
        wanted = method or self.results.meta.get("recommended", RRClArC.name)
        if wanted is None:
            raise OptionError(
                f"Do not use the models of {self.path}: the run recommends none, and its report says why. To export "
                f"one all the same, name it: {', '.join(known) or 'there is none'}."
            )
        own, cav = split_name(wanted)
        if wanted in known:
            return wanted
        if wanted in listed and self.chosen(wanted):
            raise self.lost(wanted)
        if wanted in listed:
            reason = self.results.with_class_names(str(listed[wanted].get("reason") or "no strength was chosen"))
            raise OptionError(f"{self.path} has no weights of {wanted}, as {reason}.{there}")
        if own in Correction.members() and (cav is None or cav in CAV.members()):
            raise OptionError(
                f"The results of {self.path} do not list {wanted}.{there} Add it to the run file (correction.methods; "
                "further_cavs for a name with @), and run that again: what is done is kept."
            )
        raise OptionError(f"{self.path} has no weights corrected by {wanted!r}.{nearest(wanted, listed)}{there}")

    def lost(self, method: str) -> RunError:
        """Return what to raise where a method was run and its weights are gone, or cannot be read."""
        stage = self.path / "stages" / f"{method}.json"
        return RunError(
            f"{self.weights_of(method)} is missing or damaged. Delete {stage}, and let the command that made the run "
            "go on: it makes both anew."
        )

    def weights_of(self, method: str) -> Path:
        """Return where the run keeps the weights of a method."""
        return self.path / "corrected" / f"{method}.safetensors"

    @property
    def pooling(self) -> Pooling:
        """From what scores are taken; a run that does not say it did as the paper does."""
        return self.config.get("pooling", "max")  # type: ignore[no-any-return]


def read_run(path: Path) -> FinishedRun:
    """Read ``config.yaml``, ``results.json`` and ``results.csv`` of a run folder."""
    results = load_results(path)
    kept = path / "config.yaml"
    if not kept.is_file():
        raise RunError(f"{path} is not a run folder: it has no config.yaml.")
    return FinishedRun(path, _read_yaml(kept), results)


def open_model(run: FinishedRun) -> nn.Module:
    """Return the model as it came, in eval mode: one that hansfree knows by name, or from where the user keeps it."""
    told, classes = run.config.get("model"), run.results.meta.get("class_names")
    if isinstance(told, dict) and (run.path / _RUN_FILE).is_file():
        told = _read_yaml(run.path / _RUN_FILE).get("model")  # the config does not say where a file lies
    weights = next((run.path / file for file in _ORIGINALS if (run.path / file).is_file()), None)
    source = told.get("source") if isinstance(told, dict) else told
    if not isinstance(source, str) or not classes or weights is None:
        raise RunError(f"{run.path} does not say which model it corrected, or has no {' or '.join(_ORIGINALS)}.")
    if isinstance(told, dict):
        return load_model(source, weights=weights, classes=_count_outputs(run, told))
    model = build_model(source, classes=len(classes))
    fill_with_weights(model, read_weights(weights), source=str(weights))
    return model.eval()


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        content = None
    if not isinstance(content, dict):
        raise RunError(f"{path} is damaged.")
    return content


def _count_outputs(run: FinishedRun, told: dict[str, Any]) -> int | None:
    """Return how many outputs the run built its model with; None where its run file did not say it either."""
    if told.get("output") == "binary":
        return 1
    names = (run.config.get("data") or {}).get("classes")
    return None if names is None else len(names)


def adapt_as_evaluated(run: FinishedRun, model: nn.Module, example: Tensor) -> nn.Module:
    """Return the user's own model with the logits that the run looked at; one that has them is returned itself."""
    told = run.config.get("model")
    if not isinstance(told, dict) or plain(model) is not model:
        return model
    label, names = told.get("label"), (run.config.get("data") or {}).get("classes") or []
    if label is not None and label not in names:
        raise RunError(f"{run.path / 'config.yaml'} is damaged: model.label {label!r} is not in data.classes.")
    output = told.get("output", "classes")
    return adapt(model, example, output=output, label=None if label is None else names.index(label))


def open_corrected(run: FinishedRun, method: str, original: nn.Module, example: Tensor) -> nn.Module:
    """Return the model that was evaluated as this method."""
    path = run.weights_of(method)
    try:
        with safe_open(path, framework="pt"):
            pass  # its header tells a file that was cut off
    except (OSError, SafetensorError) as error:
        raise run.lost(method) from error
    layer = run.results.meta.get("layer")
    order = None if layer is None else layer_order(original, layer, example)
    return load_corrected(original, path, layer=layer, pooling=run.pooling, order=order)


def open_example(run: FinishedRun) -> Tensor:
    """Return images to compare logits on: those that the report shows, and noise after them where they are too few."""
    meta, shown = run.results.meta, run.results.heatmaps
    if shown is None:
        size = int(meta.get("size", 224))
        return _noise(_IMAGES, int(meta.get("channels", 3)), size, size)
    channels = shown.images.shape[-1]
    mean, std = meta.get("mean", IMAGENET.mean[:channels]), meta.get("std", IMAGENET.std[:channels])
    images = Normalize(tuple(mean), tuple(std))(shown.images)
    # With a single one, a model could fix the number of images: ONNX does.
    return images if len(images) > 1 else torch.cat([images, _noise(_IMAGES - 1, *images.shape[1:])])


def _noise(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def check_evaluated(run: FinishedRun, method: str, corrected: nn.Module, example: Tensor) -> bool:
    """Compare an adapted model with what the run saw of it on the shown images; return whether the run kept that.

    Weights alone do not say everything: a projection with another pooling has the same.

    Args:
        example: What `open_example` returns: the shown images come first.
    """
    kept = run.path / "stages" / f"{method}.npz"
    shown = run.results.heatmaps
    if shown is None or not kept.is_file():
        return False
    expected = read_arrays(kept, stage=kept.with_suffix(".json")).get("shown_logits")
    if expected is None:
        return False
    got = run_quietly(corrected, example[: len(shown.images)]).numpy()
    if expected.shape != got.shape or not np.allclose(got, expected, rtol=0, atol=_TOLERANCE * np.abs(expected).max()):
        raise RunError(
            f"{run.weights_of(method)} does not give the logits that the run evaluated. The run "
            "folder was changed, or comes from another version of hansfree: run it again."
        )
    return True
