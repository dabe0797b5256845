"""Generated parts of the site: the committed results, the list of decision records, and the API reference."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import hansfree

ROOT = Path(__file__).parent.parent
TITLES = {
    "data": "Data",
    "models": "Models",
    "activations": "Activations",
    "cavs": "CAVs",
    "metrics": "Metrics",
    "corrections": "Corrections",
    "evaluation": "Evaluation",
    "pipeline": "Pipeline",
    "report": "Report",
    "export": "Export",
    "api": "Runs",
    "result": "Results",
    "callbacks": "Callbacks",
    "discovery": "Discovery",
    "errors": "Errors",
}

MORE = (  # what pages name beside the top level and `hansfree.extend`
    (hansfree.cavs, ("JointCAV", "class_direction", "from_captum", "load_cavs", "save_cavs", "to_captum")),
    (hansfree.callbacks, ("MLflow", "TensorBoard", "WandB")),
    (hansfree.corrections, ("Augmented", "DFR", "LEACE", "LogitPairing", "OneSidedPClArC", "RClArC", "RRClArCStep")),
    (hansfree.corrections, ("DeepValidation", "StrengthPath", "choose_candidate")),
    (hansfree.data, ("FromFunction", "InMemory", "LabelledImages", "WithMasks", "as_biased_data")),
    (hansfree.evaluation, ("Forgetting", "Probe", "Relearning", "RelearningCurve", "SideEffects")),
    (hansfree.evaluation, ("artifact_relevance", "compute_cav_heatmaps", "masks_from_heatmaps")),
    (hansfree.evaluation, ("measure_side_effects", "probe_artifact", "relearn", "reset_head")),
    (hansfree.export, ("export_onnx",)),
    (hansfree.models, ("adapt", "plain", "plain_state", "preprocessing_of")),
    (hansfree.pipeline, ("LayerChoice", "make_auto_pairs")),
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, tables and figures of ``results/`` under ``runs/``."""
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in (".md", ".csv", ".json", ".png"):
            place = Path("runs") / path.relative_to(ROOT / "results")
            files.append(File.generated(config, place.as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links into ``results/`` at the site's copies, and fill in the generated lists."""
    markdown = re.sub(r"\]\(((?:\.\./)*)\.\./results/", r"](\1runs/", markdown)
    for place, make in (("<!-- records -->", list_records), ("<!-- public names -->", list_public_names)):
        if place in markdown:
            markdown = markdown.replace(place, make())
    return markdown


def list_records() -> str:
    """Return a link to every decision record, by its title."""
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    titles = [record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for record in records]
    return "\n".join(f"- [{title}](decisions/{record.name})" for title, record in zip(titles, records))


def list_public_names() -> str:
    """Return a mkdocstrings directive for every name of the top level and of `hansfree.extend`, by package."""
    places = ((hansfree, hansfree.__all__), (hansfree.extend, hansfree.extend.__all__), *MORE)
    found = {name: getattr(place, name) for place, names in places for name in names}
    homes = {name: thing.__module__ for name, thing in found.items() if not isinstance(thing, ModuleType)}
    lines = []
    for package, title in TITLES.items():
        if names := [name for name, home in homes.items() if home.split(".")[1] == package]:
            lines += [f"## {title}", *(f"::: {homes[name]}.{name}" for name in names)]
    return "\n\n".join(lines)
