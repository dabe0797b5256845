"""From a run folder to weights, card and ONNX; by function and by command."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

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
from hansfree.evaluation.results import Results, Row
from hansfree.export import load_corrected
from hansfree.export.run import compare_scores, export_run, open_model, read_run
from hansfree.metrics import NotAvailable
from hansfree.models import build_model
from hansfree.reasons import Reason, ReasonCode
from tests.export.conftest import corrected_models, original_model, save
from tests.export.examples import images
from tests.report.conftest import Change, MakeRun, changed, without

collapsed = changed("rr-clarc", "balanced_accuracy_clean", 0.25)


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
def test_a_function_gets_the_number_of_classes_that_it_asks_for(
    make_run: MakeRun, tmp_path: Path, output: str, names: list[str]
) -> None:
    run = make_run(class_names=names)
    (tmp_path / "mine.py").write_text(
        "from hansfree.models import build_model\n"
        "def build(num_classes):\n    return build_model('demo', classes=num_classes)\n"
    )
    model: dict[str, str] = {"source": "mine.py:build", "output": output}
    content = {"model": model, "data": {"classes": names}}
    # as a run stores it: the path of the file stands in run.yaml
    (run / "config.yaml").write_text(yaml.safe_dump(content))
    model["source"] = f"{tmp_path}/mine.py:build"
    (run / "run.yaml").write_text(yaml.safe_dump(content))
    number = 1 if output == "binary" else 3
    save(run / "original.safetensors", build_model("demo", classes=number, seed=4))
    assert len(open_model(read_run(run)).get_parameter("classifier.bias")) == number
    (run / "run.yaml").write_text("- 1")
    with pytest.raises(RunError, match=r"run\.yaml is damaged"):
        open_model(read_run(run))


def test_one_label_of_many_is_compared_as_it_was_evaluated(make_run: MakeRun) -> None:
    run, method = make_run(), "p-clarc"
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


def test_a_method_without_an_admissible_strength_is_refused(make_run: MakeRun) -> None:
    run = make_run(change=without)
    (run / "corrected" / "rr-clarc.safetensors").unlink()
    (run / "stages" / "rr-clarc.json").write_text("{}")
    results = json.loads((run / "results.json").read_text())
    lost = Reason(ReasonCode.NEVER_ANSWERS, {"labels": [1]})
    reason = asdict(Reason(ReasonCode.NONE_ADMISSIBLE, {"rejections": [lost]}))
    results["selection"]["rr-clarc"] |= {"strength": None, "reason": reason}
    (run / "results.json").write_text(json.dumps(results))
    words = r"no weights of rr-clarc, as no strength is admissible: never answers odd \| name\. There are: p-clarc\.$"
    with pytest.raises(OptionError, match=words):
        export_run(run, "rr-clarc")
    with pytest.raises(OptionError, match=words):
        export_run(run)


def test_the_command_says_what_it_wrote(make_run: MakeRun) -> None:
    run = make_run()
    result = CliRunner().invoke(app, ["export", str(run), "p-clarc"])
    assert result.exit_code == 0, result.output
    assert "stays one small module" in result.output
    assert "Checked on 4 images: loaded into a copy of the original, the weights give the logits" in result.output
    assert re.search(r"evaluated as P-ClArC, (exactly|up to differences of \S+)\.$", result.output, re.MULTILINE)
    assert re.search(r"^Verdict of the run: do not use: \w.*\.$", result.output, re.MULTILINE)
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


def spoil_logits(run: Path) -> None:
    kept = run / "stages" / "p-clarc.npz"
    np.savez(kept, shown_logits=np.load(kept)["shown_logits"] + np.array([0, 0.1, 0]))


def cut_off(file: str):
    def cut(run: Path) -> None:
        (run / file).write_bytes((run / file).read_bytes()[:-100])

    return cut


def write(file: str, content: bytes):
    return lambda run: (run / file).write_bytes(content)


LOST = r"p-clarc\.safetensors is missing or damaged\. Delete \S*p-clarc\.json, and resume the run"


@pytest.mark.parametrize(
    ("spoil", "method", "error", "words"),
    [
        (spoil_logits, "p-clarc", RunError, "does not give the logits that the run evaluated"),
        (write("config.yaml", b"model: demo\npooling: mean"), "p-clarc", RunError, "does not give the logits"),
        (
            cut_off("stages/p-clarc.npz"),
            "p-clarc",
            RunError,
            r"p-clarc\.npz is damaged\. Delete it and .*p-clarc\.json",
        ),
        (cut_off("corrected/p-clarc.safetensors"), "p-clarc", RunError, LOST),
        (lambda run: (run / "corrected/p-clarc.safetensors").unlink(), "p-clarc", RunError, LOST),
        (write("config.yaml", b"[1, 2"), None, RunError, r"config\.yaml is damaged"),
        (write("config.yaml", b"\xff\xfe"), None, RunError, r"config\.yaml is damaged"),
        (lambda run: (run / "config.yaml").unlink(), None, RunError, r"has no config\.yaml"),
        # weights of an earlier run: a card would state what is not known
        (
            write("corrected/vanilla.safetensors", b""),
            "vanilla",
            OptionError,
            r"do not list vanilla\. There are: rr-cl",
        ),
        (lambda run: None, "p-clrc", OptionError, r"do not list p-clrc\. Did you mean 'p-clarc'\?"),
    ],
)
def test_what_cannot_be_exported_is_a_sentence(make_run: MakeRun, spoil, method, error, words: str) -> None:
    run = make_run()
    spoil(run)
    with pytest.raises(error, match=words):
        export_run(run, method)
    assert not (run / "exported").exists()
    with pytest.raises(RunError, match=r"There is no run folder .*rnu\. Did you mean 'run'\?"):
        export_run(run.with_name("rnu"))


def test_the_card_says_what_was_corrected(make_run: MakeRun) -> None:
    """Names break no table, and folders of the machine are not shown."""
    known = {"original weights": hash_weights(original_model().state_dict()), "weights, rr-clarc": "9f8e7d"}
    removed = {"removed": {"timestamp": 90.0, "odd | ink": 60.0}, "protected": ["hair"]}
    run = make_run(biased_class=1, hashes=known | {"weights, p-clarc": "000"}, **removed)
    done = export_run(run)
    card = done.card.read_text(encoding="utf-8")
    facts = dict(table(card, "What was done"))
    assert card.startswith("# Model card: demo after RR-ClArC\n")
    wanted = {
        "artifact": "timestamp",
        "biased class": "odd BAR name (class 1)",
        "layer": "features.10",
        "strength": "10",
        "direction (CAV)": "signal",
        "changed tensors": "classifier.weight",
        "removed together": "timestamp, odd BAR ink",
        "kept": "hair",
    }
    assert {name: facts[name] for name in wanted} == wanted
    assert "corrects the use of\nseveral artifacts, with" in card
    assert "Do not use" not in card
    rows = {row[0]: row[1:] for row in table(card, "Scores before and after")}
    assert rows["Flip rate"] == ["0", "0.56 ± 0.018", "0.06 ± 0.0084", "800"]  # of no other strength
    assert rows["Balanced accuracy, clean"] == ["1", "0.921 ± 0.0095", "0.916 ± 0.0098", "800"]
    facts = dict(table(card, "Provenance"))
    assert facts["command"] == "`hansfree demo --artifact timestamp --seed 0`"
    assert facts["exported file"].split()[0] == hashlib.sha256(done.weights.weights.read_bytes()).hexdigest()
    assert facts["run with"] == "hansfree 0.1.0, torch 2.15.0, numpy 2.4.6"
    assert "torch" in facts["exported with"]
    assert {name: facts[name].split()[0] for name in known} == known
    assert "weights, p-clarc" not in facts


def test_the_card_of_a_plain_run(make_run: MakeRun) -> None:
    done = export_run(make_run(shown=False, model="/home/jane/project/net.py:build"))
    card = done.card.read_text(encoding="utf-8")
    assert done.weights.images == 8, "of noise"
    assert "kept no logits of its evaluation" in card
    assert card.startswith("# Model card: net.py:build after RR-ClArC\n")
    assert "jane" not in card
    assert "corrects the use of\none artifact, with" in card
    assert not {"removed together", "kept"} & dict(table(card, "What was done")).keys()


def test_the_card_says_what_the_scores_do_not_show(make_run: MakeRun) -> None:
    few, both = "at least 25 images are needed, and there are", "two classes are needed"
    claims = [
        {"name": "flip rate", "can_be_made": False, "facts": {"is_inserted": False}},
        {"name": "worst group", "can_be_made": True, "facts": {}},
    ]
    unknown = [
        NotAvailable("flip_rate", 7, "7 images are too few", 2),
        NotAvailable("balanced_accuracy_biased", 5, both),
        NotAvailable("auroc_biased", 5, both),
        NotAvailable("sensitivity_clean", 14, f"{few} 14", 1),
        NotAvailable("sensitivity_biased", 5, f"{few} 5", 0),
    ]
    run = make_run(claims=claims, unknown=unknown, class_names=["wound", "burn", "mole"])
    section = card_of(run).partition("## What the scores do not show\n\n")[2].partition("\n## ")[0]
    assert section.splitlines()[:5] == [
        "- Natural artifact, no counterfactual pairs: how many predictions it changes is not available.",
        "- Flip rate (mole): n/a (7 images are too few).",
        "- Balanced accuracy, biased / AUROC, biased: n/a (two classes are needed).",
        "- Sensitivity, clean (burn): n/a (at least 25 images are needed, and there are 14).",
        "- Sensitivity, biased (wound): n/a (at least 25 images are needed, and there are 5).",
    ]
    assert "Every class has at least" not in section
    assert "other than timestamp" in section


@pytest.mark.parametrize(
    ("change", "verdicts", "words"),
    [
        (list, None, "**Verdict on the test images: corrected.** The rule: "),
        (list, {}, "**The run has no verdict on this model:**"),
        (collapsed, None, "**Do not use this model:** its balanced accuracy on images without the artifact is at"),
    ],
)
def test_the_card_has_the_verdict_of_the_run(
    make_run: MakeRun, change: Change, verdicts: dict[str, Any] | None, words: str
) -> None:
    run = make_run(change=change)
    results = json.loads((run / "results.json").read_text())
    (run / "results.json").write_text(json.dumps(results if verdicts is None else results | {"verdicts": verdicts}))
    assert card_of(run).splitlines()[2].startswith(words)


def test_scores_of_groups_are_joined_by_metric_and_class() -> None:
    """The worst group may be another one after the correction; a class is compared with itself."""

    def row(metric: str, group: int, value: float, **about: Any) -> Row:
        return Row(experiment="", method="vanilla", metric=metric, group=group, value=value, n=30, **about)

    results = Results(rows=(), meta={"class_names": ["a", "b"]}, selection={}, heatmaps=None)
    before = [row("accuracy_worst_group", 0, 0.2, artifact="with"), row("sensitivity_clean", 0, 0.5)]
    after = [row("accuracy_worst_group", 1, 0.6, artifact="without"), row("sensitivity_clean", 1, 0.7)]
    assert compare_scores(before, after, results=results) == [
        ("Worst group", "1", "0.2 (a with artifact)", "0.6 (b without artifact)", "30"),
        ("Sensitivity, clean (b)", "1", "n/a", "0.7", "30"),
        ("Sensitivity, clean (a)", "1", "0.5", "n/a", "30"),
    ]
