"""Sentences of the report: verdict, setting, comparisons and caveats."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple

import yaml

from hansfree._internal.files import open_templates
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
    TOLERATED,
    TOLERATED_ALONE,
    Results,
    Row,
    Variant,
    better_rivals,
    breaks_rule,
    competing_variants,
    find_rejection,
    method_title,
    shown_variant,
    status_of,
    why_no_model,
)
from hansfree.metrics import MIN_GROUP, ArtifactRelevance, Metric
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
from hansfree.report.tables import corrected_p_values, marks_of

# What may stand before a path, as hf:FOLDER or --out=FOLDER; a single letter is a drive, and what follows // a host.
_BEFORE_PATH = re.compile(r"[\w-]{2,}[:=](?!//)")


def shown_settings(run: Path, unused: Sequence[str]) -> str:
    """Return the run's settings, without ``unused`` keys (``section.key``) and the folders that paths lie in."""
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
    """Return a text that is a full path, or ends in one, with ``mark`` for its folders: they can name people."""
    found = _BEFORE_PATH.match(text)
    start = found[0] if found else ""
    for kind in (PurePosixPath, PureWindowsPath):
        path = kind(text[len(start) :])
        if path.is_absolute():
            return f"{start}{mark}{path.name}"
    return text


def _shortened(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _shortened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_shortened(each) for each in value]
    return without_folders(value, mark="…/") if isinstance(value, str) else value


_MOST_SKIPPED = 10  # files named one by one


def describe_notes(results: Results) -> list[str]:
    """Return warnings and remarks on the data, and files that were left out."""
    skipped = list(results.meta.get("skipped") or ())
    warnings = map(Reason.from_json, results.meta.get("warnings") or ())
    notes = [f"{describe_reason(warning, results.class_title)}." for warning in warnings]
    notes += [*(results.meta.get("remarks") or ()), *(f"Left out: {name}" for name in skipped[:_MOST_SKIPPED])]
    if more := len(skipped[_MOST_SKIPPED:]):
        notes.append(f"Left out: {more:,} more, which results.json names.")
    return notes


def describe_claims(claims: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return claims on the data as results.json holds them, each with its sentence."""
    environment = open_templates("report", is_html=False)
    environment.filters["repr"] = repr
    template = environment.get_template("claim.txt.jinja")
    texts = (template.render(**claim, min_group=MIN_GROUP) for claim in claims)
    return [{**claim, "sentence": text.replace("\n", "")} for claim, text in zip(claims, texts)]


SENTENCES: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("sentences.yaml").read_text(encoding="utf-8")
)
LEVEL_TITLES = {VerdictLevel(level): title for level, title in SENTENCES["levels"].items()}
_TEMPLATES = {
    ReasonCode(code): words.replace("{limits}", SENTENCES["parts"]["limits"])
    for code, words in SENTENCES["reasons"].items()
}


def describe_reason(reason: Reason, class_title: Callable[[int], str] = "class {}".format) -> str:
    """Put a reason in words, without a full stop; one template per code."""
    values = reason.values
    words: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, Reason):
            words[name] = describe_reason(value, class_title)
        elif name in _WRITERS:
            words[name] = _WRITERS[name](value, class_title)
        elif name == "drop" and "stderr" in values:
            words[name] = write_drop(value, values["stderr"])
        elif reason.code == ReasonCode.STRONGER_EFFECT:
            words |= {name: write_points(value), "way": "towards" if values["after"] > 0 else "away from"}
        elif isinstance(value, float | None):
            words[name] = "n/a" if value is None else percent(value)
        else:
            words[name] = str(value)
    return _TEMPLATES[reason.code].format(**words)


def _write_empty(sentence: str) -> Callable[[Sequence[int], object], str]:
    return lambda labels, _: sentence.format(", ".join(map(str, labels))) if labels else ""


# By the name of the value; the second argument names a class.
_WRITERS: dict[str, Callable[[Any, Callable[[int], str]], str]] = {
    "budget": lambda share, _: f"{100 * share:g}",
    "share": lambda share, _: f"{100 * share:g}",
    "intended": lambda share, _: f"{100 * share:g}",
    "effect": lambda effect, _: f"{effect:.3g}",
    "original": lambda effect, _: f"{effect:.3g}",
    "kind": lambda kind, _: SENTENCES["transplants"][kind],
    "errors": lambda errors, _: "; ".join(errors),
    "pairs": lambda n, _: f"{n:,}",
    "unpaired": lambda n, _: f", and on {n:,} without a counterfactual" if n else "",
    "rates": lambda rates, _: " and ".join(
        f"{100 * rate:.1f} % of {n:,} test images {word} the artifact" for word, (rate, n) in rates.items()
    ),
    "only_with": _write_empty("Every training image of class {} has the artifact. "),
    "only_without": _write_empty("No training image of class {} has the artifact. "),
    "rejections": lambda found, title: "; ".join(sorted({describe_reason(each, title) for each in found})),
    "classes": lambda labels, title: listed([f"“{title(label)}”" for label in labels]),
    "labels": lambda labels, title: ", ".join(map(title, labels)),
    "label": lambda label, title: title(label),
    "uncounted": lambda labels, title: (
        f"; {', '.join(map(title, labels))} has too few of them to count" if labels else ""
    ),
    "class_budgets": lambda budgets, title: "".join(
        f", at most {100 * most:g} of {title(int(label))}" for label, most in budgets.items()
    ),
}


class SelectionWords(NamedTuple):
    """How the strength of a method was chosen, in words."""

    method: str
    strength: float | None
    rule: str
    reason: str
    details: str  # whole sentences

    @property
    def outcome(self) -> str:
        """What came of it."""
        return ". ".join(filter(None, (self.reason, self.details)))


def describe_selection(results: Results, method: str) -> SelectionWords:
    """Say how a method's strength was chosen; empty where the run did not record it."""
    choice = results.selection.get(method, {})
    rule, reason = (
        describe_reason(Reason.from_json(choice[key]), results.class_title) if choice.get(key) else ""
        for key in ("rule", "reason")
    )
    details = " ".join(f"{describe_reason(Reason.from_json(each))}." for each in choice.get("details", ()))
    return SelectionWords(method, choice.get("strength"), rule, reason, details)


def describe_rejection(results: Results, variant: Variant) -> str:
    """Say why a corrected model must not be used; empty where it may."""
    reason = find_rejection(results, variant)
    return "" if reason is None else describe_reason(reason, results.class_title)


_UNKNOWN = f"{LEVEL_TITLES[VerdictLevel.UNKNOWN]} (too few test images with the artifact)"


class VerdictWords(NamedTuple):
    """A verdict in words."""

    level: str
    reasons: str = ""  # what prevented a better level
    rule: str = ""  # by which it is called so


def describe_verdict(results: Results, method: str) -> VerdictWords:
    """Put the verdict on a method in words."""
    verdict = results.verdicts.get(method)
    if verdict is None:
        return VerdictWords(_UNKNOWN)
    classes = {results.class_title(label): most for label, most in results.class_budgets.items()}
    rule = describe_rule(verdict.inputs, budget=results.budget, class_budgets=classes)
    reasons = " ".join(f"{describe_reason(reason, results.class_title)}." for reason in verdict.reasons)
    is_unknown = verdict.level == VerdictLevel.UNKNOWN and not reasons
    return VerdictWords(_UNKNOWN if is_unknown else LEVEL_TITLES[verdict.level], reasons, rule)


def describe_rule(inputs: VerdictInputs, *, budget: float, class_budgets: Mapping[str, float]) -> str:
    """Put the rule in words, as far as it can be applied; budgets of classes are by name."""
    template = open_templates("report", is_html=False).get_template("rule.txt.jinja")
    allowed = {"budget": budget, "class_budgets": class_budgets, "margin": MARGIN}
    allowed |= {"tolerated": TOLERATED, "tolerated_alone": TOLERATED_ALONE}
    return " ".join(template.render(inputs=inputs, confidence=CONFIDENCE, p=1 - LEVEL, **allowed).split())


_NAMES = {
    FLIPS: "flips",
    BIASED: "balanced accuracy with the artifact",
    CLEAN: "balanced accuracy without the artifact",
    EFFECT: "pull of the artifact (probability change)",
}


def _describe_move(results: Results, shown: Variant, pair: tuple[Row, Row], *, on: str) -> str:
    """Say how a score went from the original model to another: up or down only where the interval leaves out zero."""
    old, new = (percent(row.value) for row in pair)
    known = results.difference(shown, results.original, pair[0].metric)
    if known is None:
        return f"goes from {old} to {new}{on}"
    if known.low <= 0 <= known.high:
        return f"stays about the same{on} ({old} before, {new} after)"
    return f"{'rises' if known.value > 0 else 'falls'} from {old} to {new}{on}"


def _describe_subject(results: Results, shown: Variant, competing: Sequence[Variant]) -> str:
    """Say which model the verdict is on and why, and which methods are clearly better."""
    if shown.method == results.meta.get("recommended"):
        verdict = results.verdicts.get(shown.method)
        is_guess = verdict is not None and verdict.level == VerdictLevel.UNKNOWN
        why = "the run's best guess" if is_guess else "which the run recommends"
    elif shown.method == FIRST:
        why = "the method that hansfree is built around"
    else:
        why = "the best of the others on validation images" if len(competing) > 1 else "the only one that can be shown"
    sentences = [f"The verdict is on {results.title(shown)}, {why}."]
    for rival in better_rivals(results, shown, competing):
        scores = [
            f"{_NAMES[metric]} {percent(pair[1].value)} instead of {percent(pair[0].value)}"
            for metric in (FLIPS, BIASED)
            if (pair := results.pair(shown, rival, metric))
        ]
        sentences.append(f"{results.title(rival)} is clearly better here: {', '.join(scores)}.")
    return " ".join(sentences)


def _describe_rivals(results: Results, shown: Variant, competing: list[Variant]) -> str:
    """Say which method is best, what plain fine-tuning does, and what a model trained on clean data does."""
    sentences = [_describe_rank(results, shown, competing)]
    plain, reference = results.variant(Vanilla.name), results.variant(CLEAN_TRAINED)
    if plain is not None and plain != shown and status_of(results, plain) == "method":
        scores = results.chosen(plain)
        parts = [f"{percent(scores[metric].value)} {_NAMES[metric]}" for metric in (FLIPS, BIASED) if metric in scores]
        sentences.append(f"Plain fine-tuning (Vanilla) alone: {', '.join(parts)}." if parts else "")
    row = results.chosen(reference).get(FLIPS)
    if row is not None and math.isfinite(row.value):
        sentences.append(f"A model trained on clean data changes {percent(row.value)} of its answers.")
    return " ".join(filter(None, sentences))


def _describe_rank(results: Results, shown: Variant, competing: list[Variant]) -> str:
    marks = marks_of(results, BIASED, competing)
    if not marks:
        return ""
    best = shown if marks.get(shown) == "best" else next(each for each, mark in marks.items() if mark == "best")
    among = f"the best of {len(competing)} methods on images with the artifact"
    if best == shown:
        near = [results.title(variant) for variant in marks if variant != shown]
        unclear = f", with no clear difference to {listed(near)} (within one standard error)" if near else ""
        return f"It is {among}{unclear}{', but breaks the selection rule' if breaks_rule(results, best) else ''}."
    if best in better_rivals(results, shown, competing):
        return ""  # said in larger letters
    leader = f"{results.title(best)} ({percent(results.chosen(best)[BIASED].value)})"
    leader += ", which breaks the selection rule" if breaks_rule(results, best) else ""
    if shown in marks:
        return f"There is no clear difference (within one standard error) to {among}, {leader}."
    return f"{among[:1].upper()}{among[1:]} is {leader}."


def listed(parts: list[str]) -> str:
    """Join words with commas and an "and"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _describe_class(results: Results) -> tuple[str, str]:
    """Return how the artifact goes with its class, and a warning if its effect on the original model is the opposite.

    It is taken as a sign of the class where insertion shows that.
    """
    biased, scores = results.meta.get("biased_class"), results.chosen(results.original)
    if biased is None:
        return "", ""
    name = results.class_title(biased) if isinstance(biased, int) else f"class {biased}"
    pull, tcav = (row if row and math.isfinite(row.value) else None for row in map(scores.get, (EFFECT, "tcav")))
    if pull is not None and pull.value > 0:
        return f", taken as a sign of “{name}”", ""
    clause, warning = f", biased class “{name}”", ""
    if pull is not None and pull.value < 0:
        warning = f"has the opposite effect: it makes “{name}” less probable, by {100 * -pull.value:.1f} points."
    elif pull is None and tcav is not None and tcav.value < 0.5:
        warning = (
            f"seems to have the opposite effect: TCAV is {percent(tcav.value)}, so in most of the test images the "
            f"direction counts against “{name}”."
        )
    return clause, f"In the original model the artifact {warning}" if warning else ""


_SENSITIVITY = "sensitivity_clean"  # with the artifact the biased class must lose what the shortcut gave it
_MOST_NAMED = 3  # classes with too few images


class LossWords(NamedTuple):
    """Which class a model recognises less often than the original did, in words."""

    sentence: str = ""  # empty where no class was scored
    is_significant: bool = False


_NO_LOSS = LossWords()


def describe_loss(results: Results, shown: Variant) -> LossWords:
    """Say which class a model recognises less often than the original did."""
    before, after = (results.of_classes(each, _SENSITIVITY) for each in (results.original, shown))
    changes = {label: after[label].value - before[label].value for label in before.keys() & after.keys()}
    changes = {label: change for label, change in sorted(changes.items()) if math.isfinite(change)}
    if not changes:
        return _NO_LOSS
    unknown = [f"“{results.class_title(label)}”" for label in sorted(results.unknown_classes(_SENSITIVITY))]
    of = listed(unknown) if 0 < len(unknown) <= _MOST_NAMED else f"{len(unknown):,} classes"
    end = f" {of}: n/a (too few test images)." if unknown else ""
    largest = min(changes, key=lambda label: changes[label])
    if changes[largest] >= 0:
        return LossWords(f"Without the artifact, no class has a lower sensitivity than before.{end}")
    # of many classes, one always falls by chance
    p_values = corrected_p_values({label: one for label in changes if (one := results.class_difference(shown, label))})
    clear = [label for label, p in p_values.items() if p < 1 - LEVEL and changes[label] < 0]
    label = min(clear, key=lambda label: changes[label], default=largest)
    what = "Largest per-class drop" if label == largest else "Largest significant per-class drop"
    old, new, n = percent(before[label].value), percent(after[label].value), after[label].n
    chance = "significant" if clear else "not significant" if p_values else ""
    details = ", ".join(filter(None, (f"n = {n:,}" if n else "", chance)))
    details = f" ({details})" if details else ""
    name = results.class_title(label)
    sentence = f"{what}: “{name}”, sensitivity without the artifact {old} → {new}{details}.{end}"
    return LossWords(sentence, bool(clear))


def describe_relevance(results: Results) -> str:
    """Say on which images artifact relevance is scored, and which methods lack it; empty where no model has it."""
    found = {variant: results.chosen(variant).get(ArtifactRelevance.name) for variant in results.methods()}
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


def _describe_removal(results: Results) -> str:
    """Say which artifacts are removed together and which are kept; empty where a run has only its own."""
    angles: dict[str, float] = results.meta.get("removed") or {}
    if not angles:
        return ""
    together, kept = " together" if len(angles) > 1 else "", results.meta.get("protected") or []
    text = f"Corrections along a direction remove {listed(list(angles))}{together}"
    text += f" and keep {listed(kept)}" if kept else ""
    text += f"; all others know {results.meta.get('artifact') or 'artifact'} only."
    if kept:
        degrees = listed([f"{name} at {angle:.0f}" for name, angle in angles.items()])
        text += f" Degrees to what is kept, 90 where they share nothing: {degrees}."
    return text


def describe_others(results: Results, shown: Variant) -> str:
    """Say how a method changes the effect of the other artifacts, removed or kept."""
    own = results.meta.get("artifact") or "artifact"
    removed = [name for name in results.meta.get("removed") or () if name != own]
    others = {**dict.fromkeys(removed, "removed too"), **dict.fromkeys(results.meta.get("protected") or (), "kept")}
    if not others:
        return ""
    sentences, unknown = [], []
    if shown.cav is None:
        sentences.append(f"{results.title(shown)} uses no direction: it was corrected for {own} only.")
    flips = {(row.method, row.artifact): row for row in results.further if row.metric == FLIPS}
    for name, what in others.items():
        before, after = flips.get((ORIGINAL, name)), flips.get((shown.method, name))
        if before is None or after is None:
            unknown.append(name)
        else:
            sentences.append(
                f"Inserted into the same images, {name} ({what}) changes {percent(after.value)} of the decisions "
                f"instead of {percent(before.value)}."
            )
    if unknown:
        sentences.append(f"Not measured, as it cannot be inserted into test images: {listed(unknown)}.")
    return " ".join(sentences)


SEEN = "tcav_sensitivity"  # shown where flips and accuracy are not available


@dataclass(frozen=True)
class VerdictText:
    """The verdict as the page and the terminal show it; empty where there is nothing to say."""

    failure: str  # why the shown model must not be used
    sentences: tuple[str, ...]  # two at most: the decisions that the artifact changes, and balanced accuracy
    title: str = ""  # whose model it is about
    subject: str = ""  # the same in words, with the reason, and which methods are clearly better
    others: str = ""  # effect of other artifacts that are removed or kept
    warning: str = ""  # of RR-ClArC's model, where another is shown because that must not be used
    beside: str = ""  # how the other methods did
    differences: str = ""  # what the sentences rest on: intervals, or what is left to judge by
    level: VerdictLevel = VerdictLevel.UNUSABLE
    rule: str = ""
    why: str = ""  # what prevented a better level, and what flatters the model
    loss: LossWords = _NO_LOSS  # which class loses most
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
    def text(self) -> str:
        """The level and what it rests on."""
        return " ".join(filter(None, (self.headline, *self.sentences)))

    @property
    def lines(self) -> tuple[str, ...]:
        """All sentences, the most important first."""
        parts = (self.failure, self.warning, self.text, self.why, self.loss.sentence, self.others, self.subject)
        return tuple(line for line in parts if line)


def describe_setting(results: Results) -> str:
    """Say which model was corrected, for which artifact, at which layer, and on how many images."""
    meta = results.meta
    model = f"A {without_folders(meta['model'])} model" if meta.get("model") else "A model"
    artifact = f" and the {meta['artifact']} artifact" if meta.get("artifact") else " and an artifact"
    where = f", layer {meta['layer']}" if meta.get("layer") else ""
    keys = {"n_train": "training", "n_val": "validation", "n_test": "test"}
    if not results.is_inserted:  # images with and without the artifact are different ones
        keys = {"n_train": "training"} | {
            f"n_{part}_{kind}": f"{kind} {name}"
            for part, name in (("val", "validation"), ("test", "test"))
            for kind in ("clean", "biased")
        }
    sizes = {name: meta.get(key, meta.get(f"{key}_clean")) for key, name in keys.items()}
    counts = [f"{size:,} {name}" for name, size in sizes.items() if size is not None]
    images = f"; {listed(counts)} images" if counts else ""
    size = f" of {meta['size']} px" if counts and meta.get("size") else ""
    clause, warning = _describe_class(results)
    setting = f"{model}{artifact}{clause}{where}{images}{size}."
    return " ".join(filter(None, (setting, _describe_removal(results), warning)))


def write_verdict(results: Results) -> VerdictText:
    """Compare the shown method with the original model, and say which model must not be used."""
    shown, meta = shown_variant(results), results.meta
    advice = tuple(meta.get("advice") or ())
    is_against = "recommended" in meta and meta["recommended"] is None
    no_model = ""  # of RR-ClArC
    if results.variant(FIRST) is None and FIRST in results.selection:
        no_model = _warning(method_title(FIRST), describe_reason(why_no_model(results, FIRST), results.class_title))
    if shown is None:
        failure = " ".join(filter(None, (no_model, _warn(results, results.methods()))))
        nothing = ("No method has a usable result on the test images.",)
        failure = failure or f"{method_title(FIRST)} is missing from this run."
        return VerdictText(failure, nothing, advice=advice, is_advised_against=is_against)
    warning = ""
    if shown.method not in (FIRST, meta.get("recommended")):
        warning = no_model or _warn(results, [each for each in results.methods() if each.method == FIRST])
    competing = competing_variants(results)
    verdict, words = results.verdicts.get(shown.method), describe_verdict(results, shown.method)
    details = [Reason.from_json(each) for each in results.selection.get(shown.method, {}).get("details", ())]
    caveats = [f"{describe_reason(each)}." for each in details if each.code == ReasonCode.TRAINED_ON_TRANSPLANTS]
    return VerdictText(
        failure=_warn(results, [shown]),
        sentences=_sentences(results, shown),
        title=results.title(shown),
        subject=_describe_subject(results, shown, competing),
        others=describe_others(results, shown),
        warning=warning,
        beside=_describe_rivals(results, shown, competing),
        level=VerdictLevel.UNKNOWN if verdict is None else verdict.level,
        rule=words.rule,
        differences=_differences(results, shown),
        why=" ".join(filter(None, (words.reasons, *caveats))),
        loss=describe_loss(results, shown),
        advice=advice,
        is_advised_against=is_against,
    )


def _warn(results: Results, variants: Sequence[Variant]) -> str:
    titles: dict[str, list[str]] = {}  # by the reason
    for variant in variants:
        titles.setdefault(describe_rejection(results, variant), []).append(results.title(variant))
    return " ".join(_warning(listed(names), why, is_one=len(names) == 1) for why, names in titles.items() if why)


def _warning(title: str, why: str, *, is_one: bool = True) -> str:
    return f"Do not use this model ({title}): {why}." if is_one else f"Do not use {title}. Of each: {why}."


def _sentences(results: Results, shown: Variant) -> tuple[str, ...]:
    """Say which decisions the artifact still changes, then the accuracy with and without it."""
    original, title = results.original, results.title(shown)
    flips, biased, clean = (results.pair(original, shown, metric) for metric in (FLIPS, BIASED, CLEAN))
    sentences = []
    if flips:
        n = f"{flips[1].n:,} " if flips[1].n else ""
        artifact = f"the {results.meta['artifact']} artifact" if results.meta.get("artifact") else "the artifact"
        if kind := results.meta.get("transplant"):
            artifact += f", transplanted from other held-out images ({SENTENCES['transplants'][kind]}),"
        old, new = (percent(row.value) for row in flips)
        known = results.difference(shown, original, FLIPS)
        is_same = known is not None and known.low <= 0 <= known.high
        change = f", about as many as before ({old})" if is_same else f" instead of {old} before"
        sentences.append(f"On {n}test images {artifact} changes {new} of the decisions after {title}{change}.")
    elif not biased and results.chosen(original) and results.chosen(shown):
        unknown = results.why_unknown(BIASED)
        why = unknown.reason if unknown else "this run has no score of it"
        sentences.append(
            f"How often the model is right on images with the artifact would show whether the bias is gone, but {why}."
        )
    pairs = ((biased, "with the artifact"), (clean, "without it" if biased else "without the artifact"))
    parts = [_describe_move(results, shown, pair, on=f" on images {name}") for pair, name in pairs if pair]
    if parts:
        moved = f"balanced accuracy {', and '.join(parts)}."
        sentences.append(f"{moved[0].upper()}{moved[1:]}" if flips else f"After {title}, {moved}")
    return tuple(sentences) or (f"The original model and {title} share no score to compare.",)


def _differences(results: Results, shown: Variant) -> str:
    """Give the differences with their intervals; where the bias cannot be seen, also what is left to judge by."""
    original = results.original
    found = [
        f"{name} {write_points(one.value)} ({write_point_range(one.low, one.high)})"
        for metric, name in _NAMES.items()
        if (one := results.difference(shown, original, metric))
    ]
    text = (
        f"Differences on the same images, in points with {CONFIDENCE} intervals: {', '.join(found)}." if found else ""
    )
    seen = results.pair(original, shown, SEEN)
    if seen and not any(results.pair(original, shown, metric) for metric in (FLIPS, BIASED)):
        name, (old, new) = Metric.named(SEEN).label, (write_value(SEEN, row.value) for row in seen)
        text += (
            f" On test images, the {name} (mean size of the derivative of the logit along the direction, in "
            f"{unit_of(SEEN)}) goes from {old} to {new}."
        )
    return text.strip()
