"""How the browser comes to the page: by a file for this user only, and over a link whose token is right."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from hansfree.cli import app
from hansfree.discovery.label.server import serve, write_redirect
from hansfree.discovery.label.session import Session, address_file
from hansfree.errors import RunError
from tests.discovery.label.worlds import TOKEN, World, opened

LINK = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


def test_only_this_user_can_read_where_the_page_is(tmp_path: Path) -> None:
    path = write_redirect(tmp_path, "http://127.0.0.1:1234/secret/")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert 'content="0; url=http://127.0.0.1:1234/secret/"' in path.read_text()


def test_no_process_is_started_with_the_token(small: World, monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"http://127.0.0.1:1234/{TOKEN}/"
    started: list[str] = []

    def browse(given: str) -> bool:
        started.append(given)
        path = Path(given.removeprefix("file://"))
        assert address in path.read_text()
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        return True

    monkeypatch.setattr("webbrowser.open", browse)
    monkeypatch.setattr("hansfree.discovery.label.server.serve", lambda session, *, port, ready: ready(address))
    done = CliRunner().invoke(app, ["label", str(small.file)])
    assert done.exit_code == 0, done.output
    (given,) = started
    assert TOKEN not in given
    assert not Path(given.removeprefix("file://")).parent.exists(), "it is gone with the page"


def test_a_link_leads_to_the_page_and_to_nothing_else(stranger: TestClient, unlabelled: Session) -> None:
    assert stranger.get("", headers=LINK).status_code == 200
    for path in ("api/state", "thumbnails/0.jpg", "page.js"):
        assert stranger.get(path, headers=LINK).status_code == 403
    assert stranger.post("", headers=LINK).status_code == 403
    assert stranger.post("api/labels", json={"images": [0], "has_artifact": True}, headers=LINK).status_code == 403
    assert unlabelled.state().yes == 0


def test_a_second_start_tells_the_address_of_the_page(session: Session, small: World) -> None:
    kept = address_file(small.table.parent)
    with pytest.raises(RunError, match="will print the page's address in its terminal"), opened(small):
        pass
    told: list[str] = []

    def ready(address: str) -> None:
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        with pytest.raises(RunError, match=f"already open at {address}$"), opened(small):
            pass
        told.append(address)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve(session, ready=ready)
    assert told
    assert not kept.exists()


def test_the_address_of_a_killed_page_is_not_told(small: World) -> None:
    kept = address_file(small.table.parent)
    kept.parent.mkdir(parents=True)
    kept.write_text("http://127.0.0.1:1/gone/")
    with opened(small), pytest.raises(RunError, match="is in use") as refused, opened(small):
        pass
    assert "gone" not in str(refused.value)


@pytest.mark.parametrize(
    "changed",
    [{"sec-fetch-dest": "iframe"}, {"sec-fetch-mode": "no-cors"}, {"host": "example.org"}, {"origin": "null"}],
)
def test_what_is_no_plain_link_is_refused(stranger: TestClient, changed: dict[str, Any]) -> None:
    assert stranger.get("", headers={**LINK, **changed}).status_code == 403


def test_every_change_of_the_marks_has_another_version(session: Session) -> None:
    versions = [session.state().version]
    versions.append(session.label([0], has_artifact=True).version)
    versions.append(session.label([0], has_artifact=False).version)  # as many marks as before, and others
    versions.append(session.undo().state.version)
    assert versions == sorted(set(versions))
    assert session.state().version == versions[-1]
