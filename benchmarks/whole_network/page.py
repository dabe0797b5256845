"""Write the guide and the page of tables from the results: ``python -m benchmarks.whole_network.page``."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from benchmarks.whole_network.__main__ import CANDIDATES, DEEP
from benchmarks.whole_network.settings import SETTINGS
from hansfree.corrections.deep.selection import EFFECT_COST, ValidationScore, choose_candidate, merit
from hansfree.report import markdown_table

TABLE = Path("results/whole_network.csv")
PAGES = {"page.md": Path("docs/whole-network.md"), "tables.md": Path("results/whole_network.md")}  # by template
CHOOSABLE = (*DEEP, "rr-clarc")  # both families; RR-ClArC with the strength that its own rule takes
GAP_TO_CLOSE, FLIPS_ABOVE_REFERENCE, CLEAN_DROP = 0.8, 0.10, 0.02  # what counts as corrected

Row = dict[str, Any]


@dataclass(frozen=True)
class Trial:
    """All rows of one trial, and what the rule chose among the candidates."""

    setting: str
    trial: int
    labels: str
    rows: Sequence[Row]

    def find(self, method: str, strength: float | None = None) -> Row | None:
        """Return the row of a method that has scores."""
        for row in self.rows:
            if row["method"] == method and row["test_biased"] is not None and strength in (None, row["strength"]):
                return row
        return None

    @property
    def title(self) -> str:
        """What the trial is called in tables."""
        return self.setting + (f", trial {self.trial}" if self.trial else "")

    @property
    def is_complete(self) -> bool:
        """Whether the candidates were run; one that could not be made has a row with its error."""
        done = {(row["method"], row["strength"]) for row in self.rows}
        return done.issuperset(CANDIDATES)

    @property
    def candidates(self) -> list[Row]:
        """Rows that the rule may choose from."""
        return [row for row in self.rows if row["method"] in CHOOSABLE and row["rule_clean"] is not None]

    def chosen(self, original: Row) -> Row:
        """Return the row that the rule chooses; the original where no candidate is better by the rule."""
        if original["rule_clean"] is None:
            return original
        strengths = [(row["method"], row["strength"] or 0.0) for row in self.candidates]
        index = choose_candidate([_score(row) for row in self.candidates], _score(original), strengths=strengths)
        return original if index is None else self.candidates[index]


def read_trials(path: Path) -> list[Trial]:
    """Read the table, grouped by trial."""
    words = ("setting", "labels", "method", "rule_evidence", "rule_lost", "error", "commit")
    grouped: dict[tuple[str, int, str], list[Row]] = {}
    with path.open(newline="") as file:
        for cells in csv.DictReader(file):
            row = {
                name: (cell or None) if name in words else float(cell) if cell else None for name, cell in cells.items()
            }
            grouped.setdefault((cells["setting"], int(cells["trial"]), cells["labels"]), []).append(row)
    return [Trial(*key, rows) for key, rows in grouped.items()]


def _score(row: Row) -> ValidationScore:
    lost = tuple(map(int, (row["rule_lost"] or "").split()))
    return ValidationScore(row["rule_evidence"], row["rule_clean"], row["rule_biased"], row["rule_effect"], lost)


def _percent(value: float | None) -> str:
    return "n/a" if value is None else f"{100 * value:.1f}"


def _three(row: Row | None) -> str:
    return (
        "n/a"
        if row is None
        else " / ".join(_percent(row[name]) for name in ("test_clean", "test_biased", "test_flips"))
    )


def _name(row: Row) -> str:
    return row["method"] if row["strength"] is None else f"{row['method']} {row['strength']:g}"


def is_corrected(original: Row, chosen: Row, reference: Row) -> bool:
    """Whether the chosen model meets all three limits of the benchmark."""
    gap = reference["test_biased"] - original["test_biased"]
    closes = chosen["test_biased"] - original["test_biased"] >= GAP_TO_CLOSE * max(0.0, gap)
    keeps = chosen["test_clean"] >= original["test_clean"] - CLEAN_DROP
    flips = chosen["test_flips"] is None or chosen["test_flips"] <= reference["test_flips"] + FLIPS_ABOVE_REFERENCE
    return bool(closes and keeps and flips)


def choices(trials: Sequence[Trial]) -> tuple[str, str]:
    """Return the table of what the rule chose from labels alone, and in how many trials that meets the limits."""
    lines, met, worse = [], [], []
    for trial in trials:
        original, reference, paper = trial.find("original"), trial.find("reference"), trial.find("rr-clarc")
        if original is None or reference is None or not trial.is_complete:
            continue
        chosen = trial.chosen(original)
        met.append(is_corrected(original, chosen, reference))
        rivals = [row for row in (original, paper) if row is not None]
        worse += [trial.title] if any(chosen["test_biased"] < row["test_biased"] for row in rivals) else []
        low, high = (_percent(chosen[f"versus_reference_{end}"]) for end in ("low", "high"))
        models = original, chosen, reference, trial.find("plain-reference"), trial.find("match", 0.0), paper
        cells = map(_three, models)
        is_met = "yes" if met[-1] else "no"
        lines.append([trial.title, _name(chosen), *cells, f"{low} to {high}", is_met])
    header = ["setting", "chosen", "original", "chosen", "reference", "plain reference", "fine-tuning alone"]
    header += ["RR-ClArC (paper's recipe)", "biased accuracy - reference, 95 %", "limits met"]
    settings = {line[0].partition(",")[0] for line in lines}
    below = f" Biased accuracy is below the original's or RR-ClArC's in: {', '.join(worse)}." if worse else ""
    summary = f"Limits are met in {sum(met)} of {len(met)} trials of {len(settings)} settings.{below}"
    return markdown_table(header, lines), summary


def true_pairs(trials: Sequence[Trial]) -> str:
    """Return the comparison of true counterfactual pairs with the reference."""
    lines = []
    for trial in trials:
        row, reference = trial.find("true-pairs"), trial.find("reference")
        if row is not None and reference is not None:
            interval = f"{_percent(row['versus_reference_low'])} to {_percent(row['versus_reference_high'])}"
            flips = row["test_flips"], reference["test_flips"]
            lines.append(
                [trial.setting, _three(row), _percent(row["versus_reference"]), interval, *map(_percent, flips)]
            )
    header = ["setting", "true pairs", "biased accuracy - reference", "95 % interval", "flips", "reference's flips"]
    return markdown_table(header, lines)


def trap_sets(trials: Sequence[Trial]) -> str:
    """Return validation and test AUC of every method on the trap sets."""
    traps = [trial for trial in trials if trial.setting in SETTINGS and SETTINGS[trial.setting].kind == "trap"]
    cells: dict[str, dict[str, str]] = {}
    for trial in traps:
        original = trial.find("original")
        chosen = None if original is None or not trial.candidates else trial.chosen(original)
        for row in trial.rows:
            if row["test_auc"] is not None:
                mark = "**" if row is chosen else ""
                value = (
                    f"{mark}{row['val_auc']:.2f} / {row['test_auc']:.2f}{mark} ({_percent(row['test_worst_group'])})"
                )
                is_tuned = row["method"] in DEEP
                cells.setdefault(_name(row) if is_tuned else row["method"], {})[trial.setting] = value
    return markdown_table(
        ["method", *(trial.setting for trial in traps)],
        [[name, *(found.get(trial.setting, "") for trial in traps)] for name, found in cells.items()],
    )


def trap_summary(trials: Sequence[Trial]) -> str:
    """Return in one sentence what the rule chose on the trap sets."""
    found = []
    for trial in trials:
        original = trial.find("original")
        if original is not None and original["test_auc"] is not None and trial.candidates:
            chosen = trial.chosen(original)
            aucs = [f"{row['val_auc']:.2f} / {row['test_auc']:.2f}" for row in (chosen, original)]
            found.append(f"{trial.setting} {_name(chosen)} with {aucs[0]} (original {aucs[1]})")
    if not found:
        return "No trap set has been run."
    return f"On the trap sets the rule chose, with validation / test AUC: {'; '.join(found)}."


def rule_quality(trials: Sequence[Trial]) -> str:
    """Return rank correlation and regret of the rule against true insertion into test images."""
    lines, correlations, regrets = [], [], []
    for trial in trials:
        original = trial.find("original")
        scored = [row for row in trial.candidates if row["test_flips"] is not None]
        if original is None or not trial.is_complete or len(scored) < 3:
            continue
        everything = [original, *scored]
        by_rule = [merit(_score(row)) for row in everything]
        by_truth = [
            (row["test_clean"] + row["test_biased"]) / 2 - EFFECT_COST["transplants"] * row["test_flips"]
            for row in everything
        ]
        correlations.append(float(spearmanr(by_rule, by_truth).statistic))
        best, chosen = max(by_truth), by_truth[everything.index(trial.chosen(original))]
        regrets.append(best - chosen)
        lines.append([trial.title, str(len(everything)), f"{correlations[-1]:.2f}", _percent(regrets[-1])])
    if not lines:
        return "No controlled setting is complete."
    lines.append(["mean", "", f"{np.mean(correlations):.2f}", _percent(float(np.mean(regrets)))])
    return markdown_table(["setting", "models", "rank correlation", "regret in points"], lines)


def methods(trials: Sequence[Trial]) -> str:
    """Return every method on every setting with inserted artifacts: biased accuracy and flips."""
    inserted = [
        trial for trial in trials if trial.find("original") and (trial.find("original") or {})["test_flips"] is not None
    ]
    names = dict.fromkeys(_label(row) for trial in inserted for row in trial.rows)
    lines = []
    for name in names:
        found = [next((row for row in trial.rows if _label(row) == name), None) for trial in inserted]
        lines.append([name, *(_short(row) for row in found), _passes(found)])
    return markdown_table(["method", *(trial.setting for trial in inserted), "passes"], lines)


def _label(row: Row) -> str:
    return _name(row) if row["method"] in (*DEEP, "true-pairs") else row["method"]


def _short(row: Row | None) -> str:
    if row is None:
        return ""
    return "n/a" if row["test_biased"] is None else f"{_percent(row['test_biased'])} / {_percent(row['test_flips'])}"


def _passes(rows: Sequence[Row | None]) -> str:
    counted = [row["passes"] for row in rows if row is not None and row["passes"]]
    return f"{np.mean(counted):.0f}" if counted else ""


def limited_labels(trials: Sequence[Trial]) -> str:
    """Return what the rule chose where labels are missing or wrong."""
    lines = []
    for trial in trials:
        original = trial.find("original")
        if trial.labels != "all" and trial.is_complete and original is not None:
            chosen = trial.chosen(original)
            lines.append([trial.title, trial.labels, _name(chosen), _three(chosen), _three(original)])
    return markdown_table(["setting", "labels", "chosen", "its scores", "original"], lines) if lines else "Not run yet."


def write_pages(table: Path = TABLE, folder: Path = Path()) -> None:
    """Write both pages to their places in a folder."""
    trials = read_trials(table)
    complete = [trial for trial in trials if trial.labels == "all"]
    first = [trial for trial in complete if trial.trial == 0]
    chosen, summary = choices(complete)
    parts = {
        "choices": chosen,
        "summary": summary,
        "true_pairs": true_pairs(first),
        "trap_sets": trap_sets(first),
        "trap_summary": trap_summary(first),
        "rule_quality": rule_quality(complete),
        "methods": methods(first),
        "limited_labels": limited_labels(trials),
    }
    for template, page in PAGES.items():
        text = Path(__file__).with_name(template).read_text()
        for name, part in parts.items():
            text = text.replace(f"{{{{ {name} }}}}", part)
        (folder / page).write_text(text)


if __name__ == "__main__":
    write_pages()
