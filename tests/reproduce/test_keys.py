from __future__ import annotations

import pytest

from hansfree.reproduce.aggregate import Facts, SubjectKey, is_localized
from tests.reproduce.examples import BRIGHT, VGG


def test_the_title_holds_all_three_words() -> None:
    assert all(word in VGG.title for word in ("vgg16", "timestamp", "synthetic"))


@pytest.mark.parametrize(
    ("key", "facts", "expected"),
    [
        (VGG, Facts(), True),
        (BRIGHT, Facts(), False),
        (BRIGHT, Facts(is_localized=True), True),
        (SubjectKey("photos", "necktie", "vgg16"), Facts(), None),
        (SubjectKey("photos", "necktie", "vgg16"), Facts(is_localized=False), False),
    ],
)
def test_localised_by_what_was_said_or_by_the_artifact(key: SubjectKey, facts: Facts, expected: bool | None) -> None:
    assert is_localized(key, facts) is expected
