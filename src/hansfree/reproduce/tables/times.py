"""The run-time table: seconds per epoch, and relative to Vanilla."""

from __future__ import annotations

from collections.abc import Mapping

from hansfree.report.numbers import MISSING
from hansfree.report.reading import method_title
from hansfree.reproduce.keys import Facts, FactsBySubject, Subjects
from hansfree.reproduce.tables.departures import write_departures
from hansfree.reproduce.tables.markdown import markdown_table, paragraphs
from hansfree.reproduce.times import seconds_of

_NOTE = (
    "Mean ± standard error over the runs; relative to Vanilla in %. The paper's times are of another machine (a Tesla "
    "V100) and of whole epochs with the trunk; ours train the head on the cache, and only RRR needs the trunk again. "
    "Compare the relative columns."
)


def write_times(subjects: Subjects, *, facts: FactsBySubject | None = None) -> str:
    """Return absolute and relative times of every method, and the paper's."""
    heads = ["subject", "method", "runs", "s per epoch", "relative [%]", "paper: s per epoch", "paper: relative [%]"]
    body = []
    for key, rows in subjects.items():
        published = (facts or {}).get(key, Facts()).published
        theirs = (
            {method: pair for (model, method), pair in published.seconds.items() if model == key.model}
            if published
            else {}
        )
        means = seconds_of(rows)
        ours = {method: (mean.value, mean.seed_error if mean.repeats > 1 else None) for method, mean in means.items()}
        for method, mean in means.items():
            cells = [*_pair(ours, method), *_pair(theirs, method)]
            body.append([key.title, method_title(method), str(mean.repeats), *cells])
    return paragraphs(markdown_table(heads, body), _NOTE, write_departures(facts))


def _pair(times: Mapping[str, tuple[float, float | None]], method: str) -> list[str]:
    """Return a method's time, and its share of Vanilla's, both with the method's own error, as in the paper."""
    if method not in times:
        return [MISSING, MISSING]
    value, error = times[method]
    absolute = f"{value:.3g}" + (f" ± {error:.2g}" if error is not None else "")
    whole = times.get("vanilla", (0.0, None))[0]
    if not whole:
        return [absolute, MISSING]
    return [absolute, f"{100 * value / whole:.1f}" + (f" ± {100 * error / whole:.1f}" if error is not None else "")]
