"""The plan of the models that are compared: what its runs are matched in, the index they end up in, and the way there."""
import json
import os
import pathlib
import signal
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import baselines
import train
from descent_train import cost, depth, engine, finished, index, measure, options, plan
from descent_train.build import build_model
from descent_train.data import DataError

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "models" / "data"
TEXT = DATA / "nrgpt-shakespeare.val.txt"
BINARY = pathlib.Path(os.environ.get("DESCENT_BUILD_DIR", ROOT / "build")) / "descent"
RUNS = plan.runs()
BY_NAME = {run.name: run for run in RUNS}


def of_seed_one():
    return [run for run in RUNS if run.seed == plan.SEEDS[0]]


class Products(TorchDispatchMode):
    """Counts multiply-adds of the products inside; of attention's, square in `length`, those a causal mask leaves."""

    def __init__(self, length):
        super().__init__()
        self.length, self.count = length, 0.0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        at = {"mm": 0, "bmm": 0, "addmm": 1, "baddbmm": 1}.get(function.__name__.partition(".")[0])
        if at is not None:
            a, b = args[at], args[at + 1]
            over = {a.shape[-2], a.shape[-1], b.shape[-1]}
            causal = (self.length + 1) / (2 * self.length) if a.dim() == 3 and self.length in over else 1
            self.count += a.numel() * b.shape[-1] * causal
        return function(*args, **(kwargs or {}))


# ---- The plan -------------------------------------------------------------------------------------------------------


def test_every_run_is_named_once_and_belongs_to_an_experiment():
    assert len(BY_NAME) == len(RUNS)
    for run in RUNS:
        assert run.experiments and set(run.experiments) <= set(plan.EXPERIMENTS), run.name
        assert run.name.endswith(f"-{run.seed}") and run.settings.seed == run.seed
    for experiment in plan.EXPERIMENTS:
        assert any(experiment in run.experiments for run in RUNS)


def test_the_families_are_there_with_three_seeds_each_way_of_matching():
    found = {(run.settings.model, run.matched, run.seed) for run in RUNS if plan.FAMILIES in run.experiments}
    baselines_ = set(options.MODELS) - {"nrgpt", "cem"}
    assert found == ({(model, None, seed) for model in ("nrgpt", "cem") for seed in plan.SEEDS}
                     | {(model, matched, seed) for model in baselines_ for matched in plan.MEASURES for seed in plan.SEEDS})


def test_runs_are_matched_as_closely_as_they_say():
    matched = [run for run in RUNS if run.matched]
    for run in matched:
        reference = BY_NAME[run.reference]
        assert reference.seed == run.seed and RUNS.index(reference) < RUNS.index(run)
        assert abs(plan.off(run, reference)) <= plan.MATCHED_WITHIN, run.name
        for same in ("text", "block", "batch", "lr", "optimizer", "short_windows"):
            assert getattr(run.settings, same) == getattr(reference.settings, same), (run.name, same)
        if run.matched == "training":  # the shape that has as many parameters, trained longer or shorter
            shorter = BY_NAME[run.name.replace("-training-", "-parameters-")]
            assert index.shape(run.settings) == index.shape(shorter.settings)
        else:
            assert run.settings.iterations == reference.settings.iterations
    assert matched


def test_models_of_one_size_are_of_one_size():
    sizes = {}
    for run in of_seed_one():
        if {plan.SIZES, plan.GAP} & set(run.experiments):
            sizes.setdefault((run.experiments, run.name.split("-")[-2]), []).append(run.settings)
    assert sizes
    for said, models in sizes.items():
        assert len(models) > 1
        for a in models:
            assert abs(cost.parameters(a) / (1000 * int(said[1][:-1])) - 1) <= plan.MATCHED_WITHIN, said
        assert len({(a.iterations, a.batch, a.block) for a in models}) == 1  # the same tokens


@pytest.mark.parametrize("run", of_seed_one(), ids=lambda run: run.name)
def test_parameters_are_those_of_the_model_that_is_built(run):
    model = build_model(run.settings, cost.vocabulary(run.settings), "cpu", torch.float32)
    assert cost.parameters(run.settings) == model.count() + sum(t.numel() for t in model.frozen().values())


SHAPES = ["nrgpt --steps 3", "nrgpt --steps 2 --feed-forward ff1 --rate diag --norm rmsnorm", "nrgpt --steps 2 --feed-forward ff2",
          "gpt --layers 3", "gpt-rec-parallel --steps 3", "llama --layers 2", "cem-swiglu --layers 2 --steps 3", "llama-cem --layers 2",
          "cem --layers 2 --steps 2", "cem --layers 1 --steps 2 --diagonal none --rank -1",
          "cem --layers 1 --steps 2 --diagonal per_head --rank 0"]


@pytest.mark.parametrize("shape", SHAPES)
def test_training_is_counted_as_the_products_it_makes(shape):
    a = options.arguments(["run", "--text", "text", "--model", *shape.split(), "--width", "20", "--heads", "2", "--hidden", "60", "--block", "13",
                           "--batch", "3", "--iterations", "1", "--short-windows", "0"])
    model = build_model(a, cost.vocabulary(a), "cpu", torch.float32)
    ids = torch.randint(cost.vocabulary(a), (a.batch, a.block))
    with Products(a.block) as products:
        F.cross_entropy(model.logits(ids, depth.trained(a)).flatten(0, 1), ids.flatten()).backward()
    assert products.count == pytest.approx(cost.training(a), rel=1e-12)


def test_training_at_many_depths_is_counted_at_their_mean():
    words = "run --listops add_10 --block 16 --batch 2 --iterations 3 --short-windows 0 --mask strict --steps"
    a = options.arguments((words + " 4 --random-steps 3 7 --read all").split())
    b, c = (options.arguments((words + f" {T}").split()) for T in (5, 6))
    head = cost.FORWARDS_AND_BACKWARDS * 2 * 16 * 3 * 20 * a.width
    assert cost.training(a) == cost.training(b) + 4 * head
    assert cost.training(c) - head == pytest.approx((cost.training(b) - head) * 6 / 5)
    with pytest.raises(ValueError, match="windows of one length"):
        cost.training(options.arguments(["run", "--text", "text"]))


# ---- The index ------------------------------------------------------------------------------------------------------


@pytest.fixture
def empty(tmp_path):
    return index.Index(str(tmp_path / "science"), str(DATA))


def put(at, run, tmp_path):
    (tmp_path / "model").write_bytes(b"model of " + run.name.encode())
    at.put({"name": run.name, "file": run.name + ".gguf", "options": run.words}, str(tmp_path / "model"))


def test_an_index_may_lack_any_run_and_is_in_the_plan_s_order(empty, tmp_path):
    late, early = RUNS[5], RUNS[1]
    for run in (late, early):
        assert not empty.has(run)
        put(empty, run, tmp_path)
    again = index.Index(empty.directory, str(DATA))
    assert [name for name in json.loads((tmp_path / "science" / "index.json").read_text())["runs"]][0]["name"] == early.name
    assert list(again.runs) == [early.name, late.name]
    assert again.has(late) and again.has(early) and not again.has(RUNS[0])
    assert (tmp_path / "science" / late.name).with_suffix(".gguf").read_bytes() == b"model of " + late.name.encode()


def test_a_run_whose_options_changed_or_whose_model_is_gone_is_not_there(empty, tmp_path):
    put(empty, RUNS[0], tmp_path)
    put(empty, RUNS[1], tmp_path)
    empty.runs[RUNS[0].name]["options"] += " --dropout 0.1"
    (tmp_path / "science" / (RUNS[1].name + ".gguf")).unlink()
    assert not empty.has(RUNS[0]) and not empty.has(RUNS[1])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 2, "runs": []}', '{"format": 1, "runs": [{}]}', "{"])
def test_what_is_no_index_is_refused(tmp_path, content):
    (tmp_path / "index.json").write_text(content)
    with pytest.raises(DataError, match="index.json: "):
        index.Index(str(tmp_path), str(DATA))


def test_texts_are_kept_once(empty, tmp_path):
    known = empty.keep(TEXT.read_bytes(), "shakespeare.val.txt")
    assert (tmp_path / "science" / known).samefile(TEXT)  # also before anything is in the index's directory
    assert empty.keep(b"new", "some.txt") == empty.keep(b"new", "some.txt") == os.path.join("data", "some.txt")
    assert (tmp_path / "science" / "data" / "some.txt").read_bytes() == b"new"
    with pytest.raises(DataError, match="some.txt: not what"):
        empty.keep(b"other", "some.txt")


# ---- The way there --------------------------------------------------------------------------------------------------


def test_what_is_in_the_index_is_not_trained_again(tmp_path, monkeypatch, capsys):
    pattern, began = "text-*-parameters-1", []
    chosen = [run for run in RUNS if run.name.startswith("text-") and run.name.endswith("-parameters-1")]
    put(index.Index(str(tmp_path / "to"), str(DATA)), chosen[1], tmp_path)

    def trained(self, run):
        began.append(run.name)
        if run.name == chosen[2].name:
            raise DataError("no memory")
        return 3.0
    monkeypatch.setattr(baselines.Trainer, "train", trained)
    monkeypatch.setattr(baselines.Trainer, "finish", lambda self, run, seconds: {
        "validation": [{"T": "none", "loss": 2.5}], "T": "none", "seconds": seconds})
    to = ["--runs", str(tmp_path / "runs"), "--to", str(tmp_path / "to"), "--only", pattern]
    with pytest.raises(SystemExit, match=f"1 runs failed: {chosen[2].name}"):
        baselines.main(to)
    assert began == [chosen[0].name, *(run.name for run in chosen[2:])]
    said = capsys.readouterr().err
    assert f"1 of {len(chosen)} runs are in the index" in said and "failed: no memory" in said and "loss 2.5000 at T none, 3 s" in said
    baselines.main([*to, "--list"])
    listed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in listed[1:-1]] == [run.name for run in chosen]
    assert [line.endswith("in the index") for line in listed[1:-1]] == [run is chosen[1] for run in chosen]
    with pytest.raises(SystemExit) as wrong:
        baselines.main(["--only", "nothing-like-it"])
    assert wrong.value.code == 2


def test_what_cannot_be_converted_is_not_trained(tmp_path, monkeypatch):
    (tmp_path / "convert.py").write_text("import sys; sys.exit('convert.py: gguf is missing')")
    monkeypatch.setattr(baselines, "CONVERT", str(tmp_path / "convert.py"))
    monkeypatch.setattr(baselines.Trainer, "train", lambda self, run: pytest.fail("trained"))
    with pytest.raises(SystemExit, match="gguf is missing"):
        baselines.main(["--runs", str(tmp_path / "runs"), "--to", str(tmp_path / "to"), "--only", "listops-nrgpt-10k-1"])


def test_a_text_that_is_not_there_is_said(tmp_path, capsys):
    with pytest.raises(SystemExit, match="1 runs failed"):
        baselines.main(["--runs", str(tmp_path / "runs"), "--to", str(tmp_path / "to"), "--only", "text-nrgpt-1"])
    assert "say --text FILE" in capsys.readouterr().err and not (tmp_path / "to" / "index.json").exists()


def test_an_interruption_is_the_run_s(tmp_path):
    code = ("import os, signal, sys, time\n"
            "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
            "os.kill(os.getppid(), signal.SIGTERM)\n"
            "while True: time.sleep(0.1)\n")
    before = signal.getsignal(signal.SIGTERM)
    child = baselines.Child([sys.executable, "-c", code], str(tmp_path), str(tmp_path / "log"))
    assert child.interrupted and child.status == 7 and signal.getsignal(signal.SIGTERM) is before
    quiet = baselines.Child([sys.executable, "-c", "sum(range(3000000)); print('said')"], str(tmp_path), str(tmp_path / "log"))
    assert not quiet.interrupted and quiet.status == 0 and quiet.seconds > 0.01
    assert (tmp_path / "log").read_text() == "said\n"


def test_the_training_text_s_sample_is_spread_over_it():
    text = "".join(chr(0x100 + i) for i in range(1000))
    found = baselines.sample(text, 80)
    assert len(found) == 80 and found[0] == text[0] and text.index(found[-1]) >= len(text) - baselines.STRETCHES
    assert all(found[i:i + 10] in text for i in range(0, 80, 10))


SMALL = "--width 16 --heads 2 --hidden 32 --block 32 --batch 4 --iterations 12 --warmup 2 --short-windows 0"
TINY = [
    plan.Planned("tiny-nrgpt-1", (plan.FAMILIES,), f"--model nrgpt --text {plan.SHAKESPEARE} {SMALL} --steps 3 --seed 1", 1),
    plan.Planned("tiny-gpt-1", (plan.FAMILIES,), f"--model gpt --text {plan.SHAKESPEARE} {SMALL} --layers 1 --seed 1", 1,
                 "tiny-nrgpt-1", "parameters"),
    plan.Planned("tiny-listops-1", (plan.SIZES,), f"--model nrgpt --listops max_10,add_10 --lines 300 {SMALL} --block 96 --mask strict "
                 "--steps 2 --seed 1", 1),
]


@pytest.mark.slow
def test_runs_end_in_an_index_that_the_engine_agrees_with(tmp_path, monkeypatch, capsys):
    assert BINARY.is_file(), f"{BINARY} is missing: build first, or set DESCENT_BUILD_DIR"
    monkeypatch.setattr(plan, "runs", lambda: TINY)
    monkeypatch.setattr(engine, "_NUMBERS", (1, 3))
    (tmp_path / "verse.txt").write_text(TEXT.read_text()[:30000])
    to = ["--runs", str(tmp_path / "runs"), "--to", str(tmp_path / "to"), "--descent", str(BINARY)]
    baselines.main([*to, "--text", str(tmp_path / "verse.txt")])
    entries = json.loads((tmp_path / "to" / "index.json").read_text())["runs"]
    assert [entry["name"] for entry in entries] == [run.name for run in TINY]
    monkeypatch.chdir(tmp_path / "runs")  # where the runs have their text
    for run, entry in zip(TINY, entries):
        model, trained = tmp_path / "to" / entry["file"], finished.Finished(str(tmp_path / "runs" / run.name))
        assert entry["parameters"] == trained.model.count() + sum(t.numel() for t in trained.model.frozen().values())
        for weights in trained.model.parameters.values():  # of what the file holds: where two answers are nearly alike it decides
            if weights.dim() > 1:
                weights.data.copy_(weights.data.half())
        assert entry["weights"] == "F16" and entry["seconds"] > 0 and entry["family"] == run.settings.model
        assert entry["training_tokens"] == 4 * 12 * run.settings.block
        if run.settings.listops:
            assert {row["T"] for row in entry["exact_match"]} == {"1", "2", "3"}
            for row in entry["exact_match"]:
                assert (row["right"], row["items"]) == (trained.right(int(row["T"])).sum(), 1000)
            assert len((tmp_path / "to" / entry["texts"]["items"]).read_text().splitlines()) == 1000
            assert entry["validation"] is None and entry["train_loss"] is None
            continue
        said = subprocess.run([BINARY, "eval", model, "--file", tmp_path / "to" / entry["texts"]["validation"], "--json"],
                              capture_output=True, text=True, check=True)
        (found,) = json.loads(said.stdout)["results"]
        rows = {row["T"]: row for row in entry["validation"]}
        assert abs(rows[entry["T"]]["loss"] - found["loss"]) < 1e-9
        assert found["predictions"] == len(trained.data.val) - 1
        for T, losses in trained.losses(engine.read_at(run.settings)).items():
            assert abs(rows[depth.label(T)]["loss"] - losses.mean) < 1e-3
            assert rows[depth.label(T)]["low"] < rows[depth.label(T)]["loss"] < rows[depth.label(T)]["high"]
        text = "".join(trained.data.vocab.tokens[i] for i in trained.data.train)
        ids = trained.data.vocab.encode(baselines.sample(text, len(trained.data.val)))
        loss = measure.losses(trained.model.sweep, ids, trained.options.block, [trained.trained])[trained.trained].mean
        assert abs(entry["train_loss"] - loss) < 1e-3
    assert entries[0]["matched"] is None and entries[1]["matched"]["reference"] == "tiny-nrgpt-1"
    capsys.readouterr()
    monkeypatch.setattr(baselines, "Child", None)  # nothing is started again
    baselines.main(to)
    assert "3 of 3 runs are in the index" in capsys.readouterr().err


@pytest.mark.slow
def test_multiply_adds_are_those_the_engine_counts(tmp_path):
    text = TEXT.read_text()[:20000]
    (tmp_path / "verse.txt").write_text(text)
    for number, shape in enumerate(["nrgpt --mask strict --steps 2", *SHAPES]):
        run = str(tmp_path / str(number))
        words = ["--text", str(tmp_path / "verse.txt"), "--model", *shape.split(), "--width", "20", "--heads", "2", "--hidden", "60",
                 "--block", "12", "--batch", "2", "--iterations", "1", "--short-windows", "0"]
        train.main([run, *words])
        done = subprocess.run([sys.executable, ROOT / "tools" / "convert.py", run + "/model", run + ".gguf"], capture_output=True)
        assert done.returncode == 0, done.stderr
        a = options.arguments([run, *words])
        of = engine.Engine(str(BINARY), str(tmp_path))
        counted = of._counted(run + ".gguf", lambda n: "e" * n, a.block, engine.read_at(a))
        head = len(set(text[:18000])) * a.width  # of this text's characters
        for T in engine.read_at(a):
            assert counted[depth.label(T)] == cost.steps_multiply_adds(a, T) + head, (shape, T)
