"""Sentences of the report: verdict, setting, comparisons and caveats."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

import yaml

from hansfree.corrections import Vanilla
from hansfree.metrics import LEVEL, ArtifactRelevance, Interval, Metric, holm
from hansfree.report.numbers import CONFIDENCE, percent, unit_of, write_point_range, write_points, write_value
from hansfree.report.reading import (
    CLEAN,
    FIRST,
    REFERENCES,
    Gain,
    Judgement,
    Results,
    Ruling,
    Seen,
    Variant,
    breaks_rule,
    budget_of,
    class_budgets_of,
    describe_rule,
    explain,
    kind_of,
    method_title,
    objection_to,
    rule_on,
    why_no_model,
)
from hansfree.report.tables import ONE_SIDED, marks_of
from hansfree.results import CLEAN_TRAINED, ORIGINAL, Row, further_artifact

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


DECISIVE, FLIPS = "balanced_accuracy_biased", "flip_rate"

PULL, SPECIFICITY = "probability_change", "specificity_biased"  # the latter of the biased class, where it is compared

_NAMES = {
    FLIPS: "flips",
    DECISIVE: "balanced accuracy with the artifact",
    CLEAN: "balanced accuracy without the artifact",
    PULL: "pull of the artifact (probability change)",
}


def judge_methods(results: Results) -> dict[str, Judgement]:
    """Rule on the model of every method, by its own faults and merits alone; of repeats the first counts."""
    variants = {variant.method: variant for variant in reversed(results.methods()) if variant.method not in REFERENCES}
    return {method: _judge(results, variants.get(method)) for method in dict.fromkeys([*results.selection, *variants])}


def pair_of(before: Mapping[str, Row], after: Mapping[str, Row], metric: str) -> tuple[Row, Row] | None:
    """Return a score before and after, where both are numbers."""
    rows = before.get(metric), after.get(metric)
    if rows[0] is None or rows[1] is None or not (math.isfinite(rows[0].value) and math.isfinite(rows[1].value)):
        return None
    return rows[0], rows[1]


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
    told = f"Differences on the same images, in points with {CONFIDENCE} intervals: {', '.join(found)}."
    return told if found else ""


def is_clearly_better(results: Results, variant: Variant, rival: Variant) -> bool:
    """Tell whether a model beats another as the rule has it: one of the two scores clearly better, none worse."""
    return rule_on(Seen(over_original=_gain(results, variant, rival))) == "partly corrected"


def _judge(results: Results, variant: Variant | None) -> Judgement:
    seen = Seen(is_usable=False) if variant is None else _gather(results, variant)
    classes = {results.class_title(label): most for label, most in class_budgets_of(results).items()}
    rule = describe_rule(seen, budget=budget_of(results), class_budgets=classes)
    return Judgement(rule_on(seen), rule, explain(seen))


def _gather(results: Results, variant: Variant) -> Seen:
    """Return what the rule looks at."""
    is_usable = not objection_to(results, variant)
    original, vanilla, clean_trained = map(results.variant, (ORIGINAL, Vanilla.name, CLEAN_TRAINED))
    if original is None:
        return Seen(is_usable=is_usable)
    rates, pulls = (pair_of(results.chosen(original), results.chosen(variant), metric) for metric in (FLIPS, PULL))
    # a head that always gives the same answer flips nothing: nobody is asked to beat that
    is_rival = vanilla is not None and vanilla != variant and kind_of(results, vanilla) == "method"
    return Seen(
        is_usable=is_usable,
        flips=(rates[0].value, rates[1].value) if rates else None,
        over_original=_gain(results, variant, original),
        over_vanilla=_gain(results, variant, vanilla) if vanilla and is_rival else None,
        pull=(pulls[0].value, pulls[1].value) if pulls else None,
        pull_change=_interval(results, variant, original, PULL),
        false_alarms=_false_alarms(results, original, variant),
        specificity_change=_interval(results, variant, original, SPECIFICITY),
        flips_beyond_clean=_interval(results, variant, clean_trained, FLIPS) if clean_trained else None,
    )


def _false_alarms(results: Results, original: Variant, variant: Variant) -> tuple[float, float] | None:
    """Return the share of other classes' images that the biased class is said of, with the artifact."""
    label = results.meta.get("biased_class")
    if not isinstance(label, int):
        return None
    rows = [results.of_classes(each, SPECIFICITY).get(label) for each in (original, variant)]
    known = [1 - row.value for row in rows if row is not None]
    return (known[0], known[1]) if len(known) == 2 else None


def _gain(results: Results, variant: Variant, rival: Variant) -> Gain:
    flips = results.difference(variant, rival, FLIPS)
    return Gain(
        flips=_interval(results, variant, rival, FLIPS),
        flips_p=flips.p if flips else None,
        accuracy=_interval(results, variant, rival, DECISIVE),
    )


def _interval(results: Results, variant: Variant, rival: Variant, metric: str) -> Interval | None:
    found = results.difference(variant, rival, metric)
    return (found.low, found.high) if found else None


_SUBJECT_NAMES = {FLIPS: "flips", DECISIVE: "balanced accuracy with the artifact"}


def describe_subject(results: Results, shown: Variant, competing: Sequence[Variant]) -> str:
    """Say on whom the verdict is and why, then who does clearly better: a reader must not take the subject for best."""
    title = shown.title(results.methods())
    if shown.method == results.meta.get("recommended"):
        judgement = results.rulings.get(shown.method)
        is_guess = judgement is not None and judgement.ruling == "cannot be known"
        why = "the run's best guess" if is_guess else "which the run recommends"
    elif shown.method == FIRST:
        why = "the method that hansfree is built around"
    else:
        why = "the best of the others on validation images" if len(competing) > 1 else "the only one that can be shown"
    rivals = [_describe_better(results, rival, shown) for rival in better_rivals(results, shown, competing)]
    return " ".join([f"The verdict is on {title}, {why}.", *rivals])


def better_rivals(results: Results, shown: Variant, competing: Sequence[Variant]) -> list[Variant]:
    """Return the methods that may be used and beat the shown one by the verdict's own rule, the best first."""
    found = [
        rival
        for rival in competing
        if rival != shown and is_clearly_better(results, rival, shown) and not objection_to(results, rival)
    ]
    return sorted(found, key=lambda rival: -_score(results, rival))


def _score(results: Results, variant: Variant) -> float:
    row = results.chosen(variant).get(DECISIVE)
    return row.value if row else 0.0


def _describe_better(results: Results, rival: Variant, shown: Variant) -> str:
    pairs = {
        name: pair_of(results.chosen(shown), results.chosen(rival), metric) for metric, name in _SUBJECT_NAMES.items()
    }
    told = [
        f"{name} {percent(pair[1].value)} instead of {percent(pair[0].value)}" for name, pair in pairs.items() if pair
    ]
    return f"{rival.title(results.methods())} is clearly better here: {', '.join(told)}."


def describe_rivals(results: Results, shown: Variant, competing: list[Variant]) -> str:
    """Say who is best, what plain fine-tuning wins, and what a model trained on clean data does."""
    parts = (_rank(results, shown, competing), _plain(results, shown), _reference(results))
    return " ".join(part for part in parts if part)


def _rank(results: Results, shown: Variant, competing: list[Variant]) -> str:
    marks = marks_of(results, DECISIVE, competing)
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
    plain = results.variant(Vanilla.name)
    if plain is None or plain == shown or kind_of(results, plain) != "method":
        return ""
    scores = results.chosen(plain)
    parts = [
        f"{percent(scores[metric].value)} {name}"
        for metric, name in ((FLIPS, "flips"), (DECISIVE, "balanced accuracy with the artifact"))
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


_PULL, _TCAV = "probability_change", "tcav"

_NEUTRAL = 0.5  # TCAV of a direction that speaks neither for the class nor against it


def describe_class(results: Results) -> str:
    """Say how the artifact goes with a class: taken as its sign where insertion showed that, else how often it is."""
    name = _name_of_class(results)
    if not name:
        return ""
    pull = _group_score(results, _PULL)
    if pull is not None and pull.value > 0:
        return f", taken as a sign of “{name}”"
    return f", {'most frequent' if _is_most_frequent(results) else 'looked for'} in “{name}”"


def describe_other_lean(results: Results) -> str:
    """Say that the model as it came leans away from that class; empty where it does not, or nobody measured it."""
    name = _name_of_class(results)
    if not name:
        return ""
    pull, tcav = _group_score(results, _PULL), _group_score(results, _TCAV)
    if pull is not None:  # of the two it is the better evidence
        if pull.value >= 0:
            return ""
        return (
            f"The model as it came leans the other way: the artifact makes “{name}” less probable, by "
            f"{100 * -pull.value:.1f} points."
        )
    if tcav is None or tcav.value >= _NEUTRAL:
        return ""
    images = f"the {tcav.n:,} test images" if tcav.n else "the test images"
    return (
        f"The model as it came seems to lean the other way: TCAV is {percent(tcav.value)}, so in most of {images} the "
        f"direction speaks against “{name}”."
    )


def _group_score(results: Results, metric: str) -> Row | None:
    """Return a score of the model as it came, where that is a number."""
    original = results.variant(ORIGINAL)
    row = results.chosen(original).get(metric) if original else None
    return row if row is not None and math.isfinite(row.value) else None


def _name_of_class(results: Results) -> str:
    biased = results.meta.get("biased_class")
    if biased is None:
        return ""
    return results.class_title(biased) if isinstance(biased, int) else f"class {biased}"


def _is_most_frequent(results: Results) -> bool:
    """Tell whether no class has a larger share of training images with the artifact; where nobody counted, it is so."""
    shares = {
        each["class"]: each.get("with_artifact", 0) / each["images"]
        for each in results.meta.get("counts") or ()
        if each["set"] == "train" and each["images"]
    }
    return not shares or shares.get(_name_of_class(results)) == max(shares.values())


_SENSITIVITY = "sensitivity_clean"  # with the artifact the biased class must lose what the shortcut gave it

_MOST_NAMED = 3  # classes of which it cannot be known


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
        told = "Without the artifact, no class has a lower sensitivity than before."
        return f"{told}{_unknown(results)}"
    p_values = _p_values(results, shown, changes)
    clear = [label for label, p in p_values.items() if p < 1 - LEVEL and changes[label] < 0]
    label = min(clear, key=lambda label: changes[label], default=largest)
    name, chance = f"“{results.class_title(label)}”", ""
    if clear:
        who, goes = f"{name} loses most of all classes" if label == largest else f"{name} clearly loses", "falls"
    else:
        who, goes = f"The largest fall of a class is that of {name}", "goes"
        chance = ", which may be chance" if p_values else ""
    old, new = (percent(rows[label].value) for rows in (before, after))
    n = after[label].n
    images = f" ({n:,} test images)" if n else ""
    return f"{who}: its sensitivity without the artifact {goes} from {old} to {new}{images}{chance}.{_unknown(results)}"


def _p_values(results: Results, shown: Variant, labels: Iterable[int]) -> dict[int, float]:
    """Return McNemar's p of each class, corrected for their number: of many, one always falls by chance."""
    found = {label: results.class_difference(shown, label) for label in labels}
    known = {label: one.p for label, one in found.items() if one is not None and one.p is not None}
    return dict(zip(known, holm(list(known.values()))))


def _unknown(results: Results) -> str:
    """Say of which classes nobody can know, with a space before it."""
    labels = sorted(results.unknown_classes(_SENSITIVITY))
    if not labels:
        return ""
    names = [f"“{results.class_title(label)}”" for label in labels]
    of = listed(names) if len(names) <= _MOST_NAMED else f"{len(names):,} classes"
    return f" Of {of}, with too few test images, it cannot be known."


def describe_one_sided(results: Results, shown: Variant) -> str:
    """Say in one sentence how accuracy with the artifact changes, and why that is no verdict; empty if it is one."""
    original = results.variant(ORIGINAL)
    before, after = (results.chosen(each).get(ONE_SIDED) if each else None for each in (original, shown))
    if not results.is_one_sided or before is None or after is None or not math.isfinite(before.value + after.value):
        return ""
    n = f"{after.n:,} " if after.n else ""
    change = describe_move(results, shown, (before, after))
    told = f"On the {n}test images with the artifact accuracy {change}; {_whose(results)}"
    if after.value < before.value and not change.startswith("stays"):
        return f"{told}, so part of that may be a shortcut going away: it cannot be told."
    return f"{told}, where a shortcut would be right too: whether one is gone cannot be told."


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
    told = "Artifact relevance is the share of absolute relevance that lies where the artifact is"
    told += f", on the first {n} test images with the artifact: heatmaps take long." if n else "."
    missing = [
        method_title(variant.method)
        for variant, row in found.items()
        if row is None and variant.method != ORIGINAL and kind_of(results, variant) == "method"
    ]
    if missing:
        told += (
            f" {', '.join(missing)} cannot be scored: nobody marked where the artifact is in these images, so the "
            "direction was asked, and methods that were trained with the direction, or with masks from it, must not be "
            "judged by it."
        )
    return told


def describe_removal(results: Results) -> str:
    """Say what is removed together and what is kept; empty where a run is about its own artifact alone."""
    angles: dict[str, float] = results.meta.get("removed") or {}
    if not angles:
        return ""
    together, kept = " together" if len(angles) > 1 else "", _kept(results)
    told = f"Corrections along a direction remove {listed(list(angles))}{together}"
    told += f" and keep {listed(kept)}" if kept else ""
    told += f"; all others know {_own(results)} only."
    if kept:
        degrees = listed([f"{name} at {angle:.0f}" for name, angle in angles.items()])
        told += f" Degrees to what is kept, 90 where they share nothing: {degrees}."
    return told


def describe_others(results: Results, shown: Variant) -> str:
    """Say what became of the other artifacts under a method: those that it removes too, and those that it keeps."""
    return " ".join(_told_of_others(results, shown))


def mark_artifact(results: Results, artifact: str) -> str:
    """Return the name of an artifact that was put in, with what the corrections do about it."""
    if artifact in (results.meta.get("removed") or ()):
        return f"{artifact} (removed too)"
    return f"{artifact} (kept)" if artifact in _kept(results) else artifact


def _told_of_others(results: Results, shown: Variant) -> Iterator[str]:
    removed = [name for name in results.meta.get("removed") or () if name != _own(results)]
    others = [*removed, *_kept(results)]
    if not others:
        return
    if shown.cav is None:
        yield f"{shown.title(results.methods())} goes along no direction: it was made against {_own(results)} only."
    unknown = []
    for name in others:
        before, after = (_flips(results, method, name) for method in (ORIGINAL, shown.method))
        if before is None or after is None:
            unknown.append(name)
            continue
        what = "removed too" if name in removed else "kept"
        yield (
            f"Put into the same images by hansfree, {name} ({what}) changes {percent(after.value)} of the decisions "
            f"instead of {percent(before.value)}."
        )
    if unknown:
        yield f"Not measured, as hansfree cannot put it into test images: {listed(unknown)}."


def _flips(results: Results, method: str, artifact: str) -> Row | None:
    rows = (row for row in results.further if (row.method, row.metric) == (method, FLIPS))
    return next((row for row in rows if further_artifact(row) == artifact), None)


def _own(results: Results) -> str:
    return results.meta.get("artifact") or "artifact"


def _kept(results: Results) -> list[str]:
    return results.meta.get("protected") or []


SEEN = "tcav_sensitivity"  # what is left to judge by where that cannot be known


@dataclass(frozen=True)
class Verdict:
    """What is wrong (empty if nothing), what happened, what that is called and why, and what the run advises."""

    failure: str
    sentences: tuple[str, ...]  # two at most: the decisions that the artifact changes, and balanced accuracy
    title: str = ""  # whose model it is about
    subject: str = ""  # the same in words, with the reason, and who is clearly better
    others: str = ""  # what became of other artifacts that are removed or kept
    warning: str = ""  # of RR-ClArC's model, where another is shown because that must not be used
    beside: str = ""  # how the other methods did
    differences: str = ""  # what the sentences rest on: intervals, or what is left to judge by
    ruling: Ruling = "do not use"
    rule: str = ""  # by which it is called so
    why: str = ""  # what stood in the way of a better word
    loss: str = ""  # which class pays for it
    advice: tuple[str, ...] = ()
    is_advised_against: bool = False  # the run says that none of its models is to be used

    @property
    def headline(self) -> str:
        """The ruling as the first words of the verdict; nothing where a failure says it all."""
        if self.failure:
            return ""
        # beside a warning of another model it has to be said whose ruling it is
        return f"{self.title}: {self.ruling}." if self.warning else f"{self.ruling[:1].upper()}{self.ruling[1:]}."

    @property
    def lines(self) -> tuple[str, ...]:
        """What the page says first, for a terminal."""
        told = " ".join(filter(None, (self.headline, *self.sentences)))
        parts = (self.failure, self.warning, told, self.why, self.loss, self.others, self.subject)
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


def shown_variant(results: Results) -> Variant | None:
    """Return what the report is about: what the run recommends, else RR-ClArC, or the best where that is unusable.

    Of several (methods, or targets and norms of one) the best on validation images speaks: on test images the best
    would look better than it is.
    """
    competing = _competing(results)
    lead = _recommended(results) or FIRST
    wanted = [variant for variant in competing if variant.method == lead] or competing
    scores = {variant: score for variant in wanted if (score := results.validation_score(variant)) is not None}
    return max(scores, key=lambda variant: scores[variant]) if scores else next(iter(wanted), None)


def reach_verdict(results: Results) -> Verdict:
    """Compare the shown method with the model as it came, and say which model must not be used."""
    shown = shown_variant(results)
    meta = results.meta
    advice = tuple(meta.get("advice") or ())
    is_against = "recommended" in meta and meta["recommended"] is None
    if shown is None:
        nothing = ("No method has a usable result on the test images.",)
        return Verdict(_failure(results, None), nothing, advice=advice, is_advised_against=is_against)
    competing = _competing(results)
    judgement = results.rulings.get(shown.method, Judgement("cannot be known", ""))
    return Verdict(
        failure=_failure(results, shown),
        sentences=_sentences(results, shown),
        title=shown.title(results.methods()),
        subject=describe_subject(results, shown, competing),
        others=describe_others(results, shown),
        warning=_warning(results, shown),
        beside=describe_rivals(results, shown, competing),
        ruling=judgement.ruling,
        rule=judgement.rule,
        differences=_differences(results, shown),
        why=" ".join(filter(None, (judgement.why, describe_one_sided(results, shown)))),
        loss=describe_loss(results, shown),
        advice=advice,
        is_advised_against=is_against,
    )


def _competing(results: Results) -> list[Variant]:
    """Return the models that a reader can choose among: of the run's own seed, as repeats are no other methods."""
    found = [variant for variant in results.methods() if kind_of(results, variant) == "method"]
    return [variant for variant in found if results.is_first(variant)]


def _recommended(results: Results) -> str | None:
    """Return the method that the run recommends; None where it recommends none, or says nothing."""
    return results.meta.get("recommended")


def _failure(results: Results, shown: Variant | None) -> str:
    """Warn of the shown model, by its own faults alone; of all where none can be shown."""
    if shown is not None:
        return _warn(results, [shown])
    told = " ".join(filter(None, (_warn_of_none(results), _warn(results, results.methods()))))
    return told or f"{method_title(FIRST)} is missing from this run."


def _warning(results: Results, shown: Variant) -> str:
    """Warn of RR-ClArC's model where another is shown in its place; of one that is recommended, nobody else counts."""
    if shown.method in (FIRST, _recommended(results)):
        return ""
    return _warn_of_none(results) or _warn(results, [each for each in results.methods() if each.method == FIRST])


def _warn(results: Results, variants: Sequence[Variant]) -> str:
    objections = {variant.title(results.methods()): objection_to(results, variant) for variant in variants}
    return " ".join(f"Do not use this model ({title}): {why}." for title, why in objections.items() if why)


def _warn_of_none(results: Results) -> str:
    """Say why RR-ClArC was run and has no model."""
    if results.variant(FIRST) is not None or FIRST not in results.selection:
        return ""
    return f"Do not use this model ({method_title(FIRST)}): {why_no_model(results, FIRST)}."


def _sentences(results: Results, shown: Variant) -> tuple[str, ...]:
    """Say what the artifact still does, then what the model is worth with and without it."""
    before, after = _scores(results, shown)
    flips, biased, clean = (pair_of(before, after, metric) for metric in (FLIPS, DECISIVE, CLEAN))
    title = shown.title(results.methods())
    sentences = []
    if flips:
        n = f"{flips[1].n:,} " if flips[1].n else ""
        sentences.append(f"On {n}test images {_artifact(results)} changes {_shares(results, shown, flips)}.")
    elif not biased and before and after:
        unknown = results.why_unknown(DECISIVE)
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
    told = [describe_differences(results, original, shown)] if original else []
    if not any(pair_of(before, after, metric) for metric in (FLIPS, DECISIVE)) and (
        seen := pair_of(before, after, SEEN)
    ):
        # the derivative along the direction that the method was trained on
        name, (old, new) = Metric.named(SEEN).label, (write_value(SEEN, row.value) for row in seen)
        told.append(
            f"On test images, the {name} (mean size of the derivative of the logit along the direction, in "
            f"{unit_of(SEEN)}) goes from {old} to {new}."
        )
    return " ".join(filter(None, told))


def _scores(results: Results, shown: Variant) -> tuple[dict[str, Row], dict[str, Row]]:
    """Return the scores of the model as it came, and of the corrected one."""
    original = results.variant(ORIGINAL)
    return results.chosen(original) if original else {}, results.chosen(shown)


def _artifact(results: Results) -> str:
    return f"the {results.meta['artifact']} artifact" if results.meta.get("artifact") else "the artifact"
