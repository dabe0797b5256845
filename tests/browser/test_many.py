"""Ten thousand images on the labelling page: only those that are seen exist in the browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from hansfree.discovery.label.images import Thumbnails
from hansfree.discovery.label.session import Session, open_labelling
from hansfree.pipeline.config import read_run_file
from tests.browser.driving import Browser, opened_page, wait_until_saved
from tests.discovery.label.worlds import World

TIMES = 250
DRAWN = "return document.querySelectorAll('.tile').length"


@pytest.fixture
def many(small: World) -> Iterator[Session]:
    """The same forty images again and again: for the browser each is one of its own."""
    run = read_run_file(small.file)
    with open_labelling(run, file=small.file) as data:
        paths = [str(run.data.root / name) for name in data.names] * TIMES
        kept = small.table.parent / "thumbnails"
        noise = np.random.default_rng(0).normal(scale=0.01, size=(len(paths), data.pooled.shape[1]))
        long = replace(
            data,
            rows=list(data.rows) * TIMES,
            names=list(data.names) * TIMES,
            labels=np.tile(data.labels, TIMES),
            pooled=(np.tile(data.pooled, (TIMES, 1)) + noise).astype(np.float32),
            artifact_labels=np.tile(data.artifact_labels, TIMES),
            thumbnails=Thumbnails(paths, root=run.data.root, folder=kept, resize="squash", channels=3),
        )
        with closing(Session(long)) as session:
            yield session


def test_ten_thousand_images_are_scrolled_to_the_end_with_few_elements(browser: Browser, many: Session) -> None:
    with opened_page(browser, many):
        browser.press("2")
        browser.wait(lambda: browser.all("#tab-all[aria-selected=true]"), "all images")
        browser.script("const s = document.getElementById('scroller'); s.scrollTop = s.scrollHeight / 2")
        browser.wait(lambda: not browser.all(".tile[data-place='40']"), "the rows of the middle")
        assert browser.script(DRAWN) < 200
        browser.press(Keys.END)
        browser.wait(lambda: browser.all(".tile[data-place='9999']:focus"), "the last image")
        assert browser.script(DRAWN) < 200
        browser.wait(
            lambda: browser.script("return document.querySelector('[data-place=\"9999\"] img').naturalWidth") > 0,
            "the last picture",
        )
        assert browser.script("return document.querySelectorAll('*').length") < 1500
        browser.press(" ")
        wait_until_saved(browser)
        browser.wait(lambda: browser.text("#count-yes") == "1", "the mark")
        assert many.ordered().labels[-1] == 1
