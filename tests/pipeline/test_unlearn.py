"""One call on torch datasets: the same numbers as a run file, a corrected model, and the given one untouched."""

from __future__ import annotations

import copy
import gc
import html
import importlib.util
import re
import shutil
import sys
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

import hansfree as hf
from hansfree import api
from hansfree.errors import HansfreeError, OptionError, RunError
from hansfree.pipeline.checks import PreparedRun, prepare_run
from hansfree.pipeline.config import read_run_file
from hansfree.reasons import VerdictLevel
from tests.pipeline.user import CLASSES, build, read_table, write_run
from tests.pipeline.worlds import Mixing, Squares

Items = list[tuple[Any, ...]]
OPTIONS: dict[str, Any] = {"method": "p-clarc", "layer": "apart", "budget": 0.2, "progress": False}


def green(image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Insert what the model takes for a sign of the class red."""
    image = image.copy()
    image[..., 1] = np.minimum(image[..., 1].astype(int) + 60, 255)
    return image


def squares(n: int, start: int = 0) -> Items:
    images = Squares(n, artifact="none", start=start)
    return [(images.transform(images.pixels(row)[0]), int(images.labels[row])) for row in range(n)]


@pytest.fixture(scope="module")
def parts() -> dict[str, Items]:
    return {"train": squares(200), "val": squares(100, 1000), "test": squares(100, 2000)}


@pytest.fixture(scope="module")
def result(parts: dict[str, Items]) -> hf.Result:
    return hf.unlearn(Mixing().train(), **parts, artifact=green, **OPTIONS)


def test_the_bias_is_there_before_and_gone_after(result: hf.Result, parts: dict[str, Items]) -> None:
    flips = {row.method: row.value for row in result.scores["flip_rate"]}
    assert flips["original"] > 0.3
    assert flips["p-clarc"] < 0.1
    assert result.recommended == "p-clarc"
    assert result.verdict is not None
    assert result.verdict.level == VerdictLevel.CORRECTED
    images = torch.stack([image for image, _ in parts["test"]])
    spotted = images + torch.tensor([0, 2 * 60 / 255, 0])[:, None, None]
    before, after = (
        (model.eval()(spotted).argmax(1) != model(images).argmax(1)).float().mean()
        for model in (Mixing(), result.model)
    )
    assert before > 0.3
    assert after < 0.1


def test_the_given_model_is_not_changed(result: hf.Result) -> None:
    model = result.original
    assert model.training
    assert not [hook for module in model.modules() for hook in module._forward_hooks]
    assert all(torch.equal(tensor, Mixing().state_dict()[name]) for name, tensor in model.state_dict().items())
    assert type(result.model) is Mixing


def test_report_weights_and_scores_can_be_taken_along(result: hf.Result, tmp_path: Path) -> None:
    assert "<html" in result.report(tmp_path / "page.html").read_text()
    state = load_file(result.save(tmp_path / "saved") / "model.safetensors")
    assert (tmp_path / "saved" / "MODEL_CARD.md").exists()
    assert all(torch.equal(state[name], tensor) for name, tensor in result.model.state_dict().items())
    with pytest.raises(OptionError, match="no scores of 'flip_rat'"):
        result.scores["flip_rat"]
    assert list(result.scores[:3]) == [result.scores[row] for row in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
        assert result.scores.to_frame() == [asdict(row) for row in result.scores]
        patch.setitem(sys.modules, "pandas", None)
        with pytest.raises(OptionError, match="pip install pandas"):
            result.scores.to_frame()


def table(user: Path, part: str) -> Items:
    """Return a part of the user's table as a run reads it."""

    def image(name: str) -> Tensor:
        return torch.from_numpy(np.array(Image.open(user / name))).movedim(-1, 0).float() / 127.5 - 1

    rows = [row for row in read_table(user / "labels.csv") if row[3] == part]
    return [(image(name), CLASSES.index(label), int(bit)) for name, label, bit, _ in rows]


def test_the_scores_are_those_of_a_run_file(user: Path, unreported: None) -> None:
    correction = {"methods": ["p-clarc", "rr-clarc"], "epochs": 10, "strengths": {}, "budget": 0.1}
    file = write_run(user / "run.yaml", artifact={"insert": "timestamp", "biased_class": None}, correction=correction)
    theirs = api.run(prepare_run(read_run_file(file)))
    model = build()
    model.load_state_dict(load_file(user / "two.safetensors"))
    given = {part: table(user, part) for part in ("train", "val", "test")}
    options = {"method": correction["methods"], "budget": 0.1, "progress": False}
    ours = hf.unlearn(model, **given, artifact=hf.Timestamp(), **options)
    assert len(ours.scores) > 100
    for one, other in zip(ours.scores, theirs.scores, strict=True):
        one, other = ({**asdict(row), "experiment": "", "value": 0, "stderr": 0} for row in (one, other))
        assert one == other
    np.testing.assert_array_equal([row.value for row in ours.scores], [row.value for row in theirs.scores])
    assert ours.recommended == theirs.recommended
    if ours.recommended is None:
        assert ours.model is model


def test_one_dataset_is_split_a_cache_resumes_and_a_temporary_directory_is_deleted(
    tmp_path: Path, unreported: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="hansfree")
    items, bits = squares(1000), Squares(1000, artifact="leaks").has_artifact
    shift = torch.tensor([0, 120 / 255, 0])[:, None, None]
    items = [((image + shift * bit).clamp(max=1), label) for (image, label), bit in zip(items, bits.tolist())]
    options: dict[str, Any] = {**OPTIONS, "has_artifact": bits, "artifact": green}
    first = hf.unlearn(Mixing(), DataLoader(items, batch_size=4), cache=tmp_path / "run", **options)
    stages = {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "stages").iterdir()}
    again = hf.unlearn(Mixing(), items, cache=tmp_path / "run", **options)
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "run" / "stages").iterdir()} == stages
    temporary = hf.unlearn(Mixing(), items, **options)
    counts = next(line for line in first.files.results.meta["remarks"] if line.startswith("Images: "))
    scored = {row.n for row in first.scores["flip_rate"]}
    assert re.search(r"test (\d+), each without and with the inserted", counts)[1] == str(*scored)  # type: ignore[index]
    assert re.search(r"; \d+ held-out images with the natural artifact are not used", counts)
    assert [record.message for record in caplog.records].count(counts) == 3, "what stands in the report is also logged"
    stages = {record.message.partition(":")[0] for record in caplog.records if ": done in " in record.message}
    assert {"original", "p-clarc", "diagnostics"} <= stages
    values = [[row.value for row in found.scores] for found in (first, again, temporary)]
    assert values[0] == values[1] == values[2]
    assert {row.n for row in first.scores["accuracy_clean"]} < {*range(60, 90)}, "a tenth of them, without the artifact"
    directory = temporary.directory
    assert (directory / "results.csv").exists()
    del temporary
    gc.collect()
    assert not directory.exists()


class Endless(IterableDataset[Any]):
    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Iterator[Any]:
        return iter(squares(8))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"val": None}, "Give val and test together"),
        ({"train": DataLoader(squares(8), shuffle=True)}, "shuffle"),
        ({"train": [(torch.full((3, 8, 9), 0.5), 0)], "val": None, "test": None}, "9 x 8 pixels"),
        ({"train": squares(8)}, "at least 5 with and 5 without"),
        ({"train": [(image, 2) for image, _ in squares(8)]}, "image 0 has 2.*the model has 2 outputs"),
        (
            {"train": [(image, 0) for image, _ in squares(60)], "val": None, "test": None},
            "All images .* are of class '0'",
        ),
        ({"train": Endless(), "val": None, "test": None}, "iterable dataset"),
        ({"groups": [0] * 400}, "groups keep images"),
        ({"artifact": None}, "Give has_artifact, or an artifact"),
        ({"has_artifact": [0, 1]}, "has_artifact must be 400 values"),
        ({"has_artifact": np.zeros(400)}, "None of the 400 images of the dataset has the artifact"),
        ({"artifact": lambda image, rng: image}, "changes nothing"),
        ({"method": "p-clrc"}, "Did you mean 'p-clarc'"),
        ({"layer": "apatr"}, "Did you mean 'apart'"),
        ({"budget": 2}, "correction.budget is 2"),
        ({"class_budgets": {"green": 0.1}}, "class_budgets"),
        ({"device": "gpu"}, "gpu"),
    ],
)
def test_bad_input_is_one_clear_error(options: dict[str, Any], error: str, parts: dict[str, Items]) -> None:
    with pytest.raises(HansfreeError, match=error):
        hf.unlearn(Mixing(), **{**parts, "artifact": green, **OPTIONS, **options})


def test_a_result_is_read_again_and_holds_direction_strengths_and_diagnostics(
    result: hf.Result, tmp_path: Path, parts: dict[str, Items]
) -> None:
    first, second = result.verdict.sentences
    assert re.match(r"Corrected: on 100 test images the green artifact changes \d.* instead of \d+.* before\.$", first)
    assert second.startswith("Balanced accuracy ")
    assert str(result.verdict) == f"{first} {second}"
    assert repr(result) == f"<Result: {result.verdict}>"
    saved = result.save(tmp_path / "saved")
    with pytest.raises(RunError, match="already"):
        result.save(saved)
    again = hf.load(saved, Mixing())
    assert again.verdict == result.verdict
    assert again.recommended == "p-clarc"
    np.testing.assert_allclose([s.value for s in again.scores], [s.value for s in result.scores], rtol=1e-5)
    with pytest.raises(OptionError, match=r"hf.load\(directory, model\)"):
        _ = hf.load(saved).model
    images = torch.stack([image for image, _ in parts["test"]])
    for each in (again.model, again.path.best.model, again.model_of("p-clarc")):
        torch.testing.assert_close(each(images), result.model(images))
    for found in (again, result):
        np.testing.assert_array_equal(found.cav.direction_, result.cav.direction_)
        (line,) = table = found.path.table()
        assert repr(table).splitlines()[0].split()[:2] == ["strength", "clean"]
        assert table.to_frame().to_dict("records") == table
        assert line["is_best"]
        assert line["clean"] > 0.8
        assert line["flip_rate"] == pytest.approx(result.scores["flip_rate"][-1].value, rel=1e-5)
        assert found.diagnostics.direction.is_visible
        assert "direction" in str(found.diagnostics)
        assert found.path.plot().axes
    with pytest.raises(OptionError, match="It has: p-clarc"):
        result.path_of("p-clrc")
    shutil.rmtree(saved / "run" / "exported")  # the demo exports nothing
    torch.testing.assert_close(hf.load(saved, Mixing()).model(images), result.model(images))


def test_a_notebook_shows_the_verdict_three_scores_and_heatmaps(result: hf.Result) -> None:
    page = result._repr_html_()
    assert html.escape(str(result.verdict)) in page
    assert len(re.findall(r"<td>[\d.]+ \([\d.]+.[\d.]+\)</td>", page)) == 6
    assert page.count('<img src="data:image/') == 9
    assert "http" not in page


def test_scores_of_two_runs_are_paired(result: hf.Result, parts: dict[str, Items]) -> None:
    flips = {each.metric: each for each in result.scores.compare(result.scores, other_method="original")}["flip_rate"]
    before, after = (row.value for row in result.scores["flip_rate"])
    assert flips.value == pytest.approx(after - before)
    assert flips.low < flips.value < flips.high < 0
    assert all(
        each.value == each.low == each.high == 0 or each.low < 0 < each.high
        for each in result.scores.compare(result.scores)
    )
    with pytest.raises(OptionError, match="There are no predictions"):
        result.scores.compare(result.scores, method="rrr")
    with pytest.raises(OptionError, match="Only the scores of a result"):
        result.scores.compare(hf.Scores([]))


def test_a_normalisation_of_ones_own_is_given(unreported: None) -> None:
    own = hf.Normalize(mean=(0.76, 0.54, 0.57), std=(0.14, 0.15, 0.17))

    def normalised(n: int, start: int) -> Items:
        images = Squares(n, artifact="none", start=start)
        return [(own(images.pixels(row)[0]), int(images.labels[row])) for row in range(n)]

    parts = {"train": normalised(200, 0), "val": normalised(100, 1000), "test": normalised(100, 2000)}
    with pytest.raises(OptionError, match=r"Give it: normalize=hf\.Normalize"):
        hf.unlearn(Mixing(), **parts, artifact=green, **OPTIONS)
    found = hf.unlearn(Mixing(), **parts, artifact=green, normalize=own, **OPTIONS)
    assert {row.method for row in found.scores["flip_rate"]} == {"original", "p-clarc"}


def test_the_name_of_an_artifact_is_not_the_artifact(parts: dict[str, Items]) -> None:
    with pytest.raises(OptionError, match=r"give an object, as hf\.Timestamp\(\)"):
        hf.unlearn(Mixing(), **parts, artifact="timestamp", **OPTIONS)  # type: ignore[arg-type]


class Told(hf.callbacks.Callback):
    def __init__(self) -> None:
        self.stages: list[hf.callbacks.Stage] = []
        self.settings: Any = None
        self.result: hf.Result | None = None

    def on_start(self, settings: Any, facts: Any) -> None:
        self.settings = settings

    def on_stage(self, stage: hf.callbacks.Stage) -> None:
        self.stages.append(stage)

    def on_end(self, result: hf.Result) -> None:
        self.result = result


def test_callbacks_learn_of_the_error_that_stops_a_run(parts: dict[str, Items], unreported: None) -> None:
    class Stops(Told):
        error: BaseException | None = None

        def on_stage(self, stage: hf.callbacks.Stage) -> None:
            raise RuntimeError("disk is full")

        def on_error(self, error: BaseException) -> None:
            self.error = error

    stops = Stops()
    with pytest.raises(RuntimeError, match="disk is full") as caught:
        hf.unlearn(Mixing(), **parts, artifact=green, **{**OPTIONS, "callbacks": [stops]})
    assert stops.error is caught.value
    assert stops.result is None


def test_auto_takes_the_family_by_depth_and_callbacks_are_told(
    parts: dict[str, Items],
    unreported: None,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hansfree.result.PlainVerdict.__str__", lambda self: "said")
    monkeypatch.setattr(hf.callbacks.MLflow, "on_end", lambda self, result: self._mlflow.end_run())
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlruns").as_uri())
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    told = Told()
    callbacks: list[hf.callbacks.Callback] = [told]
    for package, callback in (
        ("tensorboard", hf.callbacks.TensorBoard(tmp_path / "logs")),
        ("mlflow", hf.callbacks.MLflow()),
        ("wandb", hf.callbacks.WandB(project="unlearn", mode="offline")),
    ):
        if importlib.util.find_spec(package):
            callbacks.append(callback)
    options = {**OPTIONS, "method": "auto", "progress": True, "callbacks": callbacks}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the other packages
        found = hf.unlearn(torch.compile(Mixing()), **parts, artifact=green, **options)
    assert isinstance(found.model, type(torch.compile(Mixing())))
    assert "Cost of all methods" in capsys.readouterr().err
    diagnostics = found.diagnostics
    assert diagnostics.family == ("network" if diagnostics.depth and diagnostics.depth.is_below_head else "head")
    methods = {row.method for row in found.scores["balanced_accuracy_clean"]} - {"original"}
    assert methods == (
        {"vanilla", "match"} if diagnostics.family == "network" else {"vanilla", "p-clarc", "a-clarc", "rr-clarc"}
    )
    assert told.result is found
    assert told.settings["correction"]["budget"] == 0.2
    stages = {stage.name: stage for stage in told.stages}
    assert methods <= stages.keys()
    values = {value.name: value.value for stage in told.stages for value in stage.values()}
    flips = {row.method: row.value for row in found.scores["flip_rate"]}
    assert values["test/vanilla/flip_rate"] == flips["vanilla"]
    if importlib.util.find_spec("tensorboard"):
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        written = EventAccumulator(str(tmp_path / "logs")).Reload()
        (event,) = written.Scalars("test/vanilla/flip_rate")
        assert event.value == pytest.approx(flips["vanilla"], rel=1e-6)
    if importlib.util.find_spec("mlflow"):
        metrics = [path for path in (tmp_path / "mlruns").rglob("flip_rate") if path.parent.name == "vanilla"]
        assert float(metrics[0].read_text().split()[1]) == flips["vanilla"]
    if importlib.util.find_spec("wandb"):
        assert [*(tmp_path / "wandb").glob("offline-run-*/*.wandb")]


class StandIn(torch.nn.Module):
    """What a module of Lightning is to us, where Lightning is not installed: without a trainer, ``trainer`` raises."""

    @property
    def trainer(self) -> Any:
        raise RuntimeError(f"{type(self).__name__} is not attached to a `Trainer`.")


def lightning_module(base: Any) -> Any:
    class Module(base):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = Mixing()

        def forward(self, images: Tensor) -> Tensor:
            return self.net(images)  # type: ignore[no-any-return]

    return Module()


@pytest.mark.parametrize("kind", ["lightning", "stand-in", "exported", "groups"])
def test_models_and_datasets_of_other_libraries(kind: str, unreported: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[PreparedRun] = []
    api_run = api.run
    monkeypatch.setattr(api, "run", lambda prepared, **options: ran.append(prepared) or api_run(prepared, **options))
    items, model, options = squares(1000), Mixing().eval(), {**OPTIONS, "artifact": green}
    given: Any = items
    if kind == "lightning":
        pytorch_lightning = pytest.importorskip("pytorch_lightning")
        datasets = pytest.importorskip("datasets")
        model, options["layer"] = lightning_module(pytorch_lightning.LightningModule), "net.apart"
        columns = {"image": [image.numpy() for image, _ in items], "label": [label for _, label in items]}
        given = datasets.Dataset.from_dict(columns).with_format("torch")
    elif kind == "stand-in":
        model, options["layer"] = lightning_module(StandIn), "net.apart"
    elif kind == "exported":
        model = torch.export.export(model, (torch.zeros(2, 3, 8, 8),), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},))
        options["layer"] = "default"  # the first convolution, as the graph calls it
    else:
        options["groups"] = np.arange(1000) // 4
    result = hf.unlearn(model, given, **options)
    (prepared,) = ran
    images = torch.stack([image for image, _ in items[:64]])
    torch.testing.assert_close(prepared.setting.model(images), Mixing()(images))
    before, after = (row.value for row in result.scores["flip_rate"])
    assert after < before
    assert result.recommended == "p-clarc"
    torch.testing.assert_close(copy.deepcopy(result.model)(images), result.model(images))
    assert kind == "exported" or type(result.model) is type(model)
    assert (result.model.eval()(images).argmax(1) != Mixing()(images).argmax(1)).float().mean() < 0.2
    groups = [set(np.asarray(part.ids) // 4) for part in prepared.images.parts]
    is_apart = not (groups[0] & groups[1] or groups[0] & groups[2])
    assert is_apart == (kind == "groups")
