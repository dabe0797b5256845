"""From a run folder to weights, card and ONNX; by function and by command."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from typer.testing import CliRunner

from hansfree._internal.hashing import hash_weights
from hansfree.cli import discover as export  # noqa: F401  # it joins the app
from hansfree.cli.terminal import app
from hansfree.errors import OptionError, RunError
from hansfree.evaluation.results import (
    Results,
    Row,
    read_rows,
    rows_of,
    write_table,
)
from hansfree.export import load_corrected
from hansfree.export.run import compare_scores, export_run, open_model, read_run
from hansfree.metrics import Score
from hansfree.models import build_model
from hansfree.reasons import VerdictLevel
from tests.export.conftest import NAMES, SCORES, MakeRun, corrected_models, original_model, save
from tests.export.examples import images


def files(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_rr_clarc_by_default_with_the_original_keys(make_run: MakeRun) -> None:
    run = make_run()
    done = export_run(run)
    assert (done.method, done.onnx) == ("rr-clarc", None)
    assert files(run / "exported" / "rr-clarc") == {"model.safetensors", "MODEL_CARD.md"}
    fresh = build_model("demo", classes=3, seed=8)
    fresh.load_state_dict(load_file(done.weights.weights), strict=True)
    expected = corrected_models()["rr-clarc"](images(size=32))
    assert torch.equal(fresh.eval()(images(size=32)), expected)
    assert done.weights.changed == ("classifier.weight",)


def test_p_clarc_comes_with_its_module_and_loader(make_run: MakeRun, tmp_path: Path) -> None:
    out = tmp_path / "delivery"
    done = export_run(make_run(), "p-clarc", out=out)
    assert files(out) == {"model.safetensors", "MODEL_CARD.md", "load_corrected.py"}
    model = corrected_models()["p-clarc"]
    loaded = load_corrected(build_model("demo", classes=3), done.weights.weights)
    torch.testing.assert_close(loaded(images(size=32)), model(images(size=32)))
    assert "these agree with what the run evaluated" in done.card.read_text()


def test_a_run_without_pictures_is_checked_on_noise(make_run: MakeRun) -> None:
    done = export_run(make_run(shown=False))
    assert done.weights.images == 8
    assert "kept no logits of its evaluation" in done.card.read_text()


def test_weights_that_the_run_did_not_evaluate_are_refused(make_run: MakeRun) -> None:
    run = make_run()
    kept = run / "stages" / "p-clarc.npz"
    logits = np.load(kept)["shown_logits"]
    np.savez(kept, shown_logits=logits + np.array([0, 0.1, 0]))
    with pytest.raises(RunError, match="does not give the logits that the run evaluated"):
        export_run(run, "p-clarc")
    assert not (run / "exported").exists()


def test_damaged_logits_are_told(make_run: MakeRun) -> None:
    run = make_run()
    kept = run / "stages" / "p-clarc.npz"
    kept.write_bytes(kept.read_bytes()[:-30])
    with pytest.raises(RunError, match=r"p-clarc\.npz is damaged\. Delete it and .*p-clarc\.json, and resume the run"):
        export_run(run, "p-clarc")


def test_another_pooling_is_noticed(make_run: MakeRun) -> None:
    run = make_run()
    with (run / "config.yaml").open("a") as file:
        file.write("pooling: mean\n")
    with pytest.raises(RunError, match="does not give the logits"):
        export_run(run, "p-clarc")


def test_the_users_own_model_is_opened_or_given(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    (run / "config.yaml").write_text(f"model:\n  source: {tmp_path}/mine.py:build\n")
    with pytest.raises(OptionError, match=r"There is no file .*mine\.py"):
        export_run(run)
    assert export_run(run, original=original_model()).weights.changed == ("classifier.weight",)
    (tmp_path / "mine.py").write_text(
        "from hansfree.models import build_model\ndef build():\n    return build_model('demo', classes=3, seed=8)\n"
    )
    save(run / "original.safetensors", original_model())
    assert export_run(run, force=True).weights.changed == ("classifier.weight",)
    (run / "config.yaml").write_text("model:\n  weights: original.safetensors\n")
    with pytest.raises(RunError, match="does not say which model it corrected"):
        export_run(run, force=True)


@pytest.mark.parametrize(("output", "names"), [("classes", ["a", "b", "c"]), ("binary", ["no", "yes"])])
def test_a_function_that_asks_for_the_classes_is_told(
    make_run: MakeRun, tmp_path: Path, output: str, names: list[str]
) -> None:
    run = make_run(class_names=names)
    (tmp_path / "mine.py").write_text(
        "from hansfree.models import build_model\n"
        "def build(num_classes):\n    return build_model('demo', classes=num_classes)\n"
    )
    model: dict[str, str] = {"source": "mine.py:build", "output": output}
    content = {"model": model, "data": {"classes": names}}
    (run / "config.yaml").write_text(yaml.safe_dump(content))  # as a run keeps it: where the file lies is told apart
    model["source"] = f"{tmp_path}/mine.py:build"
    (run / "run.yaml").write_text(yaml.safe_dump(content))
    number = 1 if output == "binary" else 3
    save(run / "original.safetensors", build_model("demo", classes=number, seed=4))
    assert len(open_model(read_run(run)).get_parameter("classifier.bias")) == number
    (run / "run.yaml").write_text("- 1")
    with pytest.raises(RunError, match=r"run\.yaml is damaged"):
        open_model(read_run(run))


@pytest.mark.parametrize("method", ["rr-clarc", "p-clarc"])
def test_a_single_picture_is_compared_too(make_run: MakeRun, method: str) -> None:
    run = make_run()
    shown, kept = np.load(run / "heatmaps.npz"), run / "stages" / f"{method}.npz"
    np.savez(run / "heatmaps.npz", **{name: shown[name][:1] for name in shown.files})
    logits = np.load(kept)["shown_logits"][:1]
    np.savez(kept, shown_logits=logits)
    done = export_run(run, method)
    assert done.weights.images > 1, "ONNX needs more than one"
    assert "these agree with what the run evaluated" in done.card.read_text()
    np.savez(kept, shown_logits=logits + np.array([0, 0.1, 0]))
    with pytest.raises(RunError, match="does not give the logits that the run evaluated"):
        export_run(run, method, force=True)


@pytest.mark.parametrize("method", ["rr-clarc", "p-clarc"])
def test_one_label_of_many_is_compared_as_it_was_evaluated(make_run: MakeRun, method: str) -> None:
    run = make_run()
    content = {"model": {"source": "demo", "output": "label", "label": "odd"}, "data": {"classes": ["a", "odd", "b"]}}
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    kept = run / "stages" / f"{method}.npz"
    logits = np.load(kept)["shown_logits"]
    with pytest.raises(RunError, match="does not give the logits that the run evaluated"):
        export_run(run, method, original=original_model())
    np.savez(kept, shown_logits=np.stack([np.zeros(len(logits)), logits[:, 1]], axis=1))
    done = export_run(run, method, original=original_model())
    assert "these agree with what the run evaluated" in done.card.read_text()
    own = load_corrected(original_model(), done.weights.weights)
    assert own(images(size=32)).shape[1] == 3  # the user's own model has all of its labels
    content["data"]["classes"] = ["a", "b"]
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(RunError, match=r"is damaged: model\.label 'odd' is not in data\.classes"):
        export_run(run, method, original=original_model(), force=True)


def test_what_is_there_stays_unless_forced(make_run: MakeRun) -> None:
    run = make_run()
    card = export_run(run).card
    card.write_text("mine")
    (card.parent / "model.onnx").write_text("of an earlier export")
    with pytest.raises(RunError, match=r"already holds model\.safetensors, MODEL_CARD\.md, model\.onnx\..*--force"):
        export_run(run)
    assert card.read_text() == "mine"
    export_run(run, force=True)
    assert card.read_text() != "mine"
    assert files(card.parent) == {"model.safetensors", "MODEL_CARD.md"}


def test_lost_weights_are_told_with_the_way_to_have_them_again(make_run: MakeRun) -> None:
    run = make_run()
    weights, stage = run / "corrected" / "p-clarc.safetensors", run / "stages" / "p-clarc.json"
    stage.parent.mkdir(exist_ok=True)
    stage.write_text("{}")
    remedy = rf"p-clarc\.safetensors is missing or damaged\. Delete {re.escape(str(stage))}, and resume the run"
    weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(RunError, match=remedy):
        export_run(run, "p-clarc")
    weights.unlink()
    with pytest.raises(RunError, match=remedy) as told:
        export_run(run, "p-clarc")
    assert "Did you mean" not in str(told.value)


def test_a_method_without_an_admissible_strength_is_told_so(make_run: MakeRun) -> None:
    run = make_run(scores={name: SCORES[name] for name in ("original", "p-clarc")})
    (run / "corrected" / "rr-clarc.safetensors").unlink()
    (run / "stages" / "rr-clarc.json").write_text("{}")
    told = json.loads((run / "results.json").read_text())
    told["selection"]["rr-clarc"] |= {"strength": None, "reason": "no strength is admissible: class 1 lost 4 points"}
    (run / "results.json").write_text(json.dumps(told))
    reason = r"no weights of rr-clarc, as no strength is admissible: odd \| name lost 4 points\. There are: p-clarc\.$"
    with pytest.raises(OptionError, match=reason):
        export_run(run, "rr-clarc")
    with pytest.raises(OptionError, match=reason):
        export_run(run)


def test_weights_of_a_method_that_the_results_do_not_list_are_refused(make_run: MakeRun) -> None:
    """It was taken out of the run file, and the run repeated: a card would state what nobody knows."""
    run = make_run()
    save(run / "corrected" / "vanilla.safetensors", original_model())
    with pytest.raises(OptionError, match=r"do not list vanilla\. There are: rr-clarc, p-clarc\. Add it to the run"):
        export_run(run, "vanilla")
    assert not (run / "exported").exists()


def test_what_cannot_be_exported_is_a_sentence(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run()
    with pytest.raises(OptionError, match=r"no weights corrected by 'p-clrc'\. Did you mean 'p-clarc'\?"):
        export_run(run, "p-clrc")
    with pytest.raises(OptionError, match=r"do not list rr-clarc@svm\. There are: rr-clarc, p-clarc\. Add it"):
        export_run(run, "rr-clarc@svm")
    with pytest.raises(RunError, match=r"There is no run folder .*rnu\. Did you mean 'run'\?"):
        export_run(tmp_path / "rnu")
    for content in (b"[1, 2", b"\xff\xfe"):
        (run / "config.yaml").write_bytes(content)
        with pytest.raises(RunError, match=r"config\.yaml is damaged"):
            export_run(run)
    (run / "config.yaml").unlink()
    with pytest.raises(RunError, match=r"has no config\.yaml"):
        export_run(run)


def test_the_command_says_what_it_wrote(make_run: MakeRun) -> None:
    run = make_run()
    result = CliRunner().invoke(app, ["export", str(run), "p-clarc"])
    assert result.exit_code == 0, result.output
    assert "stays one small module" in result.output
    assert "Checked on 4 images: loaded into a copy of the original, it gives the logits of" in result.output
    assert re.search(r"corrected model, (exactly|up to differences of \S+)\.$", result.output, re.MULTILINE)
    for word, name in (("weights", "model.safetensors"), ("loader", "load_corrected.py"), ("card", "MODEL_CARD.md")):
        assert f"{word}: {run / 'exported' / 'p-clarc' / name}" in result.output.replace("\n", "")
    again = CliRunner().invoke(app, ["export", str(run), "p-clarc"])
    assert isinstance(again.exception, RunError)


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
    assert facts["biased class"] == "odd BAR name (class 1)"
    assert facts["layer"] == "features.10"
    assert facts["strength"] == "20"
    assert facts["direction (CAV)"] == "signal"
    assert facts["changed tensors"] == "classifier.weight"
    assert "Do not use" not in card
    assert "corrects the use of\none artifact, with" in card
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
    assert "corrects the use of\nseveral artifacts, with" in card


def test_it_gives_the_scores_before_and_after_with_errors(make_run: MakeRun) -> None:
    rows = {row[0]: row[1:] for row in table(card_of(make_run()), "Scores before and after")}
    assert rows["Flip rate"] == ["0", "0.56 ± 0.02", "0.06 ± 0.02", "400"]  # neither the repeat nor another strength
    assert rows["Balanced accuracy, clean"] == ["1", "0.91 ± 0.012", "0.9 ± 0.012", "400"]


def test_it_says_what_cannot_be_claimed(make_run: MakeRun) -> None:
    claims = [
        {"name": "flips", "can_be_made": False, "sentence": "Flips cannot be seen."},
        {"name": "accuracy", "can_be_made": True, "sentence": "Accuracy can."},
    ]
    unknown = [{"metric": "flip_rate", "n": 7, "reason": "7 images are too few", "group": 2}]
    section = card_of(make_run(claims=claims, unknown=unknown)).partition("## What the scores do not show")[2]
    section = section.partition("\n## ")[0]
    assert "- Flips cannot be seen." in section
    assert "Accuracy can." not in section
    assert f"- Flip rate of {NAMES[2]} (n = 7): n/a (7 images are too few)." in section
    assert "other than timestamp" in section


def test_what_cannot_be_known_of_classes_is_one_sentence_per_metric(make_run: MakeRun) -> None:
    few = "at least 25 images are needed, and there are"
    both = "two classes are needed"
    unknown = [
        {"metric": "balanced_accuracy_biased", "n": 5, "reason": both},
        {"metric": "auroc_biased", "n": 5, "reason": both},
        {"metric": "sensitivity_clean", "n": 14, "reason": f"{few} 14", "group": 1},
        {"metric": "sensitivity_biased", "n": 5, "reason": f"{few} 5", "group": 0},
    ]
    card = card_of(make_run(unknown=unknown, class_names=["wound", "burn", "mole"]))
    lines = [line for line in card.splitlines() if "n/a (" in line]
    assert lines == [
        "- Balanced accuracy, biased / AUROC, biased: n/a (two classes are needed).",
        "- Sensitivity of burn, clean (n = 14), wound, biased (n = 5): n/a (at least 25 images are needed for each).",
    ]


def test_a_model_that_must_not_be_used_says_so_first(make_run: MakeRun) -> None:
    scores = {**SCORES, "rr-clarc": (0.33, 0.33, 0.0)}
    card = card_of(make_run(scores=scores))
    assert card.splitlines()[2].startswith(
        "**Do not use this model:** its balanced accuracy on images without the artifact is at chance level"
    )


@pytest.mark.parametrize(
    ("level", "title"),
    [(VerdictLevel.CORRECTED, "corrected"), (VerdictLevel.NOT_CORRECTED, "not corrected"), (None, "")],
)
def test_it_has_the_verdict_of_the_run(make_run: MakeRun, level: VerdictLevel | None, title: str) -> None:
    told = card_of(make_run(level=level)).splitlines()
    if level is None:
        assert told[2].startswith("**The run has no verdict on this model:**")
    else:
        assert told[2].startswith(f"**Verdict on the test images: {title}.** The rule: ")
    assert "unlearned" not in " ".join(told)
    assert "corrected" not in told[0]


def test_it_names_the_class_that_loses_most(make_run: MakeRun) -> None:
    run = make_run()
    rows = read_rows(run / "results.csv")
    for method, value in (("original", 0.9), ("rr-clarc", 0.7)):
        about = {"experiment": "demo", "method": method, "split": "test", "chosen": 1, "seed": 0}
        about["cav"] = None if method == "original" else "signal"
        rows += rows_of([Score("sensitivity_clean", value, 0.05, 40, 2)], **about)
    write_table(run / "results.csv", rows)
    told = card_of(run).splitlines()[4].replace("\N{NO-BREAK SPACE}", " ")
    assert told == ("Largest per-class drop: “malignant”, sensitivity without the artifact 90.0 % → 70.0 % (n = 40).")


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


def test_a_score_that_one_side_lacks_is_not_known() -> None:
    row = Row(experiment="", method="vanilla", metric="made_up", group=1, value=0.5, n=30)
    (line,) = compare_scores(
        [], [row], results=Results(rows=(), meta={"class_names": ["a", "b"]}, selection={}, heatmaps=None)
    )
    assert (line.label, line.ideal, line.before, line.after, line.n) == (
        "made_up (b)",
        "",
        "n/a",
        "0.5",
        "30",
    )
