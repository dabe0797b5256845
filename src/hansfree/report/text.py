"""Sentences of the report: verdict, setting, comparisons and caveats."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import yaml

from hansfree._internal.statistics import LEVEL
from hansfree.corrections import Vanilla
from hansfree.evaluation import (
    BIASED,
    CLEAN,
    CLEAN_TRAINED,
    EFFECT,
    FIRST,
    FLIPS,
    MARGIN,
    ORIGINAL,
    Results,
    Row,
    Variant,
    better_rivals,
    breaks_rule,
    budget_of,
    class_budgets_of,
    competing_variants,
    find_rejection,
    method_title,
    pair_of,
    shown_variant,
    status_of,
    why_no_model,
)
from hansfree.metrics import ArtifactRelevance, Metric, holm
from hansfree.reasons import Reason, ReasonCode, VerdictInputs, VerdictLevel
from hansfree.report.numbers import (
    CONFIDENCE,
    percent,
    unit_of,
    write_drop,
    write_point_range,
    write_points,
    write_value,
)
from hansfree.report.tables import ONE_SIDED, marks_of

# What may stand before a path, as hf:FOLDER or --out=FOLDER; a single letter is a drive, and what follows // a host.
_BEFORE_PATH = re.compile(r"[\w-]{2,}[:=](?!//)")


def shown_settings(run: Path, unused: Sequence[str]) -> str:
    """Return the run's settings, without keys that it had no use for, and without the folders that paths lie in.

    Args:
        unused: keys as ``section.key``.
    """
    path = next((run / name for name in ("run.yaml", "config.yaml") if (run / name).is_file()), None)
    settings = None if path is None else yaml.safe_load(path.read_text(encoding="utf-8"))
    if not settings:
        return ""
    for section, _, key in (name.partition(".") for name in unused):
        settings.get(section, {}).pop(key, None)
    return str(yaml.safe_dump(_shortened(settings), sort_keys=False, allow_unicode=True))


def shown_command(command: str) -> str:
    """Return the command that made the run, without the folders that paths lie in."""
    return shlex.join(map(without_folders, shlex.split(command)))


def without_folders(text: str, *, mark: str = "") -> str:
    """Return a text that is a full path, or ends in one, with the path's last name only: folders can name people.

    Args:
        mark: stands for the folders.
    """
    found = _BEFORE_PATH.match(text)
    start = found[0] if found else ""
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind(text[len(start) :])
        if path.is_absolute():
            return f"{start}{mark}{path.name}"
    return text


def _shortened(value: Any) -> Any:
    """Shorten all paths in it; the run's own file keeps them."""
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return without_folders(value, mark="…/") if isinstance(value, str) else value


_MOST_SKIPPED = 10  # files named one by one


def describe_notes(results: Results) -> list[str]:
    """Return what was noticed about the data: remarks, and files that were left out, of many the first."""
    skipped = list(results.meta.get("skipped") or ())
    notes = [*(results.meta.get("remarks") or ()), *(f"Left out: {name}" for name in skipped[:_MOST_SKIPPED])]
    if more := len(skipped[_MOST_SKIPPED:]):
        notes.append(f"Left out: {more:,} more, which results.json names.")
    return notes


LEVEL_TITLES = {
    VerdictLevel.AS_REFERENCE: "like the reference model",
    VerdictLevel.CORRECTED: "corrected",
    VerdictLevel.PARTLY_CORRECTED: "partly corrected",
    VerdictLevel.NOT_CORRECTED: "not corrected",
    VerdictLevel.UNKNOWN: "no verdict (too few test images with the artifact)",
    VerdictLevel.UNUSABLE: "do not use",
}

_Values = Mapping[str, Any]


def describe_reason(results: Results, reason: Reason) -> str:
    """Put a reason in words, without a full stop; one template per code."""
    return _TEMPLATES[reason.code](results, reason.values)


def _lost_class(results: Results, values: _Values) -> str:
    names = " and ".join(f"“{results.class_title(label)}”" for label in values["classes"])
    return f"it never predicts {names}, which the original model does"


def _clean_budget(results: Results, values: _Values) -> str:
    return (
        f"it loses {_drop(values)} of balanced accuracy on test images without the artifact, and "
        f"{100 * values['budget']:g} are allowed"
    )


def _class_budget(results: Results, values: _Values) -> str:
    return (
        f"it loses {_drop(values)} of its sensitivity to “{results.class_title(values['label'])}” on test "
        f"images without the artifact, and {100 * values['budget']:g} are allowed"
    )


def _drop(values: _Values) -> str:
    return write_drop(values["drop"], values["stderr"])


def _stronger_effect(results: Results, values: _Values) -> str:
    way = "towards" if values["after"] > 0 else "away from"
    before, after = write_points(values["before"]), write_points(values["after"])
    return (
        f"The artifact moves predictions further {way} its class than before: that class's probability changes by "
        f"{after} points instead of {before}"
    )


def _more_false_alarms(results: Results, values: _Values) -> str:
    text = "The artifact causes more false alarms of its class than before"
    if values["before"] is None:
        return text
    before, after = percent(values["before"]), percent(values["after"])
    return f"{text}: with it, {after} of the images of other classes are predicted as that class instead of {before}"


_TEMPLATES: dict[ReasonCode, Callable[[Results, _Values], str]] = {
    ReasonCode.NOT_FINITE: lambda results, values: "its numbers are not finite",
    ReasonCode.NO_MODEL: lambda results, values: results.with_class_names(values["reason"]).rstrip("."),
    ReasonCode.NO_RESULT: lambda results, values: "it has no usable result",
    ReasonCode.CHANCE_LEVEL: lambda results, values: (
        f"its balanced accuracy on images without the artifact is at chance level ({percent(values['accuracy'])})"
    ),
    ReasonCode.LOST_CLASS: _lost_class,
    ReasonCode.REJECTED_ON_VALIDATION: lambda results, values: (
        f"on validation images it {results.with_class_names(values['reason'])}"
    ),
    ReasonCode.RULE_BROKEN: lambda results, values: "it breaks the selection rule",
    ReasonCode.CLEAN_BUDGET: _clean_budget,
    ReasonCode.CLASS_BUDGET: _class_budget,
    ReasonCode.STRONGER_EFFECT: _stronger_effect,
    ReasonCode.MORE_FALSE_ALARMS: _more_false_alarms,
    ReasonCode.FINE_TUNING_SUFFICES: lambda results, values: (
        "Plain fine-tuning (Vanilla) alone achieves all or part of the improvement"
    ),
}


def describe_rejection(results: Results, variant: Variant) -> str:
    """Say why a corrected model must not be used; empty where it may."""
    reason = find_rejection(results, variant)
    return "" if reason is None else describe_reason(results, reason)


class VerdictWords(NamedTuple):
    """A verdict in words."""

    level: str
    reasons: str = ""  # what prevented a better level
    rule: str = ""  # by which it is called so


def describe_verdict(results: Results, method: str) -> VerdictWords:
    """Put the verdict on a method in words."""
    verdict = results.verdicts.get(method)
    if verdict is None:
        return VerdictWords(LEVEL_TITLES[VerdictLevel.UNKNOWN])
    classes = {results.class_title(label): most for label, most in class_budgets_of(results).items()}
    rule = describe_rule(verdict.inputs, budget=budget_of(results), class_budgets=classes)
    reasons = " ".join(f"{describe_reason(results, reason)}." for reason in verdict.reasons)
    return VerdictWords(LEVEL_TITLES[verdict.level], reasons, rule)


def describe_rule(inputs: VerdictInputs, *, budget: float, class_budgets: Mapping[str, float] | None = None) -> str:
    """Put the rule in words, as far as it can be applied.

    Args:
        budget: What balanced accuracy without the artifact may lose.
        class_budgets: What the sensitivity to a class may lose there, by its name.
    """
    gain = inputs.over_original
    if gain.accuracy is None and gain.flips is None:
        return "without enough images with the artifact, no model is called corrected."
    than = "the original model" + ("" if inputs.over_vanilla is None else " and than plain fine-tuning (Vanilla)")
    classes = "".join(
        f", the sensitivity to “{name}” at most {100 * most:g}" for name, most in (class_budgets or {}).items()
    )
    clean = f"balanced accuracy without it loses at most {100 * budget:g} points{classes} (beyond one standard error)"
    if gain.flips is None:
        harder = (
            " A model is “not corrected” if more images of other classes with the artifact are predicted as the "
            "artifact's class."
            if inputs.specificity_change is not None
            else ""
        )
        return (
            f"“partly corrected” is a model that has a higher balanced accuracy with the artifact than {than}, with "
            f"{CONFIDENCE} intervals above zero, while {clean}; more cannot be said where the artifact was not "
            f"inserted.{harder}"
        )
    as_clean = (
        " “Like the reference model” is one that, in addition, has at most "
        f"{100 * MARGIN:g} points more flips than a model trained on clean data, at the upper end of the interval."
        if inputs.flips_beyond_reference is not None
        else ""
    )
    return (
        "“corrected” is a model for which inserting the artifact changes at most half as many decisions as before, and "
        f"which has fewer such flips and a higher balanced accuracy with the artifact than {than}: with {CONFIDENCE} "
        f"intervals that leave out zero (for the flips, the exact McNemar test must agree: p below {1 - LEVEL:.2g}), "
        f"while {clean}.{as_clean} Less, but one of the two clearly better and none clearly worse, is “partly "
        "corrected”. If the artifact clearly moves the probability of its class by more than before, or has more "
        "images of other classes predicted as it, a model is “not corrected”."
    )


_NAMES = {
    FLIPS: "flips",
    BIASED: "balanced accuracy with the artifact",
    CLEAN: "balanced accuracy without the artifact",
    EFFECT: "pull of the artifact (probability change)",
}


def describe_move(results: Results, shown: Variant, pair: tuple[Row, Row], *, on: str = "") -> str:
    """Say how a score went from the original model to another: up or down only where the interval leaves out zero."""
    old, new = (percent(row.value) for row in pair)
    original = results.variant(ORIGINAL)
    known = results.difference(shown, original, pair[0].metric) if original else None
    if known is None:
        return f"goes from {old} to {new}{on}"
    if known.low <= 0 <= known.high:
        return f"stays about the same{on} ({old} before, {new} after)"
    return f"{'rises' if known.value > 0 else 'falls'} from {old} to {new}{on}"


def describe_differences(results: Results, original: Variant, shown: Variant) -> str:
    """Give the differences with their intervals in one sentence; nothing where none is known."""
    found = [
        f"{name} {write_points(one.value)} ({write_point_range(one.low, one.high)})"
        for metric, name in _NAMES.items()
        if (one := results.difference(shown, original, metric))
    ]
    text = f"Differences on the same images, in points with {CONFIDENCE} intervals: {', '.join(found)}."
    return text if found else ""


_SUBJECT_NAMES = {FLIPS: "flips", BIASED: "balanced accuracy with the artifact"}


def describe_subject(results: Results, shown: Variant, competing: Sequence[Variant]) -> str:
    """Say on whom the verdict is and why, then who does clearly better: a reader must not take the subject for best."""
    title = shown.title(results.methods())
    if shown.method == results.meta.get("recommended"):
        verdict = results.verdicts.get(shown.method)
        is_guess = verdict is not None and verdict.level == VerdictLevel.UNKNOWN
        why = "the run's best guess" if is_guess else "which the run recommends"
    elif shown.method == FIRST:
        why = "the method that hansfree is built around"
    else:
        why = "the best of the others on validation images" if len(competing) > 1 else "the only one that can be shown"
    rivals = [_describe_better(results, rival, shown) for rival in better_rivals(results, shown, competing)]
    return " ".join([f"The verdict is on {title}, {why}.", *rivals])


def _describe_better(results: Results, rival: Variant, shown: Variant) -> str:
    pairs = {
        name: pair_of(results.chosen(shown), results.chosen(rival), metric) for metric, name in _SUBJECT_NAMES.items()
    }
    text = [
        f"{name} {percent(pair[1].value)} instead of {percent(pair[0].value)}" for name, pair in pairs.items() if pair
    ]
    return f"{rival.title(results.methods())} is clearly better here: {', '.join(text)}."


def describe_rivals(results: Results, shown: Variant, competing: list[Variant]) -> str:
    """Say who is best, what plain fine-tuning wins, and what a model trained on clean data does."""
    parts = (_rank(results, shown, competing), _plain(results, shown), _reference(results))
    return " ".join(part for part in parts if part)


def _rank(results: Results, shown: Variant, competing: list[Variant]) -> str:
    marks = marks_of(results, BIASED, competing)
    if len(competing) < 2 or not marks:
        return ""
    if marks.get(shown) == "best":
        broken = ", but breaks the selection rule" if breaks_rule(results, shown) else ""
        near = [variant.title(results.methods()) for variant in marks if variant != shown]
        unclear = f", with no clear difference to {listed(near)} (within one standard error)" if near else ""
        return f"It is the best of {len(competing)} methods on images with the artifact{unclear}{broken}."
    best = next(variant for variant, mark in marks.items() if mark == "best")
    if best in better_rivals(results, shown, competing):
        return ""  # said in larger letters
    leader = f"{best.title(results.methods())} ({percent(results.chosen(best)[BIASED].value)})"
    leader += ", which breaks the selection rule" if breaks_rule(results, best) else ""
    if shown in marks:
        return (
            f"There is no clear difference (within one standard error) to the best of {len(competing)} methods on "
            f"images with the artifact, {leader}."
        )
    return f"The best of {len(competing)} methods on images with the artifact is {leader}."


def _plain(results: Results, shown: Variant) -> str:
    """Say what fine-tuning wins without any correction: what a method adds is the rest."""
    plain = results.variant(Vanilla.name)
    if plain is None or plain == shown or status_of(results, plain) != "method":
        return ""
    scores = results.chosen(plain)
    parts = [
        f"{percent(scores[metric].value)} {name}"
        for metric, name in ((FLIPS, "flips"), (BIASED, "balanced accuracy with the artifact"))
        if metric in scores
    ]
    return f"Plain fine-tuning (Vanilla) alone: {', '.join(parts)}." if parts else ""


def _reference(results: Results) -> str:
    clean = results.variant(CLEAN_TRAINED)
    row = results.chosen(clean).get(FLIPS) if clean else None
    if row is None or not math.isfinite(row.value):
        return ""
    return f"A model trained on clean data changes {percent(row.value)} of its answers."


def listed(parts: list[str]) -> str:
    """Join words with commas and an "and"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_TCAV = "tcav"

_NEUTRAL = 0.5  # TCAV of a direction that speaks neither for the class nor against it


def describe_class(results: Results) -> str:
    """Say how the artifact goes with a class: taken as its sign where insertion showed that, else how often it is."""
    name = _name_of_class(results)
    if not name:
        return ""
    pull = _group_score(results, EFFECT)
    if pull is not None and pull.value > 0:
        return f", taken as a sign of “{name}”"
    return f", {'most frequent' if _is_most_frequent(results) else 'looked for'} in “{name}”"


def describe_other_lean(results: Results) -> str:
    """Say that the original model leans away from that class; empty where it does not, or that was not measured."""
    name = _name_of_class(results)
    if not name:
        return ""
    pull, tcav = _group_score(results, EFFECT), _group_score(results, _TCAV)
    if pull is not None:  # of the two it is the better evidence
        if pull.value >= 0:
            return ""
        return (
            f"In the original model the artifact has the opposite effect: it makes “{name}” less probable, by "
            f"{100 * -pull.value:.1f} points."
        )
    if tcav is None or tcav.value >= _NEUTRAL:
        return ""
    images = f"the {tcav.n:,} test images" if tcav.n else "the test images"
    return (
        f"In the original model the artifact seems to have the opposite effect: TCAV is {percent(tcav.value)}, so in "
        f"most of {images} the direction counts against “{name}”."
    )


def _group_score(results: Results, metric: str) -> Row | None:
    """Return a finite score of the original model."""
    original = results.variant(ORIGINAL)
    row = results.chosen(original).get(metric) if original else None
    return row if row is not None and math.isfinite(row.value) else None


def _name_of_class(results: Results) -> str:
    biased = results.meta.get("biased_class")
    if biased is None:
        return ""
    return results.class_title(biased) if isinstance(biased, int) else f"class {biased}"


def _is_most_frequent(results: Results) -> bool:
    """Return whether no class has a larger share of training images with the artifact; True without counts."""
    shares = {
        each["class"]: each.get("with_artifact", 0) / each["images"]
        for each in results.meta.get("counts") or ()
        if each["set"] == "train" and each["images"]
    }
    return not shares or shares.get(_name_of_class(results)) == max(shares.values())


_SENSITIVITY = "sensitivity_clean"  # with the artifact the biased class must lose what the shortcut gave it

_MOST_NAMED = 3  # classes with too few images


def describe_loss(results: Results, shown: Variant) -> str:
    """Say which class a model recognises less often than the original did; empty where no class was scored."""
    original = results.variant(ORIGINAL)
    before, after = (results.of_classes(each, _SENSITIVITY) if each else {} for each in (original, shown))
    changes = {label: after[label].value - before[label].value for label in before.keys() & after.keys()}
    changes = {label: change for label, change in sorted(changes.items()) if math.isfinite(change)}
    if not changes:
        return ""
    largest = min(changes, key=lambda label: changes[label])
    if changes[largest] >= 0:
        text = "Without the artifact, no class has a lower sensitivity than before."
        return f"{text}{_unknown(results)}"
    p_values = _p_values(results, shown, changes)
    clear = [label for label, p in p_values.items() if p < 1 - LEVEL and changes[label] < 0]
    label = min(clear, key=lambda label: changes[label], default=largest)
    name, chance = f"“{results.class_title(label)}”", ""
    if clear:
        who = "Largest per-class drop" if label == largest else "Largest significant per-class drop"
        chance = "significant"
    else:
        who = "Largest per-class drop"
        chance = "not significant" if p_values else ""
    old, new = (percent(rows[label].value) for rows in (before, after))
    n = after[label].n
    images = f"n = {n:,}" if n else ""
    details = ", ".join(filter(None, (images, chance)))
    change = f"{name}, sensitivity without the artifact {old} → {new}" + (f" ({details})" if details else "")
    return f"{who}: {change}.{_unknown(results)}"


def _p_values(results: Results, shown: Variant, labels: Iterable[int]) -> dict[int, float]:
    """Return McNemar's p of each class, corrected for their number: of many, one always falls by chance."""
    found = {label: results.class_difference(shown, label) for label in labels}
    known = {label: one.p for label, one in found.items() if one is not None and one.p is not None}
    return dict(zip(known, holm(list(known.values()))))


def _unknown(results: Results) -> str:
    """Say which classes have too few images, with a space before it."""
    labels = sorted(results.unknown_classes(_SENSITIVITY))
    if not labels:
        return ""
    names = [f"“{results.class_title(label)}”" for label in labels]
    of = listed(names) if len(names) <= _MOST_NAMED else f"{len(names):,} classes"
    return f" {of}: n/a (too few test images)."


def describe_one_sided(results: Results, shown: Variant) -> str:
    """Say in one sentence how accuracy with the artifact changes, and why that is no verdict; empty if it is one."""
    original = results.variant(ORIGINAL)
    before, after = (results.chosen(each).get(ONE_SIDED) if each else None for each in (original, shown))
    if not results.is_one_sided or before is None or after is None or not math.isfinite(before.value + after.value):
        return ""
    n = f"{after.n:,} " if after.n else ""
    change = describe_move(results, shown, (before, after))
    text = f"On the {n}test images with the artifact accuracy {change}; {_whose(results)}"
    if after.value < before.value and not change.startswith("stays"):
        return f"{text}, so part of the drop may be the shortcut that was removed; these images cannot show which."
    return f"{text}, where the shortcut gives the right answer too, so they cannot show whether it is gone."


def _whose(results: Results) -> str:
    """Say of which class these images are."""
    found = {each["class"]: each["images"] for each in results.meta.get("counts") or () if each["set"] == "test biased"}
    biased = results.meta.get("biased_class")
    name = results.class_title(biased) if isinstance(biased, int) else None
    if name in found:
        return f"{found[name]:,} of them are of class '{name}'"
    return "nearly all of them are of one class"


def describe_relevance(results: Results) -> str:
    """Say on which images, by which masks, and who is left out; nothing where no model has the score."""
    name = ArtifactRelevance.name
    found = {variant: results.chosen(variant).get(name) for variant in results.methods()}
    scored = [row for row in found.values() if row is not None]
    if not scored:
        return ""
    n = max(row.n or 0 for row in scored)
    text = "Artifact relevance is the share of absolute relevance that lies where the artifact is"
    text += f", on the first {n} test images with the artifact: heatmaps take long." if n else "."
    missing = [
        method_title(variant.method)
        for variant, row in found.items()
        if row is None and variant.method != ORIGINAL and status_of(results, variant) == "method"
    ]
    if missing:
        text += (
            f" {', '.join(missing)}: n/a. These images have no masks of the artifact; masks along the "
            "direction are used instead, which must not judge methods trained with the direction or with masks from it."
        )
    return text


def describe_removal(results: Results) -> str:
    """Say what is removed together and what is kept; empty where a run is about its own artifact alone."""
    angles: dict[str, float] = results.meta.get("removed") or {}
    if not angles:
        return ""
    together, kept = " together" if len(angles) > 1 else "", _kept(results)
    text = f"Corrections along a direction remove {listed(list(angles))}{together}"
    text += f" and keep {listed(kept)}" if kept else ""
    text += f"; all others know {_own(results)} only."
    if kept:
        degrees = listed([f"{name} at {angle:.0f}" for name, angle in angles.items()])
        text += f" Degrees to what is kept, 90 where they share nothing: {degrees}."
    return text


def describe_others(results: Results, shown: Variant) -> str:
    """Say what became of the other artifacts under a method: those that it removes too, and those that it keeps."""
    return " ".join(_told_of_others(results, shown))


def mark_artifact(results: Results, artifact: str) -> str:
    """Return the name of an inserted artifact, with what the corrections do about it."""
    if artifact in (results.meta.get("removed") or ()):
        return f"{artifact} (removed too)"
    return f"{artifact} (kept)" if artifact in _kept(results) else artifact


def _told_of_others(results: Results, shown: Variant) -> Iterator[str]:
    removed = [name for name in results.meta.get("removed") or () if name != _own(results)]
    others = [*removed, *_kept(results)]
    if not others:
        return
    if shown.cav is None:
        yield f"{shown.title(results.methods())} uses no direction: it was corrected for {_own(results)} only."
    unknown = []
    for name in others:
        before, after = (_flips(results, method, name) for method in (ORIGINAL, shown.method))
        if before is None or after is None:
            unknown.append(name)
            continue
        what = "removed too" if name in removed else "kept"
        yield (
            f"Inserted into the same images, {name} ({what}) changes {percent(after.value)} of the decisions "
            f"instead of {percent(before.value)}."
        )
    if unknown:
        yield f"Not measured, as it cannot be inserted into test images: {listed(unknown)}."


def _flips(results: Results, method: str, artifact: str) -> Row | None:
    rows = (row for row in results.further if (row.method, row.metric) == (method, FLIPS))
    return next((row for row in rows if row.artifact == artifact), None)


def _own(results: Results) -> str:
    return results.meta.get("artifact") or "artifact"


def _kept(results: Results) -> list[str]:
    return results.meta.get("protected") or []


SEEN = "tcav_sensitivity"  # shown where flips and accuracy are not available


@dataclass(frozen=True)
class VerdictText:
    """What is wrong (empty if nothing), what happened, what that is called and why, and what the run advises."""

    failure: str
    sentences: tuple[str, ...]  # two at most: the decisions that the artifact changes, and balanced accuracy
    title: str = ""  # whose model it is about
    subject: str = ""  # the same in words, with the reason, and who is clearly better
    others: str = ""  # what became of other artifacts that are removed or kept
    warning: str = ""  # of RR-ClArC's model, where another is shown because that must not be used
    beside: str = ""  # how the other methods did
    differences: str = ""  # what the sentences rest on: intervals, or what is left to judge by
    level: VerdictLevel = VerdictLevel.UNUSABLE
    rule: str = ""  # by which it is called so
    why: str = ""  # what stood in the way of a better word
    loss: str = ""  # which class pays for it
    advice: tuple[str, ...] = ()
    is_advised_against: bool = False  # the run says that none of its models is to be used

    @property
    def headline(self) -> str:
        """The level as the first words of the verdict; empty where a failure says it all."""
        if self.failure:
            return ""
        level = LEVEL_TITLES[self.level]
        # beside a warning about another model it has to name its own
        return f"{self.title}: {level}." if self.warning else f"{level[:1].upper()}{level[1:]}."

    @property
    def lines(self) -> tuple[str, ...]:
        """What the page says first, for a terminal."""
        text = " ".join(filter(None, (self.headline, *self.sentences)))
        parts = (self.failure, self.warning, text, self.why, self.loss, self.others, self.subject)
        return tuple(line for line in parts if line)


def describe_setting(results: Results) -> str:
    """Say which model was corrected, of what, where, and on how many images."""
    meta = results.meta
    model = f"A {without_folders(meta['model'])} model" if meta.get("model") else "A model"
    what = f" and the {meta['artifact']} artifact" if meta.get("artifact") else " and an artifact"
    where = f", corrected at layer {meta['layer']}" if meta.get("layer") else ""
    keys = [("n_train", "training"), ("n_val", "validation"), ("n_test", "test")]
    if not results.is_inserted:  # the two kinds of images are different ones, and as many as they happen to be
        kinds = ((part, name, kind) for part, name in keys[1:] for kind in ("clean", "biased"))
        keys = [keys[0], *((f"{part}_{kind}", f"{kind} {name}") for part, name, kind in kinds)]
    sizes = [(meta.get(key, meta.get(f"{key}_clean")), name) for key, name in keys]  # with it they are as many
    counts = [f"{size:,} {name}" for size, name in sizes if size is not None]
    images = f"; {listed(counts)} images" if counts else ""
    size = f" of {meta['size']} px" if counts and meta.get("size") else ""
    setting = f"{model}{what}{describe_class(results)}{where}{images}{size}."
    return " ".join(filter(None, (setting, describe_removal(results), describe_other_lean(results))))


def write_verdict(results: Results) -> VerdictText:
    """Compare the shown method with the original model, and say which model must not be used."""
    shown = shown_variant(results)
    meta = results.meta
    advice = tuple(meta.get("advice") or ())
    is_against = "recommended" in meta and meta["recommended"] is None
    if shown is None:
        nothing = ("No method has a usable result on the test images.",)
        return VerdictText(_failure(results, None), nothing, advice=advice, is_advised_against=is_against)
    competing = competing_variants(results)
    verdict, words = results.verdicts.get(shown.method), describe_verdict(results, shown.method)
    return VerdictText(
        failure=_failure(results, shown),
        sentences=_sentences(results, shown),
        title=shown.title(results.methods()),
        subject=describe_subject(results, shown, competing),
        others=describe_others(results, shown),
        warning=_warning(results, shown),
        beside=describe_rivals(results, shown, competing),
        level=VerdictLevel.UNKNOWN if verdict is None else verdict.level,
        rule=words.rule,
        differences=_differences(results, shown),
        why=" ".join(filter(None, (words.reasons, describe_one_sided(results, shown)))),
        loss=describe_loss(results, shown),
        advice=advice,
        is_advised_against=is_against,
    )


def _failure(results: Results, shown: Variant | None) -> str:
    """Warn of the shown model, by its own faults alone; of all where none can be shown."""
    if shown is not None:
        return _warn(results, [shown])
    text = " ".join(filter(None, (_warn_of_none(results), _warn(results, results.methods()))))
    return text or f"{method_title(FIRST)} is missing from this run."


def _warning(results: Results, shown: Variant) -> str:
    """Warn of RR-ClArC's model where another is shown in its place; not where it is the recommended one."""
    if shown.method in (FIRST, results.meta.get("recommended")):
        return ""
    return _warn_of_none(results) or _warn(results, [each for each in results.methods() if each.method == FIRST])


def _warn(results: Results, variants: Sequence[Variant]) -> str:
    objections = {variant.title(results.methods()): describe_rejection(results, variant) for variant in variants}
    return " ".join(f"Do not use this model ({title}): {why}." for title, why in objections.items() if why)


def _warn_of_none(results: Results) -> str:
    """Say why RR-ClArC was run and has no model."""
    if results.variant(FIRST) is not None or FIRST not in results.selection:
        return ""
    return f"Do not use this model ({method_title(FIRST)}): {describe_reason(results, why_no_model(results, FIRST))}."


def _sentences(results: Results, shown: Variant) -> tuple[str, ...]:
    """Say what the artifact still does, then what the model is worth with and without it."""
    before, after = _scores(results, shown)
    flips, biased, clean = (pair_of(before, after, metric) for metric in (FLIPS, BIASED, CLEAN))
    title = shown.title(results.methods())
    sentences = []
    if flips:
        n = f"{flips[1].n:,} " if flips[1].n else ""
        sentences.append(f"On {n}test images {_artifact(results)} changes {_shares(results, shown, flips)}.")
    elif not biased and before and after:
        unknown = results.why_unknown(BIASED)
        why = unknown.reason if unknown else "this run has no score of it"
        sentences.append(
            f"How often the model is right on images with the artifact would show whether the bias is gone, but {why}."
        )
    pairs = ((biased, "with the artifact"), (clean, "without it" if biased else "without the artifact"))
    parts = [describe_move(results, shown, pair, on=f" on images {name}") for pair, name in pairs if pair]
    if parts:
        moved = f"balanced accuracy {', and '.join(parts)}"
        sentences.append(f"{moved[0].upper()}{moved[1:]}." if flips else f"After {title}, {moved}.")
    return tuple(sentences) or (f"The original model and {title} share no score to compare.",)


def _shares(results: Results, shown: Variant, flips: tuple[Row, Row]) -> str:
    """Give the share of decisions before and after; as many as before where the interval holds zero."""
    old, new = (percent(row.value) for row in flips)
    original = results.variant(ORIGINAL)
    known = results.difference(shown, original, FLIPS) if original else None
    now = f"{new} of the decisions after {shown.title(results.methods())}"
    if known is not None and known.low <= 0 <= known.high:
        return f"{now}, about as many as before ({old})"
    return f"{now} instead of {old} before"


def _differences(results: Results, shown: Variant) -> str:
    """Give the differences with their intervals; where the bias cannot be seen, also what is left to judge by."""
    before, after = _scores(results, shown)
    original = results.variant(ORIGINAL)
    text = [describe_differences(results, original, shown)] if original else []
    if not any(pair_of(before, after, metric) for metric in (FLIPS, BIASED)) and (seen := pair_of(before, after, SEEN)):
        # the derivative along the direction that the method was trained on
        name, (old, new) = Metric.named(SEEN).label, (write_value(SEEN, row.value) for row in seen)
        text.append(
            f"On test images, the {name} (mean size of the derivative of the logit along the direction, in "
            f"{unit_of(SEEN)}) goes from {old} to {new}."
        )
    return " ".join(filter(None, text))


def _scores(results: Results, shown: Variant) -> tuple[dict[str, Row], dict[str, Row]]:
    """Return the scores of the original and of the corrected model."""
    original = results.variant(ORIGINAL)
    return results.chosen(original) if original else {}, results.chosen(shown)


def _artifact(results: Results) -> str:
    return f"the {results.meta['artifact']} artifact" if results.meta.get("artifact") else "the artifact"
