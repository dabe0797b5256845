"""Where our setting is not the paper's: its numbers stand beside ours all the same, with this sentence."""

from __future__ import annotations

from hansfree.reproduce.keys import Facts, FactsBySubject, SubjectKey


def write_departures(facts: FactsBySubject | None) -> str:
    """Return a sentence per way in which subjects with published numbers depart from the paper; empty where none do."""
    subjects: dict[tuple[str, ...], list[str]] = {}
    for key, known in (facts or {}).items():
        if _is_published(key, known) and known.departures:
            subjects.setdefault(known.departures, []).append(key.title)
    return "\n\n".join(
        f"Not the paper's setting ({', '.join(titles)}): {'; '.join(departures)}."
        for departures, titles in subjects.items()
    )


def _is_published(key: SubjectKey, facts: Facts) -> bool:
    return facts.published is not None and any(model == key.model for model, *_ in facts.published.scores)
