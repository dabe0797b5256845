"""Q3: classes are ranked by the unpoisoned model, and compared with Vanilla image by image."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hansfree.corrections import RRClArC
from hansfree.data.biased import BiasedData
from hansfree.errors import DataError
from hansfree.paper.experiments import (
    _for_one_class,
    _groups,
    rank_classes,
)
from hansfree.paper.runner import Reproduction
from tests.paper.conftest import Examine
from tests.pipeline.studies import Natural, Single, opened, rows_like

Q3 = Reproduction.named("q3")


def test_classes_are_ranked_by_the_rise_of_their_logit_in_the_unpoisoned_model(work: Path) -> None:
    with opened(work, Single()) as subject:
        experiment, data = subject.experiment, subject.data
        reference = experiment.setting.reference()
        assert reference is not None
        with torch.no_grad():
            rises = [
                np.mean(
                    [
                        float(reference(b.image[None])[0, label] - reference(c.image[None])[0, label])
                        for b, c in zip(data.test_biased, data.test_clean)
                    ]
                )
                for label in range(4)
            ]
        best = max(range(1, 4), key=lambda label: rises[label])
        assert rank_classes(experiment, data) == [best], "a third of four classes, without the biased one"


def test_changes_are_accuracies_minus_vanillas_on_the_same_images(examine: Examine, work: Path) -> None:
    finding = examine("q3", Single())
    with opened(work, Single()) as subject:
        labels = subject.data.test_clean.labels
        names = subject.data.test_clean.class_names
        methods = ("vanilla", "p-clarc", "rr-clarc class-0")
        kept = {name: subject.experiment.predictions.load(name)["correct_clean"] for name in methods}
    (selected,) = finding.notes["selected"]
    inside = labels == names.index(selected)
    for method, target in (("p-clarc", None), ("rr-clarc", "0")):
        (row,) = rows_like(finding.rows, method=method, target=target, metric="accuracy_change_selected")
        name = method if target is None else f"{method} class-{target}"
        expected = np.mean(kept[name][inside].astype(float) - kept["vanilla"][inside].astype(float))
        assert row.value == pytest.approx(expected)
        assert row.n == inside.sum()
    changes = [row for row in finding.rows if row.metric.startswith("accuracy_change_")]
    assert {row.value for row in changes if row.method == "vanilla"} == {0.0}
    assert {(row.method, row.target) for row in changes} >= {("rr-clarc", "0"), ("rr-clarc", "expected"), ("rrr", "0")}
    assert {row.metric.removeprefix("accuracy_change_") for row in changes} == {"selected", "random", "all"}
    text = Q3().present([finding])[0]
    assert 0 < text.index(f": {selected}") < text.index("## The paper's claims")
    assert f"RR-ClArC (class {names[0]})" in text
    assert "best on biased images" not in text, "only claims about selected classes"


def test_groups_are_disjoint_and_leave_the_biased_class_out(work: Path) -> None:
    with opened(work, Single()) as subject:
        data = subject.data
    groups = _groups(data, [2], seed=0)
    assert set(data.test_clean.labels[groups["selected"]]) == {2}
    (drawn,) = set(data.test_clean.labels[groups["random"]])
    assert drawn in (1, 3)
    assert groups["all"].all()
    assert {int(data.test_clean.labels[_groups(data, [2], seed=seed)["random"]][0]) for seed in range(9)} == {1, 3}


def test_of_two_classes_there_is_no_random_one(work: Path) -> None:
    class Two(Single):
        def data(self, model: str) -> BiasedData:
            data = super().data(model)
            for images in (data.train, data.val_clean, data.val_biased, data.test_clean, data.test_biased):
                images.labels = images.labels % 2
            return data

    assert set(_groups(Two().data("demo"), [1], seed=0)) == {"selected", "all"}


@pytest.mark.parametrize("grid", ["own", "paper"])
def test_methods_for_one_class_are_in_the_units_of_the_others(grid: str, work: Path) -> None:
    with opened(work, Single()) as subject:
        experiment = subject.experiment
        experiment.setting = replace(experiment.setting, grid=grid, strengths={"rrr": (7.0,)})
        rrr, rr_clarc = _for_one_class(experiment, 1, ["rrr", "rr-clarc"])
        method = rr_clarc.make(cav=experiment.workspace.cav, images=subject.data.train, tuning=None)
    assert isinstance(method, RRClArC)
    assert (method.target, method.scale) == (1, "paper" if grid == "paper" else "artifact")
    assert rr_clarc.strengths == (RRClArC.info.paper_strengths if grid == "paper" else None)
    assert rrr.strengths == (7.0,)
    assert [v.name for v in _for_one_class(experiment, 1, ["rr-clarc"])] == ["rr-clarc class-1"]


def test_vanilla_is_run_even_where_it_is_left_out(tmp_path: Path) -> None:
    with opened(tmp_path, Single(), left_out=("vanilla", "rrr", "a-clarc")) as subject:
        finding = Q3().examine(subject)
    assert {row.method for row in finding.rows} == {"vanilla", "p-clarc", "rr-clarc"}


def test_without_an_unpoisoned_model_or_pairs_it_is_refused(work: Path) -> None:
    with opened(work, Natural()) as subject, pytest.raises(DataError, match="natural-plaster-demo has no unpoisoned"):
        Q3().examine(subject)
