"""A headless Chromium for tests and screenshots, and the labelling page served to it."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import uvicorn
from selenium.common import StaleElementReferenceException
from selenium.webdriver import ActionChains, Chrome, ChromeOptions, ChromeService
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from hansfree.discovery.label.server import LOOPBACK, create_app
from hansfree.discovery.label.session import Session
from tests.discovery.label.worlds import TOKEN

Found = TypeVar("Found")

PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 60  # seconds; a test that passes never waits so long, on a busy machine too
_FLAGS = (
    "--headless=new",
    "--no-sandbox",  # of no use in a container, and refused there
    "--disable-dev-shm-usage",  # which is small in a container
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
)


def find_browser() -> tuple[str, str] | None:
    """Return the paths of Chromium and of its driver; None where either is missing."""
    browser = next((path for name in PROGRAMS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """One tab, with its console errors and requests."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, address: str) -> None:
        self.driver.get(address)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)

    def all(self, selector: str) -> list[WebElement]:
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector: str) -> WebElement:
        (element,) = self.all(selector)
        return element

    def text(self, selector: str) -> str:
        return self.one(selector).text

    def click(self, selector: str) -> None:
        self.one(selector).click()

    def hover(self, selector: str) -> None:
        ActionChains(self.driver).move_to_element(self.one(selector)).perform()

    def press(self, *keys: str) -> None:
        ActionChains(self.driver).send_keys(*keys).perform()

    def script(self, text: str, *values: Any) -> Any:
        return self.driver.execute_script(text, *values)

    def wait(self, condition: Callable[[], Found], what: str) -> Found:
        """Wait until a condition holds; return what it returned."""
        waiting = WebDriverWait(
            self.driver, PATIENCE, poll_frequency=0.05, ignored_exceptions=(StaleElementReferenceException,)
        )
        return waiting.until(lambda _: condition(), f"{what} did not come within {PATIENCE} seconds")

    def errors(self) -> list[str]:
        """Return the console's errors since the last call."""
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] == "SEVERE"]  # type: ignore[no-untyped-call]

    def foreign_requests(self) -> list[str]:
        """Return the addresses of other computers that were requested since the last call."""
        entries = self.driver.get_log("performance")  # type: ignore[no-untyped-call]
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        asked = [m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        asked += [m["params"]["url"] for m in messages if m["method"] == "Network.webSocketCreated"]
        return [address for address in asked if not _is_here(address)]


def _is_here(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in ("file", "data", "blob", "about") or parts.hostname in (LOOPBACK, "localhost")


@contextmanager
def started(folder: Path) -> Iterator[Browser]:
    """Start a Chromium with a new profile in a folder."""
    found = find_browser()
    if found is None:
        raise FileNotFoundError("No Chromium with its driver was found: apt-get install chromium chromium-driver.")
    options = ChromeOptions()
    options.binary_location = found[0]
    for flag in (*_FLAGS, f"--user-data-dir={folder}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = Chrome(options, ChromeService(found[1]))
    try:
        yield Browser(driver)
    finally:
        driver.quit()


@contextmanager
def served(session: Session) -> Iterator[str]:
    """Serve the labelling page over a real socket, as `hansfree label` does; yield its address."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        port = listener.getsockname()[1]
        app = create_app(session, token=TOKEN, port=port)
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://{LOOPBACK}:{port}/{TOKEN}/"
        finally:
            server.should_exit = True
            thread.join()


@contextmanager
def opened_page(browser: Browser, session: Session) -> Iterator[str]:
    """Open the labelling page in the browser; leave it before its server ends, for it asks from time to time."""
    with served(session) as address:
        browser.open(address)
        wait_until_ready(browser)
        yield address
        browser.open("about:blank")


def wait_until_ready(browser: Browser) -> None:
    """Wait until the labelling page has its images."""
    browser.wait(lambda: browser.all("body[data-ready]"), "the page")


def wait_until_saved(browser: Browser) -> None:
    """Wait until the labelling page reports that all labels are saved."""
    browser.wait(lambda: browser.all("#saved[data-state=saved]"), "the message that all labels are saved")


def images_shown(browser: Browser) -> list[int]:
    """Return the images that are drawn, in the page's order."""
    tiles = browser.script(
        "return [...document.querySelectorAll('.tile')].map((t) => [t.dataset.place, t.dataset.image])"
    )
    return [int(image) for _, image in sorted(tiles, key=lambda tile: int(tile[0]))]
