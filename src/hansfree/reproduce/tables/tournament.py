"""The tournament in tables: wins, ties and losses against the paper's method and the default, then every setting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from hansfree.metrics.intervals import RESAMPLES
from hansfree.reproduce.keys import SubjectKey
from hansfree.reproduce.tables.markdown import markdown_table, paragraphs
from hansfree.selection import BalancedRule
from hansfree.tournament import (
    ALONG_PAIRS,
    BALANCED_REFERENCE,
    BIASED,
    CANDIDATES,
    ELECTED,
    ENTRANTS,
    MEASURES,
    PAIRING,
    PAPER,
    REFERENCE,
    Comparison,
    DrawAnswers,
    Match,
    Measure,
    compare,
)

Matches = Mapping[str, Match]  # entrant -> what it did
_TITLES = {
    BIASED: "Biased model",
    REFERENCE: "Clean-trained",
    BALANCED_REFERENCE: "Clean-trained, solved, balanced",
    ELECTED: "hansfree's default",
}
_BARS = {
    REFERENCE: "against clean-trained",
    BALANCED_REFERENCE: "against the solved, balanced one",
    PAPER: "against the paper's",
    ELECTED: "against hansfree's default",
}  # to whom every entrant is compared
DASH = "\N{EN DASH}"
_BIASED_SCORE: Measure = "balanced_accuracy_biased"
_HEADS = {
    "balanced_accuracy_clean": "balanced, clean",
    "balanced_accuracy_biased": "balanced, biased",
    "flip_rate": "flip rate",
}


def write_tournament(matches: Mapping[SubjectKey, Matches], *, labels: Mapping[SubjectKey, np.ndarray]) -> str:
    """Return all tables as Markdown."""
    answers = {key: answers_of(found) for key, found in matches.items()}
    parts = [
        "Every entrant has the same training images, validation images and rule: "
        f"{BalancedRule()}. Where no strength was admissible, the model stays as it was and is scored as such.",
        "## Wins, ties and losses",
        f"By balanced accuracy with the artifact{_over(len(matches))}:",
        _summary(answers, labels, _BIASED_SCORE),
        "By flip rate, the share of test images whose answer changes when the artifact is put in. Fewer flips win; the "
        "rule did not choose by it, and a model that gives one answer to everything has none:",
        _summary(answers, labels, "flip_rate"),
        "*Won*, *level*, *lost*: the 95 % interval of the paired difference lies on the better side of zero, holds it, "
        f"or lies on the worse. It comes from {RESAMPLES:,} draws of both test images and draws. *Over budget*: draws "
        "in which a method without strengths to choose from broke the rule, and those in which no strength could be "
        "taken.",
    ]
    for key, found in matches.items():
        parts += [f"## {key.title}", _setting(found, answers[key], labels[key])]
    parts.append(
        "Means over draws in %, ± the standard error over draws. *Against clean-trained*: the paired difference in "
        "balanced accuracy with the artifact, in points, with its 95 % interval; beside it the same to a clean-trained "
        "model whose head was solved and balanced too, and to the paper's RR-ClArC. *Validation*: balanced accuracy "
        "with the artifact on validation images."
    )
    if any(ELECTED in found for found in matches.values()):
        parts.append(
            f"*{title_of(ELECTED)}*, where the artifact can be put in, is in every draw the better one on validation "
            f"images of these: {'; '.join(map(title_of, CANDIDATES))}."
        )
    return paragraphs(*parts)


def answers_of(matches: Matches) -> dict[str, DrawAnswers]:
    """Return every entrant's answers; the biased model's own where no strength of it could be taken."""
    return {name: match.answers(matches[BIASED]) for name, match in matches.items()}


def title_of(name: str) -> str:
    """Return what readers call an entrant."""
    return _TITLES.get(name) or ENTRANTS[name].title


def has_direction(name: str) -> bool:
    """Tell whether an entrant corrects along a direction."""
    return name in ENTRANTS and ENTRANTS[name].has_direction


def _summary(
    answers: Mapping[SubjectKey, Mapping[str, DrawAnswers]], labels: Mapping[SubjectKey, np.ndarray], measure: Measure
) -> str:
    better = -1 if measure == "flip_rate" else 1
    names = [name for name in (*ENTRANTS, ELECTED) if all(name in found for found in answers.values())]
    rivals = [rival for rival in (*_BARS, ALONG_PAIRS, PAIRING) if all(rival in found for found in answers.values())]
    lines = []
    for name in names:
        cells = [title_of(name)]
        for rival in rivals:
            if name == rival:
                cells.append(DASH)
                continue
            signs = [compare(found[name], found[rival], labels[key], measure).sign for key, found in answers.items()]
            cells.append(f"{signs.count(better)} / {signs.count(0)} / {signs.count(-better)}")
        cells += [f"{100 * _mean(answers, labels, name, each):.1f}" for each in MEASURES]
        lines.append(cells)
    heads = ["entrant", *(f"against {title_of(rival)}" for rival in rivals)]
    return markdown_table([*heads, *_HEADS.values()], lines)


def _mean(
    answers: Mapping[SubjectKey, Mapping[str, DrawAnswers]],
    labels: Mapping[SubjectKey, np.ndarray],
    name: str,
    measure: Measure,
) -> float:
    return float(np.mean([found[name].score(labels[key], measure).mean() for key, found in answers.items()]))


def _setting(matches: Matches, answers: Mapping[str, DrawAnswers], labels: np.ndarray) -> str:
    bars = [bar for bar in _BARS if bar in matches]
    lines = []
    for name, match in matches.items():
        differences = [
            DASH if name == bar else _points(compare(answers[name], answers[bar], labels, _BIASED_SCORE))
            for bar in bars
        ]
        lines.append(
            [
                title_of(name),
                *(_score(answers[name].score(labels, measure)) for measure in MEASURES),
                *differences,
                _validation(match, matches[BIASED]),
                _range(o.strength for o in match.played.values()),
                _range(o.directions for o in match.played.values()) if has_direction(name) else DASH,
                _budget(match),
            ]
        )
    heads = [
        "entrant",
        *_HEADS.values(),
        *(_BARS[bar] for bar in bars),
        "validation",
        "strengths",
        "directions",
        "over budget",
    ]
    return markdown_table(heads, lines)


def _over(settings: int) -> str:
    return "" if settings == 1 else f", over {settings} settings"


def _score(values: np.ndarray) -> str:
    if len(values) < 2:
        return f"{100 * values.mean():.1f}"
    return f"{100 * values.mean():.1f} ± {100 * values.std(ddof=1) / np.sqrt(len(values)):.1f}"


def _points(found: Comparison) -> str:
    return f"{100 * found.value:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"


def _validation(match: Match, fallback: Match) -> str:
    taken = [ours or theirs for ours, theirs in zip(match.outcomes, fallback.outcomes)]
    return f"{100 * np.mean([outcome.val_biased for outcome in taken if outcome]):.1f}"


def _range(values: Iterable[float | None]) -> str:
    found = sorted({value for value in values if value is not None})
    if not found:
        return DASH
    return f"{found[0]:g}" if len(found) == 1 else f"{found[0]:g} to {found[-1]:g}"


def _budget(match: Match) -> str:
    over = sum(1 for outcome in match.outcomes if outcome is None or outcome.objection)
    return f"{over} of {len(match.outcomes)}" if over else ""
