"""A bias that is in the scenes: what cannot be known is said, and nothing is claimed without evidence."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hansfree.cavs.diagnostics import diagnose_cav
from hansfree.errors import RunError
from hansfree.evaluation.results import Results, load_results
from hansfree.evaluation.verdict import shown_variant
from hansfree.report import write_report
from hansfree.report.figures import draw_strengths
from hansfree.report.plots import draw_tradeoff
from hansfree.report.tables import class_tables, insertion_table, marks_of
from hansfree.report.text import describe_setting, write_verdict
from tests.report.conftest import MakeRun
from tests.report.pairing import pair
from tests.report.test_page import text_of
from tests.report.worlds import World

RICH = World((80, 60, 30))
POOR = World((60, 7, 0))  # nearly every plaster is on a naevus
NONE = World((0, 0, 0))


def folder(make_run: MakeRun, world: World, **meta: object) -> Path:
    return make_run(**world.parts() | {"meta": world.meta | meta})


def load(make_run: MakeRun, world: World) -> Results:
    return load_results(folder(make_run, world))


def told(results: Results) -> str:
    return " ".join(write_verdict(results).sentences).replace("\N{NO-BREAK SPACE}", " ")


def test_known_groups_are_told_without_insertion(make_run: MakeRun) -> None:
    results = load(make_run, RICH)
    assert not results.is_inserted
    words = told(results)
    assert "decisions" not in words
    assert re.match(
        r"After RR-ClArC, balanced accuracy rises from \S+ % to \S+ % on images with the artifact, and", words
    )
    assert "Differences on the same images, in points with 95" in write_verdict(results).differences
    assert "no verdict" not in words
    assert "It is the best of 4 methods" in write_verdict(results).beside


@pytest.mark.parametrize("world", [POOR, NONE], ids=["few", "none"])
def test_where_it_cannot_be_known_no_cure_is_claimed(make_run: MakeRun, world: World) -> None:
    results = load(make_run, world)
    verdict = write_verdict(results)
    words, beside = told(results), verdict.beside
    assert len(verdict.sentences) == 2
    assert words.startswith("How often the model is right on images with the artifact would show whether the bias is")
    assert "no verdict" not in words, "the headline says so"
    assert "(n = " not in words, "spelled out in a headline"
    assert "on images with the artifact," not in words
    assert "best of" not in beside
    assert (
        "TCAV sensitivity (mean size of the derivative of the logit along the direction" in verdict.differences
    ) == (world is POOR)
    shown = shown_variant(results)
    assert shown is not None
    assert shown.method == "rr-clarc"


def test_the_table_says_what_cannot_be_known_instead_of_a_dash(make_run: MakeRun) -> None:
    results = load(make_run, POOR)
    table = insertion_table(results)
    line = dict(zip((c.metric for c in table.columns), next(x for x in table.lines if x.title == "RR-ClArC").cells))
    assert line["balanced_accuracy_biased"].value == "n/a (n = 7)"
    assert "25 images" in line["balanced_accuracy_biased"].note
    assert line["accuracy_biased"].value.replace(".", "").isdigit()
    majority = next(x for x in table.lines if x.title == "Majority rate")
    values = dict(zip((c.metric for c in table.columns), (cell.value for cell in majority.cells)))
    assert values["accuracy_clean"] == "50.0"
    assert values["accuracy_biased"] == "\N{EN DASH}", "the largest class of other images is another"


def test_what_the_shortcut_wins_marks_nobody_and_is_not_drawn(make_run: MakeRun) -> None:
    results = load(make_run, POOR)
    assert results.is_one_sided
    assert marks_of(results, "accuracy_biased") == {}
    assert marks_of(results, "tcav_sensitivity")
    assert draw_tradeoff(results) is None
    assert draw_strengths(results) is None


def test_groups_that_are_known_are_marked_and_drawn(make_run: MakeRun) -> None:
    results = load(make_run, RICH)
    assert not results.is_one_sided
    assert marks_of(results, "accuracy_biased")
    drawing = draw_tradeoff(results)
    assert drawing is not None
    assert "others than those without" in drawing.caption


def test_the_diagnosis_is_on_the_page(make_run: MakeRun) -> None:
    rng = np.random.default_rng(0)
    has_artifact = np.arange(90) < 30
    features = rng.normal(size=(90, 6))
    features[has_artifact, 0] += 3
    diagnosis = diagnose_cav(features, has_artifact, seed=0)
    run = folder(make_run, RICH)
    (run / "diagnostics.json").write_text(diagnosis.to_json(), encoding="utf-8")
    text = text_of(write_report(run))
    assert "Can the direction be trusted? " + re.sub(r"\s+", " ", diagnosis.verdict) in text
    assert text.count(re.sub(r"\s+", " ", diagnosis.verdict)) == 1
    for finding in diagnosis.findings:
        assert re.sub(r"\s+", " ", finding.sentence) in text
    assert (run / "figures" / "diagnostics.png").exists()


def test_images_whose_artifact_mark_looks_wrong_are_shown(make_run: MakeRun) -> None:
    rng = np.random.default_rng(0)
    has_artifact = np.arange(90) < 30
    features = rng.normal(size=(90, 6))
    features[has_artifact, 0] += 9
    names = [f"<b>{row}.png" for row in range(90)]
    has_artifact[[3, 80]] = False, True
    diagnosis = diagnose_cav(features, has_artifact, ids=names, seed=0)
    assert {mark.id for mark in diagnosis.suspect_labels} == {names[3], names[80]}
    run = folder(make_run, RICH)
    (run / "diagnostics.json").write_text(diagnosis.to_json(), encoding="utf-8")
    assert 'id="suspect-labels"' not in write_report(run).read_text(encoding="utf-8"), (
        "of older runs there are no pictures"
    )
    np.savez(run / "suspect_labels.npz", pictures=rng.integers(0, 255, (2, 32, 32, 3)).astype(np.uint8))
    page = write_report(run)
    _, _, section = page.read_text(encoding="utf-8").partition('<section id="suspect-labels">')
    section = section.partition("</section>")[0]
    assert section.count("<img ") == 2
    assert "correct it in the column or list of artifact labels" in section
    told = {"&lt;b&gt;3.png": "listed without the artifact", "&lt;b&gt;80.png": "listed with the artifact"}
    for name, listed in told.items():
        assert f"<strong>{name}</strong><br>{listed}</figcaption>" in section
    assert "most suspicious of" not in section, "they are all there are"
    (run / "suspect_labels.npz").write_bytes(b"PK\3\4 cut off")
    with pytest.raises(
        RunError, match=r"suspect_labels\.npz is damaged\. Delete it and .*diagnostics\.json, and resume"
    ):
        write_report(run)


def test_classes_side_by_side(make_run: MakeRun) -> None:
    results = load(make_run, POOR)
    clean, biased = class_tables(results, shown_variant(results))
    assert [line.title for line in clean.lines] == ["naevus", "melanoma", "keratosis"]
    assert [line.n for line in clean.lines] == ["160", "90", "60"]
    assert (clean.before, clean.after) == ("original", "RR-ClArC")
    original, ours = (results.variant(name) for name in ("original", "rr-clarc"))
    assert original is not None
    assert ours is not None
    for place, name in enumerate(("sensitivity", "specificity", "auroc_class")):
        before = results.of_classes(original, f"{name}_clean")[1].value
        after = results.of_classes(ours, f"{name}_clean")[1].value
        change = clean.lines[1].changes[place]
        assert (change.before.value, change.after.value) == (f"{100 * before:.1f}", f"{100 * after:.1f}")
        assert float(change.change.replace("\N{MINUS SIGN}", "-")) == pytest.approx(100 * (after - before), abs=0.051)
    assert [line.changes[0].unknown for line in biased.lines] == ["", *(f"n/a (n = {n})" for n in (7, 0))]
    assert [line.changes[1].unknown for line in biased.lines] == ["n/a (n = 7)", "", ""]


def test_of_very_many_classes_those_that_changed_most_are_shown(make_run: MakeRun) -> None:
    rows = World().run()
    row = next(row for row in rows if row.metric == "sensitivity_clean")
    many = [
        type(row)(**{**vars(row), "method": method, "group": k, "value": 0.5 + (k % 7) * step})
        for method, step in (("original", 0.0), ("rr-clarc", 0.05))
        for k in range(40)
    ]
    many += [r for r in rows if r.metric == "balanced_accuracy_clean"]
    results = load_results(make_run(**World().parts() | {"change": lambda _: many}))
    (table,) = class_tables(results, results.variant("rr-clarc"))
    assert (len(table.lines), table.left_out) == (30, 10)
    assert "naevus" not in [line.title for line in table.lines], "class 0 did not change"


def test_the_page_of_a_natural_bias(make_run: MakeRun) -> None:
    claims = [
        {"name": "TCAV", "can_be_made": True, "sentence": "It needs no counter-examples."},
        {"name": "accuracy with the artifact", "can_be_made": False, "sentence": "Only 7 test images of “melanoma”."},
    ]
    path = write_report(folder(make_run, POOR, claims=claims))
    text = text_of(path)
    heads = re.findall(r"<h2>([^<]+)</h2>", path.read_text(encoding="utf-8"))
    assert heads == [
        "What these data cannot show",
        "First evidence: images without and with the artifact",
        "What correction costs",
        "How the strengths were chosen",
        "Per class",
        "Second evidence: inside the model",
        "What these data can show",
        "Reproduce",
    ]
    assert "The same held-out test images" not in text
    assert "What correction costs Accuracy with the artifact is not drawn against accuracy without it: two cl" in text
    cannot, can = text.index("What these data cannot show"), text.index("What these data can show")
    assert cannot < text.index("Accuracy with the artifact cannot be claimed. Only 7") < can
    assert can < text.index("TCAV can be claimed.")
    assert "biased †" in text
    assert "† Too few images with the artifact are of classes where the shortcut is wrong." in text
    assert "310 clean test and 67 biased test images" in describe_setting(load_results(path.parent))
    assert "n/a (n = 7)" in text
    assert ",accuracy_biased,,," not in (path.parent / "results.csv").read_text(encoding="utf-8")
    assert ",balanced_accuracy_biased,,,7" in (path.parent / "results.csv").read_text(encoding="utf-8")


def test_claims_that_all_can_be_made_are_headed_so(make_run: MakeRun) -> None:
    claims = [{"name": "flip rate", "can_be_made": True, "sentence": "The artifact is put in."}]
    text = text_of(write_report(folder(make_run, RICH, claims=claims)))
    assert "What these data can show" in text
    assert "What these data cannot show" not in text
    assert "Flip rate can be claimed. The artifact is put in." in text


def test_without_claims_and_diagnosis_their_sections_are_absent(make_run: MakeRun) -> None:
    text = text_of(write_report(folder(make_run, RICH)))
    assert "What these data cannot show" not in text
    assert "Can the direction be trusted" not in text


COUNTS = [{"set": "test biased", "class": name, "images": n} for name, n in (("naevus", 60), ("melanoma", 7))]


@pytest.mark.parametrize(
    ("ours", "change"),
    [
        (0.5, "falls from 70.0 % to 50.0 %"),
        (0.9, "rises from 70.0 % to 90.0 %"),
        (0.69, "stays about the same (70.0 % before, 69.0 % after)"),
    ],
)
def test_accuracy_on_one_class_is_told_and_not_trusted(make_run: MakeRun, ours: float, change: str) -> None:
    results = load_results(folder(make_run, POOR, counts=COUNTS, biased_class=0))
    values = {"original": 0.7, "rr-clarc": ours}
    rows = tuple(
        replace(row, value=values[row.method]) if row.metric == "accuracy_biased" and row.method in values else row
        for row in results.rows
    )
    results = replace(results, rows=rows, paired=(pair("rr-clarc", "original", "accuracy_biased", ours - 0.7),))
    words = write_verdict(results).why.replace("\N{NO-BREAK SPACE}", " ")
    start = f"On the 67 test images with the artifact accuracy {change}; 60 of them are of class 'naevus', "
    assert words.startswith(start)
    assert words.endswith("cannot show which." if ours < 0.6 else "cannot show whether it is gone.")


def test_accuracy_on_known_groups_needs_no_such_words(make_run: MakeRun) -> None:
    results = load(make_run, RICH)
    assert "cannot show" not in write_verdict(results).why
    assert not insertion_table(results).footnotes
