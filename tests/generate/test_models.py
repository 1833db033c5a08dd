"""What the weights are: counted, reproducible, of the type asked for, and a model that computes: it neither diverges nor
says the same of everything, at T far beyond the trained one."""

import hashlib
import math
import re

import gguf
import numpy as np
import pytest

import descent
from descent_generate import random_tensor, shapes
from descent_generate.random_tensor import RandomTensor

V, IDS = 512, [(37 * i * i + 11 * i) % 512 for i in range(40)]
OF_IDS = ("--vocab", V, "--tokenizer", "none")

NRGPT = [("nrgpt", *OF_IDS, *more.split()) for more in (
    "--variant ff1", "--variant ff2", "--variant ff2w", "--variant ff2w --mask strict --rate diag",
    "--variant ff1 --norm rmsnorm --rate scalar --learned-alpha", "--variant ff2 --beta 2.5 --mask strict --learned-alpha",
    "--variant ff2w --width 34 --heads 5 --hidden 50")]
CEM = [("cem", *OF_IDS, *more.split()) for more in (
    "", "--diagonal none --rank -1", "--diagonal per_head --rank 0 --activation gelu --head own", "--eta-entries 3 --layers 3",
    "--width 36 --heads 6 --hidden 50 --rank 3 --rope-theta 500")]
HYBRIDS = [("cem", *OF_IDS, "--attention", "llama"), ("cem", *OF_IDS, "--mlp", "swiglu")]
RECURRENT = ("gpt-rec-parallel", *OF_IDS)
FLAT = [("gpt", *OF_IDS), ("cem", *OF_IDS, "--attention", "llama", "--mlp", "swiglu", "--head", "own")]


def words(arguments):
    return " ".join(map(str, (arguments[0], *arguments[1 + len(OF_IDS):])))


def summary(logits):
    """Loss against targets that have nothing to do with the model, deviation of the logits, number of different guesses."""
    logits = logits.astype(float)
    targets = np.roll(IDS, -1)
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    return -logp[np.arange(len(IDS)), targets].mean(), logits.std(-1), len(set(logits.argmax(-1).tolist()))


def check_usable(logits):
    """Logits of deviation about one, which make the loss about ln V + 1/2, and which differ from token to token."""
    assert np.isfinite(logits).all()
    loss, deviation, guesses = summary(logits)
    assert abs(loss - (math.log(V) + 0.5)) < 0.5
    assert 0.7 < deviation.min() and deviation.max() < 1.5
    assert guesses > 10


@pytest.mark.parametrize("arguments", [*NRGPT, *CEM, *HYBRIDS, RECURRENT], ids=words)
def test_usable_at_any_depth(arguments, opened):
    model = opened(*arguments)
    for steps in (1, None, 64):
        check_usable(model.logits(IDS, steps=steps))
    other = model.logits([IDS[0] + 1, *IDS[1:]])  # what is said depends on what was said long before
    assert np.abs(other[-1] - model.logits(IDS)[-1]).max() > 1e-3


@pytest.mark.parametrize("arguments", FLAT, ids=words)
def test_usable_without_a_depth(arguments, opened):
    check_usable(opened(*arguments).logits(IDS))


@pytest.mark.parametrize("arguments", [*NRGPT, *CEM], ids=words)
def test_energies_fall_and_states_grow_slowly(arguments, opened):
    model = opened(*arguments)
    run = model.run(IDS, steps=64, observe=("energy", "convergence", "state", "final"))
    for trace in run.traces.values():
        energy, states = trace.total_energy.astype(float), trace.states.astype(float)
        assert np.isfinite(energy).all() and np.isfinite(states).all()
        assert (energy[..., -1, :].mean(-1) < energy[..., 0, :].mean(-1)).all()
        norms = np.linalg.norm(states, axis=-1).mean(-1)
        assert (norms[..., -1] < 100 * norms[..., 0]).all()
    first = next(iter(run.traces.values()))  # which starts from x(0): later ones have what came before in their states
    norm, update = (np.asarray(a).reshape(-1, len(IDS))[0].mean() for a in (np.linalg.norm(first.states, axis=-1), first.update_norm))
    assert 0.05 < update / norm < 0.4


@pytest.mark.parametrize("shape", ["nrgpt", "cem", "gpt"])
@pytest.mark.parametrize("kind, name", [("f32", "F32"), ("f16", "F16"), ("bf16", "BF16"), ("q8_0", "Q8_0"), ("q4_0", "Q4_0")])
def test_types(shape, kind, name, made):
    path = made(shape, *OF_IDS, "--type", kind)
    types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(path).tensors}
    assert types["token_embd.weight"] == name and types["output_norm.weight"] == "F32"
    with descent.Model(str(path)) as model:
        check_usable(model.logits(IDS))


# -- Shapes

def nrgpt_count(C, H, F, V, L):
    head, ends = V * C + V, 2 * C
    return V * C + L * C + 2 * C + H * C * C + (F * C + F + C * F + C) + 1 + C * C + ends + head


def cem_count(C, M, V, layers, own):
    descent_count = 1 + C + 2 * C * 8  # eta, and the preconditioner's d, U, V
    layer = C + 2 * C * C + C + descent_count + C + 2 * M * C + descent_count
    return (1 + own) * V * C + layers * layer + C


NAMED = {
    "nrgpt-90m": (90, nrgpt_count(768, 12, 3072, 50304, 1024)),
    "nrgpt-128m": (128, nrgpt_count(1020, 14, 4080, 50304, 1024)),
    "cem-86m": (86, cem_count(768, 2560, 32000, 12, False)),
    "cem-162m": (162, cem_count(768, 5344, 32000, 12, True)),
    "cem-llama160m": (120, cem_count(768, 3072, 32000, 12, True)),
    "llama-160m": (162, 2 * 32000 * 768 + 12 * (4 * 768 ** 2 + 3 * 768 * 3072 + 2 * 768) + 768),
    "gpt2": (163, 2 * 50304 * 768 + 50304 + 1024 * 768 + 2 * 768
             + 12 * (4 * 768 ** 2 + 768 + 2 * 768 * 3072 + 3072 + 768 + 4 * 768)),
    "gpt-rec-85m": (85, 2 * 50304 * 768 + 50304 + 1024 * 768 + 2 * 768 + 4 * 768 ** 2 + 768 + 2 * 768 * 3072 + 3072 + 5 * 768),
}


def test_paper_sized_shapes(generate):
    text = generate("--help").out
    found = {name: int(n.replace(",", "")) for name, n in re.findall(r"^  (\S+) +([\d,]+) parameters", text, re.M)}
    assert set(found) == set(shapes.NAMED)
    for name, (millions, count) in NAMED.items():
        assert found[name] == count and round(count / 1e6) == millions
    line = next(line for line in text.splitlines() if line.startswith("  cem-162m"))
    for number in ("C 768", "H 12", "F 5344", "V 32000", "12 layers", "T 2x2"):
        assert number in line


def test_counts_are_those_of_the_file(generate, tmp_path):
    for shape in ("nrgpt", "cem", "gpt", "gpt-rec-parallel"):
        out = generate(shape, tmp_path / "m.gguf", "--type", "q8_0", "--tokenizer", "none").out
        held = sum(int(np.prod(t.shape)) for t in gguf.GGUFReader(tmp_path / "m.gguf").tensors)
        assert f", {held} parameters in " in out  # widths of these are whole blocks: nothing is padded


def test_flags_change_the_shape(made):
    path = made("cem", "--width", 48, "--heads", 4, "--layers", 3, "--hidden", 80, "--vocab", 300, "--context", 40, "--steps", "3x5",
                "--rank", 0, "--diagonal", "per_head", "--activation", "gelu", "--head", "own", "--name", "mine")
    fields = {key: field.contents() for key, field in gguf.GGUFReader(path).fields.items()}
    expected = {"embedding_length": 48, "attention.head_count": 4, "block_count": 3, "feed_forward_length": 80, "vocab_size": 300,
                "context_length": 40, "steps.attention": 3, "steps.mlp": 5, "preconditioner.rank": 0,
                "attention.diagonal": "per_head", "activation": "gelu"}
    assert {key: fields["cem." + key] for key in expected} == expected
    assert fields["general.name"] == "mine"
    shapes_in_file = {t.name: t.shape.tolist() for t in gguf.GGUFReader(path).tensors}
    assert shapes_in_file["output.weight"] == [48, 300] and shapes_in_file["blk.2.attn_diag.weight"] == [48, 4]


@pytest.mark.parametrize("arguments, words", [
    (("nrgpt", "--layers", 2), ("--layers",)), (("nrgpt", "--rank", 2), ("--rank", "--variant")),
    (("nrgpt", "--attention", "llama"), ("--attention",)), (("cem", "--variant", "ff1"), ("--variant", "--diagonal")),
    (("cem", "--learned-alpha"), ("--learned-alpha",)), (("gpt", "--steps", 3), ("--steps", "gpt")),
    (("nrgpt", "--steps", "3x2"), ("--steps 3x2", "--steps 3")), (("cem", "--mlp", "swiglu", "--steps", "3x2"), ("--steps 3x2",)),
    (("cem", "--attention", "llama", "--diagonal", "none"), ("--diagonal",)),
    (("cem", "--attention", "llama", "--mlp", "swiglu", "--rank", 2), ("--rank",)),
    (("cem", "--heads", 3), ("--heads 3", "--width 64")), (("cem", "--heads", 64), ("--heads 64",)),
    (("cem", "--rank", -2), ("--rank -2", "-1")), (("cem", "--rank", 65), ("--rank 65", "--width 64")),
    (("cem", "--context", 1 << 24, "--heads", 8), ("--context 16777216", "67108864")), (("nrgpt", "--width", 0), ("--width 0",)),
    (("nrgpt", "--width", 1 << 21), ("--width 2097152", "1048576")), (("nrgpt", "--vocab", 0), ("--vocab 0",)),
    (("gpt", "--heads", 65), ("--heads 65", "--width 64")), (("cem", "--eta-entries", 0), ("--eta-entries 0",)),
    (("cem", "--layers", 40000), ("--layers 40000",)), (("nrgpt", "--vocab", 200), ("--vocab 200", "258", "--tokenizer none"))])
def test_refused(arguments, words, generate, tmp_path):
    shape, *options = arguments
    result = generate(shape, tmp_path / "out.gguf", *options)
    assert result.status == 1 and result.out == "" and result.err.count("\n") == 1
    assert result.err.startswith("generate_model.py: ")
    for word in words:
        assert word in result.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [
    [], ["nrgpt"], ["nrgpt-7b", "out"], ["nrgpt", "out", "--type", "q5_0"], ["nrgpt", "out", "--seed", "-1"],
    ["nrgpt", "out", "--seed", "18446744073709551616"], ["nrgpt", "out", "--width", "x"], ["nrgpt", "out", "--width", "1e3"],
    ["nrgpt", "out", "--steps", "0"], ["nrgpt", "out", "--steps", "2x"], ["nrgpt", "out", "--beta", "0"],
    ["nrgpt", "out", "--beta", "nan"], ["nrgpt", "out", "--mask", "full"], ["nrgpt", "out", "--chat-template", "alpaca"],
    ["nrgpt", "out", "--fast"]])
def test_usage(arguments, generate):
    result = generate(*arguments)
    assert result.status == 2 and result.err.count("\n") == 1 and "--help" in result.err


# -- Numbers

def test_a_seed_is_a_file(made):
    files = [made("cem", "--vocab", 300, "--seed", seed, "--name", "m", name=name).read_bytes() for seed, name in ((5, "a"), (5, "b"), (6, "c"))]
    assert files[0] == files[1] and len(files[0]) == len(files[2]) and files[0] != files[2]


def test_same_numbers_on_every_machine():
    """The first of them, computed here with Python's integers, and a digest of many."""
    tensor = RandomTensor(1, "a name", (300, 7), std=0.5, mean=2, diagonal=1)
    values = np.concatenate(list(tensor.chunks()))
    key = np.frombuffer(hashlib.sha256(b"1:a name").digest()[:16], "<u8")
    word = int(np.random.Philox(key=key).random_raw())
    total = sum(word >> shift & 0xFFFF for shift in (0, 16, 32, 48))
    deviation = math.sqrt(4 * (2 ** 32 - 1) / 12)
    expected = np.float32(total - 131070) * np.float32(float(np.float32(0.5)) / deviation) + np.float32(2) + np.float32(1)
    assert values[0, 0] == expected
    assert hashlib.sha256(values.astype("<f4").tobytes()).hexdigest() == DIGEST


DIGEST = "4ba55c87709da86ab9254e1087d39e6b931a21a6b113fa630f4686c6dcb0cd0f"


def test_numbers_do_not_depend_on_the_pieces(monkeypatch):
    def numbers(**distribution):
        return np.concatenate(list(RandomTensor(3, "t", (50, 20), **distribution).chunks()))

    for distribution in ({"std": 1, "diagonal": 2}, {"std": 1, "signs": True}, {"mean": 4}):
        monkeypatch.setattr(random_tensor, "CHUNK", 1 << 20)
        whole = numbers(**distribution)
        monkeypatch.setattr(random_tensor, "CHUNK", 70)
        assert np.array_equal(numbers(**distribution), whole)


def test_distribution():
    values = np.concatenate(list(RandomTensor(1, "t", (2000, 100), std=0.25, mean=-1).chunks()))
    assert abs(values.mean() + 1) < 0.005 and abs(values.std() / 0.25 - 1) < 0.01
    assert abs(((values + 1) / 0.25).clip(-1, 1) == 1).mean() == pytest.approx(0.16, abs=0.01)  # beyond one deviation, a side
    other = np.concatenate(list(RandomTensor(1, "u", (2000, 100), std=0.25, mean=-1).chunks()))
    assert abs(np.corrcoef(values.ravel(), other.ravel())[0, 1]) < 0.01
    identity = np.concatenate(list(RandomTensor(1, "t", (5, 3), diagonal=2).chunks()))
    assert np.array_equal(identity, 2 * np.eye(5, 3))
    signs = np.concatenate(list(RandomTensor(1, "t", (1000, 10), std=3, signs=True).chunks()))
    assert set(signs.ravel()) == {-3.0, 3.0} and abs(signs.mean()) < 0.1
