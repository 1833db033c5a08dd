"""NRGPT beside GPT and GPT_Rec_parallel at equal parameters, inference and training."""
from . import baselines
from .families import sure
from .section import AGREES, DISAGREES, IN_PART, NRGPT, UNKNOWN

SECONDS = 60
REFERENCE = "nrgpt"
SPREAD = 0.073 / 3.467  # of the paper's losses on OpenWebText: standard deviation over runs, of the mean


def measure(ctx):
    return baselines.measure(ctx, REFERENCE)


def section(results):
    return baselines.section(
        results, REFERENCE, "NRGPT is about as good as the recurrent transformer of its size",
        f"{NRGPT} reaches the loss of GPT_Rec_parallel, one transformer block applied T times, with about as many parameters, on Shakespeare and on OpenWebText "
        "(3.467 +- 0.073 against 3.454 +- 0.037 nats there, of 90M and 85M parameters); a GPT with layers of its own does better than both (2.921, of 124M).", _judge)


def _judge(results):
    told = {(family, matched): baselines.against(results, family, matched) for family in ("gpt-rec-parallel", "gpt") for matched in baselines.MATCHES}
    recurrent, layered = told["gpt-rec-parallel", "parameters"], told["gpt", "parameters"]
    found = f"Tiny NRGPTs and their baselines, {baselines.seeds(results, REFERENCE)}, trained for a minute each. NRGPT's loss less the other's, in nats a token: " + "; ".join(
        f"{baselines.NAMES[family]}: " + ", ".join(f"{baselines.said(told[family, matched])} at equal {matched}" for matched in baselines.MATCHES)
        for family in ("gpt-rec-parallel", "gpt")) + "."
    if recurrent is None:
        return found, UNKNOWN, "GPT_Rec_parallel of as many parameters is not there."
    share = recurrent["value"] / baselines.group(results, REFERENCE)["loss"]["value"]
    above = sure(recurrent, 1)
    verdict = (AGREES if share <= SPREAD else UNKNOWN) if not above else IN_PART if share <= SPREAD else DISAGREES
    return found, verdict, (
        "At equal parameters NRGPT's loss is " + ("not surely above" if not above else f"{share:.1%} above") + " GPT_Rec_parallel's"
        + (f", {'within' if share <= SPREAD else 'and more than'} the {SPREAD:.1%} by which the paper's own runs spread" if above else "")
        + (f"; it is {'below' if layered['value'] < 0 else 'above'} that of a GPT of as many parameters." if layered else "."))
