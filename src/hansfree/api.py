"""The chain of a run: pipeline, then report, then export; and one call for it on torch datasets."""

from __future__ import annotations

import copy
import logging
import shutil
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, replace
from functools import cache, partial
from pathlib import Path, PurePath
from tempfile import mkdtemp
from typing import Any

import numpy as np
import torch
import yaml
from safetensors.torch import load_file
from torch import nn
from torch.export import ExportedProgram

from hansfree._internal.files import display_path, write_text
from hansfree._internal.hashing import fingerprint_model
from hansfree._internal.progress import Progress, announce, progress_bars, silent
from hansfree._internal.store import open_run
from hansfree.activations import Activations, collect
from hansfree.callbacks import Callback, Stage
from hansfree.corrections import Vanilla
from hansfree.data import (
    Artifact,
    Images,
    InsertFunction,
    Normalize,
    TorchImages,
    UserImages,
    given_datasets,
    open_datasets,
)
from hansfree.errors import OptionError
from hansfree.evaluation import ORIGINAL, Row, measure_side_effects
from hansfree.export import export_run, load_corrected
from hansfree.metrics import BalancedAccuracyBiased, FlipRate
from hansfree.models import Preprocessing, as_module, find_logits, plain, plain_state, write_weights
from hansfree.pipeline import (
    Depth,
    ExecutorFactory,
    Experiment,
    PreparedRun,
    RunConfig,
    WorkerSetup,
    adapt_run_model,
    advise,
    assemble_run,
    check_concepts,
    check_unchanged,
    compare_insertion,
    diagnose_direction,
    estimate_time,
    gather_results,
    insert_into,
    is_deep,
    keep_images,
    measure_depth,
    run_config,
    transplants_file,
    unused_keys,
    validate_config,
    weights_file,
    write_outcome,
)
from hansfree.report import (
    describe_advice,
    describe_diagnosis,
    describe_reason,
    describe_similarity,
    describe_suspects,
    write_report,
    write_verdict,
)
from hansfree.result import Family, Result, RunFiles, Scores

log = logging.getLogger(__name__)


def unlearn(
    model: nn.Module | ExportedProgram,
    train: Images,
    *,
    val: Images | None = None,
    test: Images | None = None,
    has_artifact: Sequence[bool] | np.ndarray | None = None,
    artifact: Artifact | InsertFunction | None = None,
    normalize: Normalize | None = None,
    method: str | Sequence[str] = "auto",
    layer: str = "auto",
    budget: float = 0.02,
    class_budgets: Mapping[str | int, float] | None = None,
    groups: Sequence[Hashable] | None = None,
    cache: Path | str | None = None,
    device: str = "auto",
    seed: int = 0,
    progress: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Find the shortcut in a model, unlearn it, and prove how much is gone: `run` on torch datasets.

    Args:
        model: A classifier, also compiled, of Lightning or Hugging Face, or an exported program; it is not changed.
        train: Images as the model sees them: a dataset of ``(image, label)``, ``(image, label, has_artifact)`` or
            dictionaries, or a loader that does not shuffle. Without ``val`` and ``test``, all three are drawn from it.
        has_artifact: The artifact labels of all training, validation and test images, in this order, where the
            datasets have none.
        artifact: Is inserted: as the bias itself where no artifact labels are known, else to prove that it is gone.
        normalize: How the images were normalised. None recognises the usual ways; give it for a mean and standard
            deviation of your own.
        method: One or several corrections; ``"auto"`` chooses the family, of the head or of the whole network, by how
            deep the artifact sits.
        budget: How much balanced accuracy on clean validation images a correction may cost; ``class_budgets``: of a
            class's sensitivity.
        groups: The subject of each image; a split that is drawn keeps the images of one together.
        cache: Run directory, to resume and to keep the results; None is a temporary one.
        device: ``"auto"`` is a GPU if there is one.
        callbacks: Called during the run, see `hansfree.callbacks`.

    Examples:
        >>> import hansfree as hf
        >>> images = hf.WithArtifact(hf.SyntheticLesions(1200, size=16), hf.Timestamp(), share=0.5, only_class=0)
        >>> model = nn.Sequential(nn.Conv2d(3, 4, 5), nn.ReLU(), nn.MaxPool2d(12), nn.Flatten(), nn.Linear(4, 4))
        >>> result = hf.unlearn(model, images, artifact=hf.Timestamp(), method="p-clarc", layer="0", progress=False)
        >>> type(result.model).__name__
        'Sequential'
    """
    if isinstance(artifact, str):
        raise OptionError(f"artifact is {artifact!r}; give an object, as hf.Timestamp(), or a function of an image.")
    given = given_datasets(train, val, test)
    temporary = Path(mkdtemp(prefix="hansfree-")) if cache is None else None
    correction: dict[str, Any] = {"budget": budget, "class_budgets": {**(class_budgets or {})}}
    config = {
        "model": {"source": type(model).__name__, "layer": layer},
        "data": {"root": "."},
        "correction": correction if method == "auto" else {**correction, "methods": method},
        "out": temporary / "run" if temporary else cache,
        "seed": seed,
        "device": ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device,
    }
    with ExitStack() as cleanup:
        if temporary:
            cleanup.callback(shutil.rmtree, temporary, ignore_errors=True)
        with progress_bars() if progress else nullcontext(silent) as show:
            run_file = validate_config(config, "An option is not valid:")
            source = TorchImages(given, normalize=normalize, progress=show)
            insert = {"has_artifact": has_artifact, "artifact": artifact}
            prepared = _prepare(run_file, as_module(model), source, groups=groups, **insert)
            announce(f"Images: {dict(prepared.facts)['images']}.", progress)
            cost = None
            for sentence in (*prepared.images.doubts, *(f"{describe_reason(each)}." for each in prepared.warnings)):
                log.warning(sentence)
            if method == "auto":
                cost = estimate_time(prepared)
                announce(f"Cost of all methods, of which the depth of the artifact selects: {cost}.", progress)
            options: dict[str, Any] = {"cost": cost, "by_depth": method == "auto", "callbacks": callbacks}
            result = replace(run(prepared, progress=show, **options), original=model)
        cleanup.pop_all()
    if temporary:
        result.files.delete_after_use(temporary)
    for callback in callbacks:
        callback.on_end(result)
    return result


def _prepare(config: RunConfig, model: nn.Module, source: TorchImages, **options: Any) -> PreparedRun:
    """Return the run of a copy of the model on datasets; raise if they do not fit together."""
    height, width, channels = source.images.shape[1:]
    copied = copy.deepcopy(model).cpu().eval()
    outputs = find_logits(copied, torch.zeros(2, channels, height, width))[0].numel()
    source.name_outputs(max(2, outputs))
    images = open_datasets(source, seed=config.seed, **options)
    insert = images.inserted
    config = config.model_copy(
        update={
            "model": config.model.model_copy(update={"output": "binary" if outputs == 1 else "classes"}),
            "artifact": config.artifact.model_copy(update={"name": None if insert is None else insert.name}),
        }
    )
    mean, std = source.transform.mean, source.transform.std
    seen = Preprocessing(size=height, channels=channels, mean=mean, std=std, resize="squash")
    return assemble_run(config, adapt_run_model(config, copied, seen), images)


def run(
    prepared: PreparedRun,
    *,
    executor: ExecutorFactory | None = None,
    command: str = "",
    progress: Progress = silent,
    by_depth: bool = False,
    cost: str | None = None,
    callbacks: Sequence[Callback] = (),
) -> Result:
    """Diagnose the direction, correct the model, score, report and export; finished stages are not repeated.

    Args:
        executor: Computes activations and corrections on a cluster; None does all in this process.
        by_depth: Run only those methods of the family that fits how deep the artifact sits.
        cost: The estimate that was shown before the run; stored with the results.
        callbacks: Called at the start, after each stage and after an error; `unlearn` calls their ``on_end``.
    """
    config, images = prepared.run, prepared.images
    check_unchanged(prepared)
    with _watched(prepared, callbacks) as watch, open_run(config.out, run_config(prepared), watch=watch) as store:
        store.check_weights(
            fingerprint_model(prepared.setting.model),
            lambda: write_weights(weights_file(store), plain_state(prepared.setting.model)),
        )
        if prepared.transplants is not None:
            prepared.transplants.write(transplants_file(config.out))
        keep_images(prepared)
        write_text(config.out / "run.yaml", yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False))
        methods = config.correction.trials
        setup = WorkerSetup.of(prepared, store)
        with nullcontext() if executor is None else executor(setup, store, progress) as workers:
            if workers is not None:
                workers.collect(pairs=config.correction.needs_pairs)
            setting = prepared.setting.in_memory(setup.specs, progress=progress)
            experiment = Experiment(setting, store, progress=progress)
            experiment.check(methods)
            names = _image_names(images)
            diagnosis = diagnose_direction(experiment, names=names, is_marked=images.is_annotated)
            if diagnosis.suspect_labels:
                log.warning(describe_suspects(diagnosis))
            concept_warnings, depth = check_concepts(experiment), measure_depth(experiment)
            family: Family | None = None
            if by_depth:
                family, methods = _family_by(depth, methods)
            if workers is not None:
                workers.correct(experiment, (ORIGINAL, *methods))
        rows = experiment.rows(methods)
        counts = f"Images: {dict(prepared.facts)['images']}."
        has_both = images.is_natural and setting.data.is_inserted
        similarities = [compare_insertion(experiment)] if has_both else []
        shown_ids = setting.data.test_biased.ids[experiment.workspace.shown_rows]
        about = {
            **_about(prepared, command),
            **experiment.workspace.describe_joint(),
            "warnings": [asdict(warning) for warning in prepared.warnings],
            "remarks": [counts, *images.remarks, *map(describe_similarity, similarities), *concept_warnings],
            "depth": None if depth is None else asdict(depth),
            **({"family": family, "cost": cost} if by_depth else {}),
            "image_names": {str(id_): names[id_] for id_ in shown_ids.tolist()},
        }
        for artifact in config.artifact.tested:
            rows += evaluate_extra_artifact(experiment, images, artifact, methods=methods)
        differences = [describe_similarity(found) for found in similarities if found.differs]
        done = complete(experiment, methods, rows, about, insertion_differs=bool(differences))
    return replace(done, sentences=tuple(dict.fromkeys((describe_diagnosis(diagnosis), *differences, *done.sentences))))


@contextmanager
def _watched(prepared: PreparedRun, callbacks: Sequence[Callback]) -> Iterator[Callable[[str, float, Any], None]]:
    """Call the callbacks at the start and where the run fails; yield what the run store calls after each stage."""
    started: list[Callback] = []

    def watch(name: str, seconds: float, result: Any) -> None:
        for callback in started:
            callback.on_stage(Stage.of(name, seconds, result))

    try:
        for callback in callbacks:
            callback.on_start(prepared.run.model_dump(mode="json"), prepared.facts)
            started.append(callback)
        yield watch
    except BaseException as error:
        for callback in started:
            callback.on_error(error)
        raise


def _family_by(depth: Depth | None, methods: Sequence[str]) -> tuple[Family | None, tuple[str, ...]]:
    """Return the family of corrections that fits how deep the artifact sits, and its methods with plain fine-tuning.

    Where the depth could not be measured, or one family has no method for these data, nothing is left out.
    """
    deep = tuple(name for name in methods if is_deep(name))
    heads = tuple(name for name in methods if name not in deep)
    if depth is None or not deep:
        return None if deep else "head", tuple(methods)
    if depth.is_below_head:
        return "network", (*(name for name in heads if name == Vanilla.name), *deep)
    return "head", heads


def complete(
    experiment: Experiment,
    methods: Sequence[str],
    rows: Sequence[Row],
    about: Mapping[str, Any],
    *,
    insertion_differs: bool = False,
    exports: bool = True,
) -> Result:
    """Judge the scores, recommend a model, and write results and report; the last step of every run.

    Args:
        about: What only the caller knows: title, model, command.
        exports: Write the weights of the recommended model too, and say in the report which one it is.
    """
    folder, original = experiment.run.path, plain(experiment.setting.model)
    results = gather_results(experiment, methods, rows, insertion_differs=insertion_differs)
    advice, class_warning = advise(experiment, results)
    lines = [*describe_advice(results, advice), *filter(None, [class_warning])] if exports else []
    decision = {"recommended": advice.method, "decision": asdict(advice)}
    about = {**about, **decision, **({"advice": lines} if exports else {})}
    write_outcome(experiment, rows, results, about)
    write_report(folder)
    files = RunFiles(folder)
    verdict = write_verdict(files.results).lines
    if exports and advice.method is not None:
        exported = export_run(folder, advice.method, original=original, force=True)
        lines.append(
            f"Weights of {advice.method}: {display_path(exported.weights.weights)}. {exported.weights.folding.sentence}"
        )
    return Result(
        original=original,
        scores=Scores(rows, files),
        files=files,
        sentences=tuple(dict.fromkeys((*verdict, *lines))),  # they share reasons
    )


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
    paths, root = [*map(Path, images.listing.paths)], images.root
    names = [path.relative_to(root) if path.is_relative_to(root) else path for path in paths]
    return {row: names[row].as_posix() for row in images.source.ids.tolist()}


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
