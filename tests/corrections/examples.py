"""A tiny world: images with a patch that leaks into class 0, and small models with every kind of head."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import jvp
from torch.nn import functional
from torch.utils.data import Dataset

from hansfree.activations import Activations, collect_activations
from hansfree.activations.features import spread
from hansfree.cavs import CAV, GivenCAV, SignalCAV
from hansfree.corrections import LatentCorrection
from hansfree.corrections.training import FunctionalHead, HeadBatch
from hansfree.data import BiasedData, Example, ImageDataset, Normalize
from hansfree.evaluation.evaluate import evaluate
from hansfree.models.surgery import Cut, exact_forward_mode, split

Kind = Literal["none", "all", "leaks", "pairs"]
CLASSES = 3
CHANNELS = 6  # of every model's layer


class TinyImages(Dataset[Example]):
    """Noise, a class by its colour, and a patch in the corner of no image, of all, or of most of class 0.

    ``"pairs"``: those of ``"leaks"``, and the same images once more, all with the patch.
    """

    def __init__(self, count: int = 12, *, artifact: Kind = "leaks", seed: int = 0) -> None:
        if artifact == "pairs":
            both = [TinyImages(count, artifact=kind, seed=seed) for kind in ("leaks", "all")]
            for name in ("labels", "ids", "has_artifact"):
                setattr(self, name, np.concatenate([getattr(part, name) for part in both]))
            self.images, self.masks = (
                torch.cat([getattr(part, name) for part in both]) for name in ("images", "masks")
            )
            return
        rng = np.random.default_rng(seed)
        self.labels = rng.permutation(np.arange(count) % CLASSES)
        self.ids = 100 + np.arange(count)
        chosen = (self.labels == 0) & (rng.random(count) < 0.7)
        self.has_artifact = {"none": np.zeros(count, bool), "all": np.ones(count, bool), "leaks": chosen}[artifact]
        images = rng.normal(size=(count, 3, 8, 8))
        images[np.arange(count), self.labels] += 0.4
        images[self.has_artifact, :, :4, :4] += np.array([1.0, -0.6, 0.8])[:, None, None]
        self.images = torch.from_numpy(images).float()
        self.masks = torch.zeros(count, 8, 8, dtype=torch.bool)
        self.masks[torch.from_numpy(self.has_artifact), :4, :4] = True

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Example:
        return Example(
            self.images[index],
            int(self.labels[index]),
            bool(self.has_artifact[index]),
            self.masks[index],
            int(self.ids[index]),
        )


class ConvHead(nn.Module):
    """Convolution, batch norm and mean pooling behind a pre-activation layer ``features``, a map of 2 x 2."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.act = nn.ReLU()
        self.conv = nn.Conv2d(CHANNELS, 5, 3, padding=1)
        self.norm = nn.BatchNorm2d(5)
        self.fc = nn.Linear(5, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.silu(self.norm(self.conv(self.act(self.features(images)))))
        return self.fc(hidden.mean((2, 3)))


class MLPHead(nn.Module):
    """VGG in small: ReLU in place, max pooling, and fully connected layers with dropout."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, CHANNELS, 3, stride=2, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2)
        )
        self.classifier = nn.Sequential(
            nn.Dropout(dropout),
            nn.Linear(CHANNELS * 4, 8),
            nn.Tanh(),
            nn.Dropout(dropout),
            nn.Linear(8, CLASSES),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.classifier(self.features(images).flatten(1))


class Tokens(nn.Module):
    """A vision transformer's last block: layer norms, attention and a class-wise mean over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.embed = nn.Linear(CHANNELS, CHANNELS)
        self.norm1, self.norm2, self.norm3 = (nn.LayerNorm(CHANNELS) for _ in range(3))
        self.qkv = nn.Linear(CHANNELS, 3 * CHANNELS)
        self.mlp = nn.Sequential(nn.Linear(CHANNELS, 8), nn.GELU(), nn.Linear(8, CHANNELS))
        self.fc = nn.Linear(CHANNELS, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(self.patches(images).flatten(2).transpose(1, 2))
        query, key, value = self.qkv(self.norm1(x)).chunk(3, dim=-1)
        x = x + (query @ key.transpose(1, 2)).softmax(-1) @ value
        x = x + self.mlp(self.norm2(x))
        return self.fc(self.norm3(x).mean(1))


class Residual(nn.Module):
    """A block with a skip connection; its sum has no module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, CHANNELS, 4, stride=4)
        self.branch = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.act = nn.SiLU()
        self.conv = nn.Conv2d(CHANNELS, 5, 2)
        self.fc = nn.Linear(5, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        skip = functional.relu(self.stem(images))
        hidden = self.act(skip + self.branch(skip))
        return self.fc(functional.relu(self.conv(hidden)).flatten(1))


class Untraceable(ConvHead):
    """Looks at its images before it runs, so that it can only be cut by hooks."""

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images if images.shape[1] == 3 and bool(images.isfinite().all()) else images[:, :3])


class ChannelsLast(nn.Module):
    """Maps with their channels last, mixed by a linear layer, as in Swin."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.turn = nn.Conv2d(3, CHANNELS, 4, stride=4), nn.Identity()
        self.mix = nn.Linear(CHANNELS, CHANNELS)
        self.norm, self.hidden, self.fc = nn.LayerNorm(CHANNELS), nn.Linear(CHANNELS, 5), nn.Linear(5, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.turn(self.mix(self.patches(images).permute(0, 2, 3, 1)))
        return self.fc(torch.tanh(self.hidden(self.norm(x))).mean((1, 2)))


@dataclass(frozen=True)
class Case:
    """A model, a layer, and where a hook finds the layer's output: at a module's output or input."""

    build: Callable[[], nn.Module]
    layer: str
    module: str
    side: Literal["output", "input"] = "output"

    def model(self) -> nn.Module:
        """Build it with weights of its own and batch norm statistics that are not trivial; in eval mode."""
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = self.build()
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.running_mean.normal_()
                    module.running_var.uniform_(0.5, 2.0)
        return model.eval()


CASES = {
    "convolution": Case(ConvHead, "features", "features"),
    "mlp": Case(MLPHead, "features.0", "features.0"),
    "tokens": Case(Tokens, "embed", "embed"),
    "graph node": Case(Residual, "add", "act", "input"),
    "skip connection": Case(Residual, "branch", "branch"),
    "hooks": Case(Untraceable, "features", "features"),
}
EVERYWHERE = {**CASES, "channels last": Case(ChannelsLast, "turn", "turn")}


def fit_cav(activations: Activations, k: int = 1) -> CAV:
    """Fit on the artifact bit; ``k > 1`` directions are any that the artifact has a part in.

    With the signal-CAV's own direction among them, all others would have no size.
    """
    rows = np.random.default_rng(5).normal(size=(k, activations.pooled.shape[1]))
    cav = SignalCAV() if k == 1 else GivenCAV(rows)
    return cav.fit(activations.pooled, activations.has_artifact)


def collect(case: Case, model: nn.Module, data: Dataset[Any]) -> Activations:
    return collect_activations(model, case.layer, data)


@dataclass(frozen=True)
class BiasedWorld:
    """A model that learned the shortcut, its training images, and held-out images without and with the artifact."""

    model: nn.Module
    data: TinyImages
    train: Activations
    clean: Activations
    biased: Activations
    cav: CAV

    def scores(self, model: nn.Module, label: int = 0) -> dict[str, float]:
        found = evaluate(model, clean=self.clean, biased=self.biased, biased_class=label, cav=self.cav)
        return {score.metric: score.value for score in found}


def train_at_once(model: nn.Module, data: TinyImages, *, steps: int) -> None:
    """Train on all images in every step."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        loss = functional.cross_entropy(model(data.images), torch.from_numpy(data.labels))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def learn_shortcut(case: Case, *, steps: int) -> BiasedWorld:
    """Fit the CAV within the class that the artifact leaks into."""
    data, model = TinyImages(500), case.model()
    train_at_once(model, data, steps=steps)
    train = collect(case, model, data)
    clean, biased = (collect(case, model, TinyImages(300, artifact=kind, seed=1)) for kind in ("none", "all"))
    inside = data.labels == 0
    cav = SignalCAV().fit(train.pooled[inside], data.has_artifact[inside])
    return BiasedWorld(model, data, train, clean, biased, cav)


def in_double(model: nn.Module, case: Case) -> Cut:
    """Cut the model in float64, where a formula can be compared to ten digits."""
    return split(model.double(), case.layer, example=torch.zeros(1, 3, 8, 8, dtype=torch.float64))


def batch_of(cut: Cut, method: LatentCorrection, activations: Activations, data: TinyImages) -> HeadBatch:
    """Make a batch of all images in float64, tangents by the derivative of phi itself."""
    live = cut.trunk(data.images.double())
    spec = method.features(activations)
    to_start = (lambda *inputs: inputs) if spec.at_layer else (lambda *inputs: cut.phi(*inputs))
    directions = spec.directions
    tangents: tuple[Tensor, ...] = ()
    if directions is not None:
        with exact_forward_mode():
            each = [jvp(to_start, live, spread(torch.from_numpy(row), live))[1] for row in directions]
        tangents = tuple(torch.stack(parts) for parts in zip(*each))
    return HeadBatch(
        values=tuple(part.detach() for part in to_start(*live)),
        tangents=tuple(part.detach() for part in tangents),
        labels=torch.from_numpy(data.labels),
        rows=np.arange(len(data)),
        noise=torch.Generator().manual_seed(0),
        trunk=cut.trunk,
        phi=cut.phi,
    )


def value_and_gradients(
    cut: Cut, method: LatentCorrection, batch: HeadBatch
) -> tuple[Tensor, Tensor, Mapping[str, Tensor]]:
    """Return the logits, the penalty per image, and the gradient of its mean by every parameter of the head."""
    parameters = cut.head_parameters()
    with exact_forward_mode():
        tensors = {**dict(cut.head.named_parameters()), **dict(cut.head.named_buffers()), **parameters}
        logits, penalty = method.loss_terms(FunctionalHead(cut.head_parts(), tensors), batch)
    assert penalty is not None
    return logits.detach(), penalty.detach(), gradients(penalty.mean(), parameters)


def gradients(loss: Tensor, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradient by each parameter; zero where the loss does not depend on it."""
    found = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return {
        name: torch.zeros_like(parameter) if gradient is None else gradient
        for (name, parameter), gradient in zip(parameters.items(), found)
    }


def snapshot(model: nn.Module) -> list[object]:
    """Return everything about a model that a correction must not change."""
    facts: list[object] = [
        (name, tensor.detach().clone().numpy().tobytes(), tensor.requires_grad, tensor.grad is None)
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]
    ]
    for name, module in model.named_modules():
        facts.append((name, type(module), module.training, count_hooks(module), getattr(module, "inplace", None)))
    return facts


def count_hooks(module: nn.Module) -> int:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return sum(map(len, hooks))


class Counted(ImageDataset):
    """So many images per class, all without or all with the artifact; no pixel is read."""

    class_names = ("red", "green")
    transform = Normalize()
    fingerprint = "counted"

    def __init__(self, counts: Mapping[int, int], *, has_artifact: bool) -> None:
        self.labels = np.repeat([*counts], [*counts.values()]).astype(np.int64)
        self.ids = np.arange(len(self.labels))
        self.has_artifact = np.full(len(self.labels), has_artifact)

    def pixels(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        raise NotImplementedError


ENOUGH = {0: 40, 1: 40}


def held_out(
    *,
    val_clean: Mapping[int, int] = ENOUGH,
    val_biased: Mapping[int, int] = ENOUGH,
    test_clean: Mapping[int, int] = ENOUGH,
    test_biased: Mapping[int, int] = ENOUGH,
    inserted: bool = False,
) -> BiasedData:
    """Return sets with so many images of each class."""
    return BiasedData(
        train=Counted(ENOUGH, has_artifact=False),
        val_clean=Counted(val_clean, has_artifact=False),
        val_biased=Counted(val_biased, has_artifact=True),
        test_clean=Counted(test_clean, has_artifact=False),
        test_biased=Counted(test_biased, has_artifact=True),
        biased_class=0,
        artifact="plaster",
        is_localized=True,
        is_inserted=inserted,
    )
