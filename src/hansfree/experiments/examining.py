"""Whether the direction that an experiment's corrections use can be trusted: the doctor, as a stage of the run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import numpy as np

from hansfree.activations import find_pairs
from hansfree.cavs import CAV
from hansfree.doctor import Diagnosis, WrongMark, choose_basis, examine_cav, glance_at
from hansfree.experiments.cases import small_pictures
from hansfree.experiments.experiment import Experiment
from hansfree.files import write_text, written_atomically
from hansfree.progress import Progress, silent

log = logging.getLogger(__name__)

_SHOWN = 6  # images that look wrongly marked, the most suspicious ones
_SIDE = 128  # pixels of their pictures: an artifact may be small
_LEAST_OTHERS = 2  # images of other classes, for the doctor to know where those lie


def examine_direction(
    experiment: Experiment,
    *,
    names: Mapping[int, str] | None = None,
    is_marked: np.ndarray | None = None,
    progress: Progress = silent,
) -> Diagnosis:
    """Ask the doctor, and keep what he says in the run folder, where the report looks for it.

    ``doctor.json`` holds the words and numbers, ``wrong_marks.npz`` pictures of images that look wrongly marked.

    Args:
        names: What the owner of the images calls them, by id; their id by default.
        is_marked: By id, which artifact bits a person gave: those that the labelling page proposed are no truth to
            examine by. None where nobody tells them apart.
    """
    setting, material, folder = experiment.setting, experiment.material, experiment.run
    needs_pairs = CAV.named(setting.cav).needs_pairs

    def work() -> str:
        train, inside = material.activations["train"], material.cav_images
        if needs_pairs:
            train = material.paired_train
            inside = find_pairs(train).T.ravel()  # of all classes, as the direction itself; the clean ones first
        bits = np.asarray(train.has_artifact)
        others = train.pooled[(train.labels != setting.data.biased_class) & ~bits]
        # who inserts, knows
        marked = None if needs_pairs or is_marked is None else is_marked[train.ids[inside]]
        basis = choose_basis(bits[inside], marked)
        inside = inside[basis.rows]
        ids = train.ids[inside].tolist()
        found = examine_cav(
            train.pooled[inside],
            bits[inside],
            cav=setting.cav,
            paired=needs_pairs,
            in_class=train.labels[inside] == setting.data.biased_class,
            others=others if len(others) >= _LEAST_OTHERS else None,
            ids=ids if names is None else [names[id_] for id_ in ids],
            seed=setting.tuning.seed,
            progress=progress,
        )
        diagnosis = basis.tell(found)
        _keep_wrong_marks(experiment, diagnosis.wrong_marks[:_SHOWN], names)  # here, as names may change between runs
        return diagnosis.to_json()

    text = folder.stage("doctor", work)
    write_text(folder.path / "doctor.json", text)
    return Diagnosis.from_json(text)


def _keep_wrong_marks(experiment: Experiment, marks: Sequence[WrongMark], names: Mapping[int, str] | None) -> None:
    """Keep pictures of the images that look wrongly marked, in the doctor's order, where there are any."""
    if not marks:
        return
    images = experiment.setting.data.train
    rows = {id_ if names is None else names[id_]: row for row, id_ in enumerate(images.ids.tolist())}
    pictures = small_pictures(images, (rows[mark.id] for mark in marks), side=_SIDE)
    with written_atomically(experiment.run.path / "wrong_marks.npz") as temporary:
        np.savez_compressed(temporary, pictures=pictures)


def doubt_concepts(experiment: Experiment) -> list[str]:
    """Warn of what is removed or kept by bits that mean nothing here: it costs accuracy and corrects nothing."""
    setting = experiment.setting
    marked = {
        concept.name: (concept.rows, concept.told_by)
        for concept in (*setting.removed, *setting.protected)
        if isinstance(concept.told_by, np.ndarray)
    }
    if not marked:
        return []

    def work() -> list[str]:
        pooled, doubts = experiment.material.activations["train"].pooled, []
        for name, (rows, bits) in marked.items():
            seen = glance_at(pooled[rows], bits, cav=setting.cav, seed=setting.tuning.seed)
            if not seen.is_visible:
                doubts.append(
                    f"{name}: the {bits.sum()} training images with it are told from the {(~bits).sum()} without no "
                    f"better (held-out AUC {seen.auc:.2f}) than with shuffled bits. It does not show in this layer, "
                    "its bits are wrong, or they are too few: leave it out."
                )
        return doubts

    found: list[str] = experiment.run.stage("concepts", work)
    for sentence in found:
        log.warning(sentence)
    return found
