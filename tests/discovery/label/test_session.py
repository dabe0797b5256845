"""Opening a run file for labelling: cache, files outside the root, locking, suggestions, and what a run reads."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hansfree._internal.files import write_json, write_text
from hansfree.activations.shards import write_shard
from hansfree.data.listing import Listing
from hansfree.discovery import opening
from hansfree.discovery.clustering import Cluster
from hansfree.discovery.label.ranking import LabelDiagnostics
from hansfree.discovery.label.session import ClusterSuggestion, Session, address_file, describe_finish, read_suggestions
from hansfree.discovery.opening import label_directory
from hansfree.discovery.suspects import Suspects
from hansfree.errors import DataError, RunError
from hansfree.pipeline.config import read_run_file
from tests.discovery.label.worlds import World, opened, page


def change(world: World, **sections: dict[str, Any]) -> None:
    """Change values in the world's run file."""
    content = yaml.safe_load(world.file.read_text())
    for section, values in sections.items():
        content[section] = {**content.get(section, {}), **values}
    world.file.write_text(yaml.safe_dump(content))


@pytest.fixture
def root(small: World, tmp_path: Path) -> Path:
    """Return a folder of images of its own."""
    shutil.copytree(yaml.safe_load(small.file.read_text())["data"]["root"], tmp_path / "inside")
    change(small, data={"root": str(tmp_path / "inside")})
    return tmp_path / "inside"


@pytest.fixture
def three_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "_BATCH", 16)
    monkeypatch.setattr("hansfree.activations.shards._IMAGES", 16)


@pytest.mark.usefixtures("three_shards")
def test_a_stopped_pass_resumes_and_is_computed_once(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []

    def stop_at_the_third(path: Path, shard: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        write_shard(path, shard)

    with monkeypatch.context() as patch:
        patch.setattr(opening, "write_shard", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt), opened(small):
            pass
    times = [path.stat().st_mtime_ns for path in written]
    with opened(small) as session:
        pooled = session.data.pooled
        assert pooled.shape == (40, 128)
    assert [path.stat().st_mtime_ns for path in written] == times
    assert len(list(written[0].parent.glob("*.safetensors"))) == 3
    monkeypatch.setattr(opening, "plan_pass", None)  # is not called again
    with opened(small) as session:
        np.testing.assert_array_equal(session.data.pooled, pooled)


@pytest.mark.parametrize("kind", ["link", "path"])
def test_no_image_outside_of_the_root_is_shown(small: World, root: Path, tmp_path: Path, kind: str) -> None:
    name = "00003.png" if kind == "link" else "../secret.png"
    table = Path(yaml.safe_load(small.file.read_text())["data"]["table"]).read_text().replace("00003.png", name)
    (tmp_path / "labels.csv").write_text(table)
    (root / "00003.png").rename(tmp_path / "secret.png")
    if kind == "link":
        (root / name).symlink_to(tmp_path / "secret.png")
    change(small, data={"table": str(tmp_path / "labels.csv")})
    with pytest.raises(DataError, match=r"not inside data\.root"), opened(small):
        pass


def test_a_link_that_leads_out_later_is_not_followed(small: World, root: Path, tmp_path: Path) -> None:
    with opened(small) as session, page(session) as client:
        (root / "00003.png").rename(tmp_path / "secret.png")
        (root / "00003.png").symlink_to(tmp_path / "secret.png")
        response = client.get("thumbnails/3.jpg")
        assert response.status_code == 400
        assert "not inside" in response.json()["detail"]


def test_one_process_labels_and_a_second_prints_its_address(small: World) -> None:
    kept = address_file(small.table.parent)
    kept.parent.mkdir(parents=True)
    kept.write_text("http://127.0.0.1:1/gone/")  # of a killed process
    with opened(small):
        with pytest.raises(RunError, match="is in use: another `hansfree label` is starting"), opened(small):
            pass
        kept.write_text("http://127.0.0.1:1/here/")
        with pytest.raises(RunError, match=r"already open at http://127\.0\.0\.1:1/here/$"), opened(small):
            pass


def test_a_suggested_cluster_is_accepted_in_one_step(small: World) -> None:
    folder = label_directory(read_run_file(small.file))
    folder.mkdir()
    (folder / "suspect-1.json").write_text(json.dumps(["00004.png", "00002.png", "gone.png"]))
    with opened(small) as session, page(session) as client:
        images = session.data.opened.images
        (offer,) = client.get("api/catalogue").json()["suspects"]
        assert (offer["name"], offer["images"], offer["centre"], offer["sentence"]) == ("suspect-1", [2, 4], [2, 4], "")
        assert offer["title"] == images.class_names[images.labels[2]]
        assert client.post("api/suspects", json={"suspect": "../suspect-1"}).status_code == 400
        session.label([2], has_artifact=False)
        now = session.accept("suspect-1")
        assert (now.yes, now.no) == (1, 1)  # existing labels stay
        again = session.accept("suspect-1")
        assert (again.yes, again.no, again.version) == (1, 1, now.version)
        assert session.undo().images == [4]
        assert session.undo().images == [2]
        assert client.post("api/suspects", json={"suspect": "suspect-1"}).json()["yes"] == 2
        assert client.post("api/undo").json()["images"] == [2, 4]
        assert session.undo().images == []
        assert session.state().diagnostics is None


@pytest.mark.parametrize("content", ["{", "[1]"])
def test_a_damaged_list_of_images_is_refused(small: World, content: str) -> None:
    folder = label_directory(read_run_file(small.file))
    folder.mkdir()
    (folder / "suspect-1.json").write_text(content)
    with pytest.raises(DataError, match=r"suspect-1\.json"), opened(small):
        pass


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        # An image came before the others since the search: row 1 is image 2 now.
        ((1, 2, 4), ClusterSuggestion("suspect-1", [2, 3], [3], "oval, richer in white", "They are richer in white.")),
        ((1, 2), ClusterSuggestion("suspect-1", [2, 3], [2, 3], "oval", "")),  # the list is of another cluster
    ],
)
def test_suggestions_show_class_property_and_central_images(
    tmp_path: Path, rows: tuple[int, ...], expected: ClusterSuggestion
) -> None:
    cluster = Cluster(
        label=0, rows=rows, centre=(4, 2), anomaly=0.5, separation=2.0, chance=1.0, p=0.01, confidence=0.9,
        distinct="white share", distinct_auc=0.9, level="weak", sentence="They are richer in white.",
    )  # fmt: skip
    found = Suspects(class_names=("oval",), n=6, seed=0, verdict="", clusters=(cluster,), properties=(), remarks=())
    write_json(tmp_path / "suspect-1.json", ["2.png", "3.png", "gone.png"])
    write_text(tmp_path / "suspects.json", found.to_json())
    names = {f"{row}.png": row for row in range(6)}
    assert read_suggestions(tmp_path, names, classes=["oval"] * 6) == {"suspect-1": expected}


def test_class_folders_are_labelled_too(small: World, tmp_path: Path) -> None:
    content = yaml.safe_load(small.file.read_text())
    root, folders = Path(content["data"]["root"]), tmp_path / "folders"
    for line in Path(content["data"]["table"]).read_text().splitlines()[1:]:
        name, label, *_ = line.split(",")
        (folders / label).mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, folders / label / name)
    change(small, data={"root": str(folders), "table": None}, artifact={"biased_class": "smooth-even"})
    with opened(small) as session:
        session.label(list(range(0, 40, 4)), has_artifact=True)
        session.label([image for image in range(40) if image % 4], has_artifact=False)
        assert f"data.artifacts in {small.file} to {small.table}" in session.finish().sentence
    bits, _ = Listing.read(folders).read_artifact_list(small.table, column="artifact")
    np.testing.assert_array_equal(bits, np.arange(40) % 4 == 0)


@pytest.mark.parametrize(
    ("diagnostics", "title", "missing", "start"),
    [
        (LabelDiagnostics(40, 0.9, "fair", "Use it."), "Ready for a run", "", "Set data.table in "),
        (LabelDiagnostics(9, 0.6, "poor", "Too few."), "Saved, but not ready for a run", "Too few.", "To run anyway: "),
        (None, "Saved, but not ready for a run", "The diagnostics are not finished.", "To run anyway: set data.table "),
    ],
)
def test_labels_suffice_by_their_diagnostics(
    unlabelled: Session, diagnostics: LabelDiagnostics | None, title: str, missing: str, start: str
) -> None:
    found = describe_finish(unlabelled.data, diagnostics, unlabelled=31)
    assert found.proposed.startswith("31 of the 40 images are not labelled.")
    assert (found.title, found.missing) == (title, missing)
    assert found.sentence.startswith(start)


def test_every_change_has_another_version_and_finish_waits_for_its_diagnostics(session: Session) -> None:
    with pytest.raises(DataError, match="Not yet: Label 5 more images"):
        session.finish()
    versions = [session.state().version, session.label([0], has_artifact=True).version]
    versions.append(session.label([0], has_artifact=False).version)  # as many labels as before
    versions.append(session.undo().state.version)
    assert versions == sorted(set(versions))
    session.label([1], has_artifact=True)
    session.label([2, 3, 4], has_artifact=False)
    finish, diagnostics = session.finish(), session.state().diagnostics
    assert diagnostics is not None
    assert diagnostics.n_labels == 5
    assert finish.missing == diagnostics.verdict == "Diagnostics need 2 more with the artifact and 1 more without it."
