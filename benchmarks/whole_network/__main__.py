"""Run the benchmark: every method on every setting, one row of results per job.

    python -m benchmarks.whole_network --data ../shared/real

Each finished job is a row of ``results/whole_network.csv``; jobs that have one are skipped, and base models are kept in
``~/.cache/hansfree-benchmarks``. Start the command twice to use two cores.
"""

from __future__ import annotations

import argparse
import copy
import csv
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from sklearn.metrics import roc_auc_score
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from benchmarks.whole_network import rivals
from benchmarks.whole_network.base_models import train_base
from benchmarks.whole_network.settings import SETTINGS, Data, Images, Setting, limit_labels
from hansfree.corrections.deep import DeepCorrection, Match, NetworkTuning, Transplant
from hansfree.corrections.deep.selection import DeepValidation, balanced_accuracy
from hansfree.errors import HansfreeError
from hansfree.models.weights import read_weights, write_weights

CACHE = Path.home() / ".cache" / "hansfree-benchmarks"
DEEP: dict[str, type[DeepCorrection]] = {"match": Match, "transplant": Transplant}
RIVALS = ("fine_tuning", "group_dro", "jtt", "fst", "fine_pruning", "retrained")
LIMITED = {
    "known-10": {"known": 0.1},
    "known-25": {"known": 0.25},
    "known-50": {"known": 0.5},
    "wrong-5": {"wrong": 0.05},
}
LIMITED_SETTINGS = ("resnet18-timestamp", "resnet18-brightness")
REPEATED = ("resnet18-timestamp", "resnet18-brightness", "resnet18-glasses", "efficientnet-timestamp")


@dataclass(frozen=True)
class Job:
    """One model to make and to score."""

    setting: str
    trial: int
    labels: str  # "all", or how the artifact labels are limited
    method: str
    strength: float | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What names the job in the table."""
        return tuple("" if value is None else str(value) for value in asdict(self).values())


@dataclass(frozen=True)
class Row:
    """What is known about one model; accuracies are balanced over the classes, empty cells are not available."""

    setting: str
    trial: int
    labels: str
    method: str
    strength: float | None
    seconds: float | None = None
    passes: float | None = None  # of the training images through the network; a backward pass counts as two
    rule_evidence: str | None = None
    rule_clean: float | None = None
    rule_biased: float | None = None
    rule_effect: float | None = None
    rule_lost: str | None = None  # classes, separated by spaces
    val_clean: float | None = None
    val_biased: float | None = None
    val_flips: float | None = None
    val_auc: float | None = None
    test_clean: float | None = None
    test_biased: float | None = None
    test_flips: float | None = None
    test_worst_group: float | None = None
    test_auc: float | None = None
    versus_reference: float | None = None
    versus_reference_low: float | None = None
    versus_reference_high: float | None = None
    error: str | None = None
    commit: str | None = None


class Trial:
    """The data and base models of one trial of a setting, loaded when they are needed."""

    def __init__(self, setting: Setting, trial: int, labels: str, root: Path) -> None:
        self.setting, self.trial, self.labels, self.root = setting, trial, labels, root

    @cached_property
    def data(self) -> Data:
        """Read the images, on request with limited artifact labels."""
        data = self.setting.load(self.root, self.trial)
        return data if self.labels == "all" else limit_labels(data, **LIMITED[self.labels])

    @cached_property
    def original(self) -> nn.Module:
        """Train the model on the images with the artifact, or load it."""
        path = CACHE / "models" / f"{self.setting.name}-original-{self.trial}.safetensors"
        return train_base(self.setting, self.data, self.data.train, path, root=self.root, seed=self.trial)

    @cached_property
    def plain_reference(self) -> nn.Module | None:
        """Train the model without the artifact, or load it; None where there are no such images."""
        if self.data.reference_train is None:
            return None
        clean = replace(self.data, train=self.data.reference_train)
        return train_base(self.setting, clean, clean.train, self._reference_path(), root=self.root, seed=self.trial)

    @cached_property
    def reference(self) -> nn.Module | None:
        """Fine-tune the plain reference as the corrections do: they balance the classes and augment the images."""
        if self.plain_reference is None or self.data.reference_train is None:
            return None
        path = self._reference_path("-tuned")
        with FileLock(path.with_suffix(".lock")):
            if not path.exists():
                clean = replace(self.data, train=self.data.reference_train)
                tuned = rivals.fine_tuning(self.setting, clean, self.plain_reference, self.root, seed=self.trial)
                write_weights(path, tuned.state_dict())
        model = copy.deepcopy(self.plain_reference)
        model.load_state_dict(read_weights(path))
        return model

    def _reference_path(self, suffix: str = "") -> Path:
        shared = self.setting.kind == "inserted"  # trained on clean images: the same for every artifact
        name = self.setting.base_name if shared else self.setting.name
        return CACHE / "models" / f"{name}-reference{suffix}-{self.trial}.safetensors"

    @cached_property
    def reference_answers(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the reference's predictions on clean and biased test images."""
        if self.reference is None:
            return None
        return tuple(predict(self.reference, images)[0] for images in (self.data.clean, self.data.biased))  # type: ignore[return-value]

    @cached_property
    def rule(self) -> DeepValidation | None:
        """Return the validation of the selection rule; None where it has no evidence."""
        try:
            return DeepValidation(self.original, self.data.train, self.data.val)
        except HansfreeError as error:
            print(f"{self.setting.name}: no rule ({error})", flush=True)
            return None

    @cached_property
    def val_biased(self) -> tuple[Images, Images] | None:
        """Return the validation images without the artifact, and the same with it inserted."""
        if self.data.artifact is None:
            return None
        truth = self.setting.load(self.root, self.trial).val  # labels of `data` may be limited
        clean = truth.part(~truth.has_artifact)
        return clean, clean.with_artifact(self.data.artifact, seed=self.trial)

    @cached_property
    def heads(self) -> dict[str, tuple[nn.Module | None, float | None]]:
        """Correct the head by every method of the registry."""
        return rivals.head_methods(self.setting, self.data, self.original, folder=None)

    def make(self, job: Job) -> tuple[nn.Module | None, float | None]:
        """Return the model of a job and its strength."""
        tuning = NetworkTuning(seed=self.trial)
        if job.method == "original":
            return self.original, None
        if job.method == "reference":
            return self.reference, None
        if job.method == "plain-reference":
            return self.plain_reference, None
        if job.method in RIVALS:
            make = getattr(rivals, job.method)
            return make(self.setting, self.data, self.original, self.root, seed=self.trial), None
        if job.method == "true-pairs":
            artifact = self.data.artifact
            assert artifact is not None
            method = Transplant(strength=job.strength or 1.0, insert=artifact, tuning=tuning)
            return method.correct(self.original, self.data.train), job.strength
        if job.method in DEEP:
            method = DEEP[job.method](strength=job.strength, tuning=tuning)
            return method.correct(self.original, self.data.train), job.strength
        return self.heads[job.method]


def jobs(setting: Setting, trial: int, labels: str) -> Iterator[Job]:
    """Yield the jobs that a setting needs to appear on the page."""
    job = partial(Job, setting.name, trial, labels)
    yield job("original")
    if labels == "all" and setting.kind != "trap":
        yield job("reference")
        yield job("plain-reference")
    for method, strength in CANDIDATES:
        yield job(method, strength)
    if labels == "all":
        yield from map(job, HEADS)


def rival_jobs(setting: Setting, trial: int) -> Iterator[Job]:
    """Yield the jobs that compare the candidates with other ways to train the whole network."""
    job = partial(Job, setting.name, trial, "all")
    if setting.kind == "inserted":
        yield job("true-pairs", 1.0)
    yield from map(job, RIVALS)
    yield job(*STRONGEST)


# The defaults of `hansfree run` first; strength 0 is fine-tuning on the same images alone.
CANDIDATES = (("match", 3.0), ("transplant", 1.0), ("match", 1.0), ("match", 0.0))
STRONGEST = ("match", 10.0)  # where there is time for it
HEADS = ("rr-clarc", "vanilla", "p-clarc", "a-clarc", "rr-clarc-step", "p-clarc-one-sided", "r-clarc", "leace", "dfr")


@torch.no_grad()
def predict(model: nn.Module, images: Images) -> tuple[np.ndarray, np.ndarray]:
    """Return the predicted classes and the probability of class 1."""
    parts = np.array_split(np.arange(len(images)), max(1, len(images) // 64))
    logits = torch.cat([model(images.batch(rows).image) for rows in parts])
    return logits.argmax(1).numpy(), logits.softmax(1)[:, 1].numpy()


def score(trial: Trial, model: nn.Module) -> dict[str, float | str | None]:
    """Return the scores of a model: by the rule, by true insertion into validation images, and on test images."""
    data = trial.data
    found: dict[str, float | str | None] = {}
    if trial.rule is not None:
        by_rule = trial.rule.score(model)
        found |= {
            "rule_evidence": by_rule.evidence,
            "rule_clean": by_rule.clean,
            "rule_biased": by_rule.biased,
            "rule_effect": by_rule.effect,
            "rule_lost": " ".join(map(str, by_rule.lost_classes)),
        }
    if trial.val_biased is not None:
        clean, biased = trial.val_biased
        answers, changed = predict(model, clean)[0], predict(model, biased)[0]
        found["val_clean"] = balanced_accuracy(answers, clean.labels)
        found["val_biased"] = balanced_accuracy(changed, clean.labels)
        found["val_flips"] = float((answers != changed).mean())
    (answers, probability), (changed, probability_biased) = predict(model, data.clean), predict(model, data.biased)
    found["test_clean"] = balanced_accuracy(answers, data.clean.labels)
    found["test_biased"] = balanced_accuracy(changed, data.biased.labels)
    found["test_worst_group"] = min(
        float((each[images.labels == label] == label).mean())
        for each, images in ((answers, data.clean), (changed, data.biased))
        for label in np.unique(images.labels)
    )
    if trial.setting.kind == "trap":
        found["val_auc"] = float(roc_auc_score(data.val.labels, probability))
        found["test_auc"] = float(roc_auc_score(data.biased.labels, probability_biased))
    if data.is_paired:
        found["test_flips"] = float((answers != changed).mean())
    if trial.reference_answers is not None:
        difference, low, high = _paired_difference(changed, trial.reference_answers[1], data.biased.labels)
        found |= {"versus_reference": difference, "versus_reference_low": low, "versus_reference_high": high}
    return found


def _paired_difference(own: np.ndarray, other: np.ndarray, labels: np.ndarray) -> tuple[float, float, float]:
    """Return the difference in balanced accuracy of two models on the same images, with a 95 % bootstrap interval."""
    rng = np.random.default_rng(0)
    gains = (own == labels).astype(float) - (other == labels)
    by_class = [gains[labels == label] for label in np.unique(labels)]
    draws = [np.mean([rng.choice(each, len(each)).mean() for each in by_class]) for _ in range(2000)]
    low, high = np.quantile(draws, (0.025, 0.975))
    return float(np.mean([each.mean() for each in by_class])), float(low), float(high)


def run_job(trial: Trial, job: Job) -> Row:
    """Make and score one model; what cannot be done is a row with its reason."""
    start = time.monotonic()
    try:
        trial.original, trial.reference  # noqa: B018 (their training is not part of the job's time)
        start = time.monotonic()
        with counted_passes(trial.original) as passes:
            model, strength = trial.make(job)
        if model is None:
            return Row(**asdict(job), error="no model")
    except HansfreeError as error:
        return Row(**asdict(job), error=str(error))
    seconds = round(time.monotonic() - start, 1)
    found = {
        name: round(value, 4) if isinstance(value, float) else value for name, value in score(trial, model).items()
    }
    cost = round(passes[0] / len(trial.data.train), 1)
    row = Row(**asdict(job), seconds=seconds, passes=cost, commit=_commit(), **found)  # type: ignore[arg-type]
    return replace(row, strength=strength)


@cache
def _commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


@contextmanager
def counted_passes(model: nn.Module) -> Iterator[list[float]]:
    """Count the images that pass through networks of the model's class; a backward pass counts as two."""
    total = [0.0]

    def count(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        if type(module) is type(model):
            total[0] += len(inputs[0]) * (3 if torch.is_grad_enabled() else 1)

    handle = register_module_forward_pre_hook(count)
    try:
        yield total
    finally:
        handle.remove()


def main() -> None:
    """Run all jobs that have no row yet."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with isic/, celeba/ and weights/")
    parser.add_argument("--table", type=Path, default=Path("results/whole_network.csv"))
    parser.add_argument("--setting", action="append", choices=SETTINGS, help="only these settings, in this order")
    parser.add_argument("--method", action="append", help="only these methods")
    parser.add_argument("--first-trial", action="store_true", help="no repeats and no limited labels")
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    CACHE.mkdir(parents=True, exist_ok=True)
    for trial, planned in _plan(options):
        for job in planned:
            if not options.method or job.method in options.method:
                _run_once(trial, job, options.table)


def _plan(options: argparse.Namespace) -> Iterator[tuple[Trial, Iterator[Job]]]:
    """Yield the trials with their jobs: every setting once, then the rivals, limited labels and repeats."""
    chosen = [SETTINGS[name] for name in options.setting or SETTINGS]

    def trial(setting: Setting, number: int = 0, labels: str = "all") -> Trial:
        return Trial(setting, number, labels, options.data)

    for setting in chosen:
        yield trial(setting), jobs(setting, 0, "all")
    for setting in chosen:
        yield trial(setting), rival_jobs(setting, 0)
    if options.first_trial:
        return
    for setting in chosen:
        if setting.name in LIMITED_SETTINGS:
            for labels in LIMITED:
                yield trial(setting, labels=labels), jobs(setting, 0, labels)
    for number in (1, 2):
        for setting in chosen:
            if setting.name in REPEATED:
                yield trial(setting, number), jobs(setting, number, "all")


def _run_once(trial: Trial, job: Job, table: Path) -> None:
    lock = FileLock(CACHE / f"{'-'.join(job.key)}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return  # another process has it
    with lock:
        if job.key in _done(table):
            return
        row = run_job(trial, job)
        _append(table, row)
        print(*(value for value in asdict(row).values() if value is not None), flush=True)


def _done(table: Path) -> set[tuple[str, ...]]:
    if not table.exists():
        return set()
    with table.open(newline="") as file:
        return {
            (
                row["setting"],
                row["trial"],
                row["labels"],
                row["method"],
                row["strength"] if row["method"] in (*DEEP, "true-pairs") else "",
            )
            for row in csv.DictReader(file)
        }


def _append(table: Path, row: Row) -> None:
    table.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / "table.lock"):
        is_new = not table.exists()
        with table.open("a", newline="") as file:
            writer = csv.writer(file)
            if is_new:
                writer.writerow([field.name for field in fields(Row)])
            writer.writerow(["" if value is None else value for value in asdict(row).values()])


if __name__ == "__main__":
    main()
