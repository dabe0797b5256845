"""The setting and the outcome of a run in a few plain sentences, computed from the test rows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hansfree.report.numbers import percent, write_stderr
from hansfree.report.reading import FIRST, ORIGINAL, Results, Variant
from hansfree.report.tables import breaks_rule, kind_of, marks_of
from hansfree.results import Row

DECISIVE = "balanced_accuracy_biased"


@dataclass(frozen=True)
class Verdict:
    """What is wrong (empty if nothing), what happened, and how the other methods did."""

    failure: str
    sentences: tuple[str, ...]
    beside: str


def describe_setting(results: Results) -> str:
    """Say in one sentence which model was corrected, of what, where, and on how many images."""
    meta = results.meta
    model = f"A {meta['model']} model" if meta.get("model") else "A model"
    what = f" that learned the {meta['artifact']} artifact" if meta.get("artifact") else " that learned an artifact"
    where = f", corrected at layer {meta['layer']}" if meta.get("layer") else ""
    counts = [
        f"{meta[key]:,} {name}"
        for key, name in (("n_train", "training"), ("n_val", "validation"), ("n_test", "test"))
        if meta.get(key)
    ]
    images = f"; {_listed(counts)} images" if counts else ""
    size = f" of {meta['size']} px" if counts and meta.get("size") else ""
    return f"{model}{what}{_as_sign_of(results)}{where}{images}{size}."


def reach_verdict(results: Results) -> Verdict:
    """Compare RR-ClArC, or the best method where it has no usable result, with the model as it came."""
    competing = [variant for variant in results.methods() if kind_of(results, variant) == "method"]
    first = [variant for variant in competing if variant.method == FIRST]
    best = [variant for variant, mark in marks_of(results, DECISIVE).items() if mark == "best"]
    failure = "" if first else _failure(results)
    # of several variants of RR-ClArC (targets, norms), the one that did best speaks for it
    shown = next((variant for variant in best if variant in first), None) or next(iter(first or best), None)
    if shown is None:
        return Verdict(failure, ("No method has a usable result on the test images.",), "")
    return Verdict(failure, _sentences(results, shown), _beside(results, shown, competing))


def _sentences(results: Results, shown: Variant) -> tuple[str, ...]:
    original = results.variant(ORIGINAL)
    before = results.chosen(original) if original else {}
    after = results.chosen(shown)
    title = shown.title(results.methods())
    sentences = []
    if flips := _pair(before, after, "flip_rate"):
        n = f"{flips[1].n:,} " if flips[1].n else ""
        sentences.append(
            f"Inserting {_artifact(results)} into {n}held-out images changes {percent(flips[0].value)} of the answers "
            f"of the original model, and {percent(flips[1].value)} after {title}."
        )
    parts = [
        f"{_moved(*pair)} on images {name} the artifact"
        for metric, name in ((DECISIVE, "with"), ("balanced_accuracy_clean", "without"))
        if (pair := _pair(before, after, metric))
    ]
    if parts:
        sentences.append(f"Balanced accuracy {', and '.join(parts)}.")
    return tuple(sentences) or (f"The original model and {title} share no score to compare.",)


def _beside(results: Results, shown: Variant, competing: list[Variant]) -> str:
    parts = (_rank(results, shown, competing), _plain(results, shown), _reference(results))
    return " ".join(part for part in parts if part)


def _rank(results: Results, shown: Variant, competing: list[Variant]) -> str:
    marks = marks_of(results, DECISIVE)
    if len(competing) < 2 or not marks:
        return ""
    if marks.get(shown) == "best":
        broken = ", but breaks the selection rule" if breaks_rule(results, shown) else ""
        rank = f"It is the best of {len(competing)} methods on images with the artifact{broken}."
        near = [variant.title(results.methods()) for variant in marks if variant != shown]
        verb = "is" if len(near) == 1 else "are"
        return f"{rank} {_listed(near)} {verb} within one standard error of it." if near else rank
    best = next(variant for variant, mark in marks.items() if mark == "best")
    leader = f"{best.title(results.methods())} ({percent(results.chosen(best)[DECISIVE].value)})"
    leader += ", which breaks the selection rule" if breaks_rule(results, best) else ""
    if shown in marks:
        return f"It is within one standard error of the best of {len(competing)} methods, {leader}."
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


def _failure(results: Results) -> str:
    rows = [variant for variant in results.methods() if variant.method == FIRST]
    if not rows and FIRST not in results.selection:
        return "RR-ClArC is missing from this run."
    reason = str(results.selection.get(FIRST, {}).get("reason", "")).strip().rstrip(".")
    if any(kind_of(results, variant) == "chance" for variant in rows):
        reason = "its model answers at chance level"
    return f"RR-ClArC has no usable result{f': {reason}' if reason else ''}."


def _pair(before: dict[str, Row], after: dict[str, Row], metric: str) -> tuple[Row, Row] | None:
    rows = before.get(metric), after.get(metric)
    if rows[0] is None or rows[1] is None or not (math.isfinite(rows[0].value) and math.isfinite(rows[1].value)):
        return None
    return rows[0], rows[1]


def _moved(before: Row, after: Row) -> str:
    if percent(before.value) == percent(after.value):
        return f"stays at {percent(after.value)}"
    verb = "rises" if after.value > before.value else "falls"
    error = write_stderr(after.metric, after.stderr)
    return f"{verb} from {percent(before.value)} to {percent(after.value)}{f' (± {error})' if error else ''}"


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
