"""The papers' claims, measured: what tools/science.py runs. A module a claim, in the order of CLAIMS; the rest is what they share.

A claim's module has

    SECONDS = 40                        # about what measuring takes on two quiet cores, for the progress line
    def measure(ctx): -> dict           # every number behind the section, as JSON has them. `ctx` is a context.Context
    def section(results): -> Section    # the page's section, from these numbers alone (section.Section)

`measure` asks the product's own tools (ctx.run: `descent scale --json` and its like; ctx.open: the Python module), whose answers are
kept in --work, by what the model's file holds and what was asked. It computes nothing of a model itself.

`section` sees only what `measure` returned, read back from docs/science/results.json: so the page can be rendered
again without measuring, and cannot say what the numbers do not. Its verdict is computed from them too.

Models that are not there (models/science may hold some of its runs, or none) are named in `Section.missing`; a section says what can be
said without them.
"""

PARTS = {  # the page's parts, and the claims of each by the names of their modules
    "What T buys": (
        "shakespeare",
        "listops",
        "grid",
        "fixed",
        "exits",
    ),
    "What a descent does": (
        "energy",
        "guesses",
        "rank",
        "paths",
    ),
    "Choosing, and smaller numbers": (
        "choose",
        "samples",
        "quantization",
    ),
    "Beside other models": (
        "cost",
        "nrgpt_baselines",
        "cem_baselines",
        "variants",
        "gap",
    ),
}
CLAIMS = tuple(name for names in PARTS.values() for name in names)
