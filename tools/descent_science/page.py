"""docs/science.md as Markdown, from the sections: what was measured when and on what, a table of all verdicts, the sections, and what is
out of scope.
"""
import textwrap

from marks import put_between

from . import PARTS
from .context import ScienceError
from .section import joined

INTRODUCTION = """Two papers propose the models this server runs: NRGPT (arXiv 2512.16762) and CEM (arXiv 2605.07588). This page takes
what they say of them, one claim at a time, to the small models that ship here, and says whether it holds. Each section has what the
paper found, what we found with its numbers and 95% intervals, and a verdict that is computed from these numbers.
An interval is of the data: other windows or questions might have given what it spans. What training again would change is told only where there
are several seeds. And each is by itself: of forty comparisons of equals two leave out 0 by chance.

The models here have up to a few million parameters and were trained in minutes on a processor; the papers' have up to hundreds of
millions. What agrees here is seen again at small size; what does not need not be wrong at theirs. What a paper
says is taken from its abstract and from public summaries of it; its own figures stand here only where we have them, otherwise it is
given in words."""

OUT_OF_SCOPE = """* **Gaussian-process regression** (CEM): a regression on real-valued inputs with models that read no tokens. This server runs language
  models: its inputs are token ids, its outputs the next token's distribution, and it has no model of that kind to run.
* **MMLU and other benchmarks of knowledge**: they tell models apart that have read a good part of the web. Models of these sizes answer
  them at chance, so they would say nothing of T. `descent scale --records` runs such questions on a model that is large enough, and
  lm-evaluation-harness runs against the server (docs/serving.md)."""


def _paragraphs(text):
    """Wrapped at the width of the other documents, paragraph by paragraph."""
    return "\n\n".join(textwrap.fill(" ".join(part.split()), 140, break_long_words=False, break_on_hyphens=False)
                       for part in text.strip().split("\n\n"))


def _table(table):
    lines = [f"| {' | '.join(table.columns)} |", f"|{'---|' * len(table.columns)}"]
    lines += [f"| {' | '.join(row)} |" for row in table.rows]
    return ([f"{table.title}:", ""] if table.title else []) + lines + [""]


def put(path, name, table):
    """Writes a table into a document, between its lines `<!-- science: NAME -->` and `<!-- /science: NAME -->`."""
    try:
        put_between(path, f"science: {name}", "\n".join(["", *_table(table), ""]))
    except ValueError as wrong:
        raise ScienceError(str(wrong)) from None


def _section(number, name, section, folder):
    lines = [f"### {number}. {section.title}", "", _paragraphs(f"**The paper.** {section.paper}"), "",
             _paragraphs(f"**Here.** {section.found}"), ""]
    if section.draw:
        lines += [f"![{section.alt}]({folder}/{name}.svg)", ""]
    for table in section.tables:
        lines += _table(table)
    lines += [_paragraphs(f"**Verdict: {section.verdict}.** {section.why}"), ""]
    if section.missing:
        lines += [_paragraphs(f"*Not there yet: {joined(section.missing)}.*"), ""]
    for note in section.notes:
        lines += [_paragraphs(note), ""]
    return lines


def _measured(told, folder):
    """One paragraph: with what, when, how much of it."""
    begin, end = min(one["from"] for one in told["measured"].values()), max(one["to"] for one in told["measured"].values())
    period = begin if begin == end else f"{begin} to {end}"
    text = f"Measured {period} with `{told['version']}` on {told['machine']}, by"
    quick = "\n\n**A quick run: little of everything was measured, so intervals are wide.**" if told["quick"] else ""
    return (f"{_paragraphs(text)}\n\n    .venv/bin/python tools/science.py --descent build/release/descent\n\n" + _paragraphs(
        f"Every number behind it is in [{folder}/results.json]({folder}/results.json); the command makes page, pictures and numbers anew.") +
        quick)


def render(told, sections, folder="science"):
    """told: docs/science/results.json. sections: {name: Section} of the claims in it. folder: that of results.json and the pictures, from
    the page."""
    lines = ["# Do the papers' claims hold?", "", _paragraphs(INTRODUCTION), "", _measured(told, folder), "", "| | claim | verdict |", "|---|---|---|"]
    numbers = {name: i + 1 for i, name in enumerate(name for names in PARTS.values() for name in names if name in sections)}
    for name, number in numbers.items():
        lines.append(f"| {number} | {sections[name].title} | {sections[name].verdict} |")
    lines.append("")
    for part, names in PARTS.items():
        there = [name for name in names if name in sections]
        lines += [f"## {part}", ""] if there else []
        for name in there:
            lines += _section(numbers[name], name, sections[name], folder)
    return "\n".join([*lines, "## Out of scope", "", OUT_OF_SCOPE, ""])
