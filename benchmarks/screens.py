"""Make the screenshots of the docs from embedded images, by the pages themselves.

hansfree demo --out hansfree-demo
python -m benchmarks.screens hansfree-demo docs/screens
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from PIL import Image
from tests.browser.driving import Browser, images_shown, opened_page, started, wait_until_saved
from tests.discovery.label.worlds import World, make_world, opened, train_weights

from hansfree.discovery.label.session import SCREEN, Session
from hansfree.discovery.opening import open_unlabelled_images, search_suspects
from hansfree.pipeline.config import read_run_file

WIDTH, HEIGHT = 1200, 720
_REPORT = 1440, 900
_IMAGES, _SIDE = 600, 96
_MOST = 400_000  # bytes
_LOADED = "return [...document.images].every((i) => i.complete && i.naturalWidth > 0)"


def shoot(browser: Browser, path: Path) -> None:
    """Write a screenshot; a large one in 256 colours."""
    browser.wait(lambda: browser.script(_LOADED), "all pictures")
    browser.driver.save_screenshot(str(path))
    with Image.open(path) as taken:
        full = taken.convert("RGB")
    full.save(path, optimize=True)
    if path.stat().st_size > _MOST:
        full.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def label_screen(browser: Browser, world: World) -> None:
    """Label the images of the screen correctly."""
    for image in images_shown(browser):
        browser.press(" " if world.has_artifact[image] else "n")
    wait_until_saved(browser)


def shoot_labelling(browser: Browser, world: World, folder: Path) -> None:
    """Save the screens of the labelling page."""
    with opened(world) as session, opened_page(browser, session):
        shoot(browser, folder / "label-start.png")
        for _ in range(2):
            label_screen(browser, world)
            browser.click("#next")
            browser.wait(lambda: len(browser.all("[data-label='-1']")) == SCREEN, "a screen")
        for image in images_shown(browser)[:4]:
            browser.press(" " if world.has_artifact[image] else "n")
        wait_until_saved(browser)
        session.wait()
        browser.wait(lambda: browser.text("#diagnostics") == _verdict(session), "the verdict")
        shoot(browser, folder / "label-marks.png")
        likely = images_shown(browser).index(
            next(image for image in images_shown(browser) if world.has_artifact[image])
        )
        browser.hover(f"[data-place='{likely}'] img")
        browser.wait(lambda: browser.all("[data-heatmap=shown]"), "a heatmap")
        shoot(browser, folder / "label-heatmap.png")
        browser.press("2")
        browser.wait(lambda: browser.all("#tab-all[aria-selected=true]"), "all images")
        shoot(browser, folder / "label-all.png")


def shoot_report(browser: Browser, run: Path, folder: Path) -> None:
    """Save the first screen of the report, and the methods in the dark."""
    browser.resize(*_REPORT)
    browser.open((run / "report.html").as_uri())
    shoot(browser, folder / "report-top.png")
    browser.click("#theme")
    browser.click("header.bar a[href='#methods']")
    shoot(browser, folder / "report-methods.png")
    browser.resize(WIDTH, HEIGHT)


def _verdict(session: Session) -> str:
    found = session.state().diagnostics
    return found.verdict if found else ""


def main(run: Path, folder: Path) -> None:
    """Make all screenshots, from within the folder of the images: pages show paths as they were given."""
    run, folder = run.resolve(), folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lesions-") as place, started(Path(place) / "profile") as browser:
        browser.resize(WIDTH, HEIGHT)
        shoot_report(browser, run, folder)
        os.chdir(place)
        weights = train_weights(Path("model.safetensors"), "timestamp", size=_SIDE)
        world = make_world(Path(), _IMAGES, size=_SIDE, weights=weights)
        looked = search_suspects(open_unlabelled_images(read_run_file(world.file)))
        browser.open(looked.page.resolve().as_uri())
        shoot(browser, folder / "suspects.png")
        shoot_labelling(browser, world, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
