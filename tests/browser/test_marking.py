"""Marking in a real browser: by keys and by mouse, with undo, and on disk after every mark."""

from __future__ import annotations

import csv
import threading

import pytest
from selenium.webdriver.common.keys import Keys

from hansfree.discovery.label.session import Session
from tests.browser.driving import PATIENCE, Browser, wait_until_ready, wait_until_saved
from tests.discovery.label.worlds import World


def here(browser: Browser) -> int:
    """Return the image that has the focus."""
    return int(browser.script("return document.activeElement.dataset.image"))


def seen(browser: Browser) -> list[int]:
    """Return the images that are drawn, in the page's order."""
    tiles = browser.script(
        "return [...document.querySelectorAll('.tile')].map((t) => [t.dataset.place, t.dataset.image])"
    )
    return [int(image) for _, image in sorted(tiles, key=lambda tile: int(tile[0]))]


def marks_seen(browser: Browser) -> dict[int, str]:
    """Return the marks that the page shows, by image."""
    found = "[...document.querySelectorAll('.tile')].map((t) => [t.dataset.image, t.dataset.label])"
    return {int(image): mark for image, mark in browser.script(f"return {found}") if mark != "-1"}


def marks_on_disk(world: World) -> dict[int, str]:
    if not world.table.exists():  # before the first mark
        return {}
    with world.table.open(newline="") as file:
        return {
            row: line["artifact"] for row, line in enumerate(csv.DictReader(file)) if line["artifact_annotated"] == "1"
        }


def wait_for_marks(browser: Browser, world: World, expected: dict[int, str]) -> None:
    """Wait until page and file show these marks; which of them is first is nobody's promise."""
    browser.wait(lambda: marks_seen(browser) == expected, f"the marks {expected} on the page")
    browser.wait(lambda: marks_on_disk(world) == expected, f"the marks {expected} in the file")


def mark_five(browser: Browser) -> dict[int, str]:
    """Mark the first five images, two of them with the artifact; return the marks."""
    first = seen(browser)[:5]
    browser.press(" ", " ", "n", "n", "n")
    browser.wait(lambda: browser.text("#count-no") == "3", "the count of marks")
    wait_until_saved(browser)
    return dict(zip(first, "11000"))


@pytest.mark.usefixtures("address")
def test_arrows_move_and_space_marks_and_each_mark_is_on_disk(browser: Browser, small: World) -> None:
    images = seen(browser)
    assert here(browser) == images[0]
    browser.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert here(browser) == images[1]
    expected: dict[int, str] = {}
    for place, (key, mark) in enumerate(((" ", "1"), ("n", "0"), (" ", "1")), start=1):
        browser.press(key)
        expected[images[place]] = mark
        wait_for_marks(browser, small, expected)
        wait_until_saved(browser)
        assert here(browser) == images[place + 1]
    assert (browser.text("#count-yes"), browser.text("#count-no")) == ("2", "1")
    assert str(small.table) in browser.text("#saved")
    columns = int(browser.one("#grid").get_attribute("aria-colcount") or 0)
    browser.press(Keys.HOME, Keys.ARROW_DOWN)
    assert here(browser) == images[columns]
    browser.press(Keys.END)
    assert here(browser) == images[-1]


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("key", [" ", "n"])
def test_an_image_that_was_scrolled_away_is_not_marked_unseen(browser: Browser, small: World, key: str) -> None:
    browser.resize(500, 500)
    browser.press("2")
    browser.wait(lambda: browser.all("#tab-all[aria-selected=true]"), "all images")
    browser.script("const s = document.getElementById('scroller'); s.scrollTop = s.scrollHeight")
    browser.wait(lambda: browser.all("[data-place='39']"), "the last row")
    browser.press(key)
    top, bottom = browser.script(
        "return ['top', 'bottom'].map((e) => document.activeElement.getBoundingClientRect()[e])"
    )
    low, high = browser.script(
        "const b = document.getElementById('scroller').getBoundingClientRect(); return [b.top, b.bottom]"
    )
    assert low - 1 <= top < bottom <= high + 1 + 8  # of the padding
    assert marks_seen(browser) == {}
    image = here(browser)
    browser.press(key)
    wait_until_saved(browser)
    browser.wait(lambda: list(marks_on_disk(small)) == [image], "the mark of the second press")


@pytest.mark.usefixtures("address")
def test_a_click_marks_and_changes_its_mind(browser: Browser, small: World) -> None:
    image = seen(browser)[3]
    for answer, expected in (("yes", {image: "1"}), ("no", {image: "0"})):
        browser.click(f".tile[data-image='{image}'] [data-answer={answer}]")
        wait_for_marks(browser, small, expected)
    assert here(browser) == image


@pytest.mark.usefixtures("address")
def test_undo_takes_back_the_last_mark_by_key_and_by_button(browser: Browser, small: World) -> None:
    first, second = seen(browser)[:2]
    assert not browser.one("#undo").is_enabled()
    browser.press(" ", "n")
    browser.wait(lambda: browser.text("#count-no") == "1", "the second mark")
    browser.press("u")
    browser.wait(lambda: browser.text("#count-no") == "0", "the undoing")
    browser.wait(lambda: here(browser) == second, "the focus on what was undone")
    wait_for_marks(browser, small, {first: "1"})
    browser.click("#undo")
    wait_for_marks(browser, small, {})
    assert not browser.one("#undo").is_enabled()


@pytest.mark.usefixtures("address")
def test_five_marks_rank_the_images(browser: Browser, session: Session) -> None:
    assert "Label 5 more" in browser.text("#advice")
    marked = mark_five(browser)
    browser.press(Keys.ENTER)
    browser.wait(lambda: {"likely", "uncertain"} == {t.text for t in browser.all(".badge")}, "the next screen")
    assert not set(seen(browser)) & set(marked)
    assert seen(browser) == [choice.image for choice in session.screen()]
    browser.press("2")
    browser.wait(lambda: browser.all("#tab-all[aria-selected=true]"), "all images")
    order = session.ordered().order
    assert seen(browser) == order[: len(seen(browser))]
    assert marks_seen(browser).items() <= marked.items()
    browser.one("#filter").send_keys("proposed")
    browser.wait(lambda: sorted(seen(browser)) == session.ordered().proposed, "the proposed images")
    assert browser.text("#count-proposed") == str(len(session.ordered().proposed))


@pytest.mark.usefixtures("address")
def test_a_quick_answer_on_the_next_screen_is_for_its_first_image(
    browser: Browser, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key is pressed while the page still waits for the ranking."""
    marked = mark_five(browser)
    session.wait()
    go_on, ordered = threading.Event(), session.ordered
    monkeypatch.setattr(session, "ordered", lambda: go_on.wait(PATIENCE) and ordered())
    try:
        browser.press(Keys.ENTER)
        browser.wait(lambda: not set(seen(browser)) & set(marked), "the next screen")
        first, *others = seen(browser)
        browser.press(" ")
        browser.wait(lambda: browser.text("#count-yes") == "3", "the mark")
    finally:
        go_on.set()
    wait_until_saved(browser)
    assert session.ordered().labels[first] == 1
    assert not {session.ordered().labels[image] for image in others} - {-1}


@pytest.mark.usefixtures("address")
def test_the_rest_of_a_screen_is_marked_with_one_key(browser: Browser, small: World) -> None:
    images = seen(browser)
    browser.press(" ", "r")
    browser.wait(lambda: browser.text("#count-no") == str(len(images) - 1), "the rest's marks")
    browser.wait(lambda: not set(seen(browser)) & set(images), "the next screen")
    assert marks_on_disk(small) == {images[0]: "1", **dict.fromkeys(images[1:], "0")}


@pytest.mark.usefixtures("address")
def test_a_reload_keeps_marks_and_screen(browser: Browser) -> None:
    marked, images = mark_five(browser), seen(browser)
    browser.driver.refresh()
    wait_until_ready(browser)
    assert seen(browser) == images
    assert marks_seen(browser) == marked
    assert (browser.text("#count-yes"), browser.text("#count-no")) == ("2", "3")
    browser.press("u")
    browser.wait(lambda: browser.text("#count-no") == "2", "an undoing after the reload")


@pytest.mark.usefixtures("address")
def test_a_mark_that_could_not_be_saved_is_told_and_saved_with_the_next(browser: Browser, small: World) -> None:
    first, second = seen(browser)[:2]
    small.table.mkdir()  # whatever the reason: a full disk cannot be had here
    browser.press(" ")
    browser.wait(lambda: browser.all("#saved[data-state=failed]"), "the word that it is not saved")
    assert "cannot be written" in browser.text("#error")
    (told,) = browser.errors()  # the browser's own line about the answer
    assert "400 (Bad Request)" in told
    small.table.rmdir()
    browser.press("n")
    wait_until_saved(browser)
    assert not browser.one("#error").is_displayed()
    assert marks_on_disk(small) == {first: "1", second: "0"}
