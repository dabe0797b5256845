"""A small run folder as `hansfree demo` leaves it, with numbers that are made up and plausible."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import combinations
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest

from hansfree._internal.files import write_json
from hansfree._internal.statistics import Interval
from hansfree.corrections import BalancedRule
from hansfree.evaluation.results import Results, Row, rows_of, tested_rows, write_table
from hansfree.evaluation.verdict import judge_methods
from hansfree.metrics import (
    Answers,
    Difference,
    Evidence,
    NotAvailable,
    Score,
    compare_answers,
    compare_classes,
    compare_probability_changes,
    compute_scores,
    find_unavailable,
    predict_classes,
    score_intervals,
)
from hansfree.reasons import Reason, ReasonCode

N_TEST = 800
# method: (balanced accuracy clean, biased, flip rate, tcav) of the chosen strength on the test split
CHOSEN = {
    "original": (0.921, 0.480, 0.560, 1.000),
    "vanilla": (0.925, 0.541, 0.470, 0.990),
    "rrr": (0.918, 0.702, 0.281, 0.900),
    "p-clarc": (0.880, 0.822, 0.120, 0.620),
    "a-clarc": (0.909, 0.862, 0.070, 0.310),
    "rr-clarc": (0.916, 0.871, 0.060, 0.470),
    "clean-trained": (0.930, 0.924, 0.015, 0.500),
}
STRENGTHS = {"rrr": (0.1, 1.0, 10.0, 100.0), "rr-clarc": tuple(10.0**k for k in range(-3, 6))}
TAKEN = {"rrr": 10.0, "rr-clarc": 10.0}
CAVS = {
    "signal": (0.71, 0.96),
    "svm": (0.25, 0.34),
    "ridge": (0.31, 0.42),
    "lasso": (0.18, 0.22),
    "logistic": (0.27, 0.37),
}

RULE = "best balanced accuracy on biased validation images"


COUNTS = {"admissible": 3, "rejected": 0}


def choice(
    strength: float | None,
    reason: Reason | None = None,
    *,
    diverged: Sequence[float | None] = (),
    rejection: Reason | None = None,
) -> Any:
    """Return what results.json says about how a method's strength was chosen."""
    if reason is None:
        reason = Reason(ReasonCode.NO_STRENGTH if strength is None else ReasonCode.BEST_ON_VALIDATION, COUNTS)
    told = {"rule": asdict(BalancedRule().summary()), "strength": strength, "reason": asdict(reason)}
    told |= {"rejection": None if rejection is None else asdict(rejection)}
    return told | {"diverged": list(diverged), "admissible": rejection is None}


SELECTION = {
    "p-clarc": choice(None),
    "a-clarc": choice(None),
    "rr-clarc": choice(10.0, diverged=[1e5]),
    "rrr": choice(10.0),
    "vanilla": choice(None),
}
Change = Callable[[list[Row]], list[Row]]
MakeRun = Callable[..., Path]


def about(method: str) -> dict[str, Any]:
    """Return what the table says of a method's options."""
    columns: dict[str, Any] = {"experiment": "timestamp", "method": method, "seed": 0}
    if method.endswith("clarc"):
        columns["cav"] = "signal"
    if method in TAKEN:
        columns |= {"target": "expected" if method == "rr-clarc" else "sum", "norm": "squared"}
    return columns


def scored(metric: str, value: float, *, n: int = N_TEST, **group: Any) -> Score:
    return Score(metric, value, abs(value * (1 - value) / N_TEST) ** 0.5, n, **group)


def score(method: str, metric: str, value: float, **columns: Any) -> Row:
    """Return one row of a final model on the test images."""
    (row,) = rows_of([scored(metric, value)], **{"split": "test", "chosen": 1, **about(method), **columns})
    return row


def final_rows(method: str, clean: float, biased: float, flips: float, tcav: float, **columns: Any) -> list[Row]:
    """Return what `compute_scores` finds; a reference has no activations at the layer."""
    scores = [
        scored("accuracy_clean", clean and clean + 0.01),
        scored("accuracy_biased", biased and biased + 0.02),
        scored("balanced_accuracy_clean", clean),
        scored("balanced_accuracy_biased", biased),
        scored("accuracy_worst_group", max(biased - 0.2, 0), n=180, group=1, artifact="with"),
        scored("flip_rate", flips),
    ]
    if clean > 0:  # one that diverged answers nothing: no ranking, no probability, no derivative
        scores += [scored("auroc_clean", 0.5 + clean / 2), scored("auroc_biased", 0.5 + biased / 2)]
        scores += [scored("probability_change", flips * 0.9 - 0.02)]
    if clean > 0 and method != "clean-trained":
        scores += [scored("tcav", tcav), scored("tcav_zero_share", 0.02), scored("tcav_sensitivity", 0.0123 * flips)]
    if columns.get("chosen") and clean > 0 and method != "clean-trained":  # heatmaps are for the chosen
        scores += [scored("tcav_positions", 0.5 + (tcav - 0.5) * 0.7), scored("artifact_relevance", 0.6 * flips + 0.02)]
    return rows_of(scores, split="test", **about(method), **columns)


def val_rows(method: str, clean: float, biased: float, **columns: Any) -> list[Row]:
    """Return what was seen on the validation images after each of two epochs."""
    return [
        row
        for epoch, gone in ((1, 0.5), (2, 1.0))
        for row in rows_of(
            [scored("balanced_accuracy_clean", clean), scored("balanced_accuracy_biased", biased * gone)],
            split="val",
            epoch=epoch,
            **about(method),
            **columns,
        )
    ]


def path_rows(method: str) -> list[Row]:
    rows = []
    for place, strength in enumerate(STRENGTHS[method]):
        columns = {"strength": strength, "chosen": int(strength == TAKEN[method])}
        cost = 0.04 * max(place - 5, 0) ** 2
        clean, biased, flips, tcav = 0.92 - cost, 0.5 + 0.38 * min(place / 4, 1) - cost, 0.3, 0.8
        if columns["chosen"]:
            clean, biased, flips, tcav = CHOSEN[method]
        if strength in SELECTION[method]["diverged"]:
            clean = biased = flips = 0.0  # no answer is a wrong answer
        rows += val_rows(method, clean, biased, **columns)
        rows += final_rows(method, clean, biased, flips, tcav, **columns)
    return rows


def all_rows() -> list[Row]:
    rows = [
        score(f"cav:{name}", metric, value, cav=name, chosen=None)
        for name, values in CAVS.items()
        for metric, value in zip(("alignment_sample", "alignment_mean"), values)
    ]
    for method, numbers in CHOSEN.items():
        if method in STRENGTHS:
            rows += path_rows(method)
        else:
            if method in SELECTION:
                rows += val_rows(method, *numbers[:2], chosen=1)
            rows += final_rows(method, *numbers, chosen=1)
    return rows


def make_heatmaps(path: Path, *, n: int = 4, side: int = 64) -> None:
    rng, masks = np.random.default_rng(0), np.zeros((n, side, side), bool)
    masks[:, 50:58, 6:34] = True
    maps = {
        f"relevance/{method}": rng.normal(size=masks.shape).astype(np.float32) for method in ("original", *SELECTION)
    }
    images = rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8)
    direction = masks + rng.normal(0, 0.1, masks.shape)
    np.savez(path, images=images, masks=masks, labels=np.arange(n) % 4, direction=direction, **maps)


N = 24  # of which the last four are somebody's extremes, outside the sample


def case_arrays(*, is_paired: bool = True, n: int = N, side: int = 16) -> dict[str, Any]:
    """Return what cases.npz holds: with the artifact, models call images "melanoma" the more, the more they flip."""
    rng = np.random.default_rng(0)
    labels = np.arange(n) % 4
    arrays: dict[str, Any] = {"labels": labels, "is_sampled": np.arange(n) < n - 4}
    for condition in ("clean", "biased") if is_paired else ("biased",):
        arrays[f"pictures_{condition}"] = rng.integers(0, 256, (n, side, side, 3), dtype=np.uint8)
        for method in ("original", *SELECTION):
            pull = CHOSEN[method][2] if condition == "biased" else 0.0
            right = (1 - pull) * (0.4 + 0.5 * rng.random(n))
            # apart from each other, or a pointer could not tell them
            own = np.where(labels == 1, right, pull + (1 - pull) * np.linspace(0.02, 0.3, n))
            arrays[f"true_class_{condition}/{method}"] = right.astype(np.float32)
            arrays[f"biased_class_{condition}/{method}"] = own.astype(np.float32)
            arrays[f"predicted_{condition}/{method}"] = np.where(own > 0.5, 1, labels)
    for method in SELECTION:
        change = arrays[f"true_class_biased/{method}"] - arrays["true_class_biased/original"]
        arrays[f"counts/{method}"] = np.array([800, (change >= 0.01).sum(), (change <= -0.01).sum()])
    return arrays


def write_cases(path: Path, **options: Any) -> None:
    np.savez(path, **case_arrays(**options))


COUNTED = ("accuracy_clean", "accuracy_biased", "balanced_accuracy_clean", "balanced_accuracy_biased", "flip_rate")


def _counted(rows: Sequence[Row]) -> dict[str, dict[str, Row]]:
    """Return the scores of the chosen models that are counted over images, by metric and method."""
    found: dict[str, dict[str, Row]] = {metric: {} for metric in COUNTED}
    for row in tested_rows(rows):
        if row.metric in found and row.chosen and not row.group:
            found[row.metric].setdefault(row.method, row)
    return found


def pair(method: str, rival: str, metric: str, value: float, *, stderr: float = 0.01) -> Difference:
    """Return a made-up difference on the same images."""
    p = None if metric.startswith("balanced") else 2 * NormalDist().cdf(-abs(value) / stderr)
    return Difference(method, rival, metric, value, stderr, value - 1.96 * stderr, value + 1.96 * stderr, p)


def pairs_of(rows: Sequence[Row]) -> list[Difference]:
    """Return every method minus every earlier one."""
    return [
        pair(method, rival, metric, scores[method].value - scores[rival].value)
        for metric, scores in _counted(rows).items()
        for rival, method in combinations(scores, 2)
    ]


def intervals_of(rows: Sequence[Row]) -> dict[str, dict[str, Interval]]:
    found: dict[str, dict[str, Interval]] = {}
    for metric, scores in _counted(rows).items():
        for method, row in scores.items():
            half = 1.96 * (row.stderr or 0.0)
            found.setdefault(method, {})[metric] = row.value - half, row.value + half
    return found


def changed(method: str, metric: str, value: float) -> Change:
    """Return a change of one score of a chosen model on the test images."""
    key = (method, metric, "test", 1)

    def change(rows: list[Row]) -> list[Row]:
        return [replace(r, value=value) if (r.method, r.metric, r.split, r.chosen) == key else r for r in rows]

    return change


def text_of(path: Path) -> str:
    """Return what a reader sees, without tags, styles, scripts and images."""
    page = re.sub(r"<(style|script)\b.*?</\1>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


META = {
    "title": "Unlearning a timestamp",
    "artifact": "timestamp",
    "biased_class": 1,
    "class_names": ["naevus", "melanoma", "keratosis", "basal cell"],
    "model": "demo",
    "layer": "features.9",
    "n_train": 4000,
    "n_val": 400,
    "n_test": N_TEST,
    "chance_level": 0.25,
    "majority_rate": 0.41,
    "seed": 0,
    "size": 64,
    "versions": {"hansfree": "0.1.0", "torch": "2.15.0", "numpy": "2.4.6"},
    "seconds": {"train": 31.2, "activations": 4.7, "cavs": 12.25, "corrections": 40.0, "evaluation": 20.1},
    "command": "hansfree demo --artifact timestamp --seed 0",
}


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Return a function that writes a run folder; ``change`` may edit its rows, the other options replace.

    Differences are those between the rows by default, and verdicts what follows from all that.
    """

    def make(
        *,
        change: Change = lambda rows: rows,
        meta: dict[str, Any] = META,
        selection: dict[str, Any] = SELECTION,
        paired: Sequence[Difference] | None = None,
        paired_classes: Sequence[Difference] = (),
        intervals: dict[str, Any] | None = None,
        heatmaps: bool = False,
        unknown: Sequence[NotAvailable] = (),
    ) -> Path:
        run = tmp_path / "run"
        run.mkdir()
        rows = change(all_rows())
        write_table(run / "results.csv", rows, unknown=unknown)
        results = Results(
            rows=tested_rows(rows),
            meta=meta,
            selection=selection,
            heatmaps=None,
            paired=tuple(pairs_of(rows) if paired is None else paired),
            intervals=intervals_of(rows) if intervals is None else intervals,
            unknown=tuple(unknown),
        )
        summary = {
            "meta": meta,
            "selection": selection,
            "paired": [asdict(each) for each in results.paired],
            "paired_classes": [asdict(each) for each in paired_classes],
            "intervals": results.intervals,
            "verdicts": {method: each.to_json() for method, each in judge_methods(results).items()},
            "unknown": [asdict(each) for each in unknown],
            "scores": [asdict(row) for row in rows],
        }
        write_json(run / "results.json", summary)
        if heatmaps:
            make_heatmaps(run / "heatmaps.npz")
        return run

    return make


PULLS = {"original": 4.0, "vanilla": 3.5, "p-clarc": 1.5, "a-clarc": 1.0, "rr-clarc": 0.5}


CLASSES = ("naevus", "melanoma", "keratosis")


FIXED = dict.fromkeys(("vanilla", "p-clarc", "a-clarc"), choice(None))


WORLD_SELECTION = FIXED | {"rr-clarc": choice(10.0)}


class World:
    """Test images of three classes, with an artifact that pulls models towards the first.

    Args:
        biased: How many images of each class have the artifact by nature; None inserts it into all.
    """

    def __init__(self, biased: tuple[int, ...] | None = None, *, clean: tuple[int, ...] = (160, 90, 60)) -> None:
        self.labels = np.repeat(np.arange(3), clean)
        self.labels_biased = None if biased is None else np.repeat(np.arange(3), biased)

    def logits(self, skill: float, pull: float, *, seed: int = 0) -> dict[str, np.ndarray]:
        """Return what a model answers that knows so much of the classes, and looks so much at the artifact."""
        rng = np.random.default_rng(seed)
        found = {}
        for name, labels in (("clean", self.labels), ("biased", self.labels_biased)):
            if labels is None:
                found[name] = found["clean"].copy()
            else:
                found[name] = rng.normal(size=(len(labels), 3))
                found[name][np.arange(len(labels)), labels] += skill
        found["biased"][:, 0] += pull
        return found

    def rows(self, method: str, logits: Mapping[str, np.ndarray], *, pull: float = 0.0) -> list[Row]:
        """Return the scores of one model."""
        n = len(logits["biased"])
        derivatives = 0.01 * (pull + 0.1) * np.random.default_rng(1).normal(1, 0.3, size=n)
        evidence = Evidence(
            labels=self.labels,
            biased_class=0,
            logits_clean=logits["clean"],
            logits_biased=logits["biased"],
            labels_biased=self.labels_biased,
            derivatives=derivatives,
        )
        about: dict[str, Any] = {"experiment": "own", "method": method, "seed": 0, "split": "test", "chosen": 1}
        about["strength"] = 10.0 if method == "rr-clarc" else None
        scores = compute_scores(evidence)
        seen = [score for score in scores if score.metric == "balanced_accuracy_biased"]
        return [*rows_of(scores, **about), *rows_of(seen, **about | {"split": "val", "epoch": 1})]

    def run(self, **changed: Mapping[str, np.ndarray]) -> list[Row]:
        """Return a run of four methods; ``changed`` replaces the answers of one, by name with an underscore."""
        models = self._models(changed)
        return [row for method, logits in models.items() for row in self.rows(method, logits, pull=PULLS[method])]

    def _models(self, changed: Mapping[str, Mapping[str, np.ndarray]]) -> dict[str, Mapping[str, np.ndarray]]:
        return {name: changed.get(name.replace("-", "_")) or self.logits(2.5, pull) for name, pull in PULLS.items()}

    def parts(self, **changed: Mapping[str, np.ndarray]) -> dict[str, Any]:
        """Return a run as `make_run` takes it: rows, differences on the same images, intervals, settings."""
        rows, models = self.run(**changed), self._models(changed)
        answers: dict[str, Answers] = {
            name: {kind: predict_classes(logits[kind]) for kind in ("clean", "biased")}
            for name, logits in models.items()
        }
        paired = compare_answers(answers, self.labels, self.labels_biased, biased_class=0, seed=0)
        if self.labels_biased is None:
            with np.errstate(invalid="ignore"):
                chances = {
                    name: [np.exp(each[:, 0] - np.logaddexp.reduce(each, axis=1)) for each in logits.values()]
                    for name, logits in models.items()
                }
            paired += compare_probability_changes({name: after - before for name, (before, after) in chances.items()})
        kept = {key: META[key] for key in ("model", "layer", "size", "seed", "versions", "command")}
        n_biased = len(self.labels if self.labels_biased is None else self.labels_biased)
        counts = {"n_train": 900, "n_val_clean": 200, "n_val_biased": 60}
        counts |= {"n_test_clean": len(self.labels), "n_test_biased": n_biased}
        named = {"title": "My skin model", "artifact": "plaster", "biased_class": 0, "class_names": list(CLASSES)}
        return {
            "change": lambda _: rows,
            "selection": WORLD_SELECTION,
            "meta": kept | named | counts | {"majority_rate": 0.5, "chance_level": 1 / 3},
            "paired": paired,
            "paired_classes": compare_classes(answers, self.labels, rival="original"),
            "intervals": {
                name: score_intervals(each, self.labels, self.labels_biased, seed=0) for name, each in answers.items()
            },
            "unknown": find_unavailable(self.labels, self.labels_biased),
        }


POOR = World((60, 7, 0))  # nearly every plaster is on a naevus
RULE_BROKEN = {"a-clarc": choice(None, rejection=Reason(ReasonCode.DIVERGED))}


def without(rows: list[Row]) -> list[Row]:
    """Return the rows of all methods but RR-ClArC."""
    return [row for row in rows if row.method != "rr-clarc"]


FLIPS = {"original": 0.25, "p-clarc": 0.4, "rr-clarc": 0.0}


def with_others(rows: list[Row]) -> list[Row]:
    """Add the scores of three models under two further artifacts."""
    extra = []
    for method, flips in FLIPS.items():
        like = next(row for row in rows if row.method == method and row.chosen and row.split == "test")
        about = {name: getattr(like, name) for name in ("cav", "target", "norm", "strength")}
        for artifact in ("lsb", "<ink>"):
            extra += [
                score(method, "flip_rate", flips, artifact=artifact, **about),
                score(method, "balanced_accuracy_biased", 0.7, artifact=artifact, **about),
            ]
    return [*rows, *extra]
