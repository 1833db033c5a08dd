"""Checkpoints in, GGUF out: what tools/convert.py does, in parts that know little of each other.

    cli        arguments, finding the checkpoint and what lies beside it, the summary line
    torchzip   a .pt file as a dictionary of lazy tensors;  unpickle  its pickle, read without running anything
    stfile     a .safetensors file as a dictionary of lazy tensors
    tensor     a lazy tensor: where its numbers lie, read a few rows at a time
    nrgpt, cem, gpt  a family's layout: names, shapes and configuration checked, the model as a list of GGUF tensors
    official   what the authors' trainer says beside the tensors
    words, spm, hf, gpt2  tokenizer files;  bpe  what the last two have in common
    chat       which of the server's chat templates a model's own is;  chat_sandbox  runs the model's, as a process
    progress   the bar, the last line and the exit status, for generate_model.py as well
    gguf_out   the GGUF file, written in pieces beside its final name

Everything read is untrusted. Whatever is wrong with it ends in a ConvertError, one line that says what and where.
"""
