"""What was run: the setting that a page's numbers belong to, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from hansfree.corrections import Correction
from hansfree.experiments import Experiment
from hansfree.experiments.base_models import BaseModels
from hansfree.experiments.subjects import Subject
from hansfree.reproduce.averages import paper_place
from hansfree.reproduce.keys import SubjectKey, count_epochs
from hansfree.results import Row
from hansfree.selection.claims import BIASED_ACCURACY, claims
from hansfree.studies import SETS, BiasedData
from hansfree.training import FineTuning, Pretraining
from hansfree.weights import PRETRAINED

_MOST_LISTED = 8  # strengths; of more, the ends
_GRIDS = {"own": "in our units", "paper": "in the paper's units"}
CORRECTED = {"all": "all that follows the layer", "last": "the last linear layer only"}
TRAINED = {"whole": "the whole model", "head": "only what follows the layer"}

Words = Mapping[str, str]  # what is said -> what holds of it


def setting_of(subject: Subject, rows: Sequence[Row]) -> dict[str, str]:
    """Return what was run on a subject; the rows tell how much of it was: pictures only, a model, corrections too."""
    study, plan = subject.study, subject.plan
    data = subject.data if rows else study.data(plan.model)  # which would be read into memory
    words = {
        "dataset": f"{study.title}, {study.size} px, seed {study.seed}",
        "classes": str(len(data.train.class_names)),
        "images": ", ".join(f"{len(getattr(data, name)):,} {name.replace('_', ' ')}" for name in SETS),
        "artifact in training": _artifact(data),
    }
    if not rows:
        return words
    models = BaseModels(study=study, plan=plan, work=subject.work)
    setting = subject.experiment.setting
    words["training starts from"] = describe_weights(plan.weights)
    if data.base_train is not None:
        words["biased model trained on"] = f"{len(data.base_train):,} images, of which corrections see the train images"
    words["trained on the biased images"] = (
        f"{TRAINED[plan.trained]}, {describe_recipe(models.recipe)}, on {plan.device}"
    )
    words["layer"] = f"`{setting.layer}`"
    methods = {row.method for row in rows} & Correction.members().keys()
    if methods:
        words |= _correction(subject.experiment, rows)
    if plan.left_out:
        words["not run"] = ", ".join(sorted(plan.left_out, key=paper_place))
    return words


def write_settings(settings: Mapping[SubjectKey, Words]) -> str:
    """Return a list of what holds of all subjects, and, where they differ, of which of them it holds."""
    models, artifacts = (dict.fromkeys(getattr(key, part) for key in settings) for part in ("model", "artifact"))
    lines = [f"- model: {', '.join(models)}", f"- artifact: {', '.join(artifacts)}"]
    for name in dict.fromkeys(name for words in settings.values() for name in words):
        values = {key: words.get(name, "none") for key, words in settings.items()}
        by_value: dict[str, list[str]] = {}
        for whose, value in _fewest(values).items():
            by_value.setdefault(value, []).append(whose)
        if len(by_value) == 1:
            lines.append(f"- {name}: {next(iter(by_value))}")
        else:
            lines += [f"- {name}:", *(f"  - {', '.join(whose)}: {value}" for value, whose in by_value.items())]
    return "\n".join(lines)


def _fewest(values: Mapping[SubjectKey, str]) -> dict[str, str]:
    """Return the values by the one word that decides them, the model or the artifact, else by both."""
    for part in ("model", "artifact"):
        found: dict[str, set[str]] = {}
        for key, value in values.items():
            found.setdefault(getattr(key, part), set()).add(value)
        if all(len(each) == 1 for each in found.values()):
            return {word: next(iter(each)) for word, each in found.items()}
    return {key.title: value for key, value in values.items()}


def _artifact(data: BiasedData) -> str:
    labels, has = data.train.labels, data.train.has_artifact
    inside = labels == data.biased_class
    n, of = int(np.sum(has & inside)), int(np.sum(inside))
    others = int(np.sum(has & ~inside))
    words = (
        f"in {n:,} of {of:,} images of class {data.train.class_names[data.biased_class]!r} "
        f"({100 * n / max(of, 1):.1f} %) and in {others:,} of {np.sum(~inside):,} others"
    )
    return words if data.is_inserted else f"{words}; it is in the scenes, and the biased images are not the clean ones"


def describe_weights(weights: str | None) -> str:
    """Return what training starts from."""
    if weights is None:
        return "random weights"
    return "torchvision's pretrained weights" if weights == PRETRAINED else f"`{Path(weights).name}`"


def describe_recipe(recipe: Pretraining | FineTuning) -> str:
    """Return epochs, optimizer, rate, batches and seed."""
    optimizer = {"sgd": "SGD", "adam": "Adam"}[recipe.optimizer]
    return (
        f"{count_epochs(recipe.epochs)} of {optimizer} at {recipe.learning_rate:g}, batches of {recipe.batch_size}, "
        f"seed {recipe.seed}"
    )


def _correction(experiment: Experiment, rows: Sequence[Row]) -> dict[str, str]:
    setting, tuning = experiment.setting, experiment.setting.tuning
    seeds = range(tuning.seed, tuning.seed + setting.repeats)
    tried = {row.method: _tried(experiment, row.method, rows) for row in rows if row.strength is not None}
    words = {"corrections fine-tune": CORRECTED[setting.train]}
    if not any(row.split for row in rows):  # nothing was judged: run times
        return words
    words["corrections fine-tune"] += f", {describe_recipe(tuning)}"
    for claim in claims(setting.data):
        if claim.name == BIASED_ACCURACY and not claim.can_be_made:
            words["cannot be known"] = claim.sentence
    if setting.repeats > 1:
        words["seeds of the correction"] = f"{', '.join(map(str, seeds))}; the strength is chosen with the first"
    if tried:
        listed = [f"{method} {_listed(tried[method])}" for method in sorted(tried, key=paper_place)]
        words["strengths"] = f"{'; '.join(listed)}, {_GRIDS[setting.grid]}"
        few = ", ".join(repr(setting.data.train.class_names[label]) for label in setting.uncounted)
        words["strength chosen by"] = f"{setting.rule}" + (f"; too few images to count: {few}" if few else "")
    return words


def _tried(experiment: Experiment, method: str, rows: Sequence[Row]) -> set[float]:
    """Return a method's strengths: those of the rows, unless they hold the chosen one alone."""
    found = {row.strength: row.chosen for row in rows if row.method == method and row.strength is not None}
    if 0 in found.values():
        return set(found)
    own = experiment.setting.strengths.get(method) or experiment.plain(method).strengths
    return set(own or Correction.named(method).grid)


def _listed(strengths: set[float]) -> str:
    ordered = [f"{strength:g}" for strength in sorted(strengths)]
    if len(ordered) <= _MOST_LISTED:
        return ", ".join(ordered)
    return f"{len(ordered)} from {ordered[0]} to {ordered[-1]}"
