"""The drawing of a class and the page of all suspects."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hansfree.data.datasets import LabelledImages
from hansfree.data.examples import Normalize
from hansfree.data.lesions import SyntheticLesions
from hansfree.discovery.page import draw_suspects, write_suspects_page
from hansfree.discovery.properties import measure_images
from hansfree.discovery.suspects import Suspects, find_suspects
from hansfree.errors import DataError

COUNT = 160
NAMES = ("<b>one</b>", "two", "three", "four")


class Grey:
    """Lesions without colour."""

    def __init__(self, source: SyntheticLesions) -> None:
        self.source = source
        self.labels, self.ids, self.id_range = source.labels, source.ids, source.id_range
        self.class_names, self.fingerprint = source.class_names, f"Grey({source.fingerprint})"

    def __len__(self) -> int:
        return len(self.source)

    def image(self, index: int) -> np.ndarray:
        return self.source.image(index)[..., :1]


@pytest.fixture(scope="module")
def images() -> LabelledImages:
    return LabelledImages(SyntheticLesions(COUNT, size=32), np.zeros(COUNT, dtype=bool))


@pytest.fixture(scope="module")
def suspects(images: LabelledImages) -> Suspects:
    """Ten images of the first class stand far apart."""
    rng = np.random.default_rng(0)
    features, logits = rng.normal(size=(COUNT, 8)), rng.normal(size=(COUNT, 4))
    rows = np.flatnonzero(images.labels == 0)[:10]
    features[rows, :3] += 8
    logits[rows, 0] += 9
    return find_suspects(
        features, images.labels, logits, class_names=NAMES, measured=measure_images(images), permutations=99
    )


def test_a_class_is_drawn_with_its_clusters(suspects: Suspects, images: LabelledImages) -> None:
    drawing = draw_suspects(suspects, 0, images)
    assert drawing.name == "suspects-0"
    assert "cluster 1: 10 images" in drawing.alt
    embedding, *thumbnails = drawing.figure.axes
    drawn = sum(len(points.get_offsets()) for points in embedding.collections)
    assert drawn == (images.labels == 0).sum()
    assert sum(len(axes.images) for axes in thumbnails) >= 6
    assert {axes.get_ylabel() for axes in thumbnails} >= {"1"}


def test_only_clusters_that_are_told_in_words_are_drawn(suspects: Suspects, images: LabelledImages) -> None:
    first = suspects.clusters[0]
    hidden = replace(first, level="none", rows=first.rows[:6])
    drawing = draw_suspects(replace(suspects, clusters=(first, hidden)), 0, images)
    assert "(cluster 1: 10 images)" in drawing.alt
    assert {axes.get_ylabel() for axes in drawing.figure.axes} == {"", "1"}


def test_a_class_that_was_not_embedded_is_refused(suspects: Suspects, images: LabelledImages) -> None:
    with pytest.raises(DataError, match="Class 3 has no embedding"):
        draw_suspects(replace(suspects, embeddings=suspects.embeddings[:0]), 3, images)


def test_the_page_needs_nothing_else(suspects: Suspects, images: LabelledImages, tmp_path: Path) -> None:
    page = write_suspects_page(suspects, tmp_path / "suspects.html", images=images, title="demo")
    text = page.read_text(encoding="utf-8")
    assert "10 of the 40 images of class" in text
    assert "<b>one</b>" not in text  # names are words, not markup
    assert "&lt;b&gt;one" in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert text.count("data:image/jpeg") >= 6
    assert 'class="verdict clear"' in text
    assert len(re.findall(r"<img ", text)) == len(re.findall(r'<img [^>]*alt="[^"]+"', text))


def test_a_page_without_suspects_says_so(suspects: Suspects, images: LabelledImages, tmp_path: Path) -> None:
    none = replace(suspects, clusters=(), properties=(), embeddings=(), verdict="Nothing stands out clearly.")
    text = write_suspects_page(none, tmp_path / "suspects.html", images=images).read_text(encoding="utf-8")
    assert "No class has clusters" in text
    assert "No measured property" in text
    assert 'class="verdict"' in text


def test_grey_images_are_drawn(suspects: Suspects, tmp_path: Path) -> None:
    grey = LabelledImages(
        Grey(SyntheticLesions(COUNT, size=32)), np.zeros(COUNT, dtype=bool), transform=Normalize((0.5,), (0.5,))
    )
    assert write_suspects_page(suspects, tmp_path / "suspects.html", images=grey).exists()


def test_other_images_are_refused(suspects: Suspects, tmp_path: Path) -> None:
    few = LabelledImages(SyntheticLesions(4, size=32), np.zeros(4, dtype=bool))
    with pytest.raises(DataError, match="among 160 images, but 4 were given"):
        write_suspects_page(suspects, tmp_path / "suspects.html", images=few)
