"""How much is measured: enough to tell, little enough to end."""

from __future__ import annotations

from dataclasses import dataclass

from hansfree.errors import OptionError
from hansfree.models import architecture_named


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The amounts that all races go by; the defaults are meant to end within 45 minutes on two cores.

    Of a model with a large head (VGG-16) one batch of training images goes through the model, and is counted several
    times.
    """

    models: tuple[str, ...] = ("resnet18", "efficientnet_b0", "vgg16")
    images: int = 256  # for training; a quarter as many for validation, without and with the artifact
    batch: int = 64
    at_large_head: int = 2_560  # training images of a large head, a multiple of the batch
    size: int = 224  # pixels
    turns: int = 3
    heatmaps: int = 32  # a quarter as many of a model with a large head
    samples: int = 400  # of a CAV
    channels: int = 512
    remembered: tuple[int, ...] = (1_000, 4_000, 16_000)  # images of which the peak of memory is taken
    classes: tuple[int, ...] = (8, 64, 1_000)  # of which the growth is taken

    def __post_init__(self) -> None:
        """Refuse what cannot be measured before anything starts."""
        for model in self.models:
            architecture_named(model)
        if not self.models or self.turns < 1:
            raise OptionError(f"A bench needs a model and a turn; given {len(self.models)} and {self.turns}.")
        if self.batch < 1 or self.images < 4 * self.batch or self.images % (4 * self.batch):
            raise OptionError(
                f"images is {self.images} and batch {self.batch}; images must be a multiple of four batches, so that "
                "every timed step is a full one, also with a half and a quarter of the images."
            )


TRIAL = Sizes(
    models=("demo",),
    images=64,
    batch=16,
    at_large_head=64,
    size=32,
    turns=2,
    heatmaps=8,
    samples=60,
    channels=16,
    remembered=(100, 200, 400),
    classes=(8, 16, 32),
)
"""``--quick``: whether everything works, in seconds. Its numbers say nothing about speed."""
