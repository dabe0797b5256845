"""What the labelling page tells about the marks in a real browser, and whom it lets in."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from selenium.webdriver import ActionChains
from selenium.webdriver.common.keys import Keys

from hansfree.discovery.label.ranking import UNKNOWN, LabelDiagnostics
from hansfree.discovery.label.server import write_redirect
from hansfree.discovery.label.session import Session
from tests.browser.driving import PATIENCE, Browser, wait_until_ready, wait_until_saved
from tests.discovery.label.worlds import TOKEN, World

PICTURE = "const i = document.querySelector(arguments[0]); return i.complete && i.naturalWidth > 0 ? i.src : ''"


def mark_all(browser: Browser) -> None:
    """Mark a screen, half with the artifact: enough for an AUC and for the doctor."""
    browser.press(*" " * 6, *"n" * 6)
    browser.wait(lambda: browser.text("#count-no") == "6", "the last mark")
    wait_until_saved(browser)


@pytest.mark.usefixtures("address")
def test_the_pointer_over_an_image_shows_where_the_cav_looks(browser: Browser) -> None:
    mark_all(browser)
    tile = "[data-place='2']"
    plain = browser.wait(lambda: browser.script(PICTURE, f"{tile} img"), "the picture")
    assert "/thumbnails/" in plain
    browser.hover(f"{tile} img")
    browser.wait(lambda: "/heatmaps/" in browser.script(PICTURE, f"{tile} img"), "the heatmap")
    assert browser.one(tile).get_attribute("data-heatmap") == "shown"
    ActionChains(browser.driver).move_to_element(browser.one("h1")).perform()
    browser.wait(lambda: browser.script(PICTURE, f"{tile} img") == plain, "the picture as it was")


@pytest.mark.usefixtures("address")
def test_a_heatmap_follows_an_answer_that_is_changed(browser: Browser) -> None:
    mark_all(browser)
    shown = []
    for answer in ("n", " "):  # the same number of marks
        browser.press(Keys.HOME, answer)
        wait_until_saved(browser)
        browser.press(Keys.HOME, "h")
        browser.wait(lambda: "/heatmaps/" in browser.script(PICTURE, "[data-place='0'] img"), "the heatmap")
        shown.append(browser.script(PICTURE, "[data-place='0'] img"))
        browser.press("h")
    assert shown[0] != shown[1]


def test_a_file_leads_the_browser_to_the_page(browser: Browser, address: str, tmp_path: Path) -> None:
    browser.open(write_redirect(tmp_path, address).as_uri())
    browser.wait(lambda: browser.driver.current_url == address, "the page's address")
    wait_until_ready(browser)


@pytest.mark.usefixtures("address")
def test_a_key_shows_and_hides_the_heatmap(browser: Browser) -> None:
    mark_all(browser)
    browser.press(Keys.HOME, "h")
    browser.wait(lambda: "/heatmaps/" in browser.script(PICTURE, "[data-place='0'] img"), "the heatmap")
    browser.press("h")
    browser.wait(lambda: "/thumbnails/" in browser.script(PICTURE, "[data-place='0'] img"), "the picture as it was")


@pytest.mark.usefixtures("address")
def test_the_key_keeps_the_heatmap_that_the_pointer_shows(browser: Browser) -> None:
    mark_all(browser)
    tile = "[data-place='0']"
    browser.press(Keys.HOME)
    browser.hover(f"{tile} img")
    browser.press("h")
    browser.wait(lambda: "/heatmaps/" in browser.script(PICTURE, f"{tile} img"), "the heatmap")
    browser.hover("h1")
    assert browser.one(tile).get_attribute("data-heatmap") == "shown"
    browser.press("h")
    browser.wait(lambda: "/thumbnails/" in browser.script(PICTURE, f"{tile} img"), "the picture as it was")


@pytest.mark.usefixtures("address")
def test_auc_and_the_doctors_verdict_follow_the_marks(browser: Browser, session: Session) -> None:
    assert not re.search(r"\d", browser.text("#auc"))
    mark_all(browser)
    browser.wait(lambda: re.fullmatch(r"[01]\.\d\d", browser.text("#auc")), "an AUC")
    found = session.state().diagnostics
    assert found is not None
    browser.wait(lambda: browser.text("#diagnostics") == found.verdict, "the doctor's verdict")
    assert browser.one("#diagnostics").get_attribute("data-level") == found.level


@pytest.mark.usefixtures("address")
def test_a_verdict_on_older_marks_says_that_it_is_old(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def judge(*given: Any, **_: Any) -> LabelDiagnostics:
        count = int((given[3] != UNKNOWN).sum())
        if count == 2:
            go_on.wait(PATIENCE)
        return LabelDiagnostics(count, 0.5, "fair", f"{count} marked")

    monkeypatch.setattr("hansfree.discovery.label.session.diagnose_labels", judge)
    browser.press(" ")
    browser.wait(lambda: browser.text("#diagnostics") == "1 marked", "a verdict")
    try:
        browser.press("n")
        assert browser.text("#diagnostics") == "Updating … Before: 1 marked"
        wait_until_saved(browser)
        assert browser.text("#diagnostics") == "Updating … Before: 1 marked"
        assert browser.one("#diagnostics").get_attribute("data-level") == "pending"
        assert browser.text("#auc") == "…"
    finally:
        go_on.set()
    browser.wait(lambda: browser.text("#diagnostics") == "2 marked", "the new verdict")
    assert browser.text("#auc") == "0.50"


def test_a_wrong_token_is_refused(browser: Browser, address: str) -> None:
    browser.open(address.replace(TOKEN, "a-wrong-token"))
    assert "Refused" in browser.text("body")
    assert not browser.all("img, script")
    (told,) = browser.errors()  # the browser's own line on the page; it asks for nothing else
    assert "403 (Forbidden)" in told


@pytest.mark.usefixtures("address")
def test_finish_says_how_to_go_on_and_help_closes_with_a_key(browser: Browser, small: World) -> None:
    browser.press("?")
    assert browser.one("#keys").is_displayed()
    assert "Home" in browser.text("#keys")
    assert "End" in browser.text("#keys")
    browser.press(" ", Keys.ESCAPE)  # a key inside of the help is no mark
    browser.wait(lambda: not browser.one("#keys").is_displayed(), "the end of the help")
    assert browser.text("#count-yes") == "0"
    mark_all(browser)
    browser.click("#finish")
    browser.wait(lambda: browser.one("#finished").is_displayed(), "the last sentence")
    assert f"hansfree run {small.file}" in browser.text("#finished-sentence")
    assert "28 of the 40 images" in browser.text("#finished-proposed")


@pytest.mark.usefixtures("address")
def test_finish_is_not_ready_beside_a_doctor_who_is_not_content(browser: Browser) -> None:
    browser.press(" ", "n", "n", "n", "n")
    browser.wait(lambda: browser.text("#count-no") == "4", "the marks")
    browser.click("#finish")
    browser.wait(lambda: browser.one("#finished").is_displayed(), "the last word")
    assert browser.text("#finished-title") == "Saved, but not ready for a run"
    needs = "Diagnostics need 3 more with the artifact."
    assert browser.text("#finished-missing") == needs
    assert browser.text("#diagnostics") == needs


@pytest.mark.usefixtures("address")
def test_tabs_are_reached_and_changed_by_keys(browser: Browser) -> None:
    browser.script("document.getElementById('tab-screen').focus()")
    browser.press(Keys.ARROW_RIGHT)
    browser.wait(lambda: browser.all("#tab-all[aria-selected=true]"), "the other tab")
    browser.wait(lambda: browser.script("return document.activeElement.id") == "tab-all", "the focus on the tab")


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("width", [390, 768])
def test_a_narrow_window_needs_no_sideways_scrolling(browser: Browser, width: int) -> None:
    browser.resize(width, 800)
    browser.wait(lambda: browser.script("return innerWidth") == width, "the width")
    wide = "return Math.max(document.documentElement.scrollWidth, document.getElementById('scroller').scrollWidth)"
    assert browser.script(wide) <= width
