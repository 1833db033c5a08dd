"""Random layered models as safetensors directories, and the mathematics of their four kinds of sub-layer in float64 numpy, whole
sequences at once: attention by CEM's descent or Llama's, MLP by CEM's descent or SwiGLU. Nothing of it is the engine's.

Shapes: L tokens, C width, K heads of D = C/K, M the MLP's width, V vocabulary, r the preconditioner's rank."""
import json
from math import erf

import numpy as np
from safetensors.numpy import save_file

KINDS = [("cem", "cem"), ("llama", "swiglu"), ("cem", "swiglu"), ("llama", "cem")]


def _norm(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def _silu(z):
    return z / (1 + np.exp(-z))


def _gelu(z):
    return z * 0.5 * (1 + np.vectorize(erf)(z / np.sqrt(2)))


def _integral(act, z):
    """Of act from 0 to z: Gauss and Legendre on 48 points."""
    at, weight = np.polynomial.legendre.leggauss(48)
    return sum(w * act(z * (a + 1) / 2) for a, w in zip(at, weight)) * z / 2


def _turn(y, heads, base, back=False):
    """Numbers d and d + D/2 of a head are one complex number, turned by position * base^(-2d/D)."""
    L, C = y.shape
    D = C // heads
    parts = y.reshape(L, heads, 2, D // 2)
    angle = np.outer(np.arange(L), base ** (-2.0 * np.arange(D // 2) / D))[:, None]
    turned = (parts[:, :, 0] + 1j * parts[:, :, 1]) * np.exp(-1j * angle if back else 1j * angle)
    return np.stack([turned.real, turned.imag], 2).reshape(L, C)


def _softmax(scores):
    """Causal: scores [K, L, L]. Weights and log sums [K, L]."""
    scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
    largest = scores.max(-1, keepdims=True)
    e = np.exp(scores - largest)
    return e / e.sum(-1, keepdims=True), np.log(e.sum(-1)) + largest[..., 0]


class Layered:
    def __init__(self, attn, mlp, seed, V=31, C=24, K=3, M=40, layers=2, context=40, diagonal="shared", rank=3, activation="silu",
                 tied=True, entries=2):
        self.config = {
            "model_type": "cem", "attn": attn, "mlp": mlp, "vocab_size": V, "n_embd": C, "n_layer": layers, "n_head": K, "n_ff": M,
            "block_size": context, "steps_attn": 2, "steps_mlp": 3, "attn_diag": diagonal, "precond_rank": rank,
            "mlp_act": activation, "rope_theta": 500.0, "norm_eps": 1e-5, "tie_embeddings": tied, "eta_entries": entries}
        random = np.random.default_rng(seed)
        self.weights = {}

        def draw(name, *shape, mean=0.0, size=None):
            size = 1 / np.sqrt(shape[-1]) if size is None else size
            self.weights[name] = (mean + size * random.standard_normal(shape)).astype(np.float32).astype(np.float64)

        draw("embed.weight", V, C, size=0.7)
        for l in range(layers):
            for part, kind in (("attn", attn), ("mlp", mlp)):
                at = f"layers.{l}.{part}."
                draw(at + "norm.weight", C, mean=1, size=0.1)
                names = {"attn": {"wq": (C, C), "wk": (C, C)}, "mlp": {"up": (M, C), "gate": (M, C)}}[part]
                names |= {"llama": {"wv": (C, C), "wo": (C, C)}, "swiglu": {"down": (C, M)}}.get(kind, {})
                for name, shape in names.items():
                    draw(f"{at}{name}.weight", *shape)
                if kind != "cem":
                    continue
                draw(at + "eta", entries, mean=0.3, size=0.05)
                if rank >= 0:
                    draw(at + "precond.d", C, size=0.3)
                if rank > 0:
                    draw(at + "precond.u", C, rank, size=0.1)
                    draw(at + "precond.v", C, rank, size=0.1)
                if part == "attn" and diagonal != "none":
                    draw(at + "diag", *((C,) if diagonal == "shared" else (K, C)), size=0.2)
        draw("norm_f.weight", C, mean=1, size=0.1)
        if not tied:
            draw("lm_head.weight", V, C)

    def write(self, path, shards=None):
        """model.safetensors and config.json; several files and their index where `shards` lists the names in each."""
        path.mkdir(exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config))
        narrow = {name: value.astype(np.float32) for name, value in self.weights.items()}
        if shards is None:
            save_file(narrow, path / "model.safetensors")
            return path
        index = {}
        for i, names in enumerate(shards):
            file = f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
            save_file({name: narrow[name] for name in names}, path / file)
            index |= {name: file for name in names}
        (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {"total_size": 0}, "weight_map": index}))
        return path

    # -- Sub-layers

    def _precondition(self, at, gradient):
        if self.config["precond_rank"] < 0:
            return gradient
        out = np.log1p(np.exp(self.weights[at + "precond.d"])) * gradient
        if self.config["precond_rank"] > 0:
            u, v = self.weights[at + "precond.u"], self.weights[at + "precond.v"]
            out = out + gradient @ v @ u.T + gradient @ u @ v.T
        return out

    def _descend(self, at, h, T, energy_and_gradient):
        """x(T), and the energy at x(0) .. x(T) [T + 1, L]."""
        x, energies = h, []
        for t in range(T + 1):
            energy, gradient = energy_and_gradient(_norm(x, self.weights[at + "norm.weight"]))
            energies.append(energy)
            if t < T:
                eta = self.weights[at + "eta"]
                x = x - eta[min(t, len(eta) - 1)] * self._precondition(at, gradient)
        return x, np.array(energies)

    def _cem_attention(self, at, h, T):
        w, K, base = self.weights, self.config["n_head"], self.config["rope_theta"]
        L, C = h.shape
        D = C // K
        u = _norm(h, w[at + "norm.weight"])
        keys = _turn(u @ w[at + "wk.weight"].T, K, base).reshape(L, K, D)
        d = {"none": np.zeros((K, C)), "per_head": w.get(at + "diag"),
             "shared": np.broadcast_to(w.get(at + "diag", np.zeros(C)), (K, C))}[self.config["attn_diag"]]

        def at_g(g):
            q = _turn(g @ w[at + "wq.weight"].T, K, base).reshape(L, K, D)
            a = np.einsum("ikd,jkd->kij", q, keys) + np.einsum("ic,kc,jc->kij", g, d, u)
            p, log_sum = _softmax(a / np.sqrt(D))
            back = _turn(np.einsum("kij,jkd->ikd", p, keys).reshape(L, C), K, base, back=True) @ w[at + "wq.weight"]
            return -np.sqrt(D) * log_sum.sum(0), -back - np.einsum("kij,kc,jc->ic", p, d, u)

        return self._descend(at, h, T, at_g)

    def _cem_mlp(self, at, h, T):
        w, act = self.weights, _gelu if self.config["mlp_act"] == "gelu" else _silu
        v = _norm(h, w[at + "norm.weight"]) @ w[at + "gate.weight"].T

        def at_g(g):
            z = g @ w[at + "up.weight"].T
            return -(v * _integral(act, z)).sum(-1), -(v * act(z)) @ w[at + "up.weight"]

        return self._descend(at, h, T, at_g)

    def _llama_attention(self, at, h):
        w, K, base = self.weights, self.config["n_head"], self.config["rope_theta"]
        L, C = h.shape
        g = _norm(h, w[at + "norm.weight"])
        q, k = (_turn(g @ w[f"{at}{n}.weight"].T, K, base).reshape(L, K, C // K) for n in ("wq", "wk"))
        v = (g @ w[at + "wv.weight"].T).reshape(L, K, C // K)
        p, _ = _softmax(np.einsum("ikd,jkd->kij", q, k) / np.sqrt(C // K))
        return h + np.einsum("kij,jkd->ikd", p, v).reshape(L, C) @ w[at + "wo.weight"].T

    def _swiglu(self, at, h):
        w = self.weights
        g = _norm(h, w[at + "norm.weight"])
        return h + (_silu(g @ w[at + "gate.weight"].T) * (g @ w[at + "up.weight"].T)) @ w[at + "down.weight"].T

    # -- The model

    def run(self, ids, steps):
        """Logits [L, V], the states they are read from [L, C], and by part the energies of its descents [layers, T + 1, L], which
        only CEM's have. steps: T of attention, of the MLP."""
        x, energies = self.weights["embed.weight"][ids], {"attention": [], "mlp": []}
        for l in range(self.config["n_layer"]):
            at, ml = f"layers.{l}.attn.", f"layers.{l}.mlp."
            if self.config["attn"] == "cem":
                x, energy = self._cem_attention(at, x, steps[0])
                energies["attention"].append(energy)
            else:
                x = self._llama_attention(at, x)
            if self.config["mlp"] == "cem":
                x, energy = self._cem_mlp(ml, x, steps[1])
                energies["mlp"].append(energy)
            else:
                x = self._swiglu(ml, x)
        head = self.weights["embed.weight" if self.config["tie_embeddings"] else "lm_head.weight"]
        return _norm(x, self.weights["norm_f.weight"]) @ head.T, x, {k: np.array(e) for k, e in energies.items() if e}

    def loss(self, ids, steps):
        """Mean nats a prediction, in windows of the context's length."""
        total, context = 0.0, self.config["block_size"]
        for start in range(0, len(ids) - 1, context):
            window = ids[start:start + context + 1]
            logits = self.run(window[:-1], steps)[0]
            largest = logits.max(-1, keepdims=True)
            log_sum = np.log(np.exp(logits - largest).sum(-1)) + largest[:, 0]
            total += (log_sum - logits[np.arange(len(window) - 1), window[1:]]).sum()
        return total / (len(ids) - 1)
