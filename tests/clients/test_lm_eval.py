"""lm-evaluation-harness, its program as it is, against a server of one model: a generate-until task and a multiple-choice one,
each at two T named by the model. Its figures are those of `descent eval`, its log-likelihoods the engine's."""
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from serving import BINARY

HERE = Path(__file__).parent
DATA = HERE.parents[1] / "models" / "data"
TOKENS = 60  # of an answer at most, as `descent eval --match` has it

pytestmark = pytest.mark.slow


def evaluate(folder, server, model, task, batch, concurrent, *tokenizer):
    """(figures, samples) of one run of the program in `folder`, where the task's items lie. No hub is asked for anything."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(folder / "hub"),
           "TOKENIZERS_PARALLELISM": "false"}
    arguments = (f"model={model}", f"base_url={server.url}/v1/completions", "max_length=512", f"num_concurrent={concurrent}")
    command = [Path(sys.executable).with_name("lm-eval"), "run", "--model", "local-completions", "--model_args",
               ",".join([*arguments, *tokenizer]), "--batch_size", batch, "--tasks", task, "--include_path", HERE / "tasks",
               "--output_path", folder / "out", "--log_samples"]
    done = subprocess.run([str(word) for word in command], cwd=folder, env=env, text=True, timeout=500,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout[-4000:]
    assert "Using remote tokenizer from" in done.stdout, done.stdout
    results, = (folder / "out").rglob("results_*.json")
    samples, = (folder / "out").rglob(f"samples_{task}_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    return json.loads(results.read_text())["results"][task], sorted(rows, key=lambda row: row["doc_id"])


def write_items(path, items):
    path.write_text("".join(json.dumps(item) + "\n" for item in items))


@pytest.mark.parametrize("steps, batch, concurrent", [(3, 20, 1), (2, 5, 4)])
def test_generate_until(tmp_path, model_paths, serve, engine, steps, batch, concurrent):
    lines = (DATA / "nrgpt-listops.eval.tsv").read_text().splitlines()[:120]
    (tmp_path / "lines.tsv").write_text("\n".join(lines) + "\n")
    write_items(tmp_path / "listops.jsonl", [dict(zip(("prompt", "answer"), line.split("\t"), strict=True)) for line in lines])
    path = model_paths["nrgpt-listops"]
    # Left to itself it would look whether the word "test" has tokens; this vocabulary has none for it.
    figures, samples = evaluate(tmp_path, serve([path]), f"nrgpt-listops@{steps}", "descent_listops", batch, concurrent,
                                "tokenizer_backend=remote")

    told = subprocess.run([BINARY, "eval", path, "--match", tmp_path / "lines.tsv", "--steps", str(steps), "--json"],
                          check=True, capture_output=True, text=True)
    own, = json.loads(told.stdout)["results"]
    assert round(figures["exact_match,last"] * len(lines)) == own["right"]
    assert 0 < own["right"] < len(lines)

    model = engine("nrgpt-listops")
    for line, sample in zip(lines, samples, strict=True):
        prompt = line.split("\t")[0]
        assert sample["resps"][0][0] == "".join(model.generate(prompt, steps=steps, max_tokens=TOKENS, temperature=0))


def continuations(text):
    """Items of four choices from running text: a context, what follows it, and what follows three others."""
    words = text.split(" ")
    places = [40 * n for n in range(2, 26)]
    rests = [" " + " ".join(words[p:p + 5]) for p in places]
    for n, place in enumerate(places):
        choices = [rests[n], *(rests[(n + 7 * k) % len(rests)] for k in (1, 2, 3))]
        gold = n % 4
        choices[0], choices[gold] = choices[gold], choices[0]
        yield {"context": " ".join(words[place - 20:place]), "choices": choices, "gold": gold}


def loglikelihood(model, steps, context, continuation):
    """(sum of log-softmax over the continuation's tokens, whether each is the likeliest), from the engine's logits."""
    ids, start = model.encode(context + continuation), len(model.encode(context))
    logits = model.logits(ids, steps=steps).astype(np.float64)[start - 1:-1]
    largest = logits.max(-1, keepdims=True)
    logprobs = logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))
    chosen = np.array([row[token] for row, token in zip(logprobs, ids[start:], strict=True)])
    return chosen.sum(), bool((chosen == logprobs.max(-1)).all())


@pytest.mark.parametrize("steps", ["2x2", "4x1"])
def test_multiple_choice(tmp_path, model_paths, serve, engine, steps):
    path, model = model_paths["cem-kjv"], engine("cem-kjv")
    items = list(continuations((DATA / "cem-kjv.val.txt").read_text()))
    write_items(tmp_path / "continuations.jsonl", items)
    server = serve([path], "--page-type", "f32")
    figures, samples = evaluate(tmp_path, server, f"cem-kjv@{steps}", "descent_continuations", 8, 1)

    right = 0
    for item, sample in zip(items, samples, strict=True):
        expected = [loglikelihood(model, steps, item["context"], choice) for choice in item["choices"]]
        assert len(sample["filtered_resps"]) == 4
        for (found, greedy), (logprob, likeliest) in zip(sample["filtered_resps"], expected, strict=True):
            assert float(found) == pytest.approx(logprob, abs=1e-4)
            assert str(greedy) == str(likeliest)
        right += int(np.argmax([logprob for logprob, _ in expected])) == item["gold"]
    assert round(figures["acc,none"] * len(items)) == right
    assert 0 < right < len(items)
