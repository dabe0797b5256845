"""Write a corrected model as plain weights, with a loader file, or as ONNX."""

from __future__ import annotations

import copy
import logging
import runpy
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from hansfree._internal.files import open_templates, written_atomically
from hansfree._internal.hashing import hash_weights
from hansfree.activations import Pooling
from hansfree.corrections import Projection
from hansfree.errors import OptionError, SplitError, check_choice, import_optional, nearest
from hansfree.export.folding import Folding, fold_projection
from hansfree.models import check_finite, fill_with_weights, predict_logits, write_weights
from hansfree.models.surgery import PROJECTION, AppliedAfter, AxisOrder, EditedForward, insert_after


@dataclass(frozen=True)
class Place:
    """The layer, from what the score is taken, and the order of axes that the projection expects (None: as it is)."""

    layer: str
    pooling: Pooling
    order: AxisOrder | None

    def to_metadata(self) -> dict[str, str]:
        """Return the metadata of a safetensors file, which are texts."""
        order = "" if self.order is None else " ".join(map(str, self.order))
        return {"layer": self.layer, "pooling": self.pooling, "order": order}

    @classmethod
    def from_metadata(cls, about: Mapping[str, str]) -> Place | None:
        """Return what `to_metadata` wrote; None where there is nothing."""
        if "layer" not in about or "pooling" not in about:
            return None
        order = tuple(map(int, about.get("order", "").split())) or None
        return cls(about["layer"], about["pooling"], order)  # type: ignore[arg-type]  # the reader checks the word


def find_place(model: nn.Module) -> Place:
    """Return where a projection was inserted into a model."""
    pooling: Any = getattr(model, PROJECTION).pooling
    forward = model.__dict__.get("forward")
    if not isinstance(forward, EditedForward):
        return next(
            Place(str(path), pooling, hook.order)
            for path, module in model.named_modules()
            for hook in module._forward_hooks.values()
            if isinstance(hook, AppliedAfter)
        )
    names = [name for name, node in forward.names.items() if node == forward.names[PROJECTION]]
    modules = dict(model.named_modules())
    # A graph is edited where the layer is no module; a block that ends there is only another name for it.
    layer = next((name for name in names if name not in modules), names[0])
    # The graph may permute the axes for the projection, and permute them back behind it.
    call: Any = next(n for n in forward.graph.nodes if n.op == "call_module" and n.target == PROJECTION)
    order = None if call.name == forward.names[PROJECTION] else tuple(call.args[0].args[1])
    return Place(str(layer), pooling, order)


_TOLERANCE = 1e-4  # of the largest logit: what float32 may lose between two ways to compute the same
_LOADER = "load_corrected.py"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """An exported file of weights."""

    weights: Path
    folding: Folding
    difference: float  # the largest of a logit from the evaluated model's, on the example
    images: int  # in the example
    changed: tuple[str, ...]  # the keys whose numbers differ from the original's
    added: tuple[str, ...]  # the keys that the original does not have
    original: str  # hash of the original weights
    loader: Path | None  # loads them without hansfree, where they need a projection behind a module


def export_model(
    corrected: nn.Module, path: Path, *, original: nn.Module, example: Tensor, method: str = ""
) -> Exported:
    """Write the weights of a corrected model to ``path``, a ``.safetensors`` file for the user's own class.

    The file has exactly the keys and shapes of ``original`` and loads with ``strict=True``. Only where P-ClArC's
    projection cannot be folded it also has those of ``hansfree_projection``; `load_corrected` reads both, and where the
    layer is a module a ``load_corrected.py`` beside the file does without hansfree. The file is loaded into a fresh
    copy of ``original`` and has to give the logits of ``corrected`` before it takes its place.

    Args:
        corrected: The model that was evaluated.
        original: The original model.
        example: A few images, on which the logits are compared.
        method: The correction's name, for the file's metadata.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> model = nn.Linear(4, 2)
        >>> with TemporaryDirectory() as folder:
        ...     file = Path(folder) / "model.safetensors"
        ...     exported = export_model(model, file, original=model, example=torch.rand(2, 4))
        ...     same = load_corrected(model, file)
        >>> torch.equal(same.weight, model.weight)
        True
    """
    if path.suffix != ".safetensors":
        raise OptionError(f"Weights are exported to a file that ends in .safetensors, not {path.name!r}.")
    check_finite(corrected, source="the corrected model")
    folded, folding = fold_projection(corrected, example)
    state, own = folded.state_dict(), original.state_dict()
    added = tuple(name for name in state if name.startswith(f"{PROJECTION}."))
    _check_same_keys({name: tensor for name, tensor in state.items() if name not in added}, own)
    about = {"hansfree": version("hansfree"), "method": method, "original": hash_weights(own), "kind": folding.kind}
    place = find_place(folded) if folding.kind == "module" else None
    expected = predict_logits(corrected, example)
    with written_atomically(path) as temporary:
        write_weights(temporary, state, about | (place.to_metadata() if place else {}))
        difference = _difference(load_corrected(original, temporary), example, expected)
        loader = _write_loader(path, temporary, place, original, example, expected)
    return Exported(
        weights=path,
        folding=folding,
        difference=difference,
        images=len(example),
        changed=tuple(name for name in own if not torch.equal(own[name].cpu(), state[name].cpu())),
        added=added,
        original=about["original"],
        loader=loader,
    )


def load_corrected(
    model: nn.Module,
    path: Path | str,
    *,
    layer: str | None = None,
    pooling: Pooling | None = None,
    order: AxisOrder | None = None,
) -> nn.Module:
    """Return a copy of ``model`` in eval mode with corrected weights, and with the projection where they need one.

    Args:
        model: A model of the class that was corrected, with any weights.
        path: What `export_model` wrote, or a file in ``corrected/`` of a run.
        layer: Where the projection stands, for a file without that (of a run).
        pooling: Of its score, likewise.
        order: Of the layer's axes as the projection expects them, likewise.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> from safetensors.torch import save_file
        >>> with TemporaryDirectory() as folder:
        ...     save_file({"weight": torch.ones(2, 4), "bias": torch.zeros(2)}, f"{folder}/model.safetensors")
        ...     model = load_corrected(nn.Linear(4, 2), f"{folder}/model.safetensors")
        >>> model.weight.sum().item()
        8.0
    """
    path = Path(path)
    try:
        with safe_open(path, framework="pt") as file:
            about = file.metadata() or {}
        state = load_file(path)
    except (OSError, SafetensorError) as error:
        raise OptionError(f"{str(path)!r} is not a readable safetensors file ({error}).") from error
    loaded = copy.deepcopy(model)
    if any(name.startswith(f"{PROJECTION}.") for name in state):
        place = Place.from_metadata(about) or (Place(layer, pooling, order) if layer and pooling else None)
        if place is None:
            raise OptionError(f"{str(path)!r} holds a projection and does not say where: give `layer` and `pooling`.")
        check_choice("pooling", place.pooling, Pooling)
        prefix = f"{PROJECTION}."
        parts = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
        projection = Projection(**parts, pooling=place.pooling)
        like = next(loaded.parameters())
        loaded = insert_after(loaded, place.layer, projection.to(like.device, like.dtype), order=place.order)
    fill_with_weights(loaded, state, source=repr(str(path)))
    return loaded.eval()


def _write_loader(
    path: Path, weights: Path, place: Place | None, original: nn.Module, example: Tensor, expected: np.ndarray
) -> Path | None:
    """Write and check a loader beside ``path`` where a plain hook is enough; it needs torch and safetensors only."""
    loader = path.with_name(_LOADER)
    # A Sequential would run the projection, added to its modules, once more at its end.
    is_reached = place is not None and place.layer in dict(original.named_modules())
    if place is None or not is_reached or isinstance(original, nn.Sequential):
        loader.unlink(missing_ok=True)  # of an earlier export to this path: it does not fit these weights
        return None
    with written_atomically(loader) as temporary:
        template = open_templates("export", is_html=False).get_template("load_corrected.py.jinja")
        temporary.write_text(template.render(weights=path.name, place=place), encoding="utf-8", newline="\n")
        load = runpy.run_path(str(temporary))["load_corrected"]
        _difference(load(copy.deepcopy(original), weights), example, expected)
    return loader


def _difference(exported: nn.Module, example: Tensor, expected: np.ndarray) -> float:
    return _largest_difference(predict_logits(exported, example), expected, _TOLERANCE, "The exported weights do")


def _largest_difference(got: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> float:
    """Return the largest difference of a logit; one that rounding does not explain is an error."""
    difference = float(np.abs(got - expected).max())
    if not difference <= tolerance * max(1.0, float(np.abs(expected).max())):
        raise SplitError(
            f"{what} not give the model's logits: they differ by up to {difference:.3g} on {len(expected)} images. "
            "Nothing was written."
        )
    return difference


def _check_same_keys(state: dict[str, Tensor], own: dict[str, Tensor]) -> None:
    """Check that a corrected model has the keys and shapes of the original."""
    shapes, wanted = ({name: tuple(tensor.shape) for name, tensor in side.items()} for side in (state, own))
    for name in (*wanted, *shapes):
        if shapes.get(name) != wanted.get(name):
            found, needed = (f"of shape {side[name]}" if name in side else "not there" for side in (shapes, wanted))
            raise OptionError(
                f"The corrected model is not of the original's class: {name!r} is {found}, and in the original "
                f"{needed}.{nearest(name, wanted if name not in wanted else ())}"
            )


_ONNX_TOLERANCE = 1e-3  # of the largest logit: another library adds in another order


def export_onnx(model: nn.Module, path: Path, example: Tensor) -> float:
    """Write a model as ONNX for any number of images, and return by how much its logits differ on the example.

    The file is run by onnxruntime and has to give the model's logits, for the example and for its first image alone,
    before it takes its place.

    Args:
        model: Any model from one batch of images to logits.
        example: At least two images of the size that the model is to take.
    """
    if path.suffix != ".onnx":
        raise OptionError(f"ONNX is exported to a file that ends in .onnx, not {path.name!r}.")
    if len(example) < 2:
        raise OptionError("The ONNX export needs at least 2 example images: with one, the number would be fixed.")
    check_onnx()
    own = copy.deepcopy(model).eval().cpu()
    images = example.cpu()
    with written_atomically(path) as temporary:
        _write(own, temporary, images)
        return max(_compare(own, temporary, given) for given in (images, images[:1]))


class _Wrapped(nn.Module):
    """A model with one named argument: the exporter looks at names, and an edited forward has none."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        return self.model(images)  # type: ignore[no-any-return]


def check_onnx() -> None:
    """Check that the optional packages are installed."""
    for package in ("onnx", "onnxruntime", "onnxscript"):
        import_optional(package, extra="onnx")


def _write(model: nn.Module, path: Path, images: Tensor) -> None:
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)  # it counts the steps of its own work as warnings
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the exporter about itself; the comparison below is the proof
            torch.onnx.export(
                _Wrapped(model),
                (images,),
                str(path),
                dynamo=True,
                external_data=False,
                verbose=False,
                input_names=["images"],
                output_names=["logits"],
                dynamic_shapes=({0: torch.export.Dim("n")},),
            )
    except Exception as error:  # the exporter runs the model's own code on symbols: anything may come out of it
        reason = str(error.__cause__ or error).strip().splitlines() or [type(error).__name__]
        raise SplitError(f"{type(model).__name__} cannot be exported to ONNX: {reason[0].rstrip('.')}.") from error
    finally:
        exporter.setLevel(level)


def _compare(model: nn.Module, path: Path, images: Tensor) -> float:
    import onnxruntime  # type: ignore[import-untyped]

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    if isinstance(given.shape[0], int):  # the exporter gives up the free number without an error
        raise SplitError(f"{type(model).__name__} cannot be exported to ONNX for any number of images.")
    (got,) = session.run(None, {given.name: images.numpy()})
    with torch.no_grad():
        expected = model(images.clone()).numpy()
    return _largest_difference(got, expected, _ONNX_TOLERANCE, "The ONNX file does")
