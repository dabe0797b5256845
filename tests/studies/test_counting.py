from __future__ import annotations

from hansfree.studies import Synthetic
from hansfree.studies.biased import count_images
from hansfree.studies.study import SETS


def test_the_counts_are_those_of_the_sets() -> None:
    data = Synthetic(size=32).data("demo")
    counts = count_images(data)
    assert len(counts) == len(SETS) * len(data.train.class_names)
    for name in SETS:
        images, rows = getattr(data, name), [row for row in counts if row["set"] == name.replace("_", " ")]
        assert sum(row["images"] for row in rows) == len(images)
        assert sum(row["with_artifact"] for row in rows) == int(images.has_artifact.sum())
    biased = [row["class"] for row in counts if row["set"] == "train" and row["with_artifact"]]
    assert biased == [data.train.class_names[data.biased_class]]
    assert all(row["with_artifact"] == (row["images"] if "biased" in row["set"] else 0) for row in counts[4:])
