"""The corrected weights as one safetensors file with the original keys, read back and checked before it counts."""

from __future__ import annotations

import copy
import runpy
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from hansfree.activations import Pooling
from hansfree.corrections import Projection
from hansfree.errors import OptionError, SplitError, check_choice, nearest
from hansfree.export.folding import Folding, fold_projection
from hansfree.export.loader import write_loader
from hansfree.export.place import Place, find_place
from hansfree.files import written_atomically
from hansfree.fingerprints import hash_weights
from hansfree.splitting import insert_after
from hansfree.splitting.inserted import PROJECTION
from hansfree.splitting.orders import Order
from hansfree.weights import check_finite, fill_with_weights, write_weights

_TOLERANCE = 1e-4  # of the largest logit: what float32 may lose between two ways to compute the same
_LOADER = "load_corrected.py"


@dataclass(frozen=True, kw_only=True)
class Exported:
    """A written file of weights, and what is known about it."""

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
        corrected: The model that was evaluated; it is not touched.
        path: A new file, or one to replace.
        original: The model as it came; it is not touched.
        example: A few images, on which the logits are compared.
        method: The correction's name, for the file's metadata.
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
    expected = run_quietly(corrected, example)
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
    order: Order | None = None,
) -> nn.Module:
    """Return a copy of ``model`` in eval mode with corrected weights, and with the projection where they need one.

    Args:
        model: A model of the class that was corrected, with any weights; it is not touched.
        path: What `export_model` wrote, or a file in ``corrected/`` of a run.
        layer: Where the projection stands, for a file that does not say it itself, as those of a run.
        pooling: From what its score is taken, likewise.
        order: Of the layer's axes as the projection expects them, likewise.
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


@torch.no_grad()
def run_quietly(model: nn.Module, images: Tensor) -> Tensor:
    """Return a model's logits in eval mode, on the CPU; the model stays as it is."""
    own = copy.deepcopy(model).eval()
    device = next((tensor.device for tensor in own.parameters()), images.device)
    logits: Tensor = own(images.clone().to(device))
    return logits.cpu()


def _write_loader(
    path: Path, weights: Path, place: Place | None, original: nn.Module, example: Tensor, expected: Tensor
) -> Path | None:
    """Write the loader beside ``path`` where a plain hook can do what it has to; what it loads is checked too."""
    loader = path.with_name(_LOADER)
    # A Sequential would run the projection, added to its modules, once more at its end.
    is_reached = place is not None and place.layer in dict(original.named_modules())
    if place is None or not is_reached or isinstance(original, nn.Sequential):
        loader.unlink(missing_ok=True)  # of an earlier export to this path: it does not fit these weights
        return None
    with written_atomically(loader) as temporary:
        write_loader(temporary, weights=path.name, place=place)
        load = runpy.run_path(str(temporary))["load_corrected"]
        _difference(load(copy.deepcopy(original), weights), example, expected)
    return loader


def _difference(exported: nn.Module, example: Tensor, expected: Tensor) -> float:
    """Return the largest difference of a logit; one that rounding does not explain is an error."""
    difference = float((run_quietly(exported, example) - expected).abs().max())
    if not difference <= _TOLERANCE * max(1.0, float(expected.abs().max())):
        raise SplitError(
            f"The exported weights do not give the evaluated model's logits: they differ by up to {difference:.3g} on "
            f"{len(example)} images. Nothing was written."
        )
    return difference


def _check_same_keys(state: dict[str, Tensor], own: dict[str, Tensor]) -> None:
    """Refuse a corrected model that is not of the original's class."""
    shapes, wanted = ({name: tuple(tensor.shape) for name, tensor in side.items()} for side in (state, own))
    for name in (*wanted, *shapes):
        if shapes.get(name) != wanted.get(name):
            found, needed = (f"of shape {side[name]}" if name in side else "not there" for side in (shapes, wanted))
            raise OptionError(
                f"The corrected model is not of the original's class: {name!r} is {found}, and in the original "
                f"{needed}.{nearest(name, wanted if name not in wanted else ())}"
            )
