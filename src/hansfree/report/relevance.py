"""What the column of artifact relevance is of, and why a method may have none."""

from __future__ import annotations

from hansfree.metrics import ArtifactRelevance
from hansfree.report.reading import Results, method_title
from hansfree.report.usable import kind_of
from hansfree.results import ORIGINAL


def describe_relevance(results: Results) -> str:
    """Say on which images, by which masks, and who is left out; nothing where no model has the score."""
    name = ArtifactRelevance.name
    found = {variant: results.chosen(variant).get(name) for variant in results.methods()}
    scored = [row for row in found.values() if row is not None]
    if not scored:
        return ""
    n = max(row.n or 0 for row in scored)
    told = "Artifact relevance is the share of absolute relevance that lies where the artifact is"
    told += f", on the first {n} test images with the artifact: heatmaps take long." if n else "."
    missing = [
        method_title(variant.method)
        for variant, row in found.items()
        if row is None and variant.method != ORIGINAL and kind_of(results, variant) == "method"
    ]
    if missing:
        told += (
            f" {', '.join(missing)} cannot be scored: nobody marked where the artifact is in these images, so the "
            "direction was asked, and methods that were trained with the direction, or with masks from it, must not be "
            "judged by it."
        )
    return told
