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
from tests.report.conftest import SELECTION, MakeRun

METHODS = {"original", *SELECTION}
SHOWN = """return [...document.querySelectorAll("#heatmaps .cell")]
    .filter((cell) => cell.checkVisibility()).map((cell) => cell.dataset.method)"""
PLACES = "return [...document.querySelectorAll('#effect .point')].map((point) => point.getBoundingClientRect().y)"
LOADED = "return [...document.querySelectorAll('#tip img')].filter((image) => image.naturalWidth > 0).length"


def write_cases(path: Path, *, n: int = 6) -> None:
    """Write a few images far from each other, which each method moves by an amount of its own."""
    pictures = np.random.default_rng(0).integers(0, 255, size=(2, n, 32, 32, 3), dtype=np.uint8)
    clean = np.linspace(0.05, 0.6, n, dtype=np.float32)
    cases = {
        "labels": np.arange(n) % 4,
        "is_sampled": np.ones(n, dtype=bool),
        "pictures_clean": pictures[0],
        "pictures_biased": pictures[1],
    }
    for step, method in enumerate(sorted(METHODS)):
        biased = clean + np.float32(0.35 - 0.05 * step)
        for condition, told in (("clean", clean), ("biased", biased)):
            cases[f"biased_class_{condition}/{method}"] = told
            cases[f"true_class_{condition}/{method}"] = 1 - told
            cases[f"predicted_{condition}/{method}"] = np.arange(n) % 4
        if method != "original":
            cases[f"counts/{method}"] = np.array([n, n, 0])
    np.savez(path, **cases)


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
    told = set()
    for _ in range(3):
        browser.wait(lambda: browser.one("#tip").is_displayed(), "the tip")
        told.add(browser.script("return document.activeElement.getAttribute('aria-label')"))
        browser.press(Keys.ARROW_RIGHT)
    assert len(told) == 3
    browser.press(Keys.ESCAPE)
    assert not browser.one("#tip").is_displayed()


@pytest.mark.usefixtures("report")
def test_in_print_all_methods_are_there_at_once(browser: Browser) -> None:
    printed = browser.driver.execute_cdp_cmd("Page.printToPDF", {"printBackground": True})
    content = base64.b64decode(printed["data"])
    assert content.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", content)) >= 3
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        assert set(browser.script(SHOWN)) >= METHODS
        assert not browser.one("#heatmaps-toggle").is_displayed()
        wide = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
        assert browser.script(wide) == 0
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_without_its_script_the_page_shows_everything(browser: Browser, report: Path) -> None:
    browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        browser.open(report.as_uri())
        assert set(browser.script(SHOWN)) >= METHODS
        assert not browser.one("#effect-toggle").is_displayed()
        assert len(browser.all(".panels svg")) == len(METHODS)
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
