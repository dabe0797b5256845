"""What the site shows of files that do not lie in docs/: the committed results, and a list of all decision records."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
RECORDS = "<!-- records -->"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages, tables and figures of ``results/`` under ``runs/``."""
    for path in sorted((ROOT / "results").rglob("*")):
        if path.suffix in (".md", ".csv", ".json", ".png"):
            place = Path("runs") / path.relative_to(ROOT / "results")
            files.append(File.generated(config, place.as_posix(), abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Lead links into ``results/`` to where the site has them, and list the records where the page asks for it."""
    records = sorted((ROOT / "docs" / "decisions").glob("0*.md"))
    titles = [record.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ") for record in records]
    listed = "\n".join(f"- [{title}](decisions/{record.name})" for title, record in zip(titles, records))
    return re.sub(r"\]\(((?:\.\./)*)\.\./results/", r"](\1runs/", markdown).replace(RECORDS, listed)
