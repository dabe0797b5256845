"""Q1: how well do CAVs align with the true direction of the bias?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hansfree.cavs import CAV
from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import Subject
from hansfree.heatmaps import compute_cav_heatmaps
from hansfree.reproduce.base import (
    Finding,
    Presentation,
    Reproduction,
    check_shown,
    facts_of,
    heatmaps_by_subject,
    key_of,
    rows_by_subject,
)
from hansfree.reproduce.figures import draw_alignments, draw_extremes, draw_localisation
from hansfree.reproduce.tables import write_alignments
from hansfree.studies import Study

_LOCALISED = ("signal", "ridge", "svm")
_SHOWN = 4


class Alignment(Reproduction, name="q1"):
    """The alignments s and s-bar of all CAVs, the best and worst aligned samples, and where each CAV looks."""

    title = "Q1: alignment of CAVs with the true direction of the bias"

    def check(self, study: Study, plan: Plan) -> None:
        """Refuse a bias of which no test image can be looked at."""
        super().check(study, plan)
        check_shown(study, plan)

    def examine(self, subject: Subject) -> Finding:
        """Fit the CAVs, measure them on test images, and localise the artifact by three of them."""
        experiment = subject.experiment
        rows = experiment.cav_rows()
        material, data = experiment.material, subject.data
        arrays: dict[str, np.ndarray] = {}
        extremes = None
        if data.is_inserted:
            change = material.activations["test_biased"].pooled - material.activations["test_clean"].pooled
            extremes = draw_extremes(_cosines(material.cav, change), lambda row: data.test_biased.pixels(row)[0])
        shown = material.shown_rows[:_SHOWN]
        images, masks = zip(*(data.test_biased.pixels(int(row)) for row in shown))
        arrays |= {"images": np.stack(images), "masks": np.stack(masks)}
        inputs = data.test_biased.batch(shown).image
        for name in _LOCALISED:
            maps = compute_cav_heatmaps(experiment.setting.model, experiment.setting.layer, material.cavs[name], inputs)
            arrays[f"relevance/{name}"] = maps.numpy()
        # the drawing, not the images: a finding outlives its subject, whose sets would stay in memory with it
        return Finding(
            key=key_of(subject), facts=facts_of(subject), rows=rows, arrays=arrays, notes={"extremes": extremes}
        )

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Draw the bars of all subjects and, for each, samples and localisations."""
        subjects = rows_by_subject(findings)
        drawings = [draw_alignments(subjects), draw_localisation(heatmaps_by_subject(findings))]
        for finding in findings:
            if drawing := finding.notes["extremes"]:
                drawings.append(drawing.renamed(f"{drawing.name}-{finding.key.artifact}-{finding.key.model}"))
        return Presentation(text=write_alignments(subjects), drawings=drawings)


def _cosines(cav: CAV, change: np.ndarray) -> np.ndarray:
    """Return s of every sample, in their order; NaN where the artifact changed nothing."""
    lengths = np.linalg.norm(change, axis=1)
    with np.errstate(invalid="ignore"):
        cosines: np.ndarray = change @ cav.directions_[0] / lengths
    return cosines
