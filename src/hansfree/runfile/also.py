"""What a run's models do under further artifacts: each put into the clean test images, one stage per model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache, partial
from typing import Any

from hansfree.activations import Activations, collect
from hansfree.experiments import Experiment
from hansfree.export import load_corrected
from hansfree.results import ORIGINAL, Row, split_with
from hansfree.runfile.concepts import put_in
from hansfree.side_effects import measure_side_effects
from hansfree.studies import OwnImages


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
