"""One run, several CAVs: each method that goes along one is run along each, and is a method of its own everywhere."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hansfree.api import Result
from tests.pipeline.user import make_user, run_unreported

METHODS = ["vanilla", "p-clarc", "rr-clarc"]
ALONG = {"methods": METHODS, "further_cavs": ["svm", "pair"], "strengths": {"rr-clarc": [0.1, 1]}, "repeats": 2}
TRIALS = ["vanilla", "p-clarc", "p-clarc@svm", "p-clarc@pair", "rr-clarc", "rr-clarc@svm", "rr-clarc@pair"]
PATCH = {"insert": "patch", "file": "sticker.png", "place": "top-left", "also": "lsb"}


def run(user: Path, **sections: Any) -> Result:
    return run_unreported(user / "run.yaml", **sections)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_user(tmp_path_factory.mktemp("own") / "user")


@pytest.fixture(scope="module")
def finished(user: Path) -> Result:
    return run(user, artifact=PATCH, correction=ALONG)


@pytest.fixture(scope="module")
def plain(user: Path) -> Result:
    """The same without further CAVs, in a folder of its own."""
    return run(user, artifact=PATCH, correction={**ALONG, "further_cavs": []}, out="plain")


def test_each_is_a_method_of_its_own_with_its_cav(finished: Result) -> None:
    of_models = [row for row in finished.scores if not row.method.startswith("cav:")]
    assert list(dict.fromkeys(row.method for row in of_models)) == ["original", *TRIALS]
    kinds = {(row.method, row.cav) for row in of_models if "@" in row.method}
    assert kinds == {(name, name.partition("@")[2]) for name in TRIALS if "@" in name}
    assert {row.cav for row in of_models if row.method == "rr-clarc"} == {"signal"}
    for name in TRIALS[4:]:
        tried = {row.strength for row in of_models if row.method == name and row.seed == 0}
        assert tried == {0.1, 1.0}, "strengths of a method are those of all its directions"
        assert {row.seed for row in of_models if row.method == name} == {0, 1}
    under = {row.method for row in of_models if row.artifact == "lsb"}
    assert under == {"original", *TRIALS}, "and each meets the other artifacts"
    assert {row.cav for row in finished.scores if row.method == "cav:pair"} == {"pair"}, "its quality is reported too"


def test_the_other_methods_are_not_changed_by_it(finished: Result, plain: Result) -> None:
    shared = {row.method for row in plain.scores}
    assert len(plain.scores) > 100
    mine = [row for row in finished.scores if row.method in shared]
    assert [repr(row).replace("'run'", "'plain'") for row in mine] == [repr(row) for row in plain.scores]


def test_a_run_that_was_begun_without_goes_on(user: Path, plain: Result, finished: Result, tmp_path: Path) -> None:
    moved = Path(shutil.copytree(user, tmp_path / "user"))
    stages = moved / "plain" / "stages"
    before = {path.name: path.stat().st_mtime_ns for path in stages.iterdir()}
    later = run(moved, artifact=PATCH, correction=ALONG, out="plain")
    assert {name: (stages / name).stat().st_mtime_ns for name in before} == before
    assert [repr(row).replace("'plain'", "'run'") for row in later.scores] == [repr(row) for row in finished.scores]
    fewer = run(moved, artifact=PATCH, correction={**ALONG, "further_cavs": "svm"}, out="plain")
    assert {row.method for row in fewer.scores if "@" in row.method} == {"rr-clarc@svm", "p-clarc@svm"}
