"""Models with weights from elsewhere: what fits is loaded, what does not is refused, and nothing is silently random."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from hansfree.errors import OptionError
from hansfree.models import ARCHITECTURES, PRETRAINED, build_model, check_start, load_model
from hansfree.models.weights import load_weights, read_weights, write_weights
from hansfree.models.zoo import rename_lite
from tests.models.zoo import hugging_face_folder

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


def test_half_precision_becomes_float32(trained: State, tmp_path: Path) -> None:
    half = {name: tensor.half() for name, tensor in trained.items()}
    save_file(half, tmp_path / "half.safetensors")
    model = build_model("demo", classes=5, weights=str(tmp_path / "half.safetensors"))
    assert same(model, half)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("gone", ["", "classifier"], ids=["another number of classes", "none"])
def test_last_layer_is_fresh_and_seeded(
    trained: State, tmp_path: Path, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    save_file(without(trained, gone) if gone else trained, tmp_path / "w.safetensors")
    with caplog.at_level(logging.INFO, "hansfree"):
        a, b, c = (build_model("demo", classes=3, seed=seed, weights=tmp_path / "w.safetensors") for seed in (4, 4, 5))
    for model in (a, b, c):
        assert same(model, trained, but=("classifier",))
    assert torch.equal(a.classifier.weight, b.classifier.weight)
    assert not torch.equal(a.classifier.weight, c.classifier.weight)
    assert torch.equal(a.classifier.weight, build_model("demo", classes=3, seed=4).classifier.weight)
    assert "fresh: classifier.weight, classifier.bias" in caplog.text


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
        ((build,), {"classifier.weight": torch.zeros(6, 9)}, r"\(6, 9\) instead of \(5, 512\)"),
        ((load,), {"classifier.weight": None, "classifier.bias": None}, "it lacks classifier.weight"),
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


def test_a_word_that_is_neither_file_nor_pretrained() -> None:
    with pytest.raises(OptionError, match="Did you mean 'pretrained'"):
        build_model("resnet18", classes=2, weights="pretraned")
    for check in (
        lambda: build_model("demo", classes=2, weights="pretrained"),
        lambda: check_start("demo", PRETRAINED),
    ):
        with pytest.raises(OptionError, match="'demo' has no ImageNet weights: use --weights random, or give a file"):
            check()
    check_start("resnet18", PRETRAINED)  # nothing is downloaded


def test_no_network_says_where_to_put_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*_: object, **__: object) -> None:
        raise URLError("no route to host")

    monkeypatch.setattr(torch.hub, "download_url_to_file", offline)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    with pytest.raises(OptionError) as error:
        build_model("resnet18", classes=2, weights="pretrained")
    assert "no route to host" in str(error.value)
    assert str(tmp_path / "checkpoints" / "resnet18-f37072fd.pth") in str(error.value)
    assert "https://download.pytorch.org/models/resnet18-f37072fd.pth" in str(error.value)


def test_imagenet_weights_are_downloaded_once_with_their_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, file = "efficientnet_b0", "efficientnet_b0_rwightman-7f5810bc.pth"
    published, asked = build_model(name, classes=10, seed=3).state_dict(), []

    def download(url: str, path: str, hash_prefix: str, progress: bool) -> None:
        asked.append((url, hash_prefix))
        torch.save(published, path)

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path))
    for classes in (2, 10):
        model = build_model(name, classes=classes, weights="pretrained")
        fresh = (ARCHITECTURES[name].last,) if classes == 2 else ()
        assert same(model, published, but=fresh)
        assert model.get_submodule(ARCHITECTURES[name].last).out_features == classes
    assert asked == [(f"https://download.pytorch.org/models/{file}", file[-12:-4])]


@pytest.mark.filterwarnings("ignore:.*copying from a non-meta parameter:UserWarning")
@pytest.mark.parametrize(
    ("gone", "fresh"),
    [
        ("classifier.", ["classifier.0", "classifier.3", "classifier.6"]),
        ("classifier.6.", ["classifier.6"]),
        ("classifier.3.", None),
        ("features.28.", None),
    ],
)
def test_vgg_may_lack_its_head_or_its_last_layer_only(gone: str, fresh: list[str] | None) -> None:
    with torch.device("meta"):
        model, given = (build_model("vgg16", classes=classes) for classes in (2, 1000))
    shapes = {name: tensor.shape for name, tensor in given.state_dict().items()}
    weights = without({name: torch.zeros(()).expand(shape) for name, shape in shapes.items()}, gone)  # no memory
    if fresh is None:
        with pytest.raises(OptionError, match=rf"it lacks {gone}weight"):
            load_weights(model, weights, last="classifier.6", source="file")
    else:
        names = load_weights(model, weights, last="classifier.6", source="file")
        assert names == [f"{layer}.{part}" for layer in fresh for part in ("weight", "bias")]


def test_code_in_a_pickle_does_not_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"a": Trap()}, tmp_path / "w.pt")
    with pytest.raises(OptionError, match="can run code"):
        build(tmp_path / "w.pt")
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("_conv_stem.weight _fc.bias", ["weight", "bias"]),
        ("conv_stem.weight bn1.weight", ["conv_stem.weight", "bn1.weight"]),  # timm's own names stay
        ("_blocks.0.weight _conv_stem.weight _fc.bias", None),
        ("_conv_stem.weight _fc.bias _fc.weight", None),
    ],
)
def test_weights_are_renamed_by_their_order(names: str, expected: list[str] | None) -> None:
    given = {name: torch.full((1,), float(place)) for place, name in enumerate(names.split())}
    if expected is None:
        with pytest.raises(OptionError, match=r"not its order.*\.pth"):
            rename_lite(given, nn.Linear(2, 3))
    else:
        renamed = rename_lite(given, nn.Linear(2, 3))
        assert {name: value.item() for name, value in renamed.items()} == {expected[0]: 0.0, expected[1]: 1.0}


def test_tied_and_transposed_tensors_come_back(tmp_path: Path) -> None:
    tied = nn.ModuleDict({"first": nn.Linear(3, 3, bias=False), "second": nn.Linear(3, 3, bias=False)})
    tied["second"].weight = tied["first"].weight
    state = {**tied.state_dict(), "turned": torch.arange(6.0).reshape(2, 3).T}
    write_weights(tmp_path / "new" / "w.safetensors", state)
    read = load_file(tmp_path / "new" / "w.safetensors")
    assert set(read) == {"first.weight", "second.weight", "turned"}
    assert all(torch.equal(read[name], tensor) for name, tensor in state.items())


def test_the_same_weights_and_metadata_are_the_same_bytes(tmp_path: Path) -> None:
    about = {name: f"«{name}»" for name in "zyxabc"}
    path, found = tmp_path / "w.safetensors", set()
    for _ in range(6):  # safetensors itself shuffles the metadata
        write_weights(path, {"w": torch.ones(3)}, about)
        found.add(path.read_bytes())
    assert len(found) == 1
    with safe_open(path, framework="pt") as file:
        assert file.metadata() == about
        assert torch.equal(file.get_tensor("w"), torch.ones(3))


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


def test_a_prefix_that_the_model_has_itself_stays(tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.model = nn.Linear(2, 2)\n"
    )
    state = {"model.weight": torch.ones(2, 2), "model.bias": torch.ones(2)}
    save_file(state, tmp_path / "w.safetensors")
    assert same(load_model(f"{tmp_path / 'net.py'}:Net", weights=str(tmp_path / "w.safetensors")), state)


@pytest.mark.parametrize("source", ["timm:test_resnet", "torchvision:squeezenet1_1", "hf"])
def test_the_number_of_classes_comes_from_the_file(source: str, tmp_path: Path) -> None:
    source = f"hf:{hugging_face_folder(tmp_path / 'hf', labels=7)}" if source == "hf" else source
    state = load_model(source, classes=4, weights=None if source[:2] != "hf" else _other_classes(source, tmp_path))
    save_file(state.state_dict(), tmp_path / "w.safetensors")
    assert same(load_model(source, weights=tmp_path / "w.safetensors"), state.state_dict())


def _other_classes(source: str, folder: Path) -> Path:
    """Return weights for four classes for a folder whose own are for seven."""
    state = load_model(source).state_dict()
    last = [name for name in state if name.startswith("classifier.")]
    save_file({n: t[:4].clone() if n in last else t for n, t in state.items()}, folder / "four.safetensors")
    return folder / "four.safetensors"


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
