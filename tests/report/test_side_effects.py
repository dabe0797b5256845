"""The matrix of models and further artifacts: there with its numbers, and absent where there is nothing to show."""

from __future__ import annotations

import re
from dataclasses import replace

from hansfree.evaluation.results import Row, Variant, load_results
from hansfree.evaluation.verdict import shown_variant
from hansfree.report import write_report
from hansfree.report.numbers import percent
from hansfree.report.page import side_effect_table
from hansfree.report.text import describe_others, describe_setting, write_verdict
from tests.report.conftest import CHOSEN, META, MakeRun, score
from tests.report.test_page import text_of

FLIPS = {"original": 0.25, "p-clarc": 0.4, "rr-clarc": 0.0}


def with_others(rows: list[Row]) -> list[Row]:
    """Add what three models do under two further artifacts."""
    extra = []
    for method, flips in FLIPS.items():
        like = next(row for row in rows if row.method == method and row.chosen and row.split == "test")
        about = {name: getattr(like, name) for name in ("cav", "target", "norm", "strength")}
        for artifact in ("lsb", "<ink>"):
            extra += [
                score(method, "flip_rate", flips, artifact=artifact, **about),
                score(method, "balanced_accuracy_biased", 0.7, artifact=artifact, **about),
            ]
    return [*rows, *extra]


def test_every_model_has_a_line_and_every_artifact_its_columns(make_run: MakeRun) -> None:
    table = side_effect_table(load_results(make_run(change=with_others)))
    assert table is not None
    own = "timestamp (of this run)"
    assert table.heads == [("No artifact", 1), (own, 2), ("lsb", 2), ("<ink>", 2)]
    assert [line.title for line in table.lines] == ["Original", "P-ClArC", "RR-ClArC"], "as in all tables"
    assert [line.kind for line in table.lines] == ["reference", "method", "method"]
    for line, (method, flips) in zip(table.lines, FLIPS.items()):
        clean, biased, own_flips, _ = CHOSEN[method]
        values = [clean, own_flips, biased, flips, 0.7, flips, 0.7]
        assert [cell.value for cell in line.cells] == [f"{100 * value:.1f}" for value in values]
    assert table.lines[0].cells[3].stderr == "1.5"  # of 0.25, n = 800
    assert table.lines[2].cells[3].interval == "0.0\N{EN DASH}0.5", "nought is not certain"


def test_the_section_says_what_to_look_for(make_run: MakeRun) -> None:
    path = write_report(make_run(change=with_others))
    page, text = path.read_text(encoding="utf-8"), text_of(path)
    heads = re.findall(r"<h2>([^<]+)</h2>", page)
    assert heads[heads.index("Side effects under other artifacts") + 1] == "Second evidence: inside the model"
    assert "Look for a correction that lowers one flip rate and raises another" in text
    assert "&lt;ink&gt;" in page
    assert "<ink>" not in page


def test_what_is_removed_or_kept_is_told_with_its_numbers(make_run: MakeRun) -> None:
    meta = META | {"removed": {"timestamp": 81.2, "lsb": 44.7}, "protected": ["<ink>", "hair"]}
    run = make_run(change=with_others, meta=meta)
    results = load_results(run)
    table = side_effect_table(results)
    assert table is not None
    assert [head for head, _ in table.heads][2:] == ["lsb (removed too)", "<ink> (kept)"]
    assert (
        "Corrections along a direction remove timestamp and lsb together and keep <ink> and hair; all others know "
        "timestamp only. Degrees to what is kept, 90 where they share nothing: timestamp at 81 and lsb at 45."
    ) in describe_setting(results)
    verdict = write_verdict(results)
    shares = f"changes {percent(0)} of the decisions instead of {percent(0.25)}."
    assert verdict.others == (
        f"Inserted into the same images, lsb (removed too) {shares} "
        f"Inserted into the same images, <ink> (kept) {shares} "
        "Not measured, as it cannot be inserted into test images: hair."
    )
    assert verdict.others in verdict.lines
    text = text_of(write_report(run))
    assert " ".join(verdict.others.split()) in text
    assert "corrections along a direction remove those “removed too”" in text


def test_a_method_without_a_direction_knows_the_own_artifact_only(make_run: MakeRun) -> None:
    meta = META | {"removed": {"timestamp": 90.0, "lsb": 90.0}, "protected": []}
    results = load_results(make_run(change=with_others, meta=meta))
    told = describe_others(results, replace(shown_variant(results) or Variant("rr-clarc"), cav=None))
    assert "uses no direction: it was corrected for timestamp only." in told


def test_all_else_is_as_without(make_run: MakeRun) -> None:
    run = make_run(change=with_others)
    page = write_report(run).read_text(encoding="utf-8")
    table = run / "results.csv"
    kept = [
        line
        for line in table.read_text(encoding="utf-8").splitlines(keepends=True)
        if ",lsb," not in line and ",<ink>," not in line
    ]
    table.write_text("".join(kept), encoding="utf-8")
    without = write_report(run).read_text(encoding="utf-8")
    assert "Side effects" not in without
    section = re.compile(r'<section id="side-effects">.*?</section>\n', re.DOTALL)
    assert section.sub("", page).split() == without.split()


def test_a_run_without_an_artifacts_name_has_a_head_all_the_same(make_run: MakeRun) -> None:
    table = side_effect_table(load_results(make_run(change=with_others, meta=META | {"artifact": ""})))
    assert table is not None
    assert table.heads[1] == ("artifact (of this run)", 2)


def test_nothing_to_show_is_no_table(make_run: MakeRun) -> None:
    assert side_effect_table(load_results(make_run())) is None
