"""Setting and cached activations, CAVs and masks of an experiment."""

from __future__ import annotations

import logging
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
    Precision,
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
    PaperRule,
    SelectionRule,
    Validation,
    Validator,
    check_selectable,
    choose_rule,
    has_counter_examples,
    make_validator,
    method_named,
    original_predictions,
    probed_images,
    split_name,
)
from hansfree.corrections.training import FineTuning, Heads
from hansfree.data import SETS, BiasedData, ImageDataset, InMemory, WithMasks
from hansfree.errors import DataError, OptionError, SplitError
from hansfree.evaluation import HeldOutFeatures, State, held_out_features, judge_head, measure_positions
from hansfree.evaluation.heatmaps import Explanation, artifact_relevance, compute_heatmaps, explanation_of
from hansfree.evaluation.localisation import compute_cav_heatmaps, kept_masks, localise_artifact
from hansfree.metrics import MIN_GROUP, Evidence, predict_classes
from hansfree.models import predict_logits
from hansfree.models.surgery import Cut, Train, on_device
from hansfree.pipeline.config import is_deep

Grid = Literal["own", "paper"]


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
    compared_rule: SelectionRule | None = None  # what it would select is recorded beside
    repeats: int = 1  # seeds of the fine-tuning; the strength is selected with the first
    train: Train = "all"  # that follows the layer, or only the last module with parameters
    workers: int = 0  # processes that read images
    removed: tuple[Concept, ...] = ()  # corrected together with the artifact
    protected: tuple[Concept, ...] = ()  # whose directions are taken out of what is removed
    precision: Precision = "float32"  # of activations on disk
    scores_localised: bool = False  # artifact relevance also by masks of the CAV that a method trained with (the paper)

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
        if self.rule.needs_counter_examples and not has_counter_examples(self.data):
            rule = choose_rule(self.data, budget=self.rule.budget, class_budgets=self.rule.class_budgets)
            object.__setattr__(self, "rule", rule)  # the dataclass is frozen; this is its constructor's last step

    @property
    def needs_derivative(self) -> bool:
        """Whether a rule asks for the derivative along the artifact."""
        return any(rule.needs_derivative for rule in (self.rule, self.compared_rule) if rule is not None)

    def in_memory(self, specs: Sequence[MethodSpec], *, progress: Progress = silent) -> Setting:
        """Return the setting with its images in memory, if any method trains on them, epoch after epoch."""
        reads_images = any(is_deep(spec.name) or spec.uses_masks for spec in specs)
        return replace(self, data=keep_in_memory(self.data, progress=progress)) if reads_images else self

    @property
    def uncounted(self) -> tuple[int, ...]:
        """Return the classes with too few validation images to choose a strength by; the paper counts all images."""
        if isinstance(self.rule, PaperRule):
            return ()
        classes, counts = np.unique(self.data.val_clean.labels, return_counts=True)
        return tuple(int(label) for label in classes[counts < MIN_GROUP])


@dataclass(frozen=True, eq=False, kw_only=True)
class MethodSpec:
    """A correction with options; a plain one is named like the registered method."""

    name: str  # of its stage, its weights and its heatmaps
    make: Callable[..., Any]  # (cav=, images=, tuning=) -> the correction; of the whole network: (data=, tuning=)
    cav: str | None = None  # another direction than the setting's
    method: str | None = None  # what its rows say; None: the correction's own name
    strengths: Sequence[float] = ()  # to try, unless the setting has others; none for a method without strength
    uses_masks: bool = False
    depends_on_seed: bool = True  # else it is not repeated: equal repeats would look like evidence

    @classmethod
    def plain(cls, name: str, *, grid: Grid = "own") -> MethodSpec:
        """Return a registered correction as it is, or as the paper measures it; ``rr-clarc@svm``: along that CAV."""
        if is_deep(name):
            deep = DeepCorrection.named(name)
            return cls(name=name, make=deep.for_run, method=name, strengths=deep.info.strengths)
        member, cav = method_named(name), split_name(name)[1]
        info, is_paper = member.info, grid == "paper"
        return cls(
            name=name,
            make=partial(member.for_run, options=info.paper_options if is_paper else {}),
            cav=cav,
            method=name,
            strengths=(is_paper and info.paper_strengths) or info.strengths,
            uses_masks=Need.MASKS in info.needs,
            depends_on_seed=info.uses_seed,
        )


log = logging.getLogger(__name__)

_EXPLAINED = 96  # images whose heatmaps are scored
_SHOWN = 6  # images whose heatmaps are shown
_JOINT = "joint"
_MEMORY = 4 * 2**30  # bytes of pixels and masks that are kept in memory, of all sets together


class Workspace:
    """The lazily computed parts of a setting: activations, cut, CAVs, masks, validation, evidence, heatmaps.

    Args:
        folder: The run directory, with the CAVs.
        cache: Of activations; settings with the same trunk and images share them.
        sets: That are passed through the model.
        suffix: Of their names in the progress.
    """

    def __init__(
        self,
        setting: Setting,
        folder: Path,
        cache: Path,
        *,
        progress: Progress = silent,
        sets: Sequence[str] = SETS,
        suffix: str = "",
    ) -> None:
        self.setting, self.data, self.folder, self.cache, self.progress = setting, setting.data, folder, cache, progress
        self.device = setting.tuning.device
        self.filled_sets = [name for name in sets if len(getattr(setting.data, name))]
        self._suffix = suffix

    def of_network(self, model: nn.Module, folder: Path, *, cache: Path, name: str, sets: Sequence[str]) -> Workspace:
        """Return the workspace of a network in which all layers changed, with a CAV of its own activations.

        Not in the run directory, which has the CAVs of the original model.
        """
        setting = replace(self.setting, model=model)
        own = Workspace(setting, folder, cache, progress=self.progress, sets=sets, suffix=f" after {name}")
        own.cavs = {setting.cav: own.fit_cav(setting.cav)} if setting.cav in CAV.from_marks() else {}
        return own

    # Activations

    @cached_property
    def activations(self) -> dict[str, Activations]:
        """The layer's output for all sets, on disk; a set without images has none."""
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

    def plan(self, name: str, images: ImageDataset | None = None) -> CachePass:
        """Return the pass of one of the sets, or of other images, into the cache; it holds a copy of the model."""
        images = getattr(self.data, name) if images is None else images
        return plan_pass(
            self.setting.model,
            self.setting.layer,
            DataLoader(images, batch_size=64, num_workers=self.setting.workers),
            folder=self.cache,
            device=self.device,
            precision=self.setting.precision,
            name=name.replace("_", " ") + self._suffix,
        )

    @cached_property
    def cut(self) -> Cut:
        """The model in three parts."""
        return cut_at(self.setting.model, self.activations["train"], train=self.setting.train)

    # CAVs

    @cached_property
    def cavs(self) -> dict[str, CAV]:
        """All CAVs of the run."""
        return load_cavs(self.folder / "cavs.safetensors")

    @property
    def cav(self) -> CAV:
        """The artifact's own CAV, along which all models are judged; corrections take `corrected_cav`."""
        return self.cav_named(self.setting.cav)

    def fit_cav(self, name: str) -> CAV:
        """Return a CAV that is fitted to the artifact labels."""
        train, rows = self.activations["train"], self.cav_images
        if train.has_artifact is None:
            raise DataError("The training data do not say which images carry the artifact.")
        return CAV.named(name)().fit(train.pooled[rows], train.has_artifact[rows])

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

    def corrected_cav(self, kind: str) -> CAV:
        """Return the CAV that corrections use: the artifact's own, joined with those that are removed or protected.

        A joint CAV is stored in the run directory with its parts, so that all tasks share it.
        """
        setting = self.setting
        if not (setting.removed or setting.protected):
            return self.cav_named(kind)
        stored = self.folder / f"cav-{kind}-{_JOINT}.safetensors"
        if not stored.exists():
            removed = {self._artifact: self.cav_named(kind)}
            removed |= {concept.name: self._fit_concept(kind, concept) for concept in setting.removed}
            protected = {concept.name: self._fit_concept(kind, concept) for concept in setting.protected}
            parts = {f"of {name}": cav for name, cav in (removed | protected).items()}
            save_cavs(stored, {_JOINT: join_cavs(removed, protect=protected), **parts})
        return load_cavs(stored)[_JOINT]

    def describe_joint(self) -> dict[str, Any]:
        """Return for the report what is removed and protected together; empty if there is only the artifact's own CAV.

        Each removed name comes with its angle to all that is protected, in degrees: at 90 they share nothing, at 30
        half of the length of the artifact's change is left to be removed.
        """
        cav, setting = self.corrected_cav(self.setting.cav), self.setting
        if not isinstance(cav, JointCAV):
            return {}
        names = [self._artifact, *(concept.name for concept in setting.removed)]
        return {
            "removed": dict(zip(names, cav.angles_.tolist())),
            "protected": [concept.name for concept in setting.protected],
        }

    def _fit_concept(self, kind: str, concept: Concept) -> CAV:
        """Fit the experiment's kind of CAV; with labels instead of pairs, a kind of pairs takes the class means."""
        pooled = self.activations["train"].pooled[concept.rows]
        if concept.labels is not None:
            return CAV.named(kind)().fit(pooled, concept.labels)
        plan = self.plan(f"train with {concept.name}", concept.inserted)
        return CAV.named(kind)().fit_pairs(pooled, collect(plan, progress=self.progress).pooled)

    @property
    def _artifact(self) -> str:
        return self.data.artifact or "artifact"

    @property
    def cav_images(self) -> np.ndarray:
        """Rows of the training images that CAVs are fitted to: those of the biased class itself.

        An image of another class that was relabelled would bend the direction towards that class.
        """
        train = self.data.train
        return np.flatnonzero((train.labels == self.data.biased_class) & ~train.is_relabelled)

    # Validation

    def validator(self, edit: nn.Module | None = None) -> Validator:
        """Return what judges heads on the validation images."""
        clean, biased = self.activations["val_clean"], self.activations.get("val_biased")
        return make_validator(
            self.cut,
            clean,
            biased,
            biased_class=self.data.biased_class,
            original=self._original_predictions,
            inserted=self.data.is_inserted,
            shift=(self.cav.scale_ @ self.cav.directions_)[None] if self.setting.needs_derivative else None,
            edit=edit,
        )

    @cached_property
    def original_validation(self) -> Validation:
        """The validation of the original model."""
        return self.validator()(Heads(self.cut, 1, self.device))[0]

    @cached_property
    def _original_predictions(self) -> np.ndarray:
        return original_predictions(self.cut, compute_features(self.cut, self.activations["val_clean"]), self.device)

    # Evidence on the test images

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

    def judge(self, state: State, edit: nn.Module | None, *, explained: nn.Module | None = None) -> Evidence:
        """Return the evidence on a head; with heatmaps of the whole model ``explained``, if it is given."""
        clean, biased = self.activations["test_clean"], self.activations.get("test_biased")
        options: dict[str, Any] = {"biased_class": self.data.biased_class, "edit": edit, "device": self.device}
        probed = probed_images(clean, biased, inserted=self.data.is_inserted)
        return judge_head(
            self.cut,
            state,
            self.held_out(edit),
            positions=measure_positions(self.cut, state, probed, self.cav, **options),
            relevance=None if explained is None else self.relevance_of(explained),
            device=self.device,
        )

    def logits_of(self, model: nn.Module | None, images: ImageDataset) -> np.ndarray:
        """Return a whole model's logits; NaN for None, a model whose training diverged."""
        if model is None or not len(images):
            return np.full((len(images), len(self.data.train.class_names)), np.nan)
        workers = 0 if isinstance(images, InMemory) else self.setting.workers
        return predict_logits(on_device(model, self.device).eval(), images, workers=workers)

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

    @property
    def is_biased_known(self) -> bool:
        """Whether there are test images enough with the artifact for a score over all of them."""
        return self.data.is_inserted or len(self.data.test_biased) >= MIN_GROUP

    # Heatmaps

    @cached_property
    def explanation(self) -> Explanation:
        """How heatmaps are made: the same way for the original and all corrected models, so that they compare."""
        return explanation_of(self.setting.model, self.data.test_clean.batch([0]).image)

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

    def heatmaps(self, model: nn.Module, rows: np.ndarray) -> np.ndarray:
        """Return a model's relevance for the biased class on some biased test images."""
        if not len(rows):
            return np.zeros((0, *self.data.test_clean.pixels(0)[1].shape), dtype=np.float32)
        images, model = self.data.test_biased.batch(rows).image, on_device(model, self.device)
        try:
            return compute_heatmaps(model, images, self.data.biased_class, explanation=self.explanation).numpy()
        except SplitError as error:  # weights so large that rounding alone changes the logits
            log.warning("No heatmaps: %s", error)
            return np.full((len(images), *images.shape[2:]), np.nan, dtype=np.float32)

    def cav_heatmaps(self, rows: np.ndarray, cav: CAV | None = None) -> np.ndarray:
        """Return the relevance for the score along a CAV, the run's own by default, in some biased test images."""
        images, model = self.data.test_biased.batch(rows).image, on_device(self.setting.model, self.device)
        return compute_cav_heatmaps(model, self.setting.layer, cav or self.cav, images).numpy()

    def relevance_of(self, model: nn.Module) -> np.ndarray | None:
        """Return per image how much of a model's heatmap lies on the artifact; None where that is not defined."""
        if not (self.data.is_localized and self.is_biased_known):
            return None
        return artifact_relevance(self.heatmaps(model, self.random_rows), self._explained_masks)

    @property
    def random_rows(self) -> np.ndarray:
        """Random images, the same for all models; not the shown ones, which were selected for their effect."""
        n = len(self.data.test_biased)
        return np.sort(np.random.default_rng(_EXPLAINED).permutation(n)[:_EXPLAINED])

    @cached_property
    def _explained_masks(self) -> np.ndarray:
        test = self.data.test_biased
        is_known = self.data.has_test_masks
        return test.batch(self.random_rows).mask.numpy() if is_known else self._localise(test, self.random_rows)

    @cached_property
    def masked_train(self) -> ImageDataset:
        """The training images with masks of the artifact: the true ones, or those that the CAV localises."""
        train = self.data.train
        if self.data.has_masks:
            return train
        find = partial(self._localise, train, np.flatnonzero(train.has_artifact))
        return WithMasks(train, kept_masks(self.folder / "stages" / "masks.npz", find))

    def _localise(self, images: ImageDataset, rows: np.ndarray) -> np.ndarray:
        model = on_device(self.setting.model, self.device)
        return localise_artifact(model, self.setting.layer, self.cav, images, rows, progress=self.progress)


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
