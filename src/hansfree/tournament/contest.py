"""One entrant on one draw: trained, its strength chosen on validation images, and asked on test images."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from hansfree.activations import Activations, compute_features, cut_again, find_pairs, join, pool_again
from hansfree.cavs import CAV
from hansfree.corrections import Correction
from hansfree.evaluation import judge_head, pair_features
from hansfree.metrics import MIN_GROUP, predict_classes
from hansfree.progress import Progress, silent
from hansfree.selection import BalancedRule, Validation, Validator
from hansfree.splitting import Split
from hansfree.tournament.draws import Draw
from hansfree.tournament.entrants import Entrant
from hansfree.tournament.scoring import Outcome
from hansfree.training import Heads, TrainedHead


def play(entrant: Entrant, draw: Draw, *, progress: Progress = silent) -> Outcome | None:
    """Correct the draw's model; None where the rule can take none of the strengths."""
    train = _train_for(entrant, draw)
    cav = fit_cav(entrant, draw)
    method = entrant.make(cav, draw.tuning)
    edit = method.inference_edit(train)
    validator = _validator(draw, edit)
    rule, original = BalancedRule(), _validator(draw, None)(Heads(draw.cut, 1, draw.tuning.device))[0]
    strengths = method.grid if method.has_strength else (0.0,)
    heads, seen = _trained(method, draw.cut, train, strengths, validator, progress)
    choice = rule.choose(seen, original)
    index = choice.index if method.has_strength else 0
    if index is None:
        return None
    clean, biased = answers(draw, heads[index].state, edit)
    return Outcome(
        strength=heads[index].strength if method.has_strength else None,
        reason=choice.reason,
        objection=rule.objection(seen[index], original),
        val_clean=seen[index].clean.value,
        val_biased=_value(seen[index]),
        clean=clean.tolist(),
        biased=biased.tolist(),
        directions=len(cav.directions_),
    )


def judge_model(draw: Draw, model: nn.Module) -> Outcome:
    """Ask a whole model: the biased one as it is, or the one that never saw the artifact."""
    cut = cut_again(model, draw.test.clean)
    pairs = pair_features(cut, draw.test.clean, draw.test.biased, biased_class=draw.biased_class)
    evidence = judge_head(cut, cut.head_parameters(), pairs, device=draw.tuning.device)
    seen = _validator(draw, None, cut)(Heads(cut, 1, draw.tuning.device))[0]
    return Outcome(
        strength=None,
        reason="",
        objection="",
        val_clean=seen.clean.value,
        val_biased=_value(seen),
        clean=predict_classes(evidence.logits_clean).tolist(),
        biased=predict_classes(evidence.logits_biased).tolist(),
    )


def fit_cav(entrant: Entrant, draw: Draw) -> CAV:
    """Return the entrant's direction, from the draw's training images alone."""

    def pooled(images: Activations) -> np.ndarray:
        again = images if entrant.pooling == images.pooling else pool_again(images, entrant.pooling)
        return np.asarray(again.pooled)

    if entrant.direction == "signal":
        bits = np.asarray(draw.train.has_artifact)[draw.cav_rows]
        return entrant.cav().fit(pooled(draw.train)[draw.cav_rows], bits)
    return entrant.cav().fit_pairs(pooled(draw.pairs.clean), pooled(draw.pairs.biased))


def answers(draw: Draw, state: Any, edit: nn.Module | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes that a head names for the test images without and with the artifact."""
    pairs = pair_features(draw.cut, draw.test.clean, draw.test.biased, biased_class=draw.biased_class, edit=edit)
    evidence = judge_head(draw.cut, state, pairs, device=draw.tuning.device)
    return predict_classes(evidence.logits_clean), predict_classes(evidence.logits_biased)


def _train_for(entrant: Entrant, draw: Draw) -> Activations:
    train = draw.train
    if entrant.kind.uses_pairs:
        train = join(draw.pairs.clean, draw.pairs.biased)
        find_pairs(train)  # an error of its own where they are none
    return train if entrant.pooling == train.pooling else pool_again(train, entrant.pooling)


def _trained(
    method: Correction, cut: Split, train: Activations, strengths: Any, validator: Validator, progress: Progress
) -> tuple[list[TrainedHead], list[Validation]]:
    heads = list(method.train(cut, train, strengths, watch=validator, progress=progress))
    return heads, [head.history[-1] for head in heads]


def _validator(draw: Draw, edit: nn.Module | None, cut: Split | None = None) -> Validator:
    cut = cut or draw.cut
    clean, biased = (compute_features(cut, images, edit=edit) for images in (draw.val.clean, draw.val.biased))
    original = draw.cut
    first = Heads(original, 1, draw.tuning.device).logits(compute_features(original, draw.val.clean))[0]
    return Validator(
        clean, biased, draw.biased_class, predict_classes(first.double().numpy()), inserted=True, least=MIN_GROUP
    )


def _value(seen: Validation) -> float:
    return float("nan") if seen.biased is None else seen.biased.value
