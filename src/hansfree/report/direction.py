"""Sentences on a direction: whether it can be trusted."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import asdict

from hansfree.cavs import CAV, SignalCAV
from hansfree.cavs.diagnostics import LEAST, TARGET, Diagnosis, Finding
from hansfree.corrections import Vanilla
from hansfree.pipeline import Depth, is_deep
from hansfree.report.text import SENTENCES

_FINDINGS, _OVERLAPS, _DIAGNOSES = (SENTENCES[name] for name in ("findings", "overlaps", "diagnoses"))
_MOST_NAMED = 5  # suspect labels in a sentence


def describe_finding(diagnosis: Diagnosis, finding: Finding) -> str:
    """Put a finding on a direction in words; one template per name."""
    low, high = finding.interval or (math.nan, math.nan)
    unknown = ".unknown" if finding.value is None else ""
    return _FINDINGS[finding.name + unknown].format(
        value=finding.value,
        degrees=_write_degrees(finding.value or 0.0),
        low=low,
        high=high,
        stderr=finding.stderr,
        shuffled=diagnosis.shuffled,
        target=TARGET,
        detail=_detail(diagnosis, finding.name, finding.value or 0.0, finding.level),
    )


def _detail(diagnosis: Diagnosis, name: str, value: float, level: str) -> str:
    """Return what the sentence on a finding says beside its numbers."""
    if name == "split_half_angle":
        return f"{math.cos(math.radians(value)):.2f}"
    if name == "permutation_p":
        return str(round(value * (diagnosis.shuffled.n + 1)) - 1 or "None")
    if name == "class_overlap":
        return _OVERLAPS[level].format(100 * value**2)
    if name == "expected_error" and CAV.named(diagnosis.cav).is_mean_difference:
        # Only a pattern becomes the artifact's own shift with unlimited images; a filter becomes what separates best.
        share = 100 * math.sin(math.radians(value))
        return f"; {share:.0f} % of the artifact's mean shift would stay after it is removed"
    if name == "images_needed":
        there, what = _rarer(diagnosis)
        count = f"{_rounded(value)} {what}"
        if diagnosis.is_at_limit:
            count = f"as many {what} as there are"
        elif value > max(diagnosis.n_artifact, diagnosis.n_clean):
            count += " and as many of the others"
        return f"{count} bring the expected error to {TARGET:.0f} degrees (there are {there})"
    if name == "solver_agreement":
        agreement, cav = diagnosis.agreement, diagnosis.cav
        cosines = [f"{rival} {agreement.between(cav, rival):.2f}" for rival in agreement.names if rival != cav]
        meaning = "all point the same way."
        if level != "good":
            meaning = (
                "this does not count against it. The signal-CAV is a pattern (where the artifact moves the "
                "activations), the others are filters (what separates best), which bend away from distractors; low "
                f"agreement between {SignalCAV.name} and the filters is normal."
            )
        return f"{cav} with the other solvers: {', '.join(cosines)}; {meaning}"
    return describe_suspects(diagnosis) if name == "suspect_labels" else ""


def describe_depth(depth: Depth, methods: Collection[str] = ()) -> str:
    """Say how deep the artifact sits in the original network, and which families of corrections the run trained."""
    case = "none" if depth.first is None else "below" if depth.is_below_head else "head"
    aucs = ", ".join(f"{auc:.2f}" for auc in depth.aucs)
    words = SENTENCES["depth"]["aucs"].format(aucs=aucs, n=depth.n_images)
    sentence = SENTENCES["depth"][case].format(first=(depth.first or 0) + 1, of=len(depth.stages), aucs=words)
    families = dict.fromkeys("whole network" if is_deep(name) else "head" for name in methods if name != Vanilla.name)
    return sentence + (SENTENCES["depth"]["trained"].format(families=" and of the ".join(families)) if families else "")


def describe_suspects(diagnosis: Diagnosis) -> str:
    """Say how many artifact labels look wrong, and of which images."""
    suspects = diagnosis.suspect_labels
    if diagnosis.is_paired:
        return "The artifact was inserted, so every artifact label is right."
    if not suspects:
        return "No artifact label looks wrong."
    n, n_with = len(suspects), sum(suspect.has_artifact for suspect in suspects)
    names = [*(str(suspect.id) for suspect in suspects[:_MOST_NAMED]), *["..."] * (n > _MOST_NAMED)]
    return (
        f"{n} {'image looks' if n == 1 else 'images look'} wrongly labelled ({n_with} listed with the artifact, "
        f"{n - n_with} without): {', '.join(names)}. Look at {'it' if n == 1 else 'them'}."
    )


def describe_diagnosis(diagnosis: Diagnosis, *, unlabelled: int | None = None) -> str:
    """Say whether a direction can be trusted, and how many images would do.

    Args:
        unlabelled: How many images could still be labelled, where a person labels: no more are asked for.
    """
    found = {finding.name: finding for finding in diagnosis.findings}
    auc, overlap = found["held_out_auc"], found["class_overlap"]
    sentences = [_DIAGNOSES["invisible"].format(auc=auc.value)]
    if diagnosis.is_visible:
        sentences = [_describe_stability(diagnosis, found, unlabelled)]
        if overlap.level in ("poor", "fair"):
            sentences.append(describe_finding(diagnosis, overlap))
        elif auc.level == "poor":
            sentences.append(_DIAGNOSES["hardly visible"].format(auc=auc.value))
        elif diagnosis.suspect_labels:
            sentences.append(describe_suspects(diagnosis))
    if proposed := diagnosis.proposed:
        basis = _DIAGNOSES["circular" if proposed.are_examined else "marked"].format(
            of=diagnosis.n_artifact + diagnosis.n_clean,
            least=LEAST,
            n_marked=proposed.n_with + proposed.n_without,
            **asdict(proposed),
        )
        sentences.insert(0 if proposed.are_examined else len(sentences), basis)
    return " ".join(sentences)


def _describe_stability(diagnosis: Diagnosis, found: Mapping[str, Finding], unlabelled: int | None) -> str:
    error = found["expected_error"]
    case: str = "limit" if error.level != "good" and diagnosis.is_at_limit else error.level
    count, what = _rarer(diagnosis) if case in ("fair", "poor") else (diagnosis.n_artifact, "artifact images")
    whose = "" if found["class_overlap"].value is None else " of the biased class"  # else it is not known
    if diagnosis.is_paired:
        count, what, whose = diagnosis.n_artifact, "pairs of the same image without and with the artifact", ""
    return _DIAGNOSES[case].format(
        images=f"{count} {what}{whose}",
        moves=_write_degrees(found["split_half_angle"].value or 0.0),
        error=_write_degrees(max(1.0, error.value or 0.0)),
        target=TARGET,
        more=_ask_for_images(diagnosis, found["images_needed"].value, unlabelled),
    )


def _ask_for_images(diagnosis: Diagnosis, need: float | None, unlabelled: int | None) -> str:
    """Return how many images would do; of a person who labels, ask for those that are missing."""
    if need is None:
        return ""
    fewer, more = sorted((diagnosis.n_artifact, diagnosis.n_clean))
    is_both = need > more and not diagnosis.is_paired
    aim = f"would bring its error to {TARGET:.0f} degrees."
    if unlabelled is None:
        return f" About {_rounded(need)}{' and as many of the others' if is_both else ''} {aim}"
    rare, other = "with it", "without it"
    if diagnosis.n_clean < diagnosis.n_artifact:
        rare, other = other, rare
    missing = need - fewer + (need - more if is_both else 0)
    if missing * 1.05 > unlabelled:  # a number is rounded by a twentieth at most
        return f" Label more {rare}, but the {unlabelled} images that are not labelled yet may not be enough."
    also = f" and {_rounded(need - more)} {other}" if is_both else ""
    return f" Label about {_rounded(need - fewer)} more {rare}{also}: that {aim}"


def _rarer(diagnosis: Diagnosis) -> tuple[int, str]:
    """Return the kind of images that there are fewer of: how many, and their name."""
    if diagnosis.n_clean < diagnosis.n_artifact:
        return diagnosis.n_clean, "images without the artifact"
    return diagnosis.n_artifact, "artifact images"


def _write_degrees(angle: float) -> str:
    return f"{angle:.0f} {'degree' if round(angle) == 1 else 'degrees'}"


def _rounded(number: float) -> str:
    """Write an estimate with two digits: more would promise too much."""
    return f"{float(f'{number:.2g}'):,.0f}"
