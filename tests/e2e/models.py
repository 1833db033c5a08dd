"""Small NRGPT models of the simplest kind (FF1, LayerNorm, causal mask, matrix rate) in the layout of docs/format.md, and
the same mathematics in float64 numpy, so that what the program prints can be computed without the program."""
from math import erf

import gguf
import numpy as np

ALPHABET = "abcdefghijklmnopqrstuvwxyz .\n"
CONTEXT = 16


def gelu(z):
    return z * normal_cdf(z)


def normal_cdf(z):
    return 0.5 * (1 + np.vectorize(erf)(z / np.sqrt(2)))


def gelu_slope(z):
    return normal_cdf(z) + z * np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)


class Nrgpt:
    """Weights are float32 values held in float64. Shapes: C width, V vocabulary, F hidden, [L][C] states."""

    def __init__(self, vocab, width=12, heads=2, hidden=20, context=CONTEXT, steps=3, seed=1, scale=1.0):
        random = np.random.default_rng(seed)

        def weights(*shape):
            return (scale * random.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32).astype(np.float64)

        self.vocab, self.width, self.heads, self.hidden, self.context, self.steps = vocab, width, heads, hidden, context, steps
        self.tokens = weights(vocab, width) * np.sqrt(width)
        self.positions = weights(context, width) * np.sqrt(width)
        self.norm_bias = 0.1 * weights(width)
        self.h = [weights(width, width) for _ in range(heads)]
        self.w, self.b = weights(hidden, width), 0.1 * weights(hidden)
        self.scale_ff = np.array([0.5])
        self.rate = 0.3 * weights(width, width)
        self.norm_f, self.norm_f_bias = 1 + 0.1 * weights(width), 0.1 * weights(width)
        self.head, self.head_bias = 2 * weights(vocab, width), weights(vocab)
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value.astype(np.float32).astype(np.float64))

    @staticmethod
    def _normal(x):
        centred = x - x.mean(-1, keepdims=True)
        return centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + 1e-5)

    def _energies(self, g, keys):
        """Attention and feed-forward energy [L] of queries g [L][C] against keys [L][C], and their gradient [L][C]."""
        mask = np.tril(np.ones((len(g), len(g)), bool))
        attention, gradient = np.zeros(len(g)), np.zeros_like(g)
        for h in self.h:
            values = keys @ h.T
            scores = np.where(mask, g @ values.T, -np.inf)
            largest = scores.max(-1, keepdims=True)
            p = np.exp(scores - largest)
            attention -= np.log(p.sum(-1)) + largest[:, 0]
            gradient -= (p / p.sum(-1, keepdims=True)) @ values
        z = g @ self.w.T + self.b
        feed_forward = -self.scale_ff * (gelu(z) ** 2).sum(-1)
        gradient += self.scale_ff * -2 * (gelu(z) * gelu_slope(z)) @ self.w
        return attention, feed_forward, gradient

    def descend(self, ids, steps):
        """x(T) [L][C], and per step t = 0..T: (attention [L], feed_forward [L], |x(t+1) - x(t)| [L])."""
        x = self.tokens[ids] + self.positions[:len(ids)]
        seen = []
        for t in range(steps + 1):
            g = self._normal(x) + self.norm_bias
            attention, feed_forward, gradient = self._energies(g, g)
            update = self.rated(gradient)
            seen.append((attention, feed_forward, np.linalg.norm(update, axis=-1)))
            if t < steps:
                x = x - update
        return x, seen

    def rated(self, gradient):
        """R times the rows: R is a matrix, its diagonal, or one number."""
        return gradient @ self.rate.T if self.rate.ndim == 2 else self.rate * gradient

    def slopes(self, ids, steps):
        """[steps][L] grad^T J R grad, J = dg/dx with every entry of it formed."""
        x, found = self.tokens[ids] + self.positions[:len(ids)], []
        for _ in range(steps):
            g = self._normal(x) + self.norm_bias
            _, _, gradient = self._energies(g, g)
            update, n = self.rated(gradient), self.width
            centred = x - x.mean(-1, keepdims=True)
            variance = (centred ** 2).mean(-1) + 1e-5
            jacobian = (np.eye(n) - 1 / n - centred[:, :, None] * centred[:, None, :] / n / variance[:, None, None]
                        ) / np.sqrt(variance)[:, None, None]
            found.append(np.einsum("ia,iab,ib->i", gradient, jacobian, update))
            x = x - update
        return np.array(found)

    def logits(self, ids, steps):
        x, _ = self.descend(ids, steps)
        return (self._normal(x) * self.norm_f + self.norm_f_bias) @ self.head.T + self.head_bias

    def loss(self, ids, steps):
        """Summed nats over windows of the context's length that predict every token but the first once."""
        total = 0.0
        for start in range(0, len(ids) - 1, self.context):
            inputs = ids[start:min(start + self.context, len(ids) - 1)]
            logits = self.logits(inputs, steps)
            targets = ids[start + 1:start + 1 + len(inputs)]
            largest = logits.max(-1, keepdims=True)
            log_sum = np.log(np.exp(logits - largest).sum(-1)) + largest[:, 0]
            total += (log_sum - logits[np.arange(len(inputs)), targets]).sum()
        return total

    def greedy(self, ids, steps, count):
        ids = list(ids)
        for _ in range(count):
            ids.append(int(self.logits(np.array(ids), steps)[-1].argmax()))
        return ids[-count:]

    def write(self, path, name, tokenizer=lambda writer: None):
        writer = gguf.GGUFWriter(path, "nrgpt")
        writer.add_name(name)
        writer.add_file_type(0)
        writer.add_uint32("descent.format_version", 1)
        for key, value in {"vocab_size": self.vocab, "context_length": self.context, "embedding_length": self.width,
                           "block_count": 1, "attention.head_count": self.heads, "feed_forward_length": self.hidden,
                           "steps": self.steps}.items():
            writer.add_uint32(f"nrgpt.{key}", value)
        for key, value in {"feed_forward": "ff1", "attention.mask": "causal", "norm": "layernorm",
                           "rate": "matrix" if self.rate.ndim == 2 else "scalar" if self.rate.size == 1 else "diag"}.items():
            writer.add_string(f"nrgpt.{key}", value)
        writer.add_float32("nrgpt.norm_epsilon", 1e-5)
        writer.add_float32("nrgpt.attention.beta", 1.0)
        tokenizer(writer)
        tensors = {"token_embd.weight": self.tokens, "position_embd.weight": self.positions,
                   "blk.0.norm.weight": np.ones(self.width), "blk.0.norm.bias": self.norm_bias,
                   **{f"blk.0.attn_h.{i}.weight": h for i, h in enumerate(self.h)},
                   "blk.0.ffn_1.weight": self.w, "blk.0.ffn_1.bias": self.b, "blk.0.ffn_scale.weight": self.scale_ff,
                   "blk.0.rate.weight": self.rate, "output_norm.weight": self.norm_f, "output_norm.bias": self.norm_f_bias,
                   "output.weight": self.head, "output.bias": self.head_bias}
        for key, value in tensors.items():
            writer.add_tensor(key, value.astype(np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        self.path = path
        return self


def characters(writer):
    writer.add_tokenizer_model("chars")
    writer.add_token_list(list(ALPHABET))


BYTES_FROM, PIECES = 3, ["▁", "a", "b", "c", "ab", "▁a", "abc", "▁ab"]
SPM_VOCAB = BYTES_FROM + 256 + len(PIECES)


def sentencepiece(writer):
    """<unk> <s> </s>, 256 bytes, a few pieces; begins every text with <s>."""
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)] + PIECES
    writer.add_tokenizer_model("llama")
    writer.add_token_list(pieces)
    writer.add_token_scores([0.0] * (BYTES_FROM + 256) + [-float(len(PIECES) - i) for i in range(len(PIECES))])
    writer.add_token_types([2, 3, 3] + [6] * 256 + [1] * len(PIECES))
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(True)
    writer.add_bool("tokenizer.ggml.remove_extra_whitespaces", False)


def write_all(folder):
    """chars: the alphabet above; bare: no tokenizer; bos: every text begins with <s>; wild: diverges; bell: a name and a
    metadata value that would drive a terminal."""
    wild = Nrgpt(len(ALPHABET), seed=2)
    wild.rate[:] = 1e38
    bell = Nrgpt(len(ALPHABET), seed=2)

    def with_escape(writer):
        characters(writer)
        writer.add_string("general.description", "red \x1b[31m\nsecond line")

    return {
        "chars": Nrgpt(len(ALPHABET)).write(folder / "chars.gguf", "chars", characters),
        "bare": Nrgpt(len(ALPHABET)).write(folder / "bare.gguf", "bare"),
        "bos": Nrgpt(SPM_VOCAB, seed=3).write(folder / "bos.gguf", "bos", sentencepiece),
        "wild": wild.write(folder / "wild.gguf", "wild", characters),
        "bell": bell.write(folder / "bell.gguf", "bell", with_escape),
    }


def encode(text):
    return np.array([ALPHABET.index(c) for c in text])
