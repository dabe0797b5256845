"""Run one of the paper's experiments on every model and artifact that is asked for, and write what it gave."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

from hansfree.errors import OptionError
from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import open_subject
from hansfree.files import write_text, written_atomically
from hansfree.progress import Progress, silent
from hansfree.reproduce.base import Finding, Presentation, Reproduction, name_subject
from hansfree.reproduce.keys import SubjectKey
from hansfree.reproduce.settings import Words, write_settings
from hansfree.results import write_table
from hansfree.studies import Study

_PAGE, _SKIPPED = "README.md", "skipped.txt"

T = TypeVar("T")


def reproduce(
    name: str,
    subjects: Sequence[tuple[Study, Plan]],
    *,
    out: Path,
    work: Path,
    command: str = "",
    progress: Progress = silent,
) -> Path:
    """Do an experiment and write its table, figures and page to ``out/data/name``; return the path of the page.

    Args:
        work: Folder for models, caches and runs, which all experiments share; what is there is not done again.
        command: What the user typed, for the page.
    """
    experiment = Reproduction.named(name)()
    _check_names(subjects)
    folder = out / "-".join(dict.fromkeys(study.name for study, _ in subjects)) / name
    skipped = tuple(dict.fromkeys(sentence for study, _ in subjects for sentence in study.skipped))  # each once
    # now: the work may take days, and a reader of its log wants to know what it is done without
    _write_or_remove(folder / _SKIPPED, "".join(f"{sentence}\n" for sentence in skipped))
    for study, plan in subjects:
        experiment.check(study, plan)
    findings: list[Finding] = []
    settings: dict[SubjectKey, Words] = {}
    for place, (study, plan) in enumerate(subjects, start=1):
        about = f"{place}/{len(subjects)} {plan.model} {study.artifact}: " if len(subjects) > 1 else ""
        with open_subject(study, plan, work, progress=_labelled(progress, about)) as subject:
            finding = experiment.examine(subject)
            findings.append(finding)
            settings[finding.key] = experiment.describe(subject, finding)
    # before anything is drawn: what took days must not be lost with a figure
    write_table(folder / "results.csv", [row for finding in findings for row in finding.rows])
    shown = experiment.present(findings)
    for file, text in shown.files.items():
        _write_or_remove(folder / file, text)
    _draw(folder, shown)
    remarks = tuple(dict.fromkeys(sentence for study, _ in subjects for sentence in study.remarks))
    page = _page(experiment, shown, settings, command=command, skipped=len(skipped), remarks=remarks)
    write_text(folder / _PAGE, page)
    return folder / _PAGE


def _check_names(subjects: Sequence[tuple[Study, Plan]]) -> None:
    """Refuse two subjects of one name, such as one model in two sizes: a page could not tell them apart."""
    names = Counter(name_subject(study, plan).title for study, plan in subjects)
    if twice := [name for name, count in names.items() if count > 1]:
        raise OptionError(
            f"{twice[0]} was asked for {names[twice[0]]} times. Allowed is every model with every artifact once: other "
            "sizes, epochs or weights of it go into a folder of their own (--out)."
        )


def _labelled(progress: Progress, about: str) -> Progress:
    """Say of every step which subject it belongs to."""

    def show(steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
        return progress(steps, total=total, label=f"{about}{label}")

    return show


def _write_or_remove(path: Path, text: str) -> None:
    """Write a file, or remove that of an earlier run where there is nothing to write."""
    if text:
        write_text(path, text)
    else:
        path.unlink(missing_ok=True)


def _draw(folder: Path, shown: Presentation) -> None:
    """Write the figures; those of an earlier page that this one does not have go."""
    page = folder / _PAGE
    before = re.findall(r"^!\[.*\]\((\S+\.png)\)$", page.read_text(encoding="utf-8"), re.M) if page.exists() else []
    drawings = {f"{drawing.name}.png": drawing for drawing in shown.drawings if drawing is not None}
    for file, drawing in drawings.items():
        with written_atomically(folder / file) as temporary:
            drawing.figure.savefig(temporary, format="png", dpi=110)
    for file in set(before) - drawings.keys():
        (folder / file).unlink(missing_ok=True)


def _page(
    experiment: Reproduction,
    shown: Presentation,
    settings: Mapping[SubjectKey, Words],
    *,
    command: str,
    skipped: int,
    remarks: Sequence[str],
) -> str:
    made = f"Made by hansfree {version('hansfree')} with PyTorch {version('torch')}"
    parts = [f"# {experiment.title}", *([f"{made}:", f"```bash\n{command}\n```"] if command else [f"{made}."])]
    parts += ["## Setting", write_settings(settings), *remarks]
    if skipped:
        parts.append(f"Left out: {skipped} files that cannot be read or that the table does not list (`{_SKIPPED}`).")
    parts += ["## Results", shown.text.strip()]
    parts += [f"![{each.alt}]({each.name}.png)\n\n{each.caption}" for each in filter(None, shown.drawings)]
    return "\n\n".join(parts) + "\n"
