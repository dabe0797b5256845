"""Load a classifier from torchvision, timm, Hugging Face, a function or a file."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import torch
from torch import nn

from hansfree._internal.hashing import fingerprint, seeded
from hansfree.errors import OptionError, closest, import_optional, nearest
from hansfree.models.weights import PRETRAINED, check_finite, count_classes_of, fill_with_weights, read_weights
from hansfree.models.zoo import PAPER_MODELS, DemoNet


def sentence_of(error: BaseException, *, file: Path | None = None) -> str:
    """Return the kind of an error and its first line; with ``file``, also the line there that raised it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    where = ""
    if isinstance(error, SyntaxError) and error.lineno is not None:
        said, where = f"{type(error).__name__}: {error.msg}", f" (line {error.lineno})"
    elif file is not None:
        frames = [one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename) == file]
        where = f" (line {frames[-1].lineno}: {frames[-1].line})" if frames else ""
    return f"{said.rstrip('.')}{where}."


# Modules that lie beside a user's file and were imported by it. They stay for as long as that model may be used, and go
# when the next file is opened: that one may have others of the same names beside it.
_beside: set[str] = set()


class Factory:
    """A function found by ``package.module:function`` or ``path/to/file.py:function``."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.home, _, self.name = source.rpartition(":")
        self.file = Path(self.home).resolve() if self.home.endswith(".py") else None
        with self._path():
            module = self._import() if self.file is None else self._open(self.file)
        self.function = self._find(module)

    def make(self, classes: int | None) -> nn.Module:
        """Call the function, with the number of classes where that is known and the function takes ``num_classes``."""
        try:
            parameters = inspect.signature(self.function).parameters
        except ValueError:  # functions that are written in C have none to show
            parameters = MappingProxyType({})
        is_taken = "num_classes" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        options = {"num_classes": classes} if classes is not None and is_taken else {}
        required = [
            name
            for name, p in parameters.items()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and name not in options
        ]
        if required:
            advice = "Say how many classes there are." if required == ["num_classes"] else "Give it defaults."
            raise OptionError(
                f"{self.source!r} needs {', '.join(map(repr, required))}, but is called without arguments. {advice}"
            )
        with self._path(), self._one_sentence():
            model = self.function(**options)
        if not isinstance(model, nn.Module):
            raise OptionError(f"{self.source!r} returned a {type(model).__name__}; it must return a torch.nn.Module.")
        return model

    def _find(self, module: ModuleType) -> Callable[..., Any]:
        found = getattr(module, self.name, None)
        if isinstance(found, nn.Module):
            raise OptionError(f"{self.source!r} is a model itself, not a function that makes one: write a function.")
        if not callable(found):
            names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            raise OptionError(f"{self.home!r} has no function {self.name!r}.{nearest(self.name, names)}")
        return found  # type: ignore[no-any-return]

    def _import(self) -> ModuleType:
        try:
            with self._one_sentence():
                return importlib.import_module(self.home)
        except OptionError as error:
            cause = error.__cause__
            name = cause.name if isinstance(cause, ModuleNotFoundError) else None
            if name is None or not f"{self.home}.".startswith(f"{name}."):
                raise  # the module is there; what it does went wrong
            outer, _, last = name.rpartition(".")
            folders = list(getattr(sys.modules.get(outer), "__path__", [])) if outer else None  # None: the whole path
            known = [one.name for one in pkgutil.iter_modules(folders)]
            raise OptionError(
                f"There is no module {name!r}.{nearest(last, known)} Give an importable module, or a file as "
                "path/to/file.py:function."
            ) from cause

    def _open(self, file: Path) -> ModuleType:
        if not file.is_file():
            near = nearest(file.name, [one.name for one in file.parent.glob("*.py")]) if file.parent.is_dir() else ""
            raise OptionError(f"There is no file {self.home!r}.{near}")
        for name in _beside:
            sys.modules.pop(name, None)
        _beside.clear()
        before = set(sys.modules)
        # A name that no import statement asks for; known to Python, because dataclasses look their module up.
        name = f"hansfree_file_{fingerprint(str(file))}"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise OptionError(f"{self.home!r} cannot be read as Python.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            with self._one_sentence():
                spec.loader.exec_module(module)
        except OptionError:
            del sys.modules[name]
            raise
        finally:
            _beside.update(one for one in set(sys.modules) - before - {name} if _lies_in(sys.modules[one], file.parent))
        return module

    @contextmanager
    def _path(self) -> Iterator[None]:
        """Let imports find what lies beside the file, or in the working folder, as they do for ``python file.py``."""
        folder = str(Path.cwd() if self.file is None else self.file.parent)
        sys.path.insert(0, folder)
        try:
            yield
        finally:
            sys.path.remove(folder)

    @contextmanager
    def _one_sentence(self) -> Iterator[None]:
        """Turn whatever the user's code raises into one sentence; put PyTorch's default dtype back."""
        before = torch.get_default_dtype()
        try:
            yield
        except (Exception, SystemExit) as error:
            raise OptionError(f"{self.source!r} failed with {sentence_of(error, file=self.file)}") from error
        finally:
            torch.set_default_dtype(before)


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and folder in Path(file).parents and "site-packages" not in Path(file).parts


LIBRARIES = ("torchvision", "timm", "hf")
_DEMO = "demo"
_CLASSES = 1000  # classes of a model that nothing else is known of, as the libraries have it

_ALLOWED = (
    "Allowed: package.module:function, path/to/file.py:function, torchvision:NAME, timm:NAME, hf:FOLDER_OR_NAME, or "
    "the bare name of a model of torchvision or timm."
)


def load_model(source: str, *, weights: str | Path | None = None, classes: int | None = None) -> nn.Module:
    """Return a model in eval mode.

    Args:
        source: ``package.module:function`` or ``path/to/file.py:function`` of your own, ``torchvision:NAME``,
            ``timm:NAME``, ``hf:FOLDER_OR_NAME`` (Hugging Face, with the weights that lie there), or a bare name.
        weights: A file with all weights of the model (``.safetensors``, ``.pt``, ``.pth``), or ``"pretrained"`` for the
            library's own. None leaves the model as its source makes it.
        classes: Number of classes of the model; None takes it from the file, else what the source does.

    Examples:
        >>> load_model("torchvision:resnet18", classes=4).fc.out_features
        4
    """
    library, name = find_source(source)
    is_file = weights is not None and str(weights) != PRETRAINED
    tensors = read_weights(Path(str(weights))) if is_file else None  # first: a wrong path should not take seconds
    with seeded(0):  # what no weights are given for is the same every time; a user's file may draw when it is opened
        build = _builder(library, name, source, weights)
        model = build(classes)
    if tensors is not None:
        inferred = count_classes_of(tensors, model)
        if inferred is not None:
            if classes is not None:
                raise OptionError(
                    f"The model of {str(weights)!r} gives {inferred} answers, not {classes}: give a class for each "
                    "answer, in the model's order (two for a model of one logit)."
                )
            with seeded(0):
                model = build(inferred)
        fill_with_weights(model, tensors, source=f"{str(weights)!r}")
    check_finite(model, source=repr(source if tensors is None else str(weights)))
    return model.eval()


def find_source(source: str) -> tuple[str, str]:
    """Return the library of a source and the name in it; that of a user's own function is ``"function"``.

    For a bare name, it is the first of hansfree, torchvision and timm that has a model of that name.
    """
    library, colon, name = source.partition(":")
    if not colon:
        return _find_name(source)
    if not name or not library:
        raise OptionError(f"The model's source is {source!r}. {_ALLOWED}")
    if library not in LIBRARIES:
        return "function", source
    known = [name]
    if library == "torchvision":
        known = _torchvision_names()
    elif library == "timm" and not (timm := import_optional("timm", extra="timm")).is_model(name):
        known = timm.list_models()
    if name not in known:
        raise OptionError(f"{library} has no model {name!r}.{nearest(name, known)}")
    return library, name


def _find_name(name: str) -> tuple[str, str]:
    if name == _DEMO:
        return _DEMO, name
    names = _torchvision_names()
    if name in names:
        return "torchvision", name
    with suppress(OptionError):  # not installed: then no model is meant to come from there
        timm = import_optional("timm", extra="timm")
        if timm.is_model(name):
            return "timm", name
        names += timm.list_models()
    # Of several as close models, one of the paper's is the likelier to be meant.
    found = [closest(name, known) or "" for known in ((_DEMO, *PAPER_MODELS), names)]
    best = max(found, key=lambda match: difflib.SequenceMatcher(None, match, name).ratio())
    raise OptionError(f"There is no model {name!r}.{nearest(name, [best])} {_ALLOWED}")


def _builder(library: str, name: str, source: str, weights: str | Path | None) -> Callable[[int | None], nn.Module]:
    """Return what makes the model for a number of classes; wrong options are refused before anything is made."""
    is_pretrained = str(weights) == PRETRAINED
    if library == "function":
        if is_pretrained:
            raise OptionError(f"{source!r} has no {PRETRAINED!r} weights: let the function load them, or give a file.")
        return Factory(source).make
    if library == _DEMO:
        if is_pretrained:
            raise OptionError(f"The model {_DEMO!r} has no {PRETRAINED!r} weights: give a file.")
        return lambda number: DemoNet(_CLASSES if number is None else number)
    make = {"torchvision": _torchvision, "timm": _timm, "hf": _hugging_face}[library]
    starts_full = is_pretrained or (library == "hf" and weights is None)

    def build(number: int | None) -> nn.Module:
        try:
            return make(name, number, starts_full)
        except OptionError:
            raise
        except Exception as error:  # no network, no such weights, a damaged file: libraries raise all kinds
            what = "cannot be loaded with its weights" if starts_full else "cannot be made"
            raise OptionError(f"{source!r} {what}: {sentence_of(error)}") from error

    return build


def _torchvision_names() -> list[str]:
    models = importlib.import_module("torchvision").models  # here, as it takes 1.6 s
    return list(models.list_models(module=models))  # its classifiers; detectors and the like lie deeper


def _torchvision(name: str, classes: int | None, pretrained: bool) -> nn.Module:
    models = importlib.import_module("torchvision").models
    if pretrained:
        weights = models.get_model_weights(name).DEFAULT
        _check_classes(f"torchvision:{name}", len(weights.meta["categories"]), classes)
        return models.get_model(name, weights=weights, progress=False)  # type: ignore[no-any-return]
    options = {} if classes is None else {"num_classes": classes}
    return models.get_model(name, weights=None, **options)  # type: ignore[no-any-return]


def _timm(name: str, classes: int | None, pretrained: bool) -> nn.Module:
    options = {} if classes is None or pretrained else {"num_classes": classes}
    model = import_optional("timm", extra="timm").create_model(name, pretrained=pretrained, **options)
    if pretrained:
        _check_classes(f"timm:{name}", model.num_classes, classes)
    return model  # type: ignore[no-any-return]


def _hugging_face(name: str, classes: int | None, pretrained: bool) -> nn.Module:
    transformers = import_optional("transformers", extra="transformers")
    is_folder = Path(name).is_dir()
    if not is_folder and (name.startswith((".", "/", "~")) or name.count("/") > 1):
        near = nearest(Path(name).name, [one.name for one in Path(name).parent.glob("*")])
        raise OptionError(f"There is no folder {name!r}.{near}")
    config = transformers.AutoConfig.from_pretrained(name, local_files_only=is_folder)
    auto = transformers.AutoModelForImageClassification
    if not pretrained:
        config.num_labels = config.num_labels if classes is None else classes
        return auto.from_config(config)  # type: ignore[no-any-return]
    _check_classes(f"hf:{name}", config.num_labels, classes)
    logging = transformers.utils.logging
    had_bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model, report = auto.from_pretrained(name, config=config, local_files_only=is_folder, output_loading_info=True)
    finally:
        if had_bars:
            logging.enable_progress_bar()
    gaps = sorted(str(name) for key in ("missing_keys", "mismatched_keys") for name in report[key])
    if gaps:  # which transformers fills with random numbers and a log line
        raise OptionError(f"The weights in {name!r} do not fill the model: it lacks {', '.join(gaps[:3])}.")
    return model  # type: ignore[no-any-return]


def _check_classes(source: str, has: int, asked: int | None) -> None:
    if asked not in (None, has):
        raise OptionError(
            f"The weights of {source!r} are for {has} classes, not for {asked}: train a model of {asked}, or "
            "give its file of weights."
        )
