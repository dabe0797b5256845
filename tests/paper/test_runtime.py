"""Run times: ten turns of every method, measured once and kept."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from hansfree.corrections import LatentCorrection
from hansfree.paper.runner import Reproduction
from tests.paper.conftest import Examine
from tests.pipeline.studies import Single, opened


def test_every_method_takes_ten_turns_after_one_that_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: Counter[str] = Counter()
    epochs = set()
    train = LatentCorrection.train

    def counted(self: LatentCorrection, *args: object, **options: object) -> object:
        calls[self.name] += 1
        epochs.add(self.tuning.epochs)
        return train(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LatentCorrection, "train", counted)
    with opened(tmp_path, Single(), left_out=("rrr",)) as subject:
        finding = Reproduction.named("runtime")().examine(subject)
    timed = {name: 11 for name in LatentCorrection.defaults() if name != "rrr"}
    assert calls == timed
    assert epochs == {1}
    assert Counter(row.method for row in finding.rows) == dict.fromkeys(timed, 10)
    assert all(row.value > 0 for row in finding.rows)
    assert {row.metric for row in finding.rows} == {"seconds_per_epoch"}


def test_times_are_measured_once(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    first = examine("runtime", Single())
    monkeypatch.setattr(LatentCorrection, "train", None)
    assert examine("runtime", Single()).rows == first.rows
