"""Whether the paper's claims hold in our runs: counted, with a sentence per subject."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from hansfree.corrections import NamedTarget
from hansfree.evaluation import FIRST, REFERENCES, method_title, status_of
from hansfree.paper.aggregate import (
    SIGNIFICANT,
    Average,
    Facts,
    FactsBySubject,
    SubjectKey,
    Subjects,
    as_results,
    cav_scores,
    changes_of,
    is_localized,
    method_scores,
    paired_lead,
)
from hansfree.paper.tables import markdown_table, paragraphs
from hansfree.report import percent

_CLEAN_BUDGET = 0.02  # how much clean accuracy a correction may cost

About = Literal["all classes", "selected classes"]
Verdict = tuple[bool, str]  # whether it holds in a subject, and the numbers


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and in how many of the subjects that can tell it holds."""

    about: About
    text: str
    paper: str  # what the paper itself found
    holds_in: int
    of: int
    details: tuple[str, ...]  # a line per subject that can tell


class _Subject:
    """The means of one subject: one variant per method (the first), and who competes."""

    def __init__(self, key: SubjectKey, rows: Subjects, facts: Facts) -> None:
        self.key, self.facts, self.rows = key, facts, rows[key]
        results = as_results(self.rows, facts)
        self.scores = method_scores(self.rows)
        # a head that always gives the same answer must not win by that
        self.competing = [
            method
            for method in self.scores
            if (first := results.variant(method)) is not None and status_of(results, first) == "method"
        ]

    def mean(self, method: str, metric: str) -> Average | None:
        mean = self.scores.get(method, {}).get(metric)
        return mean if mean is not None and math.isfinite(mean.value) else None

    def lead(self, method: str, rival: str, metric: str) -> tuple[float, float] | None:
        """Return by how much a method's mean is above a rival's, and the error: the paired one where it is known."""
        ours, theirs = self.mean(method, metric), self.mean(rival, metric)
        if ours is None or theirs is None:
            return None
        paired = paired_lead(self.scores, self.facts, method, rival, metric)
        return paired or (ours.value - theirs.value, math.hypot(ours.error, theirs.error))


Check = Callable[[_Subject], "Verdict | None"]  # None: the subject cannot tell


def check_claims(subjects: Subjects, *, facts: FactsBySubject | None = None) -> list[Claim]:
    """Count in how many subjects each claim holds; a subject without the scores it needs is not counted.

    Where a method was run with several options, its first variant stands for it: give the rows of the main runs.
    """
    read = [_Subject(key, subjects, (facts or {}).get(key, Facts())) for key in subjects]
    claims = []
    for about, (text, paper, check) in ((about, each) for about, found in _CLAIMS.items() for each in found):
        verdicts = {subject.key: verdict for subject in read if (verdict := check(subject)) is not None}
        details = tuple(f"{key.title}: {'yes' if holds else 'no'}, {found}" for key, (holds, found) in verdicts.items())
        claims.append(Claim(about, text, paper, sum(holds for holds, _ in verdicts.values()), len(verdicts), details))
    return claims


def write_claims(claims: Sequence[Claim]) -> str:
    """Return the claims as a table, all details below it, and in one sentence those that no subject can tell."""
    known, unknown = [c for c in claims if c.of], [c.text for c in claims if not c.of]
    parts = []
    if known:
        body = [[c.text, f"{c.holds_in} of {c.of}", c.paper] for c in known]
        parts.append(markdown_table(["claim", "holds here in", "in the paper"], body))
    if any("significantly" in c.text for c in known):
        parts.append(f"Significantly: by more than {SIGNIFICANT:.3g} standard errors.")
    if unknown:
        parts.append(f"Cannot be known here: {' '.join(unknown)}")
    for claim in known:
        parts.append("\n".join([f"**{claim.text}**", "", *(f"- {line}" for line in claim.details)]))
    return paragraphs(*parts)


def _best_aligned(metric: str, subject: _Subject) -> Verdict | None:
    scores = cav_scores(subject.rows, metric)
    ours = scores.pop("signal", None)
    if ours is None or not scores:
        return None
    rival = max(scores, key=lambda name: scores[name].value)
    return ours.value > scores[rival].value, f"signal {ours.value:.2f}, next {rival} {scores[rival].value:.2f}"


def _best(metric: str, subject: _Subject, *, or_tied: bool) -> Verdict | None:
    """Compare RR-ClArC with the rival that is hardest to beat."""
    leads = {
        rival: lead
        for rival in subject.competing
        if rival not in (FIRST, *REFERENCES) and (lead := subject.lead(FIRST, rival, metric)) is not None
    }
    ours = subject.mean(FIRST, metric)
    if ours is None or not leads:
        return None
    holds = FIRST in subject.competing and all(
        ahead > 0 or (or_tied and ahead >= -error) for ahead, error in leads.values()
    )
    rival = min(leads, key=lambda name: leads[name][0])
    return holds, f"{percent(ours.value)}, {_points(*leads[rival])} against {method_title(rival)}"


def _nearest_half(metric: str, subject: _Subject) -> Verdict | None:
    found = {
        method: mean.value
        for method in subject.competing
        if method not in REFERENCES and (mean := subject.mean(method, metric)) is not None
    }
    ours = subject.mean(FIRST, metric)
    rivals = {method: value for method, value in found.items() if method != FIRST}
    if ours is None or not rivals:
        return None
    nearest = min(rivals, key=lambda method: abs(rivals[method] - 0.5))
    # in the digits that are shown: at equal displayed values none is nearer
    holds = FIRST in found and round(abs(ours.value - 0.5), 3) < round(abs(rivals[nearest] - 0.5), 3)
    return holds, f"{percent(ours.value)}, next {method_title(nearest)} {percent(rivals[nearest])}"


def _rrr_raises(subject: _Subject, *, localized: bool) -> Verdict | None:
    """The paper: RRR raises the biased accuracy where the artifact has a place, and does not where it has none."""
    lead = subject.lead("rrr", "vanilla", "accuracy_biased")
    if lead is None or is_localized(subject.key, subject.facts) is not localized:
        return None
    raises = lead[0] > SIGNIFICANT * lead[1]
    return raises is localized, f"{_points(*lead)} against Vanilla"


def _keeps_clean(subject: _Subject) -> Verdict | None:
    lead = subject.lead(FIRST, "vanilla", "accuracy_clean")
    return None if lead is None else (lead[0] >= -_CLEAN_BUDGET, f"{_points(*lead)} against Vanilla")


def _costs_selected(method: str, subject: _Subject) -> Verdict | None:
    for variant, means in changes_of(subject.rows).items():
        if variant.method == method and "selected" in means:
            mean = means["selected"]
            return mean.value < -SIGNIFICANT * mean.error, f"{_points(mean.value, mean.error)} on selected classes"
    return None


def _spares_selected(subject: _Subject) -> Verdict | None:
    for variant, means in changes_of(subject.rows).items():
        is_specific = variant.target is not None and variant.target not in get_args(NamedTarget)
        if variant.method == FIRST and is_specific and "selected" in means:
            mean = means["selected"]
            return mean.value >= -SIGNIFICANT * mean.error, f"{_points(mean.value, mean.error)} on selected classes"
    return None


def _points(lead: float, error: float) -> str:
    return f"{100 * lead:+.1f} ± {100 * error:.1f} points".replace("-", "\N{MINUS SIGN}")


_SIGNAL = "The signal-CAV is the best aligned CAV"
_SAID = "all, by its figures"
_UNKNOWN = "not given"
# By what they are about: text,
# in how many of its settings it holds in the paper (its own tables, read by the same rules), how to check it
_CLAIMS: Mapping[About, tuple[tuple[str, str, Check], ...]] = {
    "all classes": (
        (f"{_SIGNAL}, image by image (s).", _SAID, partial(_best_aligned, "alignment_sample")),
        (f"{_SIGNAL} with the mean change (s\N{COMBINING MACRON}).", _SAID, partial(_best_aligned, "alignment_mean")),
        (
            "RR-ClArC is strictly the best on biased images (accuracy).",
            "11 of 12",
            partial(_best, "accuracy_biased", or_tied=False),
        ),
        (
            "RR-ClArC is the best on biased images, or within one standard error of it (accuracy).",
            "12 of 12",
            partial(_best, "accuracy_biased", or_tied=True),
        ),
        (
            "RR-ClArC is strictly the best on biased images (balanced accuracy).",
            _UNKNOWN,
            partial(_best, "balanced_accuracy_biased", or_tied=False),
        ),
        (
            "RR-ClArC is the best on biased images, or within one standard error of it (balanced accuracy).",
            _UNKNOWN,
            partial(_best, "balanced_accuracy_biased", or_tied=True),
        ),
        (
            "RR-ClArC's TCAV, counted as in the paper, is nearest to 50 %.",
            "10 of 12",
            partial(_nearest_half, "tcav_positions"),
        ),
        ("RR-ClArC's TCAV, counted by image, is nearest to 50 %.", _UNKNOWN, partial(_nearest_half, "tcav")),
        (
            "RRR does not raise the accuracy on biased images significantly where the artifact has no place.",
            "2 of 6",
            partial(_rrr_raises, localized=False),
        ),
        (
            "RRR raises the accuracy on biased images significantly where the artifact has a place.",
            "6 of 6",
            partial(_rrr_raises, localized=True),
        ),
        ("RR-ClArC keeps the accuracy on clean images within 2 points of Vanilla's.", "8 of 12", _keeps_clean),
    ),
    "selected classes": (
        (
            "A-ClArC costs the selected classes accuracy significantly.",
            "3 of 3, by its figures",
            partial(_costs_selected, "a-clarc"),
        ),
        (
            "P-ClArC costs the selected classes accuracy significantly.",
            "2 of 3, by its figures",
            partial(_costs_selected, "p-clarc"),
        ),
        (
            "RR-ClArC for the one class does not cost them accuracy significantly.",
            "3 of 3, by its figures",
            _spares_selected,
        ),
    ),
}
