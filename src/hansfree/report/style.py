"""How every figure looks: one palette, one pair of quiet axes, no global state of matplotlib."""

from __future__ import annotations

from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from hansfree.cavs import CAV
from hansfree.corrections import Correction, split_name
from hansfree.results import CLEAN_TRAINED, ORIGINAL

# Okabe and Ito's palette: told apart with every common colour vision; markers or hatches say the same without colour.
ORANGE, PURPLE, GREEN, SKY = "#E69F00", "#CC79A7", "#009E73", "#56B4E9"
VERMILION, BLUE, YELLOW = "#D55E00", "#0072B2", "#F0E442"
# Several things of one kind, neither methods nor in an order.
KINDS = ((VERMILION, "o"), (BLUE, "s"), (GREEN, "^"), (PURPLE, "D"), (ORANGE, "v"), (SKY, "P"))
# Methods take colours in the order in which they are registered, the paper's first; as there are more markers than
# colours, the pairs differ for 56 methods.
_COLOURS = (ORANGE, PURPLE, GREEN, SKY, VERMILION, BLUE, YELLOW)
_MARKERS = ("s", "D", "^", "v", "o", "h", "p", "8")
# Along a further CAV a method keeps its colour, and the marker is the CAV's.
_CAV_MARKERS = ("<", ">", "d", "P", "X", "*")
_REFERENCES = {ORIGINAL: ("#000000", "X"), CLEAN_TRAINED: ("#777777", "P")}
OTHER_STYLE = (BLUE, "h")
INK, FAINT, ALARM = "#333333", "#DDDDDD", "#B00020"
WIDTH = 9.0  # inches; the page shows a figure at about 1000 px


def style_of(method: str) -> tuple[str, str]:
    """Return the colour and the marker of a method."""
    if method in _REFERENCES:
        return _REFERENCES[method]
    names, kinds, (own, cav) = list(Correction.members()), list(CAV.members()), split_name(method)
    if own not in names:
        return OTHER_STYLE
    place = names.index(own)
    marker = _MARKERS[place % len(_MARKERS)]
    if cav in kinds:
        marker = _CAV_MARKERS[kinds.index(cav) % len(_CAV_MARKERS)]
    return _COLOURS[place % len(_COLOURS)], marker


def drawn_order() -> list[str]:
    """Return the registered methods and the references in the order in which figures show them."""
    return [ORIGINAL, *Correction.members(), CLEAN_TRAINED]


@dataclass(frozen=True)
class Drawing:
    """A figure with the words that stand for it where it cannot be seen, and those below it."""

    name: str
    figure: Figure
    alt: str
    caption: str

    def renamed(self, name: str) -> Drawing:
        """Return the same drawing under another name, for several of one kind on a page."""
        return replace(self, name=name)


def new_figure(*, width: float = WIDTH, height: float) -> Figure:
    """Return an empty figure that draws to PNG without pyplot."""
    figure = Figure(figsize=(width, height), layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def quiet_axes(figure: Figure, *, rows: int = 1, columns: int = 1) -> list[Axes]:
    """Return panels, row after row, that share their y axis, with a faint grid and no box."""
    panels = list(figure.subplots(rows, columns, sharey=True, squeeze=False).flat)
    for axes in panels:
        quieten(axes)
    return panels


def quieten(axes: Axes) -> None:
    """Give a panel its faint grid and take its box away."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color("#888888")
    axes.tick_params(colors=INK, labelsize=9)
    axes.grid(color=FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def show_percent(*sides: Axis) -> None:
    """Write the ticks of shares in percent, at round numbers and with the digits that they need."""
    for side in sides:
        side.set_major_locator(MaxNLocator(nbins="auto", steps=[1, 2, 5, 10]))
        side.set_major_formatter(lambda share, _: f"{100 * share:.6g} %")
