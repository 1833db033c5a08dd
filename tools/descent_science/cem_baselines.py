"""CEM beside Llama layers and the two hybrids at equal parameters, inference and training."""
from . import baselines
from .families import sure
from .section import AGREES, CEM, DISAGREES, IN_PART, UNKNOWN, joined

SECONDS = 60
REFERENCE = "cem"
OTHERS = ("llama", "cem-swiglu", "llama-cem")


def measure(ctx):
    return baselines.measure(ctx, REFERENCE)


def section(results):
    return baselines.section(
        results, REFERENCE, "CEM's tied layers match a transformer's",
        f"{CEM} reports that layers derived from its energies, with half the matrices tied, train stably and can match the corresponding transformer at about "
        "1e8 parameters; a public summary adds that its attention comes close to Llama's with about half the parameters.", _judge)


def _judge(results):
    told = {(family, matched): baselines.against(results, family, matched) for family in OTHERS for matched in baselines.MATCHES}
    found = f"Tiny CEMs and their baselines, {baselines.seeds(results, REFERENCE)}, trained for a minute each. CEM's loss less the other's, in nats a token: " + "; ".join(
        f"{baselines.NAMES[family]}: " + ", ".join(f"{baselines.said(told[family, matched])} at equal {matched}" for matched in baselines.MATCHES)
        for family in OTHERS) + "."
    plain = {matched: told["llama", matched] for matched in baselines.MATCHES if told["llama", matched]}
    if not plain:
        return found, UNKNOWN, "No Llama is there to compare with."
    close = 0.01 * baselines.group(results, REFERENCE)["loss"]["value"]
    matches = [name for name, d in plain.items() if d["value"] <= close or sure(d, -1)]
    verdict = AGREES if len(matches) == len(plain) else IN_PART if matches else DISAGREES
    behind = [name for name in plain if name not in matches]
    return found, verdict, (f"At equal {joined(matches)} CEM is within 1% of Llama's loss or below it" if matches else "CEM is more than 1% above Llama's loss") + (
        f"; at equal {joined(behind)} it is above." if matches and behind else ".")
