"""The page's markup: whole without its script, labelled for those who do not see it, and of bounded size."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from hansfree.report import write_report
from tests.report.conftest import META, SELECTION, MakeRun
from tests.report.pictured import write_cases
from tests.report.test_page import text_of


class Page(HTMLParser):
    """Tags with their attributes and, by tag, the words directly in them."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: Counter[str] = Counter()
        self.script: dict[str | None, str] = {}
        self._open: list[tuple[str, str | None]] = []
        self.inside: list[tuple[str, ...]] = []  # what each tag lies in
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside.append(tuple(name for name, _ in self._open))
        if tag not in ("img", "meta", "input", "br"):
            self._open.append((tag, dict(attrs).get("id")))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self.inside.append(tuple(name for name, _ in self._open))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag, "tags are closed in order"

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1][0] == "script":
            self.script[self._open[-1][1]] = data

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.fixture
def run(make_run: MakeRun) -> Path:
    found = make_run(heatmaps=True, meta=META | {"hashes": {"model": "0a1b2c", "weights, rr-clarc": "9f8e7d"}})
    write_cases(found / "cases.npz")
    (found / "config.yaml").write_text("seed: 7\nwith <signs>: 1\n", encoding="utf-8")
    return found


@pytest.fixture
def page(run: Path) -> Page:
    return Page(write_report(run))


def test_ids_are_unique_and_images_have_words(page: Page) -> None:
    ids = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
    assert ids
    assert max(ids.values()) == 1
    assert all(image.get("alt") for image in page.of("img"))
    assert all(drawing.get("aria-label") and drawing.get("role") in ("group", "img") for drawing in page.of("svg"))


def test_every_toggle_is_a_labelled_group_with_one_choice(page: Page) -> None:
    groups = [each["id"] for each in page.of("fieldset")]
    assert groups == ["effect-toggle", "heatmaps-toggle"]
    assert len(page.of("legend")) == len(groups)
    places = [(attributes, inside) for (tag, attributes), inside in zip(page.tags, page.inside) if tag == "input"]
    assert all(inside[-1] == "label" and "fieldset" in inside for _, inside in places)
    for name in ("effect-method", "heatmaps-method"):
        radios = [attributes for attributes, _ in places if attributes["name"] == name]
        assert {radio["type"] for radio in radios} == {"radio"}
        assert [radio["value"] for radio in radios if "checked" in radio] == ["rr-clarc"], "what the verdict is about"
        assert {radio["value"] for radio in radios} >= set(SELECTION)


def test_each_plot_is_one_stop_of_the_tab_key(page: Page) -> None:
    points = [attributes for tag, attributes in page.tags if tag == "g" and attributes.get("class") == "point"]
    assert len(points) > 30
    assert all(point["role"] == "img" and point["aria-label"] for point in points)
    assert sum(point["tabindex"] == "0" for point in points) == 2


def test_the_data_of_the_script_fit_its_plot(page: Page) -> None:
    data = json.loads(page.script["effect-data"])
    assert set(data["methods"]) == {"original", *SELECTION}
    n = len(data["images"])
    assert all(len(told["places"]) == len(told["words"]) == n for told in data["methods"].values())


def test_without_the_script_everything_is_there(run: Path, page: Page) -> None:
    text = text_of(run / "report.html")
    for words in ("Helped most", "Harmed most", "0a1b2c", "seed: 7", "with <signs>: 1", "hansfree demo --artifact"):
        assert words in text
    hidden = [attributes for _, attributes in page.tags if "hidden" in attributes]
    assert [each.get("id") for each in hidden] == ["tip"], "only the empty tip waits for the script"
    cells = Counter(each.get("data-method") for each in page.of("figure") if each.get("class") == "cell")
    assert {cells[method] for method in ("original", *SELECTION)} == {4}, "every heatmap of every method"
    panels = [each for each in page.of("svg") if str(each["id"]).startswith("effect-")]
    assert len(panels) == 1 + len(SELECTION)


def test_settings_tell_no_folders_of_the_machine(make_run: MakeRun) -> None:
    command = "hansfree run '/home/jane/my project/ruler.yaml' --out=/home/jane/run"
    run = make_run(meta=META | {"model": "/home/jane/project/net.py:build", "command": command})
    kept = {
        "model": {"source": "/home/jane/project/net.py:build", "weights": "C:\\Users\\jane\\model.pt", "layer": "0"},
        "other": {"source": "hf:/home/jane/vit", "page": "https://example.org/a"},
        "data": {"root": "/home/jane/images", "classes": ["a/b", "c"]},
    }
    (run / "run.yaml").write_text(yaml.safe_dump(kept), encoding="utf-8")
    page = write_report(run).read_text(encoding="utf-8")
    assert "jane" not in page
    for shown in (
        "source: …/net.py:build",
        "weights: …/model.pt",
        "root: …/images",
        "- a/b",
        "source: hf:…/vit",
        "https://example.org/a",
    ):
        assert shown in page
    assert "A net.py:build model" in page
    assert "<code>hansfree run ruler.yaml --out=run</code>" in page
    assert "/home/jane/images" in (run / "run.yaml").read_text(encoding="utf-8")


def test_settings_without_use_are_named_and_not_listed(make_run: MakeRun) -> None:
    """Shares of a split that was not drawn would say that it was."""
    run = make_run(meta=META | {"unused": ["data.shares", "artifact.share"]})
    settings = "data:\n  shares: [0.8, 0.1, 0.1]\n  size: 64\nartifact:\n  name: café\n  share: 0.5\n"
    (run / "run.yaml").write_text(settings, encoding="utf-8")
    text = text_of(write_report(run))
    assert "data: size: 64 artifact: name: café" in " ".join(text.split())
    assert "Left out, as this run had no use for them: data.shares, artifact.share." in text


def test_what_an_older_folder_lacks_is_left_out(make_run: MakeRun) -> None:
    path = write_report(make_run())
    text, page = text_of(path), Page(path)
    for words in ("each image", "Where the models look", "direction sees", "Best and worst", "Hashes", "Settings"):
        assert words not in text
    assert not page.of("fieldset")
    assert [each["id"] for each in page.of("svg")] == ["tradeoff"]


def test_no_image_became_worse_is_said_in_words(run: Path) -> None:
    assert "No image became worse." in text_of(write_report(run))


def test_the_size_is_bounded_even_with_images_of_noise(run: Path) -> None:
    write_cases(run / "cases.npz", n=204, side=64)
    assert write_report(run).stat().st_size < 3_000_000
