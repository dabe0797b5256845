"""The whole state of a training on disk, so that a killed one goes on as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from hansfree.datasets.base import ExampleSet
from hansfree.errors import CacheError
from hansfree.files import written_atomically
from hansfree.fingerprints import fingerprint, fingerprint_model


@dataclass(frozen=True)
class Checkpoint:
    """A file with the state after the last whole epoch, and what it belongs to."""

    path: Path
    belongs_to: dict[str, str]

    @classmethod
    def of(cls, path: Path, model: nn.Module, data: ExampleSet, options: object) -> Checkpoint:
        """Return the checkpoint of training ``model``, as it is now, on the data; ``options`` count by their repr."""
        return cls(
            path,
            {
                "first weights": fingerprint_model(model),
                "data": fingerprint(data.pictures),
                "options": repr(options),
            },
        )

    def restore(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, schedule: torch.optim.lr_scheduler.LRScheduler
    ) -> int:
        """Load the state from disk, where there is one; return how many epochs are done."""
        if not self.path.exists():
            return 0
        state = self._read()
        for part, here in self.belongs_to.items():
            if (there := state["belongs_to"].get(part)) != here:
                raise CacheError(
                    f"The checkpoint {str(self.path)!r} belongs to a training with other {part}: {there}, here {here}. "
                    "Remove it to start anew, or give another path."
                )
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        return int(state["epoch"])

    def write(
        self,
        epoch: int,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LRScheduler,
    ) -> None:
        """Store the state after so many epochs."""
        state = {
            "belongs_to": self.belongs_to,
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
        }
        with written_atomically(self.path) as temporary:
            torch.save(state, temporary)

    def _read(self) -> dict[str, Any]:
        try:
            state = torch.load(self.path, map_location="cpu", weights_only=True)
        except Exception as error:  # damaged bytes can end the unpickler in any kind of error
            raise CacheError(f"The checkpoint {str(self.path)!r} cannot be read ({error}). Remove it.") from error
        if not isinstance(state, dict) or "belongs_to" not in state:
            raise CacheError(f"{str(self.path)!r} is not a checkpoint of a training. Give another path.")
        return state
