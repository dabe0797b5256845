"""Choose a layer: score all in one pass over a few images, try the best, say why."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import Tensor, nn

from hansfree.datasets.base import ExampleSet
from hansfree.errors import DataError, OptionError
from hansfree.experiments import Setting
from hansfree.layer_choice.confirming import Trial, try_layer
from hansfree.layer_choice.everywhere import EveryLayer
from hansfree.layer_choice.scoring import RULE, Direction, LayerScore, measure_direction
from hansfree.models import feature_layers, recommend_layer
from hansfree.progress import Progress, silent
from hansfree.selection import BalancedRule, check_selectable
from hansfree.selection.validator import log_odds
from hansfree.splitting import Layer, Train, on_device
from hansfree.studies import BiasedData
from hansfree.training import FineTuning

STRENGTHS = (0.01, 0.1, 1.0, 10.0, 100.0)
_BATCH = 16
_PROBED = 32  # images on which the output's reaction is measured
# Numbers of a layer's output per number of an image that are still cheap to try. At an early layer nearly the whole
# network is retrained: at the first convolution of a ResNet-10 that took more than a minute, at the last layer seconds.
_LARGEST = 1.0
_LEAST = 4  # images without and with the artifact, as the doctor wants


@dataclass(frozen=True, eq=False, kw_only=True)
class LayerChoice:
    """The layer that was chosen, and what was found about all that came into question.

    Attributes:
        layer: The one to take.
        reason: Why, in one sentence.
        scores: All layers, the best by `RULE` first.
        trials: What correcting at the best few did, by layer.
        remarks: What was left out, and why.
    """

    layer: str
    reason: str
    scores: tuple[LayerScore, ...]
    trials: Mapping[str, Trial]
    remarks: tuple[str, ...]

    def explain(self, layer: str) -> str:
        """Say in one sentence what speaks for and against a layer."""
        score = next((score for score in self.scores if score.layer == layer), None)
        if score is None:
            raise OptionError(f"{layer!r} was not scored. Scored: {', '.join(score.layer for score in self.scores)}.")
        trial = self.trials.get(layer)
        tried = "not tried" if trial is None else trial.sentence
        return f"{layer} is {score.sentence}; {tried}."


def choose_layer(
    model: nn.Module,
    data: BiasedData,
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

    At each layer: how well held-out images with the artifact are told apart, how stable the direction is, how much the
    output reacts to the artifact's shift along it, and how far it is the class's own direction. Then RR-ClArC is run at
    the best and at the one that `hansfree.recommend_layer` names. Of those whose balanced accuracy on biased validation
    images is within one standard error of the best, the layer with the fewest parameters after it is taken: less is
    changed. Test images are not looked at.

    Args:
        layers: Which come into question; None is all with features of their own.
        confirm: How many of the best are tried; 0 tries none and goes by the scores.
        strengths: That are tried at each.
        tuning: The recipe of the correction.
        train: What it fine-tunes: ``"all"`` after the layer, or only the ``"last"`` linear layer.
        budget: How much balanced accuracy on clean validation images a correction may cost.
        class_budgets: How much of a class's accuracy it may cost there; of others as much as the mean allows.
        images: At most so many training images pass for the scores.
        seed: Of which images pass, and of the doctor's draws.
    """
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
            auc_stderr=direction.auc_stderr,
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


def _batches(images: ExampleSet, rows: np.ndarray, label: str, progress: Progress) -> Iterator[Tensor]:
    starts = range(0, len(rows), _BATCH)
    for start in progress(starts, total=len(starts), label=label):
        yield images.batch(rows[start : start + _BATCH]).image


def _take(scores: Sequence[LayerScore], trials: Mapping[str, Trial]) -> tuple[str, str]:
    """Return the layer, and why it."""
    first = scores[0].layer
    if not trials:
        return first, f"{RULE} None was tried."
    kept = {layer: trial for layer, trial in trials.items() if trial.strength is not None}
    if not kept:
        return first, f"No strength was admissible at any layer that was tried; {first} has the best scores."
    judged = {layer: trial.biased for layer, trial in kept.items() if trial.biased is not None}
    if not judged:
        layer = next(score.layer for score in scores if score.layer in kept)
        return layer, (
            f"{layer} has the best scores of those where a correction keeps the clean accuracy; with the artifact the "
            "accuracy cannot be known, so no trial could decide."
        )
    best = max(judged, key=lambda layer: judged[layer].value)
    enough = judged[best].value - judged[best].stderr
    near = {layer for layer, score in judged.items() if score.value >= enough}
    after = {score.layer: score.parameters_after for score in scores}
    layer = min((score.layer for score in scores if score.layer in near), key=after.__getitem__)
    told = f"{100 * judged[layer].value:.1f} % with the artifact on validation images"
    if layer == best:
        return layer, f"Corrected at {layer}, the model is best of {len(trials)} that were tried: {told}."
    return layer, (
        f"Corrected at {layer}, the model has {told}, within one standard error of the best ({best}, "
        f"{100 * judged[best].value:.1f} %), and fewer parameters are retrained."
    )
