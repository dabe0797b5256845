"""Run one of the paper's experiments on every model and artifact that is asked for, and write what it gave."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import open_subject
from hansfree.files import write_text, written_atomically
from hansfree.progress import Progress, silent
from hansfree.reproduce.base import Finding, Presentation, Reproduction
from hansfree.results import write_table
from hansfree.studies import Study


def reproduce(
    name: str,
    subjects: Sequence[tuple[Study, Plan]],
    *,
    out: Path,
    work: Path,
    command: str = "",
    progress: Progress = silent,
) -> Path:
    """Do an experiment and write its table, figures and page to ``out/name``; return the path of the page.

    Args:
        work: Folder for models, caches and runs, which all experiments share; what is there is not done again.
        command: What the user typed, for the page.
    """
    experiment = Reproduction.named(name)()
    findings: list[Finding] = []
    for study, plan in subjects:
        with open_subject(study, plan, work, progress=progress) as subject:
            findings.append(experiment.examine(subject))
    shown = experiment.present(findings)
    folder = out / name
    write_table(folder / "results.csv", [row for finding in findings for row in finding.rows])
    skipped = dict.fromkeys(sentence for study, _ in subjects for sentence in study.skipped)  # each once
    if skipped:
        write_text(folder / "skipped.txt", "\n".join(skipped) + "\n")
    for drawing in filter(None, shown.drawings):
        with written_atomically(folder / f"{drawing.name}.png") as temporary:
            drawing.figure.savefig(temporary, format="png", dpi=110)
    page = folder / "README.md"
    write_text(page, _page(experiment, shown, command, len(skipped)))
    return page


def _page(experiment: Reproduction, shown: Presentation, command: str, skipped: int) -> str:
    parts = [f"# {experiment.title}", f"Made by hansfree {version('hansfree')} with:", f"```bash\n{command}\n```"]
    if skipped:
        parts.append(f"{skipped} images could not be read and were left out: `skipped.txt`.")
    parts.append(shown.text.strip())
    parts += [f"![{each.alt}]({each.name}.png)\n\n{each.caption}" for each in filter(None, shown.drawings)]
    return "\n\n".join(parts) + "\n"
