"""Q2: how well does each method correct the model? Table 1 and everything around it."""

from __future__ import annotations

from collections.abc import Sequence

from hansfree.corrections import Correction
from hansfree.experiments.subjects import Subject
from hansfree.reproduce.base import (
    Finding,
    Presentation,
    Reproduction,
    facts_by_subject,
    facts_of,
    heatmaps_by_subject,
    key_of,
    reasons_of,
    rows_by_subject,
)
from hansfree.reproduce.claims import check_claims, write_claims
from hansfree.reproduce.figures import draw_method_heatmaps, draw_scatter
from hansfree.reproduce.tables import (
    write_comparison,
    write_details,
    write_differences,
    write_strengths,
    write_table1,
)
from hansfree.reproduce.tables.markdown import paragraphs


class Table1(Reproduction, name="table1"):
    """All methods on clean and biased test images, at the strength that validation images chose."""

    title = "Q2: correction by all methods (Table 1, the detailed tables, best strengths, scatter, heatmaps)"

    def examine(self, subject: Subject) -> Finding:
        """Correct by every method along its strengths."""
        experiment = subject.experiment
        methods = [name for name in Correction.defaults() if name not in subject.plan.left_out]
        rows = experiment.rows(methods)
        paired: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
        for each in experiment.kept.paired(methods):
            paired.setdefault((each.method, each.rival), {})[each.metric] = each.value, each.stderr
        facts = facts_of(subject, paired=paired, reasons=reasons_of(experiment, methods))
        return Finding(key=key_of(subject), facts=facts, rows=rows, arrays=experiment.kept.shown(methods))

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write the tables, what of the paper's claims holds here, and draw all strengths and some heatmaps."""
        subjects, facts = rows_by_subject(findings), facts_by_subject(findings)
        text = paragraphs(
            write_table1(subjects, facts=facts),
            "## Differences on the same images",
            write_differences(subjects, facts=facts),
            "## The paper's claims",
            write_claims([claim for claim in check_claims(subjects, facts=facts) if claim.about != "selected classes"]),
            "Claims about selected classes: see `hansfree reproduce q3`.",
            "## In detail",
            write_details(subjects, facts=facts),
            "## Best strengths",
            write_strengths(subjects, facts=facts),
        )
        return Presentation(
            text=text,
            drawings=[draw_scatter(subjects), draw_method_heatmaps(heatmaps_by_subject(findings))],
            files={"comparison.csv": write_comparison(subjects, facts=facts)},
        )
