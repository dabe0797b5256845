"""The corrected model as ONNX, read back and compared."""

from __future__ import annotations

import copy
import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from hansfree.errors import OptionError, SplitError, not_installed
from hansfree.files import written_atomically

_TOLERANCE = 1e-3  # of the largest logit: another library adds in another order


def export_onnx(model: nn.Module, path: Path, example: Tensor) -> float:
    """Write a model as ONNX for any number of images, and return by how much its logits differ on the example.

    Everything is in one file, an inserted projection too. The file is run by onnxruntime and has to give the model's
    logits, for the example and for its first image alone, before it takes its place.

    Args:
        model: Any model from one batch of images to logits; it is not touched.
        path: A new ``.onnx`` file, or one to replace.
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
    """Refuse to start where the optional packages are missing."""
    try:
        import onnx  # noqa: F401
        import onnxruntime  # type: ignore[import-untyped]  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise not_installed(error.name, extra="onnx") from error


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
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    if isinstance(given.shape[0], int):  # the exporter gives up the free number without an error
        raise SplitError(f"{type(model).__name__} cannot be exported to ONNX for any number of images.")
    (got,) = session.run(None, {given.name: images.numpy()})
    with torch.no_grad():
        expected = model(images.clone()).numpy()
    difference = float(np.abs(got - expected).max())
    if not difference <= _TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise SplitError(
            f"The ONNX file does not give the model's logits: they differ by up to {difference:.3g}. Nothing was "
            "written."
        )
    return difference
