"""Claims on hand-made rows, and on the paper's own tables."""

from __future__ import annotations

import pytest

from hansfree.reproduce.aggregate import Facts, SubjectKey, Subjects
from hansfree.reproduce.claims import Claim, check_claims, write_claims
from hansfree.results import Row
from tests.reproduce.examples import BRIGHT, RESNET, VGG, cav_row, row, scored

STRICT = "strictly the best on biased images (accuracy)"
TIED = "or within one standard error of it (accuracy)"
# Tables A.3 and A.4: clean, biased, their errors, TCAV of Vanilla, RRR, P-, A-, RR-ClArC
PAPER = """
vgg16     bone     78.8 1.2 49.8 1.4  85.8  78.8 1.2 49.8 1.4  85.7  78.9 1.1 77.4 1.2  66.0  77.8 1.2 69.0 1.3 65.7  78.8 1.2 77.7 1.2 52.4
vgg16     isic     76.2 0.8 34.9 0.9  83.9  76.7 0.8 42.8 1.0  71.7  75.1 0.9 49.0 1.0  76.7  75.2 0.9 49.5 1.0 64.8  74.3 0.9 57.0 1.0 48.8
vgg16     imagenet 68.7 0.7 43.5 0.7  62.9  68.6 0.7 49.6 0.7  54.6  68.3 0.7 62.6 0.7  37.1  67.7 0.7 60.9 0.7 49.0  68.5 0.7 62.6 0.7 49.1
vgg16     celeba   93.7 2.6 82.8 2.2  36.8  93.7 2.0 91.2 1.7  42.6  56.6 1.8 60.8 3.3  19.3  93.0 2.1 90.4 1.7 44.2  93.6 1.9 92.6 1.6 54.1
resnet18  bone     75.1 1.2 46.3 1.4 100.0  74.5 1.2 47.9 1.4 100.0  75.0 1.2 70.7 1.3  60.3  74.8 1.2 57.4 1.4 33.9  71.1 1.3 74.2 1.2 39.2
resnet18  isic     81.8 0.8 56.8 1.0 100.0  78.7 0.8 61.1 1.0 100.0  60.8 1.0 59.9 1.0 100.0  77.1 0.8 65.0 0.9 98.2  78.5 0.8 71.2 0.9 75.7
resnet18  imagenet 66.7 0.7 52.9 0.7 100.0  66.4 0.7 59.1 0.7   7.7  67.0 0.7 61.7 0.7  80.5  65.0 0.7 63.3 0.7 87.8  66.5 0.7 64.0 0.7 55.4
resnet18  celeba   96.8 2.0 58.3 3.2  21.4  95.5 2.8 74.7 2.8  91.6  96.5 2.4 64.4 3.1   5.7  96.1 2.4 62.9 3.1 37.8  95.8 2.7 75.3 2.8 60.5
efficient bone     78.2 1.2 44.3 1.4  89.8  78.4 1.2 49.6 1.4  79.1  65.2 1.3 35.1 1.3   2.1  78.0 1.2 54.2 1.4 63.9  77.6 1.2 70.3 1.3 53.3
efficient isic     84.2 0.7 62.9 1.0  99.6  83.1 0.7 68.7 0.9  85.4  19.7 0.8 29.6 0.9 100.0  77.7 0.8 72.8 0.9 68.5  78.7 0.8 75.6 0.9 54.4
efficient imagenet 73.9 0.6 53.2 0.7  99.2  73.9 0.6 59.1 0.7  65.9  74.1 0.6 54.6 0.7  20.8  71.4 0.6 69.9 0.6 90.5  73.9 0.6 70.8 0.6 56.4
efficient celeba   96.6 2.0 58.3 3.2  24.8  95.4 2.7 75.6 2.8  50.4  96.8 1.6 55.0 3.3   4.9  96.7 2.2 60.6 3.2 23.8  92.0 2.8 77.6 2.7 42.6
"""  # noqa: E501


def claim(claims: list[Claim], words: str) -> Claim:
    (found,) = (c for c in claims if words in c.text)
    return found


def counted(subjects: Subjects, words: str, facts: dict[SubjectKey, Facts] | None = None) -> tuple[int, int]:
    found = claim(check_claims(subjects, facts=facts), words)
    assert len(found.details) == found.of
    return found.holds_in, found.of


def paper() -> tuple[dict[SubjectKey, list[Row]], dict[SubjectKey, Facts]]:
    subjects, facts = {}, {}
    for line in PAPER.strip().splitlines():
        model, data, *numbers = line.split()
        key = SubjectKey(data, "the paper's", model)
        values = [float(number) / 100 for number in numbers]
        subjects[key] = [
            r
            for i, method in enumerate(("vanilla", "rrr", "p-clarc", "a-clarc", "rr-clarc"))
            for r in (
                row(method, "accuracy_clean", values[5 * i], stderr=values[5 * i + 1]),
                row(method, "accuracy_biased", values[5 * i + 2], stderr=values[5 * i + 3]),
                row(method, "tcav_positions", values[5 * i + 4]),
            )
        ]
        facts[key] = Facts(is_localized=data in ("imagenet", "celeba"))
    return subjects, facts


def test_the_papers_own_tables_give_the_counts_that_are_said_of_it() -> None:
    subjects, facts = paper()
    claims = check_claims(subjects, facts=facts)
    judged = [c for c in claims if c.of]
    assert len(judged) == 6
    assert [f"{c.holds_in} of {c.of}" for c in judged] == [c.paper for c in judged]


@pytest.mark.parametrize(("signal", "holds"), [(0.9, 1), (0.5, 0), (0.4, 0)])
def test_signal_must_be_above_every_other_cav(signal: float, holds: int) -> None:
    rows = [cav_row(name, "alignment_mean", v) for name, v in (("signal", signal), ("svm", 0.5), ("ridge", 0.3))]
    assert counted({VGG: rows}, "with the mean change") == (holds, 1)
    assert counted({VGG: rows}, "image by image") == (0, 0)
    assert counted({VGG: rows[:1]}, "with the mean change") == (0, 0)


@pytest.mark.parametrize(
    ("ours", "strict", "tied"),
    [(0.9, 1, 1), (0.8, 0, 1), (0.79, 0, 1), (0.78, 0, 0)],  # the rival has 0.8; the error of a difference is 0.014
)
def test_best_or_tied(ours: float, strict: int, tied: int) -> None:
    rows = [*scored("a-clarc", accuracy_biased=0.8), *scored("rr-clarc", accuracy_biased=ours)]
    assert counted({VGG: rows}, STRICT) == (strict, 1)
    assert counted({VGG: rows}, TIED) == (tied, 1)


@pytest.mark.parametrize("order", [("rr-clarc", "a-clarc"), ("a-clarc", "rr-clarc")])
def test_the_paired_error_goes_before_the_unpaired(order: tuple[str, str]) -> None:
    rows = [*scored("a-clarc", accuracy_biased=0.8), *scored("rr-clarc", accuracy_biased=0.79)]
    facts = {VGG: Facts(paired={order: {"accuracy_biased": (-0.01, 0.002)}})}
    assert counted({VGG: rows}, TIED, facts) == (0, 1)


def test_the_spread_over_seeds_widens_a_tie() -> None:
    rows = [*scored("a-clarc", accuracy_biased=0.8), *scored("rr-clarc", accuracy_biased=[0.7, 0.84])]
    assert counted({VGG: rows}, TIED) == (1, 1)


def test_references_are_no_rivals_and_collapsed_heads_neither_win_nor_count_against() -> None:
    rows = [
        *scored("clean-trained", accuracy_biased=0.99),
        *scored("original", accuracy_biased=0.95),
        *scored("p-clarc", accuracy_biased=0.9, balanced_accuracy_clean=0.25),
        *scored("vanilla", accuracy_biased=0.5, balanced_accuracy_clean=0.8),
        *scored("rr-clarc", accuracy_biased=0.7, balanced_accuracy_clean=0.8),
    ]
    facts = {VGG: Facts(chance_level=0.25)}
    assert counted({VGG: rows}, STRICT, facts) == (1, 1)
    assert counted({VGG: rows}, STRICT) == (0, 1)  # nobody said how many classes there are
    rows = [*rows[:-1], *scored("rr-clarc", balanced_accuracy_clean=0.25)]
    assert counted({VGG: rows}, STRICT, facts) == (0, 1)


@pytest.mark.parametrize(("tcav", "holds"), [(0.45, 1), (0.59, 1), (0.6, 0), (0.6002, 0), (0.39, 0)])
def test_tcav_nearest_to_one_half(tcav: float, holds: int) -> None:
    rows = [r for m, v in (("vanilla", 0.9), ("a-clarc", 0.4), ("rr-clarc", tcav)) for r in scored(m, tcav_positions=v)]
    assert counted({VGG: rows}, "counted as in the paper") == (holds, 1)


@pytest.mark.parametrize(("rrr", "raises"), [(0.5, False), (0.52, False), (0.53, True)])
def test_rrr_is_judged_by_where_the_artifact_is(rrr: float, raises: bool) -> None:
    rows = [*scored("vanilla", accuracy_biased=0.5), *scored("rrr", accuracy_biased=rrr)]
    subjects = {VGG: rows, BRIGHT: rows, SubjectKey("photos", "necktie", "vgg16"): rows}
    assert counted(subjects, "has no place") == (int(not raises), 1)
    assert counted(subjects, "has a place") == (int(raises), 1)


@pytest.mark.parametrize(("clean", "holds"), [(0.95, 1), (0.881, 1), (0.87, 0)])
def test_clean_accuracy_within_two_points(clean: float, holds: int) -> None:
    rows = [*scored("vanilla", accuracy_clean=0.9), *scored("rr-clarc", accuracy_clean=clean)]
    assert counted({VGG: rows}, "within 2 points") == (holds, 1)


def test_what_the_selected_classes_lose() -> None:
    rows = [
        row("a-clarc", "accuracy_change", -0.05, group="selected"),
        row("p-clarc", "accuracy_change", -0.01, group="selected"),
        row("rr-clarc", "accuracy_change", -0.05, group="selected"),
        row("rr-clarc", "accuracy_change", -0.01, group="selected", target="3"),
    ]
    assert counted({VGG: rows}, "A-ClArC costs") == (1, 1)
    assert counted({VGG: rows}, "P-ClArC costs") == (0, 1)
    assert counted({VGG: rows}, "for the one class") == (1, 1)
    assert counted({VGG: rows[:3]}, "for the one class") == (0, 0)
    claims = [c for c in check_claims({VGG: rows}) if c.about == "selected classes"]
    assert len(claims) == 3
    assert "Significantly: by more than 1.96 standard errors." in write_claims(claims)
    assert "Cannot be known" not in write_claims(claims)


def test_subjects_are_counted_where_they_can_tell() -> None:
    good = [*scored("a-clarc", accuracy_biased=0.8), *scored("rr-clarc", accuracy_biased=0.9)]
    bad = [*scored("a-clarc", accuracy_biased=0.8), *scored("rr-clarc", accuracy_biased=0.5)]
    claims = check_claims({VGG: good, RESNET: bad, BRIGHT: good[:1]})
    found = claim(claims, STRICT)
    assert (found.holds_in, found.of) == (1, 2)
    assert found.details[1].startswith(f"{RESNET.title}: no, 50.0")
    text = write_claims(claims)
    assert "| 1 of 2 | 11 of 12 |" in text
    (unknown,) = (line for line in text.splitlines() if line.startswith("Cannot be known here: "))
    assert "RRR raises the accuracy" in unknown
    assert "RRR raises the accuracy" not in text.replace(unknown, "")
    assert "Significantly" not in text, "no claim that is known here has this word"
    assert f"- {found.details[0]}" in text
