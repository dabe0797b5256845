"""Heatmaps: ours against plain zennit with its own canonizers."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.speed.measures import rate, ratio
from benchmarks.speed.race import Outcome, Race
from benchmarks.speed.subject import Subject
from benchmarks.speed.timing import take_turns, timed
from hansfree._internal.progress import Progress
from hansfree.heatmaps import compute_heatmaps

_BATCH = 8
_TARGET = 0


class LRPRace(Race, name="lrp"):
    """The same composite, batch and images on both sides; ours checks and canonises the model each time."""

    def measure(self, subject: Subject, progress: Progress) -> Outcome:
        """Let both explain one class."""
        wanted = subject.sizes.heatmaps // 4 if subject.is_large else subject.sizes.heatmaps
        n = min(wanted, len(subject.images.train))
        images = subject.images.train.batch(range(n)).image
        sides = {
            "ours": timed(lambda: compute_heatmaps(subject.model, images, _TARGET, batch_size=_BATCH)),
            "zennit": timed(lambda: zennit_heatmaps(subject, images)),
        }
        zennit_heatmaps(subject, images[:1])  # to warm up
        compute_heatmaps(subject.model, images[:1], _TARGET, batch_size=_BATCH)
        seconds = take_turns(sides, turns=subject.sizes.turns, progress=progress, label=f"lrp {subject.name}")
        name = subject.name
        return Outcome(
            (
                ratio(f"{name}.heatmaps_over_zennit", seconds["ours"], seconds["zennit"]),
                rate(f"{name}.heatmaps_per_second", n, seconds["ours"]),
            ),
            {"images": n, "batch": _BATCH},
            (f"{name}: zennit has no rule for squeeze-excite and loses relevance there; only its time counts.",)
            if subject.name == "efficientnet_b0"
            else (),
        )


def zennit_heatmaps(subject: Subject, images: Tensor) -> Tensor:
    """Return heatmaps as zennit's own documentation makes them."""
    from zennit.attribution import Gradient
    from zennit.composites import EpsilonPlusFlat
    from zennit.torchvision import ResNetCanonizer, VGGCanonizer

    # VGG's canonizer merges batch norms wherever they follow a convolution: the most that zennit has for other models.
    canonizer = ResNetCanonizer() if subject.name == "resnet18" else VGGCanonizer()
    maps = []
    with Gradient(model=subject.model, composite=EpsilonPlusFlat(canonizers=[canonizer])) as attributor:
        for batch in torch.split(images, _BATCH):
            _, relevance = attributor(batch.clone(), _start)
            maps.append(relevance.sum(1))
    return torch.cat(maps)


def _start(logits: Tensor) -> Tensor:
    only = torch.zeros_like(logits)
    only[:, _TARGET] = logits.detach()[:, _TARGET]
    return only
