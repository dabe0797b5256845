"""Methods against each other over several trials."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal, cast

import numpy as np
from torch import nn
from torch.utils.data import DataLoader

from hansfree.activations import (
    Activations,
    Features,
    Pooling,
    collect,
    collect_activations,
    compute_features,
    cut_again,
    find_pairs,
    join,
    pick,
    plan_pass,
    pool_again,
)
from hansfree.auto_pairs import make_auto_pairs
from hansfree.cavs import CAV, PairCAV, SignalCAV
from hansfree.corrections import CAVCorrection, Correction, Vanilla
from hansfree.corrections.training import FineTuning, Heads, even_weights, tuning_for
from hansfree.datasets import ExampleSet, Pasted, Stamped
from hansfree.errors import DataError, OptionError
from hansfree.evaluation import State, held_out_features, judge_head
from hansfree.experiments.subjects import BaseModels, Subject, keep_in_memory
from hansfree.experiments.workspace import Plan
from hansfree.heatmaps import kept_masks, localise_artifact
from hansfree.metrics import MIN_GROUP, predict_classes
from hansfree.metrics.effects import is_flipped
from hansfree.metrics.intervals import RESAMPLES, TAILS
from hansfree.models import architecture_named, predict_logits
from hansfree.models.surgery import Split, Train
from hansfree.results import CLEAN_TRAINED, ORIGINAL
from hansfree.selection import BalancedRule, Choice, Validator, first_classes, has_enough, walk_path
from hansfree.studies import BiasedData


def paste_artifact(subject: Subject, parts: Sequence[ExampleSet]) -> BiasedData:
    """Return the same training images with held-out pairs: images without the artifact, and with another's pasted on.

    What is pasted onto validation images was cut out of validation images, and so on: no artifact is seen twice. The
    masks are kept, as finding them takes longer than most draws.

    Args:
        parts: training, validation and test images with their bits.
    """
    data = subject.study.data(subject.plan.model)
    layer = architecture_named(subject.plan.model).layer
    models = BaseModels(study=subject.study, plan=subject.plan, work=subject.work, progress=subject.progress)
    model = models.untrained(data.train)  # its trunk is that of all draws
    train = collect_activations(
        model, layer, data.train, folder=subject.work / "activations", name="train", progress=subject.progress
    )
    inside = np.flatnonzero(train.labels == data.biased_class)
    cav = SignalCAV().fit(train.pooled[inside], np.asarray(train.has_artifact)[inside])

    def pairs(images: ExampleSet, part: str) -> tuple[ExampleSet, ExampleSet]:
        def find() -> np.ndarray:
            marked, label = np.flatnonzero(images.has_artifact), f"where the artifact is ({part})"
            return localise_artifact(model, layer, cav, images, marked, progress=subject.progress, label=label)

        masks = kept_masks(subject.run.path / "stages" / f"masks-{part}.npz", find)
        return make_auto_pairs(model, layer, cav, images, masks=masks, seed=subject.study.seed)

    train_pairs, val, test = (pairs(images, part) for images, part in zip(parts, ("train", "val", "test")))
    return replace(
        data,
        val_clean=val[0],
        val_biased=val[1],
        test_clean=test[0],
        test_biased=test[1],
        train_biased=train_pairs[1],
        is_inserted=True,
    )


_TwoSets = tuple[ExampleSet, ExampleSet]

_SEEN = 0.8  # part of the training images that a draw sees where the artifact is in them by nature


@dataclass(frozen=True, eq=False)
class Twins:
    """The same images without and with the artifact."""

    clean: Activations
    biased: Activations


@dataclass(frozen=True, eq=False)
class Material:
    """The models of one draw, and the images as they see them."""

    train: Activations
    pairs: Twins
    val: Twins
    test: Twins
    model: nn.Module
    reference: nn.Module
    clean: Activations


class Source(ABC):
    """Makes the draws of a subject."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        self.subject, self.data = subject, data
        self.layer = architecture_named(subject.plan.model).layer

    @abstractmethod
    def drawn(self, number: int) -> Material:
        """Return one draw."""

    def collect(self, model: nn.Module, images: ExampleSet, name: str) -> Activations:
        """Return the layer's output; the cache knows images that went through this trunk before."""
        subject = self.subject
        plan = plan_pass(
            model,
            self.layer,
            DataLoader(images, batch_size=64, num_workers=subject.plan.workers),
            folder=subject.work / "activations",
            device=subject.plan.device,
            name=name,
        )
        return collect(plan, progress=subject.progress)

    def twins(self, model: nn.Module, images: _TwoSets, name: str) -> Twins:
        """Return the layer's output for the same images without and with the artifact."""
        clean, biased = images
        return Twins(self.collect(model, clean, f"{name} clean"), self.collect(model, biased, f"{name} biased"))

    def held_out(self, model: nn.Module) -> tuple[Twins, Twins]:
        """Return the layer's output for validation and test images."""
        data = self.data
        val, test = (data.val_clean, data.val_biased), (data.test_clean, data.test_biased)
        return self.twins(model, val, "val"), self.twins(model, test, "test")

    def models(self, number: int) -> BaseModels:
        """Return what makes the models of a draw."""
        subject = self.subject
        plan = replace(subject.plan, seed=subject.plan.seed + number)
        return BaseModels(study=subject.study, plan=plan, work=subject.work, progress=subject.progress)


class _OneTrunk(Source):
    """All draws share a trunk, its cache and the held-out images; only heads are trained."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        self.trunk = self.models(0).untrained(data.train)
        self.val, self.test = self.held_out(self.trunk)

    def material(self, train: Activations, pairs: Twins, clean: Activations, number: int) -> Material:
        """Return a draw whose biased head learned from ``train``, and its reference from ``clean``."""
        model, reference = self._with_head(train, number), self._with_head(clean, number)
        return Material(train, pairs, self.val, self.test, model, reference, clean)

    def rng(self, number: int) -> np.random.Generator:
        """Return the randomness of a draw."""
        return np.random.default_rng((self.subject.study.seed, number))

    def _with_head(self, images: Activations, number: int) -> nn.Module:
        models = self.models(number)
        return Vanilla(tuning=models.head_recipe()).correct(models.untrained(self.data.train), images)


class Poisoned(_OneTrunk):
    """The artifact is put into other images of the biased class in every draw."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        poisoned = cast(Stamped, data.train)
        full = Stamped(poisoned.source, poisoned.artifact, share=1, seed=poisoned.seed, transform=poisoned.transform)
        self.clean = self.collect(self.trunk, cast(ExampleSet, data.clean_train), "train clean")
        self.biased = self.collect(self.trunk, full, "train biased")

    def drawn(self, number: int) -> Material:
        """Draw as many images of the biased class as the study has with the artifact; the rest can be made pairs."""
        count = int(self.data.train.has_artifact.sum())
        inside = np.flatnonzero(self.clean.labels == self.data.biased_class)
        has_artifact = np.zeros(len(self.clean), dtype=bool)
        has_artifact[self.rng(number).choice(inside, count, replace=False)] = True
        rows = np.arange(len(self.clean))
        train = pick(join(self.clean, self.biased), rows + len(rows) * has_artifact)
        free = np.flatnonzero(~has_artifact)
        return self.material(train, Twins(pick(self.clean, free), pick(self.biased, free)), self.clean, number)


class Natural(_OneTrunk):
    """The artifact is in the images by nature: a draw sees a part of them."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, data)
        self.train = self.collect(self.trunk, data.train, "train")
        self.pairs = self.twins(self.trunk, cast(_TwoSets, data.pairs), "pairs")
        made = cast(ExampleSet, data.train_biased)
        self.taken_from = made.donor_ids if isinstance(made, Pasted) else made.ids

    def drawn(self, number: int) -> Material:
        """Draw a part of the training images; the reference learns from those of them without the artifact.

        Pairs hold no artifact of an image outside the draw: methods that take them would see more than the others.
        """
        count = round(_SEEN * len(self.train))
        seen = np.sort(self.rng(number).choice(len(self.train), count, replace=False))
        train = pick(self.train, seen)
        rows = np.flatnonzero(np.isin(self.pairs.clean.ids, train.ids) & np.isin(self.taken_from, train.ids))
        without = pick(train, np.flatnonzero(~np.asarray(train.has_artifact)))
        pairs = Twins(pick(self.pairs.clean, rows), pick(self.pairs.biased, rows))
        return self.material(train, pairs, without, number)


class Whole(Source):
    """Every draw trains a biased model and a reference of its own; they are kept, and so are their caches."""

    def __init__(self, subject: Subject, data: BiasedData) -> None:
        super().__init__(subject, keep_in_memory(data, progress=subject.progress))  # many epochs of the same images

    def drawn(self, number: int) -> Material:
        """Train, or find, both models of a draw."""
        data, models = self.data, self.models(number)
        learned = cast(ExampleSet, data.clean_train)
        model, _ = models.trained(data.learned, f"biased model {number}")
        reference, _ = models.trained(learned, f"clean reference {number}")
        train = self.collect(model, data.train, "train")
        pairs = self.twins(model, cast(_TwoSets, data.pairs), "pairs")
        clean = self.collect(reference, learned, "train clean")  # what the reference saw, at its own layer
        return Material(train, pairs, *self.held_out(model), model, reference, clean)


DrawKind = Literal["poisoned", "natural", "whole"]


@dataclass(frozen=True, eq=False)
class Draw:
    """A biased model with what it learned from, and the model that never saw the artifact."""

    number: int
    kind: DrawKind
    biased_class: int
    model: nn.Module
    reference: nn.Module
    clean: Activations  # what the reference learned from, at the reference's own layer
    train: Activations  # some with the artifact
    pairs: Twins  # training images without the artifact, and with it put in
    val: Twins
    test: Twins
    corrected: Train  # what the corrections may change
    cut: Split  # the biased model in three parts
    tuning: FineTuning
    data: BiasedData

    @cached_property
    def val_features(self) -> tuple[Features, Features]:
        """The validation images at the head's input, as every entrant that edits nothing sees them."""
        return compute_features(self.cut, self.val.clean), compute_features(self.cut, self.val.biased)

    @cached_property
    def first_classes(self) -> np.ndarray:
        """What the biased model answers for the validation images without the artifact."""
        return first_classes(self.cut, self.val_features[0], self.tuning.device)

    @cached_property
    def cav_rows(self) -> np.ndarray:
        """Training images that a signal-CAV is fitted to: those of the biased class."""
        return np.flatnonzero(self.train.labels == self.biased_class)


def kind_of_draws(plan: Plan, data: BiasedData) -> DrawKind:
    """Return in what the draws of a subject differ."""
    if plan.trained == "whole":
        return "whole"
    return "poisoned" if isinstance(data.train, Stamped) else "natural"


def make_draws(subject: Subject, data: BiasedData, numbers: Sequence[int]) -> Iterator[Draw]:
    """Yield the draws of a subject one after the other."""
    if not data.is_inserted or data.pairs is None or data.clean_train is None:
        raise DataError("A tournament needs the same images without and with the artifact, in training too.")
    if data.train.is_relabelled.any():
        raise DataError("A tournament draws images anew, which studies that relabel some of them do not allow.")
    if not numbers:
        return
    plan = subject.plan
    kinds: dict[DrawKind, type[Source]] = {"whole": Whole, "poisoned": Poisoned, "natural": Natural}
    kind = kind_of_draws(plan, data)
    source = kinds[kind](subject, data)
    for number in numbers:
        material = source.drawn(number)
        yield Draw(
            number=number,
            kind=kind,
            biased_class=data.biased_class,
            model=material.model,
            reference=material.reference,
            clean=material.clean,
            train=material.train,
            pairs=material.pairs,
            val=material.val,
            test=material.test,
            corrected=plan.corrected,
            cut=cut_again(material.model, material.train, train=plan.corrected),
            tuning=tuning_for(
                subject.study, plan.model, epochs=plan.correction_epochs, seed=plan.seed + number, device=plan.device
            ),
            data=source.data,
        )


Direction = Literal["signal", "pair", "pair-1"]  # of marked images; leading changes of pairs; their mean change alone

Fit = Literal["recipe", "adam", "converged"]  # the paper's; larger steps of Adam; the minimum itself


_ADAM_RATE = 1e-3


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """One competitor; all have the same images, validation rule and clean budget."""

    name: str
    title: str
    method: str  # a registered correction
    direction: Direction = "signal"
    fit: Fit = "recipe"
    pooling: Pooling = "max"  # of the activations that the direction is learned from
    balanced: bool = False  # every class counts the same in the loss

    @property
    def kind(self) -> type[Correction]:
        """The correction's class."""
        return Correction.named(self.method)

    @property
    def has_direction(self) -> bool:
        """Whether it corrects along a direction."""
        return issubclass(self.kind, CAVCorrection)

    def cav(self) -> CAV:
        """Return the direction's estimator, not fitted."""
        return {"signal": SignalCAV(), "pair": PairCAV(), "pair-1": PairCAV(count=1)}[self.direction]

    def make(self, cav: CAV | None, tuning: FineTuning) -> Correction:
        """Return the correction, along a fitted direction where it has one."""
        tuning = replace(tuning, balanced=self.balanced)
        if self.fit == "adam":
            tuning = replace(tuning, optimizer="adam", learning_rate=_ADAM_RATE)
        if self.fit == "converged":
            tuning = replace(tuning, optimizer="converged")
        return self.kind(tuning=tuning) if cav is None else self.kind(cav, tuning=tuning)  # type: ignore[call-arg]


def _rr(name: str, words: str, **options: Any) -> Entrant:
    return Entrant(name=name, title=f"RR-ClArC, {words}", method="rr-clarc", **options)


def _balanced(name: str, title: str) -> Entrant:
    return Entrant(
        name=f"{name}/balanced", title=f"{title}, solved, balanced", method=name, fit="converged", balanced=True
    )


BIASED, REFERENCE = ORIGINAL, CLEAN_TRAINED

BALANCED_REFERENCE = f"{CLEAN_TRAINED}/balanced"  # its head solved and balanced on the same images

APART = (BIASED, REFERENCE, BALANCED_REFERENCE)

"""Who does not compete, and stands in every table."""

PAPER = "rr-clarc"  # the paper's own method: signal-CAV, its recipe

ALONG_PAIRS = "rr-clarc/pair/balanced"  # chosen on validation images (docs/decisions/0034)

AUGMENTED = "augmented/balanced"

PAIRING = "logit-pairing/balanced"

CANDIDATES = (ALONG_PAIRS, PAIRING)  # what the file that `init` writes lets take part, where the artifact can be put in

ELECTED = "elected"  # hansfree's default there: in every draw the candidate that is better on validation images


RIVALS = (
    Entrant(name="vanilla", title="Vanilla", method="vanilla"),
    Entrant(name=PAPER, title="RR-ClArC (the paper's)", method="rr-clarc"),
    Entrant(name="p-clarc", title="P-ClArC", method="p-clarc"),
    Entrant(name="a-clarc", title="A-ClArC", method="a-clarc"),
    Entrant(name="r-clarc", title="R-ClArC", method="r-clarc"),
    Entrant(name="p-clarc-one-sided", title="P-ClArC, one-sided", method="p-clarc-one-sided"),
    Entrant(name="leace", title="LEACE", method="leace"),
    Entrant(name="dfr", title="DFR", method="dfr"),
    Entrant(name="augmented", title="Augmented", method="augmented"),
    Entrant(name="augmented/converged", title="Augmented, solved", method="augmented", fit="converged"),
    _balanced("vanilla", "Vanilla"),
    _balanced("p-clarc", "P-ClArC"),
    _balanced("a-clarc", "A-ClArC"),
    _balanced("leace", "LEACE"),
    _balanced("augmented", "Augmented"),
    _balanced("logit-pairing", "Logit pairing"),
    _rr("rr-clarc/pair/converged", "subspace of pairs, solved", direction="pair", fit="converged"),
    _rr(ALONG_PAIRS, "subspace of pairs, solved, balanced", direction="pair", fit="converged", balanced=True),
)

"""Who takes part in the tournament."""


PAIRED = tuple(
    entrant
    for entrant in RIVALS
    if entrant.name in {PAPER, "p-clarc", "a-clarc", "leace", "dfr", "vanilla/balanced", AUGMENTED, *CANDIDATES}
)

"""The paper's methods, LEACE and DFR against what can be done with pairs: a tournament in half of the time."""


REFITS = (
    *(entrant for entrant in RIVALS if entrant.method == "rr-clarc"),
    _rr("rr-clarc/pair-1", "mean of pairs", direction="pair-1"),
    _rr("rr-clarc/pair-1/converged", "mean of pairs, solved", direction="pair-1", fit="converged"),
    _rr(
        "rr-clarc/pair-1/balanced",
        "mean of pairs, solved, balanced",
        direction="pair-1",
        fit="converged",
        balanced=True,
    ),
    _rr("rr-clarc/signal/adam", "signal, Adam", fit="adam"),
    _rr("rr-clarc/signal/converged", "signal, solved", fit="converged"),
    _rr("rr-clarc/signal-mean", "signal of means", pooling="mean"),
    _rr("rr-clarc/signal-mean/converged", "signal of means, solved", pooling="mean", fit="converged"),
    _rr("rr-clarc/pair-1/adam", "mean of pairs, Adam", direction="pair-1", fit="adam"),
    _rr("rr-clarc/pair-1-mean", "mean of mean-pooled pairs", direction="pair-1", pooling="mean"),
    _rr(
        "rr-clarc/pair-1-mean/converged",
        "mean of mean-pooled pairs, solved",
        direction="pair-1",
        pooling="mean",
        fit="converged",
    ),
    _rr("rr-clarc/pair", "subspace of pairs", direction="pair"),
    _rr("rr-clarc/pair/recipe-balanced", "subspace of pairs, balanced", direction="pair", balanced=True),
    _rr("rr-clarc/signal/balanced", "signal, solved, balanced", fit="converged", balanced=True),
    _rr(
        "rr-clarc/pair-mean/converged",
        "subspace of mean-pooled pairs, solved",
        direction="pair",
        pooling="mean",
        fit="converged",
    ),
    Entrant(
        name="rr-clarc-step/pair-1",
        title="RR-ClArC (step), mean of pairs",
        method="rr-clarc-step",
        direction="pair-1",
    ),
    Entrant(name="p-clarc/pair-1", title="P-ClArC, mean of pairs", method="p-clarc", direction="pair-1"),
    Entrant(name="p-clarc/pair", title="P-ClArC, subspace of pairs", method="p-clarc", direction="pair"),
)

"""The same method with other directions, other pooling and other ways to refit the head."""


ENTRANTS = {entrant.name: entrant for entrant in (*RIVALS, *REFITS)}


Measure = Literal["balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate"]

MEASURES: tuple[Measure, ...] = ("balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate")


@dataclass(frozen=True, eq=False)
class DrawAnswers:
    """The classes that models of several draws name for the test images, ``(draws, images)``."""

    clean: np.ndarray
    biased: np.ndarray

    def hits(self, labels: np.ndarray, measure: Measure) -> np.ndarray:
        """Return what the measure is a mean of, ``(draws, images)``."""
        if measure == "flip_rate":
            return is_flipped(self.clean, self.biased).astype(np.float64)
        said = self.clean if measure == "balanced_accuracy_clean" else self.biased
        return np.asarray(said == labels, dtype=np.float64)

    def score(self, labels: np.ndarray, measure: Measure) -> np.ndarray:
        """Return the measure in every draw."""
        found: np.ndarray = self.hits(labels, measure) @ _weights(labels, measure)
        return found


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What one entrant's model does on one draw."""

    strength: float | None  # None: the method has none
    objection: str  # why the rule would not take it, where the method has no other to offer
    val_clean: float  # balanced accuracy on validation images
    val_biased: float
    clean: list[int]  # the answers on test images
    biased: list[int]
    directions: int = 0  # of its CAV

    @property
    def answers(self) -> DrawAnswers:
        """The answers as those of a single draw."""
        return DrawAnswers(np.array([self.clean]), np.array([self.biased]))


@dataclass(frozen=True, eq=False)
class Match:
    """One entrant on all draws; None where no strength could be taken."""

    outcomes: tuple[Outcome | None, ...]

    @property
    def played(self) -> Mapping[int, Outcome]:
        """The draws that it has a model for."""
        return {number: outcome for number, outcome in enumerate(self.outcomes) if outcome is not None}

    def answers(self, fallback: Match) -> DrawAnswers:
        """Return the answers on all draws; where nothing could be taken, those of the model that is left as it was."""
        taken = [ours or theirs for ours, theirs in zip(self.outcomes, fallback.outcomes)]
        return DrawAnswers(
            np.array([each.clean for each in taken if each]), np.array([each.biased for each in taken if each])
        )


def elect(candidates: Sequence[Match]) -> Match:
    """Return the one in every draw that is best on validation images with the artifact, of those within the budget."""

    def best(outcomes: Sequence[Outcome | None]) -> Outcome | None:
        admissible = [outcome for outcome in outcomes if outcome is not None and not outcome.objection]
        return max(admissible, key=lambda outcome: outcome.val_biased, default=None)

    return Match(tuple(map(best, zip(*(candidate.outcomes for candidate in candidates)))))


@dataclass(frozen=True)
class Comparison:
    """An entrant minus a rival on the same images and draws, with a 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def sign(self) -> int:
        """1 where it is above the rival, -1 where it is below, 0 where the interval holds zero."""
        return int(self.low > 0) - int(self.high < 0)


def compare(
    ours: DrawAnswers, theirs: DrawAnswers, labels: np.ndarray, measure: Measure, *, seed: int = 0
) -> Comparison:
    """Return the mean difference, and where it lies when both draws and images are drawn again.

    Images are drawn within their classes, so that each class keeps its weight.
    """
    difference = ours.hits(labels, measure) - theirs.hits(labels, measure)
    weights = _weights(labels, measure)
    draws, images = _drawn_again(len(difference), tuple(labels.tolist()), seed)
    mean = draws / len(difference) @ difference  # (resamples, images)
    found = np.zeros(RESAMPLES)
    for inside, again in images:
        found += (again * mean[:, inside]).sum(1) * weights[inside[0]]
    low, high = np.percentile(found, TAILS)
    return Comparison(float((difference @ weights).mean()), float(low), float(high))


@lru_cache(maxsize=8)  # a page compares hundreds of times on the images of a few settings
def _drawn_again(
    draws: int, labels: tuple[int, ...], seed: int
) -> tuple[np.ndarray, tuple[tuple[np.ndarray, np.ndarray], ...]]:
    """Return how often each draw, and each image of every class, is taken in every resample."""
    rng = np.random.default_rng(seed)

    def counts(n: int) -> np.ndarray:
        return rng.multinomial(n, np.full(n, 1 / n), size=RESAMPLES).astype(np.int16)  # small: they are kept

    taken = counts(draws)
    rows = (np.flatnonzero(np.equal(labels, label)) for label in np.unique(labels))
    return taken, tuple((inside, counts(len(inside))) for inside in rows)


def _weights(labels: np.ndarray, measure: Measure) -> np.ndarray:
    """Return what an image counts: all the same, or every class the same."""
    if measure == "flip_rate":
        return np.full(len(labels), 1 / len(labels))
    return even_weights(labels) / len(labels)


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
