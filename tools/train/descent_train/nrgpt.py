"""NRGPT and the baselines of its paper as the trainer has them: parameters under the authors' names, forward passes whose
energy gradients are written out (models of arXiv 2512.16762). Autograd sees first-order functions only.

Shapes: B sequences of L tokens, C width, H heads, F hidden width, V vocabulary. A model is a plain object: `config`,
`parameters` (name -> float32 tensor), `logits(ids, T)`; matrices are cast once a pass to the type products run in.
"""
import contextlib
import math

import torch
import torch.nn.functional as F

from . import fused


def masked(g, mask):
    return g if mask is None else g * mask


class Model:
    """What the models have in common: named parameters and the cast of their matrices for one pass."""

    positions = True  # a learned embedding for each position, which a window has to say

    def __init__(self, config, device="cpu", dtype=torch.float32):
        self.config, self.device, self.dtype = config, torch.device(device), dtype
        self.parameters = {}

    def add(self, name, *shape, std=None, value=None, generator=None):
        p = torch.empty(*shape)
        if std is not None:
            p.normal_(0.0, std, generator=generator)
        else:
            p.fill_(value)
        self.parameters[name] = p.to(self.device).requires_grad_()

    def add_positions(self, block, C, std):
        """The learned position embeddings, starting as sinusoids of periods from 2 pi to four contexts: on these the step to
        the neighbouring position is one rotation for all positions, which attention finds hundreds of batches sooner than
        a neighbour among random vectors."""
        place = torch.arange(block)[:, None] * (2 * math.pi / (4 * block)) ** torch.linspace(0, 1, (C + 1) // 2)
        waves = torch.stack((place.sin(), place.cos()), -1).view(block, -1)[:, :C] * (std * math.sqrt(2))
        self.parameters["position_embedding_table.weight"] = waves.contiguous().to(self.device).requires_grad_()

    dropout = None  # inside `dropping`: (share, the generator its masks are drawn from)

    @contextlib.contextmanager
    def dropping(self, share, seed):
        """Passes inside this are training passes with dropout: `share` of the normalised state's numbers are nothing."""
        if share:
            self.dropout = share, torch.Generator(self.device).manual_seed(seed)
        try:
            yield
        finally:
            self.dropout = None

    def mask(self, x):
        """What x, normalised, is multiplied by where a sub-layer reads it, at each of its steps alike: a descent is on one
        energy (Gal and Ghahramani, arXiv 1512.05287). None outside `dropping`."""
        if self.dropout is None:
            return None
        share, generator = self.dropout
        kept = torch.empty(x.shape, dtype=self.dtype, device=x.device).bernoulli_(1 - share, generator=generator)
        return kept.div_(1 - share)

    def cast(self):
        """Every parameter for one forward pass, matrices in the type of the products."""
        return {n: p.to(self.dtype) if p.dim() > 1 else p for n, p in self.parameters.items()}

    def frozen(self):
        """Constants saved beside the parameters, name -> tensor."""
        return {}

    def count(self):
        return sum(p.numel() for p in self.parameters.values())


class NRGPT(Model):
    """config is the config.json of a safetensors directory, n_layer the trained T; `rate_value` beside it is the value of a
    scalar rate, which is never learned."""

    defaults = {"model_type": "nrgpt", "feed_forward": "ff2w", "tril_plus_one": False, "norm": "layernorm", "rate": "matrix",
                "ff_hid_factor": 4, "learned_alpha": False, "beta": 1.0, "norm_eps": 1e-5}

    def __init__(self, config, device="cpu", dtype=torch.float32, seed=0):
        super().__init__({**self.defaults, **config}, device, dtype)
        c, gen = self.config, torch.Generator().manual_seed(seed)
        C, V, hid = c["n_embed"], c["vocab_size"], c["ff_hid_factor"] * c["n_embed"]
        # Attention logits scale with |g|^2 = C, so H starts at a fifth of the usual 0.02; embeddings large beside the update.
        self.add("token_embedding_table.weight", V, C, std=0.1, generator=gen)
        self.add_positions(c["block_size"], C, 0.1)
        for h in range(c["n_head"]):
            self.add(f"blocks.attn.heads.{h}.H.weight", C, C, std=0.004, generator=gen)
        if c["learned_alpha"]:
            self.add("blocks.attn.alpha", c["n_head"], value=1.0)
        first = C if c["feed_forward"] == "ff2" else hid
        self.add("blocks.ffwd.net.0.weight", first, C, std=0.02, generator=gen)
        self.add("blocks.ffwd.net.0.bias", first, value=0.0)
        if c["feed_forward"] != "ff1":
            rows, cols = (hid, C) if c["feed_forward"] == "ff2" else (C, hid)
            self.add("blocks.ffwd.net.2.weight", rows, cols, std=0.02, generator=gen)
            self.add("blocks.ffwd.net.2.bias", rows, value=0.0)
        if c["norm"] == "layernorm":
            self.add("blocks.ln.bias", C, value=0.0)
        if c["rate"] == "matrix":
            self.add("blocks.proj.weight", C, C, std=0.02, generator=gen)
        elif c["rate"] == "diag":
            self.add("blocks.eta", C, value=0.1)
        self.add("blocks.scale_ff", 1, value=1.0)
        self.add("ln_f.weight", C, value=1.0)
        self.add("ln_f.bias", C, value=0.0)
        self.add("lm_head.weight", V, C, std=0.02, generator=gen)
        self.add("lm_head.bias", V, value=0.0)
        self.constants = {"blocks.ln.weight": torch.ones(C, device=self.device)}
        if c["rate"] == "scalar":  # the descent theory's case: fixed and small, never learned
            self.constants["blocks.eta"] = torch.full((1,), float(self.config.pop("rate_value")), device=self.device)

    def frozen(self):
        return self.constants

    def norm(self, x, w):
        c = self.config
        if c["norm"] == "rmsnorm":
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["norm_eps"]) * self.constants["blocks.ln.weight"]
        return F.layer_norm(x, x.shape[-1:], self.constants["blocks.ln.weight"], w["blocks.ln.bias"], c["norm_eps"])

    def feed_forward(self, g, w):
        """-grad_FF at g [N, C]."""
        w1, b1 = w["blocks.ffwd.net.0.weight"], w["blocks.ffwd.net.0.bias"].to(g.dtype)
        if self.config["feed_forward"] == "ff1":
            z = torch.addmm(b1, g, w1.t())
            y, _ = fused.GeluAndSlope.apply(z, z)
            return 2 * (fused.GeluAndSlope.apply(z, y)[1] @ w1)
        w2, b2 = w["blocks.ffwd.net.2.weight"], w["blocks.ffwd.net.2.bias"].to(g.dtype)
        if self.config["feed_forward"] == "ff2w":
            return fused.FF2W.apply(g, w1, b1, w2, b2)
        z1 = torch.addmm(b1, g, w1.t())
        z2 = torch.addmm(b2, fused.GeluAndSlope.apply(z1, z1)[0], w2.t())
        y = fused.GeluAndSlope.apply(z2, z2)[0]
        inner = fused.GeluAndSlope.apply(z2, y)[1] @ w2
        return 2 * (fused.GeluAndSlope.apply(z1, inner)[1] @ w1)

    def step(self, x, w, probe=None, mask=None):
        """x(t+1) of x(t) [B, L, C]; probe(p [B, L, L]) sees each head's attention, mask [B, L, C] is dropout's."""
        c = self.config
        B, L, C = x.shape
        g = masked(self.norm(x, w).to(self.dtype), mask)
        flat = g.view(B * L, C)
        down = self.feed_forward(flat, w).view(B, L, C) * w["blocks.scale_ff"].to(g.dtype)
        for h in range(c["n_head"]):
            k = (flat @ w[f"blocks.attn.heads.{h}.H.weight"].t()).view(B, L, C)
            out = fused.Attend.apply(g, k, k, c["beta"], c["tril_plus_one"])
            if probe is not None:
                probe(fused._softmax(torch.bmm(g, k.transpose(1, 2)), c["beta"], c["tril_plus_one"], 1, None))
            down = down + (out if not c["learned_alpha"] else out * w["blocks.attn.alpha"][h].to(g.dtype))
        if c["rate"] == "matrix":
            return x + (down.view(B * L, C) @ w["blocks.proj.weight"].t()).view(B, L, C).float()
        return x + w.get("blocks.eta", self.constants.get("blocks.eta")) * down.float()

    def embed(self, ids, start):
        p = self.parameters
        places = p["position_embedding_table.weight"][start:start + ids.shape[1]]
        return F.embedding(ids, p["token_embedding_table.weight"]) + places

    def read(self, x):
        p = self.parameters
        y = F.layer_norm(x, x.shape[-1:], p["ln_f.weight"], p["ln_f.bias"], self.config["norm_eps"])
        return F.linear(y, p["lm_head.weight"], p["lm_head.bias"])

    def states(self, ids, T, probe=None, start=0):
        """x(0), ..., x(T), one after the other, of tokens at positions from `start` on."""
        w, x = self.cast(), self.embed(ids, start)
        mask = self.mask(x)
        yield x
        for _ in range(T):
            x = self.step(x, w, probe, mask)
            yield x

    def logits(self, ids, T=None, start=0):
        for x in self.states(ids, T or self.config["n_layer"], start=start):
            pass
        return self.read(x)

    def sweep(self, ids, depths):
        """{T: logits} for every T of `depths`, from one descent to the largest: x(t) does not depend on T."""
        return {t: self.read(x) for t, x in enumerate(self.states(ids, max(depths))) if t in depths}
