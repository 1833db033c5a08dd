"""The baselines of NRGPT's paper under its authors' names: GPT, n_layer blocks one after the other, and GPT_Rec_parallel, one
block applied T times whose attention and feed-forward both read the same norm's input. ReLU, scale head_size^-0.5, biases
where the authors have them.

Shapes: B sequences of L tokens, C width, H heads of D = floor(C/H), F hidden width, V vocabulary.
"""
import torch
import torch.nn.functional as F

from . import fused
from .nrgpt import Model, masked


class GPT(Model):
    """config is the config.json of a safetensors directory. model_type gpt: n_layer blocks and no T; gpt-rec-parallel: one
    block, n_layer its trained T."""

    defaults = {"model_type": "gpt", "ff_hid_factor": 4}

    def __init__(self, config, device="cpu", dtype=torch.float32, seed=0):
        super().__init__({**self.defaults, **config}, device, dtype)
        c, gen = self.config, torch.Generator().manual_seed(seed)
        C, V, hid, D = c["n_embed"], c["vocab_size"], c["ff_hid_factor"] * c["n_embed"], c["n_embed"] // c["n_head"]
        self.recursive = c["model_type"] == "gpt-rec-parallel"
        self.blocks = ["blocks."] if self.recursive else [f"blocks.{i}." for i in range(c["n_layer"])]
        self.add("token_embedding_table.weight", V, C, std=0.02, generator=gen)
        self.add_positions(c["block_size"], C, 0.02)
        for block in self.blocks:
            for h in range(c["n_head"]):
                for name in ("key", "query", "value"):
                    self.add(f"{block}sa.heads.{h}.{name}.weight", D, C, std=0.02, generator=gen)
            self._linear(block + "sa.proj", C, D * c["n_head"], gen)
            self._linear(block + "ffwd.net.0", hid, C, gen)
            self._linear(block + "ffwd.net.2", C, hid, gen)
            for name in ("ln1", "ln2"):
                self._norm(block + name, C)
        self._norm("ln_f", C)
        self._linear("lm_head", V, C, gen)

    def _linear(self, name, rows, cols, gen):
        self.add(name + ".weight", rows, cols, std=0.02, generator=gen)
        self.add(name + ".bias", rows, value=0.0)

    def _norm(self, name, C):
        self.add(name + ".weight", C, value=1.0)
        self.add(name + ".bias", C, value=0.0)

    def norm(self, x, name):
        p = self.parameters
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)

    def _apply(self, y, name, w):
        return torch.addmm(w[name + ".bias"].to(y.dtype), y, w[name + ".weight"].t())

    def attention(self, g, block, w, probe):
        """g [B, L, C] -> [B, L, C]."""
        H = self.config["n_head"]
        B, L, C = g.shape
        D = C // H
        outs = []
        for h in range(H):
            q, k, v = ((g.view(B * L, C) @ w[f"{block}sa.heads.{h}.{n}.weight"].t()).view(B, L, D)
                       for n in ("query", "key", "value"))
            if probe is not None:
                probe(fused._softmax(torch.bmm(q, k.transpose(1, 2)), D ** -0.5, False, 1, None))
            outs.append(fused.Attend.apply(q, k, v, D ** -0.5, False))
        return self._apply(torch.cat(outs, -1).view(B * L, H * D), block + "sa.proj", w).view(B, L, C)

    def feed_forward(self, g, block, w):
        B, L, C = g.shape
        z = self._apply(g.view(B * L, C), block + "ffwd.net.0", w)
        return self._apply(torch.relu(z), block + "ffwd.net.2", w).view(B, L, C)

    def step(self, x, block, w, probe, masks):
        one = masked(self.norm(x, block + "ln1").to(self.dtype), masks[0])
        if self.recursive:
            two = masked(self.norm(x, block + "ln2").to(self.dtype), masks[1])
            return x + (self.attention(one, block, w, probe) + self.feed_forward(two, block, w)).float()
        x = x + self.attention(one, block, w, probe).float()
        return x + self.feed_forward(masked(self.norm(x, block + "ln2").to(self.dtype), masks[1]), block, w).float()

    def states(self, ids, T=None, probe=None, start=0):
        """x before and after every block, one after the other, of tokens at positions from `start` on."""
        p, w = self.parameters, self.cast()
        places = p["position_embedding_table.weight"][start:start + ids.shape[1]]
        x = F.embedding(ids, p["token_embedding_table.weight"]) + places
        masks = {block: (self.mask(x), self.mask(x)) for block in self.blocks}
        yield x
        for block in self.blocks * (T or self.config["n_layer"]) if self.recursive else self.blocks:
            x = self.step(x, block, w, probe, masks[block])
            yield x

    def read(self, x):
        p = self.parameters
        return F.linear(self.norm(x, "ln_f"), p["lm_head.weight"], p["lm_head.bias"])

    def logits(self, ids, T=None, start=0):
        for x in self.states(ids, T, start=start):
            pass
        return self.read(x)

    def sweep(self, ids, depths):
        """{T: logits}; a GPT has one depth, whatever it is called."""
        if not self.recursive:
            return dict.fromkeys(depths, self.logits(ids))
        return {t: self.read(x) for t, x in enumerate(self.states(ids, max(depths))) if t in depths}
