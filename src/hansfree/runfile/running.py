"""Run a run file: all stages, recommendation, monitor."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path, PurePath
from typing import Any, Protocol

import numpy as np
import torch
import yaml
from torch import nn

from hansfree._internal.files import neighbour, tell_path, write_text
from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import Run, open_run
from hansfree.activations import Activations, collect
from hansfree.corrections import RRClArC, Vanilla
from hansfree.datasets.images import ImageFiles, check_images
from hansfree.errors import DataError, RunError
from hansfree.experiments import Experiment, Setting
from hansfree.experiments.experiment import doubt_concepts, examine_direction
from hansfree.experiments.likeness import Likeness, compare_insertion
from hansfree.experiments.subjects import keep_in_memory, reads_pictures
from hansfree.experiments.workspace import Material, describe_joint
from hansfree.export import load_corrected
from hansfree.export.run import export_run
from hansfree.models import plain, plain_state
from hansfree.monitor import Monitor
from hansfree.report import write_report
from hansfree.report.outcome import gather_results, write_outcome
from hansfree.report.reading import Results, load_results, objection_to, takes_out_direction
from hansfree.report.text import reach_verdict
from hansfree.results import ORIGINAL, Row, split_with
from hansfree.runfile.changes import changes_of, check_unchanged, keep_images, meant_by, run_config
from hansfree.runfile.checks import doubt_order
from hansfree.runfile.config import read_run_file
from hansfree.runfile.identity import UNCOUNTED, unused_keys
from hansfree.runfile.opening import Opened, open_run_file, put_in
from hansfree.side_effects import measure_side_effects
from hansfree.studies import OwnImages
from hansfree.studies.listing import list_pictures
from hansfree.weights import write_weights


class Crew(Protocol):
    """Hands that make files which the run would otherwise make itself; each call ends when all are there."""

    def collect(self) -> None:
        """Make the shards of the cache that are missing."""

    def correct(self, experiment: Experiment, methods: Sequence[str]) -> None:
        """Do the stages of these methods that are missing; the CAVs are there already."""


Engine = Callable[[Opened, Run, Progress], AbstractContextManager[Crew]]

"""Calls a crew together for an open run, and lets it go."""


class Nobody:
    """A crew of none: the run does all itself."""

    def collect(self) -> None:
        """Leave it to the run."""

    def correct(self, experiment: Experiment, methods: Sequence[str]) -> None:
        """Leave it to the run."""


@contextmanager
def alone(opened: Opened, folder: Run, progress: Progress) -> Iterator[Crew]:
    """Give the run no crew: this process on this machine."""
    yield Nobody()


def score_further(
    experiment: Experiment, images: OwnImages, artifacts: Sequence[str], *, methods: Sequence[str]
) -> list[Row]:
    """Return flip rate and balanced accuracy of the model as it came and of each method under each artifact.

    A stage is of one artifact and one model, so that either can be added later; the images pass the trunk once for
    each artifact.
    """
    return [row for name in artifacts for row in _score_under(experiment, images, name, methods)]


def _score_under(experiment: Experiment, images: OwnImages, artifact: str, methods: Sequence[str]) -> Iterator[Row]:
    material = experiment.material

    @cache
    def passed() -> Activations:
        biased = put_in(images, -1, artifact, material.data.test_clean.ids)
        return collect(material.plan(split_with(artifact), biased), progress=experiment.progress)

    for method in (ORIGINAL, *methods):
        like = _chosen_row(experiment, method)
        if like is not None:  # else no strength of it gave a model
            work = partial(_measure, experiment, like, artifact, passed)
            model = method if like.strength is None else f"{method}-{like.strength:g}"  # another strength is another
            stage = f"{model}-with-{artifact}"
            yield from (Row(**row) for row in experiment.run.stage(stage, work))


def _chosen_row(experiment: Experiment, method: str) -> Row | None:
    """Return one score of the model that was taken, for all that its other scores have in common."""
    is_original = method == ORIGINAL
    rows = experiment.original_rows() if is_original else experiment.rows_for(experiment.plain(method))
    first = experiment.setting.tuning.seed  # repeats leave no weights
    wanted = (row for row in rows if row.chosen and row.split == "test" and (row.method, row.seed) == (method, first))
    return next(wanted, None)


def _measure(
    experiment: Experiment, like: Row, artifact: str, passed: Callable[[], Activations]
) -> list[dict[str, Any]]:
    clean, model = experiment.material.activations["test_clean"], experiment.setting.model
    if like.method != ORIGINAL:
        kept = experiment.run.path / "corrected" / f"{like.method}.safetensors"
        model = load_corrected(model, kept, layer=clean.layer, pooling=clean.pooling, order=clean.order)
    found = measure_side_effects({like.method: model}, clean=clean, biased={artifact: passed()})
    cell = like.method, artifact
    about = replace(like, split=split_with(artifact), group=None)
    return [
        asdict(replace(about, metric=score.metric, value=score.value, stderr=score.stderr, n=score.n))
        for score in (found.flips[cell], found.biased[cell])
    ]


_TO_DO = (
    "What may help: more images with the artifact, marked for training and held out for the test; another layer; other "
    "strengths. To export it all the same, name it: hansfree export RUN METHOD."
)


@dataclass(frozen=True)
class Advice:
    """The method whose model is to be used, or proven first where it cannot be known (None: none is), and why."""

    method: str | None
    sentences: tuple[str, ...]


def recommend(experiment: Experiment, results: Results) -> Advice:
    """Choose among the admissible methods by what the selection rule looked at on the validation images.

    Test images choose nothing, or their scores would be too good; they may only refuse the one that was chosen.
    """
    wanted = [method for method in results.selection if method != Vanilla.name]  # which the others have to beat
    if not wanted:
        return Advice(None, ("Only plain fine-tuning was run, which corrects nothing: no model is recommended.",))
    scores = {method: score for method in wanted if (score := _score(results, method)) is not None}
    apart = _left_out(experiment, [method for method in wanted if results.selection[method]["admissible"]])
    if not scores and apart:
        return Advice(
            None, (f"No model is recommended: none can be chosen by the {_recommended_measure(experiment)}.", apart)
        )
    if not scores:
        reasons = "; ".join(f"{method}: {results.selection[method]['reason']}" for method in wanted)
        return Advice(None, (f"Do not use any of the corrected models: none is admissible ({reasons}).",))
    best = max(scores, key=lambda method: (scores[method], method == RRClArC.name))
    if objection := _objection(results, best):
        return Advice(None, (f"Do not use {best}, though it is the best on validation images: {objection}.",))
    others = [f"{method} {_in_words(experiment, scores[method])}" for method in scores if method != best]
    beside = f"; {', '.join(others)}" if others else ""
    if list(scores.values()).count(scores[best]) > 1:
        beside += f"; of equals, {RRClArC.name} or else the first is taken"
    told = f"{best}, by the {_recommended_measure(experiment)} ({_in_words(experiment, scores[best])}{beside})"
    original, judgement = _original(experiment), results.rulings[best]
    if scores[best] <= original:
        doubt = f"By that it is no better than the model as it came ({_in_words(experiment, original)})."
    elif judgement.ruling == "not corrected":
        doubt = judgement.why or "On test images it is not clearly better than the model as it came."
    elif judgement.ruling == "cannot be known":
        guess = f"Best guess, not proven: {told}."
        return Advice(best, tuple(filter(None, (guess, apart, _how_to_prove(experiment, best)))))
    else:
        return Advice(best, tuple(filter(None, (f"Recommended: {told}.", apart))))
    found = f"No model is recommended. The best is {told}."
    return Advice(None, tuple(filter(None, (found, apart, doubt, _TO_DO))))


def _how_to_prove(experiment: Experiment, method: str) -> str:
    """Say what would show whether the bias is gone, where these images cannot."""
    if experiment.setting.data.is_inserted:
        return (
            f"Before you use {method}, hold out more test images: these are too few to show whether the bias is gone."
        )
    return (
        f"Before you use {method}, put the artifact into images (artifact.insert in the run file), or hold out more "
        "images that carry it, of at least two classes: those at hand cannot show whether the bias is gone."
    )


def _left_out(experiment: Experiment, methods: Sequence[str]) -> str:
    """Say whom the derivative cannot compare; nothing where accuracy does, or nobody is left out."""
    apart = [method for method in methods if takes_out_direction(method)]
    if not experiment.setting.rule.needs_derivative or not apart:
        return ""
    why = (
        "It takes the direction out of the activations, so what its head would do along it says"
        if len(apart) == 1
        else "They take the direction out of the activations, so what their heads would do along it says"
    )
    return f"Not compared by that: {', '.join(apart)}. {why} nothing about the artifact."


def _score(results: Results, method: str) -> float | None:
    """Return what the rule saw of a method's model, the more the better; None for one that must not be taken."""
    variant = results.variant(method)
    return results.validation_score(variant) if variant and results.selection[method]["admissible"] else None


def _original(experiment: Experiment) -> float:
    before = experiment.material.original_validation
    if experiment.setting.rule.needs_derivative:
        return -math.inf if before.derivative is None else -before.derivative
    return -math.inf if before.biased is None else before.biased.value


def _objection(results: Results, method: str) -> str:
    """Say what the report objects to a model; it collapsed on test images, for example."""
    variant = results.variant(method)
    return objection_to(results, variant) if variant else "it has no score on test images"


def _recommended_measure(experiment: Experiment) -> str:
    if experiment.setting.rule.needs_derivative:
        return "estimated effect of the artifact on the log-odds of validation images, the smaller the better"
    return "balanced accuracy on validation images with the artifact"


def _in_words(experiment: Experiment, score: float) -> str:
    return f"{-score:.3g}" if experiment.setting.rule.needs_derivative else f"{100 * score:.1f} %"


@dataclass(frozen=True)
class Finished:
    """What a run leaves behind."""

    rows: list[Row]
    sentences: tuple[str, ...]  # what a user should read first
    recommended: str | None  # the method whose model is to be used, or is the best guess, and was exported
    report: Path


def carry_out(opened: Opened, *, engine: Engine = alone, command: str = "", progress: Progress = silent) -> Finished:
    """Find the bias, examine it, unlearn it, score, report and export; what is done already is kept.

    Args:
        engine: Who helps with the pass and with the corrections.
    """
    run = opened.run
    with open_run(
        run.out, run_config(opened), defaults=meant_by(opened), uncounted=UNCOUNTED, told=changes_of(opened)
    ) as folder:
        _keep_weights(folder, opened.setting.model)
        keep_images(opened)
        write_text(run.out / "run.yaml", yaml.safe_dump(run.model_dump(mode="json"), sort_keys=False))
        with engine(opened, folder, progress) as crew:
            crew.collect()
            experiment = Experiment(_with_pictures(opened, progress), folder, progress=progress)
            experiment.check(run.correction.trials)
            names = _image_names(opened.images)
            diagnosis = examine_direction(experiment, names=names, is_marked=opened.images.is_marked, progress=progress)
            doubts = doubt_concepts(experiment)
            crew.correct(experiment, run.correction.trials)
        rows = experiment.rows(run.correction.trials)
        results = gather_results(experiment, run.correction.trials, rows)
        best = _advise(experiment, results)
        about = {**_about(opened, command), "recommended": best.method, "advice": list(best.sentences)}
        about["image_names"] = _shown_names(experiment, names)
        likeness = _likeness(opened, experiment)
        about["remarks"] += [*(found.sentence for found in likeness), *doubts]
        about |= describe_joint(experiment.material)
        rows += score_further(experiment, opened.images, run.artifact.tested, methods=run.correction.trials)
        write_outcome(experiment, rows, results, about)
        report = write_report(run.out)
        exported = () if best.method is None else _export(opened, best.method)
        verdict = reach_verdict(load_results(run.out)).lines
    unlike = (found.sentence for found in likeness if found.is_unlike)
    # verdict and advice share reasons
    said = dict.fromkeys((diagnosis.verdict, *unlike, *verdict, *best.sentences, *exported))
    return Finished(rows, tuple(said), best.method, report)


def _with_pictures(opened: Opened, progress: Progress) -> Setting:
    """Return the setting, with the pictures in memory for a method that trains on them, epoch after epoch."""
    setting = opened.setting
    if not any(map(reads_pictures, opened.run.correction.trials)):
        return setting
    return replace(setting, data=keep_in_memory(setting.data, progress=progress))


def _likeness(opened: Opened, experiment: Experiment) -> list[Likeness]:
    """Compare an artifact that is put in with the one that the images came with; nothing where there is only one."""
    has_both = opened.images.is_natural and opened.setting.data.is_inserted
    return [compare_insertion(experiment)] if has_both else []


def _advise(experiment: Experiment, results: Results) -> Advice:
    """Choose a corrected model, unless the classes of the one that came are in another order."""
    images, answers = experiment.setting.data.test_clean, experiment.kept.load(ORIGINAL)["predicted_clean"]
    doubt = doubt_order(answers, images.labels, images.class_names)
    if doubt is not None and doubt.is_order:
        return Advice(None, (f"No model is recommended. {doubt.sentence}",))
    found = recommend(experiment, results)
    return found if doubt is None else Advice(found.method, (*found.sentences, doubt.sentence))


def _keep_weights(folder: Run, model: nn.Module) -> None:
    """Keep the weights that the run is about; refuse others under the same path."""
    folder.check_weights(fingerprint_model(model))
    kept = kept_weights(folder)
    if not kept.exists():
        write_weights(kept, plain_state(model))


def kept_weights(folder: Run) -> Path:
    """Return where a run keeps the weights that it is about."""
    return folder.path / "original.safetensors"


def _image_names(images: OwnImages) -> dict[int, str]:
    """Return what to call each image, by its id: the path below ``data.root``, or all of it where it lies elsewhere."""
    paths, root = map(Path, images.source.paths), images.root or Path()
    names = (path.relative_to(root) if path.is_relative_to(root) else path for path in paths)
    return dict(zip(images.source.ids.tolist(), map(Path.as_posix, names)))


def _shown_names(experiment: Experiment, names: Mapping[int, str]) -> dict[str, str]:
    """Return what the images whose heatmaps are shown are called, by their id."""
    ids = experiment.setting.data.test_biased.ids[experiment.material.shown_rows]
    return {str(id_): names[id_] for id_ in ids.tolist()}


def _about(opened: Opened, command: str) -> dict[str, Any]:
    images = opened.images
    return {
        "title": ": ".join(filter(None, (PurePath(opened.run.model.source).name, opened.setting.data.artifact))),
        "model": opened.run.model.source,
        "size": images.size,
        "channels": images.channels,
        "mean": list(images.transform.mean),
        "std": list(images.transform.std),
        "remarks": list(images.remarks),
        "skipped": list(images.skipped),
        "unused": unused_keys(opened.run, images),
        "command": command,
    }


def _export(opened: Opened, method: str) -> tuple[str, ...]:
    """Export the model that is recommended, or is the best guess."""
    done = export_run(opened.run.out, method, original=plain(opened.setting.model), force=True)
    return (f"Corrected weights: {tell_path(done.weights.weights)}. {done.weights.folding.sentence}",)


_BATCH = 64

_FILE = "monitor.safetensors"


@dataclass(frozen=True, eq=False)
class RunMonitor:
    """A run's monitor, kept in its folder for `Monitor.load` too."""

    monitor: Monitor
    opened: Opened
    file: Path

    def look_at(
        self, images: Sequence[Path], *, skip_bad: bool = False, progress: Progress = silent
    ) -> tuple[list[SeenImage], list[str]]:
        """Return what the monitor says of pictures, and a sentence for each that cannot be read.

        Args:
            images: Files, and folders that are searched for some.
            skip_bad: Go on without pictures that cannot be read; otherwise the first is an error.
        """
        paths = _list_images(images)
        good, skipped = check_images(paths, skip_bad=skip_bad, progress=progress)
        known = self.opened.images
        files = ImageFiles(
            [paths[row] for row in good],
            np.zeros(len(good), dtype=np.int64),
            class_names=("unknown",),
            size=known.size,
            resize=known.resize,
            channels=known.channels,
        )
        looked: list[SeenImage] = []
        starts = range(0, len(files), _BATCH)
        for start in progress(starts, total=len(starts), label="looking at the images"):
            rows = range(start, min(start + _BATCH, len(files)))
            scores = self.monitor.scores(torch.stack([known.transform(files.image(row)) for row in rows]))
            looked += [
                SeenImage(files.paths[row], float(score), bool(score > self.monitor.threshold))
                for row, score in zip(rows, scores)
            ]
        return looked, skipped


@dataclass(frozen=True)
class SeenImage:
    """One picture, its score along the direction, and whether that is above the threshold."""

    image: str
    score: float
    is_flagged: bool


def monitor_run(folder: Path, *, false_fire_rate: float = 0.01, progress: Progress = silent) -> RunMonitor:
    """Fit a monitor from the cache of a finished run, and keep it as ``monitor.safetensors`` in its folder.

    The threshold is set on the clean validation images, what it is worth is counted on the test images. The model is
    the one whose weights the run kept.
    """
    file = folder / "run.yaml"
    if not file.is_file() or not (folder / "results.csv").is_file():
        raise RunError(
            f"{folder} is not the folder of a finished `hansfree run`: it has no run.yaml or no results.csv."
        )
    run = read_run_file(file)
    weights = str(kept_weights(Run(folder)).absolute())
    section = run.model.model_copy(update={"weights": weights})
    opened = open_run_file(run.model_copy(update={"out": folder, "model": section}), progress=progress)
    check_unchanged(opened)  # other images than the run's could be those that it learned from
    material = Material(opened.setting, folder, folder / "activations", progress=progress)
    held_out = material.activations
    monitor = Monitor.fit(
        opened.setting.model,
        material.cav,
        clean=held_out["val_clean"],
        test_clean=held_out["test_clean"],
        test_biased=held_out.get("test_biased"),
        false_fire_rate=false_fire_rate,
    )
    monitor.save(folder / _FILE)
    return RunMonitor(monitor, opened, folder / _FILE)


def table_of(looked: Sequence[SeenImage]) -> str:
    """Return a CSV table: image, score, flagged."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("image", "score", "flagged"))
    writer.writerows((one.image, f"{one.score:.6g}", int(one.is_flagged)) for one in looked)
    return text.getvalue()


def _list_images(given: Sequence[Path]) -> list[str]:
    """Return files as they are, and the pictures of folders in the order of their paths."""
    found: list[str] = []
    for path in given:
        if path.is_dir():
            inside = list_pictures(path)
            if not inside:
                raise DataError(f"{path} holds no pictures.")
            found += inside
        elif path.is_file():
            found.append(str(path))
        else:
            raise DataError(f"There is no file or folder {path}.{neighbour(path)}")
    return found
