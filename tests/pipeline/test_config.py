"""Reading a run file: errors name the place and the nearest valid value, and nothing else happens."""

from __future__ import annotations

import copy
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hansfree.errors import OptionError
from hansfree.pipeline.config import RunConfig, read_run_file
from tests.pipeline.user import run_content

SMALLEST: dict[str, Any] = {"model": {"source": "demo"}, "data": {"root": "."}, "out": "run"}


def written(folder: Path, text: str) -> Path:
    path = folder / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def read(folder: Path, **changes: Any) -> RunConfig:
    return read_run_file(written(folder, yaml.safe_dump(run_content(**changes))))


def test_three_keys_are_enough_and_the_rest_is_the_papers_recipe(tmp_path: Path) -> None:
    run = read_run_file(written(tmp_path, yaml.safe_dump(SMALLEST)))
    assert run.model.layer == "auto"
    assert run.correction.methods == ("vanilla", "p-clarc", "a-clarc", "rr-clarc", "match")
    assert (run.correction.optimizer, run.correction.learning_rate, run.correction.epochs) == ("sgd", 1e-4, 10)
    assert (run.seed, run.device, run.workers) == (0, "cpu", 0)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"modell": {}}, "modell is not known. Did you mean 'model'? Known: model, data,"),
        ({"data": {"tabel": "x"}}, "data.tabel is not known. Did you mean 'table'? Known: root, table,"),
        ({"model": {"source": None}}, "model.source is None: it should be a text; quote it."),
        ({"model": {"output": "binry"}}, "Did you mean 'binary'?"),
        ({"model": {"label": "x"}}, "model: 'output: label' needs 'label: NAME'"),
        ({"model": {"output": "label"}}, "model: 'output: label' needs 'label: NAME'"),
        ({"data": {"shares": [0.8, 0.1]}}, "data.shares.2 is missing."),
        ({"data": {"shares": [0.8, 0.1, 0.2]}}, "data.shares: training, validation and test share all images: [0.8,"),
        (
            {"correction": {"optimizer": "converged", "methods": ["rr-clarc", "rrr"]}},
            "correction: 'optimizer: converged' is not available for rrr",
        ),
        ({"data": {"root": 5}}, "data.root is 5: it should be a path"),
        ({"data": {"classes": [True, "a"]}}, "data.classes.0: YAML reads yes, no, on and off as true or false"),
        ({"data": {"classes": ["a", "b", "a"]}}, "data.classes: 'a' is given twice."),
        ({"data": {"artifacts": "list.txt"}}, "data: a table has a column for the artifact"),
        ({"data": {"std": None}}, "data: give 'mean' and 'std' together"),
        ({"data": {"mean": [float("nan")] * 3}}, "data.mean.0 is nan: it should be a finite number."),
        ({"data": {"resize": "crp"}}, "Did you mean 'crop'?"),
        ({"data": {"size": 1e11}}, "data.size"),
        ({"artifact": {"insert": "timestmp"}}, "Did you mean 'timestamp'? Known: timestamp, brightness, lsb, patch."),
        ({"artifact": {"insert": "patch"}}, "artifact: 'insert: patch' needs 'file: IMAGE.png'"),
        ({"artifact": {"file": "x.png"}}, "artifact: 'insert: patch' needs 'file: IMAGE.png'"),
        ({"artifact": {"also": ["lbs"]}}, "Did you mean 'lsb'? Known: timestamp, brightness, lsb."),
        ({"artifact": {"also": ["patch"]}}, "artifact.also.0: artifact 'patch' cannot be inserted by its name"),
        ({"artifact": {"insert": "lsb", "also": "lsb"}}, "artifact: 'also' names further artifacts, and 'lsb' is"),
        ({"artifact": {"remove": "artifact"}}, "artifact: 'remove' names further artifacts, and"),
        ({"artifact": {"insert": "lsb", "keep": ["lsb"]}}, "'keep' names further artifacts, and 'lsb' is"),
        ({"artifact": {"name": "ink", "remove": "ink"}}, "'remove' names further artifacts, and 'ink' is"),
        ({"artifact": {"remove": ["a", "b"], "keep": "b"}}, "artifact: 'b' cannot be both in 'remove' and in 'keep'."),
        ({"artifact": {"place": "top-lft"}}, "Did you mean 'top-left'?"),
        ({"correction": {"methods": ["rr-clrc"]}}, "methods.0: There is no method called 'rr-clrc'. Did you mean"),
        ({"correction": {"methods": []}}, "correction.methods is []"),
        ({"correction": {"further_cavs": ["svn"]}}, "further_cavs.0: There is no CAV called 'svn'. Did you mean"),
        ({"correction": {"further_cavs": ["svm", "svm"]}}, "correction.further_cavs: 'svm' is given twice."),
        (
            {"correction": {"cav": "svm", "further_cavs": ["ridge", "svm"]}},
            "correction: 'further_cavs' names others, and 'svm' is this run's own ('cav')",
        ),
        (
            {"correction": {"methods": ["vanilla", "dfr"], "further_cavs": "svm"}},
            "correction: 'further_cavs' has no effect: none of vanilla, dfr uses a CAV",
        ),
        ({"correction": {"methods": ["rr-clarc@svm"]}}, "There is no method called 'rr-clarc@svm'. Did you mean"),
        ({"correction": {"strengths": {"rr-clarc": [-1]}}}, "correction.strengths.rr-clarc.0 is -1: it should be"),
        ({"correction": {"strengths": {"vanilla": [1]}}}, "'strengths': vanilla has no strength to choose."),
        ({"correction": {"strengths": {"rrr": [1]}}}, "correction: 'strengths': rrr is not among 'methods'."),
        ({"correction": {"strengths": {"rr-clarc": []}}}, "correction.strengths.rr-clarc is []"),
        (
            {"correction": {"optimizer": "converged", "repeats": 3}},
            "correction: 'repeats' has no effect with 'optimizer: converged'",
        ),
        (
            {"correction": {"methods": "dfr", "strengths": {}, "repeats": 2}},
            "correction: 'repeats' has no effect: none of dfr depends on a seed.",
        ),
        (
            {"correction": {"class_budgets": {"red": -1}}},
            "correction.class_budgets.red is -1: it should be greater than or equal to 0.",
        ),
        (
            {"artifact": {"keep": "hair"}, "correction": {"methods": ["match"], "strengths": {}}},
            "match trains the whole network: it corrects the run's own artifact only",
        ),
        ({"seed": -1}, "seed is -1: it should be greater than or equal to 0."),
        ({"seed": 2**32}, "seed is 4294967296: it should be less than 4294967296."),
        ({"workers": 1.5}, "workers is 1.5"),
        ({"model": None}, "model is None"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(OptionError) as told:
        read(tmp_path, **changes)
    assert sentence in str(told.value)
    assert str(told.value).startswith(f"{tmp_path / 'run.yaml'} is not valid:\n  ")


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    path = written(tmp_path, "model: {sorce: demo}\nseed: x\n")
    with pytest.raises(OptionError) as told:
        read_run_file(path)
    _, *faults = str(told.value).splitlines()
    assert [fault.split()[0] for fault in faults] == ["model.source", "model.sorce", "data", "out", "seed"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("model: [", "is not valid YAML: line 1, column 9: while parsing a flow node, "),
        (
            "out: a\ndata: root: b\n",
            "line 2, column 11: mapping values are not allowed here.\n    data: root: b\n" + 14 * " " + "^",
        ),
        ("out: 2020-13-01", "is not valid YAML: month must be in 1..12."),
        ("out: a\nout: b", "the key 'out' is given twice"),
        ("model: {source: a, source: b}", "the key 'source' is given twice"),
        ("", "is not a run file"),
        ("- a\n- b", "is not a run file"),
        ("!!python/object/apply:os.system ['true']", "line 1, column 1: could not determine a constructor"),
        ("? [a, b]\n: c", "is not valid YAML"),
        (
            "\n".join(["a0: &a0 [1, 2]", *(f"a{i + 1}: &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(9))]),
            "more than",
        ),
        ("a: &x [*x]", "more than 10000 values"),
    ],
)
def test_what_is_no_run_file_is_refused(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(OptionError) as told:
        read_run_file(written(tmp_path, text))
    assert sentence in str(told.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"There is no file .*rular\.yaml\. To write a new one: hansfree init "):
        read_run_file(tmp_path / "nowhere" / "rular.yaml")
    (tmp_path / "ruler.yaml").touch()
    with pytest.raises(OptionError, match=r"rular\.yaml\. Did you mean 'ruler\.yaml'\? To write"):
        read_run_file(tmp_path / "rular.yaml")
    with pytest.raises(OptionError, match="Cannot read"):
        read_run_file(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"out: caf\xe9")
    with pytest.raises(OptionError, match="Cannot read"):
        read_run_file(tmp_path / "latin.yaml")


def test_relative_paths_start_at_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("HOME", "/home/hans")
    path = written(tmp_path, yaml.safe_dump(run_content(data={"root": "/abs"}, out="~/run")))
    for typed in (path, Path("../run.yaml")):
        run = read_run_file(typed)
        assert run.data.root == Path("/abs")
        assert run.data.table is not None
        assert run.data.table.is_absolute()
        assert run.data.table.resolve() == tmp_path / "labels.csv"
        assert Path(str(run.model.weights)).resolve() == tmp_path / "two.safetensors"
        file, _, function = run.model.source.rpartition(":")
        assert (Path(file).resolve(), function) == (tmp_path / "net.py", "build")
        assert run.out == Path("/home/hans/run")
    assert read(tmp_path, model={"source": "hf:weights"}).model.source == f"hf:{tmp_path / 'weights'}"
    for source in ("timm:resnet18", "hf:microsoft/resnet-18", "package.module:build", "demo"):  # no paths
        model = read(tmp_path, model={"source": source, "weights": "pretrained"}).model
        assert (model.source, model.weights) == (source, "pretrained")


# Fuzzing: a run file or one sentence, whatever stands in the file

LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates(), st.binary(max_size=4)
)
TREES = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=3),
    max_leaves=8,
)
PLACES = [(name,) for name in RunConfig.model_fields] + [
    (section, key)
    for section, field in RunConfig.model_fields.items()
    if hasattr(field.annotation, "model_fields")
    for key in field.annotation.model_fields  # type: ignore[union-attr]
]
FUZZED = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read_or_refuse(folder: Path, text: str) -> None:
    with suppress(OptionError):  # and nothing else
        assert isinstance(read_run_file(written(folder, text)), RunConfig)


@FUZZED
@given(place=st.sampled_from(PLACES), value=TREES)
def test_any_value_at_any_place(tmp_path: Path, place: tuple[str, ...], value: Any) -> None:
    content = copy.deepcopy(run_content())
    *outer, key = place
    section = content[outer[0]] if outer else content
    section[key] = value
    read_or_refuse(tmp_path, yaml.safe_dump(content))
