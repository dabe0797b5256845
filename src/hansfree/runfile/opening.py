"""Open what a run file names, and check that it fits together, before any work starts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from hansfree.artifacts import Artifact, Patch
from hansfree.corrections import Correction
from hansfree.datasets import Normalize
from hansfree.errors import DataError, OptionError, nearest
from hansfree.experiments import Setting
from hansfree.experiments.plans import check_device
from hansfree.models import Preprocessing, Recommendation, adapt, load_model, preprocessing_of, recommend_layer
from hansfree.progress import Progress, silent
from hansfree.runfile.disk import tell_disk
from hansfree.runfile.schema import AUTO, COLUMN, RunFile
from hansfree.selection import BalancedRule
from hansfree.splitting import split
from hansfree.studies import OwnImages
from hansfree.training import FineTuning
from hansfree.weights import PRETRAINED

DEFAULTS = Preprocessing(size=224, channels=3, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), resize="squash")
_FIRST_IMAGES = 4  # that go through the model before anything else does


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
    check_device(run.device)
    _check_strengths(run)
    _check_files(run)
    model = load_model(run.model.source, weights=run.model.weights, classes=_count_outputs(run))
    seen = filled_in(run, preprocessing_of(run.model.source, model))
    blank = torch.zeros(2, seen.channels, seen.size, seen.size)
    adapted = adapt(model, blank, output=run.model.output, label=_label_number(run))
    layer = _find_layer(run, adapted, blank)
    images = _open_images(run, seen, progress)
    setting = Setting(
        name=run.out.name,
        data=replace(images.data(), artifact=_artifact_name(run, images)),
        model=adapted,
        layer=layer.layer,
        tuning=_tuning(run),
        cav=run.correction.cav,
        strengths=run.correction.strengths,
        rule=BalancedRule(run.correction.budget),
        repeats=run.correction.repeats,
        trained="last" if run.model.output == "label" else run.correction.train,
        workers=run.workers,
    )
    first = _first_logits(setting)
    facts = [
        ("model", f"{run.model.source}: {type(model).__name__}, {first.shape[1]} classes"),
        ("layer", f"{layer.layer}. {layer.reason}"),
        ("images", _counted(setting)),
        ("disk", tell_disk(run.out, setting)),
        *(("note", remark) for remark in images.remarks),
        *(("left out", sentence) for sentence in images.skipped),
    ]
    return Opened(run=run, setting=setting, images=images, facts=tuple(facts))


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


def _check_strengths(run: RunFile) -> None:
    for method in run.correction.strengths:
        if not Correction.named(method).has_strength:
            raise OptionError(f"correction.strengths: {method} has no strength to choose. Leave it out.")
        if method not in run.correction.methods:
            raise OptionError(f"correction.strengths: {method} is not among correction.methods. Add it there.")


def _check_files(run: RunFile) -> None:
    """Refuse paths that lead nowhere, with what lies beside them under a similar name."""
    if not run.data.root.is_dir():
        raise DataError(f"data.root: there is no folder {run.data.root}.{_neighbour(run.data.root)}")
    for key, path in (("data.table", run.data.table), ("data.artifacts", run.data.artifacts)):
        if path is not None and not path.is_file():
            raise DataError(f"{key}: there is no file {path}.{_neighbour(path)}")
    weights = None if run.model.weights in (None, PRETRAINED) else Path(str(run.model.weights))
    for key, path in (("model.weights", weights), ("artifact.file", run.artifact.file)):
        if path is not None and not path.is_file():
            raise OptionError(f"{key}: there is no file {path}.{_neighbour(path)}")


def _neighbour(path: Path) -> str:
    beside = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
    return nearest(path.name, beside)


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


def _open_images(run: RunFile, seen: Preprocessing, progress: Progress) -> OwnImages:
    return OwnImages(
        root=run.data.root,
        table=run.data.table,
        artifacts=run.data.artifacts,
        classes=run.data.classes,
        label=run.model.label,
        artifact_column=run.artifact.column,
        biased_class=run.artifact.biased_class,
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
        seed=run.seed,
        device=run.device,
    )


@torch.inference_mode()
def _first_logits(setting: Setting) -> Tensor:
    """Pass a few images; refuse logits that are not finite, or more or fewer than the data have classes."""
    train = setting.data.train
    device = next((tensor.device for tensor in setting.model.parameters()), torch.device("cpu"))
    images = train.batch(range(min(_FIRST_IMAGES, len(train)))).image
    logits: Tensor = setting.model(images.to(device)).cpu()
    if not logits.isfinite().all():
        raise OptionError("The model's answers for the first images are not finite numbers: its weights are damaged.")
    if logits.shape[1] != len(train.class_names):
        raise DataError(
            f"The model tells {logits.shape[1]} classes apart, the data have {len(train.class_names)}: "
            f"{', '.join(train.class_names)}. Give data.classes: all names, in the order of the model's outputs."
        )
    return logits


def _counted(setting: Setting) -> str:
    data = setting.data
    names = {"train": "training", "val_clean": "validation", "test_clean": "test"}
    counts = ", ".join(f"{len(getattr(data, part))} {name}" for part, name in names.items())
    carried = f"{int(data.train.has_artifact.sum())} training images carry the artifact"
    where = "inserted into all of them for the comparison"
    if not data.is_inserted:
        where = f"{len(data.val_biased)} further validation and {len(data.test_biased)} test images carry it too"
    return f"{counts}; {carried}; {where}; biased class {data.train.class_names[data.biased_class]!r}"
