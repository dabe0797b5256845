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

from hansfree._internal.files import hash_file
from hansfree._internal.hashing import fingerprint, hash_weights
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
from hansfree.evaluation.heatmaps import (
    Explanation,
    artifact_relevance,
    compute_heatmaps,
    explanation_of,
)
from hansfree.evaluation.localisation import (
    compute_cav_heatmaps,
    kept_masks,
    localise_artifact,
)
from hansfree.metrics import MIN_GROUP, Evidence, predict_classes
from hansfree.models import architecture_named, check_weights, plain_state
from hansfree.models.surgery import Cut, Train, check_device, on_device
from hansfree.pipeline.config import is_deep

Trained = Literal["whole", "head"]

Grid = Literal["own", "paper"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the biased model of a study comes about, and how it is corrected.

    Args:
        weights: what training starts from (`hansfree.models.build_model`); None is random weights.
        trained: the ``"whole"`` model is trained on the poisoned images, or only its ``"head"`` on the layer's cached
            output: enough for pretrained weights, and minutes instead of hours.
        epochs: of training; None is the study's own recipe.
        corrected: what the corrections fine-tune: ``"all"`` after the layer, or only the ``"last"`` linear layer.
        repeats: seeds of the correction.
        grid: each method's ``"own"`` strengths, or the ``"paper"``'s, in the paper's units.
        strengths: per method, instead of the grid.
        left_out: methods that are not run.
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
        """Refuse names that do not exist before anything starts."""
        architecture_named(self.model)
        check_choice("trained", self.trained, Trained)
        check_choice("corrected", self.corrected, Train)
        check_choice("grid", self.grid, Grid)
        check_device(self.device)
        for name, value, least in (
            ("seed", self.seed, 0),
            ("repeats", self.repeats, 1),
            ("correction_epochs", self.correction_epochs, 1),
            ("workers", self.workers, 0),
        ):
            if value < least:
                raise OptionError(f"{name} is {value}; at least {least} is needed.")
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
    """Another artifact, or something benign, whose direction training images tell: marked, or put into them.

    These images do not carry the experiment's own artifact, or its direction would get into this one.
    """

    name: str
    rows: np.ndarray  # of the training images that tell it
    told_by: np.ndarray | ImageDataset  # a bit for each of them; or the same images with it put in, in the same order


def tell_no_pairs() -> str:
    """Return what to say to somebody who asks for pairs of data that have none."""
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
    cav: str = "signal"  # along which all models are judged, too
    further_cavs: tuple[str, ...] = ()  # that corrections go along as well
    reference: Callable[[], nn.Module | None] = lambda: None  # makes the model that never saw the artifact, when asked
    grid: Grid = "own"  # each method's own strengths, or the paper's in the paper's units
    strengths: Mapping[str, Sequence[float]] = field(default_factory=dict)  # per method, instead of the grid
    rule: SelectionRule = field(default_factory=BalancedRule)  # replaced where the data cannot feed it
    repeats: int = 1  # seeds of the fine-tuning; the strength is chosen with the first
    train: Train = "all"  # that follows the layer, or only the last module with parameters
    workers: int = 0  # processes that read images
    removed: tuple[Concept, ...] = ()  # whose directions corrections remove together with the artifact's own
    protected: tuple[Concept, ...] = ()  # whose directions are taken out of what is removed

    def __post_init__(self) -> None:
        """Refuse data of which no strength could be chosen."""
        if self.repeats < 1:
            raise OptionError(f"repeats is {self.repeats}; at least 1 is needed.")
        if self.repeats > 1 and self.tuning.optimizer == "converged":
            raise OptionError(f"repeats is {self.repeats}, but optimizer='converged' depends on no seed: 1 is enough.")
        kinds = map(CAV.named, (self.cav, *self.further_cavs))
        if any(kind.needs_pairs for kind in kinds) and self.data.train_biased is None:
            raise OptionError(tell_no_pairs())
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
    make: Callable[..., Any]  # (cav=, images=, tuning=) -> the correction; of the whole network: (tuning=)
    cav: str | None = None  # another direction than the setting's
    method: str | None = None  # what its rows say; None: the correction's own name
    strengths: Sequence[float] | None = None  # None: the setting's, or else the method's own grid
    uses_masks: bool = False
    depends_on_seed: bool = True  # else it is not repeated: equal repeats would look like evidence

    @classmethod
    def plain(cls, name: str, *, grid: Grid = "own") -> MethodSpec:
        """Return a registered correction as it is, or as the paper measures it; ``rr-clarc@svm``: along that CAV."""
        if is_deep(name):
            return cls(name=name, make=DeepCorrection.named(name), method=name)
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


def hash_contents(setting: Setting, folder: Path, methods: Sequence[str]) -> dict[str, str]:
    """Return hashes of images and weights, to compare with another run.

    Images and the original weights have hansfree's fingerprints, which do not depend on how files are written; the
    corrected weights have the SHA-256 of their files. The model card names the weights alike.
    """
    hashes = {
        f"images, {name.replace('_', ' ')}": fingerprint(getattr(setting.data, name).fingerprint) for name in SETS
    }
    hashes["original weights"] = hash_weights(plain_state(setting.model))
    weights = {name: folder / "corrected" / f"{name}.safetensors" for name in methods}
    return hashes | {f"weights, {name}": hash_file(path) for name, path in weights.items() if path.exists()}


log = logging.getLogger(__name__)


_EXPLAINED = 96  # images whose heatmaps are scored


class Pictures:
    """Heatmaps on a setting's test images with the artifact.

    Args:
        cav: Gives the direction that tells where the artifact is; heatmaps of models are there before it.
    """

    def __init__(self, setting: Setting, cav: Callable[[], CAV]) -> None:
        self.setting, self.data, self._cav = setting, setting.data, cav

    @cached_property
    def explanation(self) -> Explanation:
        """How heatmaps are made: the same way for the original and all corrected models, so that they compare."""
        return explanation_of(self.setting.model, self.data.test_clean.batch([0]).image, pass_through=(Projection,))

    def heatmaps(self, model: nn.Module, rows: np.ndarray) -> np.ndarray:
        """Return a model's relevance for the biased class on some biased test images; of none, where there are none."""
        if not len(rows):
            return np.zeros((0, *self.data.test_clean.pixels(0)[1].shape), dtype=np.float32)
        images = self.data.test_biased.batch(rows).image
        try:
            found = compute_heatmaps(
                on_device(model, self._device),
                images,
                self.data.biased_class,
                explanation=self.explanation,
                pass_through=(Projection,),
            )
        except SplitError as error:  # weights so large that rounding alone changes the logits: nothing can be said
            log.warning("No heatmaps: %s", error)
            return np.full((len(images), *images.shape[2:]), np.nan, dtype=np.float32)
        return found.numpy()

    def direction(self, rows: np.ndarray) -> np.ndarray:
        """Return what the CAV sees in some biased test images: the relevance for the score along it."""
        images = self.data.test_biased.batch(rows).image
        model = on_device(self.setting.model, self._device)
        return compute_cav_heatmaps(model, self.setting.layer, self._cav(), images).numpy()

    def relevance(self, model: nn.Module) -> np.ndarray:
        """Return per image how much of a model's heatmap lies on the artifact."""
        return artifact_relevance(self.heatmaps(model, self._scored), self._scored_masks)

    def localise(self, images: ImageDataset, rows: np.ndarray, *, progress: Progress = silent) -> np.ndarray:
        """Return masks of where the CAV finds the artifact."""
        model = on_device(self.setting.model, self._device)
        return localise_artifact(model, self.setting.layer, self._cav(), images, rows, progress=progress)

    @property
    def _device(self) -> str:
        return self.setting.tuning.device

    @property
    def _scored(self) -> np.ndarray:
        """The first images, not the shown ones, which were picked for their effect."""
        return np.arange(min(_EXPLAINED, len(self.data.test_biased)))

    @cached_property
    def _scored_masks(self) -> np.ndarray:
        test = self.data.test_biased
        return test.batch(self._scored).mask.numpy() if self.data.has_masks else self.localise(test, self._scored)


_SHOWN = 6  # images whose heatmaps are shown


class Workspace:
    """The lazily computed parts of a setting: activations, cut, CAVs, masks, validation.

    Args:
        folder: The run's; CAVs lie in it.
        cache: Where activations are kept; settings with the same trunk and images share them there.
    """

    def __init__(self, setting: Setting, folder: Path, cache: Path, *, progress: Progress = silent) -> None:
        self.setting, self.data, self.folder, self.cache, self.progress = setting, setting.data, folder, cache, progress

    @cached_property
    def activations(self) -> dict[str, Activations]:
        """The layer's output for all five sets, on disk; a set without images has none."""
        return {name: collect(self.plan(name), progress=self.progress) for name in self.filled_sets}

    def train_for(self, method: LatentCorrection) -> Activations:
        """Return what a method learns from: the training images, and where it wants pairs those with the artifact."""
        return self.paired_train if Need.PAIRS in method.info.needs else self.activations["train"]

    @cached_property
    def paired_train(self) -> Activations:
        """The training images, and those without the artifact once more with it put in."""
        if self.data.train_biased is None:
            raise DataError(tell_no_pairs())
        return join(self.activations["train"], collect(self.plan("train_biased"), progress=self.progress))

    def remark_on(self, method: LatentCorrection) -> str:
        """Return what a method has to say beside its results."""
        held_out = self.activations
        return method.remark(self.train_for(method), clean=held_out["test_clean"], biased=held_out.get("test_biased"))

    @property
    def filled_sets(self) -> list[str]:
        """The names of the sets that have images."""
        return [name for name in SETS if len(getattr(self.data, name))]

    def plan(self, name: str, images: ImageDataset | None = None) -> CachePass:
        """Return the pass of one set into the cache; it holds a copy of the model, so it is not kept.

        Args:
            images: None where the name is that of one of the data's own sets.
        """
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
        """Where everything is computed."""
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
            kept = self.folder / f"cav-{name}.safetensors"
            if not kept.exists():
                clean, biased = find_pairs(self.paired_train).T
                pooled = self.paired_train.pooled
                save_cavs(kept, {name: CAV.named(name)().fit_pairs(pooled[clean], pooled[biased])})
            self.cavs.update(load_cavs(kept))
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

        Inserted, it pulls them into the biased class; in the scene it may push either way, and wrong is all we know.
        """
        evidence = judge_head(self.cut, self.cut.head_parameters(), self.held_out(), device=self.device)
        biased, labels = predict_classes(evidence.logits_biased), evidence.labels_of("biased")
        misled = biased != labels
        if evidence.is_paired:
            misled &= (predict_classes(evidence.logits_clean) == labels) & (biased == self.data.biased_class)
        return np.argsort(~misled, kind="stable")[:_SHOWN]

    def judge(self, state: State, edit: nn.Module | None, *, explained: nn.Module | None = None) -> Evidence:
        """Gather the evidence on a head.

        Args:
            explained: The whole model with this head, to add how much of its heatmaps lies on the artifact.
        """
        clean, biased = self.activations["test_clean"], self.activations.get("test_biased")
        signs = [
            count_position_signs(
                self.cut,
                state,
                images,
                self.cav,
                biased_class=self.data.biased_class,
                edit=edit,
                device=self.device,
            )
            for images in probed_images(clean, biased, inserted=self.data.is_inserted)
        ]
        share = None if explained is None else self.relevance_of(explained)
        return judge_head(
            self.cut,
            state,
            self.held_out(edit),
            position_signs=np.concatenate(signs),
            relevance=share,
            device=self.device,
        )

    def relevance_of(self, model: nn.Module) -> np.ndarray | None:
        """Return per image how much of a model's heatmap lies on the artifact; None where that is not defined."""
        return self.pictures.relevance(model) if self.data.is_localized and self.is_biased_known else None

    @property
    def is_biased_known(self) -> bool:
        """Whether there are test images enough with the artifact for a score over all of them."""
        return self.data.is_inserted or len(self.data.test_biased) >= MIN_GROUP


_JOINT = "joint"


def corrected_cav(workspace: Workspace, kind: str) -> CAV:
    """Return what corrections go along; the artifact's own CAV where the setting names nothing beside it.

    A joint CAV is kept in the run folder with those that it is made of, so that all who correct share it.
    """
    setting = workspace.setting
    if not (setting.removed or setting.protected):
        return workspace.cav_named(kind)
    kept = workspace.folder / f"cav-{kind}-{_JOINT}.safetensors"
    if not kept.exists():
        removed = {_own_name(workspace): workspace.cav_named(kind), **_fitted(workspace, kind, setting.removed)}
        protected = _fitted(workspace, kind, setting.protected)
        joint = join_cavs(removed, protect=protected)
        save_cavs(kept, {_JOINT: joint, **{f"of {name}": cav for name, cav in (removed | protected).items()}})
    return load_cavs(kept)[_JOINT]


def describe_joint(workspace: Workspace) -> dict[str, Any]:
    """Return for the report what is removed, the own artifact first, and what is kept; nothing where none is joined.

    What is removed comes with its angle to all that is kept, in degrees: at 90 they share nothing, at 30 half of the
    length of the artifact's change is left to be removed.
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
    """Return the name of the run's own artifact."""
    return workspace.data.artifact or "artifact"


def _fitted(workspace: Workspace, kind: str, concepts: tuple[Concept, ...]) -> dict[str, CAV]:
    return {concept.name: _fit(workspace, kind, concept) for concept in concepts}


def _fit(workspace: Workspace, kind: str, concept: Concept) -> CAV:
    """Fit the kind of CAV that the experiment uses; marked images are no pairs, and a kind of pairs takes the means."""
    seen = workspace.activations["train"].pooled[concept.rows]
    if isinstance(concept.told_by, np.ndarray):
        return CAV.named(kind)().fit(seen, concept.told_by)
    plan = workspace.plan(f"train with {concept.name}", concept.told_by)
    return CAV.named(kind)().fit_pairs(seen, collect(plan, progress=workspace.progress).pooled)


_MEMORY = 4 * 2**30  # bytes of pixels and masks that are kept in memory, of all sets together


def reads_pictures(method: str) -> bool:
    """Tell whether a method trains on the pictures themselves, epoch after epoch."""
    return method != ORIGINAL and (is_deep(method) or Need.MASKS in method_named(method).info.needs)


def keep_in_memory(data: BiasedData, *, progress: Progress = silent) -> BiasedData:
    """Keep sets in memory as long as they fit: pictures are drawn or read once, not in every epoch."""
    kept: dict[str, Any] = {}
    left = _MEMORY
    for name in (*SETS, "base_train", "clean_train"):
        images: ImageDataset | None = getattr(data, name)
        if images is not None and len(images):
            image, mask = images.pixels(0)
            needed = len(images) * (image.nbytes + mask.nbytes)
            if needed <= left:
                label = f"reading images ({name.replace('_', ' ')})"
                kept[name] = InMemory(images, progress=progress, label=label)
                left -= needed
    return replace(data, **kept)
