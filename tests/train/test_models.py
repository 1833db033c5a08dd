"""The trainer's models: their logits beside the golden ones of a float64 reference, and their training gradients beside those
of a second writing of the same mathematics, in float64, that takes the energies alone and lets autograd differentiate them
twice. Both with the compiled kernels and without."""
import math

import pytest
import torch
import torch.nn.functional as F

import golden
from descent_train import fused
from descent_train.cem import CEM
from descent_train.gpt import GPT
from descent_train.nrgpt import NRGPT, masked


@pytest.fixture(params=["compiled", "formulas"])
def kernels(request, monkeypatch):
    if request.param == "compiled":
        assert fused.available(), "no C compiler made the fused kernels"
    else:
        monkeypatch.setattr(fused, "_library", None)
        monkeypatch.setattr(fused, "_tried", True)
    return request.param


@pytest.mark.parametrize("name", golden.NAMES)
def test_logits_are_the_golden_ones(name, kernels):
    model, (tokens, logits) = golden.load(name), golden.expected(name)
    assert logits
    for depth, wanted in logits.items():
        with torch.no_grad():
            got = model.logits(tokens, depth)[0].double()
        assert ((got - wanted).abs() / wanted.abs().clamp(min=1)).max() < 2e-5, depth
    swept = model.sweep(tokens, list(logits))
    assert all(torch.equal(swept[depth], model.logits(tokens, depth)) for depth in logits)


# ---- Energies, differentiated by autograd --------------------------------------------------------------------------


def history(scores, strict):
    L = scores.shape[-1]
    return scores.masked_fill(torch.ones(L, L, dtype=torch.bool).triu(0 if strict else 1), -math.inf)


def log_sum(a, strict):
    """log sum exp over each token's history; 0 where there is none."""
    a = history(a, strict)
    if not strict:
        return torch.logsumexp(a, -1)
    return torch.cat([torch.zeros_like(a[..., :1, 0]), torch.logsumexp(a[..., 1:, :], -1)], -1)


def descend(energy, g):
    """dE/dg of a sum of energies in which g stands as the query alone."""
    return torch.autograd.grad(energy(g).sum(), g, create_graph=True)[0]


def nrgpt_by_energies(config, p, ids, T):
    x = p["token_embedding_table.weight"][ids] + p["position_embedding_table.weight"][:ids.shape[1]]
    C = x.shape[-1]
    for _ in range(T):
        g = F.layer_norm(x, (C,), p["blocks.ln.weight"], p["blocks.ln.bias"]) if config["norm"] == "layernorm" else F.normalize(
            x, dim=-1, eps=0) * math.sqrt(C) * (1 + 1e-5 / x.pow(2).mean(-1, keepdim=True)) ** -0.5

        def energy(q):
            e = torch.zeros_like(q[..., 0])
            for h in range(config["n_head"]):
                a = q @ (g @ p[f"blocks.attn.heads.{h}.H.weight"].T).transpose(1, 2)
                alpha = p["blocks.attn.alpha"][h] if config["learned_alpha"] else 1
                e = e - alpha * log_sum(config["beta"] * a, config["tril_plus_one"]) / config["beta"]
            z = F.linear(q, p["blocks.ffwd.net.0.weight"], p["blocks.ffwd.net.0.bias"])
            if config["feed_forward"] == "ff1":
                ff = -F.gelu(z).pow(2).sum(-1)
            else:
                y = F.linear(F.gelu(z), p["blocks.ffwd.net.2.weight"], p["blocks.ffwd.net.2.bias"])
                ff = -F.gelu(y).pow(2).sum(-1) if config["feed_forward"] == "ff2" else -(q * y).sum(-1)
            return e + p["blocks.scale_ff"] * ff

        # A copy of g for the query, so that the keys are held constant; the graph leads on through both.
        q = g * 1.0
        down = -descend(energy, q)
        x = x + (down @ p["blocks.proj.weight"].T if config["rate"] == "matrix" else p["blocks.eta"] * down)
    return F.linear(F.layer_norm(x, (C,), p["ln_f.weight"], p["ln_f.bias"]), p["lm_head.weight"], p["lm_head.bias"])


def silu_integral(z):
    """The integral of silu from 0 to z, by 40 Gauss-Legendre nodes: an antiderivative whose derivatives autograd finds."""
    import numpy as np
    nodes, weights = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(40))
    at = z[..., None] * (nodes + 1) / 2
    return (z[..., None] / 2 * weights * F.silu(at)).sum(-1)


def gelu_integral(z):
    cdf, pdf = 0.5 * (1 + torch.erf(z / math.sqrt(2))), torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    return 0.25 + 0.5 * ((z * z - 1) * cdf + z * pdf)


def rotate(x, theta):
    L, D = x.shape[-2:]
    a = torch.arange(L).double()[:, None] * theta ** (-torch.arange(0, D, 2).double() / D)
    turned = torch.view_as_complex(torch.stack((x[..., :D // 2], x[..., D // 2:]), -1).contiguous()) * torch.polar(torch.ones_like(a), a)
    return torch.cat((turned.real, turned.imag), -1)


def cem_by_energies(config, p, ids, T):
    x, K = p["embed.weight"][ids], config["n_head"]
    C = x.shape[-1]
    tau = math.sqrt(C // K)

    def norm(y, name):
        return y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + 1e-5) * p[name]

    def heads(y):
        return y.view(*y.shape[:2], K, -1).transpose(1, 2)

    def updated(x, grad, prefix, t):
        if config["precond_rank"] >= 0:
            P = torch.diag(F.softplus(p[prefix + "precond.d"]))
            if config["precond_rank"] > 0:
                u, v = p[prefix + "precond.u"], p[prefix + "precond.v"]
                P = P + u @ v.T + v @ u.T
            grad = grad @ P.T
        return x - p[prefix + "eta"][min(t, config["eta_entries"] - 1)] * grad

    for layer in range(config["n_layer"]):
        at, ml = f"layers.{layer}.attn.", f"layers.{layer}.mlp."
        u = norm(x, at + "norm.weight")
        k = rotate(heads(u @ p[at + "wk.weight"].T), config["rope_theta"])
        for t in range(T[0]):
            def energy(g):
                a = rotate(heads(g @ p[at + "wq.weight"].T), config["rope_theta"]) @ k.transpose(-1, -2)
                if config["attn_diag"] != "none":
                    a = a + (g[:, None] * p[at + "diag"].reshape(-1, 1, C)) @ u[:, None].transpose(-1, -2)
                return -tau * log_sum(a / tau, False).sum(1)
            x = updated(x, descend(energy, norm(x, at + "norm.weight")), at, t)
        v = norm(x, ml + "norm.weight") @ p[ml + "gate.weight"].T
        for t in range(T[1]):
            integral = gelu_integral if config["mlp_act"] == "gelu" else silu_integral
            x = updated(x, descend(lambda g: -(v * integral(g @ p[ml + "up.weight"].T)).sum(-1), norm(x, ml + "norm.weight")), ml, t)
    return norm(x, "norm_f.weight") @ p["embed.weight"].T


def compare_gradients(model, by_energies, depth, tolerance):
    """The whole way: the cross-entropy's gradient with respect to every parameter."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(0, model.config["vocab_size"], (2, 12), generator=generator)
    targets = torch.randint(0, model.config["vocab_size"], (24,), generator=generator)
    with torch.no_grad():
        for p in model.parameters.values():
            p.add_(torch.randn(p.shape, generator=generator) * 0.1)
    ours = torch.autograd.grad(F.cross_entropy(model.logits(ids, depth).flatten(0, 1), targets), list(model.parameters.values()))
    p = {n: t.detach().double().requires_grad_() for n, t in {**model.parameters, **model.frozen()}.items()}
    logits = by_energies(model.config, p, ids, depth)
    theirs = torch.autograd.grad(F.cross_entropy(logits.flatten(0, 1), targets), [p[n] for n in model.parameters])
    for name, a, b in zip(model.parameters, ours, theirs):
        assert (a.double() - b).norm() <= tolerance * (b.norm() + 1e-6), name


@pytest.mark.parametrize("mask", ["causal", "strict"])
@pytest.mark.parametrize("kind", ["ff1", "ff2", "ff2w"])
def test_nrgpt_trains_along_the_gradient_of_its_energies(kind, mask, kernels):
    compare_gradients(NRGPT({"vocab_size": 19, "n_embed": 24, "n_head": 2, "block_size": 12, "n_layer": 3, "feed_forward": kind,
                             "tril_plus_one": mask == "strict"}), nrgpt_by_energies, 3, 1e-4)


@pytest.mark.parametrize("changed", [{"norm": "rmsnorm"}, {"rate": "diag"}, {"rate": "scalar", "rate_value": 0.1},
                                     {"learned_alpha": True, "beta": 0.25}], ids=str)
def test_so_do_its_other_norms_and_rates(changed):
    compare_gradients(NRGPT({"vocab_size": 19, "n_embed": 24, "n_head": 2, "block_size": 12, "n_layer": 3, **changed}),
                      nrgpt_by_energies, 3, 1e-4)


@pytest.mark.parametrize("rank", [-1, 0, 4])
@pytest.mark.parametrize("diagonal", ["none", "shared", "per_head"])
def test_cem_trains_along_the_gradients_of_its_energies(diagonal, rank, kernels):
    compare_gradients(CEM({"vocab_size": 19, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_ff": 40, "block_size": 12, "attn_diag": diagonal,
                           "precond_rank": rank, "mlp_act": "silu" if rank else "gelu", "eta_entries": 2}), cem_by_energies, (3, 2), 1e-4)


def llama(config, p, ids, _):
    """Llama's layers in the plainest words."""
    x, K, C = p["embed.weight"][ids], config["n_head"], config["n_embd"]
    for layer in range(config["n_layer"]):
        at, ml = f"layers.{layer}.attn.", f"layers.{layer}.mlp."
        u = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * p[at + "norm.weight"]
        q, k, v = ((u @ p[at + n + ".weight"].T).view(*ids.shape, K, -1).transpose(1, 2) for n in ("wq", "wk", "wv"))
        a = rotate(q, config["rope_theta"]) @ rotate(k, config["rope_theta"]).transpose(-1, -2) / math.sqrt(C // K)
        x = x + (torch.softmax(history(a, False), -1) @ v).transpose(1, 2).flatten(2) @ p[at + "wo.weight"].T
        u = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * p[ml + "norm.weight"]
        x = x + (F.silu(u @ p[ml + "gate.weight"].T) * (u @ p[ml + "up.weight"].T)) @ p[ml + "down.weight"].T
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * p["norm_f.weight"] @ p["embed.weight"].T


def test_llama_layers(kernels):
    compare_gradients(CEM({"vocab_size": 19, "n_embd": 24, "n_layer": 2, "n_head": 3, "n_ff": 40, "block_size": 12, "attn": "llama",
                           "mlp": "swiglu"}), llama, (1, 1), 1e-4)


def gpt(config, p, ids, T):
    x = p["token_embedding_table.weight"][ids] + p["position_embedding_table.weight"][:ids.shape[1]]
    recursive, C, D = config["model_type"] == "gpt-rec-parallel", config["n_embed"], config["n_embed"] // config["n_head"]

    def linear(y, name):
        return F.linear(y, p[name + ".weight"], p[name + ".bias"])

    def norm(y, name):
        return F.layer_norm(y, (C,), p[name + ".weight"], p[name + ".bias"])

    def attention(y, block):
        outs = []
        for h in range(config["n_head"]):
            q, k, v = (y @ p[f"{block}sa.heads.{h}.{n}.weight"].T for n in ("query", "key", "value"))
            outs.append(torch.softmax(history(q @ k.transpose(1, 2) * D ** -0.5, False), -1) @ v)
        return linear(torch.cat(outs, -1), block + "sa.proj")

    def feed_forward(y, block):
        return linear(F.relu(linear(y, block + "ffwd.net.0")), block + "ffwd.net.2")

    for block in ["blocks."] * T if recursive else [f"blocks.{i}." for i in range(config["n_layer"])]:
        if recursive:
            x = x + attention(norm(x, block + "ln1"), block) + feed_forward(norm(x, block + "ln2"), block)
        else:
            x = x + attention(norm(x, block + "ln1"), block)
            x = x + feed_forward(norm(x, block + "ln2"), block)
    return linear(norm(x, "ln_f"), "lm_head")


@pytest.mark.parametrize("kind", ["gpt", "gpt-rec-parallel"])
def test_the_baselines(kind, kernels):
    compare_gradients(GPT({"model_type": kind, "vocab_size": 19, "n_embed": 26, "n_head": 3, "n_layer": 2, "block_size": 12}), gpt, 3, 1e-4)


@pytest.mark.parametrize("attn, mlp", [("cem", "swiglu"), ("llama", "cem")])
def test_a_hybrid_is_one_half_of_each(attn, mlp):
    """Its first sub-layer moves a state as that kind of layer does, its second as the other."""
    config = {"vocab_size": 19, "n_embd": 24, "n_layer": 1, "n_head": 3, "n_ff": 40, "block_size": 12}
    hybrid = CEM({**config, "attn": attn, "mlp": mlp}, seed=5)
    pure = {"cem": CEM(config, seed=6), "llama": CEM({**config, "attn": "llama", "mlp": "swiglu"}, seed=7)}
    with torch.no_grad():
        for half, kind in (("attn", attn), ("mlp", "llama" if mlp == "swiglu" else "cem")):
            for n, p in hybrid.parameters.items():
                if half in n:
                    p.copy_(pure[kind].parameters[n])
    turn = fused.angles(12, 8, 10000.0, "cpu")
    x = torch.randn(2, 12, 24, generator=torch.Generator().manual_seed(1))

    def attention(m, x):
        w = m.cast()
        return m.attention(x, "layers.0.attn.", 2, w, turn, None) if m.config["attn"] == "cem" else m.llama_attention(x, "layers.0.attn.", w, turn, None)

    def second(m, x):
        w = m.cast()
        return m.mlp(x, "layers.0.mlp.", 2, w) if m.config["mlp"] == "cem" else m.swiglu(x, "layers.0.mlp.", w)

    other = {"cem": "llama", "llama": "cem"}[attn]
    assert torch.equal(second(hybrid, attention(hybrid, x)), second(pure[other], attention(pure[attn], x)))


def test_bfloat16_products_stay_near_float32():
    """The precision a run may choose is the float32 model to the 8 bits it has."""
    for name in ("nrgpt-ff2w", "cem-shared-r8-silu", "gpt"):
        exact, rounded = golden.load(name), golden.load(name, torch.bfloat16)
        tokens, logits = golden.expected(name)
        depth = min(logits)
        a, b = exact.logits(tokens, depth).detach(), rounded.logits(tokens, depth).float().detach()
        assert 0 < (a - b).norm() / a.norm() < 0.03, name


# ---- Dropout -----------------------------------------------------------------------------------------------------------


# Golden model -> masks of a pass at T = 3, reads of a normalised state: of CEM's also the one its keys or gate are made of.
MASKS = {"nrgpt-ff2w": (1, 3), "gpt-rec-parallel": (2, 6), "gpt": (4, 4), "cem-shared-r8-silu": (4, 16)}


@pytest.mark.parametrize("name", MASKS)
def test_dropout_is_one_mask_a_sublayer_at_all_its_steps(name, monkeypatch):
    """Every state that a sub-layer reads is without the same numbers, about the share asked, and the others are enlarged."""
    model, (tokens, _) = golden.load(name), golden.expected(name)
    used, original = [], masked
    for module in ("nrgpt", "gpt", "cem"):
        monkeypatch.setattr(f"descent_train.{module}.masked", lambda g, mask: used.append(mask) or original(g, mask))
    with model.dropping(0.25, 7):
        model.logits(tokens, 3)
    used = [mask for mask in used if mask is not None]  # the head reads all of the last state
    masks = {id(mask): mask for mask in used}.values()
    assert (len(masks), len(used)) == MASKS[name]
    for mask in masks:
        assert sorted(set(mask.flatten().tolist())) == [0.0, pytest.approx(1 / 0.75)]
        assert abs(float((mask == 0).float().mean()) - 0.25) < 4 * math.sqrt(0.25 * 0.75 / mask.numel())


def test_dropout_draws_what_its_seed_says():
    model, (tokens, _) = golden.load("nrgpt-ff2w"), golden.expected("nrgpt-ff2w")
    with torch.no_grad():
        def dropped(seed):
            with model.dropping(0.25, seed):
                return model.logits(tokens, 3)
        plain = model.logits(tokens, 3)
        assert torch.equal(dropped(1), dropped(1)) and not torch.equal(dropped(1), dropped(2))
        assert torch.equal(model.logits(tokens, 3), plain)
