from __future__ import annotations

from torch import nn

from hansfree.splitting import on_device


def test_a_part_is_copied_to_another_device_and_stays_where_it_was() -> None:
    part = nn.Linear(2, 3)
    assert on_device(part, "cpu") is part
    moved = on_device(part, "meta")
    assert moved.weight.device.type == "meta"
    assert part.weight.device.type == "cpu"
