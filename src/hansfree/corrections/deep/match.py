"""Match: train the network until artifact and non-artifact images of a class have the same mean features."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from hansfree.corrections.base import MethodInfo, Need
from hansfree.corrections.deep.base import DeepCorrection, NetworkTuning, Objective, Step
from hansfree.corrections.deep.images import TrainingImages
from hansfree.corrections.deep.stages import Stage, collect_pooled, find_stages, recorded
from hansfree.errors import DataError

GROUP_SIZE = 12  # artifact images, and as many non-artifact images, of one class per step
MEMORY = 0.9  # share of the running gap that a step keeps


class Match(DeepCorrection, name="match"):
    """Drive the signal-CAV to zero at every depth.

    A signal-CAV is the difference of the mean features of artifact and non-artifact images. The penalty is its squared
    length within each class, relative to the variance of the features, at the outputs of the network's stages, mean-
    and max-pooled. Artifact images that would predict the class are in the penalty only, never in the task loss.

    Examples:
        >>> import hansfree as hf
        >>> from hansfree.corrections import NetworkTuning
        >>> lesions = hf.SyntheticLesions(80, size=16, classes=2)
        >>> images = hf.WithArtifact(lesions, hf.Timestamp(), share=0.5, only_class=0, elsewhere=0.2)
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.Linear(36, 2))
        >>> type(hf.Match(strength=3.0, tuning=NetworkTuning(epochs=1)).correct(model, images)).__name__
        'Sequential'
    """

    info = MethodInfo(title="Match", strengths=(3.0,), needs=frozenset({Need.ARTIFACT_LABELS}))

    def __init__(self, *, strength: float = 3.0, tuning: NetworkTuning | None = None) -> None:
        super().__init__(strength=strength, tuning=tuning)

    def check(self, images: TrainingImages) -> None:
        """Raise DataError if some artifact has no class with enough images both with and without it."""
        super().check(images)
        missing = set(range(images.artifacts.shape[1])) - {group.artifact for group in images.groups()}
        if missing:
            raise DataError(
                "No class has enough images both with and without the artifact to compare (artifact "
                f"{', '.join(map(str, sorted(missing)))})."
            )

    def objective(self, network: nn.Module, images: TrainingImages) -> Objective:
        """Find the stages, and start the running gaps from all training images."""
        return _Matching(network, images, find_stages(network, images.batch([0, 1]).to(self.tuning.device)))


class _Matching(Objective):
    def __init__(self, network: nn.Module, images: TrainingImages, stages: tuple[Stage, ...]) -> None:
        super().__init__()
        self.stages, self.groups = stages, images.groups()
        needed = np.unique(np.concatenate([rows for group in self.groups for rows in (group.with_it, group.without)]))
        place = np.full(len(images), -1)
        place[needed] = np.arange(len(needed))
        for index, values in enumerate(collect_pooled(network, images.all_batches(needed), stages)):
            gaps, variances = [], []
            for group in self.groups:
                artifact, clean = values[place[group.with_it]], values[place[group.without]]
                gaps.append(artifact.mean(0) - clean.mean(0))
                variances.append(torch.cat([artifact, clean]).var(0).sum(-1))
            self.register_buffer(f"gap_{index}", torch.stack(gaps))  # (groups, poolings, channels)
            self.register_buffer(f"variance_{index}", torch.stack(variances).mean(0))  # (poolings,)

    def draw(self, task_rows: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, int]:
        """Return artifact and non-artifact images of one class; all classes and artifacts take turns at random."""
        group = int(rng.integers(len(self.groups)))
        chosen = [
            rng.choice(rows, GROUP_SIZE, replace=len(rows) < GROUP_SIZE)
            for rows in (self.groups[group].with_it, self.groups[group].without)
        ]
        return np.concatenate(chosen), group

    def terms(self, network: nn.Module, step: Step, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits of the task images, and the squared gap of the drawn group at all stages."""
        count, group = len(step.task_rows), step.choice
        with recorded(network, self.stages) as pooled:
            logits = network(images)
        penalty = logits.new_zeros(())
        for index, stage in enumerate(self.stages):
            features = pooled[stage.name][count:]
            gap = features[:GROUP_SIZE].mean(0) - features[GROUP_SIZE:].mean(0)
            running = getattr(self, f"gap_{index}")
            penalty = penalty + matching_penalty(gap, running[group].clone(), getattr(self, f"variance_{index}"))
            running[group].mul_(MEMORY).add_(gap.detach(), alpha=1 - MEMORY)
        return logits[:count], penalty / len(self.stages)


def matching_penalty(gap: Tensor, running: Tensor, variance: Tensor) -> Tensor:
    """Return the squared gap relative to the variance, averaged over poolings; both are ``(poolings, channels)``.

    One factor is the gap of this step, the other the running gap, in which the noise of single batches has averaged
    out: a squared gap of one small batch would be mostly its noise, and shrink all features.
    """
    products: Tensor = torch.linalg.vecdot(gap, running)
    return (products.clamp_min(0) / variance).mean()
