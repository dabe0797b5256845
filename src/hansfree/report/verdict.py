"""The setting and the outcome of a run in a few plain sentences, computed from the test rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hansfree.metrics import Metric
from hansfree.report.changes import DECISIVE, FLIPS, describe_differences, describe_move, pair_of
from hansfree.report.leaning import describe_class, describe_other_lean
from hansfree.report.losing import describe_loss
from hansfree.report.numbers import percent, unit_of, write_value
from hansfree.report.one_sided import describe_one_sided
from hansfree.report.reading import FIRST, Results, Variant, method_title
from hansfree.report.removal import describe_others, describe_removal
from hansfree.report.rivals import describe_rivals, listed
from hansfree.report.ruling import Judgement, Ruling
from hansfree.report.settings import without_folders
from hansfree.report.subject import describe_subject
from hansfree.report.usable import CLEAN, kind_of, objection_to, why_no_model
from hansfree.results import ORIGINAL, Row

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
