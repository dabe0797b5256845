"""The cells of the tables, read back from their Markdown."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from hansfree.experiments.workspace import Grid
from hansfree.report.numbers import MISSING
from hansfree.reproduce.aggregate import Facts
from hansfree.reproduce.tables import (
    COMPARISON_COLUMNS,
    comparison_lines,
    write_alignments,
    write_changes,
    write_comparison,
    write_details,
    write_differences,
    write_epochs,
    write_groups,
    write_path,
    write_strengths,
    write_table1,
    write_times,
    write_variants,
)
from hansfree.studies.study import Published
from tests.reproduce.examples import BRIGHT, RESNET, VGG, cav_row, path, row, scored

PUBLISHED = Published.read(
    """vgg16 vanilla 78.8 1.2 49.8 1.4 85.8 0.1 5.58 0.01 - -
    vgg16 rrr 78.8 1.2 49.9 1.4 85.7 0.1 5.58 0.01 - -""",
    strengths="vgg16 rr-clarc 500",
    seconds="""vgg16 vanilla 200 2
    vgg16 rr-clarc 250 4""",
)


def cells(text: str, first: str) -> dict[str, list[str]]:
    """Return the lines of the first table by method; ``first`` is the head of the methods' column."""
    table = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    place = next(i for i, head in enumerate(table[0]) if first in head)
    return {line[place]: line[place + 1 :] for line in (table[0], *table[2:])}


ROWS = [
    *scored("original", accuracy_clean=0.95, accuracy_biased=0.99),
    *scored("vanilla", accuracy_clean=0.9, accuracy_biased=0.5, tcav_positions=0.9),
    *scored("p-clarc", accuracy_clean=0.8, accuracy_biased=0.795, tcav_positions=0.4),
    *scored("rr-clarc", accuracy_clean=[0.89, 0.9], accuracy_biased=[0.79, 0.81], tcav_positions=[0.52, 0.54]),
    *scored("clean-trained", accuracy_clean=0.96, accuracy_biased=0.95),
]


def test_details_mark_the_nearest_to_the_ideal_and_references_do_not_compete() -> None:
    lines = cells(write_details({VGG: ROWS}), "method")
    assert list(lines)[1:] == [
        "Original", "Vanilla", "RRR (not run)", "P-ClArC", "A-ClArC (not run)", "RR-ClArC", "Clean-trained"
    ]  # fmt: skip
    assert next(iter(lines.values())) == ["Accuracy, clean [%]", "Accuracy, biased [%]", "TCAV, positions [%]"]
    assert lines["Original"] == ["95.0 ± 1.0", "99.0 ± 1.0", MISSING]
    assert lines["RR-ClArC"] == ["*89.5 ± 1.0 (0.7)*", "**80.0 ± 1.0 (1.4)**", "**53.0 ± 1.0 (1.4)**"]
    assert lines["P-ClArC"] == ["80.0 ± 1.0", "*79.5 ± 1.0*", "40.0 ± 1.0"]
    assert lines["RRR (not run)"] == [MISSING] * 3


def test_the_papers_numbers_stand_beside_ours_also_where_a_method_was_not_run() -> None:
    lines = cells(write_details({VGG: ROWS}, facts={VGG: Facts(published=PUBLISHED)}), "method")
    heads = next(iter(lines.values()))
    assert heads[:4] == ["Accuracy, clean [%]", "paper", "Accuracy, biased [%]", "paper"]
    assert lines["Vanilla"][2:4] == ["50.0 ± 1.0", "49.8 ± 1.4"]
    assert lines["RRR (not run)"][2:4] == [MISSING, "49.9 ± 1.4"]
    assert lines["P-ClArC"][3] == MISSING
    assert "5.58 ± 0.01" in lines["Vanilla"]
    assert not any("relevance" in head for head in heads)


def test_the_papers_numbers_of_another_model_are_not_shown() -> None:
    assert (
        "paper"
        not in cells(write_details({RESNET: ROWS}, facts={RESNET: Facts(published=PUBLISHED)}), "method")[
            "resnet18 · timestamp · synthetic: method"
        ]
    )


def test_the_majority_rate_says_what_accuracy_is_worth() -> None:
    rows = [*ROWS, *scored("vanilla", balanced_accuracy_clean=0.9, flip_rate=0.4)]
    lines = cells(write_details({VGG: rows}, facts={VGG: Facts(majority_rate=0.6, chance_level=0.25)}), "method")
    assert lines["Majority rate"] == ["60.0", "60.0", "25.0", MISSING, MISSING]


def test_a_head_at_chance_level_wins_nothing() -> None:
    rows = [
        *scored("vanilla", flip_rate=0.5, balanced_accuracy_clean=0.9),
        *scored("p-clarc", flip_rate=0.0, balanced_accuracy_clean=0.25),
        *scored("a-clarc", flip_rate=0.2, balanced_accuracy_clean=0.8),
    ]
    lines = cells(write_details({VGG: rows}, facts={VGG: Facts(chance_level=0.25)}), "method")
    assert lines["P-ClArC (answers no better than chance)"] == ["25.0 ± 1.0", "0.0 ± 1.0"]
    assert lines["A-ClArC"][1].startswith("**20.0")


def test_a_method_that_failed_is_named_so() -> None:
    rows = [*scored("vanilla", accuracy_clean=0.9), *path("rr-clarc", {1.0: (0.1, 0.1)}, chosen=-1.0)]
    assert cells(write_details({VGG: rows}), "method")["RR-ClArC (failed)"] == [MISSING]
    rows = scored("vanilla", accuracy_clean=math.nan)
    assert cells(write_details({VGG: rows}), "method")["Vanilla (failed)"] == ["NaN"]
    assert cells(write_table1({VGG: rows}), "method")["Vanilla"][0] == "NaN\N{DAGGER}"


def test_a_method_without_a_strength_has_the_reason_beside_it() -> None:
    rows = [*scored("vanilla", accuracy_clean=0.9), *path("rr-clarc", {1.0: (0.1, 0.1)}, chosen=-1.0)]
    reasons = {"rr-clarc": "no strength is admissible: diverged", "vanilla": "has no strength to choose"}
    facts = {VGG: Facts(reasons=reasons)}
    lines = cells(write_details({VGG: rows}, facts=facts), "method")
    assert "RR-ClArC (failed: no strength is admissible: diverged)" in lines
    assert "Vanilla" in lines, "a method that did not fail needs no reason"
    text = write_table1({VGG: rows}, facts=facts)
    assert cells(text, "method")["RR-ClArC"] == ["no strength", MISSING, MISSING]
    assert "no strength: none was fit" in text
    assert cells(write_strengths({VGG: rows}, facts=facts), "method") == {
        "method": ["strength", "paper", "why"],
        "Vanilla": [MISSING, MISSING, "has no strength to choose"],
        "RR-ClArC": ["none", MISSING, "no strength is admissible: diverged"],
    }


DEPARTED = Facts(published=PUBLISHED, departures=("random weights", "3 epochs"))


@pytest.mark.parametrize("write", [write_details, write_strengths, write_times])
def test_where_the_setting_is_not_the_papers_a_sentence_says_so(write: Callable[..., str]) -> None:
    sentence = f"Not the paper's setting ({VGG.title}): random weights; 3 epochs."
    assert sentence in write({VGG: ROWS, RESNET: ROWS}, facts={VGG: DEPARTED, RESNET: DEPARTED})
    assert "Not the paper's" not in write({VGG: ROWS}, facts={VGG: replace(DEPARTED, departures=())})
    assert "Not the paper's" not in write({VGG: ROWS}, facts={VGG: replace(DEPARTED, published=None)})


def test_differences_are_of_the_means_with_the_error_of_pairs_and_seeds() -> None:
    pairs = {"accuracy_clean": (-0.01, 0.02), "accuracy_biased": (0.29, 0.03)}
    facts = {
        VGG: Facts(paired={("rr-clarc", "vanilla"): pairs, ("p-clarc", "rr-clarc"): {"accuracy_clean": (-9, 0.0)}})
    }
    text = write_differences({VGG: ROWS, RESNET: ROWS}, facts=facts)
    lines = cells(text, "RR-ClArC minus")
    assert list(lines)[1:] == ["Vanilla", "P-ClArC"], "who was not paired has no line"
    assert RESNET.title not in text
    # clean: 89.5 - 90.0, error of the pairs 2.0 and of the seeds 0.5; biased: 80.0 - 50.0, 3.0 and 1.0
    minus = "\N{MINUS SIGN}"
    halves = [1.96 * 100 * math.hypot(0.02, 0.005), 1.96 * 100 * math.hypot(0.03, 0.01)]
    assert lines["Vanilla"] == [
        f"{minus}0.5 [{minus}{0.5 + halves[0]:.1f}, +{halves[0] - 0.5:.1f}]",
        f"**+30.0 [+{30 - halves[1]:.1f}, +{30 + halves[1]:.1f}]**",
        MISSING,
        MISSING,
    ]
    # pairs that were counted the other way round serve as well
    assert lines["P-ClArC"][0].startswith(f"**+9.5 [+{9.5 - 196 * 0.005:.1f}")


def test_without_pairs_there_are_no_differences() -> None:
    assert write_differences({VGG: ROWS}) == "No image was answered both by RR-ClArC and by a rival.\n"


def test_table1_has_models_down_and_biases_across() -> None:
    text = write_table1({VGG: ROWS, BRIGHT: ROWS[2:4], RESNET: ROWS})
    table = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.splitlines() if line[:1] == "|"]
    assert table[0] == [
        "model",
        "method",
        *(f"{a}: {m}" for a in ("timestamp", "brightness") for m in ("clean", "biased", "TCAV, positions")),
    ]
    by_line = {(line[0], line[1]): line[2:] for line in table[2:]}
    # the error is that of the images (1.0) and of the mean over two seeds (0.5, 1.0, 1.0) together
    found = by_line["vgg16", "RR-ClArC"]
    assert found == ["*89.5 ± 1.1*", "**80.0 ± 1.4**", "**53.0 ± 1.4**", "not run", MISSING, MISSING]
    assert by_line["vgg16", "Vanilla"][3:] == ["90.0 ± 1.0", "50.0 ± 1.0", MISSING]  # alone, it is nobody's better
    assert by_line["resnet18", "Vanilla"][:3] == ["**90.0 ± 1.0**", "50.0 ± 1.0", "90.0 ± 1.0"]
    assert by_line["resnet18", "Vanilla"][3:] == [MISSING] * 3
    assert by_line["vgg16", "Clean-trained"][3:] == [MISSING] * 3


def test_table1_has_one_line_per_method_also_where_it_collapsed_in_one_bias() -> None:
    good = [*scored("vanilla", accuracy_clean=0.8), *scored("p-clarc", accuracy_clean=0.7, balanced_accuracy_clean=0.7)]
    bad = [*scored("vanilla", accuracy_clean=0.5), *scored("p-clarc", accuracy_clean=0.9, balanced_accuracy_clean=0.25)]
    facts = {key: Facts(chance_level=0.25) for key in (VGG, BRIGHT)}
    lines = cells(write_table1({VGG: good, BRIGHT: bad}, facts=facts), "method")
    assert [lines["P-ClArC"][0], lines["P-ClArC"][3]] == ["70.0 ± 1.0", "90.0 ± 1.0\N{DAGGER}"]
    assert [lines["Vanilla"][0], lines["Vanilla"][3]] == ["**80.0 ± 1.0**", "50.0 ± 1.0"]
    assert sum("P-ClArC" in title for title in lines) == 1


def test_nothing_given_is_an_empty_table() -> None:
    writers = (write_table1, write_details, write_strengths, write_times, write_changes, write_differences)
    for write in (*writers, write_alignments, write_groups, write_variants, write_path, write_epochs):
        assert "nan" not in write({}).lower()
        assert "not run" not in write({})
    assert comparison_lines({}) == []
    assert write_comparison({}) == ""


def test_strengths_of_methods_that_have_one() -> None:
    rows = [*scored("vanilla", accuracy_clean=0.9), *path("rr-clarc", {0.5: (0.9, 0.5), 20.0: (0.9, 0.8)}, chosen=20.0)]
    text = write_strengths({VGG: rows, RESNET: rows}, facts={VGG: Facts(published=PUBLISHED)})
    lines = [line for line in text.splitlines() if "RR-ClArC" in line]
    assert [line.split(" | ")[2:4] for line in lines[:2]] == [["20", "500"], ["20", MISSING]]
    assert "Vanilla" not in text.split("\n\n")[0]


@pytest.mark.parametrize(("grid", "is_unit_free"), [("own", True), ("paper", False)])
def test_strengths_say_whose_units_they_have(grid: Grid, is_unit_free: bool) -> None:
    rows = path("rr-clarc", {0.5: (0.9, 0.5)}, chosen=0.5)
    text = write_strengths({VGG: rows, RESNET: rows}, facts=dict.fromkeys((VGG, RESNET), Facts(grid=grid)))
    assert ("unit-free" in text) is is_unit_free
    assert text.count("in the paper's units") + text.count("unit-free") == 1


def test_times_are_means_over_runs_and_relative_to_vanilla() -> None:
    rows = [
        row(method, "seconds_per_epoch", value, seed=seed, split=None, stderr=None)
        for method, values in {"rr-clarc": (2.4, 2.6), "vanilla": (2.0, 2.0), "rrr": (20.0,)}.items()
        for seed, value in enumerate(values)
    ]
    text = write_times({VGG: rows}, facts={VGG: Facts(published=PUBLISHED)})
    lines = cells(text, "method")
    assert list(lines)[1:] == ["Vanilla", "RRR", "RR-ClArC"]
    assert lines["RR-ClArC"] == ["2", "2.5 ± 0.1", "125.0 ± 5.0", "250 ± 4", "125.0 ± 2.0"]
    assert lines["RRR"] == ["1", "20", "1000.0", MISSING, MISSING]
    assert cells(write_times({VGG: rows[:2]}), "method")["RR-ClArC"] == ["2", "2.5 ± 0.1", MISSING, MISSING, MISSING]


def test_changes_name_the_classes_that_were_corrected() -> None:
    rows = [
        row("vanilla", "accuracy_change", 0.0, group="selected"),
        row("rr-clarc", "accuracy_change", -0.05, group="selected"),
        row("rr-clarc", "accuracy_change", 0.001, group="selected", target="3"),
        row("rr-clarc", "accuracy_change", 0.002, group="all", target="3"),
        row("a-clarc", "accuracy_change", -0.04, group="random", stderr=None),
    ]
    lines = cells(write_changes({VGG: rows}), "method")
    assert lines == {
        "method": ["selected", "random", "all"],
        "A-ClArC": [MISSING, "\N{MINUS SIGN}4.0", MISSING],
        "RR-ClArC (all classes)": ["\N{MINUS SIGN}5.0 ± 1.0", MISSING, MISSING],
        "RR-ClArC (class 3)": ["+0.1 ± 1.0", MISSING, "+0.2 ± 1.0"],
    }


def test_corrected_classes_have_their_names_where_these_are_known() -> None:
    rows = [row("rr-clarc", "accuracy_change", 0.1, group="all", target=target) for target in ("1", "[0, 2]", "all")]
    facts = {VGG: Facts(class_names=("cat", "dog"))}
    assert list(cells(write_changes({VGG: rows}, facts=facts), "method"))[1:] == [
        "RR-ClArC (class dog)", "RR-ClArC (classes cat, 2)", "RR-ClArC (all classes)"
    ]  # fmt: skip


def test_a_method_of_which_no_strength_could_be_taken_has_no_changes() -> None:
    rows = [
        *path("rr-clarc", {1.0: (0.9, 0.8)}, chosen=1.0),
        row("rr-clarc", "accuracy_change", -0.05, group="all", strength=1.0),
        *path("rr-clarc", {1.0: (0.9, 0.8)}, chosen=-1.0, target="3"),
    ]
    lines = cells(write_changes({VGG: rows}), "method")
    assert lines["RR-ClArC (class 3)"] == ["no strength", MISSING, MISSING]
    assert lines["RR-ClArC (all classes)"][2] == "\N{MINUS SIGN}5.0 ± 1.0"


def test_changes_that_differ_in_something_else_are_told_apart() -> None:
    rows = [row("rr-clarc", "accuracy_change", 0.1, group="all", cav=cav) for cav in ("signal", "svm")]
    assert list(cells(write_changes({VGG: rows}), "method"))[1:] == ["RR-ClArC · signal", "RR-ClArC · svm"]


def test_alignments_mark_the_best_and_leave_out_what_is_not_known() -> None:
    rows = [
        cav_row("signal", "alignment_sample", 0.5),
        cav_row("signal", "alignment_mean", 0.9),
        cav_row("signal", "cav_auc", 0.8),
        cav_row("svm", "alignment_sample", 0.25),
        cav_row("svm", "cav_auc", 0.95),
    ]
    lines = cells(write_alignments({VGG: rows}), "CAV")
    assert lines == {
        "CAV": ["s", "s̄", "AUC"],
        "signal": ["**0.500 ± 0.010**", "**0.900 ± 0.010**", "0.800 ± 0.010"],
        "svm": ["0.250 ± 0.010", MISSING, "**0.950 ± 0.010**"],
    }
    intrinsic = cells(write_alignments({VGG: [cav_row("signal", "cav_auc", 0.8)]}), "CAV")
    assert intrinsic["signal"] == [MISSING, MISSING, "**0.800 ± 0.010**"]


def test_the_best_alignment_is_that_of_its_own_subject() -> None:
    text = write_alignments(
        {
            VGG: [cav_row("signal", "cav_auc", 0.6)],
            RESNET: [cav_row("signal", "cav_auc", 0.9), cav_row("svm", "cav_auc", 0.7)],
        }
    )
    assert text.count("**") == 2 * 2


def test_groups_have_a_line_each_and_a_column_per_method() -> None:
    rows = [
        row("original", "accuracy_clean", 0.5, group="a with ruler", n=40),
        row("rr-clarc", "accuracy_clean", 0.75, group="a with ruler", n=40),
        row("original", "accuracy_clean", 0.9, group="a without ruler", n=60),
        row("original", "accuracy_clean", 0.1),  # of all images: no group
    ]
    assert cells(write_groups({VGG: rows}), "group") == {
        "group": ["images", "Original", "RR-ClArC"],
        "a with ruler": ["40", "50.0 ± 1.0", "75.0 ± 1.0"],
        "a without ruler": ["60", "90.0 ± 1.0", MISSING],
    }


def test_variants_are_told_apart_and_stand_at_their_chosen_strength() -> None:
    rows = [
        *scored("vanilla", accuracy_clean=0.9, flip_rate=0.4),
        *path("rr-clarc", {0.5: (0.9, 0.5), 20.0: (0.88, 0.8)}, chosen=20.0),
        *path("rr-clarc", {1.0: (0.7, 0.6)}, chosen=1.0, cav="svm"),
        *path("rr-clarc", {3.0: (0.1, 0.1)}, chosen=-1.0, cav="lasso"),  # no strength was fit to be taken
    ]
    lines = cells(write_variants({VGG: rows}), "variant")
    assert next(iter(lines.values()))[:3] == ["strength", "Accuracy, clean", "Accuracy, biased"]
    assert list(lines)[1:] == ["Vanilla", "RR-ClArC · signal", "RR-ClArC · svm", "RR-ClArC · lasso"]
    assert lines["RR-ClArC · lasso"] == ["none", *[MISSING] * 6]
    assert lines["RR-ClArC · signal"][:3] == ["20", "88.0 ± 1.0", "80.0 ± 1.0"]
    assert lines["RR-ClArC · svm"][:3] == ["1", "70.0 ± 1.0", "60.0 ± 1.0"]
    assert lines["Vanilla"][:3] == ["", "90.0 ± 1.0", MISSING]


def test_the_path_has_vanilla_and_every_strength_from_weak_to_strong() -> None:
    rows = [
        *path("rr-clarc", {20.0: (0.88, 0.8), 3.0: (0.9, 0.5)}, chosen=20.0),
        row("rr-clarc", "tcav", 0.6, strength=3.0, chosen=0),
        *scored("vanilla", accuracy_clean=0.9),
        *path("rrr", {1.0: (0.1, 0.1)}, chosen=1.0),
        row("rr-clarc", "accuracy_clean", 0.1, strength=5.0, epoch=1, split="val"),
    ]
    lines = cells(write_path({VGG: rows}), "strength")
    assert list(lines)[1:] == ["Vanilla", "3", "**20**"]
    assert lines["3"] == ["90.0 ± 1.0", "50.0 ± 1.0", MISSING, MISSING, "60.0 ± 1.0"]
    assert lines["Vanilla"] == ["90.0 ± 1.0", *[MISSING] * 4]


def test_of_the_epochs_the_first_the_middle_and_the_last_are_told() -> None:
    rows = [
        row("rr-clarc", "balanced_accuracy_clean", epoch / 10, strength=float(strength), epoch=epoch, split="val")
        for strength in range(1, 10)
        for epoch in range(1, 6)
    ]
    lines = cells(write_epochs({VGG: [*rows, *path("rr-clarc", {50.0: (0.9, 0.8)}, chosen=50.0)]}), "strength")
    assert lines["strength"] == [f"Balanced accuracy, clean: epoch {epoch}" for epoch in (1, 3, 5)]
    assert list(lines)[1:] == ["1", "3", "5", "7", "9"]
    assert lines["3"] == ["10.0 ± 1.0", "30.0 ± 1.0", "50.0 ± 1.0"]


def test_brackets_are_explained_where_there_are_several_seeds() -> None:
    assert "in brackets" in write_details({VGG: ROWS})
    assert "of the seeds together" in write_table1({VGG: ROWS})
    one = [each for each in ROWS if each.seed == 0]
    assert "in brackets" not in write_details({VGG: one})
    assert "seeds" not in write_table1({VGG: one})


def test_comparison_lines_hold_ours_and_the_papers() -> None:
    lines = comparison_lines({VGG: ROWS}, facts={VGG: Facts(published=PUBLISHED)})
    assert all(tuple(line) == COMPARISON_COLUMNS for line in lines)
    (ours,) = (line for line in lines if (line["method"], line["metric"]) == ("vanilla", "accuracy_biased"))
    assert (ours["value"], ours["paper"], ours["paper_stderr"]) == (0.5, pytest.approx(0.498), pytest.approx(0.014))
    (other,) = (line for line in lines if (line["method"], line["metric"]) == ("rr-clarc", "accuracy_biased"))
    assert (other["repeats"], other["paper"]) == (2, None)


def test_the_comparison_is_a_table_where_the_paper_has_numbers() -> None:
    lines = list(csv.DictReader(write_comparison({VGG: ROWS}, facts={VGG: DEPARTED}).splitlines()))
    assert tuple(lines[0]) == COMPARISON_COLUMNS
    (ours,) = (line for line in lines if (line["method"], line["metric"]) == ("vanilla", "accuracy_biased"))
    assert [ours[name] for name in ("value", "paper", "departures")] == ["0.5", "0.498", "random weights; 3 epochs"]
    (other,) = (line for line in lines if (line["method"], line["metric"]) == ("rr-clarc", "accuracy_biased"))
    assert [other[name] for name in ("cav", "paper", "departures")] == ["signal", "", ""]
    assert write_comparison({VGG: ROWS}) == write_comparison({RESNET: ROWS}, facts={RESNET: DEPARTED}) == ""
