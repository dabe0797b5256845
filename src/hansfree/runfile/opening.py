"""Open what a run file names, and check that it fits together, before any work starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from hansfree.artifacts import Artifact, Patch
from hansfree.corrections import Correction
from hansfree.datasets import ExampleSet, Normalize
from hansfree.errors import OptionError, RunError
from hansfree.experiments import Setting
from hansfree.experiments.setting import tell_no_pairs
from hansfree.metrics import MIN_GROUP
from hansfree.models import Preprocessing
from hansfree.progress import Progress, silent
from hansfree.runfile.concepts import describe_concept, find_concepts, read_marks
from hansfree.runfile.disk import tell_disk
from hansfree.runfile.identity import LATER_KEYS, check_tried, known_config
from hansfree.runfile.loading import check_files, filled_in, first_logits, load_run_model, model_facts
from hansfree.runfile.schema import AUTO, COLUMN, Rule, RunFile
from hansfree.runfile.telling import advise_more, describe_balance, describe_further, describe_images, notes_on_scaling
from hansfree.runs import check_run_folder
from hansfree.selection import BalancedRule, KneeRule, SelectionRule, check_selectable
from hansfree.splitting import split
from hansfree.studies import BiasedData, OwnImages
from hansfree.studies.classes import find_class
from hansfree.training import FineTuning, check_double, check_solvable

_RULES: dict[Rule, type[BalancedRule]] = {"best": BalancedRule, "knee": KneeRule}


@dataclass(frozen=True, eq=False, kw_only=True)
class Opened:
    """A run file's model and images, found to fit together."""

    run: RunFile
    setting: Setting
    images: OwnImages
    facts: tuple[tuple[str, str], ...]  # what was found or chosen: a name and a sentence each


def open_run_file(run: RunFile, *, progress: Progress = silent) -> Opened:
    """Load the model, read the lists, check every picture and pass a first batch; raise what does not fit.

    The order is by cost: what can be refused in a moment is refused first.
    """
    _check_strengths(run)
    marks = read_marks(run)  # a misspelt column is no other run
    _check_folder(run)
    check_tried(run)
    loaded = load_run_model(run)
    images = _open_images(run, loaded.preprocessing, progress, kind=OwnImages)
    data = replace(images.data(), artifact=_artifact_name(run, images))
    check_selectable(data, advice=advise_more(images, data))
    if run.correction.needs_pairs and data.train_biased is None:
        raise OptionError(tell_no_pairs())
    removed, protected = (
        find_concepts(names, marks, images=images, data=data, cav=run.correction.cav)
        for names in (run.artifact.remove, run.artifact.keep)
    )
    setting = Setting(
        name=run.out.name,
        data=data,
        model=loaded.model,
        layer=loaded.layer,
        tuning=_tuning(run),
        cav=run.correction.cav,
        further_cavs=run.correction.further_cavs,
        strengths=run.correction.strengths,
        rule=_rule(run, data, images),
        repeats=run.correction.repeats,
        train="last" if run.model.output == "label" else run.correction.train,
        workers=run.workers,
        removed=removed,
        protected=protected,
    )
    if run.correction.optimizer == "converged":
        check_double(run.device)
        example = setting.data.train.batch([0]).image
        check_solvable(split(setting.model, setting.layer, example=example, train=setting.train))
    logits = first_logits(loaded.model, setting.data.train)
    further = len(run.artifact.tested) * len(data.test_clean)
    further += sum(len(each.rows) for each in (*removed, *protected) if isinstance(each.told_by, ExampleSet))
    methods = len(run.correction.trials)
    facts = [
        *model_facts(run, loaded, logits),
        ("images", describe_images(data, images)),
        *([("balanced", describe_balance(data))] if run.correction.balanced else []),
        *([("further CAVs", describe_further(run.correction))] if run.correction.further_cavs else []),
        ("disk", tell_disk(run.out, setting, methods=methods, with_pairs=run.correction.needs_pairs, further=further)),
        *(("removed too", describe_concept(each, data)) for each in removed),
        *(("kept", describe_concept(each, data)) for each in protected),
        *(("note", remark) for remark in (*notes_on_scaling(images, loaded.preprocessing), *images.remarks)),
        *(("left out", sentence) for sentence in images.skipped),
    ]
    return Opened(run=run, setting=setting, images=images, facts=tuple(facts))


def _check_strengths(run: RunFile) -> None:
    for method in run.correction.strengths:
        if not Correction.named(method).has_strength:
            raise OptionError(f"correction.strengths: {method} has no strength to choose. Leave it out.")
        if method not in run.correction.methods:
            raise OptionError(f"correction.strengths: {method} is not among correction.methods. Add it there.")


def _check_folder(run: RunFile) -> None:
    """Refuse a folder that holds another run, unless a name is misspelt: that is told first, with the nearest.

    The biased class waits for `check_unchanged`: images tell which one is meant where none is given.
    """
    known = known_config(run)
    del known["artifact"]["biased_class"]
    try:
        check_run_folder(run.out, known, defaults=LATER_KEYS)
    except RunError:
        check_files(run)
        _guarded_classes(run, _open_images(run, filled_in(run, None), silent, kind=_Listed).class_names)
        if run.model.layer != AUTO:
            load_run_model(run)  # takes seconds, and only here
        raise


class _Listed(OwnImages):
    """What a table or folders say of images: names are checked, and no picture is opened."""

    class_names: tuple[str, ...]

    def read(self) -> None:
        """Read the list alone."""
        self.class_names = tuple(self.listing(Path(self.root or "")).class_names)


_Images = TypeVar("_Images", bound=OwnImages)


def _open_images(run: RunFile, seen: Preprocessing, progress: Progress, *, kind: type[_Images]) -> _Images:
    return kind(
        root=run.data.root,
        table=run.data.table,
        artifacts=run.data.artifacts,
        classes=run.data.classes,
        label=run.model.label,
        artifact_column=run.artifact.column,
        biased_class=run.artifact.biased_class,
        shares=run.data.shares,
        insert=_inserted(run),
        share=run.artifact.share,
        size=seen.size,
        resize=seen.resize,
        channels=1 if seen.channels == 1 else 3,
        transform=Normalize(seen.mean, seen.std),
        seed=run.seed,
        skip_bad=run.data.skip_bad,
        progress=progress,
    )


def _rule(run: RunFile, data: BiasedData, images: OwnImages) -> SelectionRule:
    """Return the rule of the file, with classes by number; one that has too few images cannot be guarded."""
    names = data.val_clean.class_names
    guarded = _guarded_classes(run, names)
    for label in guarded:
        for kind, part in (("validation", data.val_clean), ("test", data.test_clean)):
            if (count := int((part.labels == label).sum())) < MIN_GROUP:
                raise OptionError(
                    f"correction.class_budgets: {names[label]!r} has {count} clean {kind} images; {MIN_GROUP} are "
                    "needed to know what it loses."
                )
        one = 1 / (data.val_clean.labels == label).sum()
        if guarded[label] < one:
            images.remarks.append(
                f"correction.class_budgets: {names[label]!r} may lose {100 * guarded[label]:g} points, and one of its "
                f"clean validation images is {100 * one:.1f}: so it may lose none of them, not by chance either."
            )
    return _RULES[run.correction.rule](run.correction.budget, guarded)


def _guarded_classes(run: RunFile, names: Sequence[str]) -> dict[int, float]:
    """Return the budgets of single classes by number; refuse a name that is no class, or two of the same one."""
    given: dict[int, str] = {}
    for name in run.correction.class_budgets:
        label = find_class(name, names, option="correction.class_budgets")
        if label in given:
            raise OptionError(
                f"correction.class_budgets names {names[label]!r} twice, as {given[label]!r} and {name!r}. Leave one "
                "out."
            )
        given[label] = name
    return {label: run.correction.class_budgets[name] for label, name in given.items()}


def _inserted(run: RunFile) -> Artifact | None:
    given = run.artifact
    if given.insert is None:
        return None
    if given.file is None:
        return Artifact.named(given.insert)()
    return Patch(file=given.file, place=given.place, size=given.scale, angle=given.angle)


def _artifact_name(run: RunFile, images: OwnImages) -> str:
    """Return what results call the artifact; empty where nobody says what it is."""
    given = run.artifact
    inserted = given.insert if given.file is None else given.file.stem
    by_column = images.artifact if images.artifact == given.column != COLUMN else ""
    return given.name or by_column or inserted or ""


def _tuning(run: RunFile) -> FineTuning:
    given = run.correction
    return FineTuning(
        optimizer=given.optimizer,
        learning_rate=given.learning_rate,
        epochs=given.epochs,
        batch_size=given.batch_size,
        balanced=given.balanced,
        leading=given.leading,
        seed=run.seed,
        device=run.device,
    )
