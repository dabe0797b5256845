"""The labelling page in a real browser, end to end: keys, mouse, undo, ranking, heatmaps, diagnostics, suggestions."""

from __future__ import annotations

import csv
import re
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from hansfree._internal.files import write_json
from hansfree.discovery.label.server import write_redirect
from hansfree.discovery.label.session import Session, open_labelling
from hansfree.pipeline.config import read_run_file
from tests.browser.driving import Browser, images_shown, opened_page, wait_until_ready, wait_until_saved
from tests.discovery.label.worlds import TOKEN, World, opened

ALL_IMAGES = "#tab-all[aria-selected=true]"


def focused(browser: Browser) -> int:
    return int(browser.script("return document.activeElement.dataset.image"))


def labels_shown(browser: Browser) -> dict[int, str]:
    found = "[...document.querySelectorAll('.tile')].map((t) => [t.dataset.image, t.dataset.label])"
    return {int(image): label for image, label in browser.script(f"return {found}") if label != "-1"}


def labels_on_disk(world: World) -> dict[int, str]:
    if not world.table.exists():  # before the first label
        return {}
    with world.table.open(newline="") as file:
        rows = enumerate(csv.DictReader(file))
        return {row: line["artifact"] for row, line in rows if line["artifact_annotated"] == "1"}


def wait_for_labels(browser: Browser, world: World, expected: dict[int, str]) -> None:
    browser.wait(lambda: labels_shown(browser) == expected, f"the labels {expected} on the page")
    browser.wait(lambda: labels_on_disk(world) == expected, f"the labels {expected} in the file")


def picture(browser: Browser, place: int, kind: str) -> str:
    """Wait for a loaded picture of a kind at a place; return its address."""
    script = "const i = document.querySelector(arguments[0]); return i.complete && i.naturalWidth > 0 ? i.src : ''"

    def address() -> str:
        found = str(browser.script(script, f"[data-place='{place}'] img"))
        return found if f"/{kind}/" in found else ""

    return browser.wait(address, kind)


@pytest.mark.usefixtures("address")
def test_keys_and_clicks_label_and_undo_and_every_label_is_on_disk(browser: Browser, small: World) -> None:
    images = images_shown(browser)
    assert focused(browser) == images[0]
    assert not browser.one("#undo").is_enabled()
    for key, place in ((Keys.ARROW_RIGHT, 1), (Keys.ARROW_RIGHT, 2), (Keys.ARROW_LEFT, 1)):
        browser.press(key)
        browser.wait(lambda place=place: focused(browser) == images[place], "the focus")  # type: ignore[misc]
    expected: dict[int, str] = {}
    for place, (key, label) in enumerate(((" ", "1"), ("n", "0")), start=1):
        browser.press(key)
        expected[images[place]] = label
        wait_for_labels(browser, small, expected)
        assert focused(browser) == images[place + 1]
    for answer, label in (("yes", "1"), ("no", "0")):
        browser.click(f".tile[data-image='{images[3]}'] [data-answer={answer}]")
        expected[images[3]] = label
        wait_for_labels(browser, small, expected)
    wait_until_saved(browser)
    assert (browser.text("#count-yes"), browser.text("#count-no")) == ("1", "2")
    assert str(small.table) in browser.text("#saved")
    browser.press("u", "u")
    browser.wait(lambda: browser.text("#count-no") == "1", "undo by key")
    browser.click("#undo")
    wait_for_labels(browser, small, {images[1]: "1"})
    columns = int(browser.one("#grid").get_attribute("aria-colcount") or 0)
    browser.press(Keys.HOME, Keys.ARROW_DOWN)
    browser.wait(lambda: focused(browser) == images[columns], "the focus in the next row")


@pytest.mark.usefixtures("address")
def test_five_labels_rank_the_images_and_a_reload_shows_the_same(browser: Browser, session: Session) -> None:
    assert "Label 5 more" in browser.text("#advice")
    first = images_shown(browser)[:5]
    browser.press(" ", " ", "n", "n", "n")
    browser.wait(lambda: browser.text("#count-no") == "3", "the labels")
    wait_until_saved(browser)
    browser.press(Keys.ENTER)
    browser.wait(lambda: {"likely", "uncertain"} == {t.text for t in browser.all(".badge")}, "the next screen")
    images = images_shown(browser)
    assert images == [choice.image for choice in session.screen()]
    assert not set(images) & set(first)
    browser.driver.refresh()
    wait_until_ready(browser)
    assert images_shown(browser) == images
    browser.press("2")
    browser.wait(lambda: browser.all(ALL_IMAGES), "all images")
    order = session.ordered().order
    assert images_shown(browser) == order[: len(images_shown(browser))]
    assert labels_shown(browser).items() <= dict(zip(first, "11000")).items()
    browser.one("#filter").send_keys("proposed")
    browser.wait(lambda: sorted(images_shown(browser)) == session.ordered().proposed, "the proposed images")
    assert browser.text("#count-proposed") == str(len(session.ordered().proposed))
    browser.click("#tab-screen")  # the focus was in the filter, which takes keys
    browser.press("r")
    browser.wait(lambda: browser.text("#count-no") == str(3 + len(images)), "the labels of the rest")
    browser.wait(lambda: not set(images_shown(browser)) & set(images), "the next screen")
    wait_until_saved(browser)


@pytest.mark.usefixtures("address")
def test_heatmaps_by_pointer_and_key_follow_the_labels(browser: Browser, session: Session) -> None:
    assert not re.search(r"\d", browser.text("#auc"))
    browser.press(*" " * 6, *"n" * 6)
    browser.wait(lambda: browser.text("#count-no") == "6", "the last label")
    wait_until_saved(browser)
    plain = picture(browser, 0, "thumbnails")
    browser.press(Keys.HOME)
    browser.hover("[data-place='0'] img")
    before = picture(browser, 0, "heatmaps")
    browser.hover("h1")
    assert picture(browser, 0, "thumbnails") == plain
    browser.press("n", Keys.HOME, " ", Keys.HOME)  # as many labels as before
    wait_until_saved(browser)
    browser.press("h")
    assert picture(browser, 0, "heatmaps") != before
    browser.press("h")
    picture(browser, 0, "thumbnails")
    browser.wait(lambda: re.fullmatch(r"[01]\.\d\d", browser.text("#auc")), "an AUC")
    found = session.state().diagnostics
    assert found is not None
    browser.wait(lambda: browser.text("#diagnostics") == found.verdict, "the verdict")
    assert browser.one("#diagnostics").get_attribute("data-level") == found.level


@pytest.mark.usefixtures("address")
def test_help_finish_and_tabs_work_by_keys(browser: Browser, small: World) -> None:
    browser.press("?")
    assert browser.one("#keys").is_displayed()
    browser.press(" ", Keys.ESCAPE)  # inside of the help a key is no label
    browser.wait(lambda: not browser.one("#keys").is_displayed(), "the end of the help")
    assert browser.text("#count-yes") == "0"
    browser.press(" ", "n", "n", "n", "n")
    browser.wait(lambda: browser.text("#count-no") == "4", "the labels")
    browser.click("#finish")
    browser.wait(lambda: browser.one("#finished").is_displayed(), "the dialog")
    assert browser.text("#finished-missing") == browser.text("#diagnostics") != ""
    assert f"hansfree run {small.file}" in browser.text("#finished-sentence")
    browser.press(Keys.ESCAPE)
    browser.script("document.getElementById('tab-screen').focus()")
    browser.press(Keys.ARROW_RIGHT)
    browser.wait(lambda: browser.all(ALL_IMAGES), "the other tab")
    assert browser.script("return document.activeElement.id") == "tab-all"


@pytest.mark.usefixtures("address")
def test_a_label_that_could_not_be_saved_is_reported_and_saved_with_the_next(browser: Browser, small: World) -> None:
    first, second = images_shown(browser)[:2]
    small.table.mkdir()  # stands for a full disk
    browser.press(" ")
    browser.wait(lambda: browser.all("#saved[data-state=failed]"), "the message that it is not saved")
    assert "cannot be written" in browser.text("#error")
    (message,) = browser.errors()  # the browser's own line about the response
    assert "400 (Bad Request)" in message
    small.table.rmdir()
    browser.press("n")
    wait_until_saved(browser)
    assert not browser.one("#error").is_displayed()
    assert labels_on_disk(small) == {first: "1", second: "0"}


def test_only_the_page_with_its_token_is_opened(browser: Browser, address: str, tmp_path: Path) -> None:
    browser.open(write_redirect(tmp_path, address).as_uri())
    browser.wait(lambda: browser.driver.current_url == address, "the page's address")
    wait_until_ready(browser)
    browser.resize(390, 800)
    browser.wait(lambda: browser.script("return innerWidth") == 390, "the width")
    wide = "return Math.max(document.documentElement.scrollWidth, document.getElementById('scroller').scrollWidth)"
    assert browser.script(wide) <= 390
    browser.open(address.replace(TOKEN, "a-wrong-token"))
    assert "Refused" in browser.text("body")
    (message,) = browser.errors()  # the browser's own line about the page
    assert "403 (Forbidden)" in message


def test_a_suggested_cluster_is_previewed_accepted_and_undone(browser: Browser, small: World) -> None:
    lists = {"suspect-1": [4, 2, 8], "suspect-2": [11, 12], "suspect-10": [30]}
    small.table.parent.mkdir(parents=True)
    for name, rows in lists.items():
        write_json(small.table.parent / f"{name}.json", [f"{row:05}.png" for row in rows])
    with opened(small) as session, opened_page(browser, session):
        images = session.data.opened.images
        names = [images.class_names[images.labels[min(rows)]] for rows in lists.values()]
        texts = [f"1: {names[0]} (3)", f"2: {names[1]} (2)", f"10: {names[2]} (1)"]
        assert [button.text for button in browser.all("#suspects button")] == texts
        browser.hover("[data-suspect=suspect-1]")
        browser.wait(lambda: len(browser.all("#suggestion-pictures img")) == 3, "the preview")
        assert labels_shown(browser) == {}
        browser.click("[data-suspect=suspect-1]")
        wait_for_labels(browser, small, {2: "1", 4: "1", 8: "1"})
        wait_until_saved(browser)
        assert sorted(images_shown(browser)) == [2, 4, 8]
        browser.press("n")  # one of them is not: the focus is on the first
        browser.wait(lambda: browser.text("#count-no") == "1", "the correction")
        browser.press("u", "u")
        browser.wait(lambda: browser.text("#count-yes") == "0", "undo of the whole cluster")
        wait_until_saved(browser)
        assert labels_on_disk(small) == {}


def test_ten_thousand_images_are_scrolled_with_few_elements(browser: Browser, small: World) -> None:
    run, times = read_run_file(small.file), 250
    with open_labelling(run, file=small.file) as data:
        images = data.opened.images
        noise = np.random.default_rng(0).normal(scale=0.01, size=(40 * times, data.pooled.shape[1]))
        labels = np.tile(images.labels, times)
        shown: Any = SimpleNamespace(labels=labels, class_names=images.class_names, source=images.source)
        parts = {name: list(getattr(data.opened, name)) * times for name in ("paths", "names", "rows")}
        repeated = replace(data.opened, images=shown, **parts)
        many = replace(
            data,
            opened=repeated,
            pooled=(np.tile(data.pooled, (times, 1)) + noise).astype(np.float32),
            artifact_labels=np.tile(data.artifact_labels, times),
        )
        with closing(Session(many)) as session, opened_page(browser, session):
            browser.press("2")
            browser.wait(lambda: browser.all(ALL_IMAGES), "all images")
            browser.script("const s = document.getElementById('scroller'); s.scrollTop = s.scrollHeight / 2")
            browser.wait(lambda: not browser.all(".tile[data-place='40']"), "the rows of the middle")
            browser.press(Keys.END)
            browser.wait(lambda: browser.all(".tile[data-place='9999']:focus"), "the last image")
            picture(browser, 9999, "thumbnails")
            assert len(browser.all(".tile")) < 200
            browser.press(" ")
            wait_until_saved(browser)
            assert session.ordered().labels[-1] == 1
