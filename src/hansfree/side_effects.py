"""What the correction of one artifact does to the others: a matrix of models and artifacts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from torch import nn

from hansfree.activations import Activations, cut_again
from hansfree.datasets.pairs import check_bits
from hansfree.errors import DataError
from hansfree.evaluation import held_out_features, judge_head
from hansfree.metrics import BalancedAccuracyBiased, BalancedAccuracyClean, FlipRate, Score
from hansfree.models.surgery import take_out
from hansfree.report.figures import INK, Drawing, new_figure
from hansfree.report.numbers import percent, write_stderr, write_value
from hansfree.report.tables import markdown_table

_NOTE = (
    "In percent, ± standard error over the same {n} test images. Flip rate: share of the images whose answer "
    "inserting the artifact changes. Accuracies are balanced over classes."
)


@dataclass(frozen=True)
class SideEffects:
    """What each of several models does without any artifact, and with each of several put in."""

    clean: Mapping[str, Score]  # by model: balanced accuracy without any of the artifacts
    flips: Mapping[tuple[str, str], Score]  # by model and artifact: flip rate
    biased: Mapping[tuple[str, str], Score]  # by model and artifact: balanced accuracy with it

    @property
    def models(self) -> tuple[str, ...]:
        """The models' names, in the order in which they were given."""
        return tuple(self.clean)

    @property
    def artifacts(self) -> tuple[str, ...]:
        """The artifacts' names, in the order in which they were given."""
        return tuple(dict.fromkeys(artifact for _, artifact in self.flips))

    def to_markdown(self) -> str:
        """Return a table with a line for each model."""
        heads = ["model", "clean"]
        for artifact in self.artifacts:
            heads += [f"{artifact}: flip rate", f"{artifact}: accuracy"]
        lines = []
        for model in self.models:
            cells = [self.clean[model]]
            for artifact in self.artifacts:
                cells += [self.flips[model, artifact], self.biased[model, artifact]]
            lines.append([model, *map(_written, cells)])
        n = next(iter(self.clean.values())).n
        return f"{markdown_table(heads, lines)}\n\n{_NOTE.format(n=f'{n:,}')}\n"

    def draw(self) -> Drawing:
        """Draw the flip rates as a heatmap, models down and artifacts across."""
        rates = np.array([[self.flips[model, artifact].value for artifact in self.artifacts] for model in self.models])
        figure = new_figure(width=2.5 + 1.3 * len(self.artifacts), height=1.2 + 0.45 * len(self.models))
        axes = figure.subplots()
        axes.imshow(rates, cmap="Blues", vmin=0, vmax=1, aspect="auto")
        for (down, across), rate in np.ndenumerate(rates):
            colour = "white" if rate > 0.6 else INK  # legible on the blue below it
            axes.text(across, down, write_value("flip_rate", rate), ha="center", va="center", color=colour, fontsize=9)
        axes.set_xticks(range(len(self.artifacts)), self.artifacts)
        axes.set_yticks(range(len(self.models)), self.models)
        axes.tick_params(colors=INK, labelsize=9, length=0)
        axes.spines[:].set_visible(False)
        axes.set_xlabel("artifact that is put in", color=INK)
        told = [f"{model}, {artifact}: {percent(score.value)}" for (model, artifact), score in self.flips.items()]
        return Drawing(
            "side-effects",
            figure,
            f"Flip rate of each model under each artifact. {'; '.join(told)}.",
            "Share of the test images, in percent, whose answer changes when an artifact is put in (dark: many). A "
            "correction has a side effect where another artifact's rate is not that of the model as it came.",
        )


def measure_side_effects(
    models: Mapping[str, nn.Module], *, clean: Activations, biased: Mapping[str, Activations]
) -> SideEffects:
    """Score every model under every artifact, on the same held-out images without any and with each put in.

    Args:
        models: by name: the model as it came and its corrected versions. They share the trunk, so that activations of
            the original serve for all.
        clean: test images without any of the artifacts.
        biased: by artifact, the same images in the same order with it put in.
    """
    if not models or not biased:
        raise DataError(f"A matrix needs models and artifacts; given {len(models)} and {len(biased)}.")
    for images in biased.values():
        check_bits(clean, images)
    scores: dict[str, Score] = {}
    flips: dict[tuple[str, str], Score] = {}
    accuracies: dict[tuple[str, str], Score] = {}
    for name, model in models.items():
        plain, edit = take_out(model)
        cut = cut_again(plain, clean)
        state = cut.head_parameters()
        for artifact, images in biased.items():
            # the biased class is any: none of these scores asks for it
            held_out = held_out_features(cut, clean, images, biased_class=0, edit=edit)
            evidence = judge_head(cut, state, held_out)
            scores[name] = BalancedAccuracyClean().compute(evidence)
            flips[name, artifact] = FlipRate().compute(evidence)
            accuracies[name, artifact] = BalancedAccuracyBiased().compute(evidence)
    return SideEffects(scores, flips, accuracies)


def _written(score: Score) -> str:
    return f"{write_value(score.metric, score.value)} ± {write_stderr(score.metric, score.stderr)}"
