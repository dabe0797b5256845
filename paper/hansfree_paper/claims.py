"""In how many of our runs the paper's claims hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from hansfree.corrections import NamedTarget
from hansfree.data import Artifact
from hansfree.evaluation import FIRST, REFERENCES, method_title, status_of
from hansfree.report import markdown_table, percent
from hansfree_paper.aggregate import SIGNIFICANT, Average, Finding
from hansfree_paper.tables import paragraphs

_CLEAN_BUDGET = 0.02  # how much clean accuracy a correction may cost

About = Literal["all classes", "selected classes"]
Verdict = tuple[bool, str]  # whether it holds in a subject, and the numbers
Check = Callable[[Finding], "Verdict | None"]  # None: the subject cannot tell


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, and in how many of the subjects that can tell it holds."""

    text: str
    paper: str  # what the paper itself found
    holds_in: int
    details: tuple[str, ...]  # a line per subject that can tell


def check_claims(findings: Sequence[Finding], about: About) -> list[Claim]:
    """Count in how many subjects each claim holds, of those that have the scores it needs.

    Where a method was run with several options, its first variant stands for it: give the rows of the main runs.
    """
    claims = []
    for text, paper, check in _CLAIMS[about]:
        verdicts = {finding.key.title: verdict for finding in findings if (verdict := check(finding)) is not None}
        details = tuple(f"{title}: {'yes' if holds else 'no'}, {found}" for title, (holds, found) in verdicts.items())
        claims.append(Claim(text, paper, sum(holds for holds, _ in verdicts.values()), details))
    return claims


def write_claims(findings: Sequence[Finding], about: About) -> str:
    """Return the claims as a table, all details below it, and in one sentence those that no subject can tell."""
    claims = check_claims(findings, about)
    known, unknown = [c for c in claims if c.details], [c.text for c in claims if not c.details]
    parts = []
    if known:
        body = [[c.text, f"{c.holds_in} of {len(c.details)}", c.paper] for c in known]
        parts.append(markdown_table(["claim", "holds here in", "in the paper"], body))
    if any("significantly" in c.text for c in known):
        parts.append(f"Significantly: by more than {SIGNIFICANT:.3g} standard errors.")
    if unknown:
        parts.append(f"Cannot be known here: {' '.join(unknown)}")
    for claim in known:
        parts.append("\n".join([f"**{claim.text}**", "", *(f"- {line}" for line in claim.details)]))
    return paragraphs(*parts)


def _mean(finding: Finding, method: str, metric: str) -> Average | None:
    mean = finding.by_method.get(method, {}).get(metric)
    return mean if mean is not None and math.isfinite(mean.value) else None


def _lead(finding: Finding, method: str, rival: str, metric: str) -> tuple[float, float] | None:
    """Return by how much a method's mean is above a rival's, and the error: the paired one where it is known."""
    ours, theirs = _mean(finding, method, metric), _mean(finding, rival, metric)
    if ours is None or theirs is None:
        return None
    paired = finding.lead(method, rival, metric)
    return paired or (ours.value - theirs.value, math.hypot(ours.error, theirs.error))


def _competing(finding: Finding) -> list[str]:
    """Return the methods that can win: a head with a constant prediction cannot."""
    results = finding.results()
    variants = {method: results.variant(method) for method in finding.by_method}
    return [name for name, first in variants.items() if first is not None and status_of(results, first) == "method"]


def _best_aligned(metric: str, finding: Finding) -> Verdict | None:
    scores = finding.cavs(metric)
    ours = scores.pop("signal", None)
    if ours is None or not scores:
        return None
    rival = max(scores, key=lambda name: scores[name].value)
    return ours.value > scores[rival].value, f"signal {ours.value:.2f}, next {rival} {scores[rival].value:.2f}"


def _best(metric: str, finding: Finding, *, or_tied: bool) -> Verdict | None:
    """Compare RR-ClArC with the rival that is hardest to beat."""
    competing = _competing(finding)
    leads = {
        rival: lead
        for rival in competing
        if rival not in (FIRST, *REFERENCES) and (lead := _lead(finding, FIRST, rival, metric)) is not None
    }
    ours = _mean(finding, FIRST, metric)
    if ours is None or not leads:
        return None
    holds = FIRST in competing and all(ahead > 0 or (or_tied and ahead >= -error) for ahead, error in leads.values())
    rival = min(leads, key=lambda name: leads[name][0])
    return holds, f"{percent(ours.value)}, {_points(*leads[rival])} against {method_title(rival)}"


def _nearest_half(metric: str, finding: Finding) -> Verdict | None:
    found = {
        method: mean.value
        for method in _competing(finding)
        if method not in REFERENCES and (mean := _mean(finding, method, metric)) is not None
    }
    ours = _mean(finding, FIRST, metric)
    rivals = {method: value for method, value in found.items() if method != FIRST}
    if ours is None or not rivals:
        return None
    nearest = min(rivals, key=lambda method: abs(rivals[method] - 0.5))
    # in the digits that are shown: at equal displayed values none is nearer
    holds = FIRST in found and round(abs(ours.value - 0.5), 3) < round(abs(rivals[nearest] - 0.5), 3)
    return holds, f"{percent(ours.value)}, next {method_title(nearest)} {percent(rivals[nearest])}"


def _rrr_raises(finding: Finding, *, localized: bool) -> Verdict | None:
    """The paper: RRR raises the biased accuracy where the artifact has a place, and does not where it has none."""
    lead, is_localized = _lead(finding, "rrr", "vanilla", "accuracy_biased"), finding.facts.is_localized
    if is_localized is None and (artifact := Artifact.members().get(finding.key.artifact)):
        is_localized = artifact.localized
    if lead is None or is_localized is not localized:
        return None
    return (lead[0] > SIGNIFICANT * lead[1]) is localized, f"{_points(*lead)} against Vanilla"


def _keeps_clean(finding: Finding) -> Verdict | None:
    lead = _lead(finding, FIRST, "vanilla", "accuracy_clean")
    return None if lead is None else (lead[0] >= -_CLEAN_BUDGET, f"{_points(*lead)} against Vanilla")


def _selected(method: str, finding: Finding, *, costs: bool, one_class: bool = False) -> Verdict | None:
    """Tell whether a method costs the selected classes accuracy, or spares them."""
    for variant, means in finding.changes.items():
        is_specific = variant.target is not None and variant.target not in get_args(NamedTarget)
        if variant.method == method and "selected" in means and (is_specific or not one_class):
            mean = means["selected"]
            loses = mean.value < -SIGNIFICANT * mean.error
            return loses is costs, f"{_points(mean.value, mean.error)} on selected classes"
    return None


def _points(lead: float, error: float) -> str:
    return f"{100 * lead:+.1f} ± {100 * error:.1f} points".replace("-", "\N{MINUS SIGN}")


_SIGNAL = "The signal-CAV is the best aligned CAV"
_BEST = "RR-ClArC is strictly the best on biased images"
_TIED = "RR-ClArC is the best on biased images, or within one standard error of it"
_RRR = "the accuracy on biased images significantly where the artifact has"
_BIASED, _BALANCED = "accuracy_biased", "balanced_accuracy_biased"
# the claim, in how many of its settings it holds in the paper (its own tables, read by the same rules), the check
_CLAIMS: dict[About, tuple[tuple[str, str, Check], ...]] = {
    "all classes": (
        (f"{_SIGNAL}, image by image (s).", "all, by its figures", partial(_best_aligned, "alignment_sample")),
        (f"{_SIGNAL} with the mean change (s̄).", "all, by its figures", partial(_best_aligned, "alignment_mean")),
        (f"{_BEST} (accuracy).", "11 of 12", partial(_best, _BIASED, or_tied=False)),
        (f"{_TIED} (accuracy).", "12 of 12", partial(_best, _BIASED, or_tied=True)),
        (f"{_BEST} (balanced accuracy).", "not given", partial(_best, _BALANCED, or_tied=False)),
        (f"{_TIED} (balanced accuracy).", "not given", partial(_best, _BALANCED, or_tied=True)),
        (
            "RR-ClArC's TCAV, counted as in the paper, is nearest to 50 %.",
            "10 of 12",
            partial(_nearest_half, "tcav_positions"),
        ),
        ("RR-ClArC's TCAV, counted by image, is nearest to 50 %.", "not given", partial(_nearest_half, "tcav")),
        (f"RRR does not raise {_RRR} no place.", "2 of 6", partial(_rrr_raises, localized=False)),
        (f"RRR raises {_RRR} a place.", "6 of 6", partial(_rrr_raises, localized=True)),
        ("RR-ClArC keeps the accuracy on clean images within 2 points of Vanilla's.", "8 of 12", _keeps_clean),
    ),
    "selected classes": (
        *(
            (
                f"{method_title(method)} costs the selected classes accuracy significantly.",
                f"{count} of 3, by its figures",
                partial(_selected, method, costs=True),
            )
            for method, count in (("a-clarc", 3), ("p-clarc", 2))
        ),
        (
            "RR-ClArC for the one class does not cost them accuracy significantly.",
            "3 of 3, by its figures",
            partial(_selected, FIRST, costs=False, one_class=True),
        ),
    ),
}
