"""Open what a run file names: model, images, artifacts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from hansfree._internal.files import neighbour
from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import check_run_folder
from hansfree.artifacts import Artifact, Patch
from hansfree.cavs import CAV
from hansfree.corrections import Correction
from hansfree.corrections.training import FineTuning, check_double, check_solvable
from hansfree.datasets import ExampleSet, Normalize
from hansfree.datasets.insertion import Stamped
from hansfree.datasets.splits import Subset
from hansfree.errors import DataError, OptionError, RunError, nearest
from hansfree.experiments import Setting
from hansfree.experiments.workspace import Concept, tell_no_pairs
from hansfree.metrics import MIN_GROUP
from hansfree.models import Preprocessing, Recommendation, adapt, load_model, preprocessing_of, recommend_layer
from hansfree.models.surgery import check_device, split
from hansfree.runfile.checks import (
    advise_more,
    describe_balance,
    describe_further,
    describe_images,
    notes_on_scaling,
    tell_disk,
)
from hansfree.runfile.config import AUTO, COLUMN, Rule, RunFile
from hansfree.runfile.identity import LATER_KEYS, check_tried, known_config
from hansfree.selection import BalancedRule, KneeRule, SelectionRule, check_selectable
from hansfree.studies import BiasedData, OwnImages
from hansfree.studies.biased import LEAST, inserted_by_name
from hansfree.studies.listing import find_class, read_bits, read_rows
from hansfree.weights import PRETRAINED

DEFAULTS = Preprocessing(size=224, channels=3, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resize="squash")

_FIRST_IMAGES = 4  # that go through the model before anything else does


@dataclass(frozen=True, eq=False, kw_only=True)
class LoadedModel:
    """A run file's model, ready to be looked into."""

    model: nn.Module  # adapted: it gives one logit per class
    kind: str  # its class, as its owner wrote it
    layer: str
    reason: str  # for the layer
    preprocessing: Preprocessing


def load_run_model(run: RunFile) -> LoadedModel:
    """Load the model and find its layer; refuse a device, a path, a label or a layer that is not there.

    All paths are looked at first, those of the images too: loading may take long.
    """
    check_device(run.device)
    check_files(run)
    model = load_model(run.model.source, weights=run.model.weights, classes=_count_outputs(run))
    seen = filled_in(run, preprocessing_of(run.model.source, model))
    blank = torch.zeros(2, seen.channels, seen.size, seen.size)
    adapted = adapt(model, blank, output=run.model.output, label=_label_number(run)).eval()
    layer = _find_layer(run, adapted, blank)
    return LoadedModel(
        model=adapted, kind=type(model).__name__, layer=layer.layer, reason=layer.reason, preprocessing=seen
    )


@torch.inference_mode()
def first_logits(model: nn.Module, images: ExampleSet) -> Tensor:
    """Pass a few images; refuse logits that are not finite, or more or fewer than the data have classes."""
    device = next((tensor.device for tensor in model.parameters()), torch.device("cpu"))
    batch = images.batch(range(min(_FIRST_IMAGES, len(images)))).image
    logits: Tensor = model(batch.to(device)).cpu()
    if not logits.isfinite().all():
        raise OptionError("The model's answers for the first images are not finite numbers: its weights are damaged.")
    if logits.shape[1] != len(images.class_names):
        raise DataError(
            f"The model gives {logits.shape[1]} answers, the data have {len(images.class_names)} classes: "
            f"{', '.join(images.class_names)}. Give data.classes: a name for each answer, in the model's order."
        )
    return logits


def model_facts(run: RunFile, loaded: LoadedModel, logits: Tensor) -> tuple[tuple[str, str], ...]:
    """Return what was found about the model, a name and a sentence each."""
    return (
        ("model", f"{run.model.source}: {loaded.kind}, {logits.shape[1]} classes"),
        ("layer", f"{loaded.layer}. {loaded.reason}"),
    )


def filled_in(run: RunFile, told: Preprocessing | None) -> Preprocessing:
    """Return how images are prepared: as the run file says, else as the model's library does, else as usual."""
    known, given = told or DEFAULTS, run.data
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


def check_files(run: RunFile) -> None:
    """Refuse paths that lead nowhere, with what lies beside them under a similar name."""
    if not run.data.root.is_dir():
        raise DataError(f"data.root: there is no folder {run.data.root}.{neighbour(run.data.root)}")
    for key, path in (("data.table", run.data.table), ("data.artifacts", run.data.artifacts)):
        if path is not None and not path.is_file():
            raise DataError(f"{key}: there is no file {path}.{neighbour(path)}")
    weights = None if run.model.weights in (None, PRETRAINED) else Path(str(run.model.weights))
    for key, path in (("model.weights", weights), ("artifact.file", run.artifact.file)):
        if path is not None and not path.is_file():
            raise OptionError(f"{key}: there is no file {path}.{neighbour(path)}")


def _count_outputs(run: RunFile) -> int | None:
    """Return how many outputs the model is built with, where the run file tells; else it is as it is by itself."""
    if run.model.output == "binary":
        return 1
    return None if run.data.classes is None else len(run.data.classes)


def _label_number(run: RunFile) -> int | None:
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


def _find_layer(run: RunFile, model: nn.Module, example: Tensor) -> Recommendation:
    """Return the layer; one that was typed is tried, so that a wrong name is told with the nearest."""
    if run.model.layer == AUTO:
        return recommend_layer(model, example)
    cut = split(model, run.model.layer, example=example)
    return Recommendation(run.model.layer, f"It was given; {cut.parameters_after:,} parameters follow.")


Marks = Mapping[str, np.ndarray]  # by column, a bit for every row of the table

_NO_CONCEPTS = ("image", "label", "split", "group")  # columns that say something else


def read_marks(run: RunFile) -> Marks:
    """Return the columns that ``remove`` and ``keep`` name; refuse a name that means nothing, before any long work."""
    given = run.artifact
    if not (given.remove or given.keep):
        return {}
    rows = [] if run.data.table is None else read_rows(run.data.table, ("image", "label"), filled=("image",))
    columns = [name for name in (rows[0] if rows else ()) if name not in (*_NO_CONCEPTS, given.column)]
    insertable = [name for name in inserted_by_name() if name not in (*columns, given.insert)]
    known = [*columns, *insertable]
    for key, names in (("remove", given.remove), ("keep", given.keep)):
        for name in names:
            if name not in known:
                raise OptionError(
                    f"artifact.{key}: {name!r} is no further column of the table, and no artifact that can be put in "
                    f"by its name.{nearest(name, known)} {_tell_columns(run, columns)} "
                    f"Can be put in: {', '.join(insertable)}."
                )
    wanted = [name for name in (*given.remove, *given.keep) if name in columns]
    return {name: read_bits(rows, name, table=run.data.table) for name in wanted} if run.data.table else {}


def find_concepts(
    names: Sequence[str], marks: Marks, *, images: OwnImages, data: BiasedData, cav: str
) -> tuple[Concept, ...]:
    """Return where the direction of each name is learned, from training images without the run's own artifact.

    A column is as good as for the artifact itself; only a kind of CAV that is learned from pairs puts in what it can.
    """
    wants_pairs = CAV.named(cav).needs_pairs
    return tuple(
        _put_in(name, images, data)
        if name not in marks or (wants_pairs and name in inserted_by_name())
        else _marked(name, marks[name], data)
        for name in names
    )


def describe_concept(concept: Concept, data: BiasedData) -> str:
    """Say in a few words where a direction comes from."""
    if not isinstance(concept.told_by, np.ndarray):
        return f"{concept.name}, put into {len(concept.rows)} training images"
    label = data.train.class_names[data.train.labels[concept.rows[0]]]
    return f"{concept.name}, in {int(concept.told_by.sum())} of {len(concept.rows)} training images of {label!r}"


def put_in(images: OwnImages, part: int, artifact: str, ids: np.ndarray) -> Stamped:
    """Return some images of a part, in its order, with an artifact in each."""
    source = images.parts[part]
    some = Subset(source, np.flatnonzero(np.isin(source.ids, ids)))
    return Stamped(some, Artifact.named(artifact)(), share=1, seed=images.seed, transform=images.transform)


def _tell_columns(run: RunFile, columns: Sequence[str]) -> str:
    if run.data.table is None:
        return "There is no table (data.table)."
    return f"Further columns of {run.data.table.name}: {', '.join(columns) or 'none'}."


def _put_in(name: str, images: OwnImages, data: BiasedData) -> Concept:
    rows = np.flatnonzero(~data.train.has_artifact)
    return Concept(name=name, rows=rows, told_by=put_in(images, 0, name, data.train.ids[rows]))


def _marked(name: str, by_row: np.ndarray, data: BiasedData) -> Concept:
    """Learn within one class, as the run's own direction is: the one with the largest share of such images."""
    train = data.train
    bits, is_clean, n = by_row[train.ids], ~train.has_artifact, len(train.class_names)
    carry = np.bincount(train.labels[is_clean & bits], minlength=n)
    others = np.bincount(train.labels[is_clean & ~bits], minlength=n)
    is_enough = (carry >= LEAST) & (others >= LEAST)
    if not is_enough.any():
        raise DataError(
            f"{name}: no class has {LEAST} training images with it and {LEAST} without, none of which carries the "
            "run's own artifact. So its direction cannot be learned."
        )
    share = np.where(is_enough, carry / np.maximum(carry + others, 1), -1)
    rows = np.flatnonzero(is_clean & (train.labels == share.argmax()))
    return Concept(name=name, rows=rows, told_by=bits[rows])


_RULES: dict[Rule, type[BalancedRule]] = {"best": BalancedRule, "knee": KneeRule}


@dataclass(frozen=True, eq=False, kw_only=True)
class Opened:
    """A run file's model and images, found to fit together."""

    run: RunFile
    setting: Setting
    images: OwnImages
    facts: tuple[tuple[str, str], ...]  # what was found or chosen: a name and a sentence each


def open_run_file(run: RunFile, *, progress: Progress = silent) -> Opened:
    """Load the model, read the lists, check every picture and pass a first batch; raise what does not fit.

    The order is by cost: what can be refused in a moment is refused first.
    """
    _check_strengths(run)
    marks = read_marks(run)  # a misspelt column is no other run
    _check_folder(run)
    check_tried(run)
    loaded = load_run_model(run)
    images = _open_images(run, loaded.preprocessing, progress, kind=OwnImages)
    data = replace(images.data(), artifact=_artifact_name(run, images))
    check_selectable(data, advice=advise_more(images, data))
    if run.correction.needs_pairs and data.train_biased is None:
        raise OptionError(tell_no_pairs())
    removed, protected = (
        find_concepts(names, marks, images=images, data=data, cav=run.correction.cav)
        for names in (run.artifact.remove, run.artifact.keep)
    )
    setting = Setting(
        name=run.out.name,
        data=data,
        model=loaded.model,
        layer=loaded.layer,
        tuning=_tuning(run),
        cav=run.correction.cav,
        further_cavs=run.correction.further_cavs,
        strengths=run.correction.strengths,
        rule=_rule(run, data, images),
        repeats=run.correction.repeats,
        train="last" if run.model.output == "label" else run.correction.train,
        workers=run.workers,
        removed=removed,
        protected=protected,
    )
    if run.correction.optimizer == "converged":
        check_double(run.device)
        example = setting.data.train.batch([0]).image
        check_solvable(split(setting.model, setting.layer, example=example, train=setting.train))
    logits = first_logits(loaded.model, setting.data.train)
    further = len(run.artifact.tested) * len(data.test_clean)
    further += sum(len(each.rows) for each in (*removed, *protected) if isinstance(each.told_by, ExampleSet))
    methods = len(run.correction.trials)
    facts = [
        *model_facts(run, loaded, logits),
        ("images", describe_images(data, images)),
        *([("balanced", describe_balance(data))] if run.correction.balanced else []),
        *([("further CAVs", describe_further(run.correction))] if run.correction.further_cavs else []),
        ("disk", tell_disk(run.out, setting, methods=methods, with_pairs=run.correction.needs_pairs, further=further)),
        *(("removed too", describe_concept(each, data)) for each in removed),
        *(("kept", describe_concept(each, data)) for each in protected),
        *(("note", remark) for remark in (*notes_on_scaling(images, loaded.preprocessing), *images.remarks)),
        *(("left out", sentence) for sentence in images.skipped),
    ]
    return Opened(run=run, setting=setting, images=images, facts=tuple(facts))


def _check_strengths(run: RunFile) -> None:
    for method in run.correction.strengths:
        if not Correction.named(method).has_strength:
            raise OptionError(f"correction.strengths: {method} has no strength to choose. Leave it out.")
        if method not in run.correction.methods:
            raise OptionError(f"correction.strengths: {method} is not among correction.methods. Add it there.")


def _check_folder(run: RunFile) -> None:
    """Refuse a folder that holds another run, unless a name is misspelt: that is told first, with the nearest.

    The biased class waits for `check_unchanged`: images tell which one is meant where none is given.
    """
    known = known_config(run)
    del known["artifact"]["biased_class"]
    try:
        check_run_folder(run.out, known, defaults=LATER_KEYS)
    except RunError:
        check_files(run)
        _guarded_classes(run, _open_images(run, filled_in(run, None), silent, kind=_Listed).class_names)
        if run.model.layer != AUTO:
            load_run_model(run)  # takes seconds, and only here
        raise


class _Listed(OwnImages):
    """What a table or folders say of images: names are checked, and no picture is opened."""

    class_names: tuple[str, ...]

    def read(self) -> None:
        """Read the list alone."""
        self.class_names = tuple(self.listing(Path(self.root or "")).class_names)


_Images = TypeVar("_Images", bound=OwnImages)


def _open_images(run: RunFile, seen: Preprocessing, progress: Progress, *, kind: type[_Images]) -> _Images:
    return kind(
        root=run.data.root,
        table=run.data.table,
        artifacts=run.data.artifacts,
        classes=run.data.classes,
        label=run.model.label,
        artifact_column=run.artifact.column,
        biased_class=run.artifact.biased_class,
        shares=run.data.shares,
        insert=_inserted(run),
        share=run.artifact.share,
        size=seen.size,
        resize=seen.resize,
        channels=1 if seen.channels == 1 else 3,
        transform=Normalize(seen.mean, seen.std),
        seed=run.seed,
        skip_bad=run.data.skip_bad,
        progress=progress,
    )


def _rule(run: RunFile, data: BiasedData, images: OwnImages) -> SelectionRule:
    """Return the rule of the file, with classes by number; one that has too few images cannot be guarded."""
    names = data.val_clean.class_names
    guarded = _guarded_classes(run, names)
    for label in guarded:
        for kind, part in (("validation", data.val_clean), ("test", data.test_clean)):
            if (count := int((part.labels == label).sum())) < MIN_GROUP:
                raise OptionError(
                    f"correction.class_budgets: {names[label]!r} has {count} clean {kind} images; {MIN_GROUP} are "
                    "needed to know what it loses."
                )
        one = 1 / (data.val_clean.labels == label).sum()
        if guarded[label] < one:
            images.remarks.append(
                f"correction.class_budgets: {names[label]!r} may lose {100 * guarded[label]:g} points, and one of its "
                f"clean validation images is {100 * one:.1f}: so it may lose none of them, not by chance either."
            )
    return _RULES[run.correction.rule](run.correction.budget, guarded)


def _guarded_classes(run: RunFile, names: Sequence[str]) -> dict[int, float]:
    """Return the budgets of single classes by number; refuse a name that is no class, or two of the same one."""
    given: dict[int, str] = {}
    for name in run.correction.class_budgets:
        label = find_class(name, names, option="correction.class_budgets")
        if label in given:
            raise OptionError(
                f"correction.class_budgets names {names[label]!r} twice, as {given[label]!r} and {name!r}. Leave one "
                "out."
            )
        given[label] = name
    return {label: run.correction.class_budgets[name] for label, name in given.items()}


def _inserted(run: RunFile) -> Artifact | None:
    given = run.artifact
    if given.insert is None:
        return None
    if given.file is None:
        return Artifact.named(given.insert)()
    return Patch(file=given.file, place=given.place, size=given.scale, angle=given.angle)


def _artifact_name(run: RunFile, images: OwnImages) -> str:
    """Return what results call the artifact; empty where nobody says what it is."""
    given = run.artifact
    inserted = given.insert if given.file is None else given.file.stem
    by_column = images.artifact if images.artifact == given.column != COLUMN else ""
    return given.name or by_column or inserted or ""


def _tuning(run: RunFile) -> FineTuning:
    given = run.correction
    return FineTuning(
        optimizer=given.optimizer,
        learning_rate=given.learning_rate,
        epochs=given.epochs,
        batch_size=given.batch_size,
        balanced=given.balanced,
        leading=given.leading,
        seed=run.seed,
        device=run.device,
    )
