"""The doctor's one figure: the curve, the solvers' agreement, and the held-out scores."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import NullFormatter, NullLocator

from hansfree.doctor import LIMIT, Diagnosis
from hansfree.doctor.angles import TARGET
from hansfree.report.style import ALARM, BLUE, INK, VERMILION, WIDTH, Drawing, new_figure, quieten

_ARTIFACT, _CLEAN = VERMILION, BLUE  # hatched and plain, so that grey tells them too
_BINS = 30
_DARK = 0.6  # cosine from which on a cell is too dark for black words


def draw_diagnosis(diagnosis: Diagnosis) -> Drawing:
    """Draw how the error falls with more images, how the solvers agree, and where unseen images lie."""
    figure = new_figure(width=WIDTH, height=3.4)
    curve, agreement, scores = figure.subplots(1, 3, width_ratios=[1.15, 1.0, 1.25])
    _draw_curve(curve, diagnosis)
    _draw_agreement(agreement, diagnosis)
    _draw_scores(scores, diagnosis)
    points = "; ".join(f"{point.n} images: {point.angle:.0f} degrees" for point in diagnosis.curve)
    n_wrong = len(diagnosis.wrong_marks)
    return Drawing(
        "doctor",
        figure,
        f"Expected error of the {diagnosis.cav} direction by number of artifact images ({points}); cosines between the "
        f"solvers' directions; histograms of held-out scores with {n_wrong} marks that look wrong. "
        f"{diagnosis.verdict}",
        "Left: the expected angle to the direction of endless images (bars: 95 % of the repeats; "
        "line: one over the root of the number). Middle: cosines between solvers; signal and the filters need not "
        f"agree. Right: scores of images that the direction was not fitted on. {LIMIT}",
    )


def _draw_curve(axes: Axes, diagnosis: Diagnosis) -> None:
    quieten(axes)
    n = np.array([point.n for point in diagnosis.curve], dtype=np.float64)
    angle = np.array([point.angle for point in diagnosis.curve])
    low, high = np.array([point.interval for point in diagnosis.curve]).T
    # The middle of skewed repeats need not hold the angle of their mean cosine.
    reach = np.clip([angle - low, high - angle], 0.0, None)
    axes.errorbar(n, angle, yerr=reach, fmt="o", color=_CLEAN, elinewidth=1.4, markersize=5, zorder=3)
    needed = diagnosis.finding("images_needed").value
    last = max(n[-1], min(needed or n[-1], 20 * n[-1]))
    axes.set_xscale("log")
    axes.set_xlim(0.8 * n[0], 1.25 * last)
    if needed is not None:
        places = np.geomspace(n[0], last, 100)
        law = np.degrees(np.arctan(np.tan(np.radians(TARGET)) * np.sqrt(needed / places)))
        axes.plot(places, law, color=INK, linewidth=1.0, linestyle="--")
    axes.axhline(TARGET, color=ALARM, linewidth=1.0)
    axes.text(
        0.98, TARGET + 1, f"{TARGET:.0f}°", ha="right", color=ALARM, fontsize=8, transform=axes.get_yaxis_transform()
    )
    axes.set_ylim(0, max(30.0, min(92.0, 1.08 * high.max())))
    ticks = [int(place) for place in n[:-2]] + [int(n[-1])]  # the halves' would touch its neighbours
    ticks += [round(last)] if last > 1.5 * n[-1] else []
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("artifact images", color=INK)
    axes.set_ylabel("expected error (degrees)", color=INK)
    axes.set_title("How many images?", fontsize=10, color=INK)


def _draw_agreement(axes: Axes, diagnosis: Diagnosis) -> None:
    names, cosines = diagnosis.agreement.names, np.array(diagnosis.agreement.cosines)
    axes.imshow(cosines, vmin=-1, vmax=1, cmap="PuOr")
    for row, column in np.ndindex(*cosines.shape):
        value = cosines[row, column]
        colour = "white" if abs(value) > _DARK else "black"
        axes.text(column, row, f"{value:.2f}", ha="center", va="center", fontsize=8, color=colour)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right")
    axes.set_yticks(range(len(names)), names)
    axes.tick_params(colors=INK, labelsize=9, length=0)
    axes.spines[:].set_visible(False)
    axes.set_title("Solvers: cosines", fontsize=10, color=INK)


def _draw_scores(axes: Axes, diagnosis: Diagnosis) -> None:
    quieten(axes)
    scores, has_artifact = np.array(diagnosis.scores), np.array(diagnosis.has_artifact)
    edges = np.histogram_bin_edges(scores, bins=_BINS)
    kinds = (("clean", ~has_artifact, _CLEAN, ""), ("artifact", has_artifact, _ARTIFACT, "////"))
    for label, rows, colour, hatch in kinds:
        shares = np.full(int(rows.sum()), 1 / rows.sum())  # a few artifact images beside many clean ones must show
        axes.hist(
            scores[rows], edges.tolist(), weights=shares, color=colour, alpha=0.55, hatch=hatch, ec="white", label=label
        )
    top = axes.get_ylim()[1]
    for listed, colour, marker in ((False, _CLEAN, "v"), (True, _ARTIFACT, "^")):
        places = [mark.score for mark in diagnosis.wrong_marks if mark.has_artifact == listed]
        if places:
            label = f"listed {'with' if listed else 'without'} it, looks wrong"
            axes.scatter(places, [1.05 * top] * len(places), s=30, c=colour, marker=marker, ec="black", label=label)
    axes.axvline(0, ymax=0.75, color=INK, linewidth=0.8, linestyle=":")  # the legend is above
    axes.set_ylim(0, 1.5 * top)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.legend(loc="upper center", fontsize=7, frameon=False, ncols=2, columnspacing=1.0, handletextpad=0.5)
    axes.set_xlabel("held-out score (standard deviations)", color=INK)
    axes.set_ylabel("share of images", color=INK)
    found = diagnosis.finding("held_out_auc").value
    axes.set_title(f"Unseen images: AUC {found:.2f}", fontsize=10, color=INK)
