"""The paper's experiments, one class each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, get_args

import numpy as np

from hansfree._internal.files import read_arrays, written_atomically
from hansfree.cavs import CAV
from hansfree.corrections import RRR, LatentCorrection, Norm, RRClArC, Scale, Vanilla
from hansfree.data import BiasedData
from hansfree.errors import DataError
from hansfree.evaluation import ORIGINAL, Row, method_title
from hansfree.evaluation.localisation import compute_cav_heatmaps
from hansfree.metrics import MIN_GROUP, paired_difference
from hansfree.models import predict_logits
from hansfree.paper.aggregate import CHANGE, SECONDS
from hansfree.paper.claims import check_claims, write_claims
from hansfree.paper.dataset import BenchmarkDataset
from hansfree.paper.figures import (
    StrengthMaps,
    draw_alignments,
    draw_biases,
    draw_cav_types,
    draw_changes,
    draw_epochs,
    draw_extremes,
    draw_hidden_bits,
    draw_localisation,
    draw_method_heatmaps,
    draw_scatter,
    draw_strength_curves,
    draw_targets,
    draw_times,
)
from hansfree.paper.runner import (
    Finding,
    Presentation,
    Reproduction,
    check_shown,
    facts_by_subject,
    facts_of,
    heatmaps_by_subject,
    key_of,
    reasons_of,
    relevance_of,
    rows_by_subject,
)
from hansfree.paper.subjects import Subject
from hansfree.paper.tables import (
    paragraphs,
    write_alignments,
    write_changes,
    write_details,
    write_differences,
    write_epochs,
    write_groups,
    write_path,
    write_strengths,
    write_table1,
    write_times,
    write_variants,
)
from hansfree.pipeline import Experiment, MethodSpec, Plan

_SHOWN = 4

_FEW_BITS = 4  # a change of so many low bits is hidden; more of them can be seen


class Overview(Reproduction, name="overview"):
    """Clean and biased images side by side, and the hidden bits of an LSB attack."""

    title = "The data biases: overview, and what an LSB attack hides in the last bits"

    def check(self, study: BenchmarkDataset, plan: Plan) -> None:
        """Take any that can be seen: no strength is chosen."""
        check_shown(study, plan)

    def examine(self, subject: Subject) -> Finding:
        """Take the first test images of each kind; no model is needed."""
        data = subject.study.data(subject.plan.model)  # as it is: nothing more than these images is read
        clean, biased = (
            np.stack([images.pixels(row)[0] for row in range(min(_SHOWN, len(images)))])
            for images in (data.test_clean, data.test_biased)
        )
        return Finding(
            key=key_of(subject),
            facts=facts_of(subject, data=data),
            rows=[],
            arrays={"clean": clean, "biased": biased},
            notes={"is_inserted": data.is_inserted},
        )

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Draw all biases; where only low bits differ, these bits too."""
        once = {f"{finding.key.data} · {finding.key.artifact}": finding for finding in findings}
        pairs = {name: (finding.arrays["clean"], finding.arrays["biased"]) for name, finding in once.items()}
        in_scenes = {name for name, finding in once.items() if not finding.notes.get("is_inserted", True)}
        drawings = [draw_biases(pairs, in_scenes=in_scenes)]
        for clean, biased in (pair for name, pair in pairs.items() if name not in in_scenes):
            bits = int(np.bitwise_xor(clean, biased).max()).bit_length() if clean.shape == biased.shape else 8
            if 0 < bits <= _FEW_BITS:
                drawings.append(draw_hidden_bits(clean, biased, bits=bits))
                break
        return Presentation(text="Test images without and with the artifact.", drawings=drawings)


_LOCALISED = ("signal", "ridge", "svm")


class Alignment(Reproduction, name="q1"):
    """The alignments s and s-bar of all CAVs, the best and worst aligned samples, and where each CAV looks."""

    title = "Q1: alignment of CAVs with the true direction of the bias"

    def check(self, study: BenchmarkDataset, plan: Plan) -> None:
        """Refuse a bias of which no test image can be looked at."""
        super().check(study, plan)
        check_shown(study, plan)

    def examine(self, subject: Subject) -> Finding:
        """Fit the CAVs, measure them on test images, and localise the artifact by three of them."""
        experiment = subject.experiment
        rows = experiment.cav_rows()
        workspace, data = experiment.workspace, subject.data
        arrays: dict[str, np.ndarray] = {}
        extremes = None
        if data.is_inserted:
            change = workspace.activations["test_biased"].pooled - workspace.activations["test_clean"].pooled
            extremes = draw_extremes(_cosines(workspace.cav, change), lambda row: data.test_biased.pixels(row)[0])
        shown = workspace.shown_rows[:_SHOWN]
        images, masks = zip(*(data.test_biased.pixels(int(row)) for row in shown))
        arrays |= {"images": np.stack(images), "masks": np.stack(masks)}
        inputs = data.test_biased.batch(shown).image
        for name in _LOCALISED:
            maps = compute_cav_heatmaps(
                experiment.setting.model, experiment.setting.layer, workspace.cavs[name], inputs
            )
            arrays[f"relevance/{name}"] = maps.numpy()
        # the drawing, not the images: a finding outlives its subject, whose sets would stay in memory with it
        return Finding(
            key=key_of(subject), facts=facts_of(subject), rows=rows, arrays=arrays, notes={"extremes": extremes}
        )

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Draw the bars of all subjects and, for each, samples and localisations."""
        subjects = rows_by_subject(findings)
        drawings = [draw_alignments(subjects), draw_localisation(heatmaps_by_subject(findings))]
        for finding in findings:
            if drawing := finding.notes["extremes"]:
                drawings.append(drawing.renamed(f"{drawing.name}-{finding.key.artifact}-{finding.key.model}"))
        return Presentation(text=write_alignments(subjects), drawings=drawings)


def _cosines(cav: CAV, change: np.ndarray) -> np.ndarray:
    """Return s of every sample, in their order; NaN where the artifact changed nothing."""
    lengths = np.linalg.norm(change, axis=1)
    with np.errstate(invalid="ignore"):
        cosines: np.ndarray = change @ cav.directions_[0] / lengths
    return cosines


class Table1(Reproduction, name="table1"):
    """All methods on clean and biased test images, at the strength that validation images chose."""

    title = "Q2: correction by all methods (Table 1, the detailed tables, best strengths, scatter, heatmaps)"

    def examine(self, subject: Subject) -> Finding:
        """Correct by every method along its strengths."""
        experiment = subject.experiment
        methods = [name for name in LatentCorrection.defaults() if name not in subject.plan.left_out]
        rows = experiment.rows(methods)
        paired: dict[tuple[str, str], dict[str, tuple[float, float]]] = {}
        for each in experiment.predictions.paired(methods):
            paired.setdefault((each.method, each.rival), {})[each.metric] = each.value, each.stderr
        facts = facts_of(subject, paired=paired, reasons=reasons_of(experiment, methods))
        return Finding(key=key_of(subject), facts=facts, rows=rows, arrays=experiment.predictions.shown(methods))

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write the tables, what of the paper's claims holds here, and draw all strengths and some heatmaps."""
        subjects, facts = rows_by_subject(findings), facts_by_subject(findings)
        text = paragraphs(
            write_table1(subjects, facts=facts),
            "## Differences on the same images",
            write_differences(subjects, facts=facts),
            "## The paper's claims",
            write_claims([claim for claim in check_claims(subjects, facts=facts) if claim.about != "selected classes"]),
            "Claims about selected classes: see `hansfree reproduce q3`.",
            "## In detail",
            write_details(subjects, facts=facts),
            "## Best strengths",
            write_strengths(subjects, facts=facts),
        )
        return Presentation(
            text=text,
            drawings=[draw_scatter(subjects), draw_method_heatmaps(heatmaps_by_subject(findings))],
        )


_MOST_SELECTED = 20

_SELECTED_SHARE = 1 / 3  # of all classes at most, where there are few

_ROLL = 0x5E1


class ClassSpecific(Reproduction, name="q3"):
    """The change of accuracy against Vanilla on the classes that react most to the artifact, on others, on all."""

    title = "Q3: class-specific correction"

    def check(self, study: BenchmarkDataset, plan: Plan) -> None:
        """Refuse a bias that cannot be put into an unpoisoned model's images."""
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
        selected = subject.run.stage("q3 classes", lambda: rank_classes(experiment, data))
        groups = _groups(data, selected, seed=subject.plan.seed)
        left_out = [name for name in subject.plan.left_out if name != Vanilla.name]  # with it all others are compared
        treatments = [
            *(experiment.plain(name) for name in LatentCorrection.defaults() if name not in left_out),
            *_for_one_class(experiment, data.biased_class, without=left_out),
        ]
        rows: list[Row] = []
        for spec in treatments:
            rows += experiment.rows_for(spec)
        baseline = experiment.predictions.load(Vanilla.name)["correct_clean"]
        for spec in treatments:
            rows += _changes(experiment, spec, baseline, groups)
        theirs = set(subject.study.published_labels(subject.plan.model))
        names = [
            f"{data.test_clean.class_names[label]}{' (in the paper too)' * (label in theirs)}" for label in selected
        ]
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows, notes={"selected": names})

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write and draw the changes, and name the selected classes."""
        subjects, facts = rows_by_subject(findings), facts_by_subject(findings)
        claims = [claim for claim in check_claims(subjects, facts=facts) if claim.about == "selected classes"]
        lines = [f"- {finding.key.title}: {', '.join(finding.notes['selected'])}" for finding in findings]
        text = "\n\n".join(
            [
                write_changes(subjects, facts=facts),
                "## Selected classes",
                "Those whose logit rises most in the unpoisoned model when the artifact is put in:",
                "\n".join(lines),
                "## The paper's claims about selected classes",
                write_claims(claims),
            ]
        )
        return Presentation(text=text, drawings=[draw_changes(subjects, facts=facts)])


def rank_classes(experiment: Experiment, data: BiasedData) -> list[int]:
    """Return the classes whose mean logit rises most under the artifact in the model that never saw it, highest first.

    The biased class is not among them: it is the one to be corrected.
    """
    reference = experiment.setting.reference()
    if reference is None:
        raise DataError(f"{experiment.setting.name} has no unpoisoned model: classes that react cannot be known.")
    rise = (predict_logits(reference, data.test_biased) - predict_logits(reference, data.test_clean)).mean(axis=0)
    order = [int(label) for label in np.argsort(-rise) if label != data.biased_class]
    return order[: max(1, min(_MOST_SELECTED, int(_SELECTED_SHARE * len(rise))))]


def _groups(data: BiasedData, selected: Sequence[int], *, seed: int) -> dict[str, np.ndarray]:
    """Return which test images belong to the selected classes, to as many random others, and to any."""
    labels = data.test_clean.labels
    others = np.setdiff1d(np.unique(labels), [*selected, data.biased_class])
    rng = np.random.default_rng((seed, _ROLL))
    random = rng.choice(others, size=min(len(selected), len(others)), replace=False)
    groups = {
        "selected": np.isin(labels, selected),
        "random": np.isin(labels, random),
        "all": np.ones(len(labels), dtype=bool),
    }
    return {name: inside for name, inside in groups.items() if inside.any()}  # with two classes no other is left


def _for_one_class(experiment: Experiment, biased_class: int, *, without: Sequence[str]) -> list[MethodSpec]:
    """Return the methods that can spare the other classes, aimed at the biased one, in the units of the plain ones."""
    setting = experiment.setting

    def rr_clarc(*, cav: Any, images: Any, tuning: Any) -> LatentCorrection:
        scale: Scale = "paper" if setting.grid == "paper" else "artifact"
        return RRClArC(cav, target=biased_class, scale=scale, tuning=tuning)

    def rrr(*, cav: Any, images: Any, tuning: Any) -> LatentCorrection:
        return RRR(images, target=biased_class, tuning=tuning)

    makers = {RRR.name: rrr, RRClArC.name: rr_clarc}
    return [
        MethodSpec(
            name=f"{name} class-{biased_class}",
            make=make,
            strengths=setting.strengths.get(name) or experiment.plain(name).strengths,
            uses_masks=experiment.plain(name).uses_masks,
        )
        for name, make in makers.items()
        if name not in without
    ]


def _changes(
    experiment: Experiment, spec: MethodSpec, baseline: np.ndarray, groups: Mapping[str, np.ndarray]
) -> list[Row]:
    """Return the accuracy on clean test images minus Vanilla's, per group of classes; none where no strength fits."""
    scored = [row for row in experiment.rows_for(spec) if row.chosen and row.split == "test"]
    if not scored:
        return []
    correct = experiment.predictions.load(spec.name)["correct_clean"]
    about = {**asdict(scored[0]), "group": None, "artifact": None}
    found = []
    for group, inside in groups.items():
        value, stderr = paired_difference(correct[inside], baseline[inside])
        score = {"metric": f"{CHANGE}_{group}", "value": value, "stderr": stderr, "n": int(inside.sum())}
        found.append(Row(**{**about, **score}))
    return found


GROUP_ACCURACY = "accuracy_clean"


class Natural(Reproduction, name="natural"):
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
        experiment, data, flags = subject.experiment, subject.data, subject.study.flags()
        rows = experiment.original_rows()
        methods = [name for name in LatentCorrection.defaults() if name not in subject.plan.left_out]
        for name in methods:
            rows += experiment.rows_for(experiment.plain(name))
        labels, names = data.test_clean.labels, data.test_clean.class_names
        found, unknown = [], []
        for flag, bits in flags.items():
            for label in np.unique(labels):
                for has_flag in (True, False):
                    inside = (labels == label) & (bits == has_flag)
                    artifact = flag if has_flag else f"no {flag}"
                    if inside.sum() < MIN_GROUP:
                        unknown.append(f"{names[label]}, {artifact}: n/a ({inside.sum()} images)")
                        continue
                    about = {"group": int(label), "artifact": artifact}
                    found += [_row(rows, experiment, name, inside, about) for name in (ORIGINAL, *methods)]
        reasons = reasons_of(experiment, methods)
        taken = {row.method for row in rows if row.chosen and row.split == "test"}
        key = key_of(subject)
        none = [f"{key.title}, {method_title(name)}: {reasons[name]}" for name in methods if name not in taken]
        return Finding(
            key=key,
            facts=facts_of(subject, reasons=reasons),
            rows=[row for row in found if row],
            notes={"unknown": unknown, "none": none},
        )

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write a table per subject, and what cannot be known."""
        lines = dict.fromkeys(line for finding in findings for line in finding.notes["unknown"])
        parts = [write_groups(rows_by_subject(findings), facts_by_subject(findings))]
        if lines:
            parts += [f"Groups of fewer than {MIN_GROUP} images:", "\n".join(f"- {line}" for line in lines)]
        if none := [line for finding in findings for line in finding.notes["none"]]:
            parts += ["Methods of which no strength could be taken:", "\n".join(f"- {line}" for line in none)]
        return Presentation(text=paragraphs(*parts))


def _row(
    rows: Sequence[Row], experiment: Experiment, method: str, inside: np.ndarray, group: Mapping[str, Any]
) -> Row | None:
    """Return a method's accuracy on a group; None where no strength of it could be taken."""
    about = next((row for row in rows if row.method == method and row.chosen and row.split == "test"), None)
    if about is None:
        return None
    correct = experiment.predictions.load(method)["correct_clean"][inside]
    share, n = float(correct.mean()), len(correct)
    score = {
        "metric": GROUP_ACCURACY,
        **group,
        "value": share,
        "stderr": np.sqrt(share * (1 - share) / n),
        "n": n,
    }
    return Row(**{**asdict(about), **score})


_TARGETS = ("random", "all", "logprob")  # beside "expected", which goes with squares only

_ABOUT_TARGETS = """The target is the function of the logits whose derivative along the direction is penalised:

- random: the sum of the logits, each with a random sign, drawn anew for every image and step; this is the paper's.
- expected: the mean of that over all signs, without drawing any: the sum of the squared derivatives of all logits; our
  default.
- all: the plain sum of the logits, in which the derivatives of two classes can cancel.
- logprob: the sum of the log-probabilities, as in RRR."""

_MAPPED = 5  # strengths along the curve whose heatmaps are shown


class CAVType(Reproduction, name="ablation-cav"):
    """RR-ClArC along the direction of every CAV."""

    title = "Q4: the CAV's type"

    def examine(self, subject: Subject) -> Finding:
        """Correct along each CAV, each with the strength that suits it best."""
        rows = subject.experiment.rows_for(subject.experiment.plain(Vanilla.name))
        for name in CAV.from_marks():
            rows += subject.experiment.rows_for(_along(subject.experiment, name))
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows)

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Draw the biased accuracy by CAV."""
        subjects = rows_by_subject(findings)
        return Presentation(text=write_variants(subjects), drawings=[draw_cav_types(subjects)])


class Strength(Reproduction, name="ablation-strength"):
    """The accuracies over the strength, with heatmaps along the way."""

    title = "Q4: the strength"

    def examine(self, subject: Subject) -> Finding:
        """Correct along all strengths, and explain some of the models."""
        experiment = subject.experiment
        rows = [row for name in (Vanilla.name, RRClArC.name) for row in experiment.rows_for(experiment.plain(name))]
        return Finding(
            key=key_of(subject), facts=facts_of(subject), rows=rows, arrays=_heatmaps_along(experiment, rows)
        )

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write every strength, and draw the curves."""
        subjects = rows_by_subject(findings)
        maps = {finding.key: _strength_maps(finding) for finding in findings if finding.arrays}
        return Presentation(text=write_path(subjects), drawings=[draw_strength_curves(subjects, maps=maps)])


class Epochs(Reproduction, name="ablation-epochs"):
    """The accuracies on validation images after every epoch, for all strengths."""

    title = "Q4: the number of epochs"

    def examine(self, subject: Subject) -> Finding:
        """Take what the validation images said after every epoch."""
        rows = subject.experiment.rows_for(subject.experiment.plain(RRClArC.name))
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows)

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write some strengths and epochs, and draw a line per strength."""
        subjects = rows_by_subject(findings)
        return Presentation(text=write_epochs(subjects), drawings=[draw_epochs(subjects)])


class Target(Reproduction, name="ablation-target"):
    """What is penalised (the target) and how it is measured (the norm)."""

    title = "Q4: gradient target and norm"

    def examine(self, subject: Subject) -> Finding:
        """Correct with every pair of target and norm along a few strengths."""
        experiment = subject.experiment
        pairs = [("expected", "squared"), *((target, norm) for target in _TARGETS for norm in get_args(Norm))]
        rows: list[Row] = []
        for target, norm in pairs:
            rows += experiment.rows_for(_aimed(experiment, target, norm))
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows)

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Draw the accuracies over the strength, a line per target and a panel per norm."""
        subjects = rows_by_subject(findings)
        return Presentation(
            text=paragraphs(write_variants(subjects), _ABOUT_TARGETS), drawings=[draw_targets(subjects)]
        )


def _along(experiment: Experiment, cav: str) -> MethodSpec:
    plain = experiment.plain(RRClArC.name)
    if cav == experiment.setting.cav:
        return plain
    strengths = experiment.setting.strengths.get(RRClArC.name, plain.strengths)
    return MethodSpec(name=f"{RRClArC.name} cav-{cav}", make=plain.make, cav=cav, strengths=strengths)


def _aimed(experiment: Experiment, target: Any, norm: Any) -> MethodSpec:
    """Return RR-ClArC with another target and norm, along every fourth strength of the experiment's grid."""
    is_the_papers = experiment.setting.grid == "paper"

    def make(*, cav: Any, images: Any, tuning: Any) -> LatentCorrection:
        return RRClArC(cav, target=target, norm=norm, scale="paper" if is_the_papers else "artifact", tuning=tuning)

    grid = RRClArC.info.paper_strengths if is_the_papers else RRClArC.info.strengths
    strengths = experiment.setting.strengths.get(RRClArC.name, grid[::4])
    return MethodSpec(name=f"{RRClArC.name} {target}-{norm}", make=make, strengths=strengths)


def _heatmaps_along(experiment: Experiment, rows: Sequence[Row]) -> dict[str, np.ndarray]:
    """Return the heatmaps of one biased image for a few strengths; the models are trained anew, for none was kept.

    Nothing, where no test image carries the artifact.
    """
    if not len(experiment.setting.data.test_biased):
        return {}
    path = experiment.run.path / "stages" / "strengths along.npz"
    if not path.exists():
        strengths = sorted({row.strength for row in rows if row.strength is not None and row.split == "test"})
        some = [strengths[i] for i in np.unique(np.linspace(0, len(strengths) - 1, _MAPPED).round().astype(int))]
        workspace, setting = experiment.workspace, experiment.setting
        train, row = workspace.activations["train"], workspace.shown_rows[:1]
        plain = experiment.plain(RRClArC.name)
        method = plain.make(cav=workspace.cav, images=workspace.data.train, tuning=setting.tuning)
        maps = {}
        for head in method.train(workspace.cut, train, some, progress=experiment.progress):
            model = method.install(setting.model, workspace.cut, train, head.state)
            maps[f"relevance/{head.strength:g}"] = workspace.pictures.heatmaps(model, row)[0]
        image, mask = workspace.data.test_biased.pixels(int(row[0]))
        with written_atomically(path) as temporary:
            np.savez(temporary, image=image, mask=mask, **maps)
    return read_arrays(path)


def _strength_maps(finding: Finding) -> StrengthMaps:
    maps = {float(name): found for name, found in relevance_of(finding).items()}
    return StrengthMaps(finding.arrays["image"], finding.arrays["mask"], maps)


_RUNS = 10  # as in the paper


class Runtime(Reproduction, name="runtime"):
    """Seconds per epoch of every method, and relative to Vanilla; they take turns, so that noise hits them alike."""

    title = "Run times of all methods"

    def examine(self, subject: Subject) -> Finding:
        """Time one epoch of each method, ten times; one before them warms up and does not count."""
        methods = [name for name in LatentCorrection.defaults() if name not in subject.plan.left_out]
        found = subject.run.stage(f"runtime {' '.join(methods)}", lambda: self._measure(subject, methods))
        name = subject.experiment.setting.name
        rows = [
            Row(experiment=name, method=method, seed=permute_layer, metric=SECONDS, value=seconds)
            for method, permute_layer, seconds in found
        ]
        return Finding(key=key_of(subject), facts=facts_of(subject), rows=rows)

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Write and draw the times."""
        subjects = rows_by_subject(findings)
        return Presentation(
            text=write_times(subjects, facts=facts_by_subject(findings)), drawings=[draw_times(subjects)]
        )

    def _measure(self, subject: Subject, names: Sequence[str]) -> list[tuple[str, int, float]]:
        experiment = subject.experiment
        experiment.cav_rows()
        workspace, setting = experiment.workspace, experiment.setting
        tuning = replace(setting.tuning, epochs=1)
        methods = {
            name: experiment.plain(name).make(cav=workspace.cav, images=workspace.masked_train, tuning=tuning)
            for name in names
        }
        found = []
        for permute_layer in subject.progress(range(-1, _RUNS), total=_RUNS + 1, label="run times"):
            for name, method in methods.items():
                start = time.perf_counter()
                for _ in method.train(workspace.cut, workspace.activations["train"], [method.strength]):
                    pass
                if permute_layer >= 0:
                    found.append((name, permute_layer, time.perf_counter() - start))
        return found
