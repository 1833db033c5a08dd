"""SentencePiece vocabularies of real models, as packages ship them (tests/vocabularies.txt), against the sentencepiece
library: Mistral's models, BPE with byte fallback, and mon-tokenizer's unigram of 64,256 pieces with byte fallback, for Mon,
Burmese and English. Of the packages only the files are read."""

import importlib.metadata
import json

import pytest
import sentencepiece

import spm_proto
import strings
from conftest import Tool


def packaged(package, name):
    """A file that an installed package ships, by the end of its path."""
    found = [f for f in importlib.metadata.files(package) if str(f).endswith(name)]
    assert len(found) == 1, (package, name)
    return found[0].locate().read_bytes()


def mistral(name):
    return packaged("mistral-common", name)


def mon():
    """The vocabulary and scores, with SentencePiece's rules around them: the package itself has them as a tokenizer.json."""
    model = json.loads(packaged("mon-tokenizer", "mon_tokenizer.json"))["model"]
    assert model["type"] == "Unigram" and model["byte_fallback"]
    pieces = [piece for piece, _ in model["vocab"]]
    special = {"<unk>": 2, "<s>": 3, "</s>": 3, "<pad>": 3, **{f"<0x{b:02X}>": 6 for b in range(256)}}
    assert all(s in pieces for s in special)
    return spm_proto.write(spm_proto.Model(
        kind="t5", pieces=[p.encode() for p in pieces], scores=[float(score) for _, score in model["vocab"]],
        types=[special.get(p, 1) for p in pieces], ids={"unknown": 0, "bos": 1, "eos": 2, "padding": 3}))


VOCABULARIES = {
    "mistral-7b": lambda: mistral("tokenizer.model.v1"),
    "mistral-v3": lambda: mistral("mistral_instruct_tokenizer_240323.model.v3"),
    "mistral-v7": lambda: mistral("mistral_instruct_tokenizer_241114.model.v7"),
    "mon": mon,
}
MON = "ဘာသာ မန် ပ္ဍဲ ဂကူ မညိ ညးတအ် သၟိင် ရး မြန်မာ စာ နိုင်ငံ ကို သည် များ တွင် ဖြစ် ၏ ၊ ။ ၁၂၃ ဿ က္က".split()


@pytest.mark.parametrize("name", VOCABULARIES)
def test_same_ids(name, words, tmp_path):
    data = VOCABULARIES[name]()
    library = sentencepiece.SentencePieceProcessor(model_proto=data)
    tool = Tool(spm_proto.write_gguf(spm_proto.read(data), tmp_path / "model.gguf"))
    for text in strings.generate(words + 30 * MON, 10000, seed=9):
        ids = library.encode(text)
        assert tool.encode(text) == ids, text
        assert "".join(tool.decode(ids)) == library.decode(ids), text
    tool.close()
