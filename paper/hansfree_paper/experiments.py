"""The paper's experiments, one class each."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any, cast, get_args

import numpy as np

from hansfree._internal.files import read_arrays, written_atomically
from hansfree.cavs import CAV
from hansfree.corrections import RRR, LatentCorrection, Norm, RRClArC, Scale, Vanilla
from hansfree.corrections.training import Heads
from hansfree.data import BiasedData
from hansfree.errors import DataError
from hansfree.evaluation import ORIGINAL, Row, method_title, rows_of
from hansfree.metrics import MIN_GROUP, Score, accuracies, paired_difference
from hansfree.pipeline import Experiment, MethodSpec
from hansfree.report.figures import Drawing
from hansfree_paper import figures, tables
from hansfree_paper.aggregate import CACHED_SECONDS, CHANGE, SECONDS, Finding
from hansfree_paper.claims import write_claims
from hansfree_paper.dataset import BenchmarkDataset
from hansfree_paper.runner import (
    Page,
    Reproduction,
    check_shown,
    compared_of,
    finding_of,
    heatmaps_by_subject,
    name_subject,
    reasons_of,
    relevance_of,
)
from hansfree_paper.subjects import Plan, Subject
from hansfree_paper.tables import paragraphs, spread

_SHOWN = 4
_LOCALISED = ("signal", "ridge", "svm")  # CAVs
_GALLERY = 96  # images, about as many as in the paper's appendix
_FEW_BITS = 4  # a change of so many low bits is hidden; more of them can be seen


def _methods(subject: Subject) -> list[str]:
    return [name for name in LatentCorrection.defaults() if name not in subject.plan.left_out]


class _AllMethods(Reproduction):
    """All methods of the paper, but those that the plan leaves out."""

    def specs(self, subject: Subject) -> list[MethodSpec]:
        """Return the plain methods."""
        return [*map(subject.experiment.plain, _methods(subject))]


class Overview(Reproduction, name="overview"):
    """Clean and biased images side by side, and the hidden bits of an LSB attack."""

    title = "The data biases: overview, and what an LSB attack hides in the last bits"
    uses_cache = False

    def check(self, study: BenchmarkDataset, plan: Plan) -> None:
        """Accept any bias with test images: no strength is chosen."""
        check_shown(study, plan)

    def examine(self, subject: Subject) -> Finding:
        """Take the first test images of each kind; no model is needed."""
        data = subject.study.data(subject.plan.model)  # not read into memory
        images = {
            name: np.stack([part.pixels(row)[0] for row in range(min(_SHOWN, len(part)))])
            for name, part in (("clean", data.test_clean), ("biased", data.test_biased))
        }
        return finding_of(subject, [], data=data, arrays=images, notes={"is_inserted": data.is_inserted})

    def present(self, findings: Sequence[Finding]) -> Page:
        """Draw all biases; where only low bits differ, these bits too."""
        once = {f"{finding.key.data} · {finding.key.artifact}": finding for finding in findings}
        pairs = {name: (finding.arrays["clean"], finding.arrays["biased"]) for name, finding in once.items()}
        natural = {name for name, finding in once.items() if not finding.notes["is_inserted"]}
        drawings = [figures.draw_biases(pairs, natural=natural)]
        for clean, biased in (pair for name, pair in pairs.items() if name not in natural):
            bits = int(np.bitwise_xor(clean, biased).max()).bit_length()
            if 0 < bits <= _FEW_BITS:
                drawings.append(figures.draw_hidden_bits(clean, biased, bits=bits))
                break
        return "Test images without and with the artifact.", drawings


class Alignment(Reproduction, name="q1"):
    """The alignments s and s-bar of all CAVs, the best and worst aligned samples, and where three CAVs look."""

    title = "Q1: alignment of CAVs with the true direction of the bias"

    def check(self, study: BenchmarkDataset, plan: Plan) -> None:
        """Reject a bias without biased test images."""
        super().check(study, plan)
        check_shown(study, plan)

    def examine(self, subject: Subject) -> Finding:
        """Fit the CAVs, measure them on test images, and localise the artifact by three of them."""
        experiment = subject.experiment
        rows = experiment.cav_rows()
        workspace, data = experiment.workspace, subject.data
        extremes = None  # the drawing, not the images: a finding outlives its subject's sets
        title = f"{subject.study.artifact}-{subject.plan.model}"
        if data.is_inserted:
            change = workspace.activations["test_biased"].pooled - workspace.activations["test_clean"].pooled
            extremes = figures.draw_extremes(
                _cosines(workspace.cav, change), lambda row: data.test_biased.pixels(row)[0], name=f"extremes-{title}"
            )
        shown = workspace.shown_rows[:_SHOWN]
        images, masks = zip(*(data.test_biased.pixels(int(row)) for row in shown))
        arrays = {"images": np.stack(images), "masks": np.stack(masks)}
        for name in _LOCALISED:
            arrays[f"relevance/{name}"] = workspace.cav_heatmaps(shown, workspace.cavs[name])
        rows_of_gallery = workspace.random_rows[:_GALLERY]
        pictures = [data.test_biased.pixels(int(row))[0] for row in rows_of_gallery]
        galleries = []
        for name in _LOCALISED:
            maps = workspace.cav_heatmaps(rows_of_gallery, workspace.cavs[name])
            galleries.append(figures.draw_gallery(pictures, maps, cav=name, name=title))
        return finding_of(subject, rows, arrays=arrays, notes={"drawings": [extremes, *galleries]})

    sections = (tables.write_alignments,)

    def draw(self, findings: Sequence[Finding]) -> list[Drawing | None]:
        """Draw the bars of all subjects and, for each, samples and localisations."""
        drawings = [figures.draw_alignments(findings), figures.draw_localisation(heatmaps_by_subject(findings))]
        return [*drawings, *(drawing for finding in findings for drawing in finding.notes["drawings"])]


def _cosines(cav: CAV, change: np.ndarray) -> np.ndarray:
    """Return s of every sample, in their order; NaN where the artifact changed nothing."""
    lengths = np.linalg.norm(change, axis=1)
    with np.errstate(invalid="ignore"):
        cosines: np.ndarray = change @ cav.directions_[0] / lengths
    return cosines


class Table1(_AllMethods, name="table1"):
    """All methods on clean and biased test images, at the strength that validation images chose."""

    title = "Q2: correction by all methods (Table 1, the detailed tables, best strengths, scatter, heatmaps)"

    def examine(self, subject: Subject) -> Finding:
        """Correct by every method along its strengths."""
        experiment, methods = subject.experiment, _methods(subject)
        rows = experiment.rows(methods)
        paired: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
        for each in experiment.predictions.paired(methods):
            paired.setdefault((each.method, each.rival), {})[each.metric] = each.value, each.stderr
        reasons, compared = reasons_of(experiment, methods), compared_of(experiment, methods)
        arrays = experiment.predictions.shown(methods)
        return finding_of(subject, rows, arrays=arrays, paired=paired, reasons=reasons, compared=compared)

    sections = (
        tables.write_table1,
        "## Differences on the same images",
        tables.write_differences,
        "## The paper's claims",
        partial(write_claims, about="all classes"),
        "Claims about selected classes: see `hansfree reproduce q3`.",
        "## In detail",
        tables.write_details,
        "## Best strengths",
        tables.write_strengths,
    )

    def draw(self, findings: Sequence[Finding]) -> list[Drawing | None]:
        """Draw all strengths and some heatmaps."""
        return [figures.draw_scatter(findings), figures.draw_method_heatmaps(heatmaps_by_subject(findings))]


_MOST_SELECTED = 20
_SELECTED_SHARE = 1 / 3  # of all classes at most, where there are few
_CLASSES_STREAM = 0x5E1  # of random numbers


class ClassSpecific(Reproduction, name="q3"):
    """The change of accuracy against Vanilla on the classes that react most to the artifact, on others, on all."""

    title = "Q3: class-specific correction"
    sections = (
        tables.write_changes,
        "## Selected classes",
        "Those whose logit rises most in the unpoisoned model when the artifact is put in:",
        tables.write_selected,
        "## The paper's claims about selected classes",
        partial(write_claims, about="selected classes"),
    )
    drawings = (figures.draw_rises, figures.draw_changes)

    def check(self, study: BenchmarkDataset, plan: Plan) -> None:
        """Reject a bias that cannot be inserted into an unpoisoned model's images."""
        super().check(study, plan)
        data = study.data(plan.model)
        if not data.is_inserted or (data.clean_train is None and not study.starts_clean):
            raise DataError(
                f"{study.title} has no unpoisoned model, or no images without and with the artifact: the classes that "
                "react to it cannot be known."
            )

    def examine(self, subject: Subject) -> Finding:
        """Rank the classes by the unpoisoned model, correct by all methods, and compare with Vanilla image by image."""
        experiment, data = subject.experiment, subject.data
        rises = subject.run.stage("q3 rises", lambda: measure_rises(experiment, data))
        selected = rank_classes(rises, data.biased_class)
        groups = _groups(data, selected, seed=subject.plan.seed)
        specs = self.specs(subject)
        rows = _rows(experiment, specs)
        baseline = experiment.predictions.load(Vanilla.name)["correct_clean"]
        for spec in specs:
            rows += _changes(experiment, spec, baseline, groups)
        theirs, classes = set(subject.study.published_labels(subject.plan.model)), data.test_clean.class_names
        names = [f"{classes[label]}{' (in the paper too)' * (label in theirs)}" for label in selected]
        shown = {names[place]: rises[label] for place, label in enumerate(selected)}
        shown |= {"biased class": rises[data.biased_class], "mean of all classes": float(np.mean(rises))}
        return finding_of(subject, rows, notes={"selected": names, "rises": shown})

    def specs(self, subject: Subject) -> list[MethodSpec]:
        """Return all methods, with Vanilla even if it is left out, and those for one class."""
        experiment, kept = subject.experiment, _methods(subject)
        methods = [name for name in LatentCorrection.defaults() if name == Vanilla.name or name in kept]
        return [*map(experiment.plain, methods), *_for_one_class(experiment, subject.data.biased_class, methods)]


def measure_rises(experiment: Experiment, data: BiasedData) -> list[float]:
    """Return by how much the mean logit of each class rises under the artifact in the model that never saw it."""
    reference = experiment.setting.reference()
    if reference is None:
        raise DataError(f"{experiment.setting.name} has no unpoisoned model: classes that react cannot be known.")
    biased, clean = (experiment.workspace.logits_of(reference, part) for part in (data.test_biased, data.test_clean))
    rises = (biased - clean).mean(axis=0)
    return [float(rise) for rise in rises]


def rank_classes(rises: Sequence[float], biased_class: int) -> list[int]:
    """Return the classes whose logit rises most, highest first, without the biased one: that is to be corrected."""
    order = [int(label) for label in np.argsort(-np.asarray(rises)) if label != biased_class]
    return order[: max(1, min(_MOST_SELECTED, int(_SELECTED_SHARE * len(rises))))]


def _groups(data: BiasedData, selected: Sequence[int], *, seed: int) -> dict[str, np.ndarray]:
    """Return which test images belong to the selected classes, to as many random others, and to any."""
    labels = data.test_clean.labels
    others = np.setdiff1d(np.unique(labels), [*selected, data.biased_class])
    rng = np.random.default_rng((seed, _CLASSES_STREAM))
    random = rng.choice(others, size=min(len(selected), len(others)), replace=False)
    groups = {
        "selected": np.isin(labels, selected),
        "random": np.isin(labels, random),
        "all": np.ones(len(labels), dtype=bool),
    }
    return {name: inside for name, inside in groups.items() if inside.any()}  # with two classes no other is left


def _rr_clarc(experiment: Experiment, **options: Any) -> Callable[..., LatentCorrection]:
    """Return a maker of RR-ClArC with options, in the units of the experiment."""
    scale: Scale = "paper" if experiment.setting.grid == "paper" else "artifact"
    return lambda *, cav, images, tuning: RRClArC(cav, scale=scale, tuning=tuning, **options)


def _for_one_class(experiment: Experiment, biased_class: int, methods: Sequence[str]) -> list[MethodSpec]:
    """Return the methods that can spare the other classes, for the biased one, in the units of the plain ones."""
    options = RRR.info.paper_options if experiment.setting.grid == "paper" else {}
    makers: dict[str, Callable[..., LatentCorrection]] = {
        RRR.name: lambda *, cav, images, tuning: RRR(images, target=biased_class, tuning=tuning, **options),
        RRClArC.name: _rr_clarc(experiment, target=biased_class),
    }
    return [
        MethodSpec(
            name=f"{name} class-{biased_class}",
            make=make,
            strengths=experiment.setting.strengths.get(name) or experiment.plain(name).strengths,
            uses_masks=experiment.plain(name).uses_masks,
        )
        for name, make in makers.items()
        if name in methods
    ]


def _changes(
    experiment: Experiment, spec: MethodSpec, baseline: np.ndarray, groups: Mapping[str, np.ndarray]
) -> list[Row]:
    """Return the accuracy on clean test images minus Vanilla's, per group of classes; none where no strength fits."""
    about = _tested(experiment.rows_for(spec))
    if about is None:
        return []
    correct = experiment.predictions.load(spec.name)["correct_clean"]
    about |= {"group": None, "artifact": None}
    found = []
    for group, inside in groups.items():
        value, stderr = paired_difference(correct[inside], baseline[inside])
        score = {"metric": f"{CHANGE}_{group}", "value": value, "stderr": stderr, "n": int(inside.sum())}
        found.append(Row(**{**about, **score}))
    return found


def _rows(experiment: Experiment, specs: Iterable[MethodSpec]) -> list[Row]:
    return [row for spec in specs for row in experiment.rows_for(spec)]


def _tested(rows: Iterable[Row]) -> dict[str, Any] | None:
    """Return the columns of the first chosen row on test images; None where no strength was chosen."""
    return next((asdict(row) for row in rows if row.chosen and row.split == "test"), None)


class Natural(_AllMethods, name="natural"):
    """Accuracy by class and natural artifact, where a group has enough images for it to be known."""

    title = "Natural artifacts: accuracy by class with and without them"

    def check(self, study: BenchmarkDataset, plan: Plan) -> None:
        """Require labels of natural artifacts, and an inserted artifact as the bias."""
        super().check(study, plan)
        if not study.flags():
            raise DataError(f"{study.title} does not say which test images carry an artifact by nature.")
        if not study.data(plan.model).is_inserted:
            raise DataError(
                f"{study.title} has the artifact {study.artifact!r} by nature, and its clean test images are those "
                f"without it. Choose an artifact that can be inserted: {', '.join(study.artifacts)}."
            )

    def examine(self, subject: Subject) -> Finding:
        """Score every method on the groups of the clean test images."""
        experiment, data, methods = subject.experiment, subject.data, _methods(subject)
        rows = {ORIGINAL: experiment.original_rows()}
        rows |= {name: experiment.rows_for(experiment.plain(name)) for name in methods}
        tested = {name: about for name, found in rows.items() if (about := _tested(found)) is not None}
        labels, names = data.test_clean.labels, data.test_clean.class_names
        found, unknown = [], []
        for flag, bits in subject.study.flags().items():
            for label in np.unique(labels):
                for artifact, has_it in ((flag, bits), (f"no {flag}", ~bits)):
                    inside = (labels == label) & has_it
                    if inside.sum() < MIN_GROUP:
                        unknown.append(f"{names[label]}, {artifact}: n/a ({inside.sum()} images)")
                        continue
                    group = {"group": int(label), "artifact": artifact}
                    found += [_group_row(experiment, {**about, **group}, inside) for about in tested.values()]
        reasons = reasons_of(experiment, methods)
        title = name_subject(subject.study, subject.plan).title
        none = [f"{title}, {method_title(name)}: {reasons[name]}" for name in methods if name not in tested]
        return finding_of(subject, found, reasons=reasons, notes={"unknown": unknown, "none": none})

    def present(self, findings: Sequence[Finding]) -> Page:
        """Write a table per subject, and what is not known."""
        parts = [tables.write_groups(findings)]
        heads = {"unknown": f"Groups of fewer than {MIN_GROUP} images:"}
        heads["none"] = "Methods of which no strength could be taken:"
        for name, head in heads.items():
            if lines := dict.fromkeys(line for finding in findings for line in finding.notes[name]):
                parts += [head, "\n".join(f"- {line}" for line in lines)]
        return paragraphs(*parts), []


def _group_row(experiment: Experiment, about: Mapping[str, Any], inside: np.ndarray) -> Row:
    correct = experiment.predictions.load(about["method"])["correct_clean"][inside]
    share, n = float(correct.mean()), len(correct)
    score = {"metric": "accuracy_clean", "value": share, "stderr": np.sqrt(share * (1 - share) / n), "n": n}
    return Row(**{**about, **score})


class _Ablation(Reproduction):
    """RR-ClArC with one thing varied."""

    def examine(self, subject: Subject) -> Finding:
        """Correct by each variant along its strengths."""
        return finding_of(subject, _rows(subject.experiment, self.specs(subject)))


class CAVType(_Ablation, name="ablation-cav"):
    """RR-ClArC along the direction of every CAV, each with the strength that suits it best."""

    title = "Q4: the CAV's type"
    sections, drawings = (tables.write_variants,), (figures.draw_cav_types,)

    def specs(self, subject: Subject) -> list[MethodSpec]:
        """Return Vanilla, and RR-ClArC along each CAV."""
        experiment = subject.experiment
        plain = experiment.plain(RRClArC.name)
        strengths = experiment.setting.strengths.get(RRClArC.name, plain.strengths)
        along = [
            plain
            if cav == experiment.setting.cav
            else MethodSpec(name=f"{RRClArC.name} cav-{cav}", make=plain.make, cav=cav, strengths=strengths)
            for cav in CAV.from_marks()
        ]
        return [experiment.plain(Vanilla.name), *along]


class Strength(_Ablation, name="ablation-strength"):
    """The accuracies over the strength, with heatmaps along the way."""

    title = "Q4: the strength"
    sections = (tables.write_path,)

    def specs(self, subject: Subject) -> list[MethodSpec]:
        """Return Vanilla and RR-ClArC."""
        return [*map(subject.experiment.plain, (Vanilla.name, RRClArC.name))]

    def examine(self, subject: Subject) -> Finding:
        """Correct along all strengths, and explain some of the models."""
        rows = _rows(subject.experiment, self.specs(subject))
        return finding_of(subject, rows, arrays=_heatmaps_along(subject.experiment, rows))

    def draw(self, findings: Sequence[Finding]) -> list[Drawing | None]:
        """Draw the curves."""
        maps = {
            finding.key: figures.StrengthMaps(
                finding.arrays["image"],
                finding.arrays["mask"],
                {float(name): found for name, found in relevance_of(finding).items()},
            )
            for finding in findings
            if finding.arrays
        }
        return [figures.draw_strength_curves(findings, maps=maps)]


class Epochs(_Ablation, name="ablation-epochs"):
    """The accuracies on test images after every epoch, for all strengths."""

    title = "Q4: the number of epochs"
    sections, drawings = (tables.write_epochs,), (figures.draw_epochs,)

    def examine(self, subject: Subject) -> Finding:
        """Train along all strengths, and look at the test images after every epoch; nothing is selected."""
        spec = subject.experiment.plain(RRClArC.name)
        stage = f"{spec.name} epochs on test images"
        return finding_of(subject, subject.experiment.stage_rows(stage, lambda: self._score(subject, spec)))

    def _score(self, subject: Subject, spec: MethodSpec) -> list[Row]:
        """Train a head for every strength, and return its accuracies on the test images after every epoch."""
        path, workspace = subject.experiment.path(spec), subject.experiment.workspace
        method = cast(LatentCorrection, path.method)
        images = workspace.train_for(method)
        held_out = workspace.held_out(method.edit(images))

        def watch(heads: Heads) -> list[list[Score]]:
            clean, _ = heads.predictions(held_out.clean)
            biased = clean[:, :0] if held_out.biased is None else heads.predictions(held_out.biased)[0]
            return [accuracies(*each, held_out.clean.labels, held_out.labels_biased) for each in zip(clean, biased)]

        trained = method.train(
            workspace.cut, images, path.strengths, watch=watch, progress=workspace.progress, label=spec.name
        )
        about = {"experiment": workspace.setting.name, **method.describe(), "method": spec.method, "seed": path.seed}
        return [
            row
            for head in trained
            for epoch, scores in enumerate(head.history, start=1)
            for row in rows_of(scores, epoch=epoch, strength=head.strength, chosen=0, split="test", **about)
        ]


_ABOUT_TARGETS = """The target is the function of the logits whose derivative along the direction is penalised:

- random: the sum of the logits, each with a random sign, drawn anew for every image and step; this is the paper's.
- expected: the mean of that over all signs, without drawing any: the sum of the squared derivatives of all logits; our
  default.
- all: the plain sum of the logits, in which the derivatives of two classes can cancel.
- logprob: the sum of the log-probabilities; in the paper's units their mean over the classes, as published.

The squared and absolute norm are the derivative's. The cosine is squared in our units, absolute in the paper's."""


class Target(_Ablation, name="ablation-target"):
    """What is penalised (the target) and how it is measured (the norm)."""

    title = "Q4: gradient target and norm"
    sections, drawings = (tables.write_variants, _ABOUT_TARGETS), (figures.draw_targets,)

    def specs(self, subject: Subject) -> list[MethodSpec]:
        """Return RR-ClArC with every pair of target and norm, along all strengths of the experiment's grid."""
        experiment = subject.experiment
        # the expectation is of the square only
        pairs = [("expected", "squared")]
        pairs += [(target, norm) for target in ("random", "all", "logprob") for norm in get_args(Norm)]
        strengths = experiment.setting.strengths.get(RRClArC.name, experiment.plain(RRClArC.name).strengths)
        return [
            MethodSpec(
                name=f"{RRClArC.name} {target}-{norm}",
                make=_rr_clarc(experiment, target=target, norm=norm),
                strengths=strengths,
            )
            for target, norm in pairs
        ]


_MAPPED = 5  # strengths along the curve whose heatmaps are shown


def _heatmaps_along(experiment: Experiment, rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the heatmaps of one biased image for a few strengths, whose models are trained again.

    Empty, where no test image carries the artifact.
    """
    if not len(experiment.setting.data.test_biased):
        return {}
    path = experiment.run.path / "stages" / "strengths along.npz"
    if not path.exists():
        some = spread((row.strength for row in rows if row.strength is not None and row.split == "test"), _MAPPED)
        workspace, setting = experiment.workspace, experiment.setting
        train, row = workspace.activations["train"], workspace.shown_rows[:1]
        plain = experiment.plain(RRClArC.name)
        method = plain.make(cav=workspace.cav, images=workspace.data.train, tuning=setting.tuning)
        maps = {}
        for head in method.train(workspace.cut, train, some, progress=experiment.progress):
            model = method.install(setting.model, workspace.cut, train, head.state)
            maps[f"relevance/{head.strength:g}"] = workspace.heatmaps(model, row)[0]
        image, mask = workspace.data.test_biased.pixels(int(row[0]))
        with written_atomically(path) as temporary:
            np.savez(temporary, image=image, mask=mask, **maps)
    return read_arrays(path)


_RUNS = 10  # as in the paper


class Runtime(Reproduction, name="runtime"):
    """Seconds per epoch of every method, with the trunk and on the cache; they take turns, so that noise hits all."""

    title = "Run times of all methods"
    sections, drawings = (tables.write_times,), (figures.draw_times,)

    def examine(self, subject: Subject) -> Finding:
        """Time one epoch of each method, ten times; one before them warms up and does not count."""
        methods, experiment = _methods(subject), subject.experiment
        stage = f"runtime with trunk {' '.join(methods)}"
        found = subject.run.stage(stage, lambda: _measure_times(subject, methods))
        rows = [
            Row(experiment=experiment.setting.name, method=method, seed=turn, metric=metric, value=seconds)
            for method, turn, trunk, cached in found
            for metric, seconds in ((SECONDS, trunk + cached), (CACHED_SECONDS, cached))
        ]
        return finding_of(subject, rows)


def _measure_times(subject: Subject, names: Sequence[str]) -> list[tuple[str, int, float, float]]:
    """Return per method and turn the seconds of a pass of the training images through the trunk, and of the rest."""
    experiment = subject.experiment
    experiment.cav_rows()
    workspace, setting = experiment.workspace, experiment.setting
    tuning = replace(setting.tuning, epochs=1)
    methods = {
        name: experiment.plain(name).make(cav=workspace.cav, images=workspace.masked_train, tuning=tuning)
        for name in names
    }
    found = []
    trunk = workspace.plan("train")
    for turn in subject.progress(range(-1, _RUNS), total=_RUNS + 1, label="run times"):
        start = time.perf_counter()
        for _ in trunk.make(trunk.ranges):
            pass
        passed = time.perf_counter() - start
        for name, method in methods.items():
            start = time.perf_counter()
            for _ in method.train(workspace.cut, workspace.activations["train"], [method.strength]):
                pass
            if turn >= 0:
                found.append((name, turn, passed, time.perf_counter() - start))
    return found
