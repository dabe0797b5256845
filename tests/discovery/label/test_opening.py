"""Opening a run file for marking: the cache, links that lead out, one process at a time, suspects, and what follows."""

from __future__ import annotations

import json
import shutil
import socket
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from hansfree.activations.shards import write_shard
from hansfree.data.listing import Listing
from hansfree.data.user_images import UserImages
from hansfree.discovery import opening as discovery
from hansfree.discovery.label.server import check_installed, serve
from hansfree.discovery.label.session import open_labelling
from hansfree.discovery.opening import label_directory
from hansfree.errors import DataError, OptionError, RunError
from hansfree.pipeline.config import read_run_file
from tests.discovery.label.worlds import World, make_world, opened, page


def changed(world: World, **sections: dict[str, Any]) -> World:
    """Return the world with other values in its run file."""
    content = yaml.safe_load(world.file.read_text())
    for section, values in sections.items():
        content[section] = {**content.get(section, {}), **values}
    world.file.write_text(yaml.safe_dump(content))
    return world


def in_shards_of_16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut the pass into three, so that it can be stopped in its middle."""
    monkeypatch.setattr(discovery, "_BATCH", 16)
    monkeypatch.setattr("hansfree.activations.shards._IMAGES", 16)


def test_activations_are_computed_once(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(small) as session:
        before = session.data.pooled
        assert before.shape == (40, 128)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("computed again")

    monkeypatch.setattr(discovery, "plan_pass", refuse)
    with opened(small) as session:
        np.testing.assert_array_equal(session.data.pooled, before)


def test_a_killed_pass_goes_on_where_it_stopped(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    in_shards_of_16(monkeypatch)
    written: list[Path] = []

    def stop_at_the_third(path: Path, shard: Any) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(path)
        write_shard(path, shard)

    with monkeypatch.context() as patch:
        patch.setattr(discovery, "write_shard", stop_at_the_third)
        with pytest.raises(KeyboardInterrupt), opened(small):
            pass
    times = [path.stat().st_mtime_ns for path in written]
    with opened(small) as session:
        assert session.data.pooled.shape == (40, 128)
    assert [path.stat().st_mtime_ns for path in written] == times
    assert len(list(written[0].parent.iterdir())) == 3


def test_a_damaged_part_of_the_pass_is_made_again(
    small: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    in_shards_of_16(monkeypatch)
    with opened(small) as session:
        before = session.data.pooled
    first, second, third = sorted(label_directory(read_run_file(small.file)).rglob("shard-*"))
    first.write_bytes(first.read_bytes()[:-100])  # what a full disk or a loss of power leaves
    second.write_bytes(b"")
    with opened(small) as session:
        np.testing.assert_array_equal(session.data.pooled, before)
    assert [path.name for path in (first, second, third) if path.name in caplog.text] == [first.name, second.name]


@pytest.mark.parametrize("path", ["thumbnails/3.jpg", "heatmaps/3.jpg"])
def test_an_image_that_is_deleted_meanwhile_is_told(small: World, tmp_path: Path, path: str) -> None:
    root = tmp_path / "inside"
    shutil.copytree(yaml.safe_load(small.file.read_text())["data"]["root"], root)
    changed(small, data={"root": str(root)})
    with opened(small) as session, page(session) as client:
        session.label([0, 1], has_artifact=True)
        session.label([2, 4], has_artifact=False)
        (root / "00003.png").unlink()
        response = client.get(path)
        assert response.status_code == 400
        assert response.json()["detail"].endswith("00003.png is missing.")


def test_a_thumbnail_that_a_loss_of_power_left_empty_is_made_again(small: World) -> None:
    with opened(small) as session:
        before = session.thumbnail(3)
        (kept,) = (session.data.table.parent / "thumbnails").iterdir()
        kept.write_bytes(b"")
        assert session.thumbnail(3) == kept.read_bytes() == before


def test_two_processes_cannot_mark_the_same_images(small: World) -> None:
    with opened(small), pytest.raises(RunError, match="is in use"), opened(small):
        pass


@pytest.mark.parametrize("kind", ["link", "path"])
def test_no_image_outside_of_the_data_folder_is_shown(small: World, tmp_path: Path, kind: str) -> None:
    content = yaml.safe_load(small.file.read_text())
    root = tmp_path / "inside"
    shutil.copytree(content["data"]["root"], root)
    (root / "00003.png").rename(tmp_path / "secret.png")
    name = "00003.png" if kind == "link" else "../secret.png"
    if kind == "link":
        (root / name).symlink_to(tmp_path / "secret.png")
    table = Path(content["data"]["table"]).read_text().replace("00003.png", name)
    (tmp_path / "labels.csv").write_text(table)
    changed(small, data={"root": str(root), "table": str(tmp_path / "labels.csv")})
    with pytest.raises(DataError, match=r"not inside data\.root"), opened(small):
        pass


def test_a_link_that_leads_out_later_is_not_followed(small: World, tmp_path: Path) -> None:
    root = tmp_path / "inside"
    shutil.copytree(yaml.safe_load(small.file.read_text())["data"]["root"], root)
    changed(small, data={"root": str(root)})
    with opened(small) as session, page(session) as client:
        (root / "00003.png").rename(tmp_path / "secret.png")
        (root / "00003.png").symlink_to(tmp_path / "secret.png")
        response = client.get("thumbnails/3.jpg")
        assert response.status_code == 400
        assert "not inside" in response.json()["detail"]


def test_a_suspected_cluster_is_taken_as_one_step(small: World) -> None:
    folder = label_directory(read_run_file(small.file))
    folder.mkdir()
    (folder / "suspect-1.json").write_text(json.dumps(["00004.png", "00002.png", "gone.png"]))
    with opened(small) as session, page(session) as client:
        (offer,) = client.get("api/catalogue").json()["suspects"]
        assert (offer["name"], offer["images"], offer["centre"], offer["sentence"]) == ("suspect-1", [2, 4], [2, 4], "")
        assert offer["title"] == session.data.opened.images.class_names[session.data.opened.images.labels[2]]
        assert client.post("api/suspects", json={"suspect": "../suspect-1"}).status_code == 400
        assert client.post("api/suspects", json={"suspect": "suspect-1"}).json()["yes"] == 2
        assert client.post("api/undo").json()["images"] == [2, 4]


def test_taking_a_cluster_leaves_what_was_marked_by_hand(small: World) -> None:
    folder = label_directory(read_run_file(small.file))
    folder.mkdir()
    (folder / "suspect-1.json").write_text(json.dumps(["00004.png", "00002.png"]))
    with opened(small) as session:
        session.label([2], has_artifact=False)
        now = session.accept("suspect-1")
        assert (now.yes, now.no) == (1, 1)
        again = session.accept("suspect-1")  # nothing is left to mark
        assert (again.yes, again.no, again.version) == (1, 1, now.version)
        assert session.undo().images == [4]
        assert session.undo().images == [2]


@pytest.mark.parametrize("content", ["{", "{}", "[1]"])
def test_a_damaged_list_of_suspects_is_refused(small: World, content: str) -> None:
    folder = label_directory(read_run_file(small.file))
    folder.mkdir()
    (folder / "suspect-1.json").write_text(content)
    with pytest.raises(DataError, match=r"suspect-1\.json"), opened(small):
        pass


def test_the_table_is_what_a_run_reads(tmp_path: Path) -> None:
    world = make_world(tmp_path, 120, size=32)
    with opened(world) as session:
        session.label(np.flatnonzero(world.has_artifact).tolist(), has_artifact=True)
        session.label(np.flatnonzero(~world.has_artifact).tolist(), has_artifact=False)
        assert f"data.table in {world.file} to {world.table}" in session.finish().sentence
    train = UserImages(root=tmp_path / "pictures", table=world.table, size=32).data().train
    np.testing.assert_array_equal(train.has_artifact, world.has_artifact[train.ids])
    assert not (tmp_path / "out").exists()  # a run's folder must be empty to begin with


def test_class_folders_are_marked_too(small: World, tmp_path: Path) -> None:
    content = yaml.safe_load(small.file.read_text())
    root, table = Path(content["data"]["root"]), Path(content["data"]["table"])
    for line in table.read_text().splitlines()[1:]:
        name, label, *_ = line.split(",")
        (tmp_path / "folders" / label).mkdir(parents=True, exist_ok=True)
        shutil.copy(root / name, tmp_path / "folders" / label / name)
    changed(small, data={"root": str(tmp_path / "folders"), "table": None})
    with opened(small) as session:
        session.label(list(range(0, 40, 4)), has_artifact=True)
        session.label([image for image in range(40) if image % 4], has_artifact=False)
        assert f"data.artifacts in {small.file} to {small.table}" in session.finish().sentence
    root = tmp_path / "folders"
    bits, _ = Listing.read(root).read_artifact_list(small.table, column="artifact")
    np.testing.assert_array_equal(bits, np.arange(40) % 4 == 0)


def test_a_biased_class_that_does_not_exist_is_refused(small: World) -> None:
    changed(small, artifact={"biased_class": "smoth-even"})
    with pytest.raises(OptionError, match="Did you mean 'smooth-even'"), opened(small):
        pass


def test_without_its_packages_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(OptionError, match=r"pip install -e '\.\[label\]'"):
        check_installed()


def test_a_port_that_is_taken_is_told(small: World) -> None:
    with socket.socket() as other, opened(small) as session:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(RunError, match="Leave out --port"):
            serve(session, port=other.getsockname()[1], ready=lambda _: None)


def test_the_lock_is_free_after_a_refusal(small: World) -> None:
    changed(small, artifact={"biased_class": "nothing"})
    run = read_run_file(small.file)
    for _ in range(2):
        with pytest.raises(OptionError, match="biased_class"), open_labelling(run, file=small.file):
            pass
