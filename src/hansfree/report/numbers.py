"""How scores are written: shares in percent with one digit, magnitudes in thousandths with three significant ones."""

from __future__ import annotations

import math

from hansfree._internal.statistics import LEVEL, Interval, share_interval
from hansfree.evaluation import Row

CONFIDENCE = f"{100 * LEVEL:g} %"  # of every interval on the page
MISSING = "\N{EN DASH}"
_MAGNITUDES = (
    "tcav_sensitivity",
    "tcav_sensitivity_positions",
)  # every other metric is a share of images, positions or relevance
_COUNTED = ("accuracy_", "sensitivity_", "specificity_", "flip_rate", "tcav")  # how shares of images begin
_THOUSAND = 1000  # the paper's tables print sensitivity in thousandths


def is_share(metric: str) -> bool:
    """Return whether a metric is a fraction, written in percent."""
    return metric not in _MAGNITUDES


def unit_of(metric: str) -> str:
    """Return the unit in which a metric is written."""
    return "%" if is_share(metric) else "10\N{SUPERSCRIPT MINUS}\N{SUPERSCRIPT THREE}"


def write_value(metric: str, value: float) -> str:
    """Write a score without its unit; a change carries its sign."""
    if not math.isfinite(value):
        return MISSING
    if not is_share(metric):
        return f"{_THOUSAND * value:.3g}"
    return write_points(value) if metric == "probability_change" else _signed(f"{100 * value:.1f}")


def write_points(change: float) -> str:
    """Write a change of a share in points, with its sign."""
    return _signed(f"{100 * change:+.1f}") if math.isfinite(change) else MISSING


def write_drop(drop: float, stderr: float) -> str:
    """Write a loss in points with its standard error."""
    return f"{100 * drop:.1f} ± {100 * stderr:.1f} points"


def write_stderr(metric: str, stderr: float | None) -> str:
    """Write a standard error in the unit of its score; empty if missing or 0, which would claim certainty."""
    if stderr is None or not math.isfinite(stderr) or stderr == 0:
        return ""
    return f"{100 * stderr:.1f}" if is_share(metric) else f"{_THOUSAND * stderr:.2g}"


def interval_at_end(row: Row) -> Interval | None:
    """Return Wilson's interval of a share of images that is 0 or 1: there the standard error is 0, and says nothing.

    Positions of one image are alike, so shares of positions count by images too. None for all other scores.
    """
    if row.value not in (0, 1) or not row.n or not row.metric.startswith(_COUNTED) or not is_share(row.metric):
        return None
    return share_interval([bool(row.value)] * row.n)


def write_range(low: float, high: float) -> str:
    """Write the interval of a share in percent."""
    return f"{100 * low:.1f}\N{EN DASH}{100 * high:.1f}"


def write_point_range(low: float, high: float) -> str:
    """Write the interval of a change in points; a dash between signs would be hard to read."""
    return f"{write_points(low)} to {write_points(high)}"


def percent(share: float) -> str:
    """Write a share inside a sentence."""
    return f"{_signed(f'{100 * share:.1f}')}\N{NO-BREAK SPACE}%"


def _signed(text: str) -> str:
    if float(text) == 0:  # neither "-0.0" nor "+0.0" says anything
        return text.lstrip("+-")
    return text.replace("-", "\N{MINUS SIGN}")


def write_p(p: float) -> str:
    """Write a p-value with two or three digits; tiny ones as a bound."""
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"
