"""Open a finished run, export a model of it with its card, and verify the export."""

from __future__ import annotations

import copy
import math
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from hansfree._internal.files import hash_file, open_templates, read_arrays, write_text
from hansfree._internal.store import RunStore
from hansfree.corrections import Correction, DeepCorrection, RRClArC, split_name
from hansfree.data import IMAGENET, SETS, Normalize
from hansfree.errors import OptionError, RunError, nearest
from hansfree.evaluation import ORIGINAL, Results, Row, load_results, method_title
from hansfree.export.weights import Exported, check_onnx, export_model, export_onnx, load_corrected
from hansfree.metrics import Metric
from hansfree.models import (
    adapt,
    build_model,
    fill_with_weights,
    load_model,
    plain,
    predict_logits,
    read_weights,
    returns_logits,
)
from hansfree.models.surgery import layer_order
from hansfree.reasons import VerdictLevel
from hansfree.report import (
    describe_claims,
    describe_loss,
    describe_notes,
    describe_rejection,
    describe_selection,
    describe_verdict,
    group_title,
    interval_at_end,
    without_folders,
)

_IMAGES = 8  # to compare logits on, where the run shows none
_TOLERANCE = 1e-3  # of the largest logit: evaluation starts from the cached activations, in another order of sums
_RUN_FILE = "run.yaml"  # the user's, as it was read
_ORIGINALS = ("original.safetensors", "model.safetensors")  # a user's own model, or one that the run trained itself


@dataclass(frozen=True)
class FinishedRun:
    """A run folder, opened."""

    path: Path
    config: dict[str, Any]
    results: Results

    def chosen(self, method: str) -> list[Row]:
        """Return all scores of a method's first variant; the others are repeats."""
        variant = self.results.variant(method)
        return [row for row in self.results.rows if row.chosen and type(variant).of(row) == variant] if variant else []

    def method_to_export(self, method: str | None) -> str:
        """Return the method to export, by default the one that the run recommends, or RR-ClArC.

        Weights of a method that the results do not list are of an earlier run in this folder: nothing is known of them.
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
        if wanted in known:
            return str(wanted)
        if wanted not in listed:
            raise OptionError(f"The results of {self.path} do not list {wanted}.{nearest(wanted, listed)}{there}")
        if self.chosen(wanted):
            raise self.lost(wanted)
        reason = describe_selection(self.results, wanted).reason or "no strength was chosen"
        raise OptionError(f"{self.path} has no weights of {wanted}, as {reason}.{there}")

    def lost(self, method: str) -> RunError:
        """Return the error for weights that are missing or cannot be read."""
        stage = self.path / "stages" / f"{method}.json"
        return RunError(
            f"{self.weights_of(method)} is missing or damaged. Delete {stage}, and resume the run with the command "
            "that started it: it computes both again."
        )

    def network(self, method: str, original: nn.Module) -> nn.Module:
        """Return the network of a whole-network correction, a copy of ``original`` with its weights."""
        network = copy.deepcopy(original)
        self.check(self.weights_of(method))
        try:
            network.load_state_dict(load_file(self.weights_of(method)))
        except (OSError, SafetensorError) as error:
            raise self.lost(method) from error
        return network

    def check(self, path: Path) -> None:
        """Raise RunError if a file that exists is not as the run wrote it."""
        if path.exists():
            RunStore(self.path).check_file(path)

    def weights_of(self, method: str) -> Path:
        """Return the file of a method's weights."""
        return self.path / "corrected" / f"{method}.safetensors"


def read_run(path: Path) -> FinishedRun:
    """Read ``config.yaml``, ``results.json`` and ``results.csv`` of a run folder."""
    results = load_results(path)
    config = path / "config.yaml"
    if not config.is_file():
        raise RunError(f"{path} is not a run folder: it has no config.yaml.")
    return FinishedRun(path, _read_yaml(config), results)


def open_model(run: FinishedRun) -> nn.Module:
    """Return the original model, in eval mode: one that hansfree knows by name, or the user's own."""
    described, classes = run.config.get("model"), run.results.meta.get("class_names")
    if isinstance(described, dict) and (run.path / _RUN_FILE).is_file():
        described = _read_yaml(run.path / _RUN_FILE).get("model")  # the config does not say where a file lies
    weights = next((run.path / file for file in _ORIGINALS if (run.path / file).is_file()), None)
    source = described.get("source") if isinstance(described, dict) else described
    if not isinstance(source, str) or not classes or weights is None:
        raise RunError(f"{run.path} does not say which model it corrected, or has no {' or '.join(_ORIGINALS)}.")
    run.check(weights)
    if isinstance(described, dict):
        names = (run.config.get("data") or {}).get("classes")
        n_outputs = 1 if described.get("output") == "binary" else None if names is None else len(names)
        return load_model(source, weights=weights, classes=n_outputs)
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


def adapt_as_evaluated(run: FinishedRun, model: nn.Module, example: Tensor) -> nn.Module:
    """Return the user's own model with the logits that the run evaluated."""
    described = run.config.get("model")
    if not isinstance(described, dict) or plain(model) is not model:
        return model
    label, names = described.get("label"), (run.config.get("data") or {}).get("classes") or []
    if label is not None and label not in names:
        raise RunError(f"{run.path / 'config.yaml'} is damaged: model.label {label!r} is not in data.classes.")
    output = described.get("output", "classes")
    return adapt(model, example, output=output, label=None if label is None else names.index(label))


def open_corrected(run: FinishedRun, method: str, original: nn.Module, example: Tensor) -> nn.Module:
    """Return the model that was evaluated as this method."""
    path = run.weights_of(method)
    run.check(path)
    try:
        with safe_open(path, framework="pt"):
            pass  # its header shows a truncated file
    except (OSError, SafetensorError) as error:
        raise run.lost(method) from error
    layer = run.results.meta.get("layer")
    order = None if layer is None else layer_order(original, layer, example)
    return load_corrected(original, path, layer=layer, pooling=run.config.get("pooling", "max"), order=order)


def open_example(run: FinishedRun) -> Tensor:
    """Return images to compare logits on: those of the report's heatmaps, or noise."""
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
    """Compare an adapted model with the logits that the run stored of the shown images; return whether it did.

    Weights alone are not enough: a projection with another pooling has the same. The example is `open_example`'s.
    """
    stored = run.path / "stages" / f"{method}.npz"
    shown = run.results.heatmaps
    if shown is None or not stored.is_file():
        return False
    expected = read_arrays(stored, stage=stored.with_suffix(".json")).get("shown_logits")
    if expected is None:
        return False
    got = predict_logits(corrected, example[: len(shown.images)])
    if expected.shape != got.shape or not np.allclose(got, expected, rtol=0, atol=_TOLERANCE * np.abs(expected).max()):
        raise RunError(
            f"{run.weights_of(method)} does not give the logits that the run evaluated. The run "
            "folder was changed, or comes from another version of hansfree: run it again."
        )
    return True


_PACKAGES = ("hansfree", "torch", "safetensors")


def write_card(path: Path, exported: Exported, run: FinishedRun, method: str, *, is_checked: bool = False) -> None:
    """Write the model card of a run's exported model.

    It says whether the weights were compared with the logits that the run stored of its evaluation.
    """
    environment = open_templates("export", is_html=False)
    environment.filters["cell"] = _cell
    member = Correction.members().get(split_name(method)[0])
    results = run.results
    meta, variant = results.meta, results.variant(method)
    choice, biased = results.selection.get(method, {}), meta.get("biased_class")
    text = environment.get_template("MODEL_CARD.md.jinja").render(
        meta=meta,
        model=without_folders(meta.get("model") or ""),
        method=method_title(method),
        is_deep=method in DeepCorrection.members(),
        what=(member.__doc__ or "").splitlines()[0].replace("``", "") if member else "",
        biased_class=f"{results.class_title(biased)} (class {biased})" if isinstance(biased, int) else biased,
        cav=next((row.cav for row in run.chosen(method) if row.cav), None),
        judged_along=meta.get("cav") if split_name(method)[1] else None,
        choice=choice,
        selection=describe_selection(results, method),
        diverged=[f"{strength:g}" for strength in choice.get("diverged") or () if strength is not None],
        objection=describe_rejection(results, variant) if variant else "",
        verdict=describe_verdict(results, method) if method in results.verdicts else None,
        loss=describe_loss(results, variant).sentence if variant else "",
        notes=describe_notes(results),
        counts=meta.get("counts") or [],
        sizes=[(name.replace("_", " "), meta[f"n_{name}"]) for name in SETS if meta.get(f"n_{name}") is not None],
        scores=compare_scores(run.chosen(ORIGINAL), run.chosen(method), results=results),
        unclaimed=[each["sentence"] for each in describe_claims(meta.get("claims") or ()) if not each["can_be_made"]],
        unknown=_unknown(results),
        exported=exported,
        evaluated=f"weights, {method}",
        is_checked=is_checked,
        weights_hash=hash_file(exported.weights),
        ran_with=meta.get("versions") or {},
        exported_with={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
    )
    write_text(path, text)


def compare_scores(before: Iterable[Row], after: Iterable[Row], *, results: Results) -> list[tuple[str, ...]]:
    """Return a line per score that either model has: its name, its ideal, before, after, number of images.

    The worst group may be another one on each side: then the cells name it, not the line.
    """
    of_classes = {name for name, metric in Metric.members().items() if metric.is_per_class}
    rows = [
        {(row.metric, row.group if row.metric in of_classes else None): row for row in side} for side in (before, after)
    ]
    lines = []
    for metric, group in dict.fromkeys([*rows[1], *rows[0]]):
        member = Metric.members().get(metric)
        pair = [side.get((metric, group)) for side in rows]
        counts = dict.fromkeys(f"{row.n:,}" for row in pair if row is not None and row.n is not None)
        titles = [group_title(results, row.group, row.artifact) if row else "" for row in pair]
        label, values = _label(metric), [_written(row) for row in pair]
        if len(found := set(filter(None, titles))) == 1:
            label += f" ({found.pop()})"
        elif found:
            values = [f"{value} ({title})" for value, title in zip(values, titles)]
        lines.append((label, f"{member.ideal:g}" if member else "", *values, " / ".join(counts)))
    return lines


def _unknown(results: Results) -> list[str]:
    """Return a sentence for each reason why scores are not available."""
    labels: dict[str, list[str]] = {}  # by the reason
    for each in results.unknown:
        title = group_title(results, each.group)
        labels.setdefault(each.reason, []).append(f"{_label(each.metric)}{title and f' ({title})'}")
    return [f"{' / '.join(found)}: n/a ({reason})." for reason, found in labels.items()]


def _label(metric: str) -> str:
    member = Metric.members().get(metric)
    return member.label if member else metric


def _written(row: Row | None) -> str:
    if row is None or not math.isfinite(row.value):
        return "n/a"
    if interval := interval_at_end(row):
        return f"{row.value:.3g} ({interval[0]:.2g} to {interval[1]:.2g})"
    has_error = row.stderr is not None and math.isfinite(row.stderr) and row.stderr > 0
    return f"{row.value:.3g} ± {row.stderr:.2g}" if has_error else f"{row.value:.3g}"


def _cell(value: object) -> str:
    """Escape a name with a bar or a line break."""
    return " ".join(str(value).split()).replace("|", "\\|")


@dataclass(frozen=True)
class ExportedRun:
    """Files of an export."""

    method: str
    weights: Exported
    card: Path
    onnx: Path | None


def export_run(
    run: Path,
    method: str | None = None,
    *,
    original: nn.Module | None = None,
    out: Path | None = None,
    onnx: bool = False,
    force: bool = False,
) -> ExportedRun:
    """Export a corrected model of a finished run with its card.

    Args:
        run: The run folder.
        method: None is the one that the run recommends, or RR-ClArC.
        original: The original model; None opens the one that the run names.
        out: A folder; None is ``exported/METHOD`` in the run folder, or ``exported/unproven-METHOD`` where the test
            images show no correction, or cannot show one.
        onnx: Write ``model.onnx`` too.
        force: Replace the files of an earlier export.
    """
    finished = read_run(run)
    method = finished.method_to_export(method)
    verdict = finished.results.verdicts.get(method)
    is_unproven = verdict is not None and verdict.level in (VerdictLevel.UNKNOWN, VerdictLevel.NOT_CORRECTED)
    folder = out or run / "exported" / (f"unproven-{method}" if is_unproven else method)
    weights, card, graph = folder / "model.safetensors", folder / "MODEL_CARD.md", folder / "model.onnx"
    there = [path.name for path in (weights, card, graph) if path.exists()]
    if there and not force:
        raise RunError(f"{folder} already holds {', '.join(there)}. Choose another folder with --out, or use --force.")
    if onnx:
        check_onnx()
    example = open_example(finished)
    own = original or open_model(finished)
    original = adapt_as_evaluated(finished, own, example)
    corrected = open_corrected(finished, method, original, example)
    is_checked = check_evaluated(finished, method, corrected, example)
    exported = export_model(corrected, weights, original=original, example=example, method=method)
    if onnx:
        # with the outputs of the user's own model; only logits inside an object have to be taken out of it
        handed = open_corrected(finished, method, own, example) if returns_logits(own, example) else corrected
        export_onnx(handed, graph, example)
    else:
        graph.unlink(missing_ok=True)  # of an earlier export: beside new weights it would be another model
    write_card(card, exported, finished, method, is_checked=is_checked)
    return ExportedRun(method, exported, card, graph if onnx else None)
