"""CEM (arXiv 2605.07588) as the trainer has it, and the layers it is compared with: Llama's, and either sub-layer of one in
the place of the other's. Energy gradients are written out; autograd sees first-order functions only.

Shapes: B sequences of L tokens, C width, K heads of D = C/K, M the MLP's width, V vocabulary, r the preconditioner's rank.
"""
import math

import torch
import torch.nn.functional as F

from . import fused
from .nrgpt import Model, masked


class CEM(Model):
    """config is the config.json of a safetensors directory; attn: cem | llama, mlp: cem | swiglu."""

    positions = False  # rotary
    defaults = {"model_type": "cem", "attn": "cem", "mlp": "cem", "attn_diag": "shared", "precond_rank": 8,
                "mlp_act": "silu", "rope_theta": 10000.0, "norm_eps": 1e-5, "tie_embeddings": True, "eta_entries": 1,
                "steps_attn": 2, "steps_mlp": 2}

    def __init__(self, config, device="cpu", dtype=torch.float32, seed=0):
        super().__init__({**self.defaults, **config}, device, dtype)
        c, gen = self.config, torch.Generator().manual_seed(seed)
        C, M = c["n_embd"], c["n_ff"]
        self.add("embed.weight", c["vocab_size"], C, std=0.02 if c["tie_embeddings"] else 0.1, generator=gen)
        for layer in range(c["n_layer"]):
            at, ml = f"layers.{layer}.attn.", f"layers.{layer}.mlp."
            self.add(at + "norm.weight", C, value=1.0)
            for name in ("wq", "wk") if c["attn"] == "cem" else ("wq", "wk", "wv", "wo"):
                self.add(f"{at}{name}.weight", C, C, std=0.02, generator=gen)
            if c["attn"] == "cem":
                if c["attn_diag"] != "none":
                    self.add(at + "diag", *((C,) if c["attn_diag"] == "shared" else (c["n_head"], C)), value=0.0)
                self._descent(at, gen)
            self.add(ml + "norm.weight", C, value=1.0)
            self.add(ml + "up.weight", M, C, std=0.02, generator=gen)
            self.add(ml + "gate.weight", M, C, std=0.02, generator=gen)
            if c["mlp"] == "cem":
                self._descent(ml, gen)
            else:
                self.add(ml + "down.weight", C, M, std=0.02, generator=gen)
        self.add("norm_f.weight", C, value=1.0)
        if not c["tie_embeddings"]:
            self.add("lm_head.weight", c["vocab_size"], C, std=0.02, generator=gen)

    def _descent(self, prefix, gen):
        c, C = self.config, self.config["n_embd"]
        self.add(prefix + "eta", c["eta_entries"], value=1.0)
        if c["precond_rank"] >= 0:
            self.add(prefix + "precond.d", C, value=math.log(math.e - 1))
        if c["precond_rank"] > 0:
            self.add(prefix + "precond.u", C, c["precond_rank"], std=0.02, generator=gen)
            self.add(prefix + "precond.v", C, c["precond_rank"], std=0.02, generator=gen)

    def norm(self, x, weight, mask=None):
        y = (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.config["norm_eps"]) * weight).to(self.dtype)
        return masked(y, mask)

    def descend(self, x, down, prefix, t, w):
        """x(t+1) of x(t), down = -grad: the preconditioner P and the rate eta."""
        if self.config["precond_rank"] >= 0:
            y = F.softplus(w[prefix + "precond.d"]) * down.float()
            if self.config["precond_rank"] > 0:
                u, v = w[prefix + "precond.u"], w[prefix + "precond.v"]
                y = y + ((down @ v) @ u.t() + (down @ u) @ v.t()).float()
            down = y
        return x + w[prefix + "eta"][min(t, self.config["eta_entries"] - 1)] * down.float()

    def attention(self, h, prefix, T, w, turn, probe):
        c = self.config
        heads, scale = c["n_head"], 1 / math.sqrt(c["n_embd"] // c["n_head"])
        B, L, C = h.shape
        mask = self.mask(h)
        u = self.norm(h, w[prefix + "norm.weight"], mask)
        wq, diag = w[prefix + "wq.weight"], w.get(prefix + "diag")
        k = fused.Rotate.apply(u @ w[prefix + "wk.weight"].t(), heads, *turn, False)
        x = h
        for t in range(T):
            g = self.norm(x, w[prefix + "norm.weight"], mask)
            q = fused.Rotate.apply(g @ wq.t(), heads, *turn, False)
            if c["attn_diag"] == "shared":
                d = diag.to(g.dtype)
                o, m = fused.AttendShared.apply(q, k, g * d, u, scale)
                extra = d * m
            elif c["attn_diag"] == "per_head":
                o, extra = self._per_head(q, k, g, u, diag.to(g.dtype), scale)
            else:
                shape = (B * heads, L, C // heads)
                flat = k.reshape(shape)
                o, extra = fused.Attend.apply(q.reshape(shape), flat, flat, scale, False).view(q.shape), 0
            if probe is not None:
                probe(self._probabilities(q, k, g, u, diag, scale))
            x = self.descend(x, fused.Rotate.apply(o, heads, *turn, True) @ wq + extra, prefix, t, w)
        return x

    @staticmethod
    def _per_head(q, k, g, u, diag, scale):
        """A diagonal for each head, d [K, C]: the rare case, in PyTorch's own operations."""
        L = q.shape[2]
        s = q @ k.transpose(-1, -2) + (g[:, None] * diag[:, None]) @ u[:, None].transpose(-1, -2)
        p = torch.softmax((scale * s.float()).masked_fill(fused._outside(L, False, s.device), -math.inf), -1).to(s.dtype)
        return p @ k, (diag[:, None] * (p @ u[:, None])).sum(1)

    @staticmethod
    def _probabilities(q, k, g, u, diag, scale):
        s = q @ k.transpose(-1, -2)
        if diag is not None:
            s = s + ((g[:, None] * diag.reshape(-1, 1, diag.shape[-1]).to(g.dtype)) @ u[:, None].transpose(-1, -2))
        return torch.softmax((scale * s.float()).masked_fill(fused._outside(s.shape[-1], False, s.device), -math.inf), -1)

    def llama_attention(self, h, prefix, w, turn, probe):
        c = self.config
        B, L, C = h.shape
        heads, scale = c["n_head"], 1 / math.sqrt(C // c["n_head"])
        u = self.norm(h, w[prefix + "norm.weight"], self.mask(h))
        shape = (B * heads, L, C // heads)
        q, k = (fused.Rotate.apply(u @ w[f"{prefix}{n}.weight"].t(), heads, *turn, False) for n in ("wq", "wk"))
        v = (u @ w[prefix + "wv.weight"].t()).view(B, L, heads, -1).transpose(1, 2).reshape(shape)
        if probe is not None:
            probe(self._probabilities(q, k, u, u, None, scale))
        o = fused.Attend.apply(q.reshape(shape), k.reshape(shape), v, scale, False)
        o = o.view(B, heads, L, -1).transpose(1, 2).reshape(B, L, C)
        return h + (o @ w[prefix + "wo.weight"].t()).float()

    def mlp(self, h, prefix, T, w):
        gelu = self.config["mlp_act"] == "gelu"
        weight, up, x, mask = w[prefix + "norm.weight"], w[prefix + "up.weight"], h, self.mask(h)
        v = self.norm(h, weight, mask) @ w[prefix + "gate.weight"].t()
        for t in range(T):
            z = self.norm(x, weight, mask) @ up.t()
            x = self.descend(x, fused.Gate.apply(z, v, gelu) @ up, prefix, t, w)
        return x

    def swiglu(self, h, prefix, w):
        u = self.norm(h, w[prefix + "norm.weight"], self.mask(h))
        y = fused.Gate.apply(u @ w[prefix + "gate.weight"].t(), u @ w[prefix + "up.weight"].t(), False)
        return h + (y @ w[prefix + "down.weight"].t()).float()

    def logits(self, ids, T=None, probe=None, moved=None):
        """T = (attention, MLP), one number for both, or None: the config's. probe(p [B, K, L, L]) sees every attention,
        moved(before, after) every layer's input and output."""
        c, w = self.config, self.cast()
        Ta, Tm = T if isinstance(T, (tuple, list)) else (T or c["steps_attn"], T or c["steps_mlp"])
        turn = fused.angles(ids.shape[1], c["n_embd"] // c["n_head"], c["rope_theta"], ids.device)
        x = F.embedding(ids, self.parameters["embed.weight"])
        for layer in range(c["n_layer"]):
            at, ml = f"layers.{layer}.attn.", f"layers.{layer}.mlp."
            before = x
            if c["attn"] == "cem":
                x = self.attention(x, at, Ta, w, turn, probe)
            else:
                x = self.llama_attention(x, at, w, turn, probe)
            x = self.mlp(x, ml, Tm, w) if c["mlp"] == "cem" else self.swiglu(x, ml, w)
            if moved is not None:
                moved(before, x)
        return self.norm(x, w["norm_f.weight"]) @ w["embed.weight" if c["tie_embeddings"] else "lm_head.weight"].t()

    def sweep(self, ids, depths):
        """{T: logits}: a layer's input depends on the T of those before it, so each T is a pass of its own."""
        return {t: self.logits(ids, t) for t in depths}
