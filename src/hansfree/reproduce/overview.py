"""The figures of what the biases look like."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hansfree.experiments.plans import Plan
from hansfree.experiments.subjects import Subject
from hansfree.reproduce.base import Finding, Presentation, Reproduction, check_shown, facts_of, key_of
from hansfree.reproduce.figures import draw_biases, draw_hidden_bits
from hansfree.studies import Study

_SHOWN = 4
_FEW_BITS = 4  # a change of so many low bits is hidden; more of them can be seen


class Overview(Reproduction, name="overview"):
    """Clean and biased images side by side, and the hidden bits of an LSB attack."""

    title = "The data biases: overview, and what an LSB attack hides in the last bits"

    def check(self, study: Study, plan: Plan) -> None:
        """Take any that can be seen: no strength is chosen."""
        check_shown(study, plan)

    def examine(self, subject: Subject) -> Finding:
        """Take the first test images of each kind; no model is needed."""
        data = subject.study.data(subject.plan.model)  # as it is: nothing more than these images is read
        clean, biased = (
            np.stack([images.pixels(row)[0] for row in range(min(_SHOWN, len(images)))])
            for images in (data.test_clean, data.test_biased)
        )
        return Finding(
            key=key_of(subject),
            facts=facts_of(subject, data=data),
            rows=[],
            arrays={"clean": clean, "biased": biased},
            notes={"is_inserted": data.is_inserted},
        )

    def present(self, findings: Sequence[Finding]) -> Presentation:
        """Draw all biases; where only low bits differ, these bits too."""
        once = {f"{finding.key.data} · {finding.key.artifact}": finding for finding in findings}
        pairs = {name: (finding.arrays["clean"], finding.arrays["biased"]) for name, finding in once.items()}
        in_scenes = {name for name, finding in once.items() if not finding.notes.get("is_inserted", True)}
        drawings = [draw_biases(pairs, in_scenes=in_scenes)]
        for clean, biased in (pair for name, pair in pairs.items() if name not in in_scenes):
            bits = int(np.bitwise_xor(clean, biased).max()).bit_length() if clean.shape == biased.shape else 8
            if 0 < bits <= _FEW_BITS:
                drawings.append(draw_hidden_bits(clean, biased, bits=bits))
                break
        return Presentation(text="Test images without and with the artifact.", drawings=drawings)
