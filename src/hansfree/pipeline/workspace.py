"""Setting and cached activations, CAVs and masks of an experiment."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from torch import nn
from torch.utils.data import DataLoader

from hansfree._internal.progress import Progress, silent
from hansfree.activations import (
    Activations,
    CachePass,
    Features,
    FeatureSpec,
    collect,
    compute_features,
    cut_at,
    find_pairs,
    join,
    plan_pass,
)
from hansfree.cavs import CAV, JointCAV, join_cavs, load_cavs, save_cavs
from hansfree.corrections import (
    BalancedRule,
    DeepCorrection,
    LatentCorrection,
    Need,
    NetworkTuning,
    Projection,
    SelectionRule,
    Validation,
    Validator,
    check_selectable,
    choose_rule,
    has_counter_examples,
    method_named,
    original_predictions,
    split_name,
)
from hansfree.corrections.training import FineTuning, Heads
from hansfree.data import SETS, BiasedData, ImageDataset, InMemory, WithMasks
from hansfree.errors import DataError, OptionError, RunError, SplitError, check_choice
from hansfree.evaluation import (
    ORIGINAL,
    HeldOutFeatures,
    State,
    count_position_signs,
    held_out_features,
    judge_head,
    probed_images,
)
from hansfree.evaluation.heatmaps import Explanation, artifact_relevance, compute_heatmaps, explanation_of
from hansfree.evaluation.localisation import compute_cav_heatmaps, kept_masks, localise_artifact
from hansfree.metrics import MIN_GROUP, Evidence, predict_classes
from hansfree.models import architecture_named, check_weights, predict_logits
from hansfree.models.surgery import Cut, Train, check_device, on_device
from hansfree.pipeline.config import is_deep

Trained = Literal["whole", "head"]
Grid = Literal["own", "paper"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the biased model of a study is trained, and how it is corrected.

    Args:
        weights: what training starts from (`hansfree.models.build_model`); None is random weights.
        trained: the ``"whole"`` model on the poisoned images, or only its ``"head"`` on the layer's cached output:
            enough for pretrained weights, and minutes instead of hours.
        epochs: of training; None is the study's own recipe.
        corrected: what the corrections fine-tune: ``"all"`` after the layer, or only the ``"last"`` linear layer.
        repeats: seeds of the correction.
        grid: each method's ``"own"`` strengths, or the ``"paper"``'s, in the paper's units.
        strengths: per method, instead of the grid.
        workers: processes that read images, for sets that do not fit into memory.
    """

    model: str
    weights: str | None = None
    trained: Trained = "whole"
    epochs: int | None = None
    seed: int = 0
    device: str = "cpu"
    corrected: Train = "all"
    correction_epochs: int = 10
    repeats: int = 1
    grid: Grid = "own"
    strengths: Mapping[str, Sequence[float]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    workers: int = 0

    def __post_init__(self) -> None:
        """Raise for unknown names and values out of range."""
        architecture_named(self.model)
        check_choice("trained", self.trained, Trained)
        check_choice("corrected", self.corrected, Train)
        check_choice("grid", self.grid, Grid)
        check_device(self.device)
        for name, least in (("seed", 0), ("repeats", 1), ("correction_epochs", 1), ("workers", 0)):
            if getattr(self, name) < least:
                raise OptionError(f"{name} is {getattr(self, name)}; at least {least} is needed.")
        if self.trained == "head" and self.weights is None:
            raise OptionError(
                "--train head keeps the layers before the head as they are: give --weights whose layers are trained."
            )
        if self.weights is not None:
            check_weights(self.weights)
        for method in self.left_out:
            LatentCorrection.named(method)
        for method, values in self.strengths.items():
            if not LatentCorrection.named(method).info.has_strength:
                raise OptionError(f"{method} has no strength to choose: leave out its strengths.")
            if not values or not all(math.isfinite(value) and value >= 0 for value in values):
                raise OptionError(f"The strengths of {method} are {tuple(values)}; numbers of at least 0 are needed.")


@dataclass(frozen=True, eq=False, kw_only=True)
class Concept:
    """Another artifact, or something benign, with the training images that its direction is fitted to.

    None of them carries the experiment's own artifact, or its direction would get into this one. Either ``labels`` or
    ``inserted`` is given.
    """

    name: str
    rows: np.ndarray  # of the training images
    labels: np.ndarray | None = None  # which of them show it
    inserted: ImageDataset | None = None  # the same images with it inserted, in the same order


def missing_pairs() -> str:
    """Return the error message for data without counterfactual pairs."""
    cavs = [repr(name) for name in CAV.members() if name not in CAV.from_marks()]
    methods = [repr(name) for name, member in LatentCorrection.members().items() if Need.PAIRS in member.info.needs]
    return (
        "Counterfactual pairs need an artifact that can be inserted. Set artifact.insert in the run file, or leave out "
        f"what learns from pairs ({', '.join(cavs)} as a CAV; {', '.join(methods)} as a method)."
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Setting:
    """A biased model, its data, and how to correct it."""

    name: str
    data: BiasedData
    model: nn.Module
    layer: str
    tuning: FineTuning
    network: NetworkTuning = field(default_factory=NetworkTuning)  # of methods that train the whole network
    cav: str = "signal"  # of corrections and evaluation
    further_cavs: tuple[str, ...] = ()  # of corrections only
    reference: Callable[[], nn.Module | None] = lambda: None  # makes the model that never saw the artifact
    grid: Grid = "own"  # each method's own strengths, or the paper's in the paper's units
    strengths: Mapping[str, Sequence[float]] = field(default_factory=dict)  # per method, instead of the grid
    rule: SelectionRule = field(default_factory=BalancedRule)  # replaced if the data cannot feed it
    repeats: int = 1  # seeds of the fine-tuning; the strength is selected with the first
    train: Train = "all"  # that follows the layer, or only the last module with parameters
    workers: int = 0  # processes that read images
    removed: tuple[Concept, ...] = ()  # corrected together with the artifact
    protected: tuple[Concept, ...] = ()  # whose directions are taken out of what is removed

    def __post_init__(self) -> None:
        """Raise for data by which no strength could be selected."""
        if self.repeats < 1:
            raise OptionError(f"repeats is {self.repeats}; at least 1 is needed.")
        if self.repeats > 1 and self.tuning.optimizer == "converged":
            raise OptionError(f"repeats is {self.repeats}, but optimizer='converged' depends on no seed: 1 is enough.")
        kinds = map(CAV.named, (self.cav, *self.further_cavs))
        if any(kind.needs_pairs for kind in kinds) and self.data.train_biased is None:
            raise OptionError(missing_pairs())
        check_selectable(self.data)
        if not (self.rule.needs_derivative or has_counter_examples(self.data)):
            rule = choose_rule(self.data, budget=self.rule.budget, class_budgets=self.rule.class_budgets)
            object.__setattr__(self, "rule", rule)  # the dataclass is frozen; this is its constructor's last step

    @property
    def uncounted(self) -> tuple[int, ...]:
        """Return the classes with too few validation images to choose a strength by."""
        classes, counts = np.unique(self.data.val_clean.labels, return_counts=True)
        return tuple(int(label) for label in classes[counts < MIN_GROUP])


@dataclass(frozen=True, eq=False, kw_only=True)
class MethodSpec:
    """A correction with options; a plain one is named like the registered method."""

    name: str  # of its stage, its weights and its heatmaps
    make: Callable[..., Any]  # (cav=, images=, tuning=) -> the correction; of the whole network: (data=, tuning=)
    cav: str | None = None  # another direction than the setting's
    method: str | None = None  # what its rows say; None: the correction's own name
    strengths: Sequence[float] | None = None  # None: the setting's, or else the method's own grid
    uses_masks: bool = False
    depends_on_seed: bool = True  # else it is not repeated: equal repeats would look like evidence

    @classmethod
    def plain(cls, name: str, *, grid: Grid = "own") -> MethodSpec:
        """Return a registered correction as it is, or as the paper measures it; ``rr-clarc@svm``: along that CAV."""
        if is_deep(name):
            return cls(name=name, make=DeepCorrection.named(name).for_run, method=name)
        member, cav = method_named(name), split_name(name)[1]
        is_paper = grid == "paper"
        options = member.info.paper_options if is_paper else {}
        return cls(
            name=name,
            make=partial(member.for_run, options=options),
            cav=cav,
            method=name,
            strengths=member.info.paper_strengths if is_paper else None,
            uses_masks=Need.MASKS in member.info.needs,
            depends_on_seed=member.info.uses_seed,
        )


log = logging.getLogger(__name__)

_EXPLAINED = 96  # images whose heatmaps are scored
_SHOWN = 6  # images whose heatmaps are shown
_JOINT = "joint"
_MEMORY = 4 * 2**30  # bytes of pixels and masks that are kept in memory, of all sets together


class Pictures:
    """Heatmaps on a setting's test images with the artifact.

    Args:
        cav: Returns the CAV that localises the artifact; heatmaps of models are made before there is one.
    """

    def __init__(self, setting: Setting, cav: Callable[[], CAV]) -> None:
        self.setting, self.data, self._cav = setting, setting.data, cav

    @cached_property
    def explanation(self) -> Explanation:
        """How heatmaps are made: the same way for the original and all corrected models, so that they compare."""
        return explanation_of(self.setting.model, self.data.test_clean.batch([0]).image, pass_through=(Projection,))

    def heatmaps(self, model: nn.Module, rows: np.ndarray) -> np.ndarray:
        """Return a model's relevance for the biased class on some biased test images."""
        if not len(rows):
            return np.zeros((0, *self.data.test_clean.pixels(0)[1].shape), dtype=np.float32)
        images = self.data.test_biased.batch(rows).image
        try:
            found = compute_heatmaps(
                self._on_device(model),
                images,
                self.data.biased_class,
                explanation=self.explanation,
                pass_through=(Projection,),
            )
        except SplitError as error:  # weights so large that rounding alone changes the logits
            log.warning("No heatmaps: %s", error)
            return np.full((len(images), *images.shape[2:]), np.nan, dtype=np.float32)
        return found.numpy()

    def direction(self, rows: np.ndarray) -> np.ndarray:
        """Return the relevance for the score along the CAV in some biased test images."""
        images, model = self.data.test_biased.batch(rows).image, self._on_device(self.setting.model)
        return compute_cav_heatmaps(model, self.setting.layer, self._cav(), images).numpy()

    def relevance(self, model: nn.Module) -> np.ndarray:
        """Return per image how much of a model's heatmap lies on the artifact."""
        return artifact_relevance(self.heatmaps(model, self._scored), self._scored_masks)

    def localise(self, images: ImageDataset, rows: np.ndarray, *, progress: Progress = silent) -> np.ndarray:
        """Return masks of where the CAV finds the artifact."""
        model = self._on_device(self.setting.model)
        return localise_artifact(model, self.setting.layer, self._cav(), images, rows, progress=progress)

    def _on_device(self, model: nn.Module) -> nn.Module:
        return on_device(model, self.setting.tuning.device)

    @property
    def _scored(self) -> np.ndarray:
        """The first images, not the shown ones, which were selected for their effect."""
        return np.arange(min(_EXPLAINED, len(self.data.test_biased)))

    @cached_property
    def _scored_masks(self) -> np.ndarray:
        test = self.data.test_biased
        return test.batch(self._scored).mask.numpy() if self.data.has_masks else self.localise(test, self._scored)


class Workspace:
    """The lazily computed parts of a setting: activations, cut, CAVs, masks, validation, evidence.

    Args:
        folder: The run directory, with the CAVs.
        cache: Of activations; settings with the same trunk and images share them.
    """

    def __init__(self, setting: Setting, folder: Path, cache: Path, *, progress: Progress = silent) -> None:
        self.setting, self.data, self.folder, self.cache, self.progress = setting, setting.data, folder, cache, progress

    @cached_property
    def activations(self) -> dict[str, Activations]:
        """The layer's output for all five sets, on disk; a set without images has none."""
        return {name: collect(self.plan(name), progress=self.progress) for name in self.filled_sets}

    def train_for(self, method: LatentCorrection) -> Activations:
        """Return the activations that a method is trained on, with pairs if it needs them."""
        return self.paired_train if Need.PAIRS in method.info.needs else self.activations["train"]

    @cached_property
    def paired_train(self) -> Activations:
        """The training images, and those without the artifact once more with it inserted."""
        if self.data.train_biased is None:
            raise DataError(missing_pairs())
        return join(self.activations["train"], collect(self.plan("train_biased"), progress=self.progress))

    @property
    def filled_sets(self) -> list[str]:
        """The names of the sets that have images."""
        return [name for name in SETS if len(getattr(self.data, name))]

    def plan(self, name: str, images: ImageDataset | None = None) -> CachePass:
        """Return the pass of one of the sets, or of other images, into the cache; it holds a copy of the model."""
        images = getattr(self.data, name) if images is None else images
        return plan_pass(
            self.setting.model,
            self.setting.layer,
            DataLoader(images, batch_size=64, num_workers=self.setting.workers),
            folder=self.cache,
            device=self.device,
            name=name.replace("_", " "),
        )

    @property
    def device(self) -> str:
        """The device of all computations."""
        return self.setting.tuning.device

    @cached_property
    def cut(self) -> Cut:
        """The model in three parts."""
        return cut_at(self.setting.model, self.activations["train"], train=self.setting.train)

    @cached_property
    def cavs(self) -> dict[str, CAV]:
        """All CAVs of the run."""
        try:
            return load_cavs(self.folder / "cavs.safetensors")
        except RunError as error:
            stage = self.folder / "stages" / "cavs.json"
            raise RunError(f"{error} Delete {stage}, and type the same command again: it makes both anew.") from error

    @property
    def cav(self) -> CAV:
        """The artifact's own CAV, along which all models are judged; corrections take `corrected_cav`."""
        return self.cav_named(self.setting.cav)

    def cav_named(self, name: str) -> CAV:
        """Return a CAV of the run; one that needs pairs is fitted when it is first asked for."""
        if name not in self.cavs:
            file = self.folder / f"cav-{name}.safetensors"
            if not file.exists():
                clean, biased = find_pairs(self.paired_train).T
                pooled = self.paired_train.pooled
                save_cavs(file, {name: CAV.named(name)().fit_pairs(pooled[clean], pooled[biased])})
            self.cavs.update(load_cavs(file))
        return self.cavs[name]

    @property
    def cav_images(self) -> np.ndarray:
        """Rows of the training images that CAVs are fitted to: those of the biased class itself.

        An image of another class that was relabelled would bend the direction towards that class.
        """
        train = self.data.train
        return np.flatnonzero((train.labels == self.data.biased_class) & ~train.is_relabelled)

    @cached_property
    def pictures(self) -> Pictures:
        """Where models and the CAV look."""
        return Pictures(self.setting, lambda: self.cav)

    @cached_property
    def masked_train(self) -> ImageDataset:
        """The training images with masks of the artifact: the true ones, or those that the CAV localises."""
        train = self.data.train
        if self.data.has_masks:
            return train
        marked = np.flatnonzero(train.has_artifact)
        find = partial(self.pictures.localise, train, marked, progress=self.progress)
        return WithMasks(train, kept_masks(self.folder / "stages" / "masks.npz", find))

    def held_out(self, edit: nn.Module | None = None) -> HeldOutFeatures:
        """Return the test images at the head's input."""
        return held_out_features(
            self.cut,
            self.activations["test_clean"],
            self.activations.get("test_biased"),
            biased_class=self.data.biased_class,
            inserted=self.data.is_inserted,
            cav=self.cav,
            edit=edit,
        )

    def validator(self, edit: nn.Module | None = None) -> Validator:
        """Return what judges heads on the validation images."""
        features = {
            name: compute_features(self.cut, self.activations[name], FeatureSpec(edit=edit))
            for name in ("val_clean", "val_biased")
            if name in self.activations
        }
        return Validator(
            features["val_clean"],
            features.get("val_biased"),
            self.data.biased_class,
            self._original_predictions,
            self.data.is_inserted,
            least=MIN_GROUP,
            probed=self._probed(edit) if self.setting.rule.needs_derivative else (),
        )

    def _probed(self, edit: nn.Module | None) -> tuple[Features, ...]:
        """Return validation images with tangents along the artifact's own shift, for the rule that looks at ``u``."""
        clean, biased = self.activations["val_clean"], self.activations.get("val_biased")
        shift = (self.cav.scale_ @ self.cav.directions_)[None]
        return tuple(
            compute_features(self.cut, images, FeatureSpec(directions=shift, edit=edit))
            for images in probed_images(clean, biased, inserted=self.data.is_inserted)
        )

    @cached_property
    def original_validation(self) -> Validation:
        """The validation of the original model."""
        return self.validator()(Heads(self.cut, 1, self.device))[0]

    @cached_property
    def _original_predictions(self) -> np.ndarray:
        return original_predictions(self.cut, compute_features(self.cut, self.activations["val_clean"]), self.device)

    @cached_property
    def shown_rows(self) -> np.ndarray:
        """Biased test images to show: those that the artifact makes wrong come first.

        An inserted artifact makes them the biased class; a natural one may do either, so that all errors count.
        """
        evidence = judge_head(self.cut, self.cut.head_parameters(), self.held_out(), device=self.device)
        biased, labels = predict_classes(evidence.logits_biased), evidence.labels_of("biased")
        misled = biased != labels
        if evidence.is_paired:
            misled &= (predict_classes(evidence.logits_clean) == labels) & (biased == self.data.biased_class)
        return np.argsort(~misled, kind="stable")[:_SHOWN]

    def judge(self, state: State, edit: nn.Module | None, *, explained: nn.Module | None = None) -> Evidence:
        """Return the evidence on a head; with heatmaps of the whole model ``explained``, if it is given."""
        clean, biased = self.activations["test_clean"], self.activations.get("test_biased")
        options: dict[str, Any] = {"biased_class": self.data.biased_class, "edit": edit, "device": self.device}
        probed = probed_images(clean, biased, inserted=self.data.is_inserted)
        signs = [count_position_signs(self.cut, state, images, self.cav, **options) for images in probed]
        return judge_head(
            self.cut,
            state,
            self.held_out(edit),
            position_signs=np.concatenate(signs),
            relevance=None if explained is None else self.relevance_of(explained),
            device=self.device,
        )

    def logits_of(self, model: nn.Module | None, images: ImageDataset) -> np.ndarray:
        """Return a whole model's logits; NaN for None, a model whose training diverged."""
        if model is None or not len(images):
            return np.full((len(images), len(self.data.train.class_names)), np.nan)
        return predict_logits(on_device(model, self.device).eval(), images)

    def evidence_of(self, model: nn.Module | None, inserted: ImageDataset | None = None) -> Evidence:
        """Return what a whole model answers on the test images.

        Args:
            inserted: The clean test images with another artifact inserted, in place of those with the run's own.
        """
        data = self.data
        biased = data.test_biased if inserted is None else inserted
        return Evidence(
            labels=data.test_clean.labels,
            biased_class=data.biased_class,
            logits_clean=self.logits_of(model, data.test_clean),
            logits_biased=self.logits_of(model, biased),
            labels_biased=None if data.is_inserted or inserted is not None else biased.labels,
        )

    def relevance_of(self, model: nn.Module) -> np.ndarray | None:
        """Return per image how much of a model's heatmap lies on the artifact; None where that is not defined."""
        return self.pictures.relevance(model) if self.data.is_localized and self.is_biased_known else None

    @property
    def is_biased_known(self) -> bool:
        """Whether there are test images enough with the artifact for a score over all of them."""
        return self.data.is_inserted or len(self.data.test_biased) >= MIN_GROUP


def corrected_cav(workspace: Workspace, kind: str) -> CAV:
    """Return the CAV that corrections use: the artifact's own, joined with those that the setting removes or protects.

    A joint CAV is stored in the run directory with its parts, so that all tasks share it.
    """
    setting = workspace.setting
    if not (setting.removed or setting.protected):
        return workspace.cav_named(kind)
    stored = workspace.folder / f"cav-{kind}-{_JOINT}.safetensors"
    if not stored.exists():
        removed, protected = (
            {concept.name: _fit(workspace, kind, concept) for concept in concepts}
            for concepts in (setting.removed, setting.protected)
        )
        removed = {_own_name(workspace): workspace.cav_named(kind), **removed}
        joint = join_cavs(removed, protect=protected)
        save_cavs(stored, {_JOINT: joint, **{f"of {name}": cav for name, cav in (removed | protected).items()}})
    return load_cavs(stored)[_JOINT]


def describe_joint(workspace: Workspace) -> dict[str, Any]:
    """Return for the report what is removed and protected together; empty if there is only the artifact's own CAV.

    Each removed name comes with its angle to all that is protected, in degrees: at 90 they share nothing, at 30 half of
    the length of the artifact's change is left to be removed.
    """
    cav, setting = corrected_cav(workspace, workspace.setting.cav), workspace.setting
    if not isinstance(cav, JointCAV):
        return {}
    names = [_own_name(workspace), *(concept.name for concept in setting.removed)]
    return {
        "removed": dict(zip(names, cav.angles_.tolist())),
        "protected": [concept.name for concept in setting.protected],
    }


def _own_name(workspace: Workspace) -> str:
    return workspace.data.artifact or "artifact"


def _fit(workspace: Workspace, kind: str, concept: Concept) -> CAV:
    """Fit the experiment's kind of CAV; with labels instead of pairs, a kind of pairs takes the class means."""
    pooled = workspace.activations["train"].pooled[concept.rows]
    if concept.labels is not None:
        return CAV.named(kind)().fit(pooled, concept.labels)
    plan = workspace.plan(f"train with {concept.name}", concept.inserted)
    return CAV.named(kind)().fit_pairs(pooled, collect(plan, progress=workspace.progress).pooled)


def reads_pictures(method: str) -> bool:
    """Return whether a method trains on the images themselves, epoch after epoch."""
    return method != ORIGINAL and (is_deep(method) or Need.MASKS in method_named(method).info.needs)


def keep_in_memory(data: BiasedData, *, progress: Progress = silent) -> BiasedData:
    """Load sets into memory as long as they fit, so that images are drawn or read once and not in every epoch."""
    loaded: dict[str, Any] = {}
    left = _MEMORY
    for name in (*SETS, "base_train", "clean_train"):
        images: ImageDataset | None = getattr(data, name)
        if images is not None and len(images):
            image, mask = images.pixels(0)
            needed = len(images) * (image.nbytes + mask.nbytes)
            if needed <= left:
                label = f"reading images ({name.replace('_', ' ')})"
                loaded[name] = InMemory(images, progress=progress, label=label)
                left -= needed
    return replace(data, **loaded)
