"""A user's own function that makes the model: in an importable module, or in a Python file anywhere."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from hansfree.errors import OptionError, nearest
from hansfree.fingerprints import fingerprint
from hansfree.models.failures import sentence_of

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

    @property
    def takes_classes(self) -> bool:
        """Say whether the function has the argument ``num_classes``."""
        parameters = self._parameters()
        return "num_classes" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())

    def make(self, classes: int | None) -> nn.Module:
        """Call the function, with the number of classes where that is known and asked for."""
        options = {"num_classes": classes} if classes is not None and self.takes_classes else {}
        required = [
            name
            for name, p in self._parameters().items()
            if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and name not in options
        ]
        if required:
            advice = "Say how many classes there are." if required == ["num_classes"] else "Give it defaults."
            raise OptionError(
                f"{self.source!r} needs {', '.join(map(repr, required))}, but is called without arguments. {advice}"
            )
        with self._path(), self._told():
            model = self.function(**options)
        if not isinstance(model, nn.Module):
            raise OptionError(f"{self.source!r} returned a {type(model).__name__}; it must return a torch.nn.Module.")
        return model

    def _parameters(self) -> dict[str, inspect.Parameter]:
        try:
            return dict(inspect.signature(self.function).parameters)
        except ValueError:  # functions that are written in C have none to show
            return {}

    def _find(self, module: ModuleType) -> Callable[..., Any]:
        found = getattr(module, self.name, None)
        if isinstance(found, nn.Module):
            raise OptionError(
                f"{self.source!r} is a model itself, not a function that makes one: write such a function."
            )
        if not callable(found):
            names = [name for name, value in vars(module).items() if callable(value) and not name.startswith("_")]
            raise OptionError(f"{self.home!r} has no function {self.name!r}.{nearest(self.name, names)}")
        return found  # type: ignore[no-any-return]

    def _import(self) -> ModuleType:
        try:
            with self._told():
                return importlib.import_module(self.home)
        except OptionError as error:
            cause = error.__cause__
            name = cause.name if isinstance(cause, ModuleNotFoundError) else None
            if name is None or not f"{self.home}.".startswith(f"{name}."):
                raise  # the module is there; what it does went wrong
            outer, _, last = name.rpartition(".")
            known = [one.name for one in pkgutil.iter_modules(_folders(outer))]
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
            with self._told():
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
    def _told(self) -> Iterator[None]:
        """Turn whatever the user's code raises into one sentence."""
        try:
            yield
        except (Exception, SystemExit) as error:
            raise OptionError(f"{self.source!r} failed with {sentence_of(error, file=self.file)}") from error


def _folders(package: str) -> list[str] | None:
    """Return where the modules of an imported package lie; None, for the whole path, where no package is named."""
    return list(getattr(sys.modules.get(package), "__path__", [])) if package else None


def _lies_in(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and folder in Path(file).parents and "site-packages" not in Path(file).parts
