"""What each weight type costs the shipped models: writes them in every type with `descent quantize`, reads them beside the
original with `descent eval --against`, and puts the tables into docs/quantize.md, between its marks.

    python3 tools/quantize_table.py
    python3 tools/quantize_table.py --models cem-kjv --characters 20000 --print

The text is the beginning of models/data/MODEL.val.txt; of the ListOps models it is worked chains of their test items, whose
exact match at the trained T is counted as well.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools/train"))
from descent_train import listops  # noqa: E402
from marks import put_between  # noqa: E402

MODELS = {  # the depths: 1, the trained one, twice that
    "nrgpt-shakespeare": (1, 4, 8),
    "nrgpt-listops": (1, 5, 10),
    "nrgpt-listops-30k": (1, 5, 10),
    "nrgpt-listops-scalar": (1, 5, 10),
    "cem-kjv": (1, 2, 4),
}
TYPES = {
    "F16": ["--type", "F16"],
    "BF16": ["--type", "BF16"],
    "Q8_0": ["--type", "Q8_0"],
    "Q8_0, row": ["--type", "Q8_0", "--scales", "row"],
    "Q6_K": ["--type", "Q6_K"],
    "Q4_K": ["--type", "Q4_K"],
    "Q4_0": ["--type", "Q4_0"],
    "Q4_0, tile": ["--type", "Q4_0", "--scales", "tile"],
    "Q4_K, rate too": ["--type", "Q4_K", "--tensor", "blk.0.rate.weight=Q4_K"],
    "Q4_K, importance": ["--type", "Q4_K", "--importance"],
}


def run(*command):
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def texts(name, characters, folder):
    """(file to read, file for importance, which has nothing of it; exact-match file or None)."""
    data = ROOT / "models/data"
    read, other = folder / f"{name}.read", folder / f"{name}.other"
    if "listops" in name:
        items = listops.read_items(data / f"{name}.eval.tsv")
        chains = [listops.VOCAB.decode(listops.chain(item.prompt[:-1])) for item in items]
        shown = next(i for i in range(len(chains)) if sum(map(len, chains[:i])) >= 2 * characters)
        read.write_text(",".join(chains[:shown]))
        other.write_text(",".join(chains[shown:2 * shown]))
        return read, other, data / f"{name}.eval.tsv"
    text = (data / f"{name}.val.txt").read_text(encoding="utf-8")
    read.write_text(text[:characters], encoding="utf-8")
    other.write_text(text[characters:characters + characters // 2], encoding="utf-8")
    return read, other, None


def measure(descent, model, original, read, match, steps):
    """One row: bytes, and for each depth (loss, KL, agreement); exact match at the trained depth or None."""
    listed = ",".join(map(str, steps))
    found = run(descent, "eval", model, "--file", read, "--against", original, "--steps", listed, "--parse-special",
                "--json")["results"]
    exact = None
    if match:
        exact = run(descent, "eval", model, "--match", match, "--steps", steps[1], "--json")["results"][0]["exact_match"]
    return model.stat().st_size, [(r["loss"], r["kl"], r["agreement"]) for r in found], exact


def table(descent, name, characters, folder):
    original, steps = ROOT / "models" / f"{name}.gguf", MODELS[name]
    read, other, match = texts(name, characters, folder)
    rate = run(descent, "info", original, "--json")["variant"].endswith("matrix rate")
    rows = [("F32", *measure(descent, original, original, read, match, steps))]
    predictions = run(descent, "eval", original, "--file", read, "--steps", "1", "--parse-special",
                      "--json")["results"][0]["predictions"]
    for label, options in TYPES.items():
        if "rate" in label and not rate:
            continue
        print(f"{name}: {label}", file=sys.stderr)
        out = folder / "model.gguf"
        run(descent, "quantize", original, out, *options, *([other] if "importance" in label else []), "--force", "--json")
        rows.append((label, *measure(descent, out, original, read, match, steps)))
    head = ["type", "bytes", "of F32"] + [f"{what}, T = {t}" for t in steps for what in ("loss", "KL", "same token")]
    head += [f"exact match, T = {steps[1]}"] if match else []
    lines = [f"### {name}", "", f"{predictions:,} predictions.", "", f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for label, size, depths, exact in rows:
        cells = [label, f"{size:,}", f"{size / rows[0][1]:.3f}"]
        for loss, kl, agreement in depths:
            cells += [f"{loss:.4f}", f"{kl:.2g}" if label != "F32" else "", f"{agreement:.2%}" if label != "F32" else ""]
        cells += [f"{exact:.3f}"] if match else []
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--descent", type=Path, default=ROOT / "build/release/descent", metavar="PROGRAM",
                        help="build/release/descent by default")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="all by default")
    parser.add_argument("--characters", type=int, default=12000,
                        help="of a text that is read, twice as many of worked chains")
    parser.add_argument("--print", action="store_true", help="write the tables to standard output instead")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/quantize.md", help="the page that they are put into")
    arguments = parser.parse_args()
    if not arguments.descent.is_file():
        parser.error(f"{arguments.descent} is not there: build it first, or name it with --descent")
    with tempfile.TemporaryDirectory() as folder:
        tables = "\n".join(table(arguments.descent, name, arguments.characters, Path(folder)) for name in arguments.models)
    if arguments.print:
        print(tables)
        return
    put_between(arguments.out, "quantize", "\n" + tables + "\n")


if __name__ == "__main__":
    main()
