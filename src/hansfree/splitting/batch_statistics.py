"""Refuse batch norms that normalise by the batch itself, also in eval mode.

An image's activations would depend on the images that share its batch, so that no cache could hold them; and torch's
gradient through the forward-mode derivative of such a norm is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm
from torch.overrides import TorchFunctionMode

from hansfree.errors import SplitError
from hansfree.splitting.graph import Traced

_BATCH_NORMS = {functional.batch_norm, torch.batch_norm, torch.native_batch_norm}


def check_batch_norms(traced: Traced) -> None:
    """Refuse a graph with such a norm."""
    for node in traced.graph.nodes:
        module = traced.module_of(node)
        if isinstance(module, _BatchNorm) and module.running_mean is None and module.running_var is None:
            raise SplitError(_sentence(f"{node.target!r} of {type(traced.root).__name__}"))
        if isinstance(node, fx.Node) and node.target in _BATCH_NORMS and _is_training(node.args, node.kwargs):
            raise SplitError(_sentence(f"{node.name!r} of {type(traced.root).__name__}"))


class NoBatchStatistics(TorchFunctionMode):
    """Refuse such a norm wherever it runs in the block: for models, or modules inside them, that are not traced."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in _BATCH_NORMS and _is_training(args, kwargs or {}):
            raise SplitError(_sentence("The model"))
        return func(*args, **(kwargs or {}))


def _is_training(args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    # All of them have the flag at the same place.
    return bool(kwargs.get("training", args[5] if len(args) > 5 else False))


def _sentence(who: str) -> str:
    return (
        f"{who} normalises by the statistics of the batch in eval mode too, so that an image's activations depend on "
        "the images beside it. Use a batch norm with running statistics (track_running_stats=True)."
    )
