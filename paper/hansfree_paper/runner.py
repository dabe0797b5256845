"""Run an experiment on all subjects and write its page."""

from __future__ import annotations

import csv
import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np

from hansfree._internal.files import write_text, written_atomically
from hansfree._internal.progress import Progress, silent
from hansfree._internal.registry import Registered
from hansfree.corrections import LatentCorrection, check_selectable
from hansfree.corrections.training import FineTuning, Pretraining
from hansfree.data import SETS, BiasedData
from hansfree.errors import DataError, OptionError
from hansfree.evaluation import BIASED_ACCURACY, HeatmapSet, Row, claims, write_table
from hansfree.metrics import chance_level, majority_rate
from hansfree.models import PRETRAINED
from hansfree.pipeline import ExecutorFactory, Experiment, MethodSpec
from hansfree.reasons import Reason
from hansfree.report import describe_claims, describe_reason
from hansfree.report.figures import Drawing
from hansfree_paper.aggregate import Facts, Finding, SubjectKey, paper_place
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.subjects import Plan, Subject, check_disk, open_subject
from hansfree_paper.tables import paragraphs

T = TypeVar("T")

_PAPER_CORRECTION_EPOCHS = 10
_MOST_LISTED = 8  # strengths; of more, the ends

_GRIDS = {"own": "in our units", "paper": "in the paper's units"}
CORRECTED = {"all": "all that follows the layer", "last": "the last linear layer only"}
TRAINED = {"whole": "the whole model", "head": "only what follows the layer"}

Words = Mapping[str, str]  # part of the setting -> its description
Page = tuple[str, Sequence["Drawing | None"]]


def setting_of(subject: Subject, rows: Sequence[Row]) -> dict[str, str]:
    """Describe the setting of a subject, as far as the rows show that a model was trained and corrected."""
    study, plan = subject.study, subject.plan
    data = subject.data if rows else study.data(plan.model)  # without rows nothing is read into memory
    words = {
        "dataset": f"{study.title}, {study.size} px, seed {study.seed}",
        "classes": str(len(data.train.class_names)),
        "images": ", ".join(f"{len(getattr(data, name)):,} {name.replace('_', ' ')}" for name in SETS),
        "artifact in training": _artifact(data),
    }
    if not rows:
        return words
    words["training starts from"] = describe_weights(plan.weights)
    if data.base_train is not None:
        words["biased model trained on"] = f"{len(data.base_train):,} images, of which corrections see the train images"
    recipe = describe_recipe(subject.models.recipe)
    words["trained on the biased images"] = f"{TRAINED[plan.trained]}, {recipe}, on {plan.device}"
    words["layer"] = f"`{subject.experiment.setting.layer}`"
    if {row.method for row in rows} & LatentCorrection.members().keys():
        words |= _correction(subject.experiment, rows)
    if plan.left_out:
        words["not run"] = ", ".join(sorted(plan.left_out, key=paper_place))
    return words


def write_settings(settings: Mapping[SubjectKey, Words]) -> str:
    """Return the settings as a list; where subjects differ, with a line per value."""
    models, artifacts = (dict.fromkeys(getattr(key, part) for key in settings) for part in ("model", "artifact"))
    lines = [f"- model: {', '.join(models)}", f"- artifact: {', '.join(artifacts)}"]
    for name in dict.fromkeys(name for words in settings.values() for name in words):
        values = {key: words.get(name, "none") for key, words in settings.items()}
        by_value: dict[str, list[str]] = {}
        for whose, value in _fewest(values).items():
            by_value.setdefault(value, []).append(whose)
        if len(by_value) == 1:
            lines.append(f"- {name}: {next(iter(by_value))}")
        else:
            lines += [f"- {name}:", *(f"  - {', '.join(whose)}: {value}" for value, whose in by_value.items())]
    return "\n".join(lines)


def _fewest(values: Mapping[SubjectKey, str]) -> dict[str, str]:
    """Return the values by model or by artifact if that alone determines them, else by subject."""
    for part in ("model", "artifact"):
        found: dict[str, set[str]] = {}
        for key, value in values.items():
            found.setdefault(getattr(key, part), set()).add(value)
        if all(len(each) == 1 for each in found.values()):
            return {word: next(iter(each)) for word, each in found.items()}
    return {key.title: value for key, value in values.items()}


def _artifact(data: BiasedData) -> str:
    labels, has = data.train.labels, data.train.has_artifact
    inside = labels == data.biased_class
    n, of = int(np.sum(has & inside)), int(np.sum(inside))
    others = int(np.sum(has & ~inside))
    words = (
        f"in {n:,} of {of:,} images of class {data.train.class_names[data.biased_class]!r} "
        f"({100 * n / max(of, 1):.1f} %) and in {others:,} of {np.sum(~inside):,} others"
    )
    return words if data.is_inserted else f"{words}; it is in the scenes, and the biased images are not the clean ones"


def describe_weights(weights: str | None) -> str:
    """Describe the initial weights of the training."""
    if weights is None:
        return "random weights"
    return "torchvision's pretrained weights" if weights == PRETRAINED else f"`{Path(weights).name}`"


def describe_recipe(recipe: Pretraining | FineTuning) -> str:
    """Return epochs, optimizer, rate, batches and seed."""
    optimizer = {"sgd": "SGD", "adam": "Adam"}[recipe.optimizer]
    if recipe.momentum:
        optimizer += f" with momentum {recipe.momentum:g}"
    return (
        f"{_epochs(recipe.epochs)} of {optimizer} at {recipe.learning_rate:g}, batches of {recipe.batch_size}, "
        f"seed {recipe.seed}"
    )


def _epochs(n: int) -> str:
    return f"{n} epoch" if n == 1 else f"{n} epochs"


def _correction(experiment: Experiment, rows: Sequence[Row]) -> dict[str, str]:
    setting, tuning = experiment.setting, experiment.setting.tuning
    tried = {row.method: _tried(experiment, row.method, rows) for row in rows if row.strength is not None}
    words = {"corrections fine-tune": CORRECTED[setting.train]}
    if not any(row.split for row in rows):  # nothing was judged: run times
        return words
    words["corrections fine-tune"] += f", {describe_recipe(tuning)}"
    for claim in claims(setting.data):
        if claim.name == BIASED_ACCURACY and not claim.can_be_made:
            words["cannot be known"] = describe_claims([asdict(claim)])[0]["sentence"]
    if setting.repeats > 1:
        seeds = ", ".join(str(tuning.seed + number) for number in range(setting.repeats))
        words["seeds of the correction"] = f"{seeds}; the strength is chosen with the first"
    if tried:
        listed = [f"{method} {_listed(tried[method])}" for method in sorted(tried, key=paper_place)]
        words["strengths"] = f"{'; '.join(listed)}, {_GRIDS[setting.grid]}"
        few = ", ".join(repr(setting.data.train.class_names[label]) for label in setting.uncounted)
        words["strength chosen by"] = describe_reason(setting.rule.summary()) + (
            f"; too few images to count: {few}" if few else ""
        )
    return words


def _tried(experiment: Experiment, method: str, rows: Sequence[Row]) -> set[float]:
    """Return a method's strengths: those of the rows, unless they hold the chosen one alone."""
    found = {row.strength: row.chosen for row in rows if row.method == method and row.strength is not None}
    if 0 in found.values():
        return set(found)
    return set(experiment.setting.strengths.get(method) or experiment.plain(method).strengths)


def _listed(strengths: set[float]) -> str:
    ordered = [f"{strength:g}" for strength in sorted(strengths)]
    if len(ordered) <= _MOST_LISTED:
        return ", ".join(ordered)
    return f"{len(ordered)} from {ordered[0]} to {ordered[-1]}"


class Reproduction(Registered, ABC):
    """One of the paper's experiments: examine a subject, and present all findings."""

    kind = "experiment"
    title: ClassVar[str]  # what of the paper this is
    sections: ClassVar[Sequence[str | Callable[[Sequence[Finding]], str]]] = ()  # of the page
    drawings: ClassVar[Sequence[Callable[[Sequence[Finding]], Drawing | None]]] = ()
    uses_cache: ClassVar[bool] = True  # activations on disk

    def check(self, study: BenchmarkDataset, plan: Plan) -> None:
        """Raise an error for a subject on which the experiment cannot run, before any work starts."""
        check_selectable(study.data(plan.model))

    @abstractmethod
    def examine(self, subject: Subject) -> Finding:
        """Run the experiment on one subject; finished stages are not repeated."""

    def specs(self, subject: Subject) -> list[MethodSpec]:
        """Return the corrections that `examine` asks for, which a cluster can run ahead of it."""
        return []

    def describe(self, subject: Subject, finding: Finding) -> Words:
        """Return the setting of a subject for the page."""
        return setting_of(subject, finding.rows)

    def present(self, findings: Sequence[Finding]) -> Page:
        """Return the page's Markdown and its figures; None where there is nothing to draw."""
        parts = (part if isinstance(part, str) else part(findings) for part in self.sections)
        return paragraphs(*parts), self.draw(findings)

    def draw(self, findings: Sequence[Finding]) -> list[Drawing | None]:
        """Return the page's figures."""
        return [draw(findings) for draw in self.drawings]


def heatmaps_by_subject(findings: Sequence[Finding]) -> dict[SubjectKey, HeatmapSet]:
    """Return the images of all findings with their heatmaps; of subjects without images to show there are none."""
    return {
        finding.key: HeatmapSet(finding.arrays["images"], finding.arrays["masks"], relevance_of(finding))
        for finding in findings
        if "images" in finding.arrays
    }


def relevance_of(finding: Finding) -> dict[str, np.ndarray]:
    """Return a finding's heatmaps by name, which are under ``relevance/<name>``."""
    return {name.partition("/")[2]: found for name, found in finding.arrays.items() if name.startswith("relevance/")}


def check_shown(study: BenchmarkDataset, plan: Plan) -> None:
    """Refuse an artifact that no test image carries, for experiments that look at such images only."""
    if not len(study.data(plan.model).test_biased):
        raise DataError(
            f"No test image of {study.title} carries the artifact {study.artifact!r}, and this experiment looks at "
            "those that do: there must be at least 1. Experiments that correct a model can do without, such as table1."
        )


def name_subject(study: BenchmarkDataset, plan: Plan) -> SubjectKey:
    """Return what tables and figures call a subject."""
    return SubjectKey(study.name, study.artifact, plan.model)


def finding_of(
    subject: Subject,
    rows: Sequence[Row],
    *,
    data: BiasedData | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
    notes: Mapping[str, Any] | None = None,
    **facts: Any,
) -> Finding:
    """Return a finding with its facts; the paper's numbers only where the bias is the paper's own.

    Args:
        data: the subject's, where it need not be read into memory.
        facts: further fields of `Facts`.
    """
    study, data = subject.study, data or subject.data
    is_the_papers = study.artifact == study.artifacts[0] and study.size == study.default_size
    known = Facts(
        chance_level=chance_level(data.test_clean.labels),
        class_names=tuple(data.test_clean.class_names),
        majority_rate=majority_rate(data.test_clean.labels),
        is_localized=data.is_localized,
        published=study.published if is_the_papers else None,
        departures=_departures(subject),
        grid=subject.plan.grid,
        rule=subject.plan.selection,
        **facts,
    )
    key = name_subject(study, subject.plan)
    return Finding(key=key, rows=rows, facts=known, arrays=arrays or {}, notes=notes or {})


def reasons_of(experiment: Experiment, methods: Sequence[str]) -> dict[str, str]:
    """Return by method why its strength was taken, or why none could be; that a method has none needs no reason."""
    chosen = {name: experiment.selection(experiment.plain(name)) for name in methods}
    return {
        name: describe_reason(Reason.from_json(choice["reason"]))
        for name, choice in chosen.items()
        if LatentCorrection.named(name).info.has_strength or not choice["admissible"]
    }


def compared_of(experiment: Experiment, methods: Sequence[str]) -> dict[str, float | None]:
    """Return by method with a strength what the rule that did not select would have selected."""
    chosen = {name: experiment.selection(experiment.plain(name)) for name in methods}
    return {name: choice["compared"] for name, choice in chosen.items() if "compared" in choice}


def _departures(subject: Subject) -> tuple[str, ...]:
    """Return in what the setting is not the paper's, beyond what decides whether its numbers are shown at all."""
    study, plan = subject.study, subject.plan
    theirs = study.recipe.epochs.get(plan.model)
    found = {
        "training started from random weights, the paper's from pretrained ones": plan.weights is None,
        "only what follows the layer was trained, in the paper the whole model": plan.trained == "head",
        f"{_epochs(plan.epochs or 0)} of training, in the paper {theirs}": plan.trained == "whole"
        and plan.epochs not in (None, theirs),
        f"corrections saw every image of the biased class and each {plan.subset_correction}th of the others": (
            plan.subset_correction is not None
        ),
        "activations were stored in float16": plan.precision == "float16",
        "only the last linear layer was corrected, in the paper all that follows the layer": plan.corrected == "last",
        f"{_epochs(plan.correction_epochs)} of correction, in the paper {_PAPER_CORRECTION_EPOCHS}": (
            plan.correction_epochs != _PAPER_CORRECTION_EPOCHS
        ),
    }
    return tuple(sentence for sentence, holds in found.items() if holds)


def reproduce(
    name: str,
    subjects: Sequence[tuple[BenchmarkDataset, Plan]],
    *,
    out: Path,
    work: Path,
    executor: ExecutorFactory | None = None,
    command: str = "",
    progress: Progress = silent,
) -> Path:
    """Run an experiment and write ``out/<data>-<name>.md``, its CSV file and figures; return the path of the page.

    Of several datasets it is ``out/<name>.md``, in one order whatever the order of the subjects. It is written again
    after each of them: a stopped run leaves the page of what is finished.

    Args:
        work: Folder for models, caches and runs, which all experiments share; what is there is not done again.
        executor: Computes activations and corrections on a cluster; None does all in this process.
        command: What the user typed, for the page.
    """
    experiment = Reproduction.named(name)()
    _check_names(subjects)
    departures = write_paper_departures(name, subjects)
    order = [*BenchmarkDataset.members()]
    subjects = sorted(subjects, key=lambda pair: order.index(pair[0].name) if pair[0].name in order else len(order))
    names = dict.fromkeys(study.name for study, _ in subjects)
    stem = name if len(names) > 1 else f"{next(iter(names), '')}-{name}"
    page = out / f"{stem}.md"
    skipped = dict.fromkeys(sentence for study, _ in subjects for sentence in study.skipped)
    # before the work, which may take days
    listed = out / f"{stem}-skipped.txt"
    if skipped:
        write_text(listed, "".join(f"{sentence}\n" for sentence in skipped))
    else:
        listed.unlink(missing_ok=True)
    for study, plan in subjects:
        experiment.check(study, plan)
    if experiment.uses_cache:
        check_disk(subjects, work)
    made = f"Made by hansfree {version('hansfree')} with PyTorch {version('torch')}"
    head = [f"# {experiment.title}", *([f"{made}:", f"```bash\n{command}\n```"] if command else [f"{made}."])]
    remarks = [*dict.fromkeys(sentence for study, _ in subjects for sentence in study.remarks)]
    if skipped:
        remarks.append(f"Left out: {len(skipped)} unreadable or unlisted files (`{listed.name}`).")
    findings: list[Finding] = []
    settings: dict[SubjectKey, Words] = {}
    for place, (study, plan) in enumerate(subjects, start=1):
        about = f"{place}/{len(subjects)} {plan.model} {study.artifact}: " if len(subjects) > 1 else ""
        with open_subject(study, plan, work, progress=_labelled(progress, about)) as subject:
            if executor is not None and experiment.uses_cache:
                subject.run_ahead(executor, experiment.specs(subject))
            finding = experiment.examine(subject)
            findings.append(finding)
            settings[finding.key] = experiment.describe(subject, finding)
        if place == len(subjects) or len(names) > 1:
            parts = [*head, "## Setting", write_settings(settings), *remarks]
            _write_page(page, experiment, findings, parts, departures)
    return page


def write_paper_departures(name: str, subjects: Sequence[tuple[BenchmarkDataset, Plan]]) -> list[str]:
    """Return a section with the lines of ``paper-items.csv`` that hold for an experiment; empty where none does."""
    with (Path(__file__).parents[2] / "docs" / "paper-items.csv").open(encoding="utf-8", newline="") as file:
        items = [item for item in csv.DictReader(file) if item["departure"]]
    lines = [
        f"- {item['departure']} ({item['section']}; decision record {item['record']})"
        for item in items
        if any(_departs(item, name, study, plan) for study, plan in subjects)
    ]
    return ["## Departures from the paper", "\n".join(lines)] if lines else []


def _departs(item: Mapping[str, str], name: str, study: BenchmarkDataset, plan: Plan) -> bool:
    """Return whether a departure holds; ``unless`` has a plan without it, as ``grid=paper``."""
    option, _, value = item["unless"].partition("=")
    return (
        name in (item["experiments"].split() or [name])
        and study.name in (item["data"].split() or [study.name])
        and not (option and str(getattr(plan, option)) == value)
    )


def _write_page(
    page: Path,
    experiment: Reproduction,
    findings: Sequence[Finding],
    parts: Sequence[str],
    departures: Sequence[str],
) -> None:
    """Write scores, figures and page of what is finished; scores first, so that no error in a figure loses them."""
    write_table(page.with_suffix(".csv"), [row for finding in findings for row in finding.rows])
    text, drawings = experiment.present(findings)
    shown = [drawing for drawing in drawings if drawing is not None]
    _draw(page, shown)
    images = [f"![{each.alt}]({page.stem}-{each.name}.png)\n\n{each.caption}" for each in shown]
    write_text(page, "\n\n".join([*parts, "## Results", text.strip(), *images, *departures]) + "\n")


def _check_names(subjects: Sequence[tuple[BenchmarkDataset, Plan]]) -> None:
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


def _draw(page: Path, drawings: Sequence[Drawing]) -> None:
    """Write the figures, and remove those of an earlier page that this one does not have."""
    before = re.findall(r"^!\[.*\]\((\S+\.png)\)$", page.read_text(encoding="utf-8"), re.M) if page.exists() else []
    files = {f"{page.stem}-{drawing.name}.png": drawing for drawing in drawings}
    for file, drawing in files.items():
        with written_atomically(page.parent / file) as temporary:
            drawing.figure.savefig(temporary, format="png", dpi=110)
    for file in set(before) - files.keys():
        (page.parent / file).unlink(missing_ok=True)
