"""The paper's recipes: the right optimiser, rate, epochs and milestones for a dataset and a model."""

from __future__ import annotations

import pytest

from hansfree.corrections.training import FineTuning, Pretraining
from hansfree.data.biased import BiasedData
from hansfree.errors import OptionError
from hansfree.paper.dataset import BenchmarkDataset, Recipe
from hansfree.paper.subjects import recipe_for, tuning_for


class Faces(BenchmarkDataset):
    """A dataset with the numbers of App. A.3 for CelebA, and a rate for fresh weights of one model."""

    title, artifacts, needs_root = "Faces", ("collar",), False
    recipe = Recipe(
        epochs={"vgg16": 40, "resnet18": 40, "efficientnet_b0": 40},
        milestones=(20, 30),
        batch_size=24,
        fresh_rates={"resnet18": 0.002},
        correction_rates={"resnet18": 2e-5},
    )

    def data(self, model: str) -> BiasedData:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("model", "optimizer", "rate"),
    [("vgg16", "sgd", 0.005), ("resnet18", "sgd", 0.005), ("efficientnet_b0", "adam", 0.001)],
)
def test_training_is_the_papers(model: str, optimizer: str, rate: float) -> None:
    for study in (Faces, Faces()):
        assert recipe_for(study, model, seed=3) == Pretraining(
            optimizer=optimizer,  # type: ignore[arg-type]
            learning_rate=rate,
            epochs=40,
            milestones=(20, 30),
            batch_size=24,
            momentum=0.0,
            seed=3,
        )


def test_fresh_weights_take_the_datasets_rate_where_it_has_one() -> None:
    expected = Pretraining(optimizer="adam", learning_rate=0.002, epochs=40, batch_size=24)
    assert recipe_for(Faces, "resnet18", fresh=True) == expected
    assert recipe_for(Faces, "vgg16", fresh=True) == recipe_for(Faces, "vgg16")


def test_the_number_of_epochs_can_be_given() -> None:
    assert recipe_for(Faces, "vgg16", epochs=2).epochs == 2
    assert recipe_for(Faces, "demo", epochs=2).epochs == 2


def test_a_model_without_a_recipe_is_refused() -> None:
    with pytest.raises(OptionError, match=r"Faces has no recipe for 'demo'\. Known: vgg16, resnet18, efficientnet_b0"):
        recipe_for(Faces, "demo")
    with pytest.raises(OptionError, match="Did you mean 'resnet18'"):
        recipe_for(Faces, "resnet81", epochs=1)

    class Table(Faces):
        title, recipe = "Table", Recipe(epochs={})  # nobody has published one

    with pytest.raises(OptionError, match=r"Table has no recipe for 'vgg16'\. Give the number of epochs\."):
        recipe_for(Table, "vgg16")


def test_correction_takes_the_optimiser_of_training_at_a_smaller_rate() -> None:
    assert tuning_for(Faces, "vgg16") == FineTuning(optimizer="sgd", learning_rate=1e-4, epochs=10)
    assert tuning_for(Faces, "resnet18", seed=2) == FineTuning(optimizer="sgd", learning_rate=2e-5, epochs=10, seed=2)
    assert tuning_for(Faces, "efficientnet_b0", epochs=3) == FineTuning(optimizer="adam", learning_rate=1e-4, epochs=3)


@pytest.mark.parametrize("study", BenchmarkDataset.members().values(), ids=BenchmarkDataset.members())
def test_every_dataset_has_recipes_for_models_that_exist(study: type[BenchmarkDataset]) -> None:
    if study.published is not None:  # a dataset of the paper
        assert {"vgg16", "resnet18", "efficientnet_b0"} <= study.recipe.epochs.keys()
    for model in study.recipe.epochs:
        assert recipe_for(study, model).epochs == study.recipe.epochs[model]
    for rates in (study.recipe.fresh_rates, study.recipe.correction_rates):
        assert rates.keys() <= study.recipe.epochs.keys()
