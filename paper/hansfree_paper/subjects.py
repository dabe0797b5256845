"""Dataset x model: base models, and where their experiments are."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader

from hansfree._internal.files import are_intact, format_bytes, write_checksums
from hansfree._internal.hashing import fingerprint, fingerprint_model, hash_weights
from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import RunStore, open_run
from hansfree.activations import Precision, collect_activations
from hansfree.corrections import LatentCorrection, PaperRule, Vanilla, check_selectable, choose_rule
from hansfree.corrections.training import FineTuning, Pretraining, check_momentum, pretrain, process_place
from hansfree.data import SETS, BiasedData, ImageDataset, Subset
from hansfree.errors import OptionError, RunError, check_choice
from hansfree.models import PRETRAINED, architecture_named, build_model, check_weights, read_weights, write_weights
from hansfree.models.surgery import Train, check_device, split
from hansfree.pipeline import (
    ExecutorFactory,
    Experiment,
    Grid,
    MethodSpec,
    Setting,
    WorkerSetup,
    keep_in_memory,
)
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.starts import start_model

Trained = Literal["whole", "head"]
RuleName = Literal["own", "paper"]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How the biased model of a study is trained, and how it is corrected.

    Args:
        weights: what training starts from (`hansfree_paper.starts.start_model`); None is random weights.
        trained: the ``"whole"`` model on the poisoned images, or only its ``"head"`` on the layer's cached output:
            enough for pretrained weights, and minutes instead of hours.
        epochs: of training; None is the study's own recipe.
        momentum: of SGD in training and correction; None is the study's own.
        corrected: what the corrections fine-tune: ``"all"`` after the layer, or only the ``"last"`` linear layer.
        repeats: seeds of the correction.
        grid: each method's ``"own"`` strengths, or the ``"paper"``'s, in the paper's units.
        strengths: per method, instead of the grid.
        selection: how a strength is selected: by our ``"own"`` rule with a budget, or the ``"paper"``'s without.
        precision: of activations on disk; ``"float16"`` halves them.
        subset_correction: corrections see all images of the biased class and every so many-th other one, in training
            and validation (the published code: 100 on ImageNet); the biased model is trained on all.
        mixed_precision: bfloat16 in the forward passes of the training of whole models.
        workers: processes that read images, for sets that do not fit into memory.
    """

    model: str
    weights: str | None = None
    trained: Trained = "whole"
    epochs: int | None = None
    momentum: float | None = None
    seed: int = 0
    device: str = "cpu"
    corrected: Train = "all"
    correction_epochs: int = 10
    repeats: int = 1
    grid: Grid = "own"
    strengths: Mapping[str, Sequence[float]] = field(default_factory=dict)
    selection: RuleName = "own"
    left_out: tuple[str, ...] = ()
    precision: Precision = "float32"
    subset_correction: int | None = None
    mixed_precision: bool = False
    workers: int = 0

    def __post_init__(self) -> None:
        """Raise for unknown names and values out of range."""
        architecture_named(self.model)
        check_choice("--train", self.trained, Trained)
        check_choice("--corrected", self.corrected, Train)
        check_choice("--grid", self.grid, Grid)
        check_choice("--selection", self.selection, RuleName)
        check_choice("--precision", self.precision, Precision)
        if self.subset_correction is not None and self.subset_correction < 2:
            raise OptionError(f"subset_correction is {self.subset_correction}; at least 2, or None for all images.")
        check_device(self.device)
        for name, least in (("seed", 0), ("repeats", 1), ("correction_epochs", 1), ("workers", 0)):
            if getattr(self, name) < least:
                raise OptionError(f"{name} is {getattr(self, name)}; at least {least} is needed.")
        if self.trained == "head" and self.weights is None:
            raise OptionError(
                "--train head keeps the layers before the head as they are: give --weights whose layers are trained."
            )
        check_momentum(self.momentum or 0.0, "sgd")
        if self.weights is not None:
            check_weights(self.weights)
        for method in self.left_out:
            LatentCorrection.named(method)
        for method, values in self.strengths.items():
            if not LatentCorrection.named(method).info.has_strength:
                raise OptionError(f"{method} has no strength to choose: leave out its strengths.")
            if not values or not all(math.isfinite(value) and value >= 0 for value in values):
                raise OptionError(f"The strengths of {method} are {tuple(values)}; numbers of at least 0 are needed.")

    def thinned(self, data: BiasedData) -> BiasedData:
        """Return the sets of which corrections see a part; the biased model is still trained on all images."""
        if self.subset_correction is None:
            return data

        def some(images: ImageDataset) -> Subset:
            is_other = images.labels != data.biased_class
            kept = ~is_other
            kept[np.flatnonzero(is_other)[:: self.subset_correction]] = True
            return Subset(images, np.flatnonzero(kept))

        return replace(
            data,
            train=some(data.train),
            val_clean=some(data.val_clean),
            val_biased=some(data.val_biased),
            base_train=data.learned,
            train_biased=None,
        )


@dataclass(frozen=True, kw_only=True)
class BaseModels:
    """The models of a study before any correction, trained once and cached in the work folder."""

    study: BenchmarkDataset
    plan: Plan
    work: Path
    progress: Progress = silent

    def trained(self, data: ImageDataset, label: str) -> tuple[nn.Module, Path]:
        """Return the model trained on ``data`` and its cached weights file, whose name has a hash of all inputs."""
        plan, model = self.plan, self.untrained(data)
        key = fingerprint(data.pixel_fingerprint, fingerprint_model(model), repr(self.recipe))
        path = self.work / "models" / f"{self.study.name}-{plan.model}-{key}.safetensors"
        if not are_intact(path.with_suffix(".json")):
            checkpoint = path.with_suffix(".checkpoint")
            options: dict[str, Any] = {"progress": self.progress}
            if isinstance(self.recipe, FineTuning):
                layer, folder = architecture_named(plan.model).layer, self.work / "activations"
                loader = DataLoader(data, batch_size=64, num_workers=plan.workers)
                activations = collect_activations(model, layer, loader, folder=folder, device=plan.device, **options)
                model = Vanilla(tuning=self.recipe).correct(model, activations, **options)
            else:
                options |= {"workers": plan.workers, "label": f"train {label}", "checkpoint": checkpoint}
                pretrain(model, data, self.recipe, **options)
            if process_place()[0] == 0:
                write_weights(path, model.state_dict())
                write_checksums(path.with_suffix(".json"), [path])
                checkpoint.unlink(missing_ok=True)
            return model.eval(), path
        model.load_state_dict(load_file(path))
        return model.eval(), path

    @property
    def recipe(self) -> Pretraining | FineTuning:
        """How the plan's part of the model is trained."""
        plan = self.plan
        if plan.trained == "head":
            return self.head_recipe()
        options: dict[str, Any] = {"epochs": plan.epochs, "seed": plan.seed, "device": plan.device}
        options |= {"momentum": plan.momentum, "mixed_precision": plan.mixed_precision}
        return recipe_for(self.study, plan.model, fresh=plan.weights is None, **options)

    def head_recipe(self) -> FineTuning:
        """The head alone starts from random weights and costs little: larger steps, and more of them."""
        plan, rate = self.plan, architecture_named(self.plan.model).head_rate
        epochs = 30 if plan.epochs is None else plan.epochs
        return FineTuning(optimizer="adam", learning_rate=rate, epochs=epochs, seed=plan.seed, device=plan.device)

    def untrained(self, data: ImageDataset) -> nn.Module:
        """Return the model as training starts from it."""
        plan = self.plan
        return start_model(plan.model, classes=len(data.class_names), seed=plan.seed, weights=plan.weights).eval()


# what may differ when a run resumes: each method is a stage of its own, and strengths are listed apart
_CHANGE_NOTHING = ("left_out", "workers", "strengths")


class Subject:
    """A study and a model, ready to be examined; the biased model is trained when its experiment is first asked for."""

    def __init__(
        self, study: BenchmarkDataset, plan: Plan, run: RunStore, work: Path, *, progress: Progress = silent
    ) -> None:
        self.study, self.plan, self.run, self.work, self.progress = study, plan, run, work, progress

    @cached_property
    def data(self) -> BiasedData:
        """The study's sets."""
        return keep_in_memory(self._unread_data(), progress=self.progress)

    def _unread_data(self) -> BiasedData:
        return self.plan.thinned(self.study.data(self.plan.model))

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment on the biased model, which is trained first unless the work folder has it."""
        study, plan, data = self.study, self.plan, self.data
        check_selectable(data)  # before the training, which may take hours
        model, self._weights = self.models.trained(data.learned, "biased model")
        self.run.check_weights(fingerprint_model(model))
        rules = choose_rule(data), PaperRule()
        rule, compared = rules if plan.selection == "own" else rules[::-1]
        setting = Setting(
            name=subject_name(study, plan),
            data=data,
            model=model,
            reference=self._reference,
            layer=architecture_named(plan.model).layer,
            tuning=self.tuning,
            grid=plan.grid,
            strengths=plan.strengths,
            rule=rule,
            compared_rule=compared,
            repeats=plan.repeats,
            train=plan.corrected,
            workers=plan.workers,
            scores_localised=True,
            precision=plan.precision,
        )
        return Experiment(setting, self.run, cache=self.work / "activations", progress=self.progress)

    def run_ahead(self, executor: ExecutorFactory, specs: Sequence[MethodSpec]) -> None:
        """Compute activations and corrections on a cluster, whose workers take the trained model from its file.

        The original model and the reference are trained and judged here.
        """
        experiment = self.experiment
        setup = WorkerSetup(
            setting=replace(experiment.setting, data=self._unread_data(), reference=lambda: None),
            build=partial(_load, self.plan.model, len(self.data.train.class_names), self._weights.absolute()),
            specs=specs,
            run=self.run.path.absolute(),
            cache=experiment.workspace.cache.absolute(),
        )
        with executor(setup, self.run, self.progress) as workers:
            workers.collect()
            workers.correct(experiment, [spec.name for spec in specs])

    @property
    def tuning(self) -> FineTuning:
        """How the plan fine-tunes."""
        plan = self.plan
        options: dict[str, Any] = {"momentum": plan.momentum, "epochs": plan.correction_epochs}
        return tuning_for(self.study, plan.model, seed=plan.seed, device=plan.device, **options)

    @property
    def models(self) -> BaseModels:
        """The models before any correction."""
        return BaseModels(study=self.study, plan=self.plan, work=self.work, progress=self.progress)

    def _reference(self) -> nn.Module | None:
        """Return the model that never saw the artifact, if there is one."""
        if self.study.starts_clean and self.plan.weights == PRETRAINED:
            return self.models.untrained(self.data.train)
        if self.data.clean_train is None:
            return None
        return self.models.trained(self.data.clean_train, "clean reference")[0]


def _load(model: str, classes: int, weights: Path) -> nn.Module:
    built = build_model(model, classes=classes)
    built.load_state_dict(load_file(weights))
    return built.eval()


_COPIES = 6  # of the head's input, at most: with tangents, and after the shifts of A- and P-ClArC


def check_disk(subjects: Sequence[tuple[BenchmarkDataset, Plan]], work: Path) -> int:
    """Return how many bytes the caches of the subjects take at most; raise RunError if so many are not free.

    Training, validation and test images count with all copies that corrections store. What an earlier run has left in
    the work folder is not counted again.
    """
    needed, sizes = 0, dict[tuple[str, int], tuple[int, int]]()
    for study, plan in subjects:
        data = plan.thinned(study.data(plan.model))
        if (key := (plan.model, study.size)) not in sizes:
            example, known = data.train.batch([0]).image, architecture_named(plan.model)
            cut = split(build_model(plan.model, classes=2).eval(), known.layer, example=example)
            with torch.no_grad():
                live = cut.trunk(example)
                sizes[key] = sum(map(torch.numel, live)), sum(map(torch.numel, cut.phi(*live)))
        at_layer, after = sizes[key]
        count = sum(len(getattr(data, name)) for name in SETS)
        needed += count * (at_layer * (2 if plan.precision == "float16" else 4) + 4 * _COPIES * after)
    cached = (work / "activations").rglob("*")
    needed = max(0, needed - sum(file.stat().st_size for file in cached if file.is_file()))
    free = shutil.disk_usage(next(folder for folder in (work, *work.absolute().parents) if folder.exists())).free
    if needed > free:
        raise RunError(
            f"The caches need up to {format_bytes(needed)} in {work}, where {format_bytes(free)} are free. Choose "
            "another folder (--work), fewer datasets or models at a time, --precision float16 or --subset-correction."
        )
    return needed


def subject_name(study: BenchmarkDataset, plan: Plan) -> str:
    """Return what results and run folders call a subject."""
    return f"{study.name}-{study.artifact}-{plan.model}"


@contextmanager
def open_subject(study: BenchmarkDataset, plan: Plan, work: Path, *, progress: Progress = silent) -> Iterator[Subject]:
    """Open the run folder of a study and a model.

    Args:
        work: Folder for models, caches and runs; what lies there already is used again.
    """
    config: dict[str, Any] = {
        "hansfree": version("hansfree"),
        "data": study.name,
        "artifact": study.artifact,
        "size": study.size,
        "data_seed": study.seed,
        "strengths": {method: list(values) for method, values in plan.strengths.items()},
        **{key.name: getattr(plan, key.name) for key in fields(plan) if key.name not in _CHANGE_NOTHING},
    }
    data = study.data(plan.model)  # known without reading a picture
    parts = [getattr(data, name).fingerprint for name in SETS]
    if not data.is_inserted:
        parts.append(f"biased class {data.biased_class}")  # an inserted artifact implies the class
    if plan.weights not in (None, PRETRAINED):
        parts.append(hash_weights(read_weights(Path(plan.weights))))  # the path does not identify the content
    # another plan, other images or other first weights have another folder
    folder = f"{subject_name(study, plan)}-{fingerprint(repr(config), *parts)[:8]}"
    with open_run(work / "runs" / folder, config) as run:
        yield Subject(study, plan, run, work, progress=progress)


_CORRECTION_RATE = 1e-4


def recipe_for(
    study: BenchmarkDataset | type[BenchmarkDataset],
    model: str,
    *,
    fresh: bool = False,
    epochs: int | None = None,
    momentum: float | None = None,
    mixed_precision: bool = False,
    seed: int = 0,
    device: str = "cpu",
) -> Pretraining:
    """Return how a model is trained on a dataset: optimiser and rate by architecture, epochs and milestones by dataset.

    Args:
        fresh: the model starts from random weights, where the paper's start from pretrained ones: Adam along a cosine,
            if the dataset has a rate for that.
        epochs: None is the dataset's number; the milestones stay where they are.
    """
    known, recipe = architecture_named(model), study.recipe
    if epochs is None and model not in recipe.epochs:
        others = f" Known: {', '.join(recipe.epochs)}." if recipe.epochs else ""
        raise OptionError(f"{study.title} has no recipe for {model!r}.{others} Give the number of epochs.")
    from_scratch = fresh and model in recipe.fresh_rates
    optimizer: Literal["sgd", "adam"] = "adam" if from_scratch else known.optimizer
    return Pretraining(
        optimizer=optimizer,
        momentum=_momentum(study, optimizer, momentum),
        learning_rate=recipe.fresh_rates[model] if from_scratch else known.learning_rate,
        milestones=None if from_scratch else recipe.milestones,
        epochs=recipe.epochs[model] if epochs is None else epochs,
        batch_size=recipe.batch_size,
        mixed_precision=mixed_precision,
        seed=seed,
        device=device,
    )


def tuning_for(
    study: BenchmarkDataset | type[BenchmarkDataset],
    model: str,
    *,
    epochs: int = 10,
    momentum: float | None = None,
    seed: int = 0,
    device: str = "cpu",
) -> FineTuning:
    """Return how a model is corrected: the optimiser of its training at 1e-4, or at the dataset's own rate."""
    optimizer = architecture_named(model).optimizer
    return FineTuning(
        optimizer=optimizer,
        momentum=_momentum(study, optimizer, momentum),
        learning_rate=study.recipe.correction_rates.get(model, _CORRECTION_RATE),
        epochs=epochs,
        seed=seed,
        device=device,
    )


def _momentum(study: BenchmarkDataset | type[BenchmarkDataset], optimizer: str, given: float | None) -> float:
    """Return the momentum of SGD; other optimizers have none."""
    if optimizer != "sgd":
        return 0.0
    return study.recipe.momentum if given is None else given
