"""Training a whole model: it learns, is reproducible, resumes exactly, and leaves the global randomness alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import distributed, nn
from torch.nn import functional

from hansfree.corrections.training import Pretraining, pretrain
from hansfree.data.artifacts import Brightness
from hansfree.data.datasets import InMemory
from hansfree.data.insertion import WithArtifact
from hansfree.data.lesions import SyntheticLesions
from hansfree.errors import CacheError, DivergedError, OptionError
from hansfree.models import build_model

T = TypeVar("T")
BATCHES = 5  # of 8 images in an epoch


@pytest.fixture(scope="module")
def stamped() -> WithArtifact:
    return WithArtifact(SyntheticLesions(40, size=32), Brightness(), share=1.0, only_class=0)


@pytest.fixture(scope="module")
def data(stamped: WithArtifact) -> InMemory:
    return InMemory(stamped)


def small_model() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Dropout(0.1),
            nn.Linear(8, 4),
        )


def weights(model: nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def are_equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def small(**options: Any) -> Pretraining:
    return Pretraining(**{"epochs": 3, "batch_size": 8, "learning_rate": 0.01, **options})


class KilledError(Exception):
    """Stands for the end of the process."""


class Watched:
    """A progress that remembers how much there was to do, and ends the training before its step ``kill_at``."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.kill_at = kill_at

    def __call__(self, steps: Iterable[T], *, total: int, label: str) -> Iterator[T]:
        self.total = total
        yield from itertools.islice(steps, self.kill_at)
        if self.kill_at is not None:
            raise KilledError


def train_a_part(rank: int, folder: str) -> None:
    """Train in one of two processes, each with half of every batch."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    data = InMemory(WithArtifact(SyntheticLesions(16, size=32), Brightness(), share=1.0, only_class=0))
    model = plain_model()
    pretrain(model, data, small(epochs=2), checkpoint=Path(folder) / "checkpoint")
    save_file(weights(model), f"{folder}/{rank}.safetensors")
    distributed.destroy_process_group()  # its threads would abort the process at its end


def plain_model() -> nn.Module:
    """Without batch norm and dropout, two halves of a batch give what the whole batch gives."""
    parts = [part for part in small_model() if not isinstance(part, (nn.BatchNorm2d, nn.Dropout))]
    return nn.Sequential(*parts)


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(train_a_part, (str(tmp_path),), nprocs=2)  # type: ignore[no-untyped-call]
    alone = plain_model()
    data = InMemory(WithArtifact(SyntheticLesions(16, size=32), Brightness(), share=1.0, only_class=0))
    pretrain(alone, data, small(epochs=2))
    for rank in (0, 1):
        torch.testing.assert_close(load_file(tmp_path / f"{rank}.safetensors"), weights(alone), rtol=1e-4, atol=1e-5)
    assert (tmp_path / "checkpoint").exists()


def test_mixed_precision_trains_nearly_the_same(data: InMemory) -> None:
    models = [plain_model() for _ in range(2)]
    for model, is_mixed in zip(models, (False, True)):
        pretrain(model, data, small(optimizer="sgd", mixed_precision=is_mixed))
    plain, mixed = map(weights, models)
    assert not are_equal(plain, mixed)
    torch.testing.assert_close(plain, mixed, rtol=0.05, atol=0.01)
    assert all(tensor.dtype == torch.float32 for tensor in mixed.values())


def test_the_same_seed_gives_the_same_bytes_whatever_the_global_state(data: InMemory) -> None:
    states = []
    for noise, seed in ((1, 5), (2, 5), (2, 6)):
        with torch.random.fork_rng():
            torch.manual_seed(noise)
            before = torch.random.get_rng_state()
            model = small_model()
            pretrain(model, data, small(epochs=1, seed=seed))
            assert torch.equal(torch.random.get_rng_state(), before)
            states.append(weights(model))
    assert are_equal(states[0], states[1])
    assert not are_equal(states[0], states[2])


def test_fewer_images_than_a_batch_are_refused(data: InMemory) -> None:
    with pytest.raises(OptionError, match="40 images do not fill one batch of 64"):
        pretrain(small_model(), data, Pretraining())


def test_plain_sgd_is_the_textbooks(data: InMemory) -> None:
    """Every step subtracts rate x gradient; the batches are the epoch's order, cut, without the short last one."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))
    weight, bias = (parameter.detach().clone().double() for parameter in model.parameters())
    seen: list[list[int]] = []
    batch_of = data.batch

    class Recorded(InMemory):
        def __init__(self) -> None:
            vars(self).update(vars(data))

        def batch(self, indices: Any) -> Any:
            seen.append(list(indices))
            return batch_of(indices)

    pretrain(model, Recorded(), small(optimizer="sgd", epochs=3, batch_size=12, milestones=(1, 2), learning_rate=0.01))
    assert [len(rows) for rows in seen] == [12] * 9
    assert [len({*seen[i], *seen[i + 1], *seen[i + 2]}) for i in (0, 3, 6)] == [36] * 3
    assert seen[:3] != seen[3:6]
    for i, rows in enumerate(seen):
        batch = data.batch(rows)
        inputs, labels = batch.image.flatten(1).double(), torch.as_tensor(batch.label)
        error = (inputs @ weight.T + bias).softmax(1) - functional.one_hot(labels, 4)
        rate = 0.01 * 0.1 ** (i // 3)
        weight, bias = weight - rate * error.T @ inputs / 12, bias - rate * error.mean(0)
    torch.testing.assert_close(model[1].weight.double(), weight, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model[1].bias.double(), bias, rtol=1e-4, atol=1e-5)


def test_images_from_a_loader_give_the_same_weights_as_those_in_memory(data: InMemory, stamped: WithArtifact) -> None:
    found = []
    for images, processes in ((data, 0), (stamped, 2)):
        model = small_model()
        before = torch.random.get_rng_state()
        pretrain(model, images, small(epochs=2), workers=processes)
        assert torch.equal(torch.random.get_rng_state(), before)
        found.append(weights(model))
    assert are_equal(*found)


RECIPES = {
    "adam along a cosine": {},
    "sgd with momentum and milestones": {"optimizer": "sgd", "momentum": 0.9, "milestones": (1, 2)},
    "plain sgd at a constant rate": {"optimizer": "sgd", "milestones": ()},
}


@pytest.mark.parametrize("recipe", RECIPES.values(), ids=RECIPES)
def test_killed_and_resumed_ends_in_the_same_bytes(data: InMemory, tmp_path: Path, recipe: dict[str, Any]) -> None:
    straight, path, counted = small_model(), tmp_path / "training.pt", Watched()
    pretrain(straight, data, small(**recipe))
    for at in (BATCHES + 2, BATCHES + 1):  # in the second epoch; in the third, as the first is done by then
        with pytest.raises(KilledError):
            pretrain(small_model(), data, small(**recipe), checkpoint=path, progress=Watched(at))
        assert [file.name for file in tmp_path.iterdir()] == ["training.pt"]
    resumed = small_model()
    pretrain(resumed, data, small(**recipe), checkpoint=path, progress=counted)
    assert counted.total == BATCHES  # the third epoch alone
    assert are_equal(weights(resumed), weights(straight))
    assert [file.name for file in tmp_path.iterdir()] == ["training.pt"], "it stays until the model is safe"


@pytest.fixture
def interrupted(data: InMemory, tmp_path: Path) -> Path:
    """The checkpoint of a training that was killed after its first epoch."""
    path = tmp_path / "training.pt"
    with pytest.raises(KilledError):
        pretrain(small_model(), data, small(), checkpoint=path, progress=Watched(BATCHES))
    return path


def test_a_checkpoint_of_another_training_is_refused_and_stays(data: InMemory, interrupted: Path) -> None:
    other_data = InMemory(WithArtifact(SyntheticLesions(40, size=32, seed=1), Brightness(), share=1.0, only_class=0))
    other_model = small_model()
    with torch.no_grad():
        next(other_model.parameters()).add_(1)
    for model, images, options, part in (
        (other_model, data, small(), "first weights"),
        (build_model("demo", classes=4), data, small(), "first weights"),
        (small_model(), other_data, small(), "data"),
        (small_model(), data, small(epochs=4), "options"),
        (small_model(), data, small(seed=1), "options"),
    ):
        before = weights(model)
        with pytest.raises(CacheError, match=f"training with other {part}.*Remove it"):
            pretrain(model, images, options, checkpoint=interrupted)
        assert are_equal(weights(model), before)
    pretrain(small_model(), data, small(), checkpoint=interrupted)  # it was not harmed


@pytest.mark.parametrize("content", [b"", b"no checkpoint at all", None])
def test_a_file_that_is_no_checkpoint_is_refused(data: InMemory, tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "c.pt"
    if content is None:
        torch.save(small_model().state_dict(), path)
    else:
        path.write_bytes(content)
    with pytest.raises(CacheError, match=r"c\.pt"):
        pretrain(small_model(), data, small(), checkpoint=path)
    assert path.exists()


@pytest.mark.parametrize("cut", [None, 50, -9])
def test_a_damaged_checkpoint_is_computed_again(
    data: InMemory, interrupted: Path, caplog: pytest.LogCaptureFixture, cut: int | None
) -> None:
    content = bytearray(interrupted.read_bytes()[:cut])
    content[len(content) // 2] ^= 1
    interrupted.write_bytes(content)
    resumed, whole = small_model(), small_model()
    pretrain(resumed, data, small(), checkpoint=interrupted)
    pretrain(whole, data, small())
    assert are_equal(weights(resumed), weights(whole))
    assert "is damaged" in caplog.text


def test_divergence_is_an_error_and_no_checkpoint(data: InMemory, tmp_path: Path) -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 16), nn.Linear(16, 16), nn.Linear(16, 4))
    with pytest.raises(DivergedError, match="after epoch 1"):
        pretrain(model, data, small(optimizer="sgd", learning_rate=1e30), checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()
    assert not model.training
