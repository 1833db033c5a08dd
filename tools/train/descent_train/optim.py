"""Optimizers and the schedule. AdamW for everything, or Muon for the matrices inside the model and AdamW for the rest.

Muon steps along the orthogonalized momentum of a matrix (all its singular values moved towards 1 by five Newton-Schulz
iterations), which reaches a given loss on these small models in fewer batches than AdamW.
"""
import math

import torch


def orthogonalize(m, dtype):
    """A matrix with m's singular vectors and singular values near 1; products in dtype, which need not be exact."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = (m / (m.norm() + 1e-7)).to(dtype)
    turned = x.shape[0] > x.shape[1]
    if turned:
        x = x.t()
    for _ in range(5):
        g = x @ x.t()
        x = a * x + (b * g + c * (g @ g)) @ x
    return (x.t() if turned else x).float()


class Optimizer:
    """Steps of all parameters. State is a dictionary of tensors, so a run can stop and go on."""

    def __init__(self, parameters, muon, decay, dtype, betas=(0.9, 0.95), momentum=0.95):
        """parameters: name -> tensor; muon: names that Muon steps; decay: weight decay of matrices."""
        self.parameters, self.muon, self.decay, self.betas, self.momentum = parameters, set(muon), decay, betas, momentum
        self.count, self.dtype = 0, dtype
        self.first = {n: torch.zeros_like(p) for n, p in parameters.items()}
        self.second = {n: torch.zeros_like(p) for n, p in parameters.items() if n not in self.muon}

    @torch.no_grad()
    def step(self, lr, muon_lr):
        self.count += 1
        one, two = self.betas
        bias1, bias2 = 1 - one ** self.count, 1 - two ** self.count
        for n, p in self.parameters.items():
            g, m = p.grad, self.first[n]
            if n in self.muon:
                m.mul_(self.momentum).add_(g)
                update = orthogonalize(g + self.momentum * m, self.dtype)
                p.mul_(1 - muon_lr * self.decay).add_(update, alpha=-muon_lr * math.sqrt(max(1.0, p.shape[0] / p.shape[1])))
            else:
                v = self.second[n]
                m.mul_(one).add_(g, alpha=1 - one)
                v.mul_(two).addcmul_(g, g, value=1 - two)
                if p.dim() > 1:
                    p.mul_(1 - lr * self.decay)
                p.addcdiv_(m / bias1, (v / bias2).sqrt().add_(1e-8), value=-lr)

    def clip(self, largest):
        """Scales all gradients so that their joint norm is at most `largest`; returns what it was."""
        norm = torch.sqrt(sum(p.grad.pow(2).sum() for p in self.parameters.values()))
        if not torch.isfinite(norm):
            return float("inf")
        scale = min(1.0, largest / (float(norm) + 1e-9))
        if scale < 1.0:
            for p in self.parameters.values():
                p.grad.mul_(scale)
        return float(norm)

    def state(self):
        return {"count": self.count, "first": self.first, "second": self.second}

    def restore(self, state):
        self.count = state["count"]
        for mine, theirs in ((self.first, state["first"]), (self.second, state["second"])):
            for n, t in mine.items():
                t.copy_(theirs[n])


def schedule(step, total, warmup, floor=0.0):
    """The share of the learning rate at a step: a linear warm-up, then a cosine down to `floor`."""
    if step < warmup:
        return (step + 1) / warmup
    return floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup)))
