"""The chain of a run: pipeline, then report, then export."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path, PurePath
from typing import Any

import yaml
from safetensors.torch import load_file

from hansfree._internal.files import display_path, write_text
from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import open_run
from hansfree.activations import Activations, collect
from hansfree.data import UserImages
from hansfree.evaluation import ORIGINAL, Row, load_results, measure_side_effects
from hansfree.export import export_run, load_corrected
from hansfree.metrics import BalancedAccuracyBiased, FlipRate
from hansfree.models import plain, plain_state, write_weights
from hansfree.pipeline import (
    ExecutorFactory,
    Experiment,
    PreparedRun,
    advise,
    check_concepts,
    check_unchanged,
    compare_insertion,
    describe_joint,
    diagnose_direction,
    gather_results,
    insert_into,
    is_deep,
    keep_images,
    keep_in_memory,
    local_executor,
    reads_pictures,
    run_config,
    transplants_file,
    unused_keys,
    weights_file,
    write_outcome,
)
from hansfree.report import describe_advice, describe_similarity, write_report, write_verdict


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    rows: list[Row]
    sentences: tuple[str, ...]  # what a user should read first
    recommended: str | None  # the method whose model is recommended, or is the best guess, and was exported
    report: Path


def run(
    prepared: PreparedRun, *, executor: ExecutorFactory = local_executor, command: str = "", progress: Progress = silent
) -> Result:
    """Diagnose the direction, correct the model, score, report and export; finished stages are not repeated.

    Args:
        executor: Computes activations and corrections, in this process or on a cluster.
    """
    config, images = prepared.run, prepared.images
    check_unchanged(prepared)
    with open_run(config.out, run_config(prepared)) as store:
        store.check_weights(fingerprint_model(prepared.setting.model))
        if not weights_file(store).exists():
            write_weights(weights_file(store), plain_state(prepared.setting.model))
        if prepared.transplants is not None and not transplants_file(config.out).exists():
            prepared.transplants.write(transplants_file(config.out))
        keep_images(prepared)
        write_text(config.out / "run.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
        methods = config.correction.trials
        with executor(prepared, store, progress) as workers:
            workers.collect()
            setting = prepared.setting
            if any(map(reads_pictures, methods)):
                setting = replace(setting, data=keep_in_memory(setting.data, progress=progress))
            experiment = Experiment(setting, store, progress=progress)
            experiment.check(methods)
            names = _image_names(images)
            diagnosis = diagnose_direction(experiment, names=names, is_marked=images.is_annotated, progress=progress)
            concept_warnings = check_concepts(experiment)
            workers.correct(experiment, methods)
        rows = experiment.rows(methods)
        has_both = images.is_natural and setting.data.is_inserted
        similarities = [compare_insertion(experiment)] if has_both else []
        differs = any(found.differs for found in similarities)
        results = gather_results(experiment, methods, rows, insertion_differs=differs)
        advice, class_warning = advise(experiment, results)
        advice_lines = [*describe_advice(results, advice), *([class_warning] if class_warning else [])]
        shown_ids = setting.data.test_biased.ids[experiment.workspace.shown_rows]
        about = {
            **_about(prepared, command),
            **describe_joint(experiment.workspace),
            "recommended": advice.method,
            "advice": advice_lines,
            "remarks": [*images.remarks, *map(describe_similarity, similarities), *concept_warnings],
            "image_names": {str(id_): names[id_] for id_ in shown_ids.tolist()},
        }
        for artifact in config.artifact.tested:
            rows += evaluate_extra_artifact(experiment, images, artifact, methods=methods)
        write_outcome(experiment, rows, results, about)
        report = write_report(config.out)
        exported = []
        if advice.method is not None:
            done = export_run(config.out, advice.method, original=plain(prepared.setting.model), force=True)
            exported = [f"Corrected weights: {display_path(done.weights.weights)}. {done.weights.folding.sentence}"]
        verdict = write_verdict(load_results(config.out)).lines
    differences = [describe_similarity(found) for found in similarities if found.differs]
    # verdict and advice share reasons
    lines = dict.fromkeys((diagnosis.verdict, *differences, *verdict, *advice_lines, *exported))
    return Result(rows, tuple(lines), advice.method, report)


def evaluate_extra_artifact(
    experiment: Experiment, images: UserImages, artifact: str, *, methods: Sequence[str]
) -> Iterator[Row]:
    """Yield flip rate and balanced accuracy of the original model and of each method under another artifact.

    A stage is of one artifact and one model, so that either can be added later.
    """
    workspace = experiment.workspace
    inserted = insert_into(images, -1, artifact, workspace.data.test_clean.ids)

    @cache  # the images pass the trunk once for all latent methods
    def activations() -> Activations:
        return collect(workspace.plan(f"test with {artifact}", inserted), progress=experiment.progress)

    def measure(like: Row) -> list[Row]:
        if is_deep(like.method):
            network = copy.deepcopy(experiment.setting.model)
            network.load_state_dict(load_file(_weights_of(experiment, like.method)))
            evidence = workspace.evidence_of(network, inserted)
            scores = [FlipRate().compute(evidence), BalancedAccuracyBiased().compute(evidence)]
        else:
            clean, model = workspace.activations["test_clean"], experiment.setting.model
            if like.method != ORIGINAL:
                weights = _weights_of(experiment, like.method)
                model = load_corrected(model, weights, layer=clean.layer, pooling=clean.pooling, order=clean.order)
            found = measure_side_effects({like.method: model}, clean=clean, biased={artifact: activations()})
            scores = [found.flips[like.method, artifact], found.biased[like.method, artifact]]
        about = replace(like, artifact=artifact, group=None)
        return [replace(about, metric=each.metric, value=each.value, stderr=each.stderr, n=each.n) for each in scores]

    for method in (ORIGINAL, *methods):
        row = _chosen_row(experiment, method)
        if row is not None:  # else no strength of the method gave a model
            model = method if row.strength is None else f"{method}-{row.strength:g}"  # another strength is another
            yield from experiment.stage_rows(f"{model}-with-{artifact}", partial(measure, row))


def _weights_of(experiment: Experiment, method: str) -> Path:
    return experiment.run.path / "corrected" / f"{method}.safetensors"


def _chosen_row(experiment: Experiment, method: str) -> Row | None:
    """Return one score of the selected model, for all that its other scores have in common."""
    is_original = method == ORIGINAL
    rows = experiment.original_rows() if is_original else experiment.rows_for(experiment.plain(method))
    first = experiment.setting.tuning.seed  # repeats leave no weights
    wanted = (row for row in rows if row.chosen and row.split == "test" and (row.method, row.seed) == (method, first))
    return next(wanted, None)


def _image_names(images: UserImages) -> dict[int, str]:
    """Return the name of each image by id: its path below ``data.root``, or the whole path if it is elsewhere."""
    paths, root = map(Path, images.source.paths), images.root or Path()
    names = (path.relative_to(root) if path.is_relative_to(root) else path for path in paths)
    return dict(zip(images.source.ids.tolist(), map(Path.as_posix, names)))


def _about(prepared: PreparedRun, command: str) -> dict[str, Any]:
    images = prepared.images
    return {
        "title": ": ".join(filter(None, (PurePath(prepared.run.model.source).name, prepared.setting.data.artifact))),
        "model": prepared.run.model.source,
        "size": images.size,
        "channels": images.channels,
        "mean": list(images.transform.mean),
        "std": list(images.transform.std),
        "skipped": list(images.skipped),
        "unused": unused_keys(prepared.run, images),
        "command": command,
    }
