from __future__ import annotations

import pytest
import torch
from torch import nn

from hansfree.errors import OptionError
from hansfree.models.surgery import check_device, forward_mode, on_device


@pytest.mark.parametrize(
    ("device", "sentence"),
    [
        ("gpu", "There is no device 'gpu'. Did you mean 'cpu'? Known: cpu, cuda, mps."),
        ("cpu:first", "There is no device 'cpu:first'."),
        (0, "There is no device 0. Known: cpu, cuda, mps."),
        ("cuda:1", "This machine, or this PyTorch, has no 'cuda' device. Take the device 'cpu'."),
    ],
)
def test_a_device_that_there_is_not_is_refused(device: str, sentence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forward_mode._KINDS, "cuda", lambda: False)
    with pytest.raises(OptionError) as told:
        check_device(device)
    assert str(told.value).startswith(sentence)


@pytest.mark.parametrize("device", ["cuda:2", "cuda:9"])
def test_a_card_beyond_the_last_is_refused_with_those_there_are(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(forward_mode._KINDS, "cuda", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for there in ("cuda", "cuda:0", "cuda:1"):
        check_device(there)
    with pytest.raises(OptionError) as told:
        check_device(device)
    assert str(told.value) == f"There is no device {device!r}. This machine has cpu, cuda:0, cuda:1."


def test_a_device_is_a_name_with_or_without_a_number_or_torchs_own() -> None:
    for device in ("cpu", "cpu:0", torch.device("cpu")):
        check_device(device)  # type: ignore[arg-type]


def test_a_part_is_copied_to_another_device_and_stays_where_it_was() -> None:
    part = nn.Linear(2, 3)
    assert on_device(part, "cpu") is part
    moved = on_device(part, "meta")
    assert moved.weight.device.type == "meta"
    assert part.weight.device.type == "cpu"
