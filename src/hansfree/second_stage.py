"""The second stage: all layers are fine-tuned on a correction's objective, with the direction found anew each epoch.

A correction of the head leaves the layers before it as they are. Here they move too, so no cache can serve: every step
takes images. Meant for after a correction of the head, with few epochs and a small rate.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from hansfree.activations import Activations, Pooling, collect_activations, cut_again
from hansfree.activations.features import push_along
from hansfree.activations.loading import as_loader, load_batches, read_batches, unpack
from hansfree.cavs import CAV
from hansfree.corrections import RRClArC, Vanilla
from hansfree.errors import DataError, DivergedError, OptionError
from hansfree.progress import Progress, silent
from hansfree.seeds import seeded
from hansfree.splitting import HeadParts, Split, exact_forward_mode, split, take_out
from hansfree.splitting.hooked import Unchanged
from hansfree.training import FineTuning, HeadBatch, WeightedHead

Images = Dataset[Any] | DataLoader[Any]


@dataclass(frozen=True, eq=False)
class _Samples:
    """What the direction is found from: marked images, of one class or of all; or pairs."""

    images: Images
    biased_class: int | None
    pairs: tuple[Images, Images] | None
    pooling: Pooling
    device: str

    def at(self, model: nn.Module, layer: str, cav: CAV) -> tuple[CAV, Activations]:
        """Return a new CAV of the model as it is now, and the activations that it was found from."""
        fresh: CAV = clone(cav)
        seen = [
            collect_activations(model, layer, each, pooling=self.pooling, device=self.device)
            for each in self.pairs or (self.images,)
        ]
        if self.pairs is not None:
            return fresh.fit_pairs(seen[0].pooled, seen[1].pooled), seen[0]
        if seen[0].has_artifact is None:
            raise DataError("The images must say which of them carry the artifact: (image, label, has_artifact).")
        inside = np.full(len(seen[0]), True) if self.biased_class is None else seen[0].labels == self.biased_class
        return fresh.fit(seen[0].pooled[inside], seen[0].has_artifact[inside]), seen[0]


def correct_all_layers(
    model: nn.Module,
    layer: str,
    method: RRClArC | Vanilla,
    images: Images,
    *,
    biased_class: int | None = None,
    pairs: tuple[Images, Images] | None = None,
    pooling: Pooling = "max",
    progress: Progress = silent,
) -> nn.Module:
    """Return a copy of the model of which all parameters were fine-tuned on a method's objective.

    Batch norms keep their statistics, and dropout before the layer stays off. The result has a trunk of its own:
    collect its activations anew to evaluate it; a CAV or a monitor of the old one says nothing about it. While the
    direction is found, the layer's output for all images is in memory.

    Args:
        model: best one whose head is corrected already; it is not touched.
        method: the objective, with its strength and tuning. Of its CAV the options count: before every epoch it is
            fitted anew on the model as it then is. :class:`~hansfree.Vanilla` is the control with the same budget.
        images: the training images, (image, label, has_artifact).
        biased_class: the CAV learns from images of this class only; None is all.
        pairs: the same images without and with the artifact, to find the direction from in place of ``images``.
    """
    tuning = method.tuning
    _check(model, method, tuning)
    samples = _Samples(images, biased_class, pairs, pooling, tuning.device)
    loader = as_loader(images, tuning.batch_size)
    count = len(loader.dataset)  # type: ignore[arg-type]
    example = unpack(next(iter(load_batches(loader, [[0]], in_process=True))), [0]).images
    cut = split(model, layer, example=example)
    parameters, head_parts = _all_parameters(cut), cut.head_parts()
    for part in (cut.trunk, cut.phi, cut.head):
        part.to(tuning.device)
    kinds = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam}
    optimizer = kinds[tuning.optimizer](parameters.values(), lr=tuning.learning_rate)
    steps = -(-count // tuning.batch_size)
    ticks = progress(range(steps * tuning.epochs), total=steps * tuning.epochs, label="all layers")
    for epoch in range(tuning.epochs):
        now = _installed(model, parameters)
        objective, directions = _renewed(method, samples, now, layer)
        cut.train_mode()
        for step, (rows, batch) in enumerate(_shuffled(loader, count, tuning, epoch), epoch * steps):
            with seeded(tuning.seed, step) as noise, exact_forward_mode():
                loss = _loss(cut, head_parts, objective, directions, batch, rows, noise)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            next(ticks, None)
        if not all(torch.isfinite(parameter).all() for parameter in parameters.values()):
            raise DivergedError(f"In epoch {epoch + 1} all layers with {method.name} {method.tell_divergence()}")
    return _installed(model, parameters)


def _check(model: nn.Module, method: RRClArC | Vanilla, tuning: FineTuning) -> None:
    if not isinstance(method, RRClArC | Vanilla):
        raise OptionError(
            f"{type(method).__name__} is bound to the layers as they were; all layers take RRClArC, RRClArCStep or "
            "Vanilla."
        )
    if tuning.balanced:
        raise OptionError("With all layers every image counts the same: leave balanced=True out.")
    if tuning.optimizer == "converged" or tuning.precision != "float32":
        raise OptionError(
            f"All layers are trained by 'sgd' or 'adam' in 'float32', not by {tuning.optimizer!r} in "
            f"{tuning.precision!r}."
        )
    if take_out(model)[1] is not None:
        raise OptionError(
            "This model has a projection behind a layer, which would go stale as the layers before it move. Give the "
            "model without it."
        )


def _renewed(
    method: RRClArC | Vanilla, samples: _Samples, now: nn.Module, layer: str
) -> tuple[RRClArC | Vanilla, np.ndarray | None]:
    """Return the method along the direction of the model as it is now, and what is pushed along."""
    if not isinstance(method, RRClArC):
        return method, None
    objective = copy.copy(method)
    objective.cav, activations = samples.at(now, layer, method.cav)
    objective.check(cut_again(now, activations), activations)
    return objective, objective.directions(activations)


def _loss(
    cut: Split,
    head_parts: HeadParts,
    objective: RRClArC | Vanilla,
    directions: np.ndarray | None,
    batch: tuple[Tensor, Tensor],
    rows: list[int],
    noise: torch.Generator,
) -> Tensor:
    images, labels = (tensor.to(next(cut.head.parameters()).device) for tensor in batch)
    start = Unchanged() if objective.at_layer else cut.phi
    live = tuple(cut.trunk(images))
    tangents: tuple[Tensor, ...] = ()
    if directions is not None:
        pushed = push_along(start, live, directions, whole_steps=objective.takes_steps)
        tangents = tuple(tangent.movedim(1, 0) for tangent in pushed)
    tensors = {**dict(cut.head.named_parameters()), **dict(cut.head.named_buffers())}
    values = tuple(start(*live))
    seen = HeadBatch(values, tangents, labels, np.array(rows), noise, cut.trunk, cut.phi)
    logits, penalty = objective.forward(WeightedHead(head_parts, tensors), seen)
    if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
        raise DataError(
            f"Labels run from {int(labels.min())} to {int(labels.max())}, but the model has the classes 0 to "
            f"{logits.shape[1] - 1}."
        )
    wrong = nn.functional.cross_entropy(logits, labels)
    return wrong if penalty is None else wrong + objective.strength * penalty.mean()


def _all_parameters(cut: Split) -> dict[str, nn.Parameter]:
    """Return every parameter by its name in the model; the head first, as a trunk that is cut by hooks has others."""
    found: dict[int, tuple[str, nn.Parameter]] = {}
    for part in (cut.head, cut.phi, cut.trunk):
        for name, parameter in part.named_parameters():
            found.setdefault(id(parameter), (name, parameter))
    parameters = {name: parameter for name, parameter in found.values() if parameter.is_floating_point()}
    for parameter in parameters.values():
        parameter.requires_grad_(True)
    return parameters


@torch.no_grad()
def _installed(model: nn.Module, parameters: dict[str, nn.Parameter]) -> nn.Module:
    installed = copy.deepcopy(model)
    for name, parameter in parameters.items():
        installed.get_parameter(name).copy_(parameter)
    return installed


def _shuffled(
    loader: DataLoader[Any], count: int, tuning: FineTuning, epoch: int
) -> Iterator[tuple[list[int], tuple[Tensor, Tensor]]]:
    order = np.random.default_rng((tuning.seed, epoch)).permutation(count)
    batches = [order[i : i + tuning.batch_size].tolist() for i in range(0, count, tuning.batch_size)]
    for rows, loaded in zip(batches, read_batches(load_batches(loader, batches))):
        batch = unpack(loaded, rows)
        yield rows, (batch.images, batch.labels)
