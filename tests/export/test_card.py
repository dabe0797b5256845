"""The card says what was done, with what data, what came of it, and what nobody may claim."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from hansfree._internal.hashing import hash_weights
from hansfree.export.run import compare_scores, export_run
from hansfree.metrics import Score
from hansfree.report.reading import Results
from hansfree.results import Row, read_rows, rows_of, write_table
from tests.export.conftest import NAMES, SCORES, MakeRun, original_model


def card_of(run: Path, method: str = "rr-clarc") -> str:
    return export_run(run, method).card.read_text(encoding="utf-8")


def table(card: str, section: str) -> list[list[str]]:
    """Return the rows of a section's table."""
    lines = card.partition(f"## {section}\n")[2].partition("\n## ")[0].splitlines()
    rows = [line.replace("\\|", "BAR").strip("|").split("|") for line in lines if line.startswith("|")]
    assert len({len(row) for row in rows}) == 1, rows  # nothing breaks it
    return [[cell.strip() for cell in row] for row in rows]


def test_it_says_what_was_corrected(make_run: MakeRun) -> None:
    card = card_of(make_run(biased_class=1))
    facts = dict(table(card, "What was done"))
    assert card.startswith("# Model card: demo after RR-ClArC\n")
    assert facts["artifact"] == "timestamp"
    assert facts["class that it leaks into"] == "odd BAR name (class 1)"
    assert facts["layer"] == "features.10"
    assert facts["strength"] == "20"
    assert facts["direction (CAV)"] == "signal"
    assert facts["changed tensors"] == "classifier.weight"
    assert "Do not use" not in card
    assert "unlearn the use of\none artifact, done" in card
    assert not {"removed together", "kept"} & facts.keys()


def test_it_tells_no_folders_of_the_machine(make_run: MakeRun) -> None:
    run = make_run()
    summary = json.loads((run / "results.json").read_text(encoding="utf-8"))
    summary["meta"]["model"] = "/home/jane/project/net.py:build"
    (run / "results.json").write_text(json.dumps(summary), encoding="utf-8")
    card = card_of(run)
    assert card.startswith("# Model card: net.py:build after RR-ClArC\n")
    assert "jane" not in card


def test_it_says_what_else_is_removed_and_kept(make_run: MakeRun) -> None:
    run = make_run(removed={"timestamp": 90.0, "odd | ink": 60.0}, protected=["hair"])
    card = card_of(run)
    facts = dict(table(card, "What was done"))
    assert (facts["removed together"], facts["kept"]) == ("timestamp, odd BAR ink", "hair")
    assert "unlearn the use of\nseveral artifacts, done" in card


def test_it_passes_on_what_the_method_remarked(make_run: MakeRun) -> None:
    run = make_run()
    assert "| remark |" not in card_of(run)
    summary = json.loads((run / "results.json").read_text(encoding="utf-8"))
    summary["selection"]["p-clarc"]["remark"] = "The gate fires."
    (run / "results.json").write_text(json.dumps(summary), encoding="utf-8")
    assert dict(table(card_of(run, "p-clarc"), "What was done"))["remark"] == "The gate fires."


def test_it_gives_the_scores_before_and_after_with_errors(make_run: MakeRun) -> None:
    rows = {row[0]: row[1:] for row in table(card_of(make_run()), "Scores before and after")}
    assert rows["Flip rate"] == ["0", "0.56 ± 0.02", "0.06 ± 0.02", "400"]  # neither the repeat nor another strength
    assert rows["Balanced accuracy, clean"] == ["1", "0.91 ± 0.012", "0.9 ± 0.012", "400"]


def test_it_counts_the_images(make_run: MakeRun) -> None:
    counts = [{"set": "train", "class": "odd | name", "images": 1200, "with_artifact": 60}]
    assert table(card_of(make_run(counts=counts)), "Data")[2:] == [["train", "odd BAR name", "1,200", "60"]]


def test_without_counts_the_sizes_stand(make_run: MakeRun) -> None:
    assert table(card_of(make_run()), "Data")[2:] == [["train", "4,000"], ["test biased", "400"]]


def test_it_notes_what_was_odd_about_the_data(make_run: MakeRun) -> None:
    card = card_of(make_run(remarks=["Two images\nare the same."], skipped=["a.png is damaged."]))
    section = card.partition("### Notes on the data\n")[2].partition("\n## ")[0]
    assert section.split("\n") == ["", "- Two images are the same.", "- Left out: a.png is damaged.", ""]


def test_without_notes_there_is_no_heading(make_run: MakeRun) -> None:
    assert "Notes on the data" not in card_of(make_run(remarks=[], skipped=[]))


def test_it_says_what_cannot_be_claimed(make_run: MakeRun) -> None:
    claims = [
        {"name": "flips", "can_be_made": False, "sentence": "Flips cannot be seen."},
        {"name": "accuracy", "can_be_made": True, "sentence": "Accuracy can."},
    ]
    unknown = [{"metric": "flip_rate", "n": 7, "reason": "7 images are too few", "group": "class 2"}]
    section = card_of(make_run(claims=claims, unknown=unknown)).partition("## What cannot be claimed")[2]
    section = section.partition("\n## ")[0]
    assert "- Flips cannot be seen." in section
    assert "Accuracy can." not in section
    assert f"- Flip rate cannot be known of {NAMES[2]} (n = 7): 7 images are too few." in section
    assert "other than timestamp" in section


def test_what_cannot_be_known_of_classes_is_one_sentence_per_metric(make_run: MakeRun) -> None:
    few = "at least 25 images are needed, and there are"
    both = "two classes are needed"
    unknown = [
        {"metric": "balanced_accuracy_biased", "n": 5, "reason": both},
        {"metric": "auroc_biased", "n": 5, "reason": both},
        {"metric": "sensitivity_clean", "n": 14, "reason": f"{few} 14", "group": "class 1"},
        {"metric": "sensitivity_biased", "n": 5, "reason": f"{few} 5", "group": "class 0"},
    ]
    card = card_of(make_run(unknown=unknown, class_names=["wound", "burn", "mole"]))
    lines = [line for line in card.splitlines() if "cannot be known" in line]
    assert lines == [
        "- Balanced accuracy, biased / AUROC, biased cannot be known: two classes are needed.",
        "- Sensitivity cannot be known of burn, clean (n = 14), wound, biased (n = 5): at least 25 images are needed "
        "for each.",
    ]


def test_it_is_written_for_people(make_run: MakeRun) -> None:
    run = make_run()
    content = json.loads((run / "results.json").read_text(encoding="utf-8"))
    content["selection"]["rr-clarc"] |= {"reason": "the best (4 rejected)", "diverged": [2000.0, 1e4]}
    (run / "results.json").write_text(json.dumps(content), encoding="utf-8")
    facts = dict(table(card_of(run), "What was done"))
    assert facts["why this strength"] == "the best"
    assert facts["strengths that diverged"] == "2000, 10000"
    assert "penalty on u, the derivative" in facts["method"]


def test_a_model_that_must_not_be_used_says_so_first(make_run: MakeRun) -> None:
    scores = {**SCORES, "rr-clarc": (0.33, 0.33, 0.0)}
    card = card_of(make_run(scores=scores))
    assert card.splitlines()[2].startswith("**Do not use this model:** it answers no better than chance")


@pytest.mark.parametrize("ruling", ["corrected", "not corrected", None])
def test_it_says_what_the_run_ruled_and_no_more(make_run: MakeRun, ruling: str | None) -> None:
    told = card_of(make_run(ruling=ruling)).splitlines()
    if ruling is None:
        assert told[2].startswith("**The run has no verdict on this model:**")
    else:
        assert told[2] == f"**Verdict on the test images: {ruling}.** The rule: as one | may."
    assert "unlearned" not in " ".join(told)
    assert "corrected" not in told[0]


def test_it_names_the_class_that_loses_most(make_run: MakeRun) -> None:
    run = make_run()
    rows = read_rows(run / "results.csv")
    for method, value in (("original", 0.9), ("rr-clarc", 0.7)):
        about = {"experiment": "demo", "method": method, "split": "test", "chosen": 1, "seed": 0}
        about["cav"] = None if method == "original" else "signal"
        rows += rows_of([Score("sensitivity_clean", value, 0.05, 40, "class 2")], **about)
    write_table(run / "results.csv", rows)
    told = card_of(run).splitlines()[4].replace("\N{NO-BREAK SPACE}", " ")
    assert told == (
        "The largest fall of a class is that of “malignant”: its sensitivity without the artifact goes from 90.0 % to "
        "70.0 % (40 test images)."
    )


def test_hashes_versions_and_command_tell_where_it_comes_from(make_run: MakeRun) -> None:
    done = export_run(make_run())
    facts = dict(table(done.card.read_text(), "Provenance"))
    assert facts["command"] == "`hansfree demo --quick`"
    assert facts["exported file"].split()[0] == hashlib.sha256(done.weights.weights.read_bytes()).hexdigest()
    assert facts["original weights"].split()[0] == done.weights.original
    assert facts["run with"] == "python 3.11.7, hansfree 0.1.0"
    assert "torch" in facts["exported with"]


def test_the_weights_have_the_hashes_of_the_report(make_run: MakeRun) -> None:
    """Whoever holds card and report can tell that they are about the same models."""
    known = {"original weights": hash_weights(original_model().state_dict()), "weights, rr-clarc": "9f8e7d"}
    facts = dict(table(card_of(make_run(hashes=known | {"weights, p-clarc": "000"})), "Provenance"))
    assert {name: facts[name].split()[0] for name in known} == known
    assert "weights, p-clarc" not in facts


@pytest.mark.parametrize(
    ("method", "words"),
    [("rr-clarc", 'load_file("model.safetensors"), strict=True'), ("p-clarc", "from load_corrected import load")],
)
def test_it_shows_how_to_load(method: str, words: str, make_run: MakeRun) -> None:
    assert words in card_of(make_run(), method).partition("## How to load it")[2]


def test_a_score_that_one_side_lacks_is_not_known() -> None:
    row = Row(experiment="", method="vanilla", metric="made_up", group="class 1", value=0.5, n=30)
    (line,) = compare_scores(
        [], [row], results=Results(rows=(), meta={"class_names": ["a", "b"]}, selection={}, heatmaps=None)
    )
    assert (line.label, line.ideal, line.before, line.after, line.n) == (
        "made_up (b)",
        "",
        "not known",
        "0.5",
        "30",
    )


def test_none_and_all_have_an_interval() -> None:
    rows = [Row(experiment="x", method="m", metric="tcav", value=value, stderr=0.0, n=34) for value in (1.0, 0.0)]
    results = Results(rows=(), meta={}, selection={}, heatmaps=None)
    (line,) = compare_scores(rows[:1], rows[1:], results=results)
    assert (line.before, line.after) == ("1 (0.9 to 1)", "0 (0 to 0.1)")
