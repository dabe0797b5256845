"""The page over HTTP: token, origin, validation, labels on disk, how the browser reaches it, and what it finds."""

from __future__ import annotations

import csv
import io
import json
import re
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image
from typer.testing import CliRunner

from hansfree.cli import app
from hansfree.discovery.label.ranking import UNKNOWN, YES, labels_of
from hansfree.discovery.label.server import check_installed, serve, write_redirect
from hansfree.discovery.label.session import SCREEN, Session, address_file
from hansfree.errors import OptionError, RunError
from hansfree.pipeline.checks import prepare_run
from hansfree.pipeline.config import read_run_file
from tests.discovery.label.worlds import PORT, TOKEN, World, label_all, make_world, opened, page, train_weights

HOST = f"http://127.0.0.1:{PORT}"
PARTS = sorted(
    part.name for part in (files("hansfree.discovery.label") / "page").iterdir() if part.name != "index.html"
)
GETS = ["", *PARTS, "api/catalogue", "api/state", "api/screen", "api/ranking", "thumbnails/0.jpg"]
LABEL = {"images": [0], "has_artifact": True}
POSTS: dict[str, Any] = {
    "api/labels": LABEL,
    "api/undo": {},
    "api/screen/next": {},
    "api/suspects": {"suspect": "suspect-1"},
    "api/finish": {},
}
ALL = [("GET", path, None) for path in GETS] + [("POST", path, body) for path, body in POSTS.items()]
LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def table_of(world: World) -> list[dict[str, str]]:
    with world.table.open(newline="") as file:
        return list(csv.DictReader(file))


def send_labels(client: TestClient, images: list[int], has_artifact: bool) -> dict[str, Any]:
    response = client.post("api/labels", json={"images": images, "has_artifact": has_artifact})
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", GETS)
def test_the_page_is_served_and_loads_nothing_from_elsewhere(visitor: TestClient, path: str) -> None:
    response = visitor.get(path)
    assert response.status_code == 200
    assert response.content
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in response.headers
    if path in ("", *PARTS):
        assert "://" not in response.text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(
    ("token", "headers"),
    [(token, {}) for token in ("", "wrong", TOKEN[:-1], f"{TOKEN}x", "é")]
    + [(TOKEN, {"host": host}) for host in ("example.org", f"example.org:{PORT}", "127.0.0.1", f"127.0.0.1:{PORT + 1}")]
    + [(TOKEN, {"origin": origin}) for origin in ("http://example.org", f"https://127.0.0.1:{PORT}", "null")]
    + [(TOKEN, {"sec-fetch-site": site}) for site in ("cross-site", "same-site")],
)
def test_without_the_token_or_from_another_host_or_origin_every_address_is_refused(
    unlabelled: Session, visitor: TestClient, token: str, headers: dict[str, str]
) -> None:
    for method, path, body in ALL:
        response = visitor.request(method, f"{HOST}/{token}/{path}", json=body, headers=headers)
        assert response.status_code == 403, (method, path)
    assert unlabelled.state().yes == 0


def test_localhost_links_and_an_address_without_its_last_slash_are_accepted(visitor: TestClient) -> None:
    here = f"localhost:{PORT}"
    assert visitor.get("api/state", headers={"host": here, "origin": f"http://{here}"}).status_code == 200
    response = visitor.get(f"{HOST}/{TOKEN}", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (307, f"/{TOKEN}/")
    assert visitor.get("", headers=LINK).status_code == 200
    for path in ("api/state", "thumbnails/0.jpg", "page.js"):
        assert visitor.get(path, headers=LINK).status_code == 403
    for path in ("", "api/labels"):
        assert visitor.post(path, headers=LINK, json=LABEL).status_code == 403
    frames = ({"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "no-cors"}, {"host": "example.org"}, {"origin": "null"})
    for changed in frames:
        assert visitor.get("", headers={**LINK, **changed}).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"images": [0]},
        *({"images": images, "has_artifact": True} for images in ([], [0.0], [True], [-1], [40], [0, 2**70])),
        *({"images": [0], "has_artifact": given} for given in ("yes", 1)),
        {"images": [0], "has_artifact": True, "path": "/etc/passwd"},
    ],
)
def test_an_invalid_label_changes_nothing(visitor: TestClient, unlabelled: Session, body: Any) -> None:
    assert visitor.post("api/labels", json=body).status_code in (400, 422)
    assert (unlabelled.state().yes, unlabelled.state().can_undo) == (0, False)
    assert not unlabelled.data.table.exists()


@pytest.mark.parametrize(
    "path",
    [
        "thumbnails/40.jpg", "thumbnails/-1.jpg", "thumbnails/x.jpg", "thumbnails/..%2f..%2f..%2fetc%2fpasswd",
        "thumbnails/%2e%2e/%2e%2e/labels.csv", "..%2flabels.csv", "page/index.html", "server.py", "%2fetc%2fpasswd",
        "docs", "openapi.json",
    ],
)  # fmt: skip
def test_only_images_of_the_list_can_be_read(visitor: TestClient, path: str) -> None:
    response = visitor.get(path)
    assert response.status_code in (400, 403, 404, 422)
    assert b"root:" not in response.content
    assert b"import" not in response.content


def test_a_thumbnail_is_the_image_and_a_heatmap_needs_both_labels(client: TestClient, small_template: World) -> None:
    with (
        Image.open(io.BytesIO(client.get("thumbnails/3.jpg").content)) as seen,
        Image.open(small_template.file.parent / "pictures" / "00003.png") as truth,
    ):
        assert seen.size == (192, 192)
        expected = np.asarray(truth.resize(seen.size, Image.Resampling.BILINEAR), dtype=float)
        assert np.abs(np.asarray(seen, dtype=float) - expected).mean() < 5
    assert client.get("heatmaps/0.jpg").status_code == 400
    send_labels(client, [0, 1, 2], True)
    send_labels(client, [3, 4, 5], False)
    with Image.open(io.BytesIO(client.get("heatmaps/0.jpg").content)) as seen:
        pixels = np.asarray(seen, dtype=float)
    assert (pixels[..., 0] - pixels[..., 2]).max() > 100  # amber somewhere,
    assert np.median(np.ptp(pixels, axis=-1)) < 60  # and grey elsewhere


def test_five_labels_rank_all_images_and_the_table_holds_them_before_the_response(
    small: World, client: TestClient
) -> None:
    state = send_labels(client, [0, 1], True)
    assert "Label 3 more" in state["advice"]
    assert client.get("api/ranking").json()["scores"] is None
    rows = table_of(small)
    assert list(rows[0]) == ["image", "label", "site", "group", "artifact", "artifact_annotated"]
    assert [row["site"] for row in rows[:3]] == ["site 0", "site 1", "site 2"]
    assert [(row["artifact"], row["artifact_annotated"]) for row in rows] == [("1", "1")] * 2 + [("", "0")] * 38
    send_labels(client, [2, 3, 4], False)
    ranking, rows = client.get("api/ranking").json(), table_of(small)
    scores = np.array(ranking["scores"])
    assert sorted(ranking["order"]) == list(range(40))
    assert (np.diff(scores[ranking["order"]]) <= 0).all()
    assert scores[[0, 1]].min() > 0 > scores[[2, 3, 4]].max()
    assert ranking["labels"] == [1, 1, 0, 0, 0, *[-1] * 35]
    assert ranking["proposed"] == [0, 1, *(image for image in range(5, 40) if scores[image] > 0)]
    assert [image for image, row in enumerate(rows) if row["artifact"] == "1"] == ranking["proposed"]
    assert [image for image, row in enumerate(rows) if row["artifact_annotated"] == "1"] == [0, 1, 2, 3, 4]
    assert not list(small.table.parent.glob("*.part*"))


def test_a_screen_stays_until_the_next_and_shows_nothing_twice(client: TestClient) -> None:
    first = client.get("api/screen").json()
    assert len(first) == SCREEN
    assert {choice["why"] for choice in first} == {"spread"}
    send_labels(client, [first[0]["image"]], True)
    send_labels(client, [choice["image"] for choice in first[1:]], False)
    assert client.get("api/screen").json() == first
    second = client.post("api/screen/next").json()
    assert [choice["why"] for choice in second] == ["likely", "uncertain"] * (SCREEN // 2)
    third = client.post("api/screen/next").json()  # passed over without a mark
    images = [choice["image"] for screen in (first, second, third) for choice in screen]
    assert len(set(images)) == 3 * SCREEN
    rest = client.post("api/screen/next").json()
    assert len(rest) == 40 - 3 * SCREEN
    again = client.post("api/screen/next").json()  # all were passed over: from the start
    assert len(again) == SCREEN
    assert not {choice["image"] for choice in again} & {choice["image"] for choice in first}


def test_labels_and_ranking_are_the_same_after_a_restart(small: World) -> None:
    with opened(small) as session, page(session) as client:
        label_all(client, small.has_artifact, labels=15)
        before, state = client.get("api/ranking").json(), client.get("api/state").json()
    with opened(small) as session, page(session) as client:
        assert client.get("api/ranking").json() == before
        again = client.get("api/state").json()
    assert (again["yes"], again["no"], again["can_undo"]) == (state["yes"], state["no"], False)


def test_a_table_that_cannot_be_written_is_reported(small: World, client: TestClient) -> None:
    small.table.mkdir()  # stands for a full disk
    response = client.post("api/labels", json=LABEL)
    assert response.status_code == 400
    assert "not saved" in response.json()["detail"]


def test_the_browser_is_started_with_a_file_for_this_user_only(
    small: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = f"http://127.0.0.1:1234/{TOKEN}/"
    started: list[Path] = []

    def browse(given: str) -> None:
        assert TOKEN not in given
        started.append(Path(given.removeprefix("file://")))
        assert f'content="0; url={address}"' in started[0].read_text()
        assert stat.S_IMODE(started[0].stat().st_mode) == 0o600
        assert stat.S_IMODE(started[0].parent.stat().st_mode) == 0o700

    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setattr("hansfree.discovery.label.server.serve", lambda session, *, port, ready: ready(address))
    done = CliRunner().invoke(app, ["label", str(small.file)])
    assert done.exit_code == 0, done.output
    assert not started[0].parent.exists()  # it is deleted with the page
    assert write_redirect(tmp_path, address).exists()


def test_the_address_is_stored_for_a_second_start(session: Session, small: World) -> None:
    stored = address_file(small.table.parent)
    addresses: list[str] = []

    def ready(address: str) -> None:
        assert stat.S_IMODE(stored.stat().st_mode) == 0o600
        with pytest.raises(RunError, match=f"already open at {address}$"), opened(small):
            pass
        addresses.append(address)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(session, ready=ready)
    assert addresses
    assert not stored.exists()


def test_a_missing_package_and_a_used_port_are_reported(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other, opened(small) as session:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(RunError, match="Leave out --port"):
            serve(session, port=other.getsockname()[1], ready=lambda _: None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(OptionError, match=r"pip install -e '\.\[label\]'"):
        check_installed()


@pytest.mark.slow
def test_a_killed_page_has_saved_every_label(small: World) -> None:
    program = "from hansfree.cli import main; main()"
    command = [sys.executable, "-c", program, "label", str(small.file), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = (re.search(r"(http://127\.0\.0\.1:\d+/\S+/)", line) for line in process.stdout)
            address = next(match.group(1) for match in found if match)
            with urllib.request.urlopen(address, timeout=60) as response:
                assert b"hansfree label" in response.read()
            with pytest.raises(urllib.error.HTTPError, match="403"):
                urllib.request.urlopen(re.sub(r"/[^/]+/$", "/", address), timeout=60)
            body = json.dumps({"images": [3], "has_artifact": True}).encode()
            request = urllib.request.Request(f"{address}api/labels", body, {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=60) as response:
                assert json.load(response)["yes"] == 1
        finally:
            process.kill()
    names = [f"{row:05}.png" for row in range(40)]
    labels = labels_of(table_of(small), names, column="artifact", place=small.table)
    assert labels.tolist() == [YES if row == 3 else UNKNOWN for row in range(40)]


@pytest.mark.slow
def test_few_labels_find_all_artifacts_and_propose_the_rest(tmp_path: Path) -> None:
    weights = train_weights(tmp_path / "biased.safetensors", "timestamp")
    world = make_world(tmp_path, 600, weights=weights, shares=[0.5, 0.25, 0.25])
    truth = world.has_artifact
    assert truth.sum() == 30
    with opened(world) as session, page(session) as client:
        label_all(client, truth, labels=48)
        proposed = np.zeros(len(truth), dtype=bool)
        proposed[client.get("api/ranking").json()["proposed"]] = True
        hits = (proposed & truth).sum()
        assert hits >= 0.95 * proposed.sum()
        assert hits >= 0.95 * truth.sum()
        label_all(client, truth, labels=72)
        state = client.get("api/state").json()
        assert state["yes"] + state["no"] == 120
        assert state["yes"] >= 29
    world.file.write_text(world.file.read_text().replace("table: labels.csv", f"table: {world.table}"))
    train = prepare_run(read_run_file(world.file)).setting.data.train  # the table is ready as it is
    assert (train.has_artifact == truth[train.ids]).mean() > 0.99
