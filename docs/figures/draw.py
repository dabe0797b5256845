"""Draw the figures of *How it works* from the code and a finished run of the demo.

hansfree demo --quick --out hansfree-demo-quick
python docs/figures/draw.py hansfree-demo-quick docs/figures
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from torchvision.models import resnet18

import hansfree as hf

FROZEN, FIXED, TRAINED, DARK = "#cfd8dc", "#fff3c4", "#b2dfdb", "#263238"


def draw_cut() -> Figure:
    """Show the three parts of ResNet-18 at the paper's layer, with their sizes."""
    layer = "layer4.1.add"
    model, image = resnet18(num_classes=4).eval(), torch.zeros(2, 3, 224, 224)
    cut = hf.models.surgery.split(model, layer, example=image)
    with torch.no_grad():
        (at_layer, *_) = cut.trunk(image)
        (features, *_) = cut.phi(at_layer)
    total = sum(tensor.numel() for tensor in model.parameters())
    parts = [
        ("trunk", FROZEN, f"{total - cut.parameters_after:,}\nparameters,\nfrozen", "each image once"),
        ("φ", FIXED, "ReLU, mean,\nflatten:\nnothing to train", "each direction once"),
        ("head", TRAINED, f"{cut.parameters_after:,}\nparameters,\ntrained", "every method,\nstrength and epoch"),
    ]
    between = ["image", " x ".join(map(str, at_layer.shape[1:])), " x ".join(map(str, features.shape[1:])), "logits"]
    figure, axes = plt.subplots(figsize=(8, 2.9), layout="constrained")
    for place, (name, colour, text, below) in enumerate(parts):
        left = 1.0 + 2.6 * place
        axes.add_patch(FancyBboxPatch((left, 1), 1.6, 1.5, boxstyle="round,pad=0.05", fc=colour, ec=DARK))
        axes.text(left + 0.8, 2.2, name, ha="center", va="center", weight="bold", size=12)
        axes.text(left + 0.8, 1.5, text, ha="center", va="center", size=9)
        axes.text(left + 0.8, 0.8, below, ha="center", va="top", size=9, style="italic")
    for place, name in enumerate(between):
        left = 0.1 + 2.6 * place
        axes.annotate("", (left + 0.85, 1.75), (left - 0.05, 1.75), arrowprops={"arrowstyle": "->", "color": DARK})
        axes.text(left + 0.38, 1.88, name, ha="center", va="bottom", size=9)
    axes.annotate(
        f"cached here: {layer}", (3.05, 2.25), (3.05, 2.95), ha="center", size=9, arrowprops={"arrowstyle": "-"}
    )
    axes.set(xlim=(-0.1, 9.0), ylim=(0.1, 3.2))
    axes.axis("off")
    return figure


def draw_cavs() -> Figure:
    """Show why the difference of means is used: a filter turns away from a distractor that both groups share."""
    rng = np.random.default_rng(0)
    has_artifact = np.arange(400) % 2 == 0
    shift, distractor = np.array([2.0, 0.0]), np.array([1.0, 1.0])
    points = (
        0.35 * rng.normal(size=(400, 2)) + np.outer(has_artifact, shift) + np.outer(rng.normal(size=400), distractor)
    )
    figure, axes = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for label, colour, name in ((False, "#90a4ae", "without the artifact"), (True, "#ff8a65", "with the artifact")):
        axes.scatter(*points[has_artifact == label].T, s=9, color=colour, alpha=0.7, label=name)
    for cav, colour in ((hf.SignalCAV(), "#00695c"), (hf.RidgeCAV(), "#6a1b9a")):
        direction = cav.fit(points, has_artifact).direction_
        angle = np.degrees(np.arccos(direction @ shift / np.linalg.norm(shift)))
        legend = f"{cav.name}: {angle:.0f}° from the artifact's shift"
        axes.annotate("", 2.4 * direction, (0, 0), arrowprops={"arrowstyle": "-|>", "color": colour, "lw": 3})
        axes.plot([], [], color=colour, lw=3, label=legend)
    axes.set(xlabel="channel 1", ylabel="channel 2", ylim=(-4.2, 3.5))
    axes.set_aspect("equal")
    axes.legend(loc="lower right", fontsize=8)
    return figure


def draw_path(run: Path) -> Figure:
    """Show the validation accuracy of each strength of RR-ClArC, and the selected one."""
    with (run / "results.csv").open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["method"] == "rr-clarc" and row["split"] == "val"]
    last = max(int(row["epoch"]) for row in rows)
    rows = [row for row in rows if int(row["epoch"]) == last]
    figure, axes = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
    for metric, colour, name in (
        ("balanced_accuracy_clean", "#546e7a", "without the artifact"),
        ("balanced_accuracy_biased", "#00695c", "with the artifact"),
    ):
        points = sorted((float(row["strength"]), float(row["value"])) for row in rows if row["metric"] == metric)
        strengths, values = np.array(points).T
        is_finite = values > 0  # diverged heads score 0
        axes.plot(strengths[is_finite], 100 * values[is_finite], "o-", color=colour, ms=4, label=f"images {name}")
    axes.axvspan(strengths[~is_finite].min(), strengths.max(), color=FROZEN, label="diverged")
    (chosen,) = {float(row["strength"]) for row in rows if row["chosen"] == "1"}
    axes.axvline(chosen, color="#ff8a65", ls="--", label=f"selected: {chosen:g}")
    axes.set(xscale="log", ylim=(0, None), xlabel="strength of RR-ClArC", ylabel="balanced accuracy in %")
    axes.legend(fontsize=8)
    return figure


def main(run: Path, out: Path) -> None:
    """Write all figures."""
    out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"svg.hashsalt": "hansfree", "svg.fonttype": "path", "savefig.facecolor": "white"}):
        for name, figure in (("cut", draw_cut()), ("cavs", draw_cavs()), ("path", draw_path(run))):
            figure.savefig(out / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
