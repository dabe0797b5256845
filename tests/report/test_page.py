"""The page as a whole: it needs nothing else, says what the scores say, and is written whole or not at all."""

from __future__ import annotations

import base64
import html
import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hansfree.errors import RunError
from hansfree.evaluation.results import Row
from hansfree.report import write_report
from tests.report.conftest import CHOSEN, META, RULE, SELECTION, STRENGTHS, MakeRun, choice
from tests.report.pictured import write_cases


def text_of(path: Path) -> str:
    """Return what a reader sees, without tags, styles, scripts and images."""
    page = re.sub(r"<(style|script)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def test_the_page_is_self_contained(make_run: MakeRun) -> None:
    run = make_run(heatmaps=True)
    write_cases(run / "cases.npz")
    path = write_report(run)
    assert path == run / "report.html"
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]+\.[a-z]+/|<script src|<link|@import|url\(", page)
    sources = re.findall(r'<img src="([^"]+)" alt="([^"]+)"', page)
    assert len(sources) == 2 + 4 * 7 + 4 * 2 + 6, "figures, heatmaps, what the direction sees, the best cases"
    for source, alt in sources:
        kind = re.match(r"data:image/(png|jpeg);base64,", source)
        assert kind
        start = {"png": b"\x89PNG", "jpeg": b"\xff\xd8"}[kind[1]]
        assert base64.b64decode(source.partition(",")[2]).startswith(start)
        assert len(alt) > 20
    names = {file.name for file in (run / "figures").iterdir()}
    assert names == {"alignment.png", "tradeoff.svg", "strengths.png"}


def test_no_temporary_file_is_left(make_run: MakeRun) -> None:
    run = make_run()
    write_report(run)
    write_report(run)
    assert {file.name for file in run.iterdir()} == {
        *("results.csv", "results.json", "report.html", "figures"),
    }
    assert all(
        file.suffix in (".png", ".svg") and not file.name.startswith(".") for file in (run / "figures").iterdir()
    )


def test_a_failure_leaves_the_old_page(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    before = write_report(run).read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(run)
    assert (run / "report.html").read_bytes() == before
    assert not list(run.rglob("*.part*"))


def test_the_numbers_of_the_csv_are_on_the_page(make_run: MakeRun) -> None:
    text = text_of(write_report(make_run()))
    for clean, biased, flips, _ in CHOSEN.values():
        for value in (clean, biased, flips):
            assert f" {100 * value:.1f} " in text
    assert "84.8\N{EN DASH}89.4" in text  # of 0.871, n = 800
    assert "± 0.9" in text  # AUROC has no interval
    assert "+3.4" in text  # probability change of RR-ClArC
    assert " 0.738 " in text  # its sensitivity is not a share, but in thousandths
    assert "Majority rate" in text
    assert "hansfree demo --artifact timestamp --seed 0" in text
    assert "12.2" in text  # seconds
    assert "RR-ClArC diverged at strength 100000." in text


def test_the_order_of_the_page(make_run: MakeRun) -> None:
    run = make_run(heatmaps=True)
    write_cases(run / "cases.npz")
    page = write_report(run).read_text(encoding="utf-8")
    heads = re.findall(r"<h2>([^<]+)</h2>", page)
    assert heads == [
        "First evidence: insertion",
        "What correction costs",
        "How the strengths were chosen",
        "What the artifact does to each image",
        "Where the models look",
        "What the direction sees",
        "How well the directions fit",
        "Second evidence: inside the model",
        "Best and worst cases",
        "Reproduce",
    ]
    assert page.index("Verdict") < page.index(heads[0])


def test_without_heatmaps_the_rest_is_there(make_run: MakeRun) -> None:
    run = make_run()
    text = text_of(write_report(run))
    assert "Where the models look" not in text
    assert "87.1" in text


def test_the_notes_on_the_data(make_run: MakeRun) -> None:
    skipped = [f"{n}.png is <damaged>." for n in range(12)]
    text = text_of(write_report(make_run(meta=META | {"remarks": ["Two are the same."], "skipped": skipped})))
    assert "Notes on the data Two are the same. Left out: 0.png is <damaged>." in text
    assert "Left out: 9.png is <damaged>. Left out: 2 more, which results.json names. First evidence" in text


def test_missing_settings_are_left_out(make_run: MakeRun) -> None:
    text = text_of(write_report(make_run(meta={}, selection={})))
    assert "A model and an artifact." in text
    assert "Majority rate" not in text
    assert "None" not in text


def test_only_the_header_is_a_page_too(make_run: MakeRun) -> None:
    text = text_of(write_report(make_run(change=lambda _: [], selection={})))
    assert "RR-ClArC is missing from this run." in text
    assert "no scores on test images" in text


def test_words_of_the_run_are_escaped(make_run: MakeRun) -> None:
    page = write_report(make_run(meta=META | {"title": "<script>alert(1)</script>"})).read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_strengths_that_diverged_are_listed_once(make_run: MakeRun) -> None:
    selection = SELECTION | {"rrr": choice(10.0, "", diverged=[100.0]), "vanilla": choice(None, "", diverged=[None])}
    text = text_of(write_report(make_run(selection=selection)))
    told = "RR-ClArC diverged at strength 100000; RRR diverged at strength 100; Vanilla diverged."
    assert f"Recorded and out of the comparison: {told}" in text
    assert "Vanilla failed: diverged" in text
    assert "strength 0 " not in text


def test_the_footnote_says_which_error_is_meant(make_run: MakeRun) -> None:
    run = make_run()
    assert "two methods were compared image by image" in text_of(write_report(run))
    content = json.loads((run / "results.json").read_text(encoding="utf-8"))
    del content["paired"], content["intervals"]
    (run / "results.json").write_text(json.dumps(content), encoding="utf-8")
    text = text_of(write_report(run))
    assert "image by image" not in text
    assert "within one standard error of it: the error of the best one" in text
    assert "Paired on the same images" not in text
    assert "95 % intervals or" not in text


@pytest.mark.parametrize("paired", [{"p-clarc": {"flip_rate": [0.1, 0.01]}}, [{"method": "p-clarc"}], [1]])
def test_another_format_is_a_plain_word(make_run: MakeRun, paired: object) -> None:
    run = make_run()
    content = json.loads((run / "results.json").read_text(encoding="utf-8"))
    (run / "results.json").write_text(json.dumps(content | {"paired": paired}), encoding="utf-8")
    with pytest.raises(RunError, match="written by another version of hansfree, or is damaged"):
        write_report(run)


def test_heatmaps_that_lack_something_are_a_plain_word(make_run: MakeRun) -> None:
    run = make_run()
    np.savez(run / "heatmaps.npz", images=np.zeros((1, 8, 8, 3), np.uint8))
    with pytest.raises(RunError, match="masks"):
        write_report(run)


def test_a_method_that_the_report_does_not_know_goes_by_its_name(make_run: MakeRun) -> None:
    def add(rows: list[Row]) -> list[Row]:
        return [*rows, *(replace(row, method="my-way") for row in rows if row.method == "p-clarc")]

    selection = SELECTION | {"my-way": choice(None, "has no strength to choose", diverged=[None])}
    page = write_report(make_run(change=add, selection=selection)).read_text(encoding="utf-8")
    assert '<th scope="row">my-way<span class="detail">failed: diverged</span></th>' in page
    assert '<tr><th scope="row">my-way</th>' in page
    assert "; my-way diverged." in page


def test_one_rule_for_all_is_said_once(make_run: MakeRun) -> None:
    text = text_of(write_report(make_run()))
    assert text.count(RULE) == 1
    assert "best on val: 70.2 %" in text


def test_a_failed_method_is_red_and_said_first(make_run: MakeRun) -> None:
    def choose_none(rows: list[Row]) -> list[Row]:
        return [replace(row, chosen=0) if row.method == "rr-clarc" else row for row in rows]

    reason = "no strength is admissible: diverged"
    failed = choice(None, reason, diverged=STRENGTHS["rr-clarc"], objection="diverged")
    path = write_report(make_run(change=choose_none, selection=SELECTION | {"rr-clarc": failed}))
    page = path.read_text(encoding="utf-8")
    assert '<p class="failure">Do not use this model (RR-ClArC): no strength is admissible: diverged.</p>' in page
    assert re.search(r'<tr class="failed">\s*<th scope="row">RR-ClArC<span class="detail">failed: no usable', page)
    assert "after A-ClArC" in text_of(path)


@pytest.mark.parametrize("name", ["results.csv", "results.json"])
def test_an_unfinished_run_is_named(make_run: MakeRun, name: str) -> None:
    run = make_run()
    (run / name).unlink()
    with pytest.raises(RunError, match=f"no {name}") as error:
        write_report(run)
    assert "demo" not in str(error.value), "there are other runs"


def test_a_missing_column_is_named(make_run: MakeRun) -> None:
    run = make_run()
    table = run / "results.csv"
    table.write_text(table.read_text(encoding="utf-8").replace("stderr", "error", 1), encoding="utf-8")
    with pytest.raises(RunError, match="lacks the column\\(s\\) stderr"):
        write_report(run)


@pytest.mark.parametrize("file", ["heatmaps.npz", "cases.npz"])
def test_damaged_arrays_are_named(make_run: MakeRun, file: str) -> None:
    run = make_run()
    (run / file).write_bytes(b"PK\3\4 cut off")
    with pytest.raises(RunError, match=rf"{file} is damaged\. Delete it"):
        write_report(run)


def test_damaged_json_is_named(make_run: MakeRun) -> None:
    run = make_run()
    (run / "results.json").write_text(json.dumps({})[:1], encoding="utf-8")
    with pytest.raises(RunError, match="not valid JSON"):
        write_report(run)
