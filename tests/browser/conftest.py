"""One Chromium for all tests; after each, its console holds no error, and no other computer was contacted."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from hansfree.discovery.label.session import Session
from tests.browser.driving import Browser, find_browser, opened_page, started
from tests.discovery.label.conftest import session, small, small_template
from tests.report.conftest import make_run

__all__ = ["make_run", "session", "small", "small_template"]  # the worlds of the pages

_SKIPPED = pytest.StashKey[bool]()
_MISSING = "no Chromium with its driver was found (apt-get install chromium chromium-driver)"


@pytest.fixture(scope="session")
def driven(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Browser]:
    if find_browser() is None:
        if os.environ.get("HANSFREE_BROWSER") == "required":
            pytest.fail(f"HANSFREE_BROWSER=required, but {_MISSING}.", pytrace=False)
        request.config.stash[_SKIPPED] = True
        pytest.skip(_MISSING)
    with started(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture
def browser(driven: Browser) -> Iterator[Browser]:
    driven.open("about:blank")
    driven.resize(1200, 900)
    driven.errors(), driven.foreign_requests()  # of an earlier test that failed
    yield driven
    assert driven.errors() == []
    assert driven.foreign_requests() == []


@pytest.fixture
def address(browser: Browser, session: Session) -> Iterator[str]:
    """The labelling page of forty images, open in the browser."""
    with opened_page(browser, session) as address:
        yield address


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say in one line that the tests in a browser did not run: the list of skips is easily overlooked."""
    if config.stash.get(_SKIPPED, False):
        terminalreporter.write_line(f"The tests in a browser were skipped: {_MISSING}.", yellow=True)
