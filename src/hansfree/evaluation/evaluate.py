"""What a head does to held-out images without and with the artifact, all from the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp

from hansfree.activations import Activations, Features, FeatureSpec, along, compute_features, cut_at
from hansfree.cavs import CAV
from hansfree.corrections import count_classes, probed_images
from hansfree.data import check_artifact_labels, check_same_images
from hansfree.errors import DataError
from hansfree.metrics import (
    BalancedAccuracyBiased,
    BalancedAccuracyClean,
    Evidence,
    FlipRate,
    Score,
    check_biased_class,
    compute_scores,
)
from hansfree.models.surgery import Cut, exact_forward_mode, on_device, remove_inserted

State = Mapping[str, Tensor]


@dataclass(frozen=True, eq=False)
class HeldOutFeatures:
    """Held-out images without and with the artifact, at the head's input."""

    clean: Features  # with tangents too, where the biased images are too few for a score
    biased: Features | None  # None where there are none; with tangents along the CAV when one was given
    biased_class: int
    inserted: bool = True  # the biased images are the clean ones with the artifact inserted

    @property
    def labels_biased(self) -> np.ndarray | None:
        """The biased images' own labels, where they are not the clean images'."""
        if self.inserted:
            return None
        return np.zeros(0, dtype=np.int64) if self.biased is None else self.biased.labels


def held_out_features(
    cut: Cut,
    clean: Activations,
    biased: Activations | None,
    *,
    biased_class: int,
    inserted: bool = True,
    cav: CAV | None = None,
    edit: nn.Module | None = None,
) -> HeldOutFeatures:
    """Prepare held-out images for many heads; arguments as in `evaluate`."""
    if biased is not None and inserted:
        check_same_images(clean, biased)
    if biased is not None and (clean.layer, clean.trunk) != (biased.layer, biased.trunk):
        raise DataError("The activations of the clean and the biased set come from different layers or models.")
    directions = None if cav is None else cav.directions_[:1]
    is_probed = biased is None or len(probed_images(clean, biased, inserted=inserted)) == 2
    return HeldOutFeatures(
        compute_features(cut, clean, FeatureSpec(edit=edit, directions=directions if is_probed else None)),
        None if biased is None else compute_features(cut, biased, FeatureSpec(edit=edit, directions=directions)),
        biased_class,
        inserted,
    )


def judge_head(
    cut: Cut,
    state: State,
    images: HeldOutFeatures,
    *,
    positions: tuple[np.ndarray, np.ndarray] | None = None,
    relevance: np.ndarray | None = None,
    device: str = "cpu",
) -> Evidence:
    """Gather what one head does, as evidence for the metrics; ``positions`` is from `measure_positions`."""
    clean, along_clean = _outputs(cut, state, images.clean, images.biased_class, device=device)
    biased, along_biased = clean[:0], None
    if images.biased is not None:
        biased, along_biased = _outputs(cut, state, images.biased, images.biased_class, device=device)
    derivatives = [each for each in (along_clean, along_biased) if each is not None]
    return Evidence(
        labels=images.clean.labels,
        biased_class=images.biased_class,
        logits_clean=clean,
        logits_biased=biased,
        labels_biased=images.labels_biased,
        derivatives=np.concatenate(derivatives) if derivatives else None,
        n_positions=images.clean.n_positions,
        position_signs=None if positions is None else positions[0],
        position_sizes=None if positions is None else positions[1],
        relevance=relevance,
    )


@torch.no_grad()
def _outputs(
    cut: Cut, state: State, features: Features, wanted: int, *, device: str, batch_size: int = 256
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the logits and, where there are tangents, the derivative of the wanted class's logit."""
    cut.eval_mode()
    module, weights = on_device(cut.head, device), {name: tensor.to(device) for name, tensor in state.items()}
    logits, derivatives = [], []
    for start in range(0, len(features), batch_size):
        values, tangents = features.rows(slice(start, start + batch_size), device)

        def head(*inputs: Tensor) -> Tensor:
            return functional_call(module, weights, inputs)  # type: ignore[no-any-return]

        if tangents:
            with exact_forward_mode():
                value, derivative = jvp(head, values, tuple(tangent[0] for tangent in tangents))  # type: ignore[misc]
            derivatives.append(derivative[:, wanted])
        else:
            value = head(*values)
        logits.append(value)
    return torch.cat(logits).cpu().numpy(), torch.cat(derivatives).cpu().numpy() if derivatives else None


def measure_positions(
    cut: Cut,
    state: State,
    images: Sequence[Activations],
    cav: CAV,
    *,
    biased_class: int,
    edit: nn.Module | None = None,
    device: str = "cpu",
) -> tuple[np.ndarray, np.ndarray]:
    """Return per image of all sets what the derivatives along the CAV are at single positions.

    Returns:
        How many are positive, negative and zero, ``(n, 3)``, and their mean size, ``(n,)``.
    """
    cut.eval_mode()
    direction = torch.from_numpy(cav.directions_[0]).float().to(device)
    head, phi = on_device(cut.head, device), on_device(cut.phi, device)
    weights = {name: tensor.to(device) for name, tensor in state.items()}
    edited = None if edit is None else on_device(edit, device)
    counts, sizes = [], []
    for batch in chain.from_iterable(each.stream(batch_size=64) for each in images):
        layer, *others = (tensor.to(device) for tensor in batch)
        inputs = (layer if edited is None else edited(layer)).detach().requires_grad_()
        logits = functional_call(head, weights, phi(inputs, *others))
        (gradient,) = torch.autograd.grad(logits[:, biased_class].sum(), inputs)
        slopes = along(gradient, direction)
        counts.append(torch.stack([(slopes > 0).sum(1), (slopes < 0).sum(1), (slopes == 0).sum(1)], dim=1).cpu())
        sizes.append(slopes.abs().double().mean(1).cpu())
    return torch.cat(counts).numpy(), torch.cat(sizes).numpy()


def evaluate(
    model: nn.Module,
    *,
    clean: Activations,
    biased: Activations | None,
    biased_class: int,
    inserted: bool = True,
    cav: CAV | None = None,
) -> list[Score]:
    """Score a model, corrected or not, on held-out images without and with the artifact.

    The trunk of a corrected model is the original's, so activations of the original serve for all of them.

    Args:
        biased: None where no image has the artifact.
        biased_class: The class that the artifact leaks into.
        inserted: The biased images are the clean ones with the artifact inserted, in the same order; False where the
            artifact is natural, and the two sets hold different images.
        cav: Adds TCAV and sensitivity along its first direction.

    Examples:
        >>> import hansfree as hf
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(12), nn.Flatten(), nn.Linear(4, 4))
        >>> lesions = hf.SyntheticLesions(40, size=16)
        >>> sets = [hf.WithArtifact(lesions, hf.Timestamp(), share=share) for share in (0.0, 1.0)]
        >>> clean, biased = (hf.collect_activations(model, "0", images) for images in sets)
        >>> next(s.n for s in hf.evaluate(model, clean=clean, biased=biased, biased_class=0) if s.metric == "flip_rate")
        40
    """
    check_artifact_labels(clean, biased)
    if biased is None and inserted:
        raise DataError("There are no biased images, so the artifact was not inserted: say inserted=False.")
    if cav is not None:
        cav.check_layer(clean.layer, clean.pooled.shape[1])
    return compute_scores(_judge(model, clean, biased, biased_class=biased_class, inserted=inserted, cav=cav))


def _judge(
    model: nn.Module,
    clean: Activations,
    biased: Activations | None,
    *,
    biased_class: int = 0,
    inserted: bool = True,
    cav: CAV | None = None,
) -> Evidence:
    """Return what a whole model does; arguments as in `evaluate`."""
    plain, edit = remove_inserted(model)
    cut = cut_at(plain, clean)
    check_biased_class(biased_class, count_classes(cut, clean))
    held_out = held_out_features(cut, clean, biased, biased_class=biased_class, inserted=inserted, cav=cav, edit=edit)
    state, probed = cut.head_parameters(), probed_images(clean, biased, inserted=inserted)
    if cav is None:
        return judge_head(cut, state, held_out)
    positions = measure_positions(cut, state, probed, cav, biased_class=biased_class, edit=edit)
    return judge_head(cut, state, held_out, positions=positions)


@dataclass(frozen=True)
class SideEffects:
    """What each of several models does without any artifact, and with each of several inserted."""

    clean: dict[str, Score]  # by model: balanced accuracy without any of the artifacts
    flips: dict[tuple[str, str], Score]  # by model and artifact: flip rate
    biased: dict[tuple[str, str], Score]  # by model and artifact: balanced accuracy with it


def measure_side_effects(
    models: Mapping[str, nn.Module], *, clean: Activations, biased: Mapping[str, Activations]
) -> SideEffects:
    """Score every model under every artifact, on the same held-out images without any and with each inserted.

    Args:
        models: by name: the original model and its corrected versions, which share the trunk.
        biased: by artifact, the same images as in ``clean``, in the same order, with it inserted.
    """
    if not models or not biased:
        raise DataError(f"A matrix needs models and artifacts; given {len(models)} and {len(biased)}.")
    for images in biased.values():
        check_artifact_labels(clean, images)
    found = SideEffects({}, {}, {})
    for name, model in models.items():
        for artifact, images in biased.items():
            evidence = _judge(model, clean, images)  # the biased class is any: none of these scores asks for it
            found.clean[name] = BalancedAccuracyClean().compute(evidence)
            found.flips[name, artifact] = FlipRate().compute(evidence)
            found.biased[name, artifact] = BalancedAccuracyBiased().compute(evidence)
    return found
