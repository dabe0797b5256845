"""Load what every look at a run file begins with: the model, how it sees images, and its layer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from hansfree.datasets.base import ExampleSet
from hansfree.errors import DataError, OptionError, nearest
from hansfree.files import neighbour
from hansfree.models import Preprocessing, Recommendation, adapt, load_model, preprocessing_of, recommend_layer
from hansfree.runfile.schema import AUTO, RunFile
from hansfree.splitting import check_device, split
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
