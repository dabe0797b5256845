"""Diagnostics of a run's directions: the artifact's CAV, its depth, further concepts, inserted against natural."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import takewhile

import numpy as np

from hansfree._internal.files import write_text, written_atomically
from hansfree.activations import find_pairs
from hansfree.cavs import CAV, SignalCAV
from hansfree.cavs.diagnostics import Diagnosis, diagnose_cav, expected_cosine, level_of, quick_check
from hansfree.corrections import TrainingImages
from hansfree.corrections.deep import collect_pooled, find_stages
from hansfree.errors import DataError, SplitError
from hansfree.models.surgery import on_device
from hansfree.pipeline.experiment import Experiment
from hansfree.pipeline.outcome import small_pictures

log = logging.getLogger(__name__)

_BATCH = 64  # images of a pass without training
_SHOWN = 6  # images whose artifact label looks wrong, the most suspicious ones
_SIDE = 128  # pixels of their thumbnails: an artifact may be small
_LEAST_OTHERS = 2  # images of other classes, for the overlap with the class
_SIMILAR = 0.5  # share of the attainable cosine; below, the two changes mostly differ
_MEASURABLE = 0.3  # attainable cosine; below, the direction of the labelled images is too noisy


def diagnose_direction(
    experiment: Experiment, *, names: Mapping[int, str] | None = None, is_marked: np.ndarray | None = None
) -> Diagnosis:
    """Diagnose the direction and write the diagnosis to the run directory.

    ``diagnostics.json`` holds the findings, ``suspect_labels.npz`` images whose artifact label looks wrong.

    Args:
        names: The user's names of the images, by id; the id by default.
        is_marked: By id, which artifact labels a person gave: those that the labelling page proposed are no ground
            truth. None if unknown.
    """
    setting, workspace, folder = experiment.setting, experiment.workspace, experiment.run
    needs_pairs = CAV.named(setting.cav).needs_pairs

    def work() -> str:
        train, inside = workspace.activations["train"], workspace.cav_images
        if needs_pairs:
            train = workspace.paired_train
            inside = find_pairs(train).T.ravel()  # of all classes, as the direction itself; the clean ones first
        bits = np.asarray(train.has_artifact)
        others = train.pooled[(train.labels != setting.data.biased_class) & ~bits]
        # labels of inserted artifacts are known
        marked = None if needs_pairs or is_marked is None else is_marked[train.ids[inside]]
        ids = train.ids[inside].tolist()
        diagnosis = diagnose_cav(
            train.pooled[inside],
            bits[inside],
            cav=setting.cav,
            paired=needs_pairs,
            in_class=train.labels[inside] == setting.data.biased_class,
            others=others if len(others) >= _LEAST_OTHERS else None,
            is_marked=marked,
            ids=ids if names is None else [names[id_] for id_ in ids],
            seed=setting.tuning.seed,
            progress=experiment.progress,
        )
        if suspects := diagnosis.suspect_labels[:_SHOWN]:
            images = setting.data.train
            rows = {id_ if names is None else names[id_]: row for row, id_ in enumerate(images.ids.tolist())}
            pictures = small_pictures(images, (rows[suspect.id] for suspect in suspects), side=_SIDE)
            with written_atomically(folder.path / "suspect_labels.npz") as temporary:  # names may change between runs
                np.savez_compressed(temporary, pictures=pictures)
        return diagnosis.to_json()

    text = folder.stage("diagnostics", work)
    write_text(folder.path / "diagnostics.json", text)
    return Diagnosis.from_json(text)


@dataclass(frozen=True)
class Depth:
    """How well each stage of the original network separates images with the artifact from images without it."""

    stages: list[str]
    aucs: list[float]  # on held-out training images of the biased class, along a signal-CAV of the stage
    is_visible: list[bool]
    n_frozen: int  # first stages, which no correction of the head changes
    n_images: int

    @property
    def first(self) -> int | None:
        """The index of the first stage that shows the artifact."""
        return self.is_visible.index(True) if any(self.is_visible) else None

    @property
    def is_below_head(self) -> bool:
        """Whether stages show the artifact before the one that corrections of the head start from."""
        return self.first is not None and self.first < self.n_frozen - 1


def measure_depth(experiment: Experiment) -> Depth | None:
    """Measure by one pass of the biased class's training images from which stage on the artifact shows.

    None where the stages of the network cannot be found.
    """

    def work() -> dict[str, object]:
        workspace, setting = experiment.workspace, experiment.setting
        images, rows = TrainingImages.of(setting.data.train, workers=setting.workers), workspace.cav_images
        bits, network = images.artifacts[rows, 0], on_device(setting.model, workspace.device).eval()
        try:
            stages = find_stages(network, images.batch(rows[:2]).to(workspace.device))
            parts = np.array_split(rows, -(-len(rows) // _BATCH))
            batches = experiment.progress(images.batches(parts), total=len(parts), label="depth of the artifact")
            means = [pooled[:, 0].cpu().numpy() for pooled in collect_pooled(network, batches, stages)]
            seen = [quick_check(X, bits, cav=SignalCAV.name, seed=setting.tuning.seed) for X in means]
        except (DataError, SplitError) as error:
            log.info("The depth of the artifact was not measured: %s", error)
            return {}
        trained = tuple(workspace.cut.trainable)
        return asdict(
            Depth(
                stages=[stage.name for stage in stages],
                aucs=[each.auc for each in seen],
                is_visible=[each.is_visible and level_of("held_out_auc", each.auc) != "poor" for each in seen],
                n_frozen=len([*takewhile(lambda s: not any(t.startswith(f"{s.name}.") for t in trained), stages)]),
                n_images=len(rows),
            )
        )

    found = experiment.run.stage("depth", work)
    return Depth(**found) if found else None


def check_concepts(experiment: Experiment) -> list[str]:
    """Return warnings for removed or protected concepts whose labels do not show in the layer."""
    setting = experiment.setting
    labelled = {c.name: (c.rows, c.labels) for c in (*setting.removed, *setting.protected) if c.labels is not None}
    if not labelled:
        return []

    def work() -> list[str]:
        pooled, warnings = experiment.workspace.activations["train"].pooled, []
        for name, (rows, bits) in labelled.items():
            seen = quick_check(pooled[rows], bits, cav=setting.cav, seed=setting.tuning.seed)
            if not seen.is_visible:
                warnings.append(
                    f"{name}: held-out AUC {seen.auc:.2f} ({bits.sum()} training images with it, {(~bits).sum()} "
                    "without), no better than with shuffled labels. It does not show in this layer, its labels are "
                    "wrong, or they are too few. Leave it out."
                )
        return warnings

    found: list[str] = experiment.run.stage("concepts", work)
    for sentence in found:
        log.warning(sentence)
    return found


@dataclass(frozen=True)
class InsertionSimilarity:
    """How the change by insertion in a layer compares with the natural artifact of the training images."""

    cosine: float  # of the mean change with the direction of the labelled images
    attainable: float  # what the labelled images' own artifact would have: few of them give a noisy direction
    size: float  # of the change along that direction; the labelled images' own distance is 1
    n_inserted: int
    n_labelled: int

    @property
    def is_measurable(self) -> bool:
        """Whether there are enough labelled images to compare with."""
        return self.attainable >= _MEASURABLE

    @property
    def differs(self) -> bool:
        """Whether evidence by insertion says little about the natural artifact."""
        return self.is_measurable and self.cosine < _SIMILAR * self.attainable


def compare_insertion(experiment: Experiment) -> InsertionSimilarity:
    """Compare the artifact inserted into validation images with the natural one of training images."""

    def work() -> dict[str, float | int]:
        workspace = experiment.workspace
        train, inside = workspace.activations["train"], workspace.cav_images
        bits = np.asarray(train.has_artifact)[inside]
        natural = workspace.cav_named(SignalCAV.name)
        clean, biased = (workspace.activations[name].pooled for name in ("val_clean", "val_biased"))
        change = (biased - clean).mean(axis=0, dtype=np.float64)
        along, length = float(change @ natural.direction_), float(np.linalg.norm(change))
        size = float(natural.scale_[0])
        seed = experiment.setting.tuning.seed
        found = InsertionSimilarity(
            cosine=along / length if length else 0.0,
            attainable=expected_cosine(train.pooled[inside], bits, cav=SignalCAV.name, seed=seed),
            size=along / size if size else 0.0,
            n_inserted=len(clean),
            n_labelled=int(bits.sum()),
        )
        return asdict(found)

    return InsertionSimilarity(**experiment.run.stage("insertion similarity", work))
