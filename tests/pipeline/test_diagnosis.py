"""Directions from pairs, their diagnostics, and inserted against natural artifacts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hansfree._internal.hashing import seeded
from hansfree._internal.store import open_run
from hansfree.activations import collect_activations
from hansfree.cavs import PairCAV
from hansfree.cavs.diagnostics import expected_cosine
from hansfree.corrections import LatentCorrection, Need, RRClArC
from hansfree.corrections.training import FineTuning
from hansfree.data.artifacts import Timestamp
from hansfree.data.biased import insert_bias
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import OptionError
from hansfree.models import build_model
from hansfree.pipeline.diagnosis import InsertionSimilarity, compare_insertion, diagnose_direction
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.workspace import MethodSpec, Setting
from hansfree.report.advice import describe_similarity


def make_setting(cav: str) -> Setting:
    parts = [SyntheticLesions(n, size=32, classes=2, start=start) for n, start in ((80, 0), (60, 80), (60, 140))]
    with seeded(0):
        model = build_model("demo", classes=2).eval()
    return Setting(
        name="tiny",
        data=insert_bias(parts, Timestamp(), biased_class=0, share=0.5),
        model=model,
        layer="features.10",
        tuning=FineTuning(epochs=1),
        cav=cav,
        strengths={"rr-clarc": (1.0,)},
    )


def test_pairs_of_training_images_give_the_direction_and_its_row(tmp_path: Path) -> None:
    setting = make_setting("pair")
    with open_run(tmp_path / "run", {"cav": "pair"}) as run:
        experiment = Experiment(setting, run)
        quality = {row.metric: row.value for row in experiment.cav_rows() if row.method == "cav:pair"}
        rows = experiment.rows_for(experiment.plain("rr-clarc"))
    assert {row.cav for row in rows} == {"pair"}
    assert quality["alignment_mean"] > 0.9
    assert setting.data.pairs is not None
    clean, biased = (collect_activations(setting.model, setting.layer, images).pooled for images in setting.data.pairs)
    assert len(clean) == int((~setting.data.train.has_artifact).sum())
    expected = PairCAV().fit_pairs(clean, biased)
    np.testing.assert_allclose(experiment.workspace.cav.directions_, expected.directions_, atol=1e-4)


def test_marks_are_the_default_and_a_treatment_may_ask_for_pairs(tmp_path: Path) -> None:
    with open_run(tmp_path / "run", {"cav": "signal"}) as run:
        experiment = Experiment(make_setting("signal"), run)
        assert "cav:pair" not in {row.method for row in experiment.cav_rows()}
        assert not list(run.path.glob("cav-*"))  # no pass over pairs that nobody asked for
        spec = MethodSpec(
            name="along-pairs",
            make=lambda cav, images, tuning: RRClArC(cav, tuning=tuning),
            cav="pair",
            strengths=(1.0,),
        )
        assert {row.cav for row in experiment.rows_for(spec)} == {"pair"}


def test_data_without_pairs_are_refused_before_any_work() -> None:
    setting = make_setting("signal")
    with pytest.raises(OptionError, match=r"Set artifact\.insert") as told:
        replace(setting, cav="pair", data=replace(setting.data, train_biased=None))
    using = [name for name, member in LatentCorrection.members().items() if Need.PAIRS in member.info.needs]
    assert len(using) >= 2
    assert str(told.value).endswith(f"('pair' as a CAV; {', '.join(map(repr, using))} as a method).")


def test_the_doctor_examines_the_pairs_of_all_classes_as_the_corrections_use_them(tmp_path: Path) -> None:
    setting = make_setting("pair")
    nobody = np.zeros(int(setting.data.train.ids.max()) + 1, dtype=bool)  # what was inserted needs no marks
    with open_run(tmp_path / "run", {"cav": "pair"}) as run:
        experiment = Experiment(setting, run)
        experiment.cav_rows()
        found = diagnose_direction(experiment, is_marked=nobody)
        used = experiment.workspace.cav
    n = int((~setting.data.train.has_artifact).sum())
    assert (found.cav, found.n_artifact, found.n_clean) == ("pair", n, n)
    assert used.class_count_.tolist() == [n, n]
    assert f"{n} pairs of the same image" in found.verdict
    assert found.finding("class_overlap").value is not None


def test_cosine_and_size_are_those_of_the_two_mean_changes(tmp_path: Path) -> None:
    setting = make_setting("signal")
    with open_run(tmp_path / "run", {}) as run:
        experiment = Experiment(setting, run)
        experiment.cav_rows()
        found = compare_insertion(experiment)
        kept = experiment.workspace.activations
    train, bits = kept["train"], np.asarray(kept["train"].has_artifact)
    inside = train.labels == setting.data.biased_class
    pooled = train.pooled.astype(np.float64)
    marked = pooled[inside & bits].mean(axis=0) - pooled[inside & ~bits].mean(axis=0)
    change = kept["val_biased"].pooled.astype(np.float64).mean(axis=0)
    change = change - kept["val_clean"].pooled.astype(np.float64).mean(axis=0)
    cosine = change @ marked / np.linalg.norm(change) / np.linalg.norm(marked)
    assert found.cosine == pytest.approx(cosine, rel=1e-4)
    assert found.size == pytest.approx(change @ marked / (marked @ marked), rel=1e-4)
    assert (found.n_inserted, found.n_labelled) == (len(kept["val_clean"]), int((inside & bits).sum()))


@pytest.mark.parametrize(
    ("cosine", "attainable", "differs", "words"),
    [
        (0.9, 0.95, False, "with a cosine of 0.90"),
        (0.3, 0.95, True, "the two differ"),
        (0.3, 0.4, False, "about 0.40"),
        (0.0, 0.2, False, "n/a"),
    ],
)
def test_noise_is_not_called_unlike(cosine: float, attainable: float, differs: bool, words: str) -> None:
    found = InsertionSimilarity(cosine=cosine, attainable=attainable, size=1.0, n_inserted=9, n_labelled=7)
    assert found.differs == differs
    assert words in describe_similarity(found)


@pytest.mark.parametrize("count", [5, 40])
def test_few_marked_images_lower_what_can_be_attained(count: int) -> None:
    """The same shift in 256 channels of unit noise: its fitted direction misses the truth by what was expected."""
    rng = np.random.default_rng(0)
    truth = np.zeros(256)
    truth[0] = 4.0
    bits = np.arange(5 * count) < count
    cosines, expected = [], []
    for seed in range(20):
        samples = rng.normal(size=(len(bits), 256)) + bits[:, None] * truth
        fitted = samples[bits].mean(axis=0) - samples[~bits].mean(axis=0)
        cosines.append(fitted[0] / np.linalg.norm(fitted))
        expected.append(expected_cosine(samples, bits, cav="signal", seed=seed))
    assert np.mean(expected) == pytest.approx(np.mean(cosines), abs=0.1)
