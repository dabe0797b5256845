"""What corrections remove beside the run's own artifact, and what they keep: said, and measured where it can be."""

from __future__ import annotations

from collections.abc import Iterator

from hansfree.report.changes import FLIPS
from hansfree.report.numbers import percent
from hansfree.report.reading import Results, Variant
from hansfree.report.rivals import listed
from hansfree.results import ORIGINAL, Row, further_artifact


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
