"""The base of corrections of the head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from typing_extensions import Self

from hansfree._internal.progress import Progress, silent
from hansfree._internal.registry import RESERVED, Registered
from hansfree.activations import Activations, Features, compute_features, cut_again
from hansfree.cavs import CAV
from hansfree.corrections.training import FineTuning, HeadBatch, TrainedHead, Watch, WeightedHead, train_heads
from hansfree.errors import DataError, DivergedError, OptionError
from hansfree.models.surgery import Split, insert_after


class Correction(Registered, ABC):
    """A way to unlearn a bias. A member says how a batch is judged (:meth:`forward`), and what differs from the rest.

    Args:
        strength: What multiplies the member's penalty.
        tuning: The recipe of the fine-tuning.
    """

    kind = "method"
    title: ClassVar[str]  # its name as users know it from the paper; the registered name by default
    has_strength: ClassVar[bool] = False
    grid: ClassVar[tuple[float, ...]] = ()  # the strengths that a run tries
    paper_grid: ClassVar[tuple[float, ...]] = ()  # the paper's, for the units of :meth:`for_paper`
    uses_masks: ClassVar[bool] = False  # it is told where the artifact is
    uses_pairs: ClassVar[bool] = False  # it learns from images without the artifact and the same ones with it put in
    depends_on_seed: ClassVar[bool] = True  # another seed makes another model, unless the optimizer is "converged"
    is_default: ClassVar[bool] = True  # it runs where no method is named: the paper's do, later rivals do not

    def __init_subclass__(cls, *, name: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(name=name, **kwargs)
        if name is not None:
            cls.title = cls.__dict__.get("title", name)  # never that of the method it is a variation of

    def __init__(self, *, strength: float = 1.0, tuning: FineTuning | None = None) -> None:
        if not (np.isfinite(strength) and strength >= 0):
            raise OptionError(f"strength is {strength}; it must be a number of at least 0.")
        self.strength = strength
        self.tuning = tuning or FineTuning()

    @classmethod
    def strengths_to_try(cls, given: Sequence[float] | None = None) -> list[float]:
        """Return what the strength is chosen from: those given, or its own grid; nothing where it has none."""
        return sorted(set(given or cls.grid)) if cls.has_strength else []

    @classmethod
    def defaults(cls) -> list[str]:
        """Return the names of the members that run where none is named, in their order."""
        return [name for name, member in cls.members().items() if member.is_default]

    @classmethod
    def for_run(cls, *, cav: CAV, images: Dataset[Any], tuning: FineTuning) -> Self:
        """Make a member from what a run has: a CAV, and the training images with masks."""
        return cls(tuning=tuning)

    @classmethod
    def for_paper(cls, *, cav: CAV, images: Dataset[Any], tuning: FineTuning) -> Self:
        """Make a member whose strength means what it means in the paper."""
        return cls.for_run(cav=cav, images=images, tuning=tuning)

    def describe(self) -> dict[str, str]:
        """Return what the table of results says about the options of this member."""
        return {"method": self.name}

    @abstractmethod
    def forward(self, head: WeightedHead, batch: HeadBatch) -> tuple[Tensor, Tensor | None]:
        """Return the logits, and the penalty whose mean the strength multiplies (None for none)."""

    @property
    def at_layer(self) -> bool:
        """Say whether training starts at the layer itself instead of at the first trainable parameter."""
        return False

    @property
    def takes_steps(self) -> bool:
        """Say whether :meth:`forward` needs the changes that whole steps along the directions make, not tangents."""
        return False

    @property
    def reads_features(self) -> bool:
        """Whether all that it asks for follows from what the head makes of the features and of sums of them."""
        return not self.at_layer and not self.uses_masks

    @property
    def unsolvable(self) -> str:
        """Why the penalty is no fixed function of the head's weights, with a minimum to go to; empty where it is."""
        return "" if self.reads_features else f"{self.name} needs more than what enters the head"

    def squared_outputs(self, logits: Tensor) -> Tensor | None:
        """Return outputs, linear in the logits, whose squared changes by tangents are all of the penalty; else None.

        Asked for heads that are one linear layer, of which a derivative and a whole step are the same.
        """
        return None

    def directions(self, activations: Activations) -> np.ndarray | None:
        """Return the directions whose tangents :meth:`forward` needs, ``(k, channels)``."""
        return None

    def training_edit(self, activations: Activations) -> nn.Module | None:
        """Return what happens to the layer's output while training."""
        return None

    def inference_edit(self, activations: Activations) -> nn.Module | None:
        """Return what the corrected model does to the layer's output for good."""
        return None

    def remark(self, activations: Activations, *, clean: Activations, biased: Activations | None) -> str:
        """Return a sentence that belongs beside the results, empty where there is nothing to add.

        Args:
            activations: What it was trained on.
            clean: Held-out images without the artifact.
            biased: Held-out images with it, where there are any.
        """
        return ""

    def check(self, cut: Split, activations: Activations) -> None:
        """Raise before any work starts when these activations cannot serve."""
        if len(activations) == 0 or int(activations.labels.min()) < 0:
            raise DataError("Fine-tuning needs images with labels of at least 0.")
        if (largest := int(activations.labels.max())) >= (classes := count_classes(cut, activations)):
            raise DataError(f"There are labels up to {largest}, but the model has the classes 0 to {classes - 1}.")

    def correct(self, model: nn.Module, activations: Activations, *, progress: Progress = silent) -> nn.Module:
        """Return a corrected model of the same class; ``model`` stays as it is."""
        cut = cut_again(model, activations)
        (trained,) = self.train(cut, activations, [self.strength], progress=progress)
        if not trained.is_finite:
            raise DivergedError(f"{type(self).__name__} {self.tell_divergence()}")
        return self.install(model, cut, activations, trained.state)

    def tell_divergence(self) -> str:
        """Return the words for a training that diverged: with strength and rate, as far as they say anything."""
        settings = [f"at strength {self.strength:g}"] if self.has_strength else []
        if self.tuning.optimizer != "converged":
            settings.append(f"with a learning rate of {self.tuning.learning_rate:g}")
        advice = ("", " Use a smaller one.", " Use a smaller one of the two.")[len(settings)]
        return f"{' '.join(['diverged', *settings])}: the weights are not finite.{advice}"

    def train(
        self,
        cut: Split,
        activations: Activations,
        strengths: Sequence[float],
        *,
        watch: Watch | None = None,
        progress: Progress = silent,
        label: str | None = None,
    ) -> Iterator[TrainedHead]:
        """Fine-tune one head per strength on the same cache (:func:`hansfree.corrections.training.train_heads`).

        Args:
            label: What progress and warnings call it; its own name by default.
        """
        self.check(cut, activations)
        features, label = self.features(cut, activations), label or self.name
        return train_heads(cut, features, self, strengths, self.tuning, watch=watch, progress=progress, label=label)

    def features(self, cut: Split, activations: Activations) -> Features:
        """Return what the head is trained on."""
        return compute_features(
            cut,
            activations,
            directions=self.directions(activations),
            edit=self.training_edit(activations),
            at_layer=self.at_layer,
            whole_steps=self.takes_steps,
        )

    def install(self, model: nn.Module, cut: Split, activations: Activations, state: dict[str, Tensor]) -> nn.Module:
        """Return a copy of the model with a trained head and the module that the method inserts, if any."""
        corrected = cut.model_with(state, model)
        edit = self.inference_edit(activations)
        if edit is None:
            return corrected
        like = next(corrected.parameters())
        return insert_after(corrected, activations.layer, edit.to(like.device, like.dtype), order=cut.order)


class CAVCorrection(Correction):
    """A correction along the directions of a fitted CAV."""

    def __init__(self, cav: CAV, *, strength: float = 1.0, tuning: FineTuning | None = None) -> None:
        super().__init__(strength=strength, tuning=tuning)
        self.cav = cav

    @classmethod
    def for_run(cls, *, cav: CAV, images: Dataset[Any], tuning: FineTuning) -> Self:
        """Make a member along the run's CAV."""
        return cls(cav, tuning=tuning)

    def describe(self) -> dict[str, str]:
        """Add what the CAV is called."""
        return {**super().describe(), "cav": self.cav.label}

    def check(self, cut: Split, activations: Activations) -> None:
        """Refuse a CAV of another layer."""
        super().check(cut, activations)
        self.cav.check_layer(activations.layer, activations.pooled.shape[1])


def count_classes(cut: Split, activations: Activations) -> int:
    """Return how many classes the model tells apart, from one image."""
    cut.eval_mode()
    with torch.no_grad():
        return int(cut.head(*cut.phi(*next(activations.stream(batch_size=1)))).shape[1])


def goes_along_cav(method: str) -> bool:
    """Tell whether a registered method goes along a CAV at all."""
    return issubclass(Correction.named(method), CAVCorrection)


def along_cavs(methods: Sequence[str], cavs: Sequence[str]) -> Iterator[str]:
    """Yield each method and, where it goes along a CAV, its names along further ones."""
    for method in methods:
        yield method
        if goes_along_cav(method):
            yield from (f"{method}{RESERVED}{cav}" for cav in cavs)


def split_name(name: str) -> tuple[str, str | None]:
    """Return the method's own name, and the further CAV that it goes along (None: the run's); nothing is checked."""
    method, _, cav = name.partition(RESERVED)
    return method, cav or None


def method_named(name: str) -> type[Correction]:
    """Return the member that a name is about; one that nobody has, or that cannot go that way, is an error."""
    method, cav = split_name(name)
    member = Correction.named(method)
    if RESERVED in name:
        CAV.named(cav or "")
        if not goes_along_cav(method):
            raise OptionError(f"There is no {name!r}: {method} goes along no CAV. Leave out {RESERVED}{cav}.")
    return member
