"""Carry out a run file: every stage once, kept in the run folder, so that a killed run goes on where it stopped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.torch import save_file

from hansfree.doctor import Diagnosis, examine_cav
from hansfree.errors import RunError
from hansfree.experiments import Experiment
from hansfree.experiments.outcome import write_outcome
from hansfree.experiments.subjects import keep_in_memory
from hansfree.export.run import export_run
from hansfree.files import write_text, written_atomically
from hansfree.fingerprints import fingerprint, fingerprint_model
from hansfree.models import plain, plain_state
from hansfree.progress import Progress, silent
from hansfree.report import write_report
from hansfree.results import Row
from hansfree.runfile.opening import Opened
from hansfree.runs import Run, open_run
from hansfree.studies import SETS

# What may change in a run that was begun: where it works, and which stages it has.
_CHANGES_NOTHING = {"out": True, "device": True, "workers": True, "correction": {"methods"}}


@dataclass(frozen=True)
class Finished:
    """What a run leaves behind."""

    rows: list[Row]
    sentences: tuple[str, ...]  # what a user should read first
    report: Path


def carry_out(opened: Opened, *, command: str = "", progress: Progress = silent) -> Finished:
    """Find the bias, examine it, unlearn it, score, report and export; what is done already is kept."""
    run = opened.run
    setting = replace(opened.setting, data=keep_in_memory(opened.setting.data, progress=progress))
    with open_run(run.out, _config(opened)) as folder:
        _check_weights(folder, opened)
        experiment = Experiment(setting, folder, progress=progress)
        experiment.cav_rows()
        diagnosis = _diagnose(experiment, folder, progress)
        rows = write_outcome(experiment, _about(opened, command), methods=run.correction.methods)
        report = write_report(run.out)
        exported = _export(opened)
    return Finished(rows, (diagnosis.verdict, *exported), report)


def _config(opened: Opened) -> dict[str, Any]:
    """Return everything that the results depend on: the run file, and the images by their content."""
    images = [getattr(opened.setting.data, part).fingerprint for part in SETS]
    settings = opened.run.model_dump(mode="json", exclude=_CHANGES_NOTHING)  # type: ignore[arg-type]
    return {"hansfree": version("hansfree"), **settings, "images": fingerprint(*images)}


def _check_weights(folder: Run, opened: Opened) -> None:
    """Keep the weights that the run is about; refuse others under the same path."""
    model = opened.setting.model
    here = fingerprint_model(model)
    if folder.stage("weights", lambda: here) != here:
        raise RunError(
            f"{folder.path} was made with other weights. Choose another folder, or delete this one to start anew."
        )
    kept = folder.path / "original.safetensors"
    if not kept.exists():
        with written_atomically(kept) as temporary:
            save_file({name: tensor.contiguous() for name, tensor in plain_state(model).items()}, temporary)


def _diagnose(experiment: Experiment, folder: Run, progress: Progress) -> Diagnosis:
    """Ask the doctor about the direction that the corrections use."""
    setting, train = experiment.setting, experiment.material.activations["train"]

    def work() -> str:
        inside = (train.labels == setting.data.biased_class) & ~setting.data.train.is_relabelled
        bits = np.asarray(train.has_artifact)
        others = train.pooled[(train.labels != setting.data.biased_class) & ~bits]
        return examine_cav(
            train.pooled[inside],
            bits[inside],
            cav=setting.cav,
            others=others if len(others) else None,
            ids=train.ids[inside],
            seed=setting.tuning.seed,
            progress=progress,
        ).to_json()

    text = folder.stage("doctor", work)
    write_text(folder.path / "doctor.json", text)
    return Diagnosis.from_json(text)


def _about(opened: Opened, command: str) -> dict[str, Any]:
    images = opened.images
    return {
        "title": f"{opened.run.model.source}: {opened.setting.data.artifact}",
        "model": opened.run.model.source,
        "size": images.size,
        "channels": images.channels,
        "mean": list(images.transform.mean),
        "std": list(images.transform.std),
        "remarks": list(images.remarks),
        "skipped": list(images.skipped),
        "command": command,
    }


def _export(opened: Opened) -> list[str]:
    """Export what can be handed on of every method but the plain fine-tuning."""
    out, original = opened.run.out, plain(opened.setting.model)
    sentences = []
    for method in opened.run.correction.methods:
        if (out / "corrected" / f"{method}.safetensors").exists():
            done = export_run(out, method, original=original, force=True)
            sentences.append(f"{method}: {done.weights.weights}. {done.weights.folding.sentence}")
    return sentences
