"""Which model is marked best, which compete, and how numbers are written."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hansfree.evaluation import WORST_GROUP
from hansfree.evaluation.results import Results, Row, load_results
from hansfree.evaluation.verdict import shown_variant
from hansfree.report.numbers import percent, write_p, write_stderr, write_value
from hansfree.report.tables import (
    Cell,
    Line,
    Table,
    class_tables,
    footnote_of,
    inner_table,
    insertion_table,
    marks_of,
    pair_table,
    side_effect_table,
)
from tests.report.conftest import (
    CHOSEN,
    CLASSES,
    FLIPS,
    META,
    POOR,
    RULE_BROKEN,
    SELECTION,
    Change,
    MakeRun,
    World,
    changed,
    choice,
    pair,
    with_others,
    without,
)


def marked(results: Results, metric: str) -> dict[str, str]:
    return {variant.method: mark for variant, mark in marks_of(results, metric).items()}


def line_of(table: Table | None, title: str) -> Line:
    assert table is not None
    return next(line for line in table.lines if line.title == title)


def cells_of(table: Table | None, title: str) -> dict[str, Cell]:
    """Return the cells of a line by metric and part."""
    assert table is not None
    return dict(zip([f"{c.metric} {c.part}".strip() for c in table.columns], line_of(table, title).cells))


def number(text: str) -> float:
    return float(text.replace("\N{MINUS SIGN}", "-"))


def test_best_is_nearest_to_the_ideal(make_run: MakeRun) -> None:
    results = load_results(make_run(change=changed("vanilla", "probability_change", -0.4)))
    assert {metric: marked(results, metric) for metric in ("tcav", "flip_rate", "probability_change")} == {
        "tcav": {"rr-clarc": "best"},  # of 0.31, 0.47 and 0.62
        "flip_rate": {"rr-clarc": "best"},
        "probability_change": {"rr-clarc": "best"},
    }
    assert marked(results, "balanced_accuracy_biased") == {"rr-clarc": "best", "a-clarc": "near"}
    assert marked(results, "tcav_zero_share") == {}, "all are equal"
    kept = ("original", "vanilla")
    alone = [row for row in results.rows if row.metric != "artifact_relevance" or row.method in kept]
    assert marked(replace(results, rows=tuple(alone)), "artifact_relevance") == {}, "one alone is not the best"


def collapse(rows: list[Row]) -> list[Row]:
    values = {"balanced_accuracy_clean": 0.25, "balanced_accuracy_biased": 0.25, "flip_rate": 0.0}
    return [replace(row, value=values.get(row.metric, row.value)) if row.method == "rrr" else row for row in rows]


@pytest.mark.parametrize(
    ("change", "selection", "title", "kind", "detail", "best"),
    [
        (collapse, {}, "RRR", "chance", "at chance level", "rr-clarc"),
        (changed("rr-clarc", "auroc_biased", math.nan), {}, "RR-ClArC", "failed", "failed: diverged", "a-clarc"),
        (without, {}, "RR-ClArC", "failed", "rejected: no admissible strength", "a-clarc"),
        # it has no strength: leaving it out of the comparison would flatter the others
        (
            changed("a-clarc", "flip_rate", 0.01),
            RULE_BROKEN,
            "A-ClArC",
            "method",
            "breaks the selection rule",
            "a-clarc",
        ),
        (list, {"vanilla": choice(None, diverged=[None])}, "Vanilla", "failed", "failed: diverged", "rr-clarc"),
    ],
)
def test_models_that_do_not_compete(
    make_run: MakeRun, change: Change, selection: dict, title: str, kind: str, detail: str, best: str
) -> None:
    results = load_results(make_run(change=change, selection=SELECTION | selection))
    line = line_of(insertion_table(results), title)
    assert (line.kind, line.detail) == (kind, detail)
    assert kind == "method" or not any(cell.mark for cell in line.cells)
    assert marked(results, "flip_rate") == {best: "best"}


def test_rows_and_columns(make_run: MakeRun) -> None:
    results = load_results(make_run())
    table = insertion_table(results)
    titles = ["Original", "Vanilla", "RRR", "P-ClArC", "A-ClArC", "RR-ClArC", "Clean-trained", "Majority rate"]
    assert [line.title for line in table.lines] == titles
    assert [line.kind for line in table.lines] == ["reference", *["method"] * 5, "reference", "reference"]
    assert table.heads[:4] == [("Flip rate", 1), ("Accuracy", 2), ("Balanced accuracy", 2), ("AUROC", 2)]
    assert sum(span for _, span in table.heads) == len(table.columns)
    majority, ours = line_of(table, "Majority rate").cells, line_of(table, "RR-ClArC")
    assert [cell.value for cell in majority[1:5]] == ["41.0", "41.0", "25.0", "25.0"]
    assert ours.detail == "strength 10"
    worst = ours.cells[[c.metric for c in table.columns].index("accuracy_worst_group")]
    assert (worst.value, worst.group) == ("67.1", "melanoma with artifact")
    assert {c.metric: c.ideal for c in inner_table(results).columns}["tcav"] == "50"
    assert "Majority rate" not in [line.title for line in inner_table(results).lines]


def test_pairs_decide_who_is_near(make_run: MakeRun) -> None:
    # both fall short of RR-ClArC by far more, and by far less, than its own standard error of 0.012
    pairs = [
        pair("rr-clarc", "p-clarc", "balanced_accuracy_biased", 0.049, stderr=0.050),
        pair("rr-clarc", "a-clarc", "balanced_accuracy_biased", 0.009, stderr=0.004),
        pair("rr-clarc", "p-clarc", "accuracy_biased", 0.049, stderr=0.05),
    ]
    results = load_results(make_run(paired=pairs))
    assert marked(results, "balanced_accuracy_biased") == {"rr-clarc": "best", "p-clarc": "near"}
    one = replace(results, paired=tuple(pairs[2:]))
    assert marked(one, "accuracy_biased")["p-clarc"] == "near"
    assert "p-clarc" not in marked(one, "balanced_accuracy_biased"), "pairs of another metric do not decide"


@pytest.mark.parametrize(("value", "interval"), [(0.0, "0.0\N{EN DASH}2.1"), (1.0, "97.9\N{EN DASH}100.0")])
def test_none_and_all_are_not_certain(make_run: MakeRun, value: float, interval: str) -> None:
    """Of 180 images: Wilson's interval, where the standard error would be 0.0."""
    change = changed("rr-clarc", "accuracy_worst_group", value)
    results = load_results(make_run(change=lambda rows: [replace(each, stderr=0.0) for each in change(rows)]))
    cell = cells_of(insertion_table(results), "RR-ClArC")["accuracy_worst_group"]
    assert (cell.interval, cell.stderr) == (interval, "")


@pytest.mark.parametrize("can_be_made", [True, False])
def test_the_worst_group_is_marked_best_only_where_all_groups_are_known(make_run: MakeRun, can_be_made: bool) -> None:
    claims = [{"name": WORST_GROUP, "can_be_made": can_be_made, "facts": {}}]
    results = load_results(make_run(meta=META | {"claims": claims}))
    metric = "accuracy_worst_group"
    assert bool(marks_of(results, metric)) == can_be_made
    assert (footnote_of(results, metric) is None) == can_be_made
    column = next(each for each in insertion_table(results).columns if each.metric == metric)
    assert column.part == ("" if can_be_made else "of those known \N{DOUBLE DAGGER}")


def test_unavailable_scores_and_one_sided_accuracy(make_run: MakeRun) -> None:
    results = load_results(make_run(**POOR.parts()))
    table = insertion_table(results)
    cells, majority = cells_of(table, "RR-ClArC"), cells_of(table, "Majority rate")
    unknown = next(cell for name, cell in cells.items() if name.startswith("balanced_accuracy_biased"))
    assert unknown.value == "n/a (n = 7)"
    assert "25 images" in unknown.note
    assert [cell.value for name, cell in majority.items() if name.startswith("accuracy_clean")] == ["50.0"]
    biased = [cell.value for name, cell in majority.items() if name.startswith("accuracy_biased")]
    assert biased == ["\N{EN DASH}"], "the largest class of other images is another"
    assert results.is_one_sided
    assert [column.footnote.mark for column in table.columns if column.footnote] == ["\N{DAGGER}"]
    assert marks_of(results, "accuracy_biased") == {}
    assert marks_of(results, "tcav_sensitivity")


def test_numbers() -> None:
    assert [write_value("probability_change", value) for value in (-0.02, 0.02, -0.00001)] == [
        *("\N{MINUS SIGN}2.0", "+2.0", "0.0")
    ]
    assert write_value("flip_rate", 0.0614) == "6.1"
    assert write_value("tcav_sensitivity", 0.0012345) == "1.23"
    assert write_value("flip_rate", math.nan) == "\N{EN DASH}"
    assert [write_stderr("auroc_clean", value) for value in (math.nan, None, 0.0, 0.012)] == ["", "", "", "1.2"]
    assert percent(0.5) == "50.0\N{NO-BREAK SPACE}%"
    assert [write_p(p) for p in (1e-9, 0.0213, 0.213)] == ["< 0.001", "0.021", "0.21"]


@given(st.floats(0, 1))
def test_a_share_is_written_to_a_twentieth_of_a_point(value: float) -> None:
    assert abs(float(write_value("flip_rate", value)) - 100 * value) <= 0.05 + 1e-9


@pytest.fixture
def paired(make_run: MakeRun) -> Results:
    return load_results(make_run(**World().parts()))


def pairs_with(results: Results, method: str = "rr-clarc") -> Table:
    table = pair_table(results, results.variant(method))
    assert table is not None
    return table


def test_every_rival_has_a_line_and_every_difference_its_interval(paired: Results) -> None:
    table = pairs_with(paired)
    assert [line.title for line in table.lines] == ["Original", "Vanilla", "P-ClArC", "A-ClArC"]
    cells = cells_of(table, "Original")
    for metric, part in (("balanced_accuracy_biased", "balanced accuracy"), ("flip_rate", "rate")):
        before, after = (paired.chosen(paired.variant(name))[metric].value for name in ("original", "rr-clarc"))  # type: ignore[arg-type]
        cell = cells[f"{metric} {part}"]
        assert number(cell.value) == pytest.approx(100 * (after - before), abs=0.051)
        low, high = map(number, cell.interval.split(" to "))
        assert low < 100 * (after - before) < high
    assert [cells[f"{metric} McNemar p"].value for metric in ("accuracy_biased", "flip_rate", "accuracy_clean")] == [
        *("< 0.001", "< 0.001", "1.00")  # the same answers on clean images
    ]
    theirs = cells_of(pairs_with(paired, "p-clarc"), "RR-ClArC")
    for key in ("flip_rate rate", "accuracy_biased accuracy"):
        assert number(cells_of(table, "P-ClArC")[key].value) == -number(theirs[key].value)


def test_p_values_are_corrected_for_the_lines(paired: Results) -> None:
    """RR-ClArC against A-ClArC is not clear among four comparisons, though it would be alone."""
    alone = {"original": 1e-9, "vanilla": 1e-9, "p-clarc": 0.02, "a-clarc": 0.03}
    pairs = [
        replace(each, p=alone[each.rival]) if (each.method, each.metric) == ("rr-clarc", "flip_rate") else each
        for each in paired.paired
    ]
    table = pairs_with(replace(paired, paired=tuple(pairs)))
    found = [cells_of(table, line.title)["flip_rate McNemar p"].value for line in table.lines]
    assert found == ["< 0.001", "< 0.001", "0.040", "0.040"]


def test_classes_side_by_side(make_run: MakeRun) -> None:
    results = load_results(make_run(**POOR.parts()))
    clean, biased = class_tables(results, shown_variant(results))
    assert [line.title for line in clean.lines] == list(CLASSES)
    assert [line.cells[0].value for line in clean.lines] == ["160", "90", "60"]
    assert [column.part for column in clean.columns] == ["", *["original", "RR-ClArC", "change"] * 3]
    original, ours = (results.variant(name) for name in ("original", "rr-clarc"))
    assert original is not None
    assert ours is not None
    for place, name in enumerate(("sensitivity", "specificity", "auroc_class")):
        before, after = (results.of_classes(each, f"{name}_clean")[1].value for each in (original, ours))
        values = [cell.value for cell in clean.lines[1].cells[1 + 3 * place : 4 + 3 * place]]
        assert values[:2] == [f"{100 * before:.1f}", f"{100 * after:.1f}"]
        assert number(values[2]) == pytest.approx(100 * (after - before), abs=0.051)
    unknown = [[cell.value if cell.is_unknown else "" for cell in line.cells[1:7:3]] for line in biased.lines]
    assert unknown == [["", "n/a (n = 7)"], ["n/a (n = 7)", ""], ["n/a (n = 0)", ""]]


def test_of_very_many_classes_those_that_changed_most_are_shown(make_run: MakeRun) -> None:
    rows = World().run()
    row = next(row for row in rows if row.metric == "sensitivity_clean")
    many = [
        replace(row, method=method, group=k, value=0.5 + (k % 7) * step)
        for method, step in (("original", 0.0), ("rr-clarc", 0.05))
        for k in range(40)
    ]
    many += [r for r in rows if r.metric == "balanced_accuracy_clean"]
    many[40 + 13] = replace(many[40 + 13], value=1.0, stderr=0.0, n=60)
    results = load_results(make_run(**World().parts() | {"change": lambda _: many}))
    (table,) = class_tables(results, results.variant("rr-clarc"))
    assert (len(table.lines), table.left_out) == (30, 10)
    assert "naevus" not in [line.title for line in table.lines], "class 0 did not change"
    cell = line_of(table, "class 13").cells[2]
    assert (cell.value, cell.interval, cell.stderr) == ("100.0", "94.0\N{EN DASH}100.0", "")


def test_side_effects_have_a_line_per_model_and_columns_per_artifact(make_run: MakeRun) -> None:
    meta = META | {"removed": {"timestamp": 81.2, "lsb": 44.7}, "protected": ["<ink>"]}
    results = load_results(make_run(change=with_others, meta=meta))
    table = side_effect_table(results)
    assert table is not None
    heads = [("No artifact", 1), ("timestamp (of this run)", 2), ("lsb (removed too)", 2), ("<ink> (kept)", 2)]
    assert table.heads == heads
    assert [(line.title, line.kind) for line in table.lines] == [
        *(("Original", "reference"), ("P-ClArC", "method"), ("RR-ClArC", "method"))
    ]
    for line, (method, flips) in zip(table.lines, FLIPS.items()):
        clean, biased, own_flips, _ = CHOSEN[method]
        values = [clean, own_flips, biased, flips, 0.7, flips, 0.7]
        assert [cell.value for cell in line.cells] == [f"{100 * value:.1f}" for value in values]
    assert table.lines[0].cells[3].stderr == "1.5"  # of 0.25, n = 800
    assert table.lines[2].cells[3].interval == "0.0\N{EN DASH}0.5", "nought is not certain"
    plain = side_effect_table(replace(results, meta={}))
    assert plain is not None
    assert [head for head, _ in plain.heads] == ["No artifact", "artifact (of this run)", "lsb", "<ink>"]
    assert side_effect_table(replace(results, further=())) is None
