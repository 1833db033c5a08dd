"""Models of every pair of sub-layers, converted from safetensors directories, against float64 numpy (layers.py); tolerances as
in test_golden.py."""
import sys

import numpy as np
import pytest
from conftest import ROOT
from layers import KINDS, Layered
from test_golden import assert_near

import descent
from descent import Code, Error

sys.path.insert(0, str(ROOT / "tools"))
from descent_convert import cli  # noqa: E402

IDS = [(7 * i + i * i // 3) % 31 for i in range(37)]
VARIANTS = [{}, {"diagonal": "per_head", "rank": 0, "activation": "gelu", "tied": False},
            {"diagonal": "none", "rank": -1, "K": 4}]


def converted(model, folder, *options):
    assert cli.main([str(model.write(folder / "checkpoint")), str(folder / "model.gguf"), *options]) == 0
    return descent.Model(folder / "model.gguf")


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("attn, mlp", KINDS)
def test_against_numpy(attn, mlp, variant, tmp_path):
    reference = Layered(attn, mlp, seed=len(variant), **variant)
    with converted(reference, tmp_path) as model:
        info = model.info
        has = [attn == "cem", mlp == "cem"]
        assert (info.family, info.kinds, info.layers) == ("cem", ("attention", "mlp"), 2)
        assert info.trained == (2 * has[0], 3 * has[1])
        assert info.terms == (("attention",) * has[0], ("mlp",) * has[1])
        assert ("llama attention" in info.variant, "swiglu mlp" in info.variant) == (not has[0], not has[1])
        for steps in ((2, 3), (1, 1), (5, 2)):
            steps = tuple(T * there for T, there in zip(steps, has))
            logits, states, energies = reference.run(IDS, steps)
            run = model.run(IDS, steps=steps, observe=("energy", "convergence", "state", "final"))
            assert_near(run.logits, logits, 2e-5)
            assert_near(run.final, states, 2e-5, np.abs(states).max(-1, keepdims=True))
            assert set(run.energy) == set(energies)
            for kind, expected in energies.items():
                assert_near(run.energy[kind], expected, 1e-4)
            for kind, T in zip(info.kinds, steps):  # a sub-layer without T has one step, before and after
                trace = run.traces[kind]
                assert trace.states.shape[1] == (T or 1) + 1
                moved = np.linalg.norm(np.diff(trace.states.astype(np.float64), axis=1), axis=-1)
                np.testing.assert_allclose(trace.update_norm, moved, rtol=1e-4, atol=1e-5)
                if not T:
                    assert trace.total_energy is None and trace.own_change is None and trace.history_change is None
            if not any(has):
                break


class Rounding(np.ndarray):
    """A matrix before which vectors are rounded to bytes, 32 numbers to a scale, as quantized products do: what that does to the
    reference's results is what it may do to the engine's."""

    def __array_ufunc__(self, ufunc, method, *inputs, **options):
        plain = [np.asarray(value) for value in inputs]
        if ufunc is np.matmul and isinstance(inputs[1], Rounding):
            x = plain[0]
            blocks = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, -x.shape[-1] % 32)]).reshape(*x.shape[:-1], -1, 32)
            scale = np.abs(blocks).max(-1, keepdims=True) / 127
            bytes_ = np.rint(np.divide(blocks, scale, out=np.zeros_like(blocks), where=scale > 0))
            plain[0] = (bytes_ * scale).reshape(*x.shape[:-1], -1)[..., :x.shape[-1]]
        return getattr(ufunc, method)(*plain, **options)


@pytest.mark.parametrize("kind", ["f16", "bf16", "q8_0"])
@pytest.mark.parametrize("attn, mlp", KINDS)
def test_narrow_weights(attn, mlp, kind, tmp_path):
    """Against the same mathematics on the numbers the file holds."""
    import gguf
    reference = Layered(attn, mlp, seed=7)
    with converted(reference, tmp_path, "--type", kind) as model:
        stored = {t.name: gguf.dequantize(t.data, t.tensor_type).astype(np.float64)
                  for t in gguf.GGUFReader(tmp_path / "model.gguf").tensors}
        short = {"wq": "q", "wk": "k", "wv": "v", "wo": "output"}
        for name, value in reference.weights.items():
            if name in ("embed.weight", "norm_f.weight"):
                held = stored[{"embed.weight": "token_embd.weight", "norm_f.weight": "output_norm.weight"}[name]]
            else:
                _, l, part, rest = name.removesuffix(".weight").split(".", 3)
                held = stored[f"blk.{l}.{part}_{short.get(rest, rest.replace('.', '_'))}.weight"]
            held = held.reshape(-1, held.shape[-1])[:, :value.shape[-1]].reshape(value.shape)
            np.testing.assert_allclose(held, value, atol=0.03)
            reference.weights[name] = held
        steps = model.info.trained
        wanted, found = reference.run(IDS, steps)[0], model.run(IDS, steps=steps).logits
        if kind != "q8_0":
            assert_near(found, wanted, 2e-5)
            return
        reference.weights = {name: value.view(Rounding) if value.ndim == 2 else value for name, value in reference.weights.items()}
        spread = np.abs(np.asarray(reference.run(IDS, steps)[0]) - wanted)
        assert 0 < np.abs(found - wanted).max() < 3 * spread.max() and np.abs(found - wanted).mean() < 3 * spread.mean()


def test_a_depth_that_is_not_there(tmp_path):
    for attn, mlp in KINDS[1:]:
        folder = tmp_path / f"{attn}-{mlp}"
        folder.mkdir()
        with converted(Layered(attn, mlp, seed=3), folder) as model:
            has = [attn == "cem", mlp == "cem"]
            for steps in ("3x2", (3, 2)):
                with pytest.raises(Error, match="no T|has a T") as caught:
                    model.run(IDS, steps=steps)
                assert caught.value.code == Code.BAD_ARGUMENT
            if any(has):
                depth = {"attention": 3 * has[0], "mlp": 3 * has[1]}
                assert model.run(IDS, steps="3").depth == model.run(IDS, steps=3).depth == depth
                continue
            for steps in ("3", 3):
                with pytest.raises(Error, match="no sub-layer"):
                    model.run(IDS, steps=steps)
            assert model.run(IDS, steps="none").depth == model.run(IDS).depth == {"attention": 0, "mlp": 0}
