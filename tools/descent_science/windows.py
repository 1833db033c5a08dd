"""Tokens of a shipped model's held-out data, in pieces that are begun anew: of a text, or of ListOps the worked chains of its questions."""
from .models import listops


def chains(model, native, most):
    """[(tokens of a worked chain, how many of them are its question up to the first `=`)]."""
    return [(native.encode(listops.VOCAB.decode(listops.chain(item.prompt[:-1])), parse_special=True), len(item.prompt))
            for item in listops.read_items(model.items)[:most]]


def spread(model, native, count, length):
    """So many pieces of so many tokens from all over the data."""
    if model.items is not None:
        ids = [token for chain, _ in chains(model, native, None) for token in chain]
    else:
        ids = native.encode(model.text.read_text(encoding="utf-8"))
    far = (len(ids) - length) // max(count - 1, 1)
    return [ids[i * far:i * far + length] for i in range(count)]


def judged(model, native, most):
    """[(tokens, first position whose prediction counts)]: pieces of the model's context, or worked chains, each begun anew. A question's
    digits are random, so of a chain what counts begins behind its first `=`."""
    if model.items is not None:
        return [(ids, asked - 1) for ids, asked in chains(model, native, most)]
    return [(ids, 0) for ids in consecutive(model, native, most)]


def consecutive(model, native, count):
    """The first pieces of the model's context, each with one token more that is only predicted."""
    ids, context = native.encode(model.text.read_text(encoding="utf-8")), native.info.context
    return [ids[i:i + context + 1] for i in range(0, min(len(ids) - context, count * context), context)]
