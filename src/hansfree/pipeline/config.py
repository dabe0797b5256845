"""The run file: its keys, and how it is read."""

from __future__ import annotations

import math
import os
import shlex
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveInt,
    ValidationError,
    model_validator,
)

from hansfree.cavs import CAV
from hansfree.corrections import Correction, DeepCorrection, LatentCorrection, Need, along_cavs, method_named, uses_cav
from hansfree.corrections.training import Optimizer
from hansfree.data import MAX_SIZE, SHARES, Artifact, Place, insertable_artifacts
from hansfree.errors import OptionError, closest, nearest
from hansfree.models import PRETRAINED

COLUMN = "artifact"
"""The default column of artifact labels."""
AUTO = "auto"
"""The value of a key that hansfree resolves."""

AnyCorrection = LatentCorrection | DeepCorrection


def find_method(name: str) -> type[AnyCorrection]:
    """Return a correction of either family by its name, as ``rr-clarc``, ``rr-clarc@svm`` or ``match``."""
    return DeepCorrection.members().get(name) or method_named(name)


def is_deep(name: str) -> bool:
    """Return whether a method trains the whole network."""
    return name in DeepCorrection.members()


def _as_name(value: Any) -> Any:
    """Convert a whole number to text, as class 0 is called "0"; YAML's truth values were words."""
    if isinstance(value, bool):
        raise ValueError("YAML reads yes, no, on and off as true or false; quote the name")
    return str(value) if isinstance(value, int) else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, (str, int, float)) else value


def _or_empty(section: Any) -> Any:
    return {} if section is None else section  # all of its keys are comments


def _no_name_twice(names: tuple[str, ...]) -> tuple[str, ...]:
    if twice := [name for i, name in enumerate(names) if name in names[:i]]:
        raise ValueError(f"{twice[0]!r} is given twice")
    return names


def _sum_to_one(shares: tuple[float, ...]) -> tuple[float, ...]:
    if not math.isclose(sum(shares), 1):
        raise ValueError(
            f"training, validation and test share all images: {list(shares)} sums to {sum(shares):g}, not 1"
        )
    return shares


def _member(family: Any) -> AfterValidator:
    """Return a validator of registered names; their error is a `ValueError`, as pydantic expects."""

    def check(name: str) -> str:
        family.named(name)
        return name

    return AfterValidator(check)


def _insertable(name: str, known: Collection[str] = (), way: str = "") -> str:
    known = known or [*Artifact.for_images()]
    if name not in known and (way or ":" not in name):  # else a function of the user, file.py:function
        raise ValueError(f"artifact {name!r} cannot be inserted{way}.{nearest(name, known)} Known: {', '.join(known)}")
    return name


def _insertable_by_name(name: str) -> str:
    return _insertable(name, insertable_artifacts(), " by its name alone")


ItemT = TypeVar("ItemT")
ListOf = Annotated[tuple[ItemT, ...], BeforeValidator(_as_list)]  # one value is a list of one
DistinctListOf = Annotated[ListOf[ItemT], AfterValidator(_no_name_twice)]

Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Name = Annotated[str, BeforeValidator(_as_name)]
Method = Annotated[str, _member(Correction)]
Kind = Annotated[str, _member(CAV)]
Budget = Annotated[float, Field(ge=0, le=1)]
Strengths = Annotated[ListOf[Annotated[float, Field(ge=0, allow_inf_nan=False)]], Field(min_length=1)]
Rule = Literal["best", "knee"]


class Section(BaseModel):
    """A section of the run file; unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class ModelSection(Section):
    """Where the model comes from, and what its outputs mean."""

    source: str
    weights: str | None = None  # a path, or the word for the library's own
    output: Literal["classes", "binary", "label"] = "classes"
    label: Name | None = None  # of a multi-label model: the one to correct
    layer: str = AUTO

    @model_validator(mode="after")
    def _label_goes_with_its_output(self) -> ModelSection:
        if (self.output == "label") != (self.label is not None):
            raise ValueError("'output: label' needs 'label: NAME', and the reverse: one label of a multi-label model")
        return self


class DataSection(Section):
    """The images, their labels and their preprocessing."""

    root: Path
    table: Path | None = None
    artifacts: Path | None = None
    classes: Annotated[tuple[Name, ...], AfterValidator(_no_name_twice)] | None = None
    shares: Annotated[tuple[Share, Share, Share], AfterValidator(_sum_to_one)] = SHARES
    size: Annotated[int, Field(gt=0, le=MAX_SIZE)] | None = None
    resize: Literal["squash", "crop"] | None = None
    channels: Literal[1, 3] | None = None
    mean: Annotated[tuple[Annotated[float, Field(allow_inf_nan=False)], ...], Field(min_length=1)] | None = None
    std: Annotated[tuple[Positive, ...], Field(min_length=1)] | None = None
    skip_bad: bool = False

    @model_validator(mode="after")
    def _one_list(self) -> DataSection:
        if self.table is not None and self.artifacts is not None:
            raise ValueError("a table has a column for the artifact: leave out 'artifacts'")
        if (self.mean is None) != (self.std is None):
            raise ValueError("give 'mean' and 'std' together")
        return self


class ArtifactSection(Section):
    """What the model must not use: labelled by a column or list, or inserted by hansfree."""

    name: Name | None = None  # what results and report call it
    column: Name = COLUMN
    biased_class: Name | None = None
    insert: Annotated[str, AfterValidator(_insertable)] | None = None
    file: Path | None = None
    place: Place = "random"
    scale: Annotated[float, Field(gt=0, le=1)] = 0.25
    angle: Annotated[float, Field(ge=0, le=180)] = 0.0
    share: Share = 0.5
    transplant: bool = True  # without insert: held-out images get the artifact of other held-out images
    also: DistinctListOf[Annotated[str, AfterValidator(_insertable_by_name)]] = ()  # only tested
    remove: DistinctListOf[Name] = ()  # other artifacts that are corrected too: columns, or insertable ones
    keep: DistinctListOf[Name] = ()  # concepts to protect

    @model_validator(mode="after")
    def _keys_fit(self) -> ArtifactSection:
        if (self.insert == "patch") != (self.file is not None):
            raise ValueError("'insert: patch' needs 'file: IMAGE.png', and the reverse: the image is inserted")
        own = (self.name, self.column, self.insert, self.file.stem if self.file else None)
        for key, names in (("also", self.also), ("remove", self.remove), ("keep", self.keep)):
            if mine := [name for name in names if name in own]:
                raise ValueError(f"'{key}' names further artifacts, and {mine[0]!r} is this run's own artifact")
        if both := [name for name in self.remove if name in self.keep]:
            raise ValueError(f"{both[0]!r} cannot be both in 'remove' and in 'keep'")
        return self

    @property
    def tested(self) -> tuple[str, ...]:
        """The other artifacts that are inserted into test images, each alone."""
        others = (name for name in (*self.remove, *self.keep) if name in insertable_artifacts())
        return tuple(dict.fromkeys((*self.also, *others)))


class NetworkSection(Section):
    """How methods train that change the whole network."""

    learning_rate: Positive = 0.005
    epochs: PositiveInt = 2
    batch_size: PositiveInt = 32
    augment: bool = True  # flip and shift images of the task loss at random
    mixed_precision: bool | Literal["auto"] = "auto"  # bfloat16 in forward passes


_METHODS = ("vanilla", "p-clarc", "a-clarc", "rr-clarc", "match")


class CorrectionSection(Section):
    """Methods and training; by default the paper's methods for the head, by its recipe, and one for all layers."""

    methods: Annotated[DistinctListOf[Method], Field(min_length=1)] = _METHODS
    cav: Kind = "signal"
    further_cavs: DistinctListOf[Kind] = ()  # that methods go along too, each as a method of its own
    train: Literal["all", "last"] = "all"
    optimizer: Optimizer = "sgd"
    learning_rate: Positive = 1e-4
    epochs: PositiveInt = 10
    batch_size: PositiveInt = 32
    balanced: bool = False
    stable: bool = True  # shorten steps of sgd that would diverge
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0  # of sgd
    strengths: dict[Method, Strengths] = {}
    budget: Budget = 0.02
    class_budgets: dict[Name, Budget] = {}
    rule: Rule = "best"
    repeats: PositiveInt = 1
    network: Annotated[NetworkSection, BeforeValidator(_or_empty)] = NetworkSection()

    @property
    def trials(self) -> tuple[str, ...]:
        """All methods of the run, with those along further CAVs (rr-clarc@svm)."""
        return tuple(
            trial
            for name in self.methods
            for trial in ((name,) if is_deep(name) else along_cavs([name], self.further_cavs))
        )

    def strengths_of(self, trial: str) -> list[float]:
        """Return the strengths of a method; empty if it has none."""
        method = find_method(trial)
        return method.info.strengths_to_try(self.strengths.get(method.name))  # for all directions of a method

    @property
    def needs_pairs(self) -> bool:
        """Whether counterfactual pairs of training images are needed."""
        methods = map(find_method, self.methods)
        kinds = map(CAV.named, (self.cav, *self.further_cavs))
        return any(kind.needs_pairs for kind in kinds) or any(Need.PAIRS in method.info.needs for method in methods)

    @model_validator(mode="after")
    def _keys_fit(self) -> CorrectionSection:
        methods = {name: find_method(name).info for name in self.methods}
        if self.cav in self.further_cavs:
            raise ValueError(f"'further_cavs' names others, and {self.cav!r} is this run's own ('cav')")
        if self.further_cavs and not any(uses_cav(name) for name in self.methods if not is_deep(name)):
            raise ValueError(f"'further_cavs' has no effect: none of {', '.join(self.methods)} uses a CAV")
        # Equal repeats would look like evidence.
        if self.repeats > 1 and self.optimizer == "converged":
            raise ValueError("'repeats' has no effect with 'optimizer: converged': leave one of them out")
        if self.repeats > 1 and not any(info.uses_seed for info in methods.values()):
            raise ValueError(f"'repeats' has no effect: none of {', '.join(self.methods)} depends on a seed")
        for name in self.strengths:
            if not find_method(name).info.has_strength:
                raise ValueError(f"'strengths': {name} has no strength to choose. Leave it out")
            if name not in methods:
                raise ValueError(f"'strengths': {name} is not among 'methods'. Add it there")
        masked = [name for name, info in methods.items() if Need.MASKS in info.needs]
        if self.optimizer == "converged" and masked:
            raise ValueError(f"'optimizer: converged' is not available for {masked[0]}: leave one of them out")
        return self


class RunConfig(Section):
    """A model, its data, the artifact, and how to correct it."""

    model: ModelSection
    data: DataSection
    artifact: Annotated[ArtifactSection, BeforeValidator(_or_empty)] = ArtifactSection()
    correction: Annotated[CorrectionSection, BeforeValidator(_or_empty)] = CorrectionSection()
    out: Path
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0  # as far as all generators go
    device: str = "cpu"
    workers: Annotated[int, Field(ge=0)] = 0

    @model_validator(mode="after")
    def _methods_fit(self) -> RunConfig:
        """Refuse methods of the whole network where they do not apply, or leave them out of the default."""
        deep, reason = [name for name in self.correction.methods if is_deep(name)], ""
        if self.model.output == "label":
            reason = "would change the other labels of a multi-label model too"
        elif self.artifact.remove or self.artifact.keep:
            reason = "corrects the run's own artifact only, without artifact.remove and artifact.keep"
        if deep and reason and "methods" in self.correction.model_fields_set:
            raise ValueError(f"{deep[0]} trains the whole network: it {reason}. Leave it out of correction.methods")
        if deep and reason:
            object.__setattr__(self, "correction", without_deep(self).correction)  # the model is frozen
        return self


def without_deep(run: RunConfig) -> RunConfig:
    """Return the run without methods of the whole network."""
    methods = tuple(name for name in run.correction.methods if not is_deep(name))
    return run.model_copy(update={"correction": run.correction.model_copy(update={"methods": methods})})


_MERGE = "tag:yaml.org,2002:merge"  # of `<<`, which takes keys from elsewhere in the file

SectionT = TypeVar("SectionT", bound=Section)


def read_run_file(path: Path) -> RunConfig:
    """Read a run file; relative paths start at its folder."""
    try:
        text = path.read_text(encoding="utf-8")
        content = yaml.load(text, _Loader)
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, FileNotFoundError):
            beside = path.parent.glob("*.y*ml") if path.parent.is_dir() else ()
            names = {entry.stem: entry.name for entry in beside}  # endings are alike anyway
            near = closest(path.stem, names)
            hint = "" if near is None else f" Did you mean {names[near]!r}?"
            make = f"To write a new one: hansfree init {shlex.quote(str(path))}"
            raise OptionError(f"There is no file {path}.{hint} {make}") from error
        raise OptionError(f"Cannot read {path} ({error}).") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # a date of month 13 is a ValueError of its own
        raise OptionError(f"{path} is not valid YAML: {_describe_yaml_error(error, text)}") from error
    if not isinstance(content, dict):
        raise OptionError(f"{path} is not a run file: expected keys and values. `hansfree init` writes one.")
    return _anchored(validate_config(content, f"{path} is not valid:"), path.parent.absolute())


def validate_config(content: Mapping[str, Any], head: str) -> RunConfig:
    """Return a run's settings, or raise an OptionError with a line below ``head`` for each that is not valid."""
    try:
        return RunConfig.model_validate(content)
    except ValidationError as error:
        faults = [_describe_fault(fault) for fault in error.errors()]
        raise OptionError("\n  ".join([head, *faults])) from error


_MAX_VALUES = 10_000  # of a run file; a few aliases of aliases would make millions


class _Loader(yaml.SafeLoader):
    """Plain values only, and no key twice: YAML itself would take the last without a word."""

    def get_single_node(self) -> yaml.Node | None:
        node: yaml.Node | None = super().get_single_node()
        if node is not None and _count_values(node, {}) > _MAX_VALUES:
            problem = f"more than {_MAX_VALUES} values, counting those that aliases (*) repeat"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return node

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        written = [key for key, _ in node.value if key.tag != _MERGE]
        keys = [self.construct_object(key, deep=True) for key in written]
        if twice := [key for i, key in enumerate(keys) if key in keys[:i]]:
            raise yaml.constructor.ConstructorError(None, None, f"the key {twice[0]!r} is given twice", node.start_mark)
        return super().construct_mapping(node, deep=deep)


def _count_values(node: yaml.Node, counts: dict[int, float]) -> float:
    """Return the number of values below a node with all aliases expanded; infinite if one contains itself."""
    if id(node) not in counts:
        counts[id(node)] = math.inf
        inside = node.value if isinstance(node, yaml.CollectionNode) else ()
        parts = [part for entry in inside for part in (entry if isinstance(entry, tuple) else (entry,))]
        counts[id(node)] = 1 + sum(_count_values(part, counts) for part in parts)
    return counts[id(node)]


def _describe_yaml_error(error: Exception, text: str) -> str:
    """Return what is wrong and where, with the line itself."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    if not isinstance(error, yaml.MarkedYAMLError) or mark is None:
        return " ".join(str(error).split()).replace('in "<unicode string>", ', "at ") + "."
    found = ", ".join(filter(None, (error.context, error.problem)))
    line = (text.splitlines() or [""])[min(mark.line, len(text.splitlines()) - 1)]
    return f"line {mark.line + 1}, column {mark.column + 1}: {found}.\n    {line}\n    {' ' * mark.column}^"


def _describe_fault(fault: Mapping[str, Any]) -> str:
    """Return what is wrong with one key."""
    place = ".".join(str(part) for part in fault["loc"] if part != "[key]")
    kind, given = fault["type"], fault["input"]
    if kind == "missing":
        return f"{place} is missing."
    if kind == "extra_forbidden":
        *outer, key = fault["loc"]
        known = _keys(outer)
        return f"{place} is not known.{nearest(str(key), known)} Known: {', '.join(known)}."
    message = str(fault["msg"]).removeprefix("Value error, ").removeprefix("Input ").removeprefix("Value ").rstrip(".")
    if kind == "value_error":
        return f"{place}: {message}." if place else f"{message}."
    if kind in ("path_type", "string_type"):
        message = "should be a path" if kind == "path_type" else "should be a text"
        message += "" if isinstance(given, (list, dict)) else "; quote it"
    hint = ""
    if kind == "literal_error":
        allowed = str(fault["ctx"]["expected"]).replace(" or ", ",").split(",")
        hint = nearest(str(given), [word.strip(" '") for word in allowed])
    return f"{place} is {given!r:.80}: it {message}.{hint}"


def _keys(place: Sequence[str | int]) -> list[str]:
    """Return the keys that the section at a place has."""
    section: type[BaseModel] = RunConfig
    for part in place:
        annotation: Any = section.model_fields[str(part)].annotation
        section = annotation
    return list(section.model_fields)


def _anchored(section: SectionT, folder: Path) -> SectionT:
    """Make relative paths start at the run file's folder."""
    changed: dict[str, Any] = {}
    for name, value in section:
        if isinstance(value, Path):
            changed[name] = _in(folder, str(value))
        elif isinstance(value, Section):
            changed[name] = _anchored(value, folder)
    if isinstance(section, ArtifactSection) and section.insert is not None:
        changed["insert"] = move_source(section.insert, lambda path: str(_in(folder, path)))
    if isinstance(section, ModelSection):
        changed["source"] = move_source(section.source, lambda path: str(_in(folder, path)))
        if section.weights not in (None, PRETRAINED):
            changed["weights"] = str(_in(folder, str(section.weights)))
    return section.model_copy(update=changed)


def move_source(source: str, move: Callable[[str], str]) -> str:
    """Return a model's source with its path, where it has one, changed: of a Python file, or a folder of weights."""
    library, colon, name = source.partition(":")
    if library.endswith(".py"):
        return f"{move(library)}{colon}{name}"
    # a name on the hub looks like a path, too
    return f"{library}:{move(name)}" if library == "hf" and name and Path(move(name)).is_dir() else source


def _in(folder: Path, path: str) -> Path:
    return folder / os.path.expanduser(path)
