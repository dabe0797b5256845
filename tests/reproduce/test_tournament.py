"""The tournament from end to end: every entrant plays, results are kept, the page says who is above whom."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hansfree.errors import OptionError
from hansfree.experiments.workspace import Plan
from hansfree.models import build_model
from hansfree.reproduce import Finding, Reproduction
from hansfree.reproduce.figures import pareto
from hansfree.tournament import ALONG_PAIRS, APART, BALANCED_REFERENCE, BIASED, CANDIDATES, ELECTED, REFERENCE, RIVALS
from hansfree.weights import write_weights
from tests.experiments.examples import Single, opened, rows_like

NAMES = [*APART, *(entrant.name for entrant in RIVALS), ELECTED]


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, object]]:
    work = tmp_path_factory.mktemp("tournament")
    weights = work / "start.safetensors"
    write_weights(weights, build_model("demo", classes=4, seed=5).state_dict())
    return work, {"trained": "head", "weights": str(weights), "epochs": 20, "repeats": 2}


@pytest.fixture(scope="module")
def finding(setting: tuple[Path, dict[str, object]]) -> Finding:
    work, options = setting
    with opened(work, Single(artifact="timestamp"), **options) as subject:
        return Reproduction.named("tournament")().examine(subject)


def test_every_entrant_plays_on_every_draw(finding: Finding) -> None:
    assert list(finding.notes["matches"]) == NAMES
    assert all(len(match.outcomes) == 2 for match in finding.notes["matches"].values())
    taken = {name for name, match in finding.notes["matches"].items() if len(match.played) == 2}
    assert {BIASED, REFERENCE, BALANCED_REFERENCE, "vanilla", ALONG_PAIRS, ELECTED} <= taken
    for name in taken:
        rows = rows_like(finding.rows, method=name, metric="balanced_accuracy_biased", split="test")
        assert [row.seed for row in rows] == [0, 1]
        assert all(0 <= row.value <= 1 and row.n == 120 for row in rows)


def test_the_elected_is_the_better_one_on_validation_images(finding: Finding) -> None:
    matches = finding.notes["matches"]
    for number, elected in matches[ELECTED].played.items():
        rivals = [matches[name].outcomes[number] for name in CANDIDATES]
        assert elected in rivals
        assert elected.val_biased == max(rival.val_biased for rival in rivals if rival and not rival.objection)


def test_what_was_played_is_not_played_again(
    setting: tuple[Path, dict[str, object]], finding: Finding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hansfree.reproduce.tournament.play", None)
    work, options = setting
    with opened(work, Single(artifact="timestamp"), **options) as subject:
        again = Reproduction.named("tournament")().examine(subject)
    assert again.rows == finding.rows


def test_the_page_has_a_line_for_everybody_and_says_who_is_above(finding: Finding) -> None:
    shown = Reproduction.named("tournament")().present([finding])
    for entrant in RIVALS:
        assert shown.text.count(f"| {entrant.title} ") == 3  # in both summaries, and in the setting
    *summaries, setting = re.findall(r"^\| hansfree's default .*$", shown.text, re.M)
    assert len(summaries) == 2
    for line in summaries:
        against_clean = line.split("|")[2].strip()
        assert sum(map(int, against_clean.split(" / "))) == 1  # one setting
    lead = re.search(r"\((.*) to (.*)\)", setting.split("|")[5])  # to the clean-trained model
    assert lead
    low, high = map(float, lead.groups())
    won, level, lost = (int(low > 0), int(low <= 0 <= high), int(high < 0))
    assert summaries[0].split("|")[2].strip() == f"{won} / {level} / {lost}"
    assert [drawing.name for drawing in shown.drawings if drawing] == ["tournament"]


def test_the_default_is_no_worse_than_the_model_as_it_came(finding: Finding) -> None:
    def biased(name: str) -> float:
        rows = rows_like(finding.rows, method=name, metric="flip_rate", split="test")
        return float(np.mean([row.value for row in rows]))

    assert biased(ELECTED) <= biased(BIASED)


class Listed(Single):
    needs_root = True

    def __init__(self) -> None:
        super().__init__(Path())


def test_a_whole_model_per_draw_is_refused() -> None:
    with pytest.raises(OptionError, match="use --train head"):
        Reproduction.named("tournament")().check(Listed(), Plan(model="demo"))


def test_options_that_would_not_count_are_refused() -> None:
    for options in ({"left_out": ("dfr",)}, {"grid": "paper"}, {"strengths": {"rr-clarc": (1.0,)}}):
        with pytest.raises(OptionError, match="with their own strengths"):
            Reproduction.named("tournament")().check(Single(), Plan(model="demo", **options))


def test_the_front_holds_whom_no_other_beats_in_both() -> None:
    points = {"a": (0.5, 0.9), "b": (0.6, 0.6), "c": (0.55, 0.5), "d": (0.7, 0.2), "e": (0.5, 0.1)}
    assert pareto(points) == [(0.5, 0.9), (0.6, 0.6), (0.7, 0.2)]
