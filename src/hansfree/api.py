"""The chain of a run: pipeline, then report, then export."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, partial
from pathlib import Path, PurePath
from typing import Any

import yaml
from torch import nn

from hansfree._internal.files import display_path, write_text
from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.progress import Progress, silent
from hansfree._internal.store import RunStore, open_run
from hansfree.activations import Activations, collect
from hansfree.corrections import RRClArC, Vanilla
from hansfree.data import UserImages
from hansfree.evaluation import ORIGINAL, Results, Row, load_results, measure_side_effects, takes_out_direction
from hansfree.export import export_run, load_corrected
from hansfree.models import plain, plain_state, write_weights
from hansfree.pipeline import (
    ExecutorFactory,
    Experiment,
    InsertionSimilarity,
    PreparedRun,
    Setting,
    assess_class_order,
    check_concepts,
    check_unchanged,
    compare_insertion,
    describe_joint,
    diagnose_direction,
    gather_results,
    is_deep,
    keep_images,
    keep_in_memory,
    local_executor,
    put_in,
    reads_pictures,
    run_config,
    transplants_file,
    unused_keys,
    weights_file,
    write_outcome,
)
from hansfree.reasons import VerdictLevel
from hansfree.report import describe_rejection, describe_verdict, write_report, write_verdict


def evaluate_extra_artifacts(
    experiment: Experiment, images: UserImages, artifacts: Sequence[str], *, methods: Sequence[str]
) -> list[Row]:
    """Return flip rate and balanced accuracy of the original model and of each method under each artifact.

    A stage is of one artifact and one model, so that either can be added later; the images pass the trunk once for
    each artifact.
    """
    return [row for name in artifacts for row in _score_under(experiment, images, name, methods)]


def _score_under(experiment: Experiment, images: UserImages, artifact: str, methods: Sequence[str]) -> Iterator[Row]:
    workspace = experiment.workspace

    @cache
    def passed() -> Activations:
        biased = put_in(images, -1, artifact, workspace.data.test_clean.ids)
        return collect(workspace.plan(f"test with {artifact}", biased), progress=experiment.progress)

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
    clean, model = experiment.workspace.activations["test_clean"], experiment.setting.model
    if like.method != ORIGINAL:
        kept = experiment.run.path / "corrected" / f"{like.method}.safetensors"
        model = load_corrected(model, kept, layer=clean.layer, pooling=clean.pooling, order=clean.order)
    found = measure_side_effects({like.method: model}, clean=clean, biased={artifact: passed()})
    cell = like.method, artifact
    about = replace(like, artifact=artifact, group=None)
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
    reason = f"{best}, by the {_recommended_measure(experiment)} ({_in_words(experiment, scores[best])}{beside})"
    original, verdict = _original(experiment), results.verdicts[best]
    if scores[best] <= original:
        doubt = f"By that it is no better than the original model ({_in_words(experiment, original)})."
    elif verdict.level == VerdictLevel.NOT_CORRECTED:
        doubt = (
            describe_verdict(results, best).reasons
            or "On test images it is not clearly better than the original model."
        )
    elif verdict.level == VerdictLevel.UNKNOWN:
        guess = f"Best guess, not proven: {reason}."
        return Advice(best, tuple(filter(None, (guess, apart, _how_to_prove(experiment, best)))))
    else:
        return Advice(best, tuple(filter(None, (f"Recommended: {reason}.", apart))))
    found = f"No model is recommended. The best is {reason}."
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
    """Return which methods the derivative cannot compare, and why; empty if there are none."""
    if not experiment.setting.rule.needs_derivative:
        return ""
    if deep := [method for method in methods if is_deep(method)]:
        return (
            f"Not compared by that: {', '.join(deep)}. All layers changed, so that a derivative along the CAV of the "
            "original model does not compare. To export it all the same, name it: hansfree export RUN METHOD."
        )
    apart = [method for method in methods if takes_out_direction(method)]
    if not apart:
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
    before = experiment.workspace.original_validation
    if experiment.setting.rule.needs_derivative:
        return -math.inf if before.derivative is None else -before.derivative
    return -math.inf if before.biased is None else before.biased.value


def _objection(results: Results, method: str) -> str:
    """Say what the report objects to a model; it collapsed on test images, for example."""
    variant = results.variant(method)
    return describe_rejection(results, variant) if variant else "it has no score on test images"


def _recommended_measure(experiment: Experiment) -> str:
    if experiment.setting.rule.needs_derivative:
        return "estimated effect of the artifact on the log-odds of validation images, the smaller the better"
    return "balanced accuracy on validation images with the artifact"


def _in_words(experiment: Experiment, score: float) -> str:
    return f"{-score:.3g}" if experiment.setting.rule.needs_derivative else f"{100 * score:.1f} %"


@dataclass(frozen=True)
class Result:
    """What a run leaves behind."""

    rows: list[Row]
    sentences: tuple[str, ...]  # what a user should read first
    recommended: str | None  # the method whose model is to be used, or is the best guess, and was exported
    report: Path


def run(
    prepared: PreparedRun,
    *,
    executor: ExecutorFactory = local_executor,
    command: str = "",
    progress: Progress = silent,
) -> Result:
    """Diagnose the direction, correct the model, score, report and export; finished stages are not repeated.

    Args:
        executor: Computes activations and corrections, in this process or on a cluster.
    """
    config, images = prepared.run, prepared.images
    check_unchanged(prepared)
    with open_run(config.out, run_config(prepared)) as store:
        _keep_weights(store, prepared.setting.model)
        if prepared.transplants is not None and not transplants_file(config.out).exists():
            prepared.transplants.write(transplants_file(config.out))
        keep_images(prepared)
        write_text(config.out / "run.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
        methods = config.correction.trials
        with executor(prepared, store, progress) as workers:
            workers.collect()
            experiment = Experiment(_with_pictures(prepared, progress), store, progress=progress)
            experiment.check(methods)
            names = _image_names(images)
            diagnosis = diagnose_direction(experiment, names=names, is_marked=images.is_annotated, progress=progress)
            doubts = check_concepts(experiment)
            workers.correct(experiment, methods)
        rows = experiment.rows(methods)
        results = gather_results(experiment, methods, rows)
        best = _advise(experiment, results)
        about = {**_about(prepared, command), "recommended": best.method, "advice": list(best.sentences)}
        about["image_names"] = _shown_names(experiment, names)
        similarity = _insertion_similarity(prepared, experiment)
        about["remarks"] += [*(found.sentence for found in similarity), *doubts]
        about |= describe_joint(experiment.workspace)
        rows += evaluate_extra_artifacts(experiment, images, config.artifact.tested, methods=methods)
        write_outcome(experiment, rows, results, about)
        report = write_report(config.out)
        exported = () if best.method is None else _export(prepared, best.method)
        verdict = write_verdict(load_results(config.out)).lines
    unlike = (found.sentence for found in similarity if found.differs)
    # verdict and advice share reasons
    lines = dict.fromkeys((diagnosis.verdict, *unlike, *verdict, *best.sentences, *exported))
    return Result(rows, tuple(lines), best.method, report)


def _with_pictures(prepared: PreparedRun, progress: Progress) -> Setting:
    """Return the setting, with the pictures in memory for a method that trains on them, epoch after epoch."""
    setting = prepared.setting
    if not any(map(reads_pictures, prepared.run.correction.trials)):
        return setting
    return replace(setting, data=keep_in_memory(setting.data, progress=progress))


def _insertion_similarity(prepared: PreparedRun, experiment: Experiment) -> list[InsertionSimilarity]:
    """Compare an artifact that is put in with the one that the images came with; nothing where there is only one."""
    has_both = prepared.images.is_natural and prepared.setting.data.is_inserted
    return [compare_insertion(experiment)] if has_both else []


def _advise(experiment: Experiment, results: Results) -> Advice:
    """Choose a corrected model, unless the classes of the one that came are in another order."""
    images, answers = experiment.setting.data.test_clean, experiment.predictions.load(ORIGINAL)["predicted_clean"]
    doubt = assess_class_order(answers, images.labels, images.class_names)
    if doubt is not None and doubt.is_order:
        return Advice(None, (f"No model is recommended. {doubt.sentence}",))
    found = recommend(experiment, results)
    return found if doubt is None else Advice(found.method, (*found.sentences, doubt.sentence))


def _keep_weights(folder: RunStore, model: nn.Module) -> None:
    """Keep the weights that the run is about; refuse others under the same path."""
    folder.check_weights(fingerprint_model(model))
    kept = weights_file(folder)
    if not kept.exists():
        write_weights(kept, plain_state(model))


def _image_names(images: UserImages) -> dict[int, str]:
    """Return what to call each image, by its id: the path below ``data.root``, or all of it where it lies elsewhere."""
    paths, root = map(Path, images.source.paths), images.root or Path()
    names = (path.relative_to(root) if path.is_relative_to(root) else path for path in paths)
    return dict(zip(images.source.ids.tolist(), map(Path.as_posix, names)))


def _shown_names(experiment: Experiment, names: Mapping[int, str]) -> dict[str, str]:
    """Return what the images whose heatmaps are shown are called, by their id."""
    ids = experiment.setting.data.test_biased.ids[experiment.workspace.shown_rows]
    return {str(id_): names[id_] for id_ in ids.tolist()}


def _about(prepared: PreparedRun, command: str) -> dict[str, Any]:
    images = prepared.images
    return {
        "title": ": ".join(filter(None, (PurePath(prepared.run.model.source).name, prepared.setting.data.artifact))),
        "model": prepared.run.model.source,
        "size": images.size,
        "channels": images.channels,
        "mean": list(images.transform.mean),
        "std": list(images.transform.std),
        "remarks": list(images.remarks),
        "skipped": list(images.skipped),
        "unused": unused_keys(prepared.run, images),
        "command": command,
    }


def _export(prepared: PreparedRun, method: str) -> tuple[str, ...]:
    """Export the model that is recommended, or is the best guess."""
    done = export_run(prepared.run.out, method, original=plain(prepared.setting.model), force=True)
    return (f"Corrected weights: {display_path(done.weights.weights)}. {done.weights.folding.sentence}",)
