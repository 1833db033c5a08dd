"""The figures of a compute-scaling study, from a running server: cells of a notebook (`# %%`), or a script.

    tools/start.sh                                            # in another terminal: serves the models that ship
    python3 tools/examples/figures.py models/data figures/     # needs the packages openai and matplotlib

1 what T buys: loss against T, with 95% intervals      2 exact match against T, on ListOps
3 the energy of a text, token by token and step by step 4 where attention's steps go and where the MLP's do (CEM)
"""
# %% What is asked, of whom
import json
import os
import sys
from pathlib import Path

import matplotlib.pyplot as plt
from openai import OpenAI

DATA, OUT = Path(sys.argv[1]), Path(sys.argv[2])
CHARACTERS = int(os.environ.get("CHARACTERS", "20000"))  # of each text: more is slower, and narrower intervals
URL, KEY = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8080/v1"), os.environ.get("OPENAI_API_KEY", "none")
client = OpenAI(base_url=URL, api_key=KEY)
OUT.mkdir(parents=True, exist_ok=True)


def scale(model, **what):
    return client.post("/descent/scaling", cast_to=object, body={"model": model, **what})["rows"]


def curve(axes, rows, metric, label):
    steps = [row["steps"] for row in rows]
    axes.plot(steps, [row[metric] for row in rows], "o-", label=label)
    sides = [row["intervals"][metric] for row in rows]
    if None not in sides[0]:
        axes.fill_between(steps, [low for low, _ in sides], [high for _, high in sides], alpha=0.2)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("T, recursion steps")


def save(figure, name):
    figure.tight_layout()
    figure.savefig(OUT / f"{name}.svg")


# %% 1 Loss against T
verse = (DATA / "nrgpt-shakespeare.val.txt").read_text(encoding="utf-8")[:CHARACTERS]
loss = scale("nrgpt-shakespeare", texts=[verse], steps=[1, 2, 3, 4, 6, 8, 12, 16])
figure, axes = plt.subplots()
curve(axes, loss, "loss", "nrgpt-shakespeare")
axes.set_ylabel("loss, nats a token")
axes.set_title("What T buys")
save(figure, "loss")

# %% 2 Exact match against T
lines = (DATA / "nrgpt-listops.eval.tsv").read_text(encoding="utf-8").splitlines()[: CHARACTERS // 100]
records = [dict(zip(("prompt", "answer"), line.split("\t"))) for line in lines]
figure, axes = plt.subplots()
matches = {}
for model in ("nrgpt-listops", "nrgpt-listops-30k"):
    matches[model] = scale(model, records=records, steps=[1, 2, 3, 4, 5, 8])
    curve(axes, matches[model], "accuracy", model)
axes.set_ylabel("exact match")
axes.set_title("ListOps")
axes.legend()
save(figure, "match")

# %% 3 The energy of a text
TEXT = "ROMEO:\nI dreamt a dream to-night."
trace = client.post("/descent/trace", cast_to=object, body={"model": "nrgpt-shakespeare@12", "prompt": TEXT})
descents = [token["trace"]["descents"][0] for token in trace["traces"][0]["tokens"]]
energy = [[sum(terms) for terms in zip(*descent["energy"].values())] for descent in descents]
figure, axes = plt.subplots(figsize=(10, 4))
image = axes.imshow(list(zip(*energy)), aspect="auto", cmap="viridis")
axes.set_xlabel("token")
axes.set_ylabel("step t")
axes.set_title("Energy at x(t)")
figure.colorbar(image, label="E")
save(figure, "energy")

# %% 4 Attention's steps and the MLP's
verses = (DATA / "cem-kjv.val.txt").read_text(encoding="utf-8")[:CHARACTERS]
GRID = {"attention": [1, 2, 3], "mlp": [1, 2, 3]}
grid = scale("cem-kjv", texts=[verses], steps=GRID)
figure, axes = plt.subplots()
cells = {(row["steps"]["attention"], row["steps"]["mlp"]): row["loss"] for row in grid}
image = axes.imshow([[cells[a, m] for m in GRID["mlp"]] for a in GRID["attention"]], cmap="viridis_r")
axes.set_xticks(range(3), GRID["mlp"])
axes.set_yticks(range(3), GRID["attention"])
axes.set_xlabel("T of the MLP")
axes.set_ylabel("T of attention")
axes.set_title("cem-kjv: loss, nats a token")
figure.colorbar(image)
save(figure, "grid")

# %% The numbers behind them
(OUT / "figures.json").write_text(json.dumps({"loss": loss, "match": matches, "energy": energy, "grid": grid}, indent=1))
