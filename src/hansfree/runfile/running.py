"""Carry out a run file: every stage once, kept in the run folder, so that a killed run goes on where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import Any

import yaml
from torch import nn

from hansfree.experiments import Experiment, Setting
from hansfree.experiments.examining import doubt_concepts, examine_direction
from hansfree.experiments.joining import describe_joint
from hansfree.experiments.likeness import Likeness, compare_insertion
from hansfree.experiments.subjects import keep_in_memory, reads_pictures
from hansfree.export.run import export_run
from hansfree.files import tell_path, write_text
from hansfree.fingerprints import fingerprint_model
from hansfree.models import plain, plain_state
from hansfree.progress import Progress, silent
from hansfree.report import write_report
from hansfree.report.loading import load_results
from hansfree.report.outcome import gather_results, write_outcome
from hansfree.report.reading import Results
from hansfree.report.verdict import reach_verdict
from hansfree.results import ORIGINAL, Row
from hansfree.runfile.also import score_further
from hansfree.runfile.changes import changes_of, keep_images, meant_by, run_config
from hansfree.runfile.crew import Engine, alone
from hansfree.runfile.identity import UNCOUNTED
from hansfree.runfile.opening import Opened
from hansfree.runfile.ordering import doubt_order
from hansfree.runfile.recommending import Advice, recommend
from hansfree.runfile.unused import unused_keys
from hansfree.runs import Run, open_run
from hansfree.studies import OwnImages
from hansfree.weights import write_weights


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
