"""How many images of each class a study has, and how many of them carry the artifact."""

from __future__ import annotations

from typing import Any

import numpy as np

from hansfree.studies.study import SETS, BiasedData


def count_images(data: BiasedData) -> list[dict[str, Any]]:
    """Count the images of every set by class, all and with the artifact: what ``results.json`` keeps for the card."""
    found = []
    for name in SETS:
        images = getattr(data, name)
        for label, class_name in enumerate(images.class_names):
            of_class = np.asarray(images.labels) == label
            with_artifact = int(np.sum(of_class & images.has_artifact))
            about = {"set": name.replace("_", " "), "class": class_name}
            found.append({**about, "images": int(np.sum(of_class)), "with_artifact": with_artifact})
    return found
