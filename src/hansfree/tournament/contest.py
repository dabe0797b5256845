"""One entrant on one draw: trained, its strength chosen on validation images, and asked on test images."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from torch import nn

from hansfree.activations import Activations, compute_features, cut_again, find_pairs, join, pool_again
from hansfree.cavs import CAV
from hansfree.corrections import Vanilla
from hansfree.errors import OptionError
from hansfree.evaluation import State, held_out_features, judge_head
from hansfree.metrics import MIN_GROUP, predict_classes
from hansfree.models import predict_logits
from hansfree.selection import BalancedRule, Choice, Validator, has_enough, walk_path
from hansfree.tournament.draws import Draw
from hansfree.tournament.entrants import BALANCED_REFERENCE, BIASED, REFERENCE, Entrant
from hansfree.tournament.scoring import DrawAnswers, Outcome
from hansfree.training import Heads


def play(entrant: Entrant, draw: Draw) -> Outcome | None:
    """Correct the draw's model; None where the rule can take none of the strengths."""
    train = train_for(entrant, draw)
    cav = fit_cav(entrant, draw) if entrant.has_direction else None
    method = entrant.make(cav, draw.tuning)
    edit = method.inference_edit(train)
    validator = make_validator(draw, edit)
    rule, original = BalancedRule(), make_validator(draw)(Heads(draw.cut, 1, draw.tuning.device))[0]
    strengths = method.grid if method.has_strength else (0.0,)
    path = walk_path(
        method.train(draw.cut, train, strengths, watch=validator),
        (lambda seen: rule.choose(seen, original)) if method.has_strength else (lambda seen: Choice(0, "the only one")),
        lambda head: [],
    )
    if path.best is None or path.choice.index is None:
        return None
    seen = path.histories[path.choice.index][-1]
    clean, biased = answers(draw, path.best.state, edit)
    return Outcome(
        strength=path.best.strength if method.has_strength else None,
        objection=rule.objection(seen, original),
        val_clean=seen.clean.value,
        val_biased=float("nan") if seen.biased is None else seen.biased.value,
        clean=clean.tolist(),
        biased=biased.tolist(),
        directions=0 if cav is None else len(cav.directions_),
    )


def model_named(name: str, draw: Draw) -> nn.Module:
    """Return the model of one that does not compete: the biased, the clean-trained, or that one solved and balanced."""
    if name == BIASED:
        return draw.model
    if name == REFERENCE:
        return draw.reference
    if name != BALANCED_REFERENCE:
        raise OptionError(f"{name!r} is an entrant, and plays.")
    cut = cut_again(draw.reference, draw.clean, train=draw.corrected)
    refit = Vanilla(tuning=replace(draw.tuning, optimizer="converged", balanced=True))
    (solved,) = refit.train(cut, draw.clean, [refit.strength])
    return cut.model_with(solved.state, draw.reference)


def judge_model(draw: Draw, model: nn.Module) -> Outcome:
    """Ask a whole model: the biased one as it is, or the one that never saw the artifact."""
    data = draw.data
    if model is draw.model or draw.kind != "whole":
        cut = cut_again(model, draw.test.clean)
        heads = Heads(cut, 1, draw.tuning.device)
        sets = (draw.val.clean, draw.val.biased, draw.test.clean, draw.test.biased)
        logits = [heads.logits(compute_features(cut, images))[0].numpy() for images in sets]
    else:  # a model of its own, which the cache does not know
        logits = [
            predict_logits(model, images)
            for images in (data.val_clean, data.val_biased, data.test_clean, data.test_biased)
        ]
    val_clean, val_biased, clean, biased = (predict_classes(each.astype(np.float64)) for each in logits)
    known = has_enough(data.val_clean.labels, MIN_GROUP)
    labels = np.asarray(data.val_clean.labels)[known]
    seen = DrawAnswers(val_clean[None, known], val_biased[None, known])
    return Outcome(
        strength=None,
        objection="",
        val_clean=float(seen.score(labels, "balanced_accuracy_clean")[0]),
        val_biased=float(seen.score(labels, "balanced_accuracy_biased")[0]),
        clean=clean.tolist(),
        biased=biased.tolist(),
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


def answers(draw: Draw, state: State, edit: nn.Module | None) -> tuple[np.ndarray, np.ndarray]:
    """Return the classes that a head names for the test images without and with the artifact."""
    images = held_out_features(draw.cut, draw.test.clean, draw.test.biased, biased_class=draw.biased_class, edit=edit)
    evidence = judge_head(draw.cut, state, images, device=draw.tuning.device)
    return predict_classes(evidence.logits_clean), predict_classes(evidence.logits_biased)


def train_for(entrant: Entrant, draw: Draw) -> Activations:
    """Return what an entrant learns from; where it wants pairs, those with the artifact put in are there too."""
    train = draw.train
    if entrant.kind.uses_pairs:
        train = join(train, draw.pairs.biased)
        find_pairs(train)  # an error of its own where they are none
    return train if entrant.pooling == train.pooling else pool_again(train, entrant.pooling)


def make_validator(draw: Draw, edit: nn.Module | None = None) -> Validator:
    """Return what judges heads by the draw's validation images, as a run does."""
    clean, biased = draw.val_features
    if edit is not None:
        clean, biased = (compute_features(draw.cut, images, edit=edit) for images in (draw.val.clean, draw.val.biased))
    return Validator(clean, biased, draw.biased_class, draw.first_classes, inserted=True, least=MIN_GROUP)
