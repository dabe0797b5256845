"""The rivals of the deep corrections: other ways to fine-tune the whole network, and the corrections of the head.

Every deep rival is a function ``(setting, data, model, root, *, seed) -> nn.Module`` that trains on ``data.train``,
looks at ``data.val`` at most, and leaves ``model`` as it is. All but `retrained` share the loop, the optimiser and the
learning-rate schedule of the deep corrections (`hansfree.corrections.deep.base.train_network`); they differ in which
images are drawn and in the loss. The caller sets the number of torch threads.
"""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

import hansfree as hf
from benchmarks.whole_network.base_models import initial_model, recipe
from benchmarks.whole_network.settings import TRAP_ARTIFACTS, Data, Images, Setting
from hansfree.cavs import save_cavs
from hansfree.corrections import LatentCorrection, Need, fit_path
from hansfree.corrections.deep.base import NetworkTuning, Objective, Step, task_loss, train_network
from hansfree.corrections.deep.images import MIN_GROUP, TrainingImages
from hansfree.corrections.deep.selection import balanced_accuracy
from hansfree.corrections.training import FineTuning, balanced_weights
from hansfree.corrections.training.model_loop import pretrain
from hansfree.data.biased import BiasedData
from hansfree.errors import HansfreeError
from hansfree.models.zoo import ARCHITECTURES
from hansfree.pipeline.workspace import Setting as ExperimentSetting
from hansfree.pipeline.workspace import Workspace

log = logging.getLogger(__name__)

DRO_STEP = 0.01  # of the exponentiated gradient on the group weights (Sagawa et al., 2020)
JTT_UPWEIGHT = 20.0
JTT_LEAST_SHARE = 0.1  # of the training images that are upweighted at least
FST_ALPHA = 0.1
PRUNING_BUDGET = 0.02  # balanced accuracy on non-artifact validation images


def fine_tuning(setting: Setting, data: Data, model: nn.Module, root: Path, *, seed: int = 0) -> nn.Module:
    """Fine-tune all layers on all images; `Match` with strength 0 does so on those without the artifact."""
    weights = balanced_weights(data.train.labels)
    return _fine_tune(model, _Weighted(data.train, weights), _TaskLossOnly(), seed=seed)


def retrained(setting: Setting, data: Data, model: nn.Module, root: Path, *, seed: int = 0) -> nn.Module:
    """Train anew from ImageNet weights without the artifact images, by the recipe of the base models.

    Where nearly every image carries one of several artifacts, all images are used, resampled so that the artifacts are
    independent of the class.
    """
    train = data.train
    rows = np.flatnonzero(~train.has_artifact) if train.has_artifact.ndim == 1 else _resampled(train, seed)
    network = initial_model(setting, root, len(train.class_names), seed)
    pretrain(network, train.part(rows), recipe(setting, seed))
    return network


def group_dro(setting: Setting, data: Data, model: nn.Module, root: Path, *, seed: int = 0) -> nn.Module:
    """Group DRO (Sagawa et al., 2020): fine-tune on the worst group, with adversarial group weights.

    Groups are the classes without any artifact, and the classes with each artifact; images with several artifacts are
    members of several groups. Groups of fewer than 8 images are left out, as they would be memorised. Batches are
    balanced over the groups.
    """
    groups = _groups(data.train)
    weights = (groups / groups.sum(axis=0)).sum(axis=1)
    images = _Weighted(data.train, weights)
    return _fine_tune(model, images, _GroupDRO(images.labels, groups), seed=seed)


def jtt(setting: Setting, data: Data, model: nn.Module, root: Path, *, seed: int = 0) -> nn.Module:
    """Just Train Twice (Liu et al., 2021): draw the training images that the first model gets wrong 20 times as often.

    The first model is the original one, not an early-stopped one. It has memorised most training images, so where it is
    wrong on fewer than a tenth of them, the tenth with the largest loss is taken. No artifact label is used. As for the
    other rivals, the classes count the same.
    """
    logits = _logits(model, data.train)
    labels = torch.from_numpy(data.train.labels)
    losses = nn.functional.cross_entropy(logits, labels, reduction="none").numpy()
    is_wrong = (logits.argmax(1) != labels).numpy()
    if is_wrong.mean() < JTT_LEAST_SHARE:
        is_wrong = losses >= np.quantile(losses, 1 - JTT_LEAST_SHARE)
    weights = np.where(is_wrong, JTT_UPWEIGHT, 1.0)
    for label in np.unique(data.train.labels):
        inside = data.train.labels == label
        weights[inside] /= weights[inside].sum()
    return _fine_tune(model, _Weighted(data.train, weights), _TaskLossOnly(), seed=seed)


def fst(setting: Setting, data: Data, model: nn.Module, root: Path, *, seed: int = 0) -> nn.Module:
    """Feature shift tuning (Min et al., 2023): re-initialise the last layer and keep it away from the original one.

    Trained on the images without the artifact, as in `fine_pruning`; where every class has images with it (blond-male,
    trap), they are kept and resampled (`TrainingImages.task_weights`). The loss is the cross-entropy + alpha <W, W0> /
    |W0|; W has the norm of W0 in every step.
    """
    network = copy.deepcopy(model)
    path = ARCHITECTURES[setting.architecture].last
    last = network.get_submodule(path)
    fresh = initial_model(setting, root, len(data.train.class_names), seed).get_submodule(path)
    objective = _FeatureShift(path, last.weight.detach().clone())
    last.load_state_dict(fresh.state_dict())
    return _fine_tune(network, TrainingImages(data.train), objective, seed=seed)


def fine_pruning(setting: Setting, data: Data, model: nn.Module, root: Path, *, seed: int = 0) -> nn.Module:
    """Fine-pruning (Liu et al., 2018): prune channels that are idle on non-artifact images, then fine-tune one epoch.

    The channels are those of the last feature map. In all three architectures only global pooling and the last linear
    layer follow, so a channel is pruned by a column of zeros in that layer. Channels are pruned in the order of their
    mean activity on non-artifact validation images, as long as the balanced accuracy there drops by at most 2 points.
    """
    path = ARCHITECTURES[setting.architecture].last
    linear = model.get_submodule(path)
    images = _without_artifact(data.val)
    features = _inputs_of(model, linear, images)
    weight, bias = linear.weight.detach(), linear.bias.detach()
    order = features.mean(0).argsort()
    keep = torch.ones(len(order))
    before = balanced_accuracy((features @ weight.T + bias).argmax(1).numpy(), images.labels)
    for channel in order:
        keep[channel] = 0
        answers = (features @ (weight * keep).T + bias).argmax(1).numpy()
        if before - balanced_accuracy(answers, images.labels) > PRUNING_BUDGET:
            keep[channel] = 1
            break
    log.info("fine-pruning: %d of %d channels are pruned", int((keep == 0).sum()), len(keep))
    return _fine_tune(model, TrainingImages(data.train), _Pruned(path, keep), seed=seed, epochs=1)


def head_methods(
    setting: Setting, data: Data, model: nn.Module, *, folder: Path | None
) -> dict[str, tuple[nn.Module | None, float | None]]:
    """Return the corrected model and the chosen strength of every correction of the head; None where there is none.

    A run of the library in small: the paper's layer and recipe, a signal CAV from images of the class that holds the
    artifact, each method's own grid, and the library's own rule on the validation images (by the first-order effect
    where images with the artifact are of one class only). A method without a strength is taken as it is. Methods that
    need pairs or masks (RRR) are left out. In the trap settings the artifact is the ruler, and the guard on clean
    accuracy looks at all validation images (see `_material`), which is not the library's own rule.

    Args:
        folder: for CAVs and activations; a temporary one by default.
    """
    if folder is None:
        with TemporaryDirectory() as temporary:
            return head_methods(setting, data, model, folder=Path(temporary))
    workspace = _material(setting, data, model, folder)
    train, inside = workspace.activations["train"], workspace.cav_images
    if train.has_artifact is None:
        raise ValueError("The training images have no artifact labels.")
    cav = hf.SignalCAV().fit(train.pooled[inside], train.has_artifact[inside])
    save_cavs(folder / "cavs.safetensors", {"signal": cav})
    found: dict[str, tuple[nn.Module | None, float | None]] = {}
    for name, member in LatentCorrection.members().items():
        if Need.PAIRS in member.info.needs or Need.MASKS in member.info.needs:
            continue
        try:
            found[name] = _corrected_head(workspace, member)
        except HansfreeError as error:
            log.warning("%s: %s", name, error)
            found[name] = (None, None)
    return found


def _corrected_head(workspace: Workspace, member: type[LatentCorrection]) -> tuple[nn.Module | None, float | None]:
    """Choose the strength of one method on the validation images and return the model."""
    setting = workspace.setting
    method = member.for_run(cav=workspace.cav, images=workspace.data.train, tuning=setting.tuning)
    train = workspace.train_for(method)
    heads = method.train(
        workspace.cut,
        train,
        method.info.strengths_to_try() or [0.0],
        watch=workspace.validator(method.edit(train)),
    )
    select = setting.rule.selector(workspace.original_validation, has_strength=method.info.has_strength)
    path = fit_path(heads, select)
    log.info("%s: %s", member.name, path.selection.reason)
    if path.best is None or not path.best.is_finite:
        return None, None
    model = method.install(setting.model, workspace.cut, train, path.best.state)
    return model, path.best.strength if method.info.has_strength else None


def _material(setting: Setting, data: Data, model: nn.Module, folder: Path) -> Workspace:
    """Return the data as the library's experiments take them; the test sets are empty.

    Of several artifacts one is corrected. The validation images without it are then too few in one class for the
    library to guard the accuracy on them (11 malignant ones in trap-1), so all validation images serve for that.
    """
    train, val = _one_artifact(data.train), _one_artifact(data.val)
    guard = val.part(~val.has_artifact)
    if data.val.has_artifact.ndim == 2:
        guard = val.with_labels(np.arange(len(val)), np.zeros(len(val), dtype=bool))
    shares = [train.has_artifact[train.labels == label].mean() for label in range(len(train.class_names))]
    nothing = val.part(np.zeros(0, dtype=np.int64))
    biased = BiasedData(
        train=train,
        val_clean=guard,
        val_biased=val.part(val.has_artifact),
        test_clean=nothing,
        test_biased=nothing,
        biased_class=int(np.argmax(shares)),
        artifact=setting.artifact,
        is_localized=False,
        is_inserted=False,
        has_masks=False,
    )
    experiment = ExperimentSetting(
        name=setting.name,
        data=biased,
        model=model,
        layer=ARCHITECTURES[setting.architecture].layer,
        tuning=FineTuning(),
    )
    return Workspace(experiment, folder, folder / "activations")


def _one_artifact(images: Images) -> Images:
    """Return the images with the labels of one artifact; of several it is the ruler."""
    if images.has_artifact.ndim == 1:
        return images
    return images.with_labels(np.arange(len(images)), images.has_artifact[:, TRAP_ARTIFACTS.index("ruler")])


class _Weighted(TrainingImages):
    """Training images that are drawn by given weights."""

    def __init__(self, images: Images, weights: np.ndarray) -> None:
        super().__init__(images)
        self._weights = weights / weights.sum()

    def task_weights(self) -> np.ndarray:
        return self._weights


class _TaskLossOnly(Objective):
    """No penalty."""

    def terms(self, network: nn.Module, step: Step, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = network(images)
        return logits, logits.new_zeros(())

    def finish(self, network: nn.Module) -> None:
        """Restore what must hold after every step, the last one too."""


class _GroupDRO(_TaskLossOnly):
    """The weighted loss of the groups, less the task loss that the loop adds."""

    def __init__(self, labels: np.ndarray, groups: np.ndarray) -> None:
        super().__init__()
        self.labels, self.members = torch.from_numpy(labels), torch.from_numpy(groups).float()
        self.register_buffer("group_weights", torch.full((groups.shape[1],), 1 / groups.shape[1]))

    def terms(self, network: nn.Module, step: Step, images: Tensor) -> tuple[Tensor, Tensor]:
        logits = network(images)
        labels, members = self.labels[step.task_rows], self.members[step.task_rows]
        losses = nn.functional.cross_entropy(logits, labels, reduction="none")
        by_group = losses @ members / members.sum(0).clamp_min(1)  # 0 for groups that are not in the batch
        raised = self.group_weights * torch.exp(DRO_STEP * by_group.detach())
        self.group_weights = raised / raised.sum()
        return logits, self.group_weights @ by_group - task_loss(logits, labels)


class _FeatureShift(_TaskLossOnly):
    """The alignment of the last layer's weights with the original ones."""

    def __init__(self, path: str, original: Tensor) -> None:
        super().__init__()
        self.path = path
        self.register_buffer("original", original)

    def terms(self, network: nn.Module, step: Step, images: Tensor) -> tuple[Tensor, Tensor]:
        self.finish(network)
        weight = network.get_submodule(self.path).weight
        return network(images), FST_ALPHA * (weight * self.original).sum() / self.original.norm()

    @torch.no_grad()
    def finish(self, network: nn.Module) -> None:
        weight = network.get_submodule(self.path).weight
        weight *= self.original.norm() / weight.norm()


class _Pruned(_TaskLossOnly):
    """Keep pruned input channels of the last layer at zero."""

    def __init__(self, path: str, keep: Tensor) -> None:
        super().__init__()
        self.path = path
        self.register_buffer("keep", keep)

    def terms(self, network: nn.Module, step: Step, images: Tensor) -> tuple[Tensor, Tensor]:
        self.finish(network)
        return super().terms(network, step, images)

    @torch.no_grad()
    def finish(self, network: nn.Module) -> None:
        weight = network.get_submodule(self.path).weight
        weight *= self.keep


def _fine_tune(
    model: nn.Module, images: TrainingImages, objective: _TaskLossOnly, *, seed: int, epochs: int = 2
) -> nn.Module:
    """Return a copy of the model with all layers fine-tuned; the recipe is that of the deep corrections."""
    network = copy.deepcopy(model)
    train_network(network, objective, images, NetworkTuning(epochs=epochs, seed=seed), strength=1.0)
    objective.finish(network)
    network.zero_grad(set_to_none=True)
    return network


def _groups(images: Images) -> np.ndarray:
    """Return which image is in which group, bool (n, groups); each group has at least 8 images."""
    artifacts = images.has_artifact.reshape(len(images), -1)
    kinds = np.column_stack([~artifacts.any(axis=1), artifacts])
    groups = np.column_stack([(images.labels == label)[:, None] & kinds for label in np.unique(images.labels)])
    return groups[:, groups.sum(axis=0) >= MIN_GROUP]


def _resampled(images: Images, seed: int) -> np.ndarray:
    """Draw as many rows as there are images, by the weights of the task loss."""
    weights = TrainingImages(images).task_weights()
    return np.random.default_rng((seed, 0x5E)).choice(len(images), size=len(images), p=weights)


def _without_artifact(images: Images) -> Images:
    """Return the images without any artifact; all of them where a class has too few of these."""
    without = images.part(~images.has_artifact.reshape(len(images), -1).any(axis=1))
    counts = np.bincount(without.labels, minlength=len(images.class_names))
    return without if counts.min() >= MIN_GROUP else images


@torch.no_grad()
def _logits(model: nn.Module, images: Images) -> Tensor:
    """Return the logits of all images; unlike `hansfree.models.predict_logits`, several artifacts may be labelled."""
    parts = np.array_split(np.arange(len(images)), max(1, len(images) // 64))
    return torch.cat([model(images.batch(rows).image) for rows in parts])


def _inputs_of(model: nn.Module, linear: nn.Module, images: Images) -> Tensor:
    """Return what enters the last layer, (n, channels)."""
    seen: list[Tensor] = []
    handle = linear.register_forward_pre_hook(lambda _module, inputs: seen.append(inputs[0].clone()))
    try:
        _logits(model, images)
    finally:
        handle.remove()
    return torch.cat(seen)
