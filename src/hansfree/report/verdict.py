"""The setting and the outcome of a run in a few plain sentences, computed from the test rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hansfree.report.changes import DECISIVE, FLIPS, describe_differences, describe_lack, gather, pair_of
from hansfree.report.numbers import percent, unit_of, write_value
from hansfree.report.one_sided import describe_one_sided
from hansfree.report.reading import FIRST, ORIGINAL, Results, Variant, method_title
from hansfree.report.ruling import Ruling, describe_rule, rule_on
from hansfree.report.tables import marks_of
from hansfree.report.usable import CLEAN, breaks_rule, budget_of, kind_of, objection_to, why_no_model
from hansfree.results import Row

SEEN = "tcav_sensitivity"  # what is left to judge by where that cannot be known


@dataclass(frozen=True)
class Verdict:
    """What is wrong (empty if nothing), what happened, what that is called and why, and what the run advises."""

    failure: str
    sentences: tuple[str, ...]
    beside: str = ""  # how the other methods did
    ruling: Ruling = "do not use"
    rule: str = ""  # by which it is called so
    advice: tuple[str, ...] = ()
    is_advised_against: bool = False  # the run says that none of its models is to be used


def describe_setting(results: Results) -> str:
    """Say in one sentence which model was corrected, of what, where, and on how many images."""
    meta = results.meta
    model = f"A {meta['model']} model" if meta.get("model") else "A model"
    what = f" that learned the {meta['artifact']} artifact" if meta.get("artifact") else " that learned an artifact"
    where = f", corrected at layer {meta['layer']}" if meta.get("layer") else ""
    keys = [("n_train", "training"), ("n_val", "validation"), ("n_test", "test")]
    if not results.is_inserted:  # the two kinds of images are different ones, and as many as they happen to be
        kinds = ((part, name, kind) for part, name in keys[1:] for kind in ("clean", "biased"))
        keys = [keys[0], *((f"{part}_{kind}", f"{kind} {name}") for part, name, kind in kinds)]
    sizes = [(meta.get(key, meta.get(f"{key}_clean")), name) for key, name in keys]  # with it they are as many
    counts = [f"{size:,} {name}" for size, name in sizes if size is not None]
    images = f"; {_listed(counts)} images" if counts else ""
    size = f" of {meta['size']} px" if counts and meta.get("size") else ""
    return f"{model}{what}{_as_sign_of(results)}{where}{images}{size}."


def shown_variant(results: Results) -> Variant | None:
    """Return what the report is about: what the run recommends, else RR-ClArC, or the best where that is unusable."""
    competing = [variant for variant in results.methods() if kind_of(results, variant) == "method"]
    lead = _recommended(results) or FIRST
    first = [variant for variant in competing if variant.method == lead]
    marks = marks_of(results, DECISIVE) or marks_of(results, SEEN)
    best = [variant for variant, mark in marks.items() if mark == "best"]
    # of several variants of a method (targets, norms), the one that did best speaks for it
    return next((variant for variant in best if variant in first), None) or next(iter(first or best or competing), None)


def reach_verdict(results: Results) -> Verdict:
    """Compare the shown method with the model as it came, and say which model must not be used."""
    shown = shown_variant(results)
    meta, failure = results.meta, _failure(results, shown)
    advice = tuple(meta.get("advice") or ())
    is_against = "recommended" in meta and meta["recommended"] is None
    if shown is None:
        nothing = ("No method has a usable result on the test images.",)
        return Verdict(failure, nothing, advice=advice, is_advised_against=is_against)
    competing = [variant for variant in results.methods() if kind_of(results, variant) == "method"]
    sentences = _sentences(results, shown)
    one_sided = describe_one_sided(results, shown)
    if one_sided and one_sided not in advice:  # once is enough, and beside the advice is the better place
        sentences = (*sentences, one_sided)
    seen = gather(results, shown, is_usable=not (failure or is_against))
    return Verdict(
        failure=failure,
        sentences=sentences,
        beside=_beside(results, shown, competing),
        ruling=rule_on(seen),
        rule=describe_rule(seen, budget=budget_of(results)) + describe_lack(results, shown),
        advice=advice,
        is_advised_against=is_against,
    )


def _recommended(results: Results) -> str | None:
    """Return the method that the run recommends; None where it recommends none, or says nothing."""
    return results.meta.get("recommended")


def _failure(results: Results, shown: Variant | None) -> str:
    """Warn of the shown model, and of RR-ClArC's where another had to be shown; of all where none can be.

    Of a model that is shown because it is recommended nothing but its own faults count.
    """
    warned = [variant for variant in results.methods() if variant.method == FIRST or variant == shown or shown is None]
    lead = _recommended(results) or FIRST
    if shown is not None and shown.method == lead:
        warned = [shown]
    objections = {variant.title(results.methods()): objection_to(results, variant) for variant in warned}
    if lead == FIRST and results.variant(FIRST) is None and FIRST in results.selection:
        objections = {method_title(FIRST): why_no_model(results, FIRST)} | objections
    warnings = [f"Do not use this model ({title}): {why}." for title, why in objections.items() if why]
    if not warnings and shown is None:
        return f"{method_title(FIRST)} is missing from this run."
    return " ".join(warnings)


def _sentences(results: Results, shown: Variant) -> tuple[str, ...]:
    original = results.variant(ORIGINAL)
    before = results.chosen(original) if original else {}
    after = results.chosen(shown)
    title = shown.title(results.methods())
    flips, biased, clean = (pair_of(before, after, metric) for metric in (FLIPS, DECISIVE, CLEAN))
    sentences = []
    if not flips and not biased and (seen := pair_of(before, after, SEEN)):
        # all that is left is the derivative along the direction that the method was trained on
        verb = "falls" if seen[1].value < seen[0].value else "does not fall: it goes"
        sentences.append(
            f"Along the direction of {_artifact(results)}, the mean size of the derivative {verb} from "
            f"{write_value(SEEN, seen[0].value)} to {write_value(SEEN, seen[1].value)} (in {unit_of(SEEN)}) "
            f"after {title}."
        )
    pairs = ((biased, "with the artifact"), (clean, "without it" if biased else "without the artifact"))
    parts = [f"{_moved(*pair)} on images {name}" for pair, name in pairs if pair]
    balanced = f"balanced accuracy {', and '.join(parts)}" if parts else ""
    if flips:
        n = f"{flips[1].n:,} " if flips[1].n else ""
        rest = f"; {balanced}" if balanced else ""
        sentences.append(
            f"On {n}test images {_artifact(results)} changes {percent(flips[1].value)} of the decisions after {title} "
            f"instead of {percent(flips[0].value)} before{rest}."
        )
    elif balanced:
        after_what = "" if sentences else f" after {title}"
        sentences.append(f"{balanced[0].upper()}{balanced[1:]}{after_what}.")
    if not sentences:
        return (f"The original model and {title} share no score to compare.",)
    if original is not None and (told := describe_differences(results, original, shown)):
        sentences.append(told)
    if not flips and not biased:
        unknown = results.why_unknown(DECISIVE)
        why = unknown.reason if unknown else "this run has no score of it"
        sentences.append(
            "Whether the bias is gone cannot be known: how often the model is right on images with the "
            f"artifact would show it, but {why}."
        )
    return tuple(sentences)


def _beside(results: Results, shown: Variant, competing: list[Variant]) -> str:
    parts = (_rank(results, shown, competing), _plain(results, shown), _reference(results))
    return " ".join(part for part in parts if part)


def _rank(results: Results, shown: Variant, competing: list[Variant]) -> str:
    marks = marks_of(results, DECISIVE)
    if len(competing) < 2 or not marks:
        return ""
    if marks.get(shown) == "best":
        broken = ", but breaks the selection rule" if breaks_rule(results, shown) else ""
        near = [variant.title(results.methods()) for variant in marks if variant != shown]
        unclear = f", with no clear difference to {_listed(near)} (within one standard error)" if near else ""
        return f"It is the best of {len(competing)} methods on images with the artifact{unclear}{broken}."
    best = next(variant for variant, mark in marks.items() if mark == "best")
    leader = f"{best.title(results.methods())} ({percent(results.chosen(best)[DECISIVE].value)})"
    leader += ", which breaks the selection rule" if breaks_rule(results, best) else ""
    if shown in marks:
        return (
            f"There is no clear difference (within one standard error) to the best of {len(competing)} methods on "
            f"images with the artifact, {leader}."
        )
    return f"The best of {len(competing)} methods on images with the artifact is {leader}."


def _plain(results: Results, shown: Variant) -> str:
    """Say what fine-tuning wins without any correction: what a method adds is the rest."""
    plain = results.variant("vanilla")
    if plain is None or plain == shown or kind_of(results, plain) != "method":
        return ""
    scores = results.chosen(plain)
    parts = [
        f"{percent(scores[metric].value)} {name}"
        for metric, name in (("flip_rate", "flips"), (DECISIVE, "balanced accuracy with the artifact"))
        if metric in scores
    ]
    return f"Plain fine-tuning (Vanilla) alone: {', '.join(parts)}." if parts else ""


def _reference(results: Results) -> str:
    clean = results.variant("clean-trained")
    row = results.chosen(clean).get("flip_rate") if clean else None
    if row is None or not math.isfinite(row.value):
        return ""
    return f"A model trained on clean data changes {percent(row.value)} of its answers."


def _moved(before: Row, after: Row) -> str:
    if percent(before.value) == percent(after.value):
        return f"stays at {percent(after.value)}"
    verb = "rises" if after.value > before.value else "falls"
    return f"{verb} from {percent(before.value)} to {percent(after.value)}"


def _artifact(results: Results) -> str:
    return f"the {results.meta['artifact']} artifact" if results.meta.get("artifact") else "the artifact"


def _as_sign_of(results: Results) -> str:
    biased, names = results.meta.get("biased_class"), results.meta.get("class_names") or ()
    if biased is None:
        return ""
    name = names[biased] if isinstance(biased, int) and biased < len(names) else f"class {biased}"
    return f" as a sign of “{name}”"


def _listed(parts: list[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
