"""What the history policies and prompt_steps cost the shipped models and what they save: loss or exact answers, memory of a
token, and speed, as tables put into docs/depth.md, between its marks.

    python3 tools/history_table.py
    python3 tools/history_table.py --models nrgpt-listops --print

Of a text the first half of each window of the model's context is the prompt; the loss is that of the tokens behind it. Of
questions a prompt is a prompt. Bytes are what the cache holds of the text, pages of f32. Reading is the prompt's tokens a second,
in one batch, writing those generated one text at a time, the shortest time of several; they are ratios of one machine.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
MODELS = {"nrgpt-shakespeare": 4, "nrgpt-listops": 5}  # the trained T
MARKS = "<!-- tables, by tools/history_table.py -->\n", "<!-- end of the tables -->\n"
TEXTS = 16  # that are read side by side


def settings(trained):
    """(history, T, prompt_steps or None): what is asked."""
    more, fewer = 2 * trained, trained // 2
    return [("own", trained, None), ("last", trained, None), ("latest", trained, fewer), ("last", trained, fewer),
            ("own", more, None), ("last", more, None), ("latest", more, trained), ("last", more, trained)]


def asked(history, steps, prompt_steps):
    return ["--steps", str(steps), "--history", history] + (["--prompt-steps", str(prompt_steps)] if prompt_steps else [])


def run(*command):
    done = subprocess.run([str(part) for part in command], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def negative_log_likelihood(logits, tokens):
    wide = logits.astype(np.float64)
    largest = wide.max(axis=1)
    return np.log(np.exp(wide - largest[:, None]).sum(axis=1)) + largest - wide[np.arange(len(tokens)), tokens]


def sequences(cache, how, texts, prompt):
    history, steps, prompt_steps = how
    made = []
    for text in texts:
        made.append(cache.sequence(steps, sharing=False, history=history, prompt_steps=prompt_steps, prompt=prompt - 1))
        made[-1].append(text)
    return made


def advance(batch, made):
    """All of them to their ends, side by side."""
    while any(sequence.finished < len(sequence) for sequence in made):
        for sequence in made:
            batch.add(sequence)
        batch.step()


def loss_of(model, how, windows, prompt):
    """(mean loss of what follows the prompts, bytes a token)"""
    nats, tokens, size = 0.0, 0, 0
    for window in windows:
        cache = model.cache(threads=1)
        [sequence] = sequences(cache, how, [window[:-1]], prompt)
        logits = sequence.logits(range(prompt - 1, len(window) - 1))
        nats += negative_log_likelihood(logits, window[prompt:]).sum()
        tokens += len(window) - prompt
        size = cache.usage["bytes"] / len(sequence)
    return nats / tokens, size


def reading(model, how, prompts, side_by_side, repeats):
    """Tokens a second of prompts, so many at once."""
    best = float("inf")
    count = sum(len(text) for text in prompts[:side_by_side])
    for _ in range(repeats):
        cache = model.cache(threads=1)
        made = sequences(cache, how, prompts[:side_by_side], min(len(text) for text in prompts[:side_by_side]))
        batch = cache.batch(threads=1)
        began = time.perf_counter()
        advance(batch, made)
        best = min(best, time.perf_counter() - began)
    return count / best


def writing(program, path, how, prompt, repeats):
    """Tokens a second of one text, as the program does it by itself."""
    command = [program, "run", path, prompt, "-n", 128, "-t", 1, "--temperature", 0, "--ignore-eos", "--json", *asked(*how)]
    done = [run(*command) for _ in range(repeats)]
    return max(len(one["tokens"]) / one["timings"]["generation_seconds"] for one in done)


def lines_of(head, rows):
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"] + [f"| {' | '.join(row)} |" for row in rows]


def table(descent, options, name):
    path, data, trained = ROOT / "models" / f"{name}.gguf", ROOT / "models/data", MODELS[name]
    rows = []
    with descent.Model(path) as model:
        context = model.info.context
        if "listops" in name:
            questions = data / f"{name}.eval.tsv"
            texts = [line.split("\t")[0] for line in questions.read_text().splitlines()]
            prompts = [model.encode(text) for text in texts[:TEXTS]]
            few = options.folder / "questions.tsv"
            few.write_text("\n".join(questions.read_text().splitlines()[:options.questions]) + "\n")
            measured, shown = "right", texts[0]
        else:
            text = (data / f"{name}.val.txt").read_text(encoding="utf-8")
            ids = model.encode(text[:options.windows * context + 1])
            windows = [ids[begin:begin + context + 1] for begin in range(0, len(ids) - context, context)]
            prompts = [window[:context // 2] for window in windows[:TEXTS]]
            measured, shown = "loss", text[:context // 2]
        for how in settings(trained):
            print(f"{name}: {' '.join(map(str, how))}", file=sys.stderr)
            if measured == "loss":
                value, size = loss_of(model, how, windows, context // 2)
                value = f"{value:.4f}"
            else:
                found = run(options.descent, "eval", path, "--match", few, "--json", *asked(*how))["results"][0]
                value = f"{found['exact_match']:.1%}"
                whole = [np.resize(prompts[0], context)]
                cache = model.cache(threads=1)
                [sequence] = sequences(cache, how, whole, context // 2)
                sequence.finish()
                size = cache.usage["bytes"] / context
            speeds = [reading(model, how, prompts, n, options.repeats) for n in (1, TEXTS)]
            speeds.append(writing(options.descent, path, how, shown, options.repeats))
            history, steps, prompt_steps = how
            rows.append([f"`{history}`", str(steps), str(prompt_steps or steps), value, f"{size:,.0f}",
                         *(f"{speed:,.0f}" for speed in speeds)])
    head = ["history", "T", "T of the prompt", measured, "bytes a token", "reading, tokens/s", f"of {TEXTS} texts", "writing, tokens/s"]
    return "\n".join([f"**{name}**", "", *lines_of(head, rows)]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--descent", type=Path, default=ROOT / "build/release/descent", metavar="PROGRAM",
                        help="build/release/descent by default, the library beside it")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), help="all by default")
    parser.add_argument("--windows", type=int, default=32, help="of a text that are measured")
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=5, help="of what is timed")
    parser.add_argument("--print", action="store_true", help="write the tables to standard output instead")
    parser.add_argument("--out", type=Path, default=ROOT / "docs/depth.md", help="the page that they are put into")
    options = parser.parse_args()
    if not options.descent.is_file():
        parser.error(f"{options.descent} is not there: build it first, or name it with --descent")
    os.environ.setdefault("DESCENT_LIBRARY", str(options.descent.parent / "libdescent.so"))
    sys.path.insert(0, str(ROOT / "tools/python"))
    import descent
    import tempfile
    with tempfile.TemporaryDirectory() as folder:
        options.folder = Path(folder)
        tables = "\n".join(table(descent, options, name) for name in options.models)
    if options.print:
        print(tables)
        return
    page = options.out.read_text(encoding="utf-8")
    before, rest = page.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    options.out.write_text(before + MARKS[0] + "\n" + tables + "\n" + MARKS[1] + after, encoding="utf-8")


if __name__ == "__main__":
    main()
