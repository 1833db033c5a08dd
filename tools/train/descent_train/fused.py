"""The element-wise pieces of the models, each one differentiable function: fused.c's kernels where a C compiler made them,
the same formulas in PyTorch where none did (and on a GPU, where PyTorch's own are good).

Everything here is a first-order function of its inputs with its derivative written out; nothing builds a graph inside.
Tensors are float32 or bfloat16, contiguous; products run in the tensors' own type.
"""
import ctypes
import hashlib
import math
import os
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
FLAGS = ["-O3", "-march=native", "-mprefer-vector-width=512", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros",
         "-fassociative-math", "-freciprocal-math", "-shared", "-fPIC"]
MAX_LENGTH = 8192


def _compile():
    """The compiled kernels, built on first use into the user's cache directory, or where that cannot be written into one of
    this process; None, said once, where no compiler makes them."""
    if os.environ.get("DESCENT_TRAIN_FUSED") == "0":
        return None
    cc = os.environ.get("CC") or "cc"
    library = _cache() / f"train-fused-{_digest(cc)}.so"
    try:
        if not library.exists():
            library.parent.mkdir(parents=True, exist_ok=True)
            _build(cc, library)
        return ctypes.CDLL(str(library))
    except OSError:
        pass  # a cache that cannot be written, or not loaded from
    except _NotBuilt as error:
        return _without(error)
    with tempfile.TemporaryDirectory(prefix="descent-") as directory:
        try:
            _build(cc, Path(directory) / "fused.so")
            return ctypes.CDLL(str(Path(directory) / "fused.so"))  # stays mapped when its name is gone
        except (OSError, _NotBuilt) as error:
            return _without(error)


class _NotBuilt(Exception):
    """The compiler made nothing; the message says why."""


def _without(error):
    print(f"train: no compiled kernels, PyTorch's operations instead, which are slower: {error}", file=sys.stderr)


def _cache():
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))  # relative ones are ignored, as XDG asks
    return (given if given.is_absolute() else Path(os.path.expanduser("~")) / ".cache") / "descent"


def _digest(cc):
    """Another source, compiler or processor is another library."""
    text = b"".join((HERE / name).read_bytes() for name in ("fused.c", "fused.inc.h"))
    try:
        cpu = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        cpu = "".join(line for line in cpu.splitlines() if line.startswith(("flags", "model name")))
    except OSError:
        cpu = platform.processor()
    return hashlib.sha256(text + repr((FLAGS, cc, cpu)).encode()).hexdigest()[:16]


def _build(cc, library):
    """fused.c compiled to `library`, which appears whole: two runs may begin at once."""
    handle, made = tempfile.mkstemp(dir=library.parent, suffix=".so")
    os.close(handle)
    try:
        for flags in (FLAGS, [f for f in FLAGS if not f.startswith("-m")]):
            try:
                done = subprocess.run([*shlex.split(cc), *flags, str(HERE / "fused.c"), "-o", made, "-lm"],
                                      capture_output=True, text=True, errors="replace")
            except (OSError, ValueError) as error:
                raise _NotBuilt(f"CC is {cc!r}: {error}") from None
            if done.returncode == 0:
                os.replace(made, library)
                return
        raise _NotBuilt(f"{cc}: " + (done.stderr.strip() or f"status {done.returncode}").splitlines()[0])
    finally:
        if os.path.exists(made):
            os.unlink(made)


_library = None
_tried = False


def available():
    """True where the compiled kernels are used for tensors on the CPU."""
    global _library, _tried
    if not _tried:
        _library, _tried = _compile(), True
    return _library is not None


def _call(name, dtype, *arguments):
    for tensor in arguments:
        if isinstance(tensor, torch.Tensor) and not tensor.is_contiguous():
            raise ValueError(f"{name}: a tensor of shape {tuple(tensor.shape)} is not contiguous")
    function = getattr(_library, f"{name}_{'f32' if dtype == torch.float32 else 'bf16'}")
    function.restype = None
    function(*[ctypes.c_void_p(a.data_ptr()) if isinstance(a, torch.Tensor) else ctypes.c_void_p(None) if a is None
               else ctypes.c_float(a) if isinstance(a, float) else ctypes.c_int(a) if isinstance(a, bool)
               else ctypes.c_int64(a) for a in arguments])


def _compiled(tensor):
    return tensor.device.type == "cpu" and tensor.dtype in (torch.float32, torch.bfloat16) and available()


# ---- The formulas ---------------------------------------------------------------------------------------------------

def normal_pdf(z):
    return torch.exp(-0.5 * z * z) * (1 / math.sqrt(2 * math.pi))


def normal_cdf(z):
    return 0.5 * (1 + torch.erf(z * math.sqrt(0.5)))


def _act(z, gelu):
    return z * normal_cdf(z) if gelu else z * torch.sigmoid(z)


def _slope(z, gelu):
    if gelu:
        return normal_cdf(z) + z * normal_pdf(z)
    s = torch.sigmoid(z)
    return s * (1 + z * (1 - s))


def _gelu_and_slope(z, w):
    """gelu(z), w * gelu'(z)."""
    if _compiled(z):
        a, c = torch.empty_like(z), torch.empty_like(z)
        _call("ff2w_forward", z.dtype, z.numel(), z, w, a, c)
        return a, c
    x = z.float()
    return _act(x, True).to(z.dtype), (w.float() * _slope(x, True)).to(z.dtype)


def _gelu_and_slope_backward(z, w, da, dc):
    """The gradients of z and w, and what _gelu_and_slope gave, which the gradients of FF2W's weights are made of."""
    if _compiled(z):
        dz, dw, a, c = (torch.empty_like(z) for _ in range(4))
        _call("ff2w_backward", z.dtype, z.numel(), z, w, da, dc, dz, dw, a, c)
        return dz, dw, a, c
    x, d = z.float(), dc.float()
    slope = _slope(x, True)
    dz = da.float() * slope + d * w.float() * normal_pdf(x) * (2 - x * x)
    return tuple(t.to(z.dtype) for t in (dz, d * slope, _act(x, True), w.float() * slope))


class GeluAndSlope(torch.autograd.Function):
    """(gelu(z), w * gelu'(z)), the two middle terms of FF2W's gradient."""

    @staticmethod
    def forward(ctx, z, w):
        ctx.save_for_backward(z, w)
        return _gelu_and_slope(z, w)

    @staticmethod
    def backward(ctx, da, dc):
        return _gelu_and_slope_backward(*ctx.saved_tensors, da.contiguous(), dc.contiguous())[:2]


class FF2W(torch.autograd.Function):
    """-grad of FF2W's energy: gelu(z) W2^T + b2 + ((g W2) * gelu'(z)) W1, z = g W1^T + b1. g [N, C], W1 [F, C], W2 [C, F]."""

    @staticmethod
    def forward(ctx, g, w1, b1, w2, b2):
        z, w = torch.addmm(b1, g, w1.t()), g @ w2
        a, c = _gelu_and_slope(z, w)
        ctx.save_for_backward(g, w1, w2, z, w)
        return torch.addmm(torch.addmm(b2, a, w2.t()), c, w1)

    @staticmethod
    def backward(ctx, d):
        g, w1, w2, z, w = ctx.saved_tensors
        d = d.contiguous()
        dz, dw, a, c = _gelu_and_slope_backward(z, w, d @ w2, d @ w1.t())
        dg = torch.addmm(dz @ w1, dw, w2.t())
        dw1 = torch.addmm(dz.t() @ g, c.t(), d)
        dw2 = torch.addmm(d.t() @ a, g.t(), dw)
        return dg, dw1, dz.sum(0), dw2, d.sum(0)


class Gate(torch.autograd.Function):
    """v * act(z): CEM's MLP between its products, and SwiGLU's."""

    @staticmethod
    def forward(ctx, z, v, gelu):
        ctx.save_for_backward(z, v)
        ctx.gelu = gelu
        if _compiled(z):
            y = torch.empty_like(z)
            _call("gate_forward", z.dtype, z.numel(), bool(gelu), z, v, y)
            return y
        return (v.float() * _act(z.float(), gelu)).to(z.dtype)

    @staticmethod
    def backward(ctx, dy):
        z, v = ctx.saved_tensors
        dy = dy.contiguous()
        if _compiled(z):
            dz, dv, y = (torch.empty_like(z) for _ in range(3))
            _call("gate_backward", z.dtype, z.numel(), bool(ctx.gelu), z, v, dy, dz, dv, y)
            return dz, dv, None
        x, d = z.float(), dy.float()
        return (d * v.float() * _slope(x, ctx.gelu)).to(z.dtype), (d * _act(x, ctx.gelu)).to(z.dtype), None


def _outside(L, strict, device):
    return torch.ones(L, L, dtype=torch.bool, device=device).triu(0 if strict else 1)


def _softmax(s, scale, strict, share, bias):
    """Scores [G, L, L] to probabilities over each token's history; 0 outside it. May overwrite s."""
    G, L, _ = s.shape
    if _compiled(s) and L <= MAX_LENGTH:
        _call("softmax_forward", s.dtype, G, L, float(scale), bool(strict), share, bias, s)
        return s
    a = s.float() if bias is None else s.float() + bias.float().repeat_interleave(share, 0)
    a = (scale * a).masked_fill(_outside(L, strict, s.device), -math.inf)
    p = torch.softmax(a, -1)
    return (torch.nan_to_num(p) if strict else p).to(s.dtype)


def _softmax_backward(p, dp, scale, strict, share, same):
    """The gradient of the scores, from that of the probabilities (plus `same`, shared by `share` groups). May overwrite dp."""
    G, L, _ = p.shape
    if _compiled(p) and L <= MAX_LENGTH:
        _call("softmax_backward", p.dtype, G, L, float(scale), bool(strict), share, same, p, dp)
        return dp
    d = dp.float() if same is None else dp.float() + same.float().repeat_interleave(share, 0)
    q = p.float()
    return (scale * q * (d - (q * d).sum(-1, keepdim=True))).to(p.dtype)


class Attend(torch.autograd.Function):
    """softmax(scale * q k^T over the history) v. q, k, v [G, L, D]; row i sees j <= i, or j < i where strict."""

    @staticmethod
    def forward(ctx, q, k, v, scale, strict):
        p = _softmax(torch.bmm(q, k.transpose(1, 2)), scale, strict, 1, None)
        ctx.save_for_backward(q, k, v, p)
        ctx.scale, ctx.strict = scale, strict
        return torch.bmm(p, v)

    @staticmethod
    def backward(ctx, do):
        q, k, v, p = ctx.saved_tensors
        do = do.contiguous()
        ds = _softmax_backward(p, torch.bmm(do, v.transpose(1, 2)), ctx.scale, ctx.strict, 1, None)
        return torch.bmm(ds, k), torch.bmm(ds.transpose(1, 2), q), torch.bmm(p.transpose(1, 2), do), None, None


class AttendShared(torch.autograd.Function):
    """CEM's attention with a diagonal shared by the heads: scores q_k k_k^T + e u^T, the second term common to all heads.

    q, k [B, K, L, D]; e, u [B, L, C]. Returns (p k per head, sum of p over heads times u)."""

    @staticmethod
    def forward(ctx, q, k, e, u, scale):
        B, K, L, D = q.shape
        fq, fk = q.reshape(B * K, L, D), k.reshape(B * K, L, D)
        p = _softmax(torch.bmm(fq, fk.transpose(1, 2)), scale, False, K, torch.bmm(e, u.transpose(1, 2)))
        total = p.view(B, K, L, L).sum(1)
        ctx.save_for_backward(fq, fk, e, u, p, total)
        ctx.scale = scale
        return torch.bmm(p, fk).view(B, K, L, D), torch.bmm(total, u)

    @staticmethod
    def backward(ctx, do, dm):
        q, k, e, u, p, total = ctx.saved_tensors
        G, L, D = q.shape
        B = e.shape[0]
        K = G // B
        do, dm = do.reshape(G, L, D).contiguous(), dm.contiguous()
        ds = _softmax_backward(p, torch.bmm(do, k.transpose(1, 2)), ctx.scale, False, K, torch.bmm(dm, u.transpose(1, 2)))
        shared = ds.view(B, K, L, L).sum(1)
        dq = torch.bmm(ds, k).view(B, K, L, D)
        dk = torch.baddbmm(torch.bmm(ds.transpose(1, 2), q), p.transpose(1, 2), do).view(B, K, L, D)
        du = torch.baddbmm(torch.bmm(shared.transpose(1, 2), e), total.transpose(1, 2), dm)
        return dq, dk, torch.bmm(shared, u), du, None


def angles(L, D, theta, device):
    """cosine and sine [L, D/2] of the rotary rotation."""
    f = theta ** (-torch.arange(0, D, 2, dtype=torch.float64, device=device) / D)
    a = torch.arange(L, dtype=torch.float64, device=device)[:, None] * f
    return a.cos().float().contiguous(), a.sin().float().contiguous()


def _rotate(x, heads, cosine, sine, back):
    B = x.shape[0]
    L, D = cosine.shape[0], 2 * cosine.shape[1]
    if _compiled(x):
        y = torch.empty((B, L, heads * D) if back else (B, heads, L, D), dtype=x.dtype)
        _call("rotate", x.dtype, B, L, heads, D, bool(back), cosine, sine, x, y)
        return y
    h = x.float() if back else x.float().view(B, L, heads, D).transpose(1, 2)
    s = -sine if back else sine
    one, two = h[..., :D // 2], h[..., D // 2:]
    y = torch.cat((one * cosine - two * s, two * cosine + one * s), -1).to(x.dtype)
    return y.transpose(1, 2).reshape(B, L, heads * D) if back else y.contiguous()


class Rotate(torch.autograd.Function):
    """[B, L, K*D] -> [B, K, L, D], each token turned by its position; `back` is the inverse."""

    @staticmethod
    def forward(ctx, x, heads, cosine, sine, back):
        ctx.rest = heads, cosine, sine, back
        return _rotate(x.contiguous(), *ctx.rest)

    @staticmethod
    def backward(ctx, d):
        heads, cosine, sine, back = ctx.rest
        return _rotate(d.contiguous(), heads, cosine, sine, not back), None, None, None, None
