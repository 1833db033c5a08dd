"""What a claim's module gives the page: a Section, with tables and a figure. page.py writes it as Markdown, plot.py has the style
of figures.
"""
from dataclasses import dataclass, field
from typing import Callable, Optional, Sequence

AGREES, IN_PART, DISAGREES, UNKNOWN = "agrees", "agrees in part", "disagrees", "cannot tell"
VERDICTS = (AGREES, IN_PART, DISAGREES, UNKNOWN)
NRGPT, CEM = "NRGPT (arXiv 2512.16762)", "CEM (arXiv 2605.07588)"


@dataclass(frozen=True)
class Table:
    """Cells are text. Rows of one table are of one kind: what is compared is measured on the same data in the same way."""
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""  # a line above it

    def __post_init__(self):
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"a row of {len(row)} cells in a table of {len(self.columns)} columns: {row}")


@dataclass(frozen=True)
class Section:
    """Texts are Markdown. `draw` returns a matplotlib figure that can be read alone: title, axes with units, intervals."""
    title: str  # the claim, a few words
    paper: str  # what the paper found or says; a number only where it is the paper's own
    found: str  # what we found, in plain words
    verdict: str  # one of VERDICTS
    why: str  # one sentence: what decides the verdict
    tables: Sequence[Table] = ()
    draw: Optional[Callable] = None
    alt: str = ""  # what the figure shows, for who does not see it
    missing: Sequence[str] = field(default=())  # runs that are not there
    elsewhere: Sequence[tuple] = field(default=())  # (document beside the page, Table): shown there too, between marks of the claim's name
    notes: Sequence[str] = field(default=())  # what else one should know: how it was measured, what bounds it

    def __post_init__(self):
        if self.verdict not in VERDICTS:
            raise ValueError(f"verdict is {self.verdict!r}, expected one of {', '.join(VERDICTS)}")
        if self.draw and not self.alt:
            raise ValueError(f"the figure of {self.title!r} has no text for who does not see it")


# ---- Numbers as the page writes them ------------------------------------------------------------------------------------------

def interval(low, high, form=".4f"):
    """95% interval as a cell."""
    return "" if low is None or high is None else f"{low:{form}} to {high:{form}}"


def count(number):
    return f"{number:,}"


def joined(names, word="and"):
    """a, b and c."""
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}" if names else "none"


def pair(steps):
    """A depth of JSON, 4 or "3x2", as (attention, MLP)."""
    attention, _, mlp = str(steps).partition("x")
    return int(attention), int(mlp or attention)


def steps_label(steps):
    """A depth of a model with two kinds as the page writes it: 2x2 also for what JSON has as 2."""
    return "{}x{}".format(*pair(steps))
