"""The training loop: a run that stops goes on to the same losses; depths, windows and schedule are what was asked; what it
saves is what tools/convert.py takes; it does learn."""
import json
import math
import pathlib

import numpy as np
import pytest
import torch

import golden
import train
from descent_train import data as data_module
from descent_train import loop, optim
from descent_train.build import build_model

TEXT = pathlib.Path(__file__).resolve().parents[2] / "models" / "data" / "nrgpt-shakespeare.val.txt"
SMALL = ["--width", "16", "--heads", "2", "--block", "32", "--batch", "4", "--iterations", "12", "--warmup", "3", "--validate-every", "4",
         "--random-steps", "1", "3", "--steps", "2", "--validate-at", "1,3"]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "verse.txt"
    path.write_text(TEXT.read_text()[:20000])
    return path


def log(run):
    """The lines of a run's log without their times."""
    return [{k: v for k, v in json.loads(line).items() if k != "seconds"} for line in (run / "log.jsonl").read_text().splitlines()]


def begin(run, text, *options):
    """A Run as train.py makes it, not yet trained."""
    a = train.arguments([str(run), "--text", str(text), *SMALL, *options])
    found = data_module.text_data(str(text), str(run / "data"))
    model = build_model(a, found.vocab.size, "cpu", torch.float32)
    started = loop.Run(str(run), model, found, loop.Depths(a.steps, *(a.random_steps or (None, None))),
                       {**vars(a), "validate_at": [1, 3]})
    started.open({k: v for k, v in vars(a).items() if k not in ("run", "threads", "device", "checkpoint_minutes")})
    return started


@pytest.mark.parametrize("optimizer, dtype, dropout", [
    ("muon", "float32", "0"), ("muon", "bfloat16", "0.2"), ("adamw", "float32", "0.2"), ("adamw", "bfloat16", "0")])
def test_a_run_that_was_stopped_goes_on_to_the_same_losses(tmp_path, text, optimizer, dtype, dropout):
    chosen = ["--optimizer", optimizer, "--dtype", dtype, "--dropout", dropout]
    options = ["--text", str(text), *SMALL, *chosen]
    train.main([str(tmp_path / "whole"), *options])
    stopped = begin(tmp_path / "stopped", text, *chosen)
    stopped.model.dtype = stopped.optimizer.dtype = getattr(torch, dtype)
    for _ in range(5):
        stopped.advance()
    stopped.save()
    train.main([str(tmp_path / "stopped"), *options])
    whole, resumed = log(tmp_path / "whole"), log(tmp_path / "stopped")
    losses = [line["validation"] for line in whole if "validation" in line and line["step"] > 5]
    assert len(losses) == 2 and losses == [line["validation"] for line in resumed if "validation" in line]
    saved = [golden.safetensors(tmp_path / n / "model" / "model.safetensors") for n in ("whole", "stopped")]
    assert all(torch.equal(saved[0][n], saved[1][n]) for n in saved[0])


def test_other_settings_are_another_run(tmp_path, text):
    train.main([str(tmp_path / "run"), "--text", str(text), *SMALL])
    with pytest.raises(SystemExit, match="width 16, now 32"):
        train.main([str(tmp_path / "run"), "--text", str(text), *SMALL, "--width", "32"])


def test_a_finished_run_asked_again_trains_no_more(tmp_path, text):
    for _ in range(2):
        train.main([str(tmp_path / "run"), "--text", str(text), *SMALL])
    assert [line["step"] for line in log(tmp_path / "run") if "validation" in line] == [4, 8, 12]


def test_depths_are_drawn_evenly_and_from_the_range_alone():
    rng = np.random.default_rng(0)
    assert {loop.Depths(4).draw(rng) for _ in range(10)} == {4}
    drawn = [loop.Depths(4, 2, 5).draw(rng) for _ in range(4000)]
    assert set(drawn) == {2, 3, 4, 5}
    assert all(abs(drawn.count(t) - 1000) < 5 * math.sqrt(750) for t in range(2, 6))
    pairs = {loop.Depths((2, 2), 1, 2).draw(rng) for _ in range(200)}
    assert pairs == {(1, 1), (1, 2), (2, 1), (2, 2)}


def test_windows_begin_short_and_every_position_is_seen(tmp_path, text, monkeypatch):
    run = begin(tmp_path / "run", text, "--iterations", "60", "--short-windows", "0.5")
    seen = []
    logits = run.model.logits
    monkeypatch.setattr(run.model, "logits", lambda x, T, start: seen.append((x.shape, start)) or logits(x, T, start))
    for _ in range(60):
        run.advance()
    lengths = [shape[1] for shape, _ in seen]
    assert lengths == [8] * 15 + [16] * 15 + [32] * 30
    assert all(shape[0] * shape[1] == 4 * 32 for shape, _ in seen)  # as many tokens a batch throughout
    run.o["short_windows"], run.step = 1.0, 0
    run.o["iterations"] = 400
    seen.clear()
    for _ in range(200):
        run.advance()
    assert {shape[1] for shape, _ in seen} == {8}
    assert {at for _, start in seen for at in range(start, start + 8)} == set(range(32))


def test_the_schedule():
    assert [optim.schedule(s, 100, 10) for s in (0, 9)] == [0.1, 1.0]
    assert optim.schedule(10, 110, 10) == 1.0 and math.isclose(optim.schedule(60, 110, 10), 0.5)
    assert optim.schedule(110, 110, 10) < 1e-9


def test_muon_s_update_is_orthogonal():
    for shape in ((24, 24), (24, 60), (60, 24)):
        m = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
        values = torch.linalg.svdvals(optim.orthogonalize(m, torch.float32))
        assert values.shape == (24,) and values.min() > 0.6 and values.max() < 1.3
        u, _, v = torch.linalg.svd(m, full_matrices=False)
        mine = u.T @ optim.orthogonalize(m, torch.float32) @ v.T  # the singular vectors are m's
        assert (mine - torch.diag(torch.diagonal(mine))).abs().max() < 1e-3


def test_adamw_is_torch_s():
    generator = torch.Generator().manual_seed(2)
    start = {"a": torch.randn(5, 7, generator=generator), "b": torch.randn(7, generator=generator)}
    mine = {n: t.clone().requires_grad_() for n, t in start.items()}
    theirs = {n: t.clone().requires_grad_() for n, t in start.items()}
    optimizer = optim.Optimizer(mine, [], 0.1, torch.float32)
    reference = torch.optim.AdamW([{"params": [theirs["a"]], "weight_decay": 0.1}, {"params": [theirs["b"]], "weight_decay": 0.0}],
                                  lr=3e-3, betas=(0.9, 0.95))
    for _ in range(20):
        for n in mine:
            mine[n].grad = torch.randn(start[n].shape, generator=generator)
            theirs[n].grad = mine[n].grad.clone()
        optimizer.step(3e-3, 0.0)
        reference.step()
    assert all((mine[n] - theirs[n]).abs().max() < 1e-6 for n in mine)


def test_a_gradient_that_is_not_finite_moves_nothing(tmp_path, text):
    run = begin(tmp_path / "run", text)
    with torch.no_grad():
        run.model.parameters["lm_head.bias"][0] = math.inf
    before = {n: p.detach().clone() for n, p in run.model.parameters.items()}
    run.advance()
    assert all(torch.equal(before[n], p) for n, p in run.model.parameters.items())
    assert run.step == 1


def test_beta_is_the_model_s(tmp_path, text):
    run = begin(tmp_path / "run", text, "--beta", "0.25")
    run.export()
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text())["beta"] == 0.25


def test_training_drops_out_and_validation_does_not(tmp_path, text):
    runs = [begin(tmp_path / name, text, "--dropout", share) for name, share in (("with", "0.5"), ("without", "0"))]
    assert runs[0].validate() == runs[1].validate()
    assert runs[0].advance()[0] != runs[1].advance()[0]
    assert runs[0].model.dropout is None


@pytest.mark.parametrize("model", ["nrgpt", "gpt", "gpt-rec-parallel", "cem", "llama", "cem-swiglu", "llama-cem"])
def test_every_model_learns(tmp_path, text, model):
    """From about ln V to well below the entropy of the characters' frequencies (3.1 nats) within 120 small batches."""
    options = ["--text", str(text), "--model", model, "--width", "32", "--heads", "2", "--layers", "2", "--block", "32", "--batch", "8",
               "--iterations", "120", "--warmup", "10", "--lr", "5e-3", "--muon-lr", "0.02", "--validate-every", "120", "--validate-windows", "20",
               "--threads", "1"]
    train.main([str(tmp_path / "run"), *options])
    (loss,) = [v for line in log(tmp_path / "run") if "validation" in line for v in line["validation"].values()]
    assert 1.5 < loss < 2.95
    config = json.loads((tmp_path / "run" / "model" / "config.json").read_text())
    tensors = golden.safetensors(tmp_path / "run" / "model" / "model.safetensors")
    assert all(torch.isfinite(t).all() for t in tensors.values()) and config["vocab_size"] > 40


@pytest.mark.parametrize("options, complaint", [
    (["--text", "absent.txt"], "No such file or directory: 'absent.txt'"),
    (["--text", "empty.txt"], "empty.txt: 0 characters split at 0.9 leave fewer than two on a side"),
    (["--text", "verse.txt", "--block", "60000"], "too few for windows of 60000"),
    (["--text", "verse.txt", "--vocab", "bpe:2000000000"], "no SentencePiece bpe model of 2000000000 pieces"),
    (["--listops", "max_11"], "'max_11' is no operation of ListOps; expected some of min_10"),
    (["--text", "verse.txt", "--device", "gadget"], "--device gadget: "),
])
def test_what_cannot_be_trained_is_said(tmp_path, text, options, complaint):
    (tmp_path / "empty.txt").write_bytes(b"")
    options = [str(tmp_path / o) if o in ("verse.txt", "empty.txt") else o for o in options]
    with pytest.raises(SystemExit, match=complaint):
        train.main([str(tmp_path / "run"), *SMALL, *options])


def test_what_is_in_the_way_is_said(tmp_path, text):
    (tmp_path / "run").write_text("a file")
    with pytest.raises(SystemExit, match="train.py: .*File exists: '.*run'"):
        train.main([str(tmp_path / "run"), *SMALL, "--text", str(text)])


def test_a_validation_text_shorter_than_a_window_is_measured_all_the_same(tmp_path, text):
    text.write_text("abcdefghij" * 30)  # 30 characters of it validate, windows have 32
    train.main([str(tmp_path / "run"), "--text", str(text), *SMALL, "--iterations", "2"])
    assert "figures" in log(tmp_path / "run")[-1]


def test_one_batch_without_a_loss_does_not_hide_those_after_it(tmp_path, text, monkeypatch):
    run = begin(tmp_path / "run", text)
    losses = iter([math.nan] + [2.0] * 11)
    monkeypatch.setattr(run, "advance", lambda: (setattr(run, "step", run.step + 1), (next(losses), math.inf))[1])
    run.train()
    reported = [line for line in log(tmp_path / "run") if "loss" in line]
    assert [line["loss"] for line in reported] == [2.0] * 3 and [line["norm"] for line in reported] == [None] * 3
