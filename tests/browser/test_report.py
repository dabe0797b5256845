"""The report in a real browser: opened from disk, toggled, pointed at, printed, and read without its script."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from selenium.webdriver.common.keys import Keys

from hansfree.report import write_report
from tests.browser.driving import Browser
from tests.report.conftest import SELECTION, MakeRun, write_cases

METHODS = {"original", *SELECTION}
SHOWN = """return [...document.querySelectorAll("#heatmaps .cell")]
    .filter((cell) => cell.checkVisibility()).map((cell) => cell.dataset.method)"""
PLACES = "return [...document.querySelectorAll('#effect .point')].map((point) => point.getBoundingClientRect().y)"
LOADED = "return [...document.querySelectorAll('#tip img')].filter((image) => image.naturalWidth > 0).length"


@pytest.fixture
def report(browser: Browser, make_run: MakeRun) -> Iterator[Path]:
    run = make_run(heatmaps=True)
    write_cases(run / "cases.npz")
    path = write_report(run)
    browser.open(path.as_uri())
    yield path
    browser.open("about:blank")


@pytest.mark.usefixtures("report")
def test_heatmaps_are_toggled_by_mouse_and_by_keys(browser: Browser) -> None:
    names = [each.get_attribute("value") for each in browser.all("#heatmaps-toggle input")]
    assert set(names) == set(SELECTION)
    for name in ("p-clarc", "rrr"):
        browser.click(f"#heatmaps-toggle label:has([value={name}])")
        assert set(browser.script(SHOWN)) == {"input", "original", name}
    following = names[(names.index("rrr") + 1) % len(names)]
    browser.press(Keys.ARROW_RIGHT)
    assert set(browser.script(SHOWN)) == {"input", "original", following}


@pytest.mark.usefixtures("report")
def test_a_toggle_moves_the_points_and_a_point_shows_its_images(browser: Browser) -> None:
    browser.click("#effect-toggle label:has([value=original])")
    before = browser.script(PLACES)
    browser.press(Keys.ARROW_RIGHT)
    browser.wait(lambda: browser.script("return !document.getAnimations().length"), "the end of the movement")
    assert (np.abs(np.subtract(browser.script(PLACES), before)) > 1).all()
    assert not browser.one("#tip").is_displayed()
    browser.hover("#effect .point:nth-of-type(3)")
    browser.wait(lambda: browser.script(LOADED) == 2, "the image without and with the artifact")
    assert "%" in browser.text("#tip")
    browser.hover("h1")
    browser.wait(lambda: not browser.one("#tip").is_displayed(), "the end of the tip")


@pytest.mark.usefixtures("report")
@pytest.mark.parametrize("plot", ["effect", "tradeoff"])
def test_points_are_reached_by_keys(browser: Browser, plot: str) -> None:
    assert len(browser.all(f"#{plot} .point[tabindex='0']")) == 1  # one stop of the tab key
    browser.script(f"document.querySelector('#{plot} .point[tabindex=\"0\"]').focus()")
    last = f"return document.querySelector('#{plot}').lastElementChild.getAttribute('class')"
    browser.wait(lambda: browser.script(last) == "front", "the copy above the other points")
    labels = set()
    for _ in range(3):
        browser.wait(lambda: browser.one("#tip").is_displayed(), "the tip")
        labels.add(browser.script("return document.activeElement.getAttribute('aria-label')"))
        browser.press(Keys.ARROW_RIGHT)
    assert len(labels) == 3
    assert len(browser.all(".front")) == 1
    browser.press(Keys.ESCAPE)
    assert not browser.one("#tip").is_displayed()
    assert not browser.all(".front")


@pytest.mark.usefixtures("report")
def test_in_print_everything_is_shown(browser: Browser) -> None:
    rule = ".verdict .rule p"
    assert not browser.one(rule).is_displayed()
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    content = base64.b64decode(printed["data"])
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 3
    browser.script("dispatchEvent(new Event('beforeprint'))")
    assert browser.text(rule).startswith("“corrected” is a model")
    browser.script("dispatchEvent(new Event('afterprint'))")
    assert not browser.one(rule).is_displayed()
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert set(browser.script(SHOWN)) >= METHODS
        assert not browser.one("#heatmaps-toggle").is_displayed()
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.script(wide) == 0
        assert browser.one("#cases").value_of_css_property("break-inside") == "avoid"
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
    browser.resize(400, 800)
    assert browser.script("return document.documentElement.scrollWidth") == 400


def test_without_its_script_the_page_shows_everything(browser: Browser, report: Path) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(report.as_uri())
        assert set(browser.script(SHOWN)) >= METHODS
        assert not browser.one("#effect-toggle").is_displayed()
        assert browser.one(".verdict .rule p").is_displayed()
        assert len(browser.all(".panels svg")) == len(METHODS)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
