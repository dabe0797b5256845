"""The run-time table: what an epoch of each method costs, over repeated runs."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from hansfree.corrections import Correction
from hansfree.experiments.subjects import Subject
from hansfree.reproduce.base import (
    Finding,
    Presentation,
    Reproduction,
    facts_by_subject,
    facts_of,
    key_of,
    rows_by_subject,
)
from hansfree.reproduce.figures import draw_times
from hansfree.reproduce.tables import write_times
from hansfree.reproduce.times import SECONDS
from hansfree.results import Row

_RUNS = 10  # as in the paper


class Runtime(Reproduction, name="runtime"):
    """Seconds per epoch of every method, and relative to Vanilla; they take turns, so that noise hits them alike."""

    title = "Run times of all methods"

    def examine(self, subject: Subject) -> Finding:
        """Time one epoch of each method, ten times; one before them warms up and does not count."""
        methods = [name for name in Correction.defaults() if name not in subject.plan.left_out]
        found = subject.run.stage(f"runtime {' '.join(methods)}", lambda: self._measure(subject, methods))
        name = subject.experiment.setting.name
        rows = [
            Row(experiment=name, method=method, seed=turn, metric=SECONDS, value=seconds)
            for method, turn, seconds in found
        ]
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows)

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write and draw the times."""
        subjects = rows_by_subject(findings)
        return Presentation(
            text=write_times(subjects, facts=facts_by_subject(findings)), drawings=[draw_times(subjects)]
        )

    def _measure(self, subject: Subject, names: Sequence[str]) -> list[tuple[str, int, float]]:
        experiment = subject.experiment
        experiment.cav_rows()
        material, setting = experiment.material, experiment.setting
        tuning = replace(setting.tuning, epochs=1)
        methods = {
            name: experiment.plain(name).make(cav=material.cav, images=material.masked_train, tuning=tuning)
            for name in names
        }
        found = []
        for turn in subject.progress(range(-1, _RUNS), total=_RUNS + 1, label="run times"):
            for name, method in methods.items():
                start = time.perf_counter()
                for _ in method.train(material.cut, material.activations["train"], [method.strength]):
                    pass
                if turn >= 0:
                    found.append((name, turn, time.perf_counter() - start))
        return found
