"""Our SentencePiece BPE and unigram against the library on vocabularies made up at random, where much ties: few letters,
scores from a few values, every type of token, words that are apart and words that are not, sums past the bound from which
the library counts anew."""

import random

import pytest
import sentencepiece

import spm_proto
from conftest import Tool

LETTERS = ["a", "b", "ä", "\u2581", "東", "c"]
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def vocabulary(rng, kind):
    model = spm_proto.Model(kind=kind, pieces=[b"<unk>", b"<s>", b"</s>"], scores=[0.0, 0.0, 0.0], types=[2, 3, 3], charsmap=b"",
                            ids={"unknown": 0, "bos": 1, "eos": 2}, add_dummy_prefix=rng.random() < 0.5,
                            remove_extra_whitespaces=rng.random() < 0.5)
    letters = LETTERS[:rng.randint(1, len(LETTERS))]
    values = rng.choice([[-1.0, -2.0, -3.0], [-0.1, -0.2, -0.3, -0.7], [-rng.uniform(0, 12) for _ in range(5)],
                         [0.0, 1.0, 2.5, -4.0], [-30000.0, -45000.0, 70000.0, -200000.0]])
    spellings = {"".join(rng.choices(letters, k=rng.randint(1, 5))) for _ in range(rng.randint(1, 40))}
    if rng.random() < 0.5:  # as trained ones are: U+2581 is a token, and none has it after another character
        spellings = {s for s in spellings if "\u2581" not in s.lstrip("\u2581")} | {"\u2581", "\u2581a"}
    unused = rng.choice([0, 3])
    for spelling in sorted(spellings):
        model.pieces.append(spelling.encode())
        model.scores.append(rng.choice(values))
        model.types.append(rng.choices([1, 4, 5, 3], [20, rng.choice([0, 3]), unused, 1])[0])
    if rng.random() < 0.5:
        model.pieces += [b.encode() for b in BYTES]
        model.scores += [0.0] * 256
        model.types += [6] * 256
    return model, letters


def text(rng, letters):
    alphabet = letters + rng.choice([[], [" "], ["x", " "], ["\u00e9", "\U0001f600", "\xa0"]])
    return "".join(rng.choices(alphabet, k=rng.choice([1, 2, 3, 5, 8, 20, 100]))).encode()


@pytest.mark.parametrize("kind", ["llama", "t5"])
def test_same_ids_on_any_vocabulary(tmp_path, kind):
    rng = random.Random(1)
    for _ in range(200):
        model, letters = vocabulary(rng, kind)
        if 1 not in model.types:  # the library takes none without a normal piece
            continue
        library = sentencepiece.SentencePieceProcessor(model_proto=spm_proto.write(model))
        tool = Tool(spm_proto.write_gguf(model, tmp_path / "model.gguf"))
        for _ in range(100):
            given = text(rng, letters)
            assert tool.encode(given) == library.encode(given), (given, model)
        tool.close()
