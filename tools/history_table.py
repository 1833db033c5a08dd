"""What the history policies and prompt_steps cost the shipped models and what they save: loss or exact answers, memory of a
token, and speed, as tables put into docs/depth.md, between its marks.

    .venv/bin/python tools/history_table.py
    .venv/bin/python tools/history_table.py --models nrgpt-listops --print

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

from marks import put_between

ROOT = Path(__file__).resolve().parents[1]
MODELS = {"nrgpt-shakespeare": 4, "nrgpt-listops": 5}  # the trained T
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


def reading(model, how, prompts):
    """Tokens a second of prompts, all of them at once."""
    cache = model.cache(threads=1)
    made = sequences(cache, how, prompts, min(map(len, prompts)))
    batch = cache.batch(threads=1)
    began = time.perf_counter()
    advance(batch, made)
    return sum(map(len, prompts)) / (time.perf_counter() - began)


def writing(program, path, how, prompt):
    """Tokens a second of one text, as the program does it by itself."""
    done = run(program, "run", path, prompt, "-n", 128, "-t", 1, "--temperature", 0, "--ignore-eos", "--json", *asked(*how))
    return len(done["tokens"]) / done["timings"]["generation_seconds"]


def speeds_of(model, program, path, settings, prompts, shown, repeats):
    """For each setting tokens a second of reading one, reading all and writing: the best of so many, which are taken in turns, so
    that what else the machine does is spread over all."""
    best = [[0.0, 0.0, 0.0] for _ in settings]
    for _ in range(repeats):
        for of, how in zip(best, settings):
            found = reading(model, how, prompts[:1]), reading(model, how, prompts), writing(program, path, how, shown)
            of[:] = map(max, of, found)
    return best


def lines_of(head, rows):
    return [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"] + [f"| {' | '.join(row)} |" for row in rows]


def text_of(model, name, count):
    """(prompts to read, one to write behind, what gives the loss of a setting and the bytes of a token)"""
    context = model.info.context
    text = (ROOT / f"models/data/{name}.val.txt").read_text(encoding="utf-8")
    ids = model.encode(text[:count * context + 1])
    windows = [ids[begin:begin + context + 1] for begin in range(0, len(ids) - context, context)]

    def measure(how):
        loss, size = loss_of(model, how, windows, context // 2)
        return f"{loss:.4f}", size

    return [window[:context // 2] for window in windows[:TEXTS]], text[:context // 2], measure


def questions_of(model, name, count, descent, folder):
    """The same of answers to questions."""
    lines = (ROOT / f"models/data/{name}.eval.tsv").read_text().splitlines()
    few = folder / "questions.tsv"
    few.write_text("\n".join(lines[:count]) + "\n")
    texts = [line.split("\t")[0] for line in lines[:TEXTS]]
    prompts = [model.encode(text) for text in texts]

    def measure(how):
        found = run(descent, "eval", ROOT / f"models/{name}.gguf", "--match", few, "--json", *asked(*how))["results"][0]
        cache = model.cache(threads=1)
        [sequence] = sequences(cache, how, [np.resize(prompts[0], model.info.context)], model.info.context // 2)
        sequence.finish()
        return f"{found['exact_match']:.1%}", cache.usage["bytes"] / len(sequence)

    return prompts, texts[0], measure


def table(descent, options, name):
    path, asks = ROOT / f"models/{name}.gguf", settings(MODELS[name])
    print(name, file=sys.stderr)
    with descent.Model(path) as model:
        if "listops" in name:
            prompts, shown, measure = questions_of(model, name, options.questions, options.descent, options.folder)
        else:
            prompts, shown, measure = text_of(model, name, options.windows)
        values = [measure(how) for how in asks]
        speeds = speeds_of(model, options.descent, path, asks, prompts, shown, options.repeats)
    rows = [[f"`{history}`", str(steps), str(prompt_steps or steps), value, f"{size:,.0f}", *(f"{speed:,.0f}" for speed in of)]
            for (history, steps, prompt_steps), (value, size), of in zip(asks, values, speeds)]
    head = ["history", "T", "T of the prompt", "right" if "listops" in name else "loss", "bytes a token", "reading, tokens/s",
            f"of {len(prompts)} texts", "writing, tokens/s"]
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
    put_between(options.out, "history", "\n" + tables + "\n")


if __name__ == "__main__":
    main()
