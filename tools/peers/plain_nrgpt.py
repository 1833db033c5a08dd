"""NRGPT in plain PyTorch and without a cache: each new token computes the whole text again, T steps of it. What a page of the
formulas gives who writes them down and no more; the peer that an engine is measured against, not a reference.

    python3 tools/peers/plain_nrgpt.py [--tokens 512] [-t 2] [-r 3]      # times the 90M model, random weights; prints JSON

With x of all positions [n, C], g = LayerNorm(x), H a head's C x C matrix:

    k_h = g H_h^T,  p_h = softmax(mask(g k_h^T)),  grad_AT = -sum_h p_h k_h
    z = g W1^T + b1,  grad_FF = -( gelu(z) W2^T + b2 + ((g W2) gelu'(z)) W1 )
    x <- x - (grad_AT + s grad_FF) R^T
"""
import argparse
import json
import math
import time

import torch
import torch.nn.functional as F

SHAPES = {"nrgpt-90m": {"width": 768, "heads": 12, "hidden": 3072, "vocab": 50304, "context": 1024, "steps": 12}}


def gelu_slope(z):
    return 0.5 * (1 + torch.erf(z / math.sqrt(2))) + z * torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


class PlainNRGPT:
    """The FF2W model with LayerNorm and a full R, from tensors named as official checkpoints name them."""

    def __init__(self, tensors, heads, strict=False):
        w = tensors
        self.tokens, self.positions = w["token_embedding_table.weight"], w["position_embedding_table.weight"]
        self.h = torch.stack([w[f"blocks.attn.heads.{h}.H.weight"] for h in range(heads)])
        self.w1, self.b1 = w["blocks.ffwd.net.0.weight"], w["blocks.ffwd.net.0.bias"]
        self.w2, self.b2 = w["blocks.ffwd.net.2.weight"], w["blocks.ffwd.net.2.bias"]
        self.norm = (w["blocks.ln.weight"], w["blocks.ln.bias"])
        self.rate, self.scale = w["blocks.proj.weight"], w["blocks.scale_ff"]
        self.final = (w["ln_f.weight"], w["ln_f.bias"])
        self.head, self.head_bias = w["lm_head.weight"], w["lm_head.bias"]
        self.strict = strict

    def step(self, x, hidden):
        g = F.layer_norm(x, x.shape[-1:], *self.norm, eps=1e-5)
        keys = g @ self.h.transpose(1, 2)  # [H, n, C]
        scores = (g @ keys.transpose(1, 2)).masked_fill(hidden, -math.inf)
        attention = (scores.softmax(-1).nan_to_num() @ keys).sum(0)  # a token that sees none has no scores
        z = g @ self.w1.T + self.b1
        feed = F.gelu(z) @ self.w2.T + self.b2 + ((g @ self.w2) * gelu_slope(z)) @ self.w1
        return x + (attention + self.scale * feed) @ self.rate.T

    def states(self, tokens, steps):
        """tokens [n] -> x of every position [n, C]."""
        n = len(tokens)
        hidden = torch.ones(n, n, dtype=torch.bool).triu(0 if self.strict else 1)
        x = self.tokens[tokens] + self.positions[:n]
        for _ in range(steps):
            x = self.step(x, hidden)
        return x

    def logits(self, x):
        """Next-token logits [n, V]."""
        return F.layer_norm(x, x.shape[-1:], *self.final, eps=1e-5) @ self.head.T + self.head_bias


def random_tensors(width, heads, hidden, vocab, context, **_):
    """Small random numbers: what they are makes no difference to the time."""
    def some(*shape):
        return torch.randn(*shape) / math.sqrt(shape[-1])

    made = {"token_embedding_table.weight": some(vocab, width), "position_embedding_table.weight": some(context, width),
            "blocks.ffwd.net.0.weight": some(hidden, width), "blocks.ffwd.net.0.bias": some(hidden),
            "blocks.ffwd.net.2.weight": some(width, hidden), "blocks.ffwd.net.2.bias": some(width),
            "blocks.proj.weight": 0.05 * some(width, width), "blocks.scale_ff": torch.tensor([0.1]),
            "lm_head.weight": some(vocab, width), "lm_head.bias": some(vocab)}
    made.update({f"blocks.attn.heads.{h}.H.weight": some(width, width) / math.sqrt(width) for h in range(heads)})
    for norm in ("blocks.ln", "ln_f"):
        made[norm + ".weight"], made[norm + ".bias"] = torch.ones(width), torch.zeros(width)
    return made


def measure(name, tokens, repeats):
    """Seconds of the logits that choose the token behind `tokens` others, each repetition's."""
    shape = SHAPES[name]
    model = PlainNRGPT(random_tensors(**shape), shape["heads"])
    text = torch.randint(shape["vocab"], (tokens,))
    seconds = []
    with torch.no_grad():
        for _ in range(repeats + 1):
            begun = time.perf_counter()
            model.logits(model.states(text, shape["steps"])[-1:])
            seconds.append(time.perf_counter() - begun)
    return sorted(seconds[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=SHAPES, default="nrgpt-90m")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("-r", "--repeats", type=int, default=3)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    seconds = measure(args.model, args.tokens, args.repeats)
    print(json.dumps({"model": args.model, "tokens": args.tokens, "torch": torch.__version__, "threads": args.threads,
                      "seconds": {"median": seconds[len(seconds) // 2], "least": seconds[0], "most": seconds[-1]}}))


if __name__ == "__main__":
    main()
