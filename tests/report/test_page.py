"""The page as a whole: self-contained, accessible, written whole or not at all, and true to the scores."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
import yaml

from hansfree.cavs.diagnostics import diagnose_cav
from hansfree.errors import RunError
from hansfree.evaluation.results import Row, load_results
from hansfree.report import describe_diagnosis, describe_finding, summarize, write_report, write_verdict
from tests.report.conftest import (
    CHOSEN,
    META,
    POOR,
    RULE,
    SELECTION,
    MakeRun,
    World,
    choice,
    text_of,
    with_others,
    write_cases,
)
from tests.report.test_text import WORLD, constant

HEADS = ["Methods", "Images", "Direction", "Evidence", "Appendix"]


class Page(HTMLParser):
    """Tags with their attributes, what each lies in, and the texts of scripts by id."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.script: dict[str | None, str] = {}
        self._open: list[tuple[str, str | None]] = []
        self.inside: list[tuple[str, ...]] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
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


def heads_of(path: Path) -> list[str]:
    page = path.read_text(encoding="utf-8")
    links = re.findall(r'<a href="#([a-z-]+)"', page.partition("<nav")[2].partition("</nav>")[0])
    assert links == re.findall(r'\n<section id="([a-z-]+)"', page), "every section is in the navigation"
    return re.findall(r"<h2>([^<]+)</h2>", page.partition('<section id="methods">')[2])


@pytest.fixture(autouse=True)
def _only_some_figures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Save figures only for the complete run: that takes most of the time of a page."""
    if "run" not in request.fixturenames:
        monkeypatch.setattr("hansfree.report.page.make_plot", lambda *_, **__: None)


@pytest.fixture
def run(make_run: MakeRun) -> Path:
    found = make_run(heatmaps=True, meta=META | {"hashes": {"model": "0a1b2c", "weights, rr-clarc": "9f8e7d"}})
    write_cases(found / "cases.npz")
    (found / "config.yaml").write_text("seed: 7\nwith <signs>: 1\n", encoding="utf-8")
    return found


def test_the_page_is_self_contained_and_has_all_sections(run: Path) -> None:
    path = write_report(run)
    assert path == run / "report.html"
    page = path.read_text(encoding="utf-8")
    assert not re.search(r"https?://|//[a-z]+\.[a-z]+/|<script src|<link|@import|url\((?!#)", page)
    sources = re.findall(r'<img src="([^"]+)" alt="([^"]+)"', page)
    assert len(sources) == 4 * 3 + 4 * 7 + 4 * 2 + 6, "before and after, heatmaps, what the direction sees, best cases"
    for source, alt in sources:
        kind = re.match(r"data:image/(png|jpeg);base64,", source)
        assert kind
        start = {"png": b"\x89PNG", "jpeg": b"\xff\xd8"}[kind[1]]
        assert base64.b64decode(source.partition(",")[2]).startswith(start)
        assert len(alt) > 20
    assert {file.name for file in (run / "figures").iterdir()} == {"alignment.svg", "tradeoff.svg", "strengths.svg"}
    assert heads_of(path) == HEADS
    assert page.index("Verdict") < page.index("Methods</h2>")
    text = text_of(path)
    for words in ("Helped most", "No image became worse.", "0a1b2c", "seed: 7", "with <signs>: 1", META["command"]):
        assert words in text


def test_tags_are_accessible_and_the_data_fit_the_plot(run: Path) -> None:
    page = Page(write_report(run))
    ids = Counter(attributes["id"] for _, attributes in page.tags if "id" in attributes)
    assert max(ids.values()) == 1
    assert all(image.get("alt") for image in page.of("img"))
    assert all(drawing.get("aria-label") and drawing.get("role") in ("group", "img") for drawing in page.of("svg"))
    assert [each["id"] for each in page.of("fieldset")] == ["effect-toggle", "heatmaps-toggle"]
    places = [(attributes, inside) for (tag, attributes), inside in zip(page.tags, page.inside) if tag == "input"]
    assert all(inside[-1] == "label" and "fieldset" in inside for _, inside in places)
    for name in ("effect-method", "heatmaps-method"):
        radios = [attributes for attributes, _ in places if attributes["name"] == name]
        assert [radio["value"] for radio in radios if "checked" in radio] == ["rr-clarc"], "what the verdict is about"
        assert {radio["value"] for radio in radios} >= set(SELECTION)
    points = [attributes for tag, attributes in page.tags if tag == "g" and attributes.get("class") == "point"]
    assert len(points) > 30
    assert {svg["id"] for svg in page.of("svg")} == {"tradeoff", "strengths", "effect", "effect-still", "alignment"}
    assert all(point["role"] == "img" and point["aria-label"] for point in points)
    assert sum(point["tabindex"] == "0" for point in points) == 2, "one stop of the tab key per plot"
    hidden = [attributes.get("id") for _, attributes in page.tags if "hidden" in attributes]
    assert hidden == ["tip"], "only the empty tip waits for the script"
    data = json.loads(page.script["effect-data"])
    assert set(data["methods"]) == {"original", *SELECTION}
    n = len(data["images"])
    assert all(len(each["places"]) == len(each["words"]) == n for each in data["methods"].values())


def test_a_failure_leaves_the_old_page(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    before = write_report(run).read_bytes()
    assert {file.name for file in run.iterdir()} == {"results.csv", "results.json", "report.html", "figures"}

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(OSError, match="disk full"):
        write_report(run)
    assert (run / "report.html").read_bytes() == before
    assert not list(run.rglob("*.part*"))


def test_the_numbers_of_the_csv_are_on_the_page(make_run: MakeRun) -> None:
    run = make_run()
    path = write_report(run)
    text = text_of(path)
    for clean, biased, flips, _ in CHOSEN.values():
        for value in (clean, biased, flips):
            assert f" {100 * value:.1f} " in text
    assert "84.8\N{EN DASH}89.4" in text  # of 0.871, n = 800
    assert "95 % intervals, such as " in text
    for words in ("± 0.9", "+3.4", " 0.738 ", "Majority rate", "12.2", "RR-ClArC diverged at strength 100000."):
        assert words in text
    assert text.count(RULE) == 1, "one rule for all is said once"
    verdict = write_verdict(load_results(run))
    assert all(sentence.replace("\N{NO-BREAK SPACE}", " ") in text for sentence in verdict.sentences)
    for words in ("to each image", "Heatmaps of", "direction sees", "Best and worst", "Hashes", "Settings"):
        assert words not in text, "the run has no such files"
    assert [each["id"] for each in Page(path).of("svg")] == ["tradeoff"]


@pytest.mark.parametrize(
    ("meta", "words", "without"),
    [
        (
            META | {"remarks": ["Two are the same."], "skipped": [f"{n}.png is <damaged>." for n in range(12)]},
            "Notes on the data Two are the same. Left out: 0.png is <damaged>.",
            "Left out: 10.png",
        ),
        ({}, "A model and an artifact.", "None"),
        (META | {"title": "<script>alert(1)</script>"}, "<script>alert(1)</script>", "Notes on the data"),
    ],
)
def test_settings_on_the_page(make_run: MakeRun, meta: dict, words: str, without: str) -> None:
    path = write_report(make_run(meta=meta, selection=SELECTION if meta else {}))
    assert words in text_of(path)
    assert without not in text_of(path)
    assert "<script>alert" not in path.read_text(encoding="utf-8")


def test_a_table_with_a_header_only_is_a_page_too(make_run: MakeRun) -> None:
    text = text_of(write_report(make_run(change=lambda _: [], selection={})))
    assert "RR-ClArC is missing from this run." in text
    assert "no scores on test images" in text


def test_unknown_methods_and_all_that_diverged_are_listed(make_run: MakeRun) -> None:
    def add(rows: list[Row]) -> list[Row]:
        return [*rows, *(replace(row, method="my-way") for row in rows if row.method == "p-clarc")]

    selection = SELECTION | {"rrr": choice(10.0, diverged=[100.0]), "my-way": choice(None, diverged=[None])}
    path = write_report(make_run(change=add, selection=selection))
    told = "RR-ClArC diverged at strength 100000; RRR diverged at strength 100; my-way diverged."
    assert f"Recorded and out of the comparison: {told}" in text_of(path)
    page = path.read_text(encoding="utf-8")
    assert '<th scope="row">my-way<span class="detail">failed: diverged</span></th>' in page


@pytest.mark.parametrize("recommended", ["p-clarc", None, ""])
def test_a_model_that_must_not_be_used_is_red_before_anything_else(make_run: MakeRun, recommended: str | None) -> None:
    parts = WORLD.parts(**{} if recommended else {"rr_clarc": constant(0)})
    meta = {"recommended": recommended, "advice": ["Take", "<this>."]} if recommended != "" else {}
    path = write_report(make_run(**parts | {"meta": parts["meta"] | meta}))
    page = path.read_text(encoding="utf-8")
    section = page.partition('<div class="verdict ')[2].partition('<div class="tiles">')[0]
    assert (" failed" in section.partition('"')[0]) == (recommended != "p-clarc")
    assert '<span class="icon" aria-hidden="true">✓</span> Corrected</span>' in section
    if not recommended:
        assert '<p class="failure">Do not use this model (RR-ClArC): ' in section
        assert "<strong>A-ClArC</strong>" in section
    if meta:
        assert "<p>&lt;this&gt;.</p>" in section
        assert ('<p class="advice">&lt;this&gt;.</p>' in section) == (recommended is None)


@pytest.mark.parametrize(
    ("world", "transplant", "title", "how"),
    [
        (World(), None, "Flip rate", "whose prediction changes when the plaster artifact is inserted"),
        (World(), "region", "Flip rate", "transplanted into them (the pixels where it was found): this stands in for"),
        (World((60, 40, 30)), None, "Effect along the direction", "Stands in for the flip rate, as the plaster"),
    ],
)
def test_three_numbers_with_intervals_come_first(
    make_run: MakeRun, world: World, transplant: str | None, title: str, how: str
) -> None:
    parts = world.parts()
    path = write_report(make_run(**parts | {"meta": parts["meta"] | {"transplant": transplant}}))
    summary = summarize(load_results(path.parent))
    assert [tile.title for tile in summary.tiles] == [title, "Accuracy with the artifact", "Accuracy without"]
    assert how in summary.tiles[0].how
    assert summary.tiles[0].is_stand_in == (how[:3] != "who")
    text = text_of(path)
    for tile in summary.tiles:
        assert tile.how in text
        for when, number in (("before", tile.before), ("after", tile.after)):
            assert number.interval
            assert f"{when} {number.value} {number.interval}" in text


def test_unproven_weights_are_never_called_corrected(make_run: MakeRun) -> None:
    parts = POOR.parts()
    path = write_report(make_run(**parts | {"meta": parts["meta"] | {"recommended": "rr-clarc", "advice": ["Guess."]}}))
    summary = summarize(load_results(path.parent))
    assert (summary.badge.title, summary.status) == ("No verdict", "best guess of this run, not proven")
    folded = re.sub(r"<details.*?</details>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    body = folded.partition("<main>")[2].partition("<script>")[0]
    assert "corrected" not in body.lower().replace("not corrected", "")


def test_settings_tell_no_folders_of_the_machine(make_run: MakeRun) -> None:
    command = "hansfree run '/home/jane/my project/ruler.yaml' --out=/home/jane/run"
    meta = META | {"model": "/home/jane/project/net.py:build", "command": command}
    run = make_run(meta=meta | {"unused": ["data.shares"]})
    settings = {
        "model": {"source": "/home/jane/project/net.py:build", "weights": "C:\\Users\\jane\\model.pt"},
        "other": {"source": "hf:/home/jane/vit", "page": "https://example.org/a"},
        "data": {"root": "/home/jane/images", "classes": ["a/b", "café"], "shares": [0.8, 0.2]},
    }
    (run / "run.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
    path = write_report(run)
    page = path.read_text(encoding="utf-8")
    assert "jane" not in page
    for shown in ("…/net.py:build", "…/model.pt", "root: …/images", "- a/b", "- café", "hf:…/vit", "example.org/a"):
        assert shown in page
    assert "A net.py:build model" in page
    assert "<code>hansfree run ruler.yaml --out=run</code>" in page
    assert "shares:" not in page
    assert "Left out, as this run had no use for them: data.shares." in text_of(path)


def test_the_size_is_bounded_even_with_images_of_noise(run: Path) -> None:
    write_cases(run / "cases.npz", n=204, side=64)
    assert write_report(run).stat().st_size < 3_000_000


def test_the_page_of_a_natural_bias(make_run: MakeRun) -> None:
    claims = [
        {"name": "derivative along the CAV (TCAV)", "can_be_made": True, "facts": {"is_inserted": False, "n": 67}},
        {"name": "flip rate", "can_be_made": False, "facts": {"is_inserted": False}},
    ]
    parts = POOR.parts()
    path = write_report(make_run(**parts | {"meta": parts["meta"] | {"claims": claims}}))
    text = text_of(path)
    assert heads_of(path) == ["Methods", "Classes", "Evidence", "Appendix"]
    assert "What it costs Accuracy with the artifact is not drawn against accuracy without it: two cl" in text
    assert text.index("Flip rate cannot be claimed. Natural") < text.index("(TCAV) can be claimed. Known on the 67")
    assert "† Too few images with the artifact are of classes where the shortcut is wrong." in text
    assert "n/a (n = 7)" in text
    assert ",balanced_accuracy_biased,,,7" in (path.parent / "results.csv").read_text(encoding="utf-8")


def test_diagnosis_and_suspect_labels(make_run: MakeRun) -> None:
    rng = np.random.default_rng(0)
    has_artifact = np.arange(60) < 25
    features = rng.normal(size=(60, 4))
    features[has_artifact, 0] += 9
    names = [f"<b>{row}.png" for row in range(60)]
    has_artifact[[3, 50]] = False, True
    diagnosis = diagnose_cav(features, has_artifact, ids=names, seed=0)
    run = make_run(**World((80, 60, 30)).parts())
    (run / "diagnostics.json").write_text(diagnosis.to_json(), encoding="utf-8")
    np.savez(run / "suspect_labels.npz", pictures=rng.integers(0, 255, (2, 32, 32, 3)).astype(np.uint8))
    path = write_report(run)
    text = text_of(path)
    assert text.count(re.sub(r"\s+", " ", describe_diagnosis(diagnosis))) == 1
    assert all(re.sub(r"\s+", " ", describe_finding(diagnosis, finding)) in text for finding in diagnosis.findings)
    _, _, section = path.read_text(encoding="utf-8").partition('<section id="suspect-labels">')
    section = section.partition("</section>")[0]
    assert section.count("<img ") == 2
    for name, listed in (("3.png", "listed without the artifact"), ("50.png", "listed with the artifact")):
        assert re.search(rf"<strong>&lt;b&gt;{name}</strong> <br>{listed}</figcaption>", section)
    assert "most suspicious of" not in section, "they are all there are"
    (run / "suspect_labels.npz").write_bytes(b"PK\3\4 cut off")
    with pytest.raises(RunError, match=r"suspect_labels\.npz is damaged\. Delete it and .*diagnostics\.json, and"):
        write_report(run)


def test_side_effects_are_a_section_of_their_own(make_run: MakeRun) -> None:
    meta = META | {"removed": {"timestamp": 81.2, "lsb": 44.7}}
    path = write_report(make_run(change=with_others, meta=meta))
    page = path.read_text(encoding="utf-8")
    assert heads_of(path) == ["Methods", "Side effects under other artifacts", "Evidence", "Appendix"]
    assert "corrections along a direction remove those “removed too”" in text_of(path)
    assert "<ink>" not in page


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("results.csv", None, "no results.csv"),
        ("results.json", None, "no results.json"),
        ("results.csv", b"experiment,method\n", r"lacks the column\(s\) cav, target"),
        ("results.json", b"{", "not valid JSON"),
        ("results.json", b'{"\xff": 1}', "not valid JSON"),  # a flipped bit
        ("results.csv", b"method,val\xf5e\n", "results.csv is damaged"),
        ("results.json", b'{"paired": {"p-clarc": {"flip_rate": [0.1, 0.01]}}}', "another version of hansfree"),
        ("results.json", b'{"paired": [{"method": "p-clarc"}]}', "another version of hansfree, or is damaged"),
        ("heatmaps.npz", b"PK\3\4 cut off", r"heatmaps.npz is damaged\. Delete it"),
        ("cases.npz", b"PK\3\4 cut off", r"cases.npz is damaged\. Delete it"),
    ],
)
def test_missing_and_damaged_files_are_named(make_run: MakeRun, file: str, content: bytes | None, message: str) -> None:
    run = make_run()
    if content is None:
        (run / file).unlink()
    else:
        (run / file).write_bytes(content)
    with pytest.raises(RunError, match=message):
        write_report(run)
