"""The page over HTTP: who is let in, what is refused, and that marks, undo and reload do what they say."""

from __future__ import annotations

import csv
import io
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from fastapi.testclient import TestClient
from PIL import Image

from hansfree.discovery.label.session import SCREEN, Session
from tests.discovery.label.worlds import PORT, TOKEN, World, label_all, opened, page

HOST = f"http://127.0.0.1:{PORT}"
PAGE = files("hansfree.discovery.label") / "page"
PARTS = sorted(part.name for part in PAGE.iterdir() if part.name != "index.html")
GETS = [
    "",
    *PARTS,
    "api/catalogue",
    "api/state",
    "api/screen",
    "api/ranking",
    "thumbnails/0.jpg",
]
POSTS: list[tuple[str, Any]] = [
    ("api/labels", {"images": [0], "has_artifact": True}),
    ("api/undo", {}),
    ("api/screen/next", {}),
    ("api/suspects", {"suspect": "suspect-1"}),
    ("api/finish", {}),
]
ALL = [("GET", path, None) for path in GETS] + [("POST", path, body) for path, body in POSTS]


def table_of(world: World) -> list[dict[str, str]]:
    with world.table.open(newline="") as file:
        return list(csv.DictReader(file))


def send_marks(client: TestClient, images: list[int], has_artifact: bool) -> dict[str, Any]:
    response = client.post("api/labels", json={"images": images, "has_artifact": has_artifact})
    assert response.status_code == 200, response.text
    return response.json()  # type: ignore[no-any-return]


@pytest.mark.parametrize("path", GETS)
def test_the_page_is_served_and_asks_nobody_else(stranger: TestClient, path: str) -> None:
    response = stranger.get(path)
    assert response.status_code == 200
    assert response.content
    assert "default-src 'none'" in response.headers["content-security-policy"]
    assert response.headers["referrer-policy"] == "no-referrer"
    assert "access-control-allow-origin" not in response.headers
    if path in ("", *PARTS):
        assert "://" not in response.text.replace("http://www.w3.org/2000/svg", "")


@pytest.mark.parametrize(("method", "path", "body"), ALL)
@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], f"{TOKEN}x", "é"])
def test_no_address_answers_without_the_token(
    unlabelled: Session, stranger: TestClient, method: str, path: str, body: Any, token: str
) -> None:
    response = stranger.request(method, f"{HOST}/{token}/{path}", json=body)
    assert response.status_code == 403
    assert unlabelled.state().yes == 0


@pytest.mark.parametrize(("method", "path", "body"), ALL)
@pytest.mark.parametrize(
    "headers",
    [
        {"host": "example.org"},
        {"host": f"example.org:{PORT}"},
        {"host": "127.0.0.1"},
        {"host": f"127.0.0.1:{PORT + 1}"},
        {"origin": "http://example.org"},
        {"origin": f"https://127.0.0.1:{PORT}"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
    ids=lambda headers: " ".join(*headers.items()),
)
def test_no_address_answers_to_another_host_or_page(
    unlabelled: Session, stranger: TestClient, method: str, path: str, body: Any, headers: dict[str, str]
) -> None:
    assert stranger.request(method, path, json=body, headers=headers).status_code == 403
    assert unlabelled.state().yes == 0


def test_localhost_is_this_computer_too(stranger: TestClient) -> None:
    here = f"localhost:{PORT}"
    assert stranger.get("api/state", headers={"host": here, "origin": f"http://{here}"}).status_code == 200


def test_an_address_without_its_last_slash_leads_to_the_page(stranger: TestClient) -> None:
    response = stranger.get(f"{HOST}/{TOKEN}", follow_redirects=False)
    assert (response.status_code, response.headers["location"]) == (307, f"/{TOKEN}/")


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        {"images": [0]},
        {"has_artifact": True},
        {"images": [], "has_artifact": True},
        {"images": 0, "has_artifact": True},
        {"images": ["0"], "has_artifact": True},
        {"images": [0.0], "has_artifact": True},
        {"images": [True], "has_artifact": True},
        {"images": [-1], "has_artifact": True},
        {"images": [40], "has_artifact": True},
        {"images": [0, 2**70], "has_artifact": True},
        {"images": [0], "has_artifact": "yes"},
        {"images": [0], "has_artifact": 1},
        {"images": [0], "has_artifact": None},
        {"images": [0], "has_artifact": True, "path": "/etc/passwd"},
    ],
)
def test_a_mark_that_makes_no_sense_is_refused_and_changes_nothing(
    stranger: TestClient, unlabelled: Session, body: Any
) -> None:
    assert stranger.post("api/labels", json=body).status_code in (400, 422)
    assert (unlabelled.state().yes, unlabelled.state().can_undo) == (0, False)
    assert not unlabelled.data.table.exists()


@pytest.mark.parametrize(
    "path",
    [
        "thumbnails/40.jpg",
        "thumbnails/-1.jpg",
        "thumbnails/x.jpg",
        "thumbnails/..%2f..%2f..%2fetc%2fpasswd",
        "thumbnails/%2e%2e/%2e%2e/labels.csv",
        "..%2flabels.csv",
        "page/index.html",
        "server.py",
        "%2fetc%2fpasswd",
        "docs",
        "openapi.json",
    ],
)
def test_nothing_but_images_of_the_list_can_be_read(stranger: TestClient, path: str) -> None:
    response = stranger.get(path)
    assert response.status_code in (400, 403, 404, 422)
    assert b"root:" not in response.content
    assert b"import" not in response.content


def test_a_thumbnail_is_a_small_picture_of_the_image(client: TestClient, small_template: World) -> None:
    first, again = (client.get("thumbnails/3.jpg") for _ in range(2))
    assert first.content == again.content
    with (
        Image.open(io.BytesIO(first.content)) as seen,
        Image.open(small_template.file.parent / "pictures" / "00003.png") as truth,
    ):
        assert seen.size == (192, 192)
        wanted = np.asarray(truth.resize(seen.size, Image.Resampling.BILINEAR), dtype=float)
        assert np.abs(np.asarray(seen, dtype=float) - wanted).mean() < 5


def test_a_heatmap_needs_both_answers_and_shows_an_image(client: TestClient) -> None:
    assert client.get("heatmaps/0.jpg").status_code == 400
    send_marks(client, [0, 1, 2], True)
    send_marks(client, [3, 4, 5], False)
    response = client.get("heatmaps/0.jpg")
    assert response.status_code == 200
    with Image.open(io.BytesIO(response.content)) as seen:
        pixels = np.asarray(seen, dtype=float)
    assert (pixels[..., 0] - pixels[..., 2]).max() > 100  # it glows somewhere,
    assert np.median(np.ptp(pixels, axis=-1)) < 60  # and is grey elsewhere


def test_five_marks_rank_all_images(client: TestClient) -> None:
    assert client.get("api/ranking").json()["scores"] is None
    assert "Label 5 more" in client.get("api/state").json()["advice"]
    send_marks(client, [0, 1], True)
    state = send_marks(client, [2, 3], False)
    assert "Label 1 more" in state["advice"]
    assert client.get("api/ranking").json()["scores"] is None
    send_marks(client, [4], False)
    ranking = client.get("api/ranking").json()
    scores = np.array(ranking["scores"])
    assert sorted(ranking["order"]) == list(range(40))
    assert (np.diff(scores[ranking["order"]]) <= 0).all()
    assert scores[[0, 1]].min() > 0 > scores[[2, 3, 4]].max()
    assert ranking["labels"] == [1, 1, 0, 0, 0, *[-1] * 35]
    unlabelled = [image for image in range(5, 40) if scores[image] > 0]
    assert ranking["proposed"] == [0, 1, *unlabelled]


def test_the_table_holds_every_mark_before_the_answer_comes(small: World, client: TestClient) -> None:
    send_marks(client, [7], True)
    rows = table_of(small)
    assert list(rows[0]) == ["image", "label", "site", "group", "artifact", "artifact_annotated"]
    assert [row["site"] for row in rows[:3]] == ["site 0", "site 1", "site 2"]
    assert [(row["artifact"], row["artifact_annotated"]) for row in rows] == [
        ("1", "1") if image == 7 else ("", "0") for image in range(40)
    ]
    send_marks(client, [1, 2, 3, 4], False)
    rows = table_of(small)
    assert {row["artifact"] for row in rows} <= {"0", "1"}
    assert [image for image, row in enumerate(rows) if row["artifact"] == "1"] == client.get("api/ranking").json()[
        "proposed"
    ]
    assert [image for image, row in enumerate(rows) if row["artifact_annotated"] == "1"] == [1, 2, 3, 4, 7]
    assert not list(small.table.parent.glob("*.part*"))


def test_undo_takes_back_step_by_step_on_disk_too(small: World, client: TestClient) -> None:
    send_marks(client, [1], True)
    send_marks(client, [1, 2], False)
    undone = client.post("api/undo").json()
    assert undone["images"] == [1, 2]
    assert (undone["state"]["yes"], undone["state"]["no"]) == (1, 0)
    assert [row["artifact"] for row in table_of(small)[:3]] == ["", "1", ""]
    assert client.post("api/undo").json()["images"] == [1]
    last = client.post("api/undo").json()
    assert last["images"] == []
    assert not last["state"]["can_undo"]
    assert {row["artifact"] for row in table_of(small)} == {""}


def test_a_screen_stays_until_the_next_is_asked_for_and_shows_nothing_twice(client: TestClient) -> None:
    first = client.get("api/screen").json()
    assert len(first) == SCREEN
    assert {choice["why"] for choice in first} == {"spread"}
    send_marks(client, [first[0]["image"]], True)
    send_marks(client, [choice["image"] for choice in first[1:]], False)
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


def test_marks_are_there_again_after_a_restart(small: World) -> None:
    with opened(small) as session, page(session) as client:
        label_all(client, small.has_artifact, marks=15)
        before, state = client.get("api/ranking").json(), client.get("api/state").json()
    with opened(small) as session, page(session) as client:
        assert client.get("api/ranking").json() == before
        again = client.get("api/state").json()
    assert (again["yes"], again["no"], again["can_undo"]) == (state["yes"], state["no"], False)


def test_a_judgement_follows_the_marks(client: TestClient, session: Session) -> None:
    assert client.get("api/state").json()["diagnostics"] is None
    labels = np.array(client.get("api/catalogue").json()["labels"])
    own = np.flatnonzero(labels == 0)
    send_marks(client, own[:5].tolist(), True)
    send_marks(client, own[5:].tolist(), False)
    assert session.wait()
    state = client.get("api/state").json()
    assert not state["is_diagnosing"]
    assert state["diagnostics"]["n_labels"] == len(own)
    assert 0 <= state["diagnostics"]["auc"] <= 1
    assert state["diagnostics"]["level"] in ("good", "fair", "poor")
    assert "direction" in state["diagnostics"]["verdict"]
    while client.post("api/undo").json()["images"]:
        pass
    assert client.get("api/state").json()["diagnostics"] is None  # nothing is said of marks that are gone


def test_a_table_that_cannot_be_written_is_told(small: World, client: TestClient) -> None:
    small.table.mkdir()  # whatever the reason: a full disk cannot be had here
    response = client.post("api/labels", json={"images": [0], "has_artifact": True})
    assert response.status_code == 400
    assert "not saved" in response.json()["detail"]
