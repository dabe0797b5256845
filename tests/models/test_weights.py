"""Models with weights from elsewhere: what fits is loaded, what does not is refused, and nothing is silently random."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from hansfree.errors import OptionError
from hansfree.models import ARCHITECTURES, build_model, load_model
from hansfree.models.weights import read_weights, write_weights

State = dict[str, Tensor]


def same(model: nn.Module, state: State, *, but: tuple[str, ...] = ()) -> bool:
    own = model.state_dict()
    assert but or own.keys() - {n for n in own if "num_batches" in n} <= state.keys() <= own.keys()
    return all(torch.equal(own[name], state[name].to(own[name].dtype)) for name in own if not name.startswith(but))


@pytest.fixture(scope="module")
def trained() -> State:
    """Weights of a demo model for 5 classes that no other seed gives."""
    return build_model("demo", classes=5, seed=9).state_dict()


def without(state: State, start: str) -> State:
    return {name: tensor for name, tensor in state.items() if not name.startswith(start)}


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_last_layer_has_a_row_per_class(name: str) -> None:
    with torch.device("meta"):  # VGG-16 would take half a gigabyte
        model = build_model(name, classes=7)
    last = model.get_submodule(ARCHITECTURES[name].last)
    assert isinstance(last, nn.Linear)
    assert last.out_features == 7
    assert [module for module in model.modules() if isinstance(module, nn.Linear)][-1] is last


def build(path: Path, classes: int | None = None) -> nn.Module:
    return build_model("demo", classes=classes or 5, weights=path)


def load(path: Path, classes: int | None = None) -> nn.Module:
    return load_model("demo", weights=path, classes=classes)


@pytest.mark.parametrize(
    ("loaders", "change", "sentence"),
    [
        ((build, load), {"features.3.weight": None}, r"lacks features\.3\.weight\.( Did you mean|$)"),
        ((build, load), {"classifier.weight": None}, r"lacks classifier\.weight"),
        ((build, load), {"feature.0.weight": torch.ones(32, 3, 3, 3)}, r"no feature\.0.*mean 'features\.0\.weight'"),
        ((build, load), {"features.0.weight": torch.zeros(32, 3, 5, 5)}, r"\(32, 3, 5, 5\) instead of \(32, 3, 3, 3\)"),
        ((build,), {"classifier.weight": torch.zeros(5, 9)}, r"\(5, 9\) instead of \(5, 512\)"),
        (
            (load,),
            {"features.4.weight": torch.full((64,), torch.nan)},
            "not finite: 64 of 64 numbers of 'features.4.we",
        ),
        ((load,), {"features.4.running_var": torch.full((64,), torch.inf)}, "not finite.*'features.4.running_var'"),
        ((lambda path: load(path, 4),), {}, r"The model of .* gives 5 answers, not 4: give a class for each"),
    ],
)
def test_what_does_not_fit_is_named(
    trained: State, tmp_path: Path, loaders: tuple[Any, ...], change: dict[str, Tensor | None], sentence: str
) -> None:
    state = {name: tensor for name, tensor in {**trained, **change}.items() if tensor is not None}
    save_file(state, tmp_path / "w.safetensors")
    for loader in loaders:
        with pytest.raises(OptionError, match=sentence):
            loader(tmp_path / "w.safetensors")


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch on quantized and sparse tensors
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensor: tensor.to("meta"), "on the meta device"),
        (torch.Tensor.to_sparse_csr, "torch.sparse_csr"),
        (lambda tensor: torch.quantize_per_tensor(tensor, 0.1, 0, torch.qint8), "torch.qint8"),
        (lambda tensor: tensor.to(torch.int8), "torch.int8"),  # its scale is lost
        (lambda tensor: tensor.to(torch.complex64), "torch.complex64"),
    ],
)
def test_weights_that_are_no_dense_real_numbers(
    trained: State, tmp_path: Path, change: Callable[[torch.Tensor], torch.Tensor], words: str
) -> None:
    torch.save({**trained, "classifier.weight": change(trained["classifier.weight"])}, tmp_path / "w.pt")
    with pytest.raises(OptionError, match=rf"classifier\.weight is {words}\. Save dense"):
        load(tmp_path / "w.pt")


def test_files_without_weights(tmp_path: Path) -> None:
    for content in ([torch.zeros(2)], {"lr": 0.1}, {}, {"state_dict": {"a": 1}}):
        torch.save(content, tmp_path / "w.pt")
        with pytest.raises(OptionError, match="holds no weights by name"):
            read_weights(tmp_path / "w.pt")
    damaged = (b"", b"PK\x03\x04 cut off", b"some text that is long enough for a header")
    for name, content in itertools.product(("w.safetensors", "w.pt", "w.ckpt"), damaged):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(OptionError, match=name):
            read_weights(tmp_path / name)


def test_names_that_do_not_exist() -> None:
    with pytest.raises(OptionError, match=r"no model 'demmo'\. Did you mean 'demo'"):
        build_model("demmo", classes=2)
    with pytest.raises(OptionError, match=r"no file of weights 'pretraned'\. Did you mean 'pretrained'"):
        build(Path("pretraned"))


def test_code_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"a": Trap()}, tmp_path / "w.pt")
    with pytest.raises(OptionError, match="can run code"):
        build(tmp_path / "w.pt")
    assert not (tmp_path / "ran").exists()


def test_the_same_weights_and_metadata_are_the_same_bytes(tmp_path: Path) -> None:
    tied = nn.ModuleDict({"first": nn.Linear(3, 3, bias=False), "second": nn.Linear(3, 3, bias=False)})
    tied["second"].weight = tied["first"].weight
    state = {**tied.state_dict(), "turned": torch.arange(6.0).reshape(2, 3).T}
    about = {name: f"«{name}»" for name in "zyxabc"}
    path, found = tmp_path / "new" / "w.safetensors", set()
    for _ in range(6):  # safetensors itself shuffles the metadata
        write_weights(path, state, about)
        found.add(path.read_bytes())
    assert len(found) == 1
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == about
        assert all(torch.equal(file.get_tensor(name), tensor) for name, tensor in state.items())


@pytest.mark.parametrize(
    "wrap",
    [
        lambda state: state,
        lambda state: {"model_state_dict": state, "epoch": 3},
        lambda state: {"state_dict": {f"model.{name}": tensor for name, tensor in state.items()}},
        lambda state: {"model": {f"module.{name}": tensor for name, tensor in state.items()}},
        lambda state: {f"_orig_mod.{name}": tensor for name, tensor in state.items()},
    ],
    ids=["plain", "model_state_dict", "lightning", "parallel", "compiled"],
)
def test_checkpoints_of_all_kinds_tell_the_classes(trained: State, tmp_path: Path, wrap: Callable[..., Any]) -> None:
    torch.save(wrap(trained), tmp_path / "w.pt")
    assert same(load(tmp_path / "w.pt"), trained)


@pytest.mark.parametrize("source", ["timm:test_resnet", "torchvision:squeezenet1_1"])
def test_the_number_of_classes_comes_from_the_file(source: str, tmp_path: Path) -> None:
    state = load_model(source, classes=4).state_dict()
    save_file(state, tmp_path / "w.safetensors")
    assert same(load_model(source, weights=tmp_path / "w.safetensors"), state)


def test_old_counters_may_lack_and_masks_may_be_infinite(trained: State, tmp_path: Path) -> None:
    save_file({n: t for n, t in trained.items() if "num_batches" not in n}, tmp_path / "w.safetensors")
    assert same(load(tmp_path / "w.safetensors"), trained)
    (tmp_path / "net.py").write_text(
        "import torch\nfrom torch import nn\n\ndef make(value=-torch.inf):\n    net = nn.Linear(2, 2)\n"
        "    net.register_buffer('mask', torch.full((2,), value))\n    return net\n\n"
        "def make_wrong():\n    return make(torch.nan)\n"
    )
    load_model(f"{tmp_path / 'net.py'}:make")
    with pytest.raises(OptionError, match=r"make_wrong' are not finite: 2 of 2 numbers of 'mask'"):
        load_model(f"{tmp_path / 'net.py'}:make_wrong")
