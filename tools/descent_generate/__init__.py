"""Models with random weights, of any shape, straight to GGUF: what tools/generate_model.py does.

A model is described the way a checkpoint describes itself, a config.json and tensors by their names, except that a tensor's
numbers are made when the writer asks for them. From there on it is a conversion: descent_convert checks names and shapes
and writes the file, so that the layout of a family is written down once.

    cli            arguments, the named shapes' table in --help, the summary line
    shapes         the named shapes; what a flag may say and which family it belongs to
    random_tensor  a tensor's numbers from a seed and its name, the same on every machine
    nrgpt, cem     a family's tensors and their scales
    vocabulary     tokens and merges of any number, from a list of frequent words (words.txt)
    tokenizers     the tokenizer made of them, with the special tokens of a chat template
"""
