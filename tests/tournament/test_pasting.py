"""Natural artifacts: cut out of some images and pasted onto others of the same part; a draw sees a part of them all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from hansfree.datasets import ExampleSet, Flagged, Pasted
from hansfree.experiments.subjects import Subject
from hansfree.models import build_model
from hansfree.studies import BiasedData
from hansfree.tournament import Draw, make_draws, paste_artifact
from hansfree.weights import write_weights
from tests.experiments.examples import Natural, opened

PARTS = (range(320), range(320, 440), range(440, 580))  # training, validation and test images


class Marked(Natural):
    """Plasters in the scenes, with a bit for every image of every part."""

    def data(self, model: str) -> BiasedData:
        data = super().data(model)
        without = np.flatnonzero(~self.scenes.has_plaster[:320])
        return replace(data, clean_train=Flagged(self.scenes, self.scenes.has_plaster, rows=without))

    def marked(self, model: str) -> tuple[Flagged, Flagged, Flagged]:
        self.data(model)
        train, val, test = (Flagged(self.scenes, self.scenes.has_plaster, rows=np.array(part)) for part in PARTS)
        return train, val, test


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Subject]:
    work = tmp_path_factory.mktemp("pasted")
    weights = work / "start.safetensors"
    write_weights(weights, build_model("demo", classes=2, seed=5).state_dict())
    with opened(work, Marked(), trained="head", weights=str(weights), epochs=2) as subject:
        yield subject


def in_a_corner(
    model: object, layer: str, cav: object, images: ExampleSet, rows: np.ndarray, **words: object
) -> np.ndarray:
    """Return masks as the CAV of a trained network would: this one knows nothing."""
    masks = np.zeros((len(rows), 48, 48), dtype=bool)
    masks[:, 4:16, 4:16] = True
    return masks


@pytest.fixture(scope="module")
def pasted(subject: Subject) -> BiasedData:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hansfree.tournament.localise_artifact", in_a_corner)
        return paste_artifact(subject, subject.study.marked("demo") or ())


@pytest.fixture(scope="module")
def draws(subject: Subject, pasted: BiasedData) -> list[Draw]:
    return list(make_draws(subject, pasted, range(2)))


def test_held_out_images_without_it_get_one_from_another_image(subject: Subject, pasted: BiasedData) -> None:
    has_plaster = subject.study.scenes.has_plaster  # type: ignore[attr-defined]
    for clean, biased, part in (
        (pasted.val_clean, pasted.val_biased, PARTS[1]),
        (pasted.test_clean, pasted.test_biased, PARTS[2]),
    ):
        assert clean.ids.tolist() == biased.ids.tolist() == [i for i in part if not has_plaster[i]]
        assert np.array_equal(clean.labels, biased.labels)
        assert biased.has_artifact.all()
        assert not clean.has_artifact.any()
        changed = [np.mean(clean.pixels(i)[0] != biased.pixels(i)[0]) for i in range(10)]
        assert min(changed) > 0
        assert max(changed) < 0.5
    assert pasted.is_inserted


def test_masks_are_found_once(subject: Subject, pasted: BiasedData, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hansfree.tournament.localise_artifact", None)
    again = paste_artifact(subject, subject.study.marked("demo") or ())
    assert again.test_biased.fingerprint == pasted.test_biased.fingerprint


def test_a_draw_sees_four_fifths_of_the_training_images(draws: list[Draw], pasted: BiasedData) -> None:
    assert isinstance(pasted.train_biased, Pasted)
    donor_of = dict(zip(pasted.train_biased.ids.tolist(), pasted.train_biased.donor_ids.tolist()))
    seen = [set(draw.train.ids.tolist()) for draw in draws]
    assert [len(ids) for ids in seen] == [256, 256]
    assert seen[0] != seen[1]
    for draw, ids in zip(draws, seen):
        assert draw.kind == "natural"
        marked = set(draw.train.ids[np.asarray(draw.train.has_artifact)].tolist())
        assert marked
        assert set(draw.clean.ids.tolist()) == ids - marked
        in_pairs = set(draw.pairs.clean.ids.tolist())
        assert in_pairs == {one for one in ids - marked if donor_of[one] in marked}  # no artifact from outside the draw
        assert 0 < len(in_pairs) < len(ids - marked)
        assert np.array_equal(draw.pairs.clean.ids, draw.pairs.biased.ids)
        assert ids.isdisjoint(draw.test.clean.ids.tolist())
