"""What the page says of a suspected cluster before its images are marked."""

from __future__ import annotations

from pathlib import Path

from hansfree._internal.files import write_json, write_text
from hansfree.discovery.clustering import Cluster
from hansfree.discovery.label.session import ClusterSuggestion, read_suggestions
from hansfree.discovery.suspects import Suspects

NAMES = {f"{row}.png": row for row in range(6)}
CLASSES = ["oval"] * 6


def suspects(*rows: int, centre: tuple[int, ...]) -> Suspects:
    cluster = Cluster(
        label=0,
        rows=rows,
        centre=centre,
        anomaly=0.5,
        separation=2.0,
        chance=1.0,
        p=0.01,
        confidence=0.9,
        distinct="white share",
        distinct_auc=0.9,
        level="weak",
        sentence="They are richer in white.",
    )
    return Suspects(
        class_names=("oval",),
        n=6,
        seed=0,
        verdict="",
        clusters=(cluster,),
        properties=(),
        embeddings=(),
        remarks=(),
    )


def test_class_property_and_central_images_are_told_before_a_cluster_is_taken(tmp_path: Path) -> None:
    write_json(tmp_path / "suspect-1.json", ["2.png", "3.png", "gone.png"])
    # An image came before them since: row 1 then is image 2 now.
    write_text(tmp_path / "suspects.json", suspects(1, 2, 4, centre=(4, 2)).to_json())
    assert read_suggestions(tmp_path, NAMES, classes=CLASSES) == {
        "suspect-1": ClusterSuggestion("suspect-1", [2, 3], [3], "oval, richer in white", "They are richer in white.")
    }


def test_a_list_of_ones_own_has_its_class(tmp_path: Path) -> None:
    write_json(tmp_path / "suspect-1.json", ["2.png", "3.png"])
    write_text(tmp_path / "suspects.json", suspects(1, 2, 4, centre=(4,)).to_json())  # of another cluster
    assert read_suggestions(tmp_path, NAMES, classes=CLASSES) == {
        "suspect-1": ClusterSuggestion("suspect-1", [2, 3], [2, 3], "oval", "")
    }
