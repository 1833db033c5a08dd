"""Files for llama.cpp's benchmark: GPT-2 124M and Llama 160M with random weights, written through the public gguf package.

Their shapes are those of the published models; no number of them is. Norms are ones and biases zeros in F32, matrices are
normal numbers of deviation 0.02 in the type asked for. There is no tokenizer: llama-bench feeds ids.

    python3 tools/peers/llama_models.py gpt2-124m q8_0 OUT.gguf
"""
import argparse
import sys

import gguf
import numpy as np

TYPES = {"q8_0": (gguf.GGMLQuantizationType.Q8_0, 7), "f16": (gguf.GGMLQuantizationType.F16, 1)}
C, LAYERS, HEADS, HIDDEN = 768, 12, 12, 3072  # of both


def gpt2(add, header):
    header.add_layer_norm_eps(1e-5)
    add("token_embd.weight", 50257, C)
    add("position_embd.weight", 1024, C, kept=np.float32)
    for l in range(LAYERS):
        b = f"blk.{l}."
        for norm in ("attn_norm", "ffn_norm"):
            add(b + norm + ".weight", C)
            add(b + norm + ".bias", C)
        for name, rows, cols in (("attn_qkv", 3 * C, C), ("attn_output", C, C), ("ffn_up", HIDDEN, C), ("ffn_down", C, HIDDEN)):
            add(b + name + ".weight", rows, cols)
            add(b + name + ".bias", rows)
    add("output_norm.weight", C)
    add("output_norm.bias", C)


def llama(add, header):
    header.add_layer_norm_rms_eps(1e-6)
    header.add_rope_dimension_count(C // HEADS)
    header.add_rope_freq_base(10000.0)
    header.add_head_count_kv(HEADS)
    add("token_embd.weight", 32000, C)
    for l in range(LAYERS):
        b = f"blk.{l}."
        for norm in ("attn_norm", "ffn_norm"):
            add(b + norm + ".weight", C)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(b + name + ".weight", C, C)
        for name, rows, cols in (("ffn_gate", HIDDEN, C), ("ffn_up", HIDDEN, C), ("ffn_down", C, HIDDEN)):
            add(b + name + ".weight", rows, cols)
    add("output_norm.weight", C)
    add("output.weight", 32000, C)


# name: (architecture, tensors, context, vocabulary)
MODELS = {"gpt2-124m": ("gpt2", gpt2, 1024, 50257), "llama-160m": ("llama", llama, 2048, 32000)}


def write(name, kind, path):
    """Writes the model; returns its number of parameters."""
    architecture, tensors, context, vocab = MODELS[name]
    matrix_type, file_type = TYPES[kind]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(name)
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    writer.add_context_length(context)
    writer.add_embedding_length(C)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_vocab_size(vocab)
    writer.add_tokenizer_model("no_vocab")
    random = np.random.default_rng(1)
    counted = 0

    def add(tensor, *shape, kept=None):
        nonlocal counted
        counted += int(np.prod(shape))
        if len(shape) == 1:
            writer.add_tensor(tensor, np.full(shape, tensor.endswith("norm.weight"), np.float32))
            return
        values = (0.02 * random.standard_normal(shape, np.float32)).astype(np.float32)
        if kept is not None:
            writer.add_tensor(tensor, values.astype(kept))
        else:
            writer.add_tensor(tensor, gguf.quantize(values, matrix_type), raw_dtype=matrix_type)

    tensors(add, writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return counted


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("type", choices=TYPES)
    parser.add_argument("out", metavar="OUT")
    args = parser.parse_args()
    sys.stdout.write(f"{args.out}: {write(args.model, args.type, args.out)} parameters\n")


if __name__ == "__main__":
    main()
