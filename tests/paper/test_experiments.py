"""The paper's experiments on a tiny subject: what each runs, scores and shows."""

from __future__ import annotations

import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from hansfree.cavs import CAV
from hansfree.corrections import LatentCorrection
from hansfree.errors import DataError
from hansfree.models import build_model
from hansfree_paper.aggregate import Finding, SubjectKey
from hansfree_paper.experiments import measure_rises, rank_classes
from hansfree_paper.runner import Reproduction
from hansfree_paper.subjects import Plan
from tests.paper.conftest import Made
from tests.pipeline.studies import PLAN, Joint, Natural, Single, opened, rows_like, value_of

METHODS = {"vanilla", "rrr", "p-clarc", "a-clarc", "rr-clarc"}
GREY = np.full((2, 8, 8, 3), 128, dtype=np.uint8)


def experiment(name: str) -> Reproduction:
    return Reproduction.named(name)()


# Overview


def biases(artifact: str, biased: np.ndarray, *, model: str = "demo") -> Finding:
    arrays = {"clean": GREY, "biased": biased.astype(np.uint8)}
    return Finding(key=SubjectKey("d", artifact, model), rows=[], arrays=arrays, notes={"is_inserted": True})


@pytest.mark.parametrize(
    ("findings", "figures"),
    [
        ([biases("lsb", GREY ^ 0b111)], ["biases", "lsb"]),
        ([biases("nothing", GREY)], ["biases"]),
        ([biases("bright", GREY + 40), biases("lsb", GREY ^ 1)], ["biases", "lsb"]),
        ([biases("a", GREY), biases("a", GREY, model="vgg16")], ["biases"]),
    ],
)
def test_hidden_bits_are_shown_where_only_low_bits_differ(findings: list[Finding], figures: list[str]) -> None:
    drawings = [drawing for drawing in experiment("overview").present(findings)[1] if drawing]
    assert [drawing.name for drawing in drawings] == figures
    assert drawings[0].alt.count("d · ") == len({finding.key.artifact for finding in findings})


# Q1


def test_s_of_every_sample_is_the_cosine_with_its_own_change(made: Made) -> None:
    finding = made.finding("q1")
    with made.subject() as subject:
        workspace, model, data = subject.experiment.workspace, subject.experiment.setting.model, subject.data
        h = workspace.cavs["signal"].directions_[0]

    def pooled(image: torch.Tensor) -> np.ndarray:
        with torch.no_grad():
            maps = model.features[:11](image[None])[0]
        return maps.amax((1, 2)).double().numpy()

    cosines = []
    for biased, clean in zip(data.test_biased, data.test_clean):
        change = pooled(biased.image) - pooled(clean.image)
        cosines.append(sum(a * b for a, b in zip(change, h)) / np.sqrt(np.sum(change**2)))
    (mean,) = rows_like(finding.rows, cav="signal", metric="alignment_sample")
    assert mean.value == pytest.approx(np.mean(cosines), abs=1e-4)
    shown = [float(number) for number in re.findall(r"-?\d\.\d\d", finding.notes["drawings"][0].alt)]
    assert shown == pytest.approx([*sorted(cosines)[:-7:-1], *sorted(cosines)[:6]], abs=0.0051)
    assert {row.cav for row in finding.rows} == set(CAV.from_marks())
    maps = {name for name in finding.arrays if name.startswith("relevance/")}
    assert maps == {"relevance/signal", "relevance/ridge", "relevance/svm"}
    assert all(finding.arrays[name].shape == finding.arrays["masks"].shape for name in maps)


# Table 1


def test_every_method_is_compared_with_every_other_on_the_same_images(made: Made) -> None:
    finding = made.finding("table1")
    models = METHODS | {"original", "clean-trained"}
    assert sorted(map(sorted, finding.facts.paired)) == sorted(map(sorted, combinations(models, 2)))  # each pair once
    for metric in ("accuracy_clean", "balanced_accuracy_biased"):
        difference, _ = finding.facts.paired["p-clarc", "original"][metric]
        scores = [value_of(finding.rows, name, metric) for name in ("p-clarc", "original")]
        assert difference == pytest.approx(scores[0] - scores[1])
    assert {row.method for row in finding.rows} >= models | {"cav:signal"}
    shown = METHODS | {"original"}
    assert {name for name in finding.arrays if "/" in name} == {f"relevance/{name}" for name in shown}


# Q3


def test_classes_are_ranked_by_the_rise_of_their_logit_in_the_reference_model(made: Made) -> None:
    with made.subject() as subject:
        data = subject.data
        reference = subject.experiment.setting.reference()
        assert reference is not None
        logits = []
        with torch.no_grad():
            for images in (data.test_clean, data.test_biased):
                logits.append(torch.cat([reference(example.image[None]) for example in images]).numpy())
        rises = (logits[1] - logits[0]).mean(0)
        best = max(range(1, 4), key=lambda label: rises[label])
        measured = measure_rises(subject.experiment, data)
        np.testing.assert_allclose(measured, rises, rtol=1e-4, atol=1e-6)
        assert rank_classes(measured, 0) == [best], "a third of four classes, without the biased one"
    assert made.finding("q3").notes["rises"]["biased class"] == pytest.approx(measured[0])


def test_changes_are_accuracies_minus_vanillas_on_the_same_images(made: Made) -> None:
    finding = made.finding("q3")
    with made.subject() as subject:
        labels, names = subject.data.test_clean.labels, subject.data.test_clean.class_names
        methods = ("vanilla", "p-clarc", "rr-clarc class-0")
        correct = {name: subject.experiment.predictions.load(name)["correct_clean"] for name in methods}
    (selected,) = finding.notes["selected"]
    inside = labels == names.index(selected)
    for method, target in (("p-clarc", None), ("rr-clarc", "0")):
        (row,) = rows_like(finding.rows, method=method, target=target, metric="accuracy_change_selected")
        name = method if target is None else f"{method} class-{target}"
        expected = np.mean(correct[name][inside].astype(float) - correct["vanilla"][inside].astype(float))
        assert row.value == pytest.approx(expected)
        assert row.n == inside.sum()
    changes = [row for row in finding.rows if row.metric.startswith("accuracy_change_")]
    assert {row.value for row in changes if row.method == "vanilla"} == {0.0}
    assert {(row.method, row.target) for row in changes} >= {("rr-clarc", "0"), ("rr-clarc", "expected"), ("rrr", "0")}
    assert {row.metric.removeprefix("accuracy_change_") for row in changes} == {"selected", "random", "all"}
    text = made.text("q3")
    assert 0 < text.index(f": {selected}") < text.index("## The paper's claims")
    assert f"RR-ClArC (class {names[0]})" in text
    assert "best on biased images" not in text, "only claims about selected classes"


# Natural artifacts


def test_a_group_is_scored_on_its_own_images_if_it_is_large_enough(made: Made) -> None:
    finding = made.finding("natural")
    with made.subject() as subject:
        inside = (subject.data.test_clean.labels == 2) & ~subject.study.flags()["ruler"]
        correct = subject.experiment.predictions.load("p-clarc")["correct_clean"]
    (row,) = rows_like(finding.rows, method="p-clarc", group=2, artifact="no ruler")
    assert (row.value, row.n) == (pytest.approx(correct[inside].mean()), 25)
    assert row.stderr == pytest.approx(np.sqrt(row.value * (1 - row.value) / 25))
    assert {row.method for row in finding.rows} == METHODS | {"original"}
    assert not rows_like(finding.rows, artifact="ruler")
    text = made.text("natural")
    assert "smooth-even, ruler: n/a (5 images)" in text
    assert "| smooth-even, no ruler | 25 |" in text


class Flagged(Natural):
    def flags(self) -> dict[str, np.ndarray]:
        return {"plaster": np.zeros(140, dtype=bool)}


@pytest.mark.parametrize(
    ("name", "study", "fragment"),
    [
        ("natural", Joint, "Synthetic lesions does not say which test images"),
        ("natural", Flagged, "Natural shortcut has the artifact 'plaster' by nature, and its clean"),
        ("q3", Natural, "Natural shortcut has no unpoisoned model"),
    ],
)
def test_data_that_an_experiment_cannot_use_are_rejected_before_any_work(
    name: str, study: type[Single], fragment: str
) -> None:
    with pytest.raises(DataError, match=fragment):
        experiment(name).check(study(), Plan(**PLAN))


# Ablations


def test_heatmaps_along_the_strength_are_those_of_the_trained_models(made: Made) -> None:
    finding = made.finding("ablation-strength")
    assert {name for name in finding.arrays if "/" in name} == {"relevance/0.1", "relevance/10"}
    assert not np.array_equal(finding.arrays["relevance/0.1"], finding.arrays["relevance/10"])
    with made.subject() as subject:
        run = subject.experiment
        chosen = run.selection(run.plain("rr-clarc"))["strength"]
        model = build_model("demo", classes=4).eval()
        model.load_state_dict(load_file(subject.run.path / "corrected" / "rr-clarc.safetensors"))
        row = run.workspace.shown_rows[:1]
        expected = run.workspace.heatmaps(model, row)[0]
        assert np.array_equal(finding.arrays["image"], subject.data.test_biased.pixels(int(row[0]))[0])
    np.testing.assert_allclose(finding.arrays[f"relevance/{chosen:g}"], expected, atol=1e-4 * np.abs(expected).max())


# Run times


def test_every_method_takes_ten_turns_after_one_that_does_not_count(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.finding("q1")  # the model and the CAVs
    calls: Counter[str] = Counter()
    epochs = set()
    train = LatentCorrection.train

    def counted(self: LatentCorrection, *args: object, **options: object) -> object:
        calls[self.name] += 1
        epochs.add(self.tuning.epochs)
        return train(self, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(LatentCorrection, "train", counted)
    with opened(made.work, Single(artifact="lsb"), left_out=("rrr", "a-clarc")) as subject:
        finding = experiment("runtime").examine(subject)
    assert calls == dict.fromkeys(METHODS - {"rrr", "a-clarc"}, 11)
    assert epochs == {1}
    whole, cached = (rows_like(finding.rows, metric=f"seconds_per_epoch{kind}") for kind in ("", "_cached"))
    passes = {(row.seed, round(both.value - row.value, 9)) for both, row in zip(whole, cached)}
    assert sorted(turn or 0 for turn, _ in passes) == [*range(10)], "all methods of a turn share the pass"
    assert all(seconds > 0 for _, seconds in passes)
