"""Natural artifacts in a tournament: cut out of marked images by the CAV's own localisation, pasted onto others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hansfree.activations import collect_activations
from hansfree.auto_pairs import make_auto_pairs
from hansfree.cavs import SignalCAV
from hansfree.datasets import ExampleSet
from hansfree.experiments.base_models import BaseModels
from hansfree.experiments.subjects import Subject
from hansfree.heatmaps import kept_masks, localise_artifact
from hansfree.models import architecture_named
from hansfree.studies import BiasedData


def paste_artifact(subject: Subject, parts: Sequence[ExampleSet]) -> BiasedData:
    """Return the same training images with held-out pairs: images without the artifact, and with another's pasted on.

    What is pasted onto validation images was cut out of validation images, and so on: no artifact is seen twice. The
    masks are kept, as finding them takes longer than most draws.

    Args:
        parts: training, validation and test images with their bits.
    """
    data = subject.study.data(subject.plan.model)
    layer = architecture_named(subject.plan.model).layer
    models = BaseModels(study=subject.study, plan=subject.plan, work=subject.work, progress=subject.progress)
    model = models.untrained(data.train)  # its trunk is that of all draws
    train = collect_activations(
        model, layer, data.train, folder=subject.work / "activations", name="train", progress=subject.progress
    )
    inside = np.flatnonzero(train.labels == data.biased_class)
    cav = SignalCAV().fit(train.pooled[inside], np.asarray(train.has_artifact)[inside])

    def pairs(images: ExampleSet, part: str) -> tuple[ExampleSet, ExampleSet]:
        def find() -> np.ndarray:
            marked, label = np.flatnonzero(images.has_artifact), f"where the artifact is ({part})"
            return localise_artifact(model, layer, cav, images, marked, progress=subject.progress, label=label)

        masks = kept_masks(subject.run.path / "stages" / f"masks-{part}.npz", find)
        return make_auto_pairs(model, layer, cav, images, masks=masks, seed=subject.study.seed)

    train_pairs, val, test = (pairs(images, part) for images, part in zip(parts, ("train", "val", "test")))
    return replace(
        data,
        val_clean=val[0],
        val_biased=val[1],
        test_clean=test[0],
        test_biased=test[1],
        train_biased=train_pairs[1],
        is_inserted=True,
    )
