"""How good the directions of an experiment are, told by its test images."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hansfree.cavs import CAV, alignment_mean, alignment_sample, cav_auc
from hansfree.experiments.material import Material
from hansfree.results import Row, row_of_quality


def quality_rows(material: Material, cavs: Mapping[str, CAV], about: Mapping[str, Any]) -> list[Row]:
    """Return how well each CAV fits the artifact; nothing where too few test images carry it.

    Args:
        about: What the rows of an experiment have in common.
    """
    if not material.is_biased_known:
        return []
    clean, biased = material.activations["test_clean"].pooled, material.activations["test_biased"].pooled
    is_inserted = material.data.is_inserted
    if is_inserted:
        # every image once, without or with the artifact: pairs would not be independent
        without, within = clean[::2], biased[1::2]
    else:
        without, within = clean, biased
    held_out = np.concatenate([without, within])
    is_biased = np.arange(len(held_out)) >= len(without)
    rows = []
    for name, cav in cavs.items():
        told = {"method": f"cav:{name}", "cav": name, "split": "test", **about}
        if is_inserted:
            direction = cav.directions_[0]
            rows.append(row_of_quality("alignment_sample", alignment_sample(direction, biased - clean), **told))
            rows.append(row_of_quality("alignment_mean", alignment_mean(direction, biased - clean), **told))
        rows.append(row_of_quality("cav_auc", cav_auc(cav, held_out, is_biased), **told))
    return rows
