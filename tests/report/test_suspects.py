"""The page of suspects."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from hansfree.data.datasets import LabelledImages
from hansfree.data.lesions import SyntheticLesions
from hansfree.discovery.properties import measure_images
from hansfree.discovery.suspects import Suspects, find_suspects, write_suspects_page

COUNT = 160
NAMES = ("<b>one</b>", "two", "three", "four")


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


def test_the_page_needs_nothing_else(suspects: Suspects, images: LabelledImages, tmp_path: Path) -> None:
    write_suspects_page(suspects, tmp_path / "suspects.html", images=images, title="demo")
    text = (tmp_path / "suspects.html").read_text(encoding="utf-8")
    assert "10 of the 40 images of class" in text
    assert "<b>one</b>" not in text  # names are words, not markup
    assert "&lt;b&gt;one" in text
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert text.count("data:image/jpeg") >= 6
    assert 'class="verdict clear"' in text
    assert len(re.findall(r"<img ", text)) == len(re.findall(r'<img [^>]*alt="[^"]+"', text))
