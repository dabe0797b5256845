"""The result of a run: the corrected model, the verdict, scores, direction, strengths; read from its directory."""

from __future__ import annotations

import math
import shutil
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
from safetensors.torch import load_file
from torch import nn
from torch.export import ExportedProgram

from hansfree._internal.files import read_arrays
from hansfree.cavs import CAV, load_cavs
from hansfree.cavs.diagnostics import Diagnosis
from hansfree.corrections import CorrectedHead, Selection, StrengthPath, Validation
from hansfree.errors import OptionError, RunError, import_optional, nearest
from hansfree.evaluation import (
    BIASED,
    CLEAN,
    ORIGINAL,
    Results,
    Row,
    load_results,
    read_rows,
    tested_rows,
)
from hansfree.export import export_run, load_corrected, open_corrected, open_example, read_run
from hansfree.metrics import Answers, Difference, Score, compare_answers
from hansfree.models import as_module, in_form_of, plain
from hansfree.pipeline import Depth
from hansfree.reasons import Advice, AdviceCode, Reason, Verdict, VerdictLevel
from hansfree.report import describe_diagnostics, write_notebook, write_two_sentences, write_verdict

if TYPE_CHECKING:
    from pandas import DataFrame

Family = Literal["head", "network"]


class RunFiles:
    """The directory of a finished run, and what is read from it; a temporary one is deleted when nothing uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def delete_after_use(self, directory: Path) -> None:
        """Delete a directory as soon as neither the result nor anything taken from it is in use."""
        weakref.finalize(self, shutil.rmtree, directory, ignore_errors=True)

    @cached_property
    def results(self) -> Results:
        """The results as the report reads them."""
        return load_results(self.path)

    @property
    def advice(self) -> Advice:
        """Which method's model is recommended, or is the best guess, and why."""
        stored = self.results.meta["decision"]
        return Advice(**{**stored, "code": AdviceCode(stored["code"]), "not_compared": tuple(stored["not_compared"])})

    def weights_of(self, method: str) -> Path | None:
        """Return the exported weights of a method, if it was exported."""
        folders = (self.path / "exported" / name for name in (method, f"unproven-{method}"))
        return next((file for folder in folders if (file := folder / "model.safetensors").is_file()), None)

    def answers(self, method: str) -> Answers:
        """Return the predicted classes of a model on the test images."""
        stored = self._arrays(method)
        return {"clean": stored["predicted_clean"], "biased": stored["predicted_biased"]}

    @cached_property
    def labels(self) -> dict[str, np.ndarray]:
        """The labels of the test images without and with the artifact."""
        stored = self._arrays(ORIGINAL)
        return {"clean": stored["labels_clean"], "biased": stored["labels_biased"]}

    def _arrays(self, method: str) -> dict[str, np.ndarray]:
        file = self.path / "stages" / f"{method}.npz"
        if not file.is_file():
            raise OptionError(f"There are no predictions of {method!r}.{nearest(method, self.results.selection)}")
        return read_arrays(file, stage=file.with_suffix(".json"))


class Scores(Sequence[Row]):
    """Scores of all models of a run; ``scores["flip_rate"]`` are those of one metric on the test images.

    Examples:
        >>> about = {"experiment": "run", "method": "original", "split": "test", "chosen": 1}
        >>> scores = Scores([Row(metric="flip_rate", value=0.5, **about)])
        >>> [row.value for row in scores["flip_rate"]]
        [0.5]
    """

    def __init__(self, rows: Sequence[Row], files: RunFiles | None = None) -> None:
        self._rows, self._files = tuple(rows), files

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        lines = [f"{row.method}: {row.metric} {row.value:.3f}" for row in self._rows if row.chosen][:3]
        return f"<Scores: {len(self)} rows, such as {'; '.join(lines)}>"

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice | str) -> Scores: ...
    def __getitem__(self, index: int | slice | str) -> Row | Scores:
        if isinstance(index, int):
            return self._rows[index]
        if isinstance(index, slice):
            return Scores(self._rows[index], self._files)
        known = sorted({row.metric for row in self._rows})
        if index not in known:
            raise OptionError(f"There are no scores of {index!r}.{nearest(index, known)} Known: {', '.join(known)}.")
        chosen = (row for row in tested_rows(self._rows) if row.metric == index and row.chosen and row.group is None)
        return Scores([*chosen], self._files)

    def to_frame(self) -> DataFrame:
        """Return a pandas table with a row per score."""
        frame: DataFrame = import_optional("pandas").DataFrame([asdict(row) for row in self._rows])
        return frame

    def compare(
        self, other: Scores, *, method: str | None = None, other_method: str | None = None
    ) -> tuple[Difference, ...]:
        """Return this run's scores minus another's on the same test images, with paired 95 % intervals.

        Args:
            other: of a run on the same test images; the scores themselves, to compare two methods of this run.
            method: whose model; the best one by default, or ``"original"``.
            other_method: likewise of the other run.
        """
        if self._files is None or other._files is None:
            raise OptionError("Only the scores of a result can be compared: they need its predictions per image.")
        ours, theirs = (
            method or self._files.advice.best or ORIGINAL,
            other_method or other._files.advice.best or ORIGINAL,
        )
        labels = self._files.labels
        if any(not np.array_equal(labels[side], other._files.labels[side]) for side in ("clean", "biased")):
            raise OptionError("The runs have other test images, so nothing can be paired. Give both the same `test`.")
        rival = theirs if ours != theirs else f"{theirs} (other)"
        meta = self._files.results.meta
        return tuple(
            compare_answers(
                {rival: other._files.answers(theirs), ours: self._files.answers(ours)},
                labels["clean"],
                None if self._files.results.is_inserted else labels["biased"],
                biased_class=meta["biased_class"],
                seed=meta["seed"],
            )
        )


@dataclass(frozen=True)
class PlainVerdict(Verdict):
    """A verdict that prints as two plain sentences."""

    sentences: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join(self.sentences)


@dataclass(frozen=True)
class Diagnostics:
    """What a run found before it corrected anything: whether the direction can be trusted, and how deep it sits."""

    direction: Diagnosis
    depth: Depth | None  # None where the network has no stages that can be found
    family: Family | None  # of the corrections that were chosen by the depth; None where they were given
    cost: str | None  # the estimate that was shown before the run

    def __str__(self) -> str:
        return describe_diagnostics(self.direction, self.depth, self.family, self.cost)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Result:
    """What `hansfree.unlearn` or a run found; a temporary run directory is deleted together with it.

    Examples:
        >>> import hansfree as hf
        >>> from torch import nn
        >>> images = hf.WithArtifact(hf.SyntheticLesions(1200, size=16), hf.Timestamp(), share=0.5, only_class=0)
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(12), nn.Flatten(), nn.Linear(4, 4))
        >>> result = hf.unlearn(model, images, artifact=hf.Timestamp(), method="p-clarc", layer="0", progress=False)
        >>> len(result.scores["flip_rate"]), result.cav.name
        (2, 'signal')
    """

    original: nn.Module | ExportedProgram | None  # as it was given; None after `load` without it
    scores: Scores
    files: RunFiles
    sentences: tuple[str, ...]  # what a user should read first

    def __repr__(self) -> str:
        return f"<Result: {self.verdict}>"

    @property
    def directory(self) -> Path:
        """The run directory."""
        return self.files.path

    @property
    def advice(self) -> Advice:
        """Which method's model is recommended, or is the best guess, and why."""
        return self.files.advice

    @property
    def recommended(self) -> str | None:
        """The method whose model is recommended, or is the best guess; None: no model is."""
        return self.advice.method

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """The verdicts on all methods."""
        return self.files.results.verdicts

    @cached_property
    def verdict(self) -> PlainVerdict:
        """The verdict on the best method, as data; it prints as two plain sentences."""
        best = self.advice.best
        found = Verdict(VerdictLevel.UNUSABLE) if best is None else self.verdicts[best]
        sentences = write_two_sentences(self.files.results, best)
        return PlainVerdict(found.level, found.reasons, found.inputs, sentences)

    @cached_property
    def model(self) -> nn.Module:
        """The corrected model, of the same class and with the same keys; the original where nothing is better."""
        method = self.recommended
        if method is None:
            return self._given if isinstance(self._given, nn.Module) else as_module(self._given)
        if (weights := self.files.weights_of(method)) is None:  # not exported: by the demo, or deleted
            return self.model_of(method)
        return in_form_of(load_corrected(as_module(self._given), weights), self._given)

    def model_of(self, method: str) -> nn.Module:
        """Return the model of any method of the run at its selected strength, also of one that is not recommended."""
        run = read_run(self.directory)
        corrected = open_corrected(run, run.method_to_export(method), as_module(self._given), open_example(run))
        return in_form_of(corrected, self._given)

    @cached_property
    def cav(self) -> CAV:
        """The artifact's direction, fitted on the training images."""
        kind = str(self.files.results.meta["cav"])
        found: dict[str, CAV] = {}
        for name in ("cavs", f"cav-{kind}"):
            if (file := self.directory / f"{name}.safetensors").is_file():
                found |= load_cavs(file)
        if kind not in found:
            raise RunError(f"{self.directory} has no CAV {kind!r}.")
        return found[kind]

    @cached_property
    def diagnostics(self) -> Diagnostics:
        """How far the direction can be trusted, and how deep the artifact sits; it prints as a few sentences."""
        results = self.files.results
        if results.diagnosis is None:
            raise RunError(f"{self.directory} has no diagnostics.json.")
        depth = results.meta.get("depth")
        return Diagnostics(
            results.diagnosis,
            None if depth is None else Depth(**depth),
            results.meta.get("family"),
            results.meta.get("cost"),
        )

    @property
    def path(self) -> StrengthPath[CorrectedHead]:
        """The strengths of the best method: ``best`` (with its ``model``), ``table()`` and ``plot()``."""
        if self.advice.best is None:
            raise OptionError("No method has a usable strength. Name one: result.path_of('rr-clarc').")
        return self.path_of(self.advice.best)

    def path_of(self, method: str) -> StrengthPath[CorrectedHead]:
        """Return the strengths of a method, with validation and test scores."""
        selections, seed = self.files.results.selection, self.files.results.meta["seed"]
        if method not in selections:
            raise OptionError(
                f"The run has no method {method!r}.{nearest(method, selections)} It has: {', '.join(selections)}."
            )
        rows = [row for row in self.scores if row.method == method and row.seed == seed]
        by_strength: dict[float | None, list[Row]] = {}
        for row in rows:
            by_strength.setdefault(row.strength, []).append(row)
        histories = [_history(each) for each in by_strength.values()]
        tested = [[_score(row) for row in each if row.split == "test"] for each in by_strength.values()]
        strengths = [1.0 if strength is None else strength for strength in by_strength]
        chosen = [index for index, each in enumerate(by_strength.values()) if any(row.chosen for row in each)]
        index = chosen[0] if chosen else None
        best = None
        if index is not None:
            weights = self.directory / "corrected" / f"{method}.safetensors"
            state, install = partial(load_file, weights), lambda _state: self.model_of(method)
            best = CorrectedHead(strengths[index], state, True, histories[index], install)
        reason = Reason.from_json(selections[method]["reason"])
        return StrengthPath(tuple(strengths), tuple(histories), tuple(tested), Selection(index, reason), best)

    def report(self, path: Path | str) -> Path:
        """Write the report, one HTML page, and return its path."""
        return Path(shutil.copyfile(self.directory / "report.html", path))

    def save(self, directory: Path | str, method: str | None = None) -> Path:
        """Write weights and model card, by default of the recommended model, and in ``run`` what `load` reads.

        Returns:
            The directory.
        """
        directory = Path(directory)
        if (directory / "run").exists():
            raise RunError(f"{directory} already holds a saved result. Choose another directory.")
        if method is not None or self.recommended is not None:
            export_run(self.directory, method, original=plain(as_module(self._given)), out=directory)
        ignored = shutil.ignore_patterns("activations", "checkpoints", ".*")
        shutil.copytree(self.directory, directory / "run", ignore=ignored)
        return directory

    @property
    def _given(self) -> nn.Module | ExportedProgram:
        if self.original is None:
            raise OptionError("The original model is not stored. Give it: hf.load(directory, model).")
        return self.original

    def _repr_html_(self) -> str:
        return write_notebook(self.files.results, str(self.verdict))


def load(directory: Path | str, model: nn.Module | ExportedProgram | None = None) -> Result:
    """Return the result of a finished run, or one that `Result.save` wrote.

    Args:
        model: The original model; only ``model`` and ``model_of`` of the result need it.

    Examples:
        >>> import hansfree as hf
        >>> hf.load("nowhere")
        Traceback (most recent call last):
        hansfree.errors.RunError: There is no run folder nowhere.
    """
    path = Path(directory)
    files = RunFiles(path / "run" if (path / "run").is_dir() else path)
    if "decision" not in files.results.meta:
        raise RunError(f"{path} was written by another version of hansfree. Run it again.")
    lines = dict.fromkeys((*write_verdict(files.results).lines, *files.results.meta.get("advice", ())))
    scores = Scores(read_rows(files.path / "results.csv"), files)
    return Result(original=model, scores=scores, files=files, sentences=tuple(lines))


def _score(row: Row) -> Score:
    return Score(row.metric, row.value, row.stderr or math.nan, row.n or 0, group=row.group, artifact=row.artifact)


def _history(rows: Sequence[Row]) -> tuple[Validation, ...]:
    """Return what was seen on the validation images after every epoch, from a strength's rows."""
    found: dict[int, dict[str, Score]] = {}
    for row in rows:
        if row.split == "val":
            found.setdefault(row.epoch or 0, {})[row.metric] = _score(row)
    return tuple(
        Validation(seen[CLEAN], seen.get(BIASED), bool(np.isfinite(seen[CLEAN].value)), ())
        for _, seen in sorted(found.items())
    )
