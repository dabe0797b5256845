"""Q4: what each part of RR-ClArC contributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from hansfree.cavs import CAV
from hansfree.corrections import Correction, RRClArC, Vanilla
from hansfree.corrections.rr_clarc import Norm
from hansfree.experiments import Experiment, Treatment
from hansfree.experiments.subjects import Subject
from hansfree.files import read_arrays, written_atomically
from hansfree.reproduce.base import (
    Finding,
    Presentation,
    Reproduction,
    facts_of,
    key_of,
    relevance_of,
    rows_by_subject,
)
from hansfree.reproduce.figures import (
    StrengthMaps,
    draw_cav_types,
    draw_epochs,
    draw_strength_curves,
    draw_targets,
)
from hansfree.reproduce.tables import write_epochs, write_path, write_variants
from hansfree.reproduce.tables.markdown import paragraphs
from hansfree.results import Row

_TARGETS = ("random", "all", "logprob")  # beside "expected", which goes with squares only
_ABOUT_TARGETS = """The target is the function of the logits whose derivative along the direction is penalised:

- random: the sum of the logits, each with a random sign, drawn anew for every image and step; this is the paper's.
- expected: the mean of that over all signs, without drawing any: the sum of the squared derivatives of all logits; our
  default.
- all: the plain sum of the logits, in which the derivatives of two classes can cancel.
- logprob: the sum of the log-probabilities, as in RRR."""
_MAPPED = 5  # strengths along the curve whose heatmaps are shown


class CAVType(Reproduction, name="ablation-cav"):
    """RR-ClArC along the direction of every CAV."""

    title = "Q4: the CAV's type"

    def examine(self, subject: Subject) -> Finding:
        """Correct along each CAV, each with the strength that suits it best."""
        rows = subject.experiment.rows_for(subject.experiment.plain(Vanilla.name))
        for name in CAV.from_marks():
            rows += subject.experiment.rows_for(_along(subject.experiment, name))
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows)

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Draw the biased accuracy by CAV."""
        subjects = rows_by_subject(findings)
        return Presentation(text=write_variants(subjects), drawings=[draw_cav_types(subjects)])


class Strength(Reproduction, name="ablation-strength"):
    """The accuracies over the strength, with heatmaps along the way."""

    title = "Q4: the strength"

    def examine(self, subject: Subject) -> Finding:
        """Correct along all strengths, and explain some of the models."""
        experiment = subject.experiment
        rows = [row for name in (Vanilla.name, RRClArC.name) for row in experiment.rows_for(experiment.plain(name))]
        return Finding(
            key=key_of(subject), facts=facts_of(subject), rows=rows, arrays=_heatmaps_along(experiment, rows)
        )

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write every strength, and draw the curves."""
        subjects = rows_by_subject(findings)
        maps = {finding.key: _strength_maps(finding) for finding in findings if finding.arrays}
        return Presentation(text=write_path(subjects), drawings=[draw_strength_curves(subjects, maps=maps)])


class Epochs(Reproduction, name="ablation-epochs"):
    """The accuracies on validation images after every epoch, for all strengths."""

    title = "Q4: the number of epochs"

    def examine(self, subject: Subject) -> Finding:
        """Take what the validation images said after every epoch."""
        rows = subject.experiment.rows_for(subject.experiment.plain(RRClArC.name))
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows)

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write some strengths and epochs, and draw a line per strength."""
        subjects = rows_by_subject(findings)
        return Presentation(text=write_epochs(subjects), drawings=[draw_epochs(subjects)])


class Target(Reproduction, name="ablation-target"):
    """What is penalised (the target) and how it is measured (the norm)."""

    title = "Q4: gradient target and norm"

    def examine(self, subject: Subject) -> Finding:
        """Correct with every pair of target and norm along a few strengths."""
        experiment = subject.experiment
        pairs = [("expected", "squared"), *((target, norm) for target in _TARGETS for norm in get_args(Norm))]
        rows: list[Row] = []
        for target, norm in pairs:
            rows += experiment.rows_for(_aimed(experiment, target, norm))
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows)

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Draw the accuracies over the strength, a line per target and a panel per norm."""
        subjects = rows_by_subject(findings)
        return Presentation(
            text=paragraphs(write_variants(subjects), _ABOUT_TARGETS), drawings=[draw_targets(subjects)]
        )


def _along(experiment: Experiment, cav: str) -> Treatment:
    plain = experiment.plain(RRClArC.name)
    if cav == experiment.setting.cav:
        return plain
    strengths = experiment.setting.strengths.get(RRClArC.name, plain.strengths)
    return Treatment(name=f"{RRClArC.name} cav-{cav}", make=plain.make, cav=cav, strengths=strengths)


def _aimed(experiment: Experiment, target: Any, norm: Any) -> Treatment:
    """Return RR-ClArC with another target and norm, along every fourth strength of the experiment's grid."""
    is_the_papers = experiment.setting.grid == "paper"

    def make(*, cav: Any, images: Any, tuning: Any) -> Correction:
        return RRClArC(cav, target=target, norm=norm, scale="paper" if is_the_papers else "artifact", tuning=tuning)

    grid = RRClArC.paper_grid if is_the_papers else RRClArC.grid
    strengths = experiment.setting.strengths.get(RRClArC.name, grid[::4])
    return Treatment(name=f"{RRClArC.name} {target}-{norm}", make=make, strengths=strengths)


def _heatmaps_along(experiment: Experiment, rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the heatmaps of one biased image for a few strengths; the models are trained anew, for none was kept.

    Nothing, where no test image carries the artifact.
    """
    if not len(experiment.setting.data.test_biased):
        return {}
    path = experiment.run.path / "stages" / "strengths along.npz"
    if not path.exists():
        strengths = sorted({row.strength for row in rows if row.strength is not None and row.split == "test"})
        some = [strengths[i] for i in np.unique(np.linspace(0, len(strengths) - 1, _MAPPED).round().astype(int))]
        material, setting = experiment.material, experiment.setting
        train, row = material.activations["train"], material.shown_rows[:1]
        plain = experiment.plain(RRClArC.name)
        method = plain.make(cav=material.cav, images=material.data.train, tuning=setting.tuning)
        maps = {}
        for head in method.train(material.cut, train, some, progress=experiment.progress):
            model = method.install(setting.model, material.cut, train, head.state)
            maps[f"relevance/{head.strength:g}"] = material.pictures.heatmaps(model, row)[0]
        image, mask = material.data.test_biased.pixels(int(row[0]))
        with written_atomically(path) as temporary:
            np.savez(temporary, image=image, mask=mask, **maps)
    return read_arrays(path)


def _strength_maps(finding: Finding) -> StrengthMaps:
    maps = {float(name): found for name, found in relevance_of(finding).items()}
    return StrengthMaps(finding.arrays["image"], finding.arrays["mask"], maps)
