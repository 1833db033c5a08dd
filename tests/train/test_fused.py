"""fused.c's kernels beside the same formulas in PyTorch, in both storage types, forwards and backwards, extremes included."""
import math

import pytest
import torch

from descent_train import fused

TYPES = {torch.float32: 3e-6, torch.bfloat16: 1e-2}
EXTREMES = torch.tensor([0.0, -0.0, 1e-30, -1e-30, 5.0, -5.0, 13.0, -13.0, 40.0, -40.0, 200.0, -200.0])


def both(monkeypatch, function, *inputs):
    """(results, gradients) with the kernels and without, for one random cotangent each."""
    found = []
    for library in (True, False):
        with monkeypatch.context() as m:
            if library:
                assert fused.available()
            else:
                m.setattr(fused, "_library", None)
                m.setattr(fused, "_tried", True)
            leaves = [x.clone().requires_grad_() for x in inputs]
            out = function(*leaves)
            out = out if isinstance(out, tuple) else (out,)
            generator = torch.Generator().manual_seed(9)
            cotangents = [torch.randn(o.shape, generator=generator).to(o.dtype) for o in out]
            found.append([o.detach() for o in out] + list(torch.autograd.grad(out, leaves, cotangents)))
    return found


def agree(monkeypatch, dtype, function, *inputs):
    compiled, formulas = both(monkeypatch, function, *inputs)
    for a, b in zip(compiled, formulas):
        assert a.dtype == dtype and torch.isfinite(a).all()
        a, b = a.double(), b.double()
        assert (a - b).abs().max() <= TYPES[dtype] * max(1.0, b.abs().max()), (a - b).abs().max()


def random(dtype, *shape, seed=0, scale=1.0):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_activations(monkeypatch, dtype):
    z = torch.cat([random(torch.float32, 997, scale=3.0), EXTREMES]).to(dtype)
    w = random(dtype, len(z), seed=1)
    agree(monkeypatch, dtype, fused.GeluAndSlope.apply, z, w)
    for gelu in (True, False):
        agree(monkeypatch, dtype, lambda z, w: fused.Gate.apply(z, w, gelu), z, w)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_ff2w(monkeypatch, dtype):
    agree(monkeypatch, dtype, fused.FF2W.apply, random(dtype, 37, 20), random(dtype, 48, 20, seed=1, scale=0.2),
          random(dtype, 48, seed=2), random(dtype, 20, 48, seed=3, scale=0.2), random(dtype, 20, seed=4))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_attention(monkeypatch, dtype, strict):
    for L in (1, 2, 17, 64):
        q, k, v = (random(dtype, 3, L, 8, seed=s, scale=2.0) for s in range(3))
        agree(monkeypatch, dtype, lambda q, k, v: fused.Attend.apply(q, k, v, 0.7, strict), q, k, v)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_attention_with_a_shared_diagonal(monkeypatch, dtype):
    q, k = (random(dtype, 2, 3, 19, 8, seed=s) for s in range(2))
    e, u = (random(dtype, 2, 19, 24, seed=s, scale=0.4) for s in range(2, 4))
    agree(monkeypatch, dtype, lambda *a: fused.AttendShared.apply(*a, 0.35), q, k, e, u)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_rotation(monkeypatch, dtype, back):
    turn = fused.angles(11, 6, 10000.0, "cpu")
    x = random(dtype, 2, 4, 11, 6) if back else random(dtype, 2, 11, 24)
    agree(monkeypatch, dtype, lambda x: fused.Rotate.apply(x, 4, *turn, back), x)


def test_turning_back_is_the_inverse():
    turn, x = fused.angles(11, 6, 10000.0, "cpu"), random(torch.float32, 2, 11, 24)
    there = fused.Rotate.apply(x, 4, *turn, False)
    assert (fused.Rotate.apply(there, 4, *turn, True) - x).abs().max() < 1e-6
    assert math.isclose(there.norm(), x.norm(), rel_tol=1e-6)


@pytest.mark.parametrize("compiled", [True, False])
def test_derivatives_by_differences(monkeypatch, compiled):
    """The written derivatives are those of the written functions: central differences in float32 agree to their own error."""
    if not compiled:
        monkeypatch.setattr(fused, "_library", None)
        monkeypatch.setattr(fused, "_tried", True)
    z = torch.linspace(-4, 4, 201)
    w = torch.full_like(z, 1.5)
    for function in (lambda z: fused.GeluAndSlope.apply(z, w)[0], lambda z: fused.GeluAndSlope.apply(z, w)[1],
                     lambda z: fused.Gate.apply(z, w, True), lambda z: fused.Gate.apply(z, w, False)):
        leaf = z.clone().requires_grad_()
        slope = torch.autograd.grad(function(leaf).sum(), leaf)[0]
        difference = (function(z + 1e-2) - function(z - 1e-2)) / 2e-2
        assert (slope - difference).abs().max() < 5e-4


def test_a_window_longer_than_a_row_on_the_stack_is_no_kernel_s_work(monkeypatch):
    """Past MAX_LENGTH the formulas do it: nothing is written past an array's end."""
    monkeypatch.setattr(fused, "MAX_LENGTH", 8)
    q = random(torch.float32, 1, 9, 4)
    called = []
    monkeypatch.setattr(fused, "_call", lambda *a: called.append(a))
    fused.Attend.apply(q, q, q, 1.0, False)
    assert not called


@pytest.fixture
def compiler(tmp_path, monkeypatch):
    """The directory compiled kernels go to."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(fused, "FLAGS", ["-O0", "-shared", "-fPIC"])  # quickly
    return tmp_path / "cache" / "descent"


def test_kernels_are_compiled_once_by_a_compiler_with_options(compiler, monkeypatch):
    monkeypatch.setenv("CC", "cc -DSOMETHING=1")
    assert fused._compile().gate_forward_f32 and len(list(compiler.iterdir())) == 1
    monkeypatch.setattr(fused, "_build", None)  # not called again
    assert fused._compile().gate_forward_f32


@pytest.mark.parametrize("cc", ["no-such-compiler", "false", "cc '"])
def test_without_a_compiler_it_is_said_and_nothing_is_left(compiler, monkeypatch, capsys, cc):
    monkeypatch.setenv("CC", cc)
    assert fused._compile() is None and not list(compiler.iterdir())
    assert "no compiled kernels, PyTorch's operations instead" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_is_done_without(compiler, capsys):
    compiler.parent.write_text("a file where the directory would be")
    assert fused._compile().gate_forward_f32 and capsys.readouterr().err == ""


def test_a_cache_that_cannot_be_loaded_from_is_done_without(compiler):
    assert fused._compile()
    (kept,) = compiler.iterdir()
    kept.unlink()  # loaded already: the name must be another file's
    kept.write_bytes(b"no library")
    assert fused._compile().gate_forward_f32


def test_a_kernel_takes_no_tensor_with_gaps():
    z = random(torch.float32, 6, 4)
    assert fused.available()
    with pytest.raises(ValueError, match="not contiguous"):
        fused.Gate.apply(z.t(), z.t(), False)
