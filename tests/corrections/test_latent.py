"""Names of methods along further CAVs, and layers with channels last."""

from __future__ import annotations

import pytest

from hansfree.corrections import (
    CAVCorrection,
    LatentCorrection,
    along_cavs,
    method_named,
    split_name,
    uses_cav,
)
from hansfree.errors import OptionError, UnknownNameError


def test_methods_along_a_cav_are_named_once_more_for_each_further_one() -> None:
    names = list(along_cavs(["vanilla", "rr-clarc", "leace", "p-clarc"], ["svm", "pair"]))
    along = ["rr-clarc", "rr-clarc@svm", "rr-clarc@pair"]
    assert names == ["vanilla", *along, "leace", "p-clarc", "p-clarc@svm", "p-clarc@pair"]
    assert list(along_cavs(["vanilla", "rr-clarc"], [])) == ["vanilla", "rr-clarc"]


@pytest.mark.parametrize("method", LatentCorrection.members())
def test_every_name_leads_back_to_its_method(method: str) -> None:
    assert split_name(method) == (method, None)
    assert method_named(method) is LatentCorrection.named(method)
    for name in [*along_cavs([method], ["svm"])][1:]:
        assert split_name(name) == (method, "svm")
        assert method_named(name) is LatentCorrection.named(method)
    assert uses_cav(method) == issubclass(LatentCorrection.named(method), CAVCorrection)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("rr-clrc@svm", "There is no method called 'rr-clrc'. Did you mean 'rr-clarc'?"),
        ("rr-clarc@swm", "There is no CAV called 'swm'. Did you mean 'svm'?"),
        ("rr-clarc@", "There is no CAV called ''."),
        ("rr-clarc@svm@svm", "There is no CAV called 'svm@svm'."),
    ],
)
def test_a_wrong_half_gets_the_nearest(name: str, sentence: str) -> None:
    with pytest.raises(UnknownNameError) as caught:
        method_named(name)
    assert sentence in str(caught.value)


def test_a_method_that_goes_along_no_cav_is_refused() -> None:
    with pytest.raises(OptionError, match="There is no 'vanilla@svm': vanilla uses no CAV"):
        method_named("vanilla@svm")
