"""How the page's figures look: one style, in the colours of tools/plot_motion.py, text that stays text in the SVG, and the same bytes for
the same numbers.
"""
import math

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib import ticker  # noqa: E402
from plot_motion import COLOURS  # noqa: E402

MARKERS = "os^Dv<>Ph*"

plt.rcParams.update({
    "svg.fonttype": "none", "svg.hashsalt": "descent", "font.family": "sans-serif", "font.size": 10, "axes.titlesize": 11,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "grid.color": "#dddddd", "grid.linewidth": 0.8, "axes.axisbelow": True, "legend.frameon": False,
    "legend.fontsize": 9, "figure.facecolor": "white", "lines.linewidth": 1.8, "lines.markersize": 4.5,
    "axes.prop_cycle": plt.cycler(color=COLOURS),
})


def panels(titles, width=7.2, height=3.9, columns=None, share_y=False):
    """A figure with a panel for each title, side by side or in so many columns: (figure, list of axes)."""
    columns = columns or len(titles)
    rows = math.ceil(len(titles) / columns)
    figure, grid = plt.subplots(rows, columns, figsize=(width, height * rows), squeeze=False, sharey=share_y)
    axes = list(grid.flat)
    for one, title in zip(axes, titles):
        one.set_title(title)
    for one in axes[len(titles):]:
        one.set_visible(False)
    return figure, axes


def curve(axes, xs, ys, lows=None, highs=None, label=None, which=0, line="-", **more):
    """Points with their 95% intervals, joined by a line (line="" for points alone); `which` chooses colour and marker."""
    colour = COLOURS[which % len(COLOURS)]
    style = {"color": colour, "marker": MARKERS[which % len(MARKERS)], "label": label, **more}
    bars = None
    if lows is not None and None not in lows:
        bars = [[max(0, y - low) for y, low in zip(ys, lows)], [max(0, high - y) for y, high in zip(ys, highs)]]
    axes.errorbar(xs, ys, yerr=bars, linestyle=line or "none", elinewidth=1.2, capsize=2, **style)


def depths(axes, steps):
    """T along the x axis, in powers of two, a tick at each."""
    axes.set_xscale("log", base=2)
    axes.set_xticks(steps, [f"{t:g}" for t in steps])
    axes.minorticks_off()
    axes.set_xlabel("T, recursion steps")


def logarithmic(axis):
    """A logarithmic axis (axes.xaxis or axes.yaxis) with plain numbers at 1, 2 and 5 of each decade."""
    scale = axis.axes.set_xscale if axis.axis_name == "x" else axis.axes.set_yscale
    scale("log")
    axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(ticker.NullFormatter())
    axis.set_minor_locator(ticker.NullLocator())


def trained(axes, low, high=None):
    """Shades the depths a model was trained over."""
    axes.axvspan(low, high or low, color="#b35900", alpha=0.12, lw=0 if high else 2)
    axes.text(low, 0.01, " trained at", color="#b35900", fontsize=8, transform=axes.get_xaxis_transform(), va="bottom")


def save(figure, path):
    figure.tight_layout()
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    plt.close(figure)
    # Matplotlib leaves blanks at ends of lines.
    text = path.read_text(encoding="utf-8")
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n", encoding="utf-8")
