"""The report in a real browser: navigated, folded, sorted, pointed at, printed, and read without its script."""

from __future__ import annotations

import shutil
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
def report(browser: Browser, make_run: MakeRun, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Open the report, which is written once."""
    path = tmp_path_factory.getbasetemp() / "report-for-browser.html"
    if not path.exists():
        run = make_run(heatmaps=True)
        write_cases(run / "cases.npz")
        shutil.copy(write_report(run), path)
    browser.open(path.as_uri())
    yield path
    browser.open("about:blank")


@pytest.mark.usefixtures("report")
def test_heatmaps_are_toggled_by_mouse_and_by_keys(browser: Browser) -> None:
    names = [each.get_attribute("value") for each in browser.all("#heatmaps-toggle input")]
    assert set(names) == set(SELECTION)
    browser.click("#heatmaps-section summary")
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
    browser.script("document.querySelector('#effect').scrollIntoView({ block: 'center' })")
    browser.script("document.querySelectorAll('#effect .point')[2].dispatchEvent(new PointerEvent('pointerenter'))")
    browser.wait(lambda: browser.script(LOADED) == 2, "the image without and with the artifact")
    assert "%" in browser.text("#tip")
    browser.script("document.querySelectorAll('#effect .point')[2].dispatchEvent(new PointerEvent('pointerleave'))")
    browser.wait(lambda: not browser.one("#tip").is_displayed(), "the end of the tip")


@pytest.mark.usefixtures("report")
def test_folding_the_first_screen_and_the_length_of_the_page(browser: Browser) -> None:
    browser.resize(1440, 900)
    n_open = "return document.querySelectorAll('details[open]').length"
    assert browser.script(n_open) == 0
    for selector in (".badge.large", ".tile:nth-child(3) .how", "#tradeoff", ".before-after img"):
        inside = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
        assert 0 < browser.script(inside, selector) < 900
    assert browser.script("return document.documentElement.scrollHeight") <= 6 * 900
    assert browser.script("return document.documentElement.scrollWidth") == 1440
    browser.script("document.querySelector('#methods summary').focus()")
    browser.press(Keys.ENTER)
    assert browser.script(n_open) == 1
    browser.click("#fold")
    assert browser.script(n_open) == len(browser.all("details"))
    browser.wait(lambda: browser.text("#fold") == "Fold all", "the other label")
    browser.click("#fold")
    assert browser.script(n_open) == 0


@pytest.mark.usefixtures("report")
def test_on_a_telephone_the_flip_rate_of_every_method_is_in_sight(browser: Browser) -> None:
    browser.resize(400, 800)
    assert browser.script("return document.documentElement.scrollWidth") == 400
    cells = "return [...document.querySelectorAll('#methods > .scroll tbody tr')].map((row) => row.cells[1])"
    places = browser.script(f"{cells}.map((cell) => cell.getBoundingClientRect()).map((box) => [box.left, box.right])")
    heads = "return [...document.querySelectorAll('#methods > .scroll tbody th')]"
    widest = max(browser.script(f"{heads}.map((head) => head.scrollWidth + head.getBoundingClientRect().left)"))
    assert browser.all("#methods thead .head")[0].text == "Flip rate"
    assert all(widest <= left + 1 and right <= 400 for left, right in places)


@pytest.mark.usefixtures("report")
def test_the_navigation_stays_and_marks_the_section_in_sight(browser: Browser) -> None:
    links = browser.all("header.bar nav a")
    assert [link.text for link in links] == ["Overview", "Methods", "Images", "Direction", "Evidence", "Appendix"]
    for link in reversed(links):
        link.click()
        browser.wait(lambda link=link: link.get_attribute("aria-current") == "true", "the mark of the section")  # type: ignore[misc]
        assert len(browser.all("nav a[aria-current]")) == 1
        assert browser.script("return document.querySelector('header.bar').getBoundingClientRect().top") == 0
    browser.script("document.activeElement.blur(); scrollTo(0, 0)")
    browser.script("document.querySelector('.skip').focus()")
    browser.press(Keys.TAB)  # the keyboard goes from link to link
    assert browser.script("return document.activeElement.hash") == "#overview"
    browser.press(Keys.TAB, Keys.ENTER)
    browser.wait(lambda: links[1].get_attribute("aria-current") == "true", "the methods")


@pytest.mark.usefixtures("report")
def test_dark_mode_follows_the_system_and_a_button(browser: Browser, report: Path) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)[0]"
    text = "return getComputedStyle(document.querySelector('#tradeoff text')).fill.match(/\\d+/g).map(Number)[0]"
    assert browser.script(paper) > 200 > 100 > browser.script(text)
    for _ in range(2):  # the choice is kept over a reload
        if browser.text("#theme") == "Dark":
            browser.click("#theme")
        assert browser.script(paper) < 60
        assert browser.script(text) > 200, "the plots too"
        assert browser.one("#theme").get_attribute("aria-pressed") == "true"
        browser.open(report.as_uri())
        assert browser.text("#theme") == "Light"
    browser.script("localStorage.clear()")
    scheme = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": scheme})
    try:
        browser.open(report.as_uri())
        assert browser.script(paper) < 60
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.usefixtures("report")
def test_a_table_is_sorted_by_the_heads_of_its_columns(browser: Browser) -> None:
    heads = [head.text for head in browser.all("#methods thead tr:first-child .head")]
    assert "Flip rate" in heads
    values = """return [...document.querySelectorAll("#methods > .scroll tbody tr")]
        .map((row) => row.cells[arguments[0]].dataset.value).filter(Boolean).map(Number)"""
    place = 1 + browser.script(
        "return [...document.querySelectorAll('#methods > .scroll thead tr:nth-child(2) th')].findIndex("
        "(th) => th.title.startsWith('Share of images whose predicted class changes'))"
    )
    button = f"#methods > .scroll thead tr:nth-child(2) th:nth-child({place}) button"
    browser.click(button)
    assert browser.script(values, place) == sorted(browser.script(values, place)), "the best first"
    browser.script("document.querySelector(arguments[0]).focus()", button)
    browser.press(Keys.ENTER)
    assert browser.script(values, place) == sorted(browser.script(values, place), reverse=True)
    assert [head.get_attribute("aria-sort") for head in browser.all("#methods th[aria-sort]")] == ["descending"]


@pytest.mark.usefixtures("report")
def test_unfolded_or_in_print_everything_is_shown(browser: Browser) -> None:
    closed = "return document.querySelectorAll('details:not([open])').length"
    n_closed = browser.script(closed)
    assert n_closed == len(browser.all("details")) > 4
    for n in (0, n_closed):
        browser.click("#fold")
        assert browser.script(closed) == n
    for event, n in (("beforeprint", 0), ("afterprint", n_closed)):
        browser.script(f"dispatchEvent(new Event('{event}'))")
        assert browser.script(closed) == n
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    try:
        browser.script("dispatchEvent(new Event('beforeprint'))")
        assert set(browser.script(SHOWN)) >= METHODS
        assert not browser.one("#heatmaps-toggle").is_displayed()
        assert not browser.one("header.bar").is_displayed()
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
        assert browser.one(".overview .badge.large").is_displayed()
        assert not browser.one(".tools").is_displayed()
        assert not browser.one("#effect-toggle").is_displayed()
        assert browser.one("#effect-still").is_displayed()
        browser.click("#heatmaps-section summary")  # folding is the browser's own
        browser.wait(lambda: set(browser.script(SHOWN)) >= METHODS, "all heatmaps")
    finally:
        browser.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
