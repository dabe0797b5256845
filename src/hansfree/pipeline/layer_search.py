"""Choose the layer: score all in one pass, confirm the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

from hansfree._internal.progress import Progress, silent
from hansfree.activations import along, pool
from hansfree.cavs import SignalCAV, save_cavs
from hansfree.cavs.diagnostics import Level, Repeats, angle_to_truth, level_of, of_both_halves, overlap_with_class
from hansfree.corrections import BalancedRule, RRClArC, check_selectable, fit_path, log_odds
from hansfree.corrections.training import FineTuning
from hansfree.data import BiasedData, ImageDataset, Images, as_biased_data
from hansfree.errors import DataError, OptionError, SplitError
from hansfree.metrics import Score
from hansfree.models import feature_layers, recommend_layer
from hansfree.models.surgery import CHANNEL_AXIS, Layer, Traced, Train, eval_copy, layer_orders, on_device, trace
from hansfree.pipeline.workspace import Setting, Workspace
from hansfree.reasons import Reason

Keep = Callable[[str, Tensor], None]

Pooled = dict[str, dict[str, np.ndarray]]  # by layer, and by pooling: (n, channels)

RULE = (
    "Layers are ordered by the worst level among held-out AUC, expected error and overlap with the class, "
    "poor where the output hardly reacts; within a level by how much it reacts."
)
STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
_LEAST_REACTION = 0.1  # of the log-odds' spread; below, there is next to nothing that a correction could take away
_LEVELS: tuple[Level, ...] = ("good", "fair", "poor")
_BATCH = 16
_PROBED = 32  # images on which the output's reaction is measured
# Numbers of a layer's output per number of an image that are still cheap to try. At an early layer nearly the whole
# network is retrained: at the first convolution of a ResNet-10 that took more than a minute, at the last layer seconds.
_LARGEST = 1.0
_LEAST = 4  # images without and with the artifact, as diagnostics need


class EveryLayer:
    """A model in eval mode with the outputs of several layers; the given model is not changed.

    Args:
        example: At least two images; layers whose output has no row per image, or axes of no known kind, are dropped.
    """

    def __init__(self, model: nn.Module, layers: Sequence[str], example: Tensor) -> None:
        self._device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
        self.orders = layer_orders(model, layers, example.to(self._device))
        self._run: Callable[[Tensor, Keep], Tensor]
        try:
            self._run = _in_graph(trace(model, share=True), layers)
        except SplitError:
            self._run = _with_hooks(eval_copy(model, share=True), layers)
        shapes: dict[str, tuple[int, ...]] = {}
        with torch.no_grad():
            self._run(example.to(self._device), lambda layer, output: shapes.update({layer: tuple(output.shape)}))
        self.layers = tuple(
            layer for layer in layers if len(shapes[layer]) in CHANNEL_AXIS and shapes[layer][0] == len(example)
        )

    def pooled(self, batches: Iterable[Tensor]) -> tuple[Pooled, np.ndarray]:
        """Return the maximum and the mean over the positions at all layers, and the logits, by one pass."""
        found: dict[str, dict[str, list[Tensor]]] = {layer: {"max": [], "mean": []} for layer in self.layers}
        logits = []

        def keep(layer: str, output: Tensor) -> None:
            if layer in found:
                turned = self._turned(layer, output)
                found[layer]["max"].append(pool(turned, "max").float().cpu().clone())  # a flat one may be overwritten
                found[layer]["mean"].append(pool(turned, "mean").float().cpu().clone())

        for images in batches:
            with torch.no_grad():
                logits.append(self._run(images.to(self._device, copy=True), keep).float().cpu())
        joined = {
            layer: {name: torch.cat(parts).numpy() for name, parts in kinds.items()} for layer, kinds in found.items()
        }
        return joined, torch.cat(logits).numpy()

    def slopes(self, batches: Iterable[Tensor], shifts: Mapping[str, np.ndarray], label: int) -> dict[str, np.ndarray]:
        """Return per layer and image how far a class's log-odds move when the layer's shift is added at every position.

        To first order. One backward pass gives the gradient at all layers at once, and its product with a shift is the
        derivative that a forward-mode pass from that layer would give.
        """
        found: dict[str, list[Tensor]] = {layer: [] for layer in shifts}
        for images in batches:
            outputs: dict[str, Tensor] = {}

            def keep(layer: str, output: Tensor, outputs: dict[str, Tensor] = outputs) -> None:
                if layer in shifts:
                    outputs[layer] = output

            with torch.enable_grad():
                # Of a leaf with a gradient, as the weights may be frozen; a copy of it, as the model may overwrite it.
                leaf = images.detach().to(self._device).requires_grad_()
                odds = log_odds(self._run(leaf.clone(), keep), label)
                gradients = torch.autograd.grad(odds.sum(), list(outputs.values()), allow_unused=True)
            for (layer, output), gradient in zip(outputs.items(), gradients):
                known = torch.zeros_like(output) if gradient is None else gradient
                shift = torch.from_numpy(shifts[layer]).to(known)
                found[layer].append(along(self._turned(layer, known), shift).sum(1).detach().cpu())
        return {layer: torch.cat(parts).numpy() for layer, parts in found.items()}

    def _turned(self, layer: str, output: Tensor) -> Tensor:
        order = self.orders[layer]
        return output if order is None else output.permute(order)


def _in_graph(traced: Traced, layers: Sequence[str]) -> Callable[[Tensor, Keep], Tensor]:
    nodes: dict[fx.Node, list[str]] = {}
    for layer in layers:
        nodes.setdefault(traced.find(layer), []).append(layer)

    class Recorder(fx.Interpreter):
        keep: Keep

        def run_node(self, n: fx.Node) -> Any:
            result = super().run_node(n)
            for layer in nodes.get(n, ()):
                self.keep(layer, result)
            return result

    def run(images: Tensor, keep: Keep) -> Tensor:
        recorder = Recorder(traced.root, graph=traced.graph)
        recorder.keep = keep
        return recorder.run(images)  # type: ignore[no-any-return]

    return run


def _with_hooks(own: nn.Module, layers: Sequence[str]) -> Callable[[Tensor, Keep], Tensor]:
    """Record outputs of modules of a copy, so that the hooks need not be removed."""
    current: list[Keep] = []

    def record(layer: str, output: Tensor) -> Tensor:
        current[0](layer, output)
        return output.clone()  # what follows may overwrite it

    for layer in layers:
        own.get_submodule(layer).register_forward_hook(lambda _m, _a, output, layer=layer: record(layer, output))

    def run(images: Tensor, keep: Keep) -> Tensor:
        current[:] = [keep]
        return own(images)  # type: ignore[no-any-return]

    return run


@dataclass(frozen=True, kw_only=True)
class LayerScore:
    """Diagnostics of the signal-CAV at one layer, on a few training images."""

    layer: str
    parameters_after: int
    shape: tuple[int, ...]  # of the output for one image
    auc: float  # of held-out images of the biased class, without and with the artifact
    error: float  # degrees to the direction of endless images, as halves of the images let expect
    reaction: float  # mean move of the log-odds by the artifact's mean shift, in standard deviations of the log-odds
    overlap: float | None  # cosine with the class's direction; None without images of other classes

    @property
    def level(self) -> Level:
        """The worst level of the findings; poor too where the output hardly reacts."""
        if self.reaction < _LEAST_REACTION:
            return "poor"
        levels = [level_of("held_out_auc", self.auc), level_of("expected_error", self.error)]
        if self.overlap is not None:
            levels.append(level_of("class_overlap", abs(self.overlap)))
        return max(levels, key=_LEVELS.index)

    @property
    def rank(self) -> tuple[int, float]:
        """What layers are ordered by, the best first."""
        return _LEVELS.index(self.level), -self.reaction


@dataclass(frozen=True)
class Direction:
    """A layer's direction and its diagnostics."""

    shift: np.ndarray  # the artifact's mean shift along it, averaged over the positions
    auc: float
    error: float
    overlap: float | None


def measure_direction(
    inside: np.ndarray, averaged: np.ndarray, has_artifact: np.ndarray, others: np.ndarray | None, *, seed: int
) -> Direction:
    """Fit the signal-CAV and run the diagnostics that need no fit of other solvers.

    Args:
        inside: Pooled activations (n, channels) of the biased class: what the CAV is fitted on.
        averaged: The same images, averaged over the positions. Maxima say where the artifact points, but added at every
            position they would make an early layer, with its many positions, react most; averages compare.
        others: Pooled activations of clean images of other classes, where there are any.
    """
    samples = inside.astype(np.float64)
    center = samples.mean(axis=0)
    cav = SignalCAV().fit(samples - center, has_artifact)
    repeats = Repeats(cav, samples - center, has_artifact, seed=seed)
    halves, directions = repeats.halves()
    held_out = repeats.held_out()
    cosines = np.sum(directions[:, 0] * directions[:, 1], axis=1)
    overlap = None
    if others is not None:
        overlap = float(overlap_with_class(samples - center, ~has_artifact, others - center, halves, directions).mean())
    scores = averaged.astype(np.float64) @ cav.direction_
    size = scores[has_artifact].mean() - scores[~has_artifact].mean()
    return Direction(
        shift=size * cav.direction_,
        auc=held_out.auc,
        error=float(angle_to_truth(of_both_halves(cosines.mean()))),
        overlap=overlap,
    )


@dataclass(frozen=True)
class Trial:
    """What correcting at a layer did to the validation images; the strength is None where none was admissible."""

    strength: float | None
    reason: Reason  # of the selection rule
    biased: Score | None  # None where too few images with the artifact leave it unknown
    before: Score | None  # of the original model, with the artifact


def try_layer(setting: Setting, strengths: Sequence[float], folder: Path, *, progress: Progress) -> Trial:
    """Correct at the setting's layer and choose a strength by its rule, with an empty folder for the cache."""
    data = setting.data
    # The stages want test images; the validation images again are the same cache, and no test image is read.
    blind = replace(setting, data=replace(data, test_clean=data.val_clean, test_biased=data.val_biased))
    workspace = Workspace(blind, folder, folder / "activations", progress=progress)
    train, rows = workspace.activations["train"], workspace.cav_images
    cav = SignalCAV().fit(train.pooled[rows], data.train.has_artifact[rows])
    save_cavs(folder / "cavs.safetensors", {SignalCAV.name: cav})
    method = RRClArC(cav, tuning=setting.tuning)
    heads = method.train(workspace.cut, train, strengths, watch=workspace.validator(), progress=progress)
    original = workspace.original_validation
    path = fit_path(heads, blind.rule.selector(original))
    if path.best is None or path.final is None:
        return Trial(None, path.selection.reason, None, original.biased)
    return Trial(path.best.strength, path.selection.reason, path.final.biased, original.biased)


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerChoice:
    """The selected layer, and the scores of all."""

    layer: str
    reason: str  # in one sentence
    scores: tuple[LayerScore, ...]  # the best by `RULE` first
    trials: Mapping[str, Trial]  # by layer, of the best few
    remarks: tuple[str, ...]  # what was left out, and why


def choose_layer(
    model: nn.Module,
    data: BiasedData | Images,
    *,
    layers: Sequence[str] | None = None,
    confirm: int = 3,
    strengths: Sequence[float] = STRENGTHS,
    tuning: FineTuning | None = None,
    train: Train = "all",
    budget: float = 0.02,
    class_budgets: Mapping[int, float] | None = None,
    images: int = 1000,
    seed: int = 0,
    progress: Progress = silent,
) -> LayerChoice:
    """Score every layer with features of its own, correct at the best few, and take the best of those.

    Scores are the held-out AUC of the artifact, the stability of the direction, the output's reaction to the artifact's
    shift along it, and the overlap with the class's own direction. RR-ClArC is run at the best layers and at the one
    that `hansfree.recommend_layer` returns. Of those within one standard error of the best balanced accuracy on biased
    validation images, the layer with the fewest parameters after it is taken. Test images are not used.

    Args:
        data: A torch dataset with artifact labels, of which a split is drawn; or `hansfree.data.as_biased_data` of
            several, or with an artifact to insert.
        layers: To score; None is all with features of their own.
        confirm: How many of the best are tried; 0 selects by the scores.
        train: What a correction fine-tunes: ``"all"`` after the layer, or only the ``"last"`` linear layer.
        budget: How much balanced accuracy on clean validation images a correction may cost.
        class_budgets: How much of a class's accuracy it may cost there; of others as much as the mean allows.
        images: The largest number of training images for the scores.

    Examples:
        >>> import hansfree as hf
        >>> lesions = hf.SyntheticLesions(1200, size=16, classes=2)
        >>> images = hf.WithArtifact(lesions, hf.Timestamp(), share=0.5, only_class=0, elsewhere=0.2)
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(12), nn.Flatten(), nn.Linear(4, 2))
        >>> hf.choose_layer(model, images, confirm=0).layer
        '0'
    """
    data = data if isinstance(data, BiasedData) else as_biased_data(data, seed=seed)
    if confirm < 0 or images < 4 * _LEAST or not strengths:
        raise OptionError(
            f"confirm is at least 0, images at least {4 * _LEAST}, and strengths are not empty; given are "
            f"{confirm}, {images} and {tuple(strengths)}."
        )
    check_selectable(data)
    tuning = tuning or FineTuning()
    example = data.val_clean.batch(range(2)).image
    known = {layer.name: layer for layer in feature_layers(model, example)}
    recommended = recommend_layer(model, example).layer
    wanted = [*known] if layers is None else [*layers]
    if unknown := [layer for layer in wanted if layer not in known]:
        raise OptionError(f"{unknown[0]!r} holds no features of its own. Known: {', '.join(known)}.")
    every = EveryLayer(on_device(model, tuning.device), wanted, example)
    scores, remarks = _score(every, data, known, images=images, seed=seed, progress=progress)
    remarks += [f"{layer}: its output has no row for each image." for layer in wanted if layer not in every.layers]
    if not scores:
        raise DataError(f"No layer could be scored. {' '.join(remarks[:1])}".rstrip())
    shortlist: list[str] = []
    for score in scores:
        is_cheap = math.prod(score.shape) <= _LARGEST * example[0].numel()
        if len(shortlist) < confirm and not is_cheap:
            remarks.append(f"{score.layer} was not tried: its output is larger than an image, and a trial takes long.")
        elif len(shortlist) < confirm or (confirm and score.layer == recommended and is_cheap):
            shortlist.append(score.layer)
    trials, rule = {}, BalancedRule(budget, class_budgets or {})
    for layer in shortlist:
        setting = Setting(name=layer, data=data, model=model, layer=layer, tuning=tuning, rule=rule, train=train)
        with TemporaryDirectory(prefix="hansfree-layer-") as folder:
            try:
                trials[layer] = try_layer(setting, strengths, Path(folder), progress=progress)
            except (DataError, OptionError) as error:  # a head too large to be solved, for example
                remarks.append(f"{layer} could not be tried. {error}")
    layer, reason = _take(scores, trials)
    return LayerChoice(layer=layer, reason=reason, scores=tuple(scores), trials=trials, remarks=tuple(remarks))


def _score(
    every: EveryLayer, data: BiasedData, known: Mapping[str, Layer], *, images: int, seed: int, progress: Progress
) -> tuple[list[LayerScore], list[str]]:
    """Return the scores of all layers, the best first, and a sentence for each that could not be scored."""
    inside, others = _rows(data, images, seed)
    rows = np.concatenate([inside, others])
    pooled, logits = every.pooled(_batches(data.train, rows, "all layers at once", progress))
    bits = data.train.has_artifact[inside]
    found: dict[str, Direction] = {}
    remarks: list[str] = []
    for layer in every.layers:
        maxima, means = pooled[layer]["max"], pooled[layer]["mean"]
        foreign = maxima[len(inside) :].astype(np.float64) if len(others) > 1 else None
        try:
            found[layer] = measure_direction(maxima[: len(inside)], means[: len(inside)], bits, foreign, seed=seed)
        except DataError as error:
            remarks.append(f"{layer}: no direction could be learned. {error}")
    if not found:
        return [], remarks
    probed = np.unique(np.linspace(0, len(data.val_clean) - 1, _PROBED).astype(int))
    shifts = {layer: direction.shift for layer, direction in found.items()}
    slopes = every.slopes(_batches(data.val_clean, probed, "what the output does", progress), shifts, data.biased_class)
    odds = log_odds(Tensor(logits[~data.train.has_artifact[rows]]), data.biased_class).double().numpy()
    spread = float(odds.std()) or 1.0
    scores = [
        LayerScore(
            layer=layer,
            parameters_after=known[layer].parameters_after,
            shape=known[layer].shape or (),
            auc=direction.auc,
            error=direction.error,
            reaction=float(np.abs(slopes[layer]).mean() / spread),
            overlap=direction.overlap,
        )
        for layer, direction in found.items()
    ]
    return sorted(scores, key=lambda score: score.rank), remarks


def _rows(data: BiasedData, images: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return training images of the biased class, and clean ones of the others; no more than asked for."""
    train, rng = data.train, np.random.default_rng(seed)
    is_own = (train.labels == data.biased_class) & ~train.is_relabelled
    kinds = [is_own & train.has_artifact, is_own & ~train.has_artifact, (train.labels != data.biased_class)]
    kinds[2] &= ~train.has_artifact
    quarter = images // 4
    parts = []
    for kind, most in zip(kinds, (quarter, quarter, images - 2 * quarter)):
        rows = np.flatnonzero(kind)
        parts.append(np.sort(rng.permutation(rows)[:most]))
    for part, what in zip(parts, ("with", "without")):
        if len(part) < _LEAST:
            raise DataError(
                f"{len(part)} training images of the biased class are {what} the artifact: at least {_LEAST} are "
                "needed to compare layers."
            )
    return np.concatenate(parts[:2]), parts[2]


def _batches(images: ImageDataset, rows: np.ndarray, label: str, progress: Progress) -> Iterator[Tensor]:
    starts = range(0, len(rows), _BATCH)
    for start in progress(starts, total=len(starts), label=label):
        yield images.batch(rows[start : start + _BATCH]).image


def _take(scores: Sequence[LayerScore], trials: Mapping[str, Trial]) -> tuple[str, str]:
    """Return the layer to use, and why."""
    first = scores[0].layer
    if not trials:
        return first, f"{RULE} None was tried."
    admissible = {layer: trial for layer, trial in trials.items() if trial.strength is not None}
    if not admissible:
        return first, f"No strength was admissible at any layer that was tried; {first} has the best scores."
    judged = {layer: trial.biased for layer, trial in admissible.items() if trial.biased is not None}
    if not judged:
        layer = next(score.layer for score in scores if score.layer in admissible)
        return (
            layer,
            f"{layer} has the best scores of those with an admissible strength; accuracy with artifact: n/a.",
        )
    best = max(judged, key=lambda layer: judged[layer].value)
    enough = judged[best].value - judged[best].stderr
    near = {layer for layer, score in judged.items() if score.value >= enough}
    after = {score.layer: score.parameters_after for score in scores}
    layer = min((score.layer for score in scores if score.layer in near), key=after.__getitem__)
    accuracy = f"{100 * judged[layer].value:.1f} % with the artifact on validation images"
    if layer == best:
        return layer, f"Corrected at {layer}, the model is best of {len(trials)} that were tried: {accuracy}."
    return layer, (
        f"Corrected at {layer}, the model has {accuracy}, within one standard error of the best ({best}, "
        f"{100 * judged[best].value:.1f} %), and fewer parameters are retrained."
    )
