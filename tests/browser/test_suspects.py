"""From suspects to marks in a real browser: a cluster is seen, then taken by one click, and one undo gives it back."""

from __future__ import annotations

import pytest

from hansfree._internal.files import write_json
from tests.browser.driving import Browser, opened_page, wait_until_saved
from tests.browser.test_marking import marks_on_disk, marks_seen, seen
from tests.discovery.label.worlds import World, opened

LISTS = {"suspect-1": [4, 2, 8], "suspect-2": [11, 12], "suspect-10": [30]}


@pytest.fixture
def suspected(small: World) -> World:
    """The small world after `hansfree suspects`, which leaves a list of images for each odd cluster."""
    small.table.parent.mkdir(parents=True)
    for name, rows in LISTS.items():
        write_json(small.table.parent / f"{name}.json", [f"{row:05}.png" for row in rows])
    return small


def test_a_cluster_is_seen_and_then_taken_as_marks(browser: Browser, suspected: World) -> None:
    with opened(suspected) as session, opened_page(browser, session):
        offered = [button.text for button in browser.all("#suspects button")]
        names = [session.data.opened.images.class_names[session.data.opened.images.labels[min(rows)]] for rows in LISTS.values()]
        assert offered == [f"1: {names[0]} (3)", f"2: {names[1]} (2)", f"10: {names[2]} (1)"]
        browser.hover("[data-suspect=suspect-1]")
        browser.wait(lambda: len(browser.all("#suggestion-pictures img")) == 3, "the preview")
        assert browser.one("#suggestion").is_displayed()
        assert marks_seen(browser) == {}  # looking marks nothing
        browser.click("[data-suspect=suspect-1]")
        assert not browser.one("#suggestion").is_displayed()
        browser.wait(lambda: marks_seen(browser) == {2: "1", 4: "1", 8: "1"}, "the marks")
        wait_until_saved(browser)
        assert sorted(seen(browser)) == [2, 4, 8]
        assert browser.text("#count-yes") == "3"
        assert marks_on_disk(suspected) == {2: "1", 4: "1", 8: "1"}
        browser.press("n")  # one of them is not: the focus is on the first
        browser.wait(lambda: browser.text("#count-no") == "1", "the correction")
        browser.press("u", "u")
        browser.wait(lambda: browser.text("#count-yes") == "0", "the undoing of the whole cluster")
        wait_until_saved(browser)
        assert marks_on_disk(suspected) == {}
        browser.press("2")
        browser.wait(lambda: len(seen(browser)) > 3, "all images, not only those of the cluster")
        assert browser.one("#filter").get_attribute("value") == "all"


@pytest.mark.usefixtures("address")
def test_without_suspects_nothing_is_offered(browser: Browser) -> None:
    assert not browser.one("#suspects").is_displayed()
