"""The comparison of methods: resamples, entries, scores, and the page, from end to end."""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.comparison import (
    Answers,
    Resample,
    compare,
    fit_cav,
    make_resamples,
    pick_best,
    redraw_split,
    run_entry,
)
from benchmarks.comparison.entries import BASELINES, CANDIDATES, ENTRIES, METHODS, PAIR_DIRECTION, PICKED
from benchmarks.comparison.experiments import MethodComparison
from benchmarks.comparison.resamples import paste_artifact
from benchmarks.comparison.scoring import EntryResult, Outcome, baseline_model, score_model

from hansfree.cavs import SignalCAV
from hansfree.corrections.training import FineTuning
from hansfree.data.biased import BiasedData
from hansfree.data.datasets import LabelledImages, Subset
from hansfree.data.examples import ImageDataset
from hansfree.data.insertion import WithArtifact
from hansfree.errors import DataError, OptionError
from hansfree.evaluation.results import CLEAN_TRAINED, ORIGINAL
from hansfree.metrics.base import NO_PREDICTION
from hansfree.models import build_model, predict_logits
from hansfree.models.weights import write_weights
from hansfree_paper.aggregate import Finding
from hansfree_paper.subjects import Plan, Subject
from tests.pipeline.studies import Joint, Natural, Single, opened, rows_like

LABELS = np.array([0, 0, 0, 0, 1, 1])
SPLITS = (range(320), range(320, 440), range(440, 580))  # training, validation and test images


def start_weights(work: Path, classes: int = 4) -> str:
    write_weights(work / "start.safetensors", build_model("demo", classes=classes, seed=5).state_dict())
    return str(work / "start.safetensors")


def outcome(val_biased: float = 0.5, *, label: int = 0, rejection: str = "") -> Outcome:
    about = {"strength": None, "rejection": rejection, "val_clean": 0.5, "val_biased": val_biased}
    return Outcome(**about, clean=[label] * 3, biased=[label] * 3)


# Scores


def test_accuracies_are_balanced_and_flips_are_not() -> None:
    clean = [[0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1], [NO_PREDICTION] * 6]
    biased = [[1, 1, 0, 1, 1, 0], [0, 0, 0, 0, 1, 1], [NO_PREDICTION] * 6]
    found = Answers(np.array(clean), np.array(biased))
    assert found.score(LABELS, "balanced_accuracy_clean").tolist() == [0.875, 1, 0]
    assert found.score(LABELS, "balanced_accuracy_biased").tolist() == [0.375, 1, 0]
    assert found.score(LABELS, "flip_rate") == pytest.approx([0.5, 0, 1])
    same = compare(found, found, LABELS, "balanced_accuracy_biased")
    assert (same.value, same.low, same.high, same.sign) == (0, 0, 0, 0)


def test_the_interval_agrees_with_the_normal_approximation_and_widens_where_resamples_disagree() -> None:
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [3000, 1000])
    ours, theirs = ((rng.random(4000) < share).astype(int) for share in (0.8, 0.7))
    a, b = (np.where(hit, labels, 1 - labels)[None] for hit in (ours, theirs))
    found = compare(Answers(a, a), Answers(b, b), labels, "balanced_accuracy_clean")
    parts = [(ours - theirs)[labels == label] for label in (0, 1)]
    error = np.sqrt(sum(part.var() / len(part) for part in parts)) / 2
    mean = np.mean([part.mean() for part in parts])
    assert found.value == pytest.approx(mean)
    assert (found.low, found.high) == pytest.approx((mean - 1.96 * error, mean + 1.96 * error), abs=0.15 * error)
    assert found.sign == 1
    shares = ([0.6] * 5, [0.2, 0.4, 0.6, 0.8, 1.0], [0.5] * 5)
    steady, varied, rival = (np.where(rng.random((5, 400)) < np.array(share)[:, None], 0, 1) for share in shares)
    one, other = (
        compare(Answers(each, each), Answers(rival, rival), np.zeros(400, dtype=int), "balanced_accuracy_clean")
        for each in (steady, varied)
    )
    assert other.high - other.low > 3 * (one.high - one.low)


def test_pick_best_takes_the_best_admissible_candidate() -> None:
    ours = EntryResult((outcome(0.6), outcome(0.6), None, None))
    theirs = EntryResult((outcome(0.5), outcome(0.7, rejection="x"), outcome(0.1), outcome(0.9, rejection="x")))
    assert pick_best([ours, theirs]).outcomes == (ours.outcomes[0], ours.outcomes[1], theirs.outcomes[2], None)


# Resamples with an inserted artifact


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    work = tmp_path_factory.mktemp("comparison")
    return work, {"trained": "head", "weights": start_weights(work), "epochs": 20}


@pytest.fixture(scope="module")
def subject(setting: tuple[Path, dict[str, object]]) -> Iterator[Subject]:
    work, options = setting
    with opened(work, Single(artifact="timestamp"), **options) as subject:
        yield subject


@pytest.fixture(scope="module")
def resamples(subject: Subject) -> list[Resample]:
    return list(make_resamples(subject, subject.study.data("demo"), range(2)))


def test_other_images_of_the_biased_class_carry_the_artifact(subject: Subject, resamples: list[Resample]) -> None:
    labelled = [np.asarray(resample.train.has_artifact) for resample in resamples]
    assert [each.sum() for each in labelled] == [20, 20]  # half of the 40 images of the class
    assert not np.array_equal(*labelled)
    for resample, has_artifact in zip(resamples, labelled):
        assert set(resample.train.labels[has_artifact]) == {resample.biased_class}
        assert np.array_equal(resample.train.ids, resamples[0].train.ids)
    train = subject.study.data("demo").train
    row = int(np.flatnonzero(labelled[1])[0])
    with torch.no_grad():
        image = WithArtifact(train.source, train.artifact, share=1, seed=train.seed).batch([row]).image
        expected = resamples[1].cut.trunk(image)[0]
    found = torch.cat([layer for layer, *_ in resamples[1].train.stream()])[row]
    torch.testing.assert_close(found, expected[0], atol=1e-5, rtol=1e-5)


def test_data_entries_and_baselines_that_do_not_fit_are_rejected(subject: Subject, resamples: list[Resample]) -> None:
    data = subject.study.data("demo")
    with pytest.raises(DataError, match="needs counterfactual pairs"):
        next(make_resamples(subject, replace(data, train_biased=None), [0]))
    data.train.is_relabelled[0] = True
    with pytest.raises(DataError, match="relabel"):
        next(make_resamples(subject, data, [0]))
    with pytest.raises(OptionError, match="not a baseline"):
        baseline_model("rr-clarc", resamples[0])
    method = ENTRIES["rr-clarc/signal/adam"].make(SignalCAV(), FineTuning(seed=3))
    assert (method.tuning.optimizer, method.tuning.seed) == ("adam", 3)


def test_test_images_do_not_influence_the_strength_and_directions_come_from_labels_or_pairs(
    resamples: list[Resample],
) -> None:
    resample, entry = resamples[0], ENTRIES["rr-clarc/pair-1/converged"]
    signal, pair = (fit_cav(ENTRIES[name], resample) for name in ("rr-clarc", "rr-clarc/pair-1"))
    change = (resample.pairs.biased.pooled - resample.pairs.clean.pooled).mean(0)
    np.testing.assert_allclose(pair.direction_, change / np.linalg.norm(change), atol=1e-5)
    assert signal.direction_ @ pair.direction_ > 0
    first, again = run_entry(entry, resample), run_entry(entry, replace(resample, test=resample.val))
    assert first is not None
    assert again is not None
    assert first.strength in entry.kind.info.strengths
    assert (again.strength, again.val_biased) == (first.strength, first.val_biased)
    labels = np.asarray(resample.val.clean.labels)
    right = [np.mean(np.array(again.biased)[labels == label] == label) for label in np.unique(labels)]
    assert np.mean(right) == pytest.approx(again.val_biased)


def test_retrained_resamples_have_their_own_models(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = tmp_path_factory.mktemp("retrained")
    with opened(work, Joint()) as subject:
        first, second = make_resamples(subject, subject.study.data("demo"), [0, 1])
    assert (first.tuning.seed, second.tuning.seed) == (0, 1)
    models = [first.model, first.reference, second.model, second.reference]
    kernels = [next(model.parameters()) for model in models]  # of the first layer
    assert all(not torch.equal(a, b) for i, a in enumerate(kernels) for b in kernels[:i])
    for name in BASELINES:
        model = baseline_model(name, first)
        assert score_model(first, model).biased == predict_logits(model, first.data.test_biased).argmax(1).tolist()
    monkeypatch.setattr("hansfree_paper.subjects.pretrain", None)  # cached models are not trained again
    with opened(work, Joint()) as subject:
        (again,) = make_resamples(subject, subject.study.data("demo"), [1])
    assert torch.equal(next(again.model.parameters()), next(second.model.parameters()))


# Resamples with a natural artifact


class Labelled(Natural):
    """Plasters in the images, with an artifact label for every image."""

    def data(self, model: str) -> BiasedData:
        data = super().data(model)
        without = np.flatnonzero(~self.scenes.has_plaster[:320])
        return replace(data, clean_train=Subset(LabelledImages(self.scenes, self.scenes.has_plaster), without))

    def marked(self, model: str) -> tuple[Subset, Subset, Subset]:
        self.data(model)
        every = LabelledImages(self.scenes, self.scenes.has_plaster)
        train, val, test = (Subset(every, np.array(rows)) for rows in SPLITS)
        return train, val, test


def corner_masks(
    model: object, layer: str, cav: object, images: ImageDataset, rows: np.ndarray, **words: object
) -> np.ndarray:
    masks = np.zeros((len(rows), 48, 48), dtype=bool)
    masks[:, 4:16, 4:16] = True
    return masks


def test_natural_artifacts_are_pasted_within_their_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"trained": "head", "weights": start_weights(tmp_path, classes=2), "epochs": 2}
    with opened(tmp_path, Labelled(), **options) as subject:
        monkeypatch.setattr("benchmarks.comparison.resamples.localise_artifact", corner_masks)
        data = paste_artifact(subject, subject.study.marked("demo") or ())
        monkeypatch.setattr("benchmarks.comparison.resamples.localise_artifact", None)  # masks are cached
        again = paste_artifact(subject, subject.study.marked("demo") or ())
        resamples = list(make_resamples(subject, data, range(2)))
    assert again.test_biased.fingerprint == data.test_biased.fingerprint
    has_plaster = subject.study.scenes.has_plaster  # type: ignore[attr-defined]
    held_out = ((data.val_clean, data.val_biased), (data.test_clean, data.test_biased))
    for (clean, biased), part in zip(held_out, SPLITS[1:]):
        assert clean.ids.tolist() == biased.ids.tolist() == [i for i in part if not has_plaster[i]]
        assert biased.has_artifact.all()
        assert not clean.has_artifact.any()
        changed = [np.mean(clean.pixels(i)[0] != biased.pixels(i)[0]) for i in range(10)]
        assert 0 < min(changed) <= max(changed) < 0.5
    donor_of = dict(zip(data.train_biased.ids.tolist(), data.train_biased.donor_ids.tolist()))  # type: ignore[union-attr]
    seen = [set(resample.train.ids.tolist()) for resample in resamples]
    assert [len(ids) for ids in seen] == [256, 256]  # four fifths of the training images
    assert seen[0] != seen[1]
    for resample, ids in zip(resamples, seen):
        labelled = set(resample.train.ids[np.asarray(resample.train.has_artifact)].tolist())
        assert set(resample.clean.ids.tolist()) == ids - labelled
        pairs = set(resample.pairs.clean.ids.tolist())
        assert pairs == {one for one in ids - labelled if donor_of[one] in labelled}  # no artifact from outside
        assert ids.isdisjoint(resample.test.clean.ids.tolist())


# The experiment


def examine(setting: tuple[Path, dict[str, object]]) -> Finding:
    work, options = setting
    with opened(work, Single(artifact="timestamp"), **options, repeats=2) as subject:
        return MethodComparison().examine(subject)


@pytest.fixture(scope="module")
def finding(setting: tuple[Path, dict[str, object]]) -> Finding:
    return examine(setting)


def test_every_entry_runs_on_every_resample(finding: Finding) -> None:
    results = finding.notes["results"]
    assert list(results) == [*BASELINES, *(entry.name for entry in METHODS), PICKED]
    complete = {name for name, result in results.items() if len(result.completed) == 2}
    assert {*BASELINES, "vanilla", PAIR_DIRECTION, PICKED} <= complete
    for name in complete:
        rows = rows_like(finding.rows, method=name, metric="balanced_accuracy_biased", split="test")
        assert [row.seed for row in rows] == [0, 1]
        assert all(0 <= row.value <= 1 and row.n == 120 for row in rows)
    for number, picked in results[PICKED].completed.items():
        candidates = [results[name].outcomes[number] for name in CANDIDATES]
        assert picked in candidates
        assert picked.val_biased == max(each.val_biased for each in candidates if each and not each.rejection)

    def flips(name: str) -> float:
        return float(np.mean([row.value for row in rows_like(finding.rows, method=name, metric="flip_rate")]))

    assert flips(PICKED) <= flips(ORIGINAL)


def test_a_comparison_resumes(
    setting: tuple[Path, dict[str, object]], finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.comparison.experiments.run_entry", None)
    assert examine(setting).rows == finding.rows


def test_the_page_shows_every_entry(finding: Finding) -> None:
    text, drawings = MethodComparison().present([finding])
    for entry in METHODS:
        assert text.count(f"| {entry.title} ") == 3  # in both summaries, and in the setting
    *summaries, setting = re.findall(r"^\| hansfree's default .*$", text, re.M)
    lead = re.search(r"\((.*) to (.*)\)", setting.split("|")[5])  # against the reference
    assert lead
    low, high = map(float, lead.groups())
    counts = f"{int(low > 0)} / {int(low <= 0 <= high)} / {int(high < 0)}"
    assert summaries[0].split("|")[2].strip() == counts
    assert [drawing.name for drawing in drawings if drawing] == ["comparison"]
    assert CLEAN_TRAINED in finding.notes["results"]


@pytest.mark.parametrize(
    ("options", "fragment"),
    [
        ({}, "use --train head"),
        ({"left_out": ("dfr",)}, "--leave-out"),
        ({"grid": "paper"}, "--grid"),
        ({"strengths": {"rr-clarc": (1.0,)}}, "--strengths"),
    ],
)
def test_options_without_effect_are_rejected(
    options: dict[str, object], fragment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = Single()
    if not options:
        monkeypatch.setattr(Single, "needs_root", True)
    with pytest.raises(OptionError, match=fragment):
        MethodComparison().check(study, Plan(model="demo", **options))


# A new split of a table

DRAWN = ["train"] * 60 + ["val"] * 20 + ["test"] * 20


@pytest.mark.parametrize("grouped", [False, True])
def test_parts_keep_their_sizes_and_groups_stay_together(
    tmp_path: Path, grouped: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"image": f"{i}.png", "label": "AB"[i % 2], "split": part, "ruler": str(i % 4 // 2)}
        | ({"group": f"patient {i // 4}"} if grouped else {})
        for i, part in enumerate(DRAWN)
    ]
    table = tmp_path / "labels.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    monkeypatch.setattr(sys, "argv", ["redraw_split", str(table), "1"])
    redraw_split.main()
    redrawn = list(csv.DictReader(StringIO(capsys.readouterr().out)))
    assert Counter(row["split"] for row in redrawn) == Counter(DRAWN)
    assert [row["split"] for row in redrawn] != DRAWN
    assert [row | {"split": ""} for row in redrawn] == [row | {"split": ""} for row in rows]
    if grouped:
        assert len({(row["group"], row["split"]) for row in redrawn}) == 25
