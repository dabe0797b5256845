"""Measure how smoothly 10,000 thumbnails scroll on the labelling page.

Two things per speed: the times between frames, which other programs on the computer lengthen, and the processor time of
the page's main thread for a frame, which they do not. At 60 frames per second a frame has 16.7 ms.

python -m benchmarks.scrolling
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
from tests.browser.driving import Browser, opened_page, started
from tests.discovery.label.worlds import make_world, opened

IMAGES, FRAMES = 10_000, 300
# Pixels per frame: reading, a quick wheel, and a pull at the scrollbar that passes all images in the time.
SPEEDS = {"slow": 10, "quick": 120, "to the end": None}
_SCROLL = """
const [speed, frames, done] = arguments;
const scroller = document.getElementById("scroller");
scroller.scrollTop = 0;
const step = speed ?? (scroller.scrollHeight - scroller.clientHeight) / frames;
const times = [];
let most = 0;
requestAnimationFrame(function next(now) {
  times.push(now);
  most = Math.max(most, document.querySelectorAll(".tile").length);
  if (times.length > frames) return done([times, most]);
  scroller.scrollTop += step;
  requestAnimationFrame(next);
});
"""


def measure(browser: Browser, speed: int | None) -> tuple[np.ndarray, float, int]:
    """Scroll for so many frames; return the times between them, the work of one, and how many tiles there were."""
    before = _busy(browser)
    times, most = browser.driver.execute_async_script(_SCROLL, speed, FRAMES)
    return np.diff(times), 1000 * (_busy(browser) - before) / FRAMES, int(most)


def _busy(browser: Browser) -> float:
    """Return the seconds of processor time that the page's main thread has taken so far."""
    metrics = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))


def main() -> None:
    """Write one line per speed."""
    with tempfile.TemporaryDirectory() as place, started(Path(place) / "profile") as browser:
        browser.driver.set_script_timeout(120)
        browser.resize(1200, 900)
        browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        with opened(make_world(Path(place) / "world", IMAGES)) as session, opened_page(browser, session):
            browser.press("2")
            browser.wait(lambda: browser.all("#tab-all[aria-selected=true]"), "all images")
            for name, speed in SPEEDS.items():
                gaps, work, most = measure(browser, speed)
                found = ", ".join(f"{share} % within {np.percentile(gaps, share):.1f} ms" for share in (50, 95, 99))
                sys.stdout.write(f"{name}: {work:.1f} ms of work per frame; {found}; at most {most} tiles\n")


if __name__ == "__main__":
    main()
