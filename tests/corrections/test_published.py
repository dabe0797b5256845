"""Penalties and their gradients against the values that the authors' published code gives."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from hansfree.cavs import GivenCAV
from hansfree.corrections import RRR, LatentCorrection, RRClArC
from hansfree.models.surgery import split
from tests.corrections.examples import TinyImages, batch_of, value_and_gradients

Published = Mapping[str, np.ndarray]
EXACT = {"rtol": 1e-9, "atol": 1e-12}
HEADS = {
    "rrA": lambda: nn.Sequential(
        OrderedDict(
            layer=nn.Identity(), bend=nn.ReLU(), conv=nn.Conv2d(12, 8, 3, padding=1), again=nn.ReLU(),
            pool=nn.AvgPool2d(2), flat=nn.Flatten(), fc1=nn.Linear(48, 10), last=nn.ReLU(), fc2=nn.Linear(10, 5),
        )
    ),
    "rrB": lambda: nn.Sequential(
        OrderedDict(
            layer=nn.Identity(), bend=nn.ReLU(), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(), fc=nn.Linear(12, 5)
        )
    ),
}  # fmt: skip
TARGETS = {"all_logits": "all", "logprobs": "logprob", "target_logit_class3": 3, "all_logits_random": "random"}
NORMS = {"l1": "absolute", "l2": "squared", "cosine": "cosine"}


def images_of(published: Published, case: str) -> TinyImages:
    data = TinyImages(len(published[f"{case}_x"]))
    data.images, data.labels = torch.from_numpy(published[f"{case}_x"]), published[f"{case}_y"]
    return data


def check(
    published: Published,
    key: str,
    suffix: str,
    model: nn.Module,
    layer: str,
    method: LatentCorrection,
    data: TinyImages,
) -> None:
    """Compare the mean penalty, and its gradient by all parameters behind the layer."""
    weights = f"{key.split('_')[0]}_w_"
    model.double().load_state_dict({n: torch.from_numpy(published[weights + n]) for n, _ in model.named_parameters()})
    cut = split(model.eval(), layer, example=data.images[:1])
    batch = batch_of(cut, method, SimpleNamespace(shape=data.images.shape[1:]), data)  # type: ignore[arg-type]
    _, penalty, slopes = value_and_gradients(cut, method, batch)
    torch.testing.assert_close(penalty.mean(), torch.tensor(published[key + suffix]), **EXACT)
    expected: dict[str, Tensor] = {
        name: torch.from_numpy(published[f"{key}{suffix}_g_{name}"]) for name in cut.head_parameters()
    }
    assert expected
    torch.testing.assert_close(dict(slopes), expected, **EXACT)


@pytest.mark.parametrize("positions", ["sum", "each"])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("head", HEADS)
def test_rr_clarc_in_the_papers_scale(
    published: Published, head: str, target: str, norm: str, positions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"target": TARGETS[target], "norm": NORMS[norm], "positions": positions}
    cav = GivenCAV(published["rr_cav"]).fit(np.random.default_rng(0).normal(size=(9, 12)), np.arange(9) < 4)
    for seed in ("_s8601", "_s8602", "_s8603") if target == "all_logits_random" else ("",):
        if seed:
            signs = torch.from_numpy(published[f"{head}_signs{seed}"])
            monkeypatch.setattr(torch, "randint", lambda *_, signs=signs, **__: (signs + 1) / 2)
        method = RRClArC(cav, scale="paper", **options)
        key = f"{head}_{target}_{norm}{'_mean' * (positions == 'sum')}"
        check(published, key, seed, HEADS[head](), "layer", method, images_of(published, "rr"))


@pytest.mark.parametrize("masks", ["binary", "soft"])
def test_rrr_by_the_cosine(published: Published, masks: str) -> None:
    model = nn.Sequential(
        OrderedDict(
            conv1=nn.Conv2d(3, 6, 3, padding=1), bend=nn.ReLU(), pool=nn.MaxPool2d(2),
            conv2=nn.Conv2d(6, 6, 3, stride=2, padding=1), last=nn.ReLU(), flat=nn.Flatten(), fc=nn.Linear(54, 4),
        )
    )  # fmt: skip
    data = images_of(published, "rrr")
    data.masks = torch.from_numpy(published[f"rrr_mask_{masks}"])
    data.has_artifact = published[f"rrr_mask_{masks}"].any((1, 2))
    check(published, f"rrr_explogsum_{masks}", "", model, "conv1", RRR(data, norm="cosine"), data)
