"""Prepare a run: load the model, read the images, check that they fit, estimate the cost."""

from __future__ import annotations

import copy
import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from hansfree._internal.files import format_bytes, suggest_path
from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import check_run_directory
from hansfree.corrections import (
    BalancedRule,
    DeepCorrection,
    NetworkTuning,
    OneStandardErrorRule,
    SelectionRule,
    TrainingImages,
    check_selectable,
    has_counter_examples,
)
from hansfree.corrections.training import FineTuning, check_float64, check_head_size
from hansfree.data import (
    SETS,
    TOO_FEW_OUTPUTS,
    Artifact,
    BiasedData,
    FromFunction,
    ImageDataset,
    Listing,
    Normalize,
    Patch,
    UserImages,
    find_class,
    missing_column,
)
from hansfree.errors import DataError, OptionError, RunError, nearest
from hansfree.metrics import MIN_GROUP
from hansfree.models import (
    PRETRAINED,
    Factory,
    Preprocessing,
    Recommendation,
    adapt,
    load_model,
    plain_state,
    predict_logits,
    preprocessing_of,
    recommend_layer,
)
from hansfree.models.surgery import check_device, split
from hansfree.pipeline.concepts import ConceptLabels, describe_concept, find_concepts, read_concept_labels
from hansfree.pipeline.config import AUTO, COLUMN, DataSection, Rule, RunConfig, is_deep, without_deep
from hansfree.pipeline.identity import check_tried, known_config
from hansfree.pipeline.transplants import Transplants, find_transplants, shared_donors
from hansfree.pipeline.workspace import Setting, missing_pairs
from hansfree.reasons import Reason

DEFAULTS = Preprocessing(size=224, channels=3, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resize="squash")

_FIRST_IMAGES = 4  # that go through the model before anything else does
_RECIPE = {"optimizer", "learning_rate", "epochs", "batch_size", "balanced", "stable", "momentum"}  # keys of correction
_MAX_UPSCALING = 2  # warn above: the input is mostly interpolated


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadedModel:
    """The model of a run file."""

    model: nn.Module  # adapted: it gives one logit per class
    kind: str  # name of its own class
    layer: str
    reason: str  # for the layer
    preprocessing: Preprocessing


def load_run_model(run: RunConfig) -> LoadedModel:
    """Load the model and find its layer; raise for an unknown device, path, label or layer.

    All paths are checked first, also those of the images, as loading may take long.
    """
    check_device(run.device)
    check_files(run)
    model = load_model(run.model.source, weights=run.model.weights, classes=_count_outputs(run))
    return adapt_run_model(run, model, resolve_preprocessing(run.data, preprocessing_of(run.model.source, model)))


def adapt_run_model(run: RunConfig, model: nn.Module, seen: Preprocessing) -> LoadedModel:
    """Return a model with one logit per class, and its layer; raise for an unknown label or layer."""
    blank = torch.zeros(2, seen.channels, seen.size, seen.size)
    adapted = adapt(model, blank, output=run.model.output, label=_label_number(run)).eval()
    layer = _find_layer(run, adapted, blank)
    return LoadedModel(
        model=adapted, kind=type(model).__name__, layer=layer.layer, reason=layer.reason, preprocessing=seen
    )


def first_logits(model: nn.Module, images: ImageDataset) -> np.ndarray:
    """Return the logits of a few images; raise if they are not finite or do not match the classes."""
    logits = predict_logits(model, images.batch(range(min(_FIRST_IMAGES, len(images)))).image)
    if not np.isfinite(logits).all():
        raise OptionError("The model's outputs for the first images are not finite. Check its weights.")
    _check_outputs(logits.shape[1], images.class_names)
    return logits


def _check_outputs(n: int, names: Sequence[str]) -> None:
    if n != len(names):
        fact = f"The model has {n} outputs, the data have {len(names)} classes: {', '.join(names)}."
        if n > len(names):
            raise DataError(
                f"{fact} List data.classes: a name for each output, in the model's order. "
                "A library's model is built with as many outputs."
            )
        raise DataError(f"{fact} {TOO_FEW_OUTPUTS}")


def check_lists(run: RunConfig) -> None:
    """Raise where the model of a run file does not fit its lists, without reading an image."""
    loaded = load_run_model(run)
    seen, column = loaded.preprocessing, run.artifact.column
    listing = Listing.read(run.data.root, table=run.data.table, classes=run.data.classes, label=run.model.label)
    _check_outputs(
        predict_logits(loaded.model, torch.zeros(2, seen.channels, seen.size, seen.size)).shape[1], listing.class_names
    )
    if run.artifact.biased_class is not None:
        find_class(run.artifact.biased_class, listing.class_names, option="biased_class")
    if run.data.table is not None and run.artifact.insert is None and column not in listing.columns:
        raise missing_column(listing, column)


def model_facts(run: RunConfig, loaded: LoadedModel, logits: np.ndarray) -> tuple[tuple[str, str], ...]:
    """Return facts about the model, a name and a sentence each."""
    return (
        ("model", f"{run.model.source}: {loaded.kind}, {logits.shape[1]} classes"),
        ("layer", f"{loaded.layer}. {loaded.reason}"),
    )


def resolve_preprocessing(given: DataSection, library: Preprocessing | None) -> Preprocessing:
    """Return the preprocessing: of the run file, else of the model's library, else the default."""
    known = library or DEFAULTS
    channels = given.channels or known.channels
    mean, std = given.mean or known.mean, given.std or known.std
    if given.mean is None and channels != known.channels:
        mean, std = (0.5,) * channels, (0.5,) * channels
    if len(mean) != channels or len(std) != channels:
        raise OptionError(
            f"data.mean and data.std have {len(mean)} and {len(std)} numbers; {channels} channels need {channels} each."
        )
    return Preprocessing(
        size=given.size or known.size, channels=channels, mean=mean, std=std, resize=given.resize or known.resize
    )


def check_files(run: RunConfig) -> None:
    """Raise for paths that do not exist, with the nearest name."""
    if not run.data.root.is_dir():
        raise DataError(f"data.root: there is no folder {run.data.root}.{suggest_path(run.data.root)}")
    for key, path in (("data.table", run.data.table), ("data.artifacts", run.data.artifacts)):
        if path is not None and not path.is_file():
            raise DataError(f"{key}: there is no file {path}.{suggest_path(path)}")
    weights = None if run.model.weights in (None, PRETRAINED) else Path(str(run.model.weights))
    for key, path in (("model.weights", weights), ("artifact.file", run.artifact.file)):
        if path is not None and not path.is_file():
            raise OptionError(f"{key}: there is no file {path}.{suggest_path(path)}")


def _count_outputs(run: RunConfig) -> int | None:
    """Return the number of outputs to build the model with; None for its own."""
    if run.model.output == "binary":
        return 1
    return None if run.data.classes is None else len(run.data.classes)


def _label_number(run: RunConfig) -> int | None:
    if run.model.label is None:
        return None
    names = run.data.classes
    if names is None:
        raise OptionError("model.label needs data.classes: the names of all labels, in the order of the outputs.")
    if run.model.label not in names:
        raise OptionError(
            f"model.label: {run.model.label!r} is not in data.classes.{nearest(run.model.label, names)} "
            f"Known: {', '.join(names)}."
        )
    return names.index(run.model.label)


def _find_layer(run: RunConfig, model: nn.Module, example: Tensor) -> Recommendation:
    """Return the layer; a given one is tried, so that an unknown name raises with the nearest."""
    if run.model.layer == AUTO:
        return recommend_layer(model, example)
    cut = split(model, run.model.layer, example=example)
    return Recommendation(run.model.layer, f"It was given; {cut.parameters_after:,} parameters follow.")


_RULES: dict[Rule, type[BalancedRule]] = {"best": BalancedRule, "knee": OneStandardErrorRule}


@dataclass(frozen=True, eq=False, kw_only=True)
class PreparedRun:
    """A run file with its model and images, checked to fit together."""

    run: RunConfig
    setting: Setting
    images: UserImages
    transplants: Transplants | None  # between labelled images, where nothing else is inserted
    facts: tuple[tuple[str, str], ...]  # what was found or chosen, as (name, sentence)
    warnings: tuple[Reason, ...] = ()  # on the data; the report puts them in words


def prepare_run(run: RunConfig, *, progress: Progress = silent) -> PreparedRun:
    """Load the model, read the lists, check every image and pass a first batch; raise if they do not fit.

    Cheap checks come first.
    """
    concept_labels = read_concept_labels(run)
    known = known_config(run)
    del known["artifact"]["biased_class"]  # where none is given, the images tell it: see `check_unchanged`
    check_run_directory(run.out, known)
    check_tried(run)
    loaded = load_run_model(run)
    seen = loaded.preprocessing
    images = UserImages(
        root=run.data.root,
        table=run.data.table,
        artifacts=run.data.artifacts,
        classes=run.data.classes,
        label=run.model.label,
        artifact_column=run.artifact.column,
        biased_class=run.artifact.biased_class,
        shares=run.data.shares,
        insert=_inserted(run, seen),
        share=run.artifact.share,
        size=seen.size,
        resize=seen.resize,
        channels=1 if seen.channels == 1 else 3,
        transform=Normalize(seen.mean, seen.std),
        seed=run.seed,
        skip_bad=run.data.skip_bad,
        progress=progress,
    )
    return assemble_run(run, loaded, images, concept_labels=concept_labels, notes=check_preprocessing(images, seen))


def assemble_run(
    run: RunConfig,
    loaded: LoadedModel,
    images: UserImages,
    *,
    concept_labels: ConceptLabels | None = None,
    notes: Sequence[str] = (),
) -> PreparedRun:
    """Check that model, images and settings fit together, pass a first batch, and estimate the disk usage."""
    data = replace(images.data(), artifact=_artifact_name(run, images))
    transplants = None
    if run.artifact.transplant and not data.is_inserted and not has_counter_examples(data):
        transplants = find_transplants(loaded.model, data, device=run.device, stored=transplants_file(run.out))
    warnings: tuple[Reason, ...] = ()
    if transplants is not None:
        warnings = tuple(filter(None, [shared_donors(data)]))
        data = transplants.apply(data, seed=run.seed)
    check_selectable(data, advice=advise_more(images))
    if "methods" not in run.correction.model_fields_set:
        try:
            for name in filter(is_deep, run.correction.methods):
                DeepCorrection.named(name)().check(TrainingImages.of(data.train))
        except DataError as error:
            run = without_deep(run)
            images.remarks.append(f"{name} is left out: {error}")
    if run.correction.needs_pairs and data.train_biased is None:
        raise OptionError(missing_pairs())
    removed, protected = (
        find_concepts(names, concept_labels or {}, images=images, data=data, cav=run.correction.cav)
        for names in (run.artifact.remove, run.artifact.keep)
    )
    setting = Setting(
        name=run.out.name,
        data=data,
        model=loaded.model,
        layer=loaded.layer,
        tuning=FineTuning(**run.correction.model_dump(include=_RECIPE), seed=run.seed, device=run.device),
        network=NetworkTuning(
            **run.correction.network.model_dump(), seed=run.seed, device=run.device, workers=run.workers
        ),
        cav=run.correction.cav,
        further_cavs=run.correction.further_cavs,
        strengths=run.correction.strengths,
        rule=_rule(run, data),
        repeats=run.correction.repeats,
        train="last" if run.model.output == "label" else run.correction.train,
        workers=run.workers,
        removed=removed,
        protected=protected,
    )
    if run.correction.optimizer == "converged":
        check_float64(run.device)
        example = setting.data.train.batch([0]).image
        check_head_size(split(setting.model, setting.layer, example=example, train=setting.train))
    logits = first_logits(loaded.model, setting.data.train)
    further = len(run.artifact.tested) * len(data.test_clean)
    further += sum(len(each.rows) for each in (*removed, *protected) if each.inserted is not None)
    further += len(data.train_biased) if run.correction.needs_pairs and data.train_biased is not None else 0
    trials = run.correction.trials
    facts = [
        *model_facts(run, loaded, logits),
        ("images", describe_images(data, images)),
        *([] if transplants is None else [("transplants", transplants.describe())]),
        *([("methods", ", ".join(trials))] if run.correction.further_cavs else []),
        ("disk", estimate_disk_usage(run.out, setting, methods=len(trials), further=further)),
        *(("also removed", describe_concept(each, data)) for each in removed),
        *(("protected", describe_concept(each, data)) for each in protected),
        *(("note", remark) for remark in (*notes, *images.remarks)),
        *(("left out", sentence) for sentence in images.skipped),
    ]
    return PreparedRun(
        run=run, setting=setting, images=images, transplants=transplants, facts=tuple(facts), warnings=warnings
    )


def transplants_file(out: Path) -> Path:
    """Return the file in which a run stores its transplants."""
    return out / "transplants.npz"


def _rule(run: RunConfig, data: BiasedData) -> SelectionRule:
    """Return the selection rule, with classes by number; raise for a class that is unknown or has too few images."""
    names, budgets = data.val_clean.class_names, dict[int, float]()
    for name, budget in run.correction.class_budgets.items():
        label = find_class(name, names, option="correction.class_budgets")
        if label in budgets:
            raise OptionError(f"correction.class_budgets names {names[label]!r} twice. Leave one out.")
        for kind, part in (("validation", data.val_clean), ("test", data.test_clean)):
            if (count := int((part.labels == label).sum())) < MIN_GROUP:
                raise OptionError(
                    f"correction.class_budgets: {names[label]!r} has {count} clean {kind} images; {MIN_GROUP} are "
                    "needed to measure its drop."
                )
        budgets[label] = budget
    return _RULES[run.correction.rule](run.correction.budget, budgets)


def insert_function(source: str, channels: int, size: int) -> FromFunction:
    """Return the artifact that a user's function inserts; other processes open the function by its source again."""
    again = (insert_function, (source, channels, size))
    return FromFunction(Factory(source).function, channels=channels, size=size, reopen=again)


def _inserted(run: RunConfig, seen: Preprocessing) -> Artifact | None:
    given = run.artifact
    if given.insert is None:
        return None
    if ":" in given.insert:
        return insert_function(given.insert, 1 if seen.channels == 1 else 3, seen.size)
    if given.file is None:
        return Artifact.named(given.insert)()
    return Patch(file=given.file, place=given.place, size=given.scale, angle=given.angle)


def _artifact_name(run: RunConfig, images: UserImages) -> str:
    """Return the name of the artifact in results; empty if it has none."""
    given = run.artifact
    inserted = (given.insert or "").rpartition(":")[2] if given.file is None else given.file.stem
    return given.name or (given.column if images.artifact == given.column != COLUMN else inserted)


def estimate_disk_usage(out: Path, setting: Setting, *, methods: int, further: int = 0) -> str:
    """Return how much disk space activations and weights take; raise RunError if there is not enough.

    Report, scores and heatmaps are small in comparison. Files of a run that is resumed are not counted again.

    Args:
        methods: How many corrected models are stored, beside the original one and one that is exported.
        further: How many images are passed beside the sets themselves.
    """
    example = setting.data.train.batch([0]).image
    live = split(setting.model, setting.layer, example=example).trunk(example)
    each = sum(4 * math.prod(tensor.shape[1:]) for tensor in live)
    count = sum(len(getattr(setting.data, part)) for part in SETS) + further
    models = methods + 2
    # The layer's output, and at most as much again for what is computed from it.
    activations = max(0, 2 * each * count - _taken(out, "activations/**/*"))
    of_model = sum(tensor.numel() * tensor.element_size() for tensor in plain_state(setting.model).values())
    weights = max(0, of_model * models - _taken(out, "original.safetensors", "corrected/*", "exported/**/*"))
    needed = activations + weights
    free = shutil.disk_usage(next(folder for folder in (out, *out.absolute().parents) if folder.exists())).free
    if needed > free:
        raise RunError(
            f"The run needs up to {format_bytes(needed)} in {out}, where {format_bytes(free)} are free. Choose another "
            f"folder, or a later layer: {setting.layer!r} has {format_bytes(each)} per image."
        )
    return (
        f"up to {format_bytes(needed)}: {format_bytes(activations)} for {count} images ({format_bytes(each)} each at "
        f"the layer), {format_bytes(weights)} for the weights of {models} models; {format_bytes(free)} are free"
    )


def _taken(out: Path, *patterns: str) -> int:
    """Return how many bytes a run has in some of its files."""
    return sum(file.stat().st_size for pattern in patterns for file in out.glob(pattern) if file.is_file())


_TIMED = 32  # images of the measured steps


def estimate_time(prepared: PreparedRun) -> str:
    """Return how long the run takes on this device, from one measured forward pass and one training step.

    Heads are trained on cached activations, which takes little in comparison.
    """
    setting, run = prepared.setting, prepared.run
    batch = setting.data.train.batch(range(min(_TIMED, len(setting.data.train)))).image.to(run.device)
    network = copy.deepcopy(setting.model).eval().to(run.device)
    for parameter in network.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    with torch.no_grad():
        network(batch)  # the first pass is slower
        forward = _seconds(lambda: network(batch)) / len(batch)
    deep = [*filter(is_deep, run.correction.trials)]
    step = _seconds(lambda: network(batch).sum().backward()) / len(batch) if deep else 0.0
    sets = sum(len(getattr(setting.data, name)) for name in SETS)
    seconds = {"activations": forward * sets}
    for name in deep:
        networks = len(run.correction.strengths_of(name)) + setting.repeats - 1
        # a task image comes with as many for the penalty, and each network is evaluated and its CAV refitted
        each = 2 * step * len(setting.data.train) * setting.network.epochs + 2 * forward * sets
        seconds[name] = networks * each
    parts = ", ".join(f"{name} {value / 60:.1f}" for name, value in seconds.items())
    minutes = max(1, math.ceil(sum(seconds.values()) / 60))
    return f"about {minutes} min on this machine ({parts}), besides heads and heatmaps"


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def describe_images(data: BiasedData, images: UserImages) -> str:
    """Return the number of images of each split with and without the artifact."""
    val, test = data.val_clean, data.test_clean
    parts = [f"training {len(data.train)} ({int(data.train.has_artifact.sum())} with the artifact)"]
    if data.is_inserted:
        how, use = "inserted", "not used"
        if data.transplant is not None:
            how, use = "transplanted", "its source"
        parts[0] += f", validation {len(val)} and test {len(test)}, each without and with the {how} artifact"
        natural = sum(map(len, images.parts[1:])) - len(val) - len(test)
        if natural:
            parts.append(f"{natural} held-out images with the natural artifact are {use}")
    else:
        parts[0] += f", validation {len(val)} clean + {len(data.val_biased)} with the artifact"
        parts[0] += f", test {len(test)} clean + {len(data.test_biased)} with the artifact"
    return "; ".join([*parts, f"biased class {data.train.class_names[data.biased_class]!r}"])


def check_preprocessing(images: UserImages, seen: Preprocessing) -> list[str]:
    """Return warnings for strong upscaling and for a crop, judged by the first image."""
    with Image.open(images.listing.paths[images.source.ids[0]]) as picture:
        width, height = picture.size
    first, short, notes = f"the first image has {width} x {height} pixels", min(width, height), []
    if seen.size > _MAX_UPSCALING * short:
        notes.append(
            f"Images are enlarged to {seen.size} x {seen.size} pixels ({first}). Check that the model was trained with "
            "this data.size."
        )
    if seen.resize == "crop":
        kept = (seen.size / round(seen.size * 256 / 224)) ** 2 * short / max(width, height)
        notes.append(
            f"`resize: crop` discards {100 - 100 * kept:.0f} % of each image, including artifacts near the border "
            f"({first}). Use the preprocessing the model was trained with (`resize: squash` keeps the whole image)."
        )
    return notes


def advise_more(images: UserImages) -> str:
    """Return how to get more clean validation images, after what is doubtful about the labels."""
    advice = "Move images without the artifact into the validation split."
    if images.is_drawn:
        advice = (
            f"Their share is {100 * images.shares[1]:g} %. Raise it (data.shares), collect more images without the "
            "artifact, or give the split: a column `split`, or folders train, val and test."
        )
    return " ".join([*images.doubts, advice])
