"""Models from everywhere: found, filled completely with their weights, or refused in one sentence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from hansfree.errors import OptionError
from hansfree.models import DemoNet, load_model
from tests.models.test_weights import same
from tests.models.zoo import hugging_face_folder

NET = """
from __future__ import annotations
from dataclasses import dataclass
import torch
from torch import nn

@dataclass
class Width:
    value: int = 4

class Net(nn.Module):
    def __init__(self, num_classes=3):
        super().__init__()
        self.fc = nn.Linear(Width().value, num_classes)

def make():
    return Net(5)

def make_for(num_classes):
    return Net(num_classes)

def with_options(**options):
    return Net(**options)

def needs(width):
    return Net()

def broken():
    raise ValueError("the width is wrong.\\nsecond line")

def leaves():
    raise SystemExit("bye")

def a_number():
    return 3

def wide():
    torch.set_default_dtype(torch.float64)
    return Net()

model = Net()
"""


@pytest.fixture
def net(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(NET)
    return tmp_path / "net.py"


@pytest.mark.parametrize(
    ("function", "classes", "rows"),
    [
        ("make", None, 5),
        ("make", 2, 5),
        ("Net", 2, 2),
        ("make_for", 2, 2),
        ("with_options", 4, 4),
        ("wide", None, 3),
    ],
)
def test_a_function_in_a_file(net: Path, function: str, classes: int | None, rows: int) -> None:
    before, path = set(sys.modules), list(sys.path)
    model = load_model(f"{net}:{function}", classes=classes)
    assert type(model).__name__ == "Net"
    assert model.fc.out_features == rows
    assert not model.training
    assert torch.get_default_dtype() == torch.float32
    assert sys.path == path
    assert all(name.startswith("hansfree_file_") for name in set(sys.modules) - before), "no name that imports ask for"


def test_random_weights_are_the_same_every_time_and_the_callers_generator_is_left_alone(net: Path) -> None:
    state = torch.random.get_rng_state()
    assert same(load_model(f"{net}:make"), load_model(f"{net}:make").state_dict())
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("def make(:\n", r"SyntaxError: .* \(line 1\)"),
        ("x = 1\nimport not_there_at_all\n", r"ModuleNotFoundError: .*not_there_at_all.*\(line 2: import"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
    ],
)
def test_a_file_that_fails_leaves_nothing_behind(tmp_path: Path, text: str, sentence: str) -> None:
    (tmp_path / "bad.py").write_text(text)
    before, path = set(sys.modules), list(sys.path)
    with pytest.raises(OptionError, match=sentence):
        load_model(f"{tmp_path / 'bad.py'}:make")
    assert set(sys.modules) == before
    assert sys.path == path


def test_what_lies_beside_a_file_is_its_own(tmp_path: Path) -> None:
    for name, width in (("one", 3), ("two", 7)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "parts.py").write_text(f"WIDTH = {width}\n")
        (tmp_path / name / "net.py").write_text(
            "from torch import nn\nfrom parts import WIDTH\n\ndef make():\n    return nn.Linear(WIDTH, 2)\n"
        )
    widths = [load_model(f"{tmp_path / name / 'net.py'}:make").in_features for name in ("one", "two", "one")]
    assert widths == [3, 7, 3]


def test_a_function_in_a_module_of_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_package_of_a_test").mkdir()
    (tmp_path / "own_package_of_a_test" / "net.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    assert load_model("own_package_of_a_test.net:make").fc.out_features == 5
    with pytest.raises(OptionError, match=r"no module 'own_package_of_a_test\.nett'\. Did you mean 'net'"):
        load_model("own_package_of_a_test.nett:make")


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("{net}:mak", "no function 'mak'. Did you mean 'make'"),
        ("{net}:model", "is a model itself"),
        ("{net}:needs", "needs 'width', but is called without arguments"),
        ("{net}:make_for", "needs 'num_classes'.*Say how many classes"),
        ("{net}:broken", r"failed with ValueError: the width is wrong \(line 29: raise ValueError"),
        ("{net}:leaves", "failed with SystemExit: bye"),
        ("{net}:a_number", "returned a int; it must return a torch.nn.Module"),
        ("resnet81", "no model 'resnet81'. Did you mean 'resnet18'.*Allowed: package.module:function"),
        ("torchvision:resnet81", "torchvision has no model 'resnet81'. Did you mean 'resnet"),
        ("timm:convnext_attoo", "timm has no model 'convnext_attoo'. Did you mean 'convnext_atto'"),
        ("nowhere.py:make", "no file 'nowhere.py'"),
        ("timm:", "source is 'timm:'"),
        (":make", "source is ':make'"),
        ("hf:./nowhere", "no folder './nowhere'"),
    ],
)
def test_a_wrong_source_is_one_sentence(net: Path, source: str, sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence) as error:
        load_model(source.format(net=net))
    assert "\n" not in str(error.value)


def test_bare_names() -> None:
    for source in ("demo", "torch.nn:Identity"):
        with pytest.raises(OptionError, match="has no 'pretrained' weights"):
            load_model(source, weights="pretrained")
    assert isinstance(load_model("demo", classes=2), DemoNet)
    assert type(load_model("squeezenet1_1", classes=2)).__module__.startswith("torchvision.")
    assert type(load_model("test_resnet", classes=2)).__module__.startswith("timm.")


def test_a_library_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(OptionError, match=r"timm is not installed\. .* pip install -e '\.\[timm\]'"):
        load_model("timm:resnet10t")
    with pytest.raises(OptionError, match="no model 'resnet10t'"):
        load_model("resnet10t")


def test_hugging_face_folders(tmp_path: Path) -> None:
    folder = hugging_face_folder(tmp_path / "hf")
    model = load_model(f"hf:{folder}")
    assert model.config.num_labels == 3
    assert same(load_model(f"hf:{folder}", weights="pretrained", classes=3), model.state_dict())
    with pytest.raises(OptionError, match="for 3 classes, not for 5"):
        load_model(f"hf:{folder}", classes=5)
    save_file(model.state_dict(), tmp_path / "w.safetensors")
    assert same(load_model(f"hf:{folder}", weights=tmp_path / "w.safetensors"), model.state_dict())
    with pytest.raises(OptionError, match=f"no folder '{tmp_path}/hg'. Did you mean 'hf'"):
        load_model(f"hf:{tmp_path}/hg")
    headless = {n: t for n, t in model.state_dict().items() if not n.startswith("classifier.")}
    save_file(headless, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(OptionError, match=r"do not fill the model: it lacks classifier\.1\.bias, classifier\.1\.we"):
        load_model(f"hf:{folder}")  # not filled with random numbers
    (folder / "model.safetensors").unlink()
    with pytest.raises(OptionError, match="cannot be loaded with its weights: OSError"):
        load_model(f"hf:{folder}")


def test_pretrained_weights_of_torchvision_keep_their_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    published = load_model("squeezenet1_1").state_dict()
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *_, **__: published)
    assert same(load_model("torchvision:squeezenet1_1", weights="pretrained"), published)
    with pytest.raises(OptionError, match="for 1000 classes, not for 2"):
        load_model("squeezenet1_1", weights="pretrained", classes=2)
