"""The built encode_tool as an object, and the SentencePiece models the comparison runs on."""

import os
import pathlib
import random
import struct
import subprocess

import pytest
import sentencepiece

import spm_proto

DATA = pathlib.Path(__file__).parent.parent / "data"


class Failed(Exception):
    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Tool:
    """One running encode_tool; see its header for what the letters ask."""

    def __init__(self, path):
        program = pathlib.Path(os.environ["DESCENT_BUILD_DIR"]) / "tests" / "encode_tool"
        self.process = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, letter, payload):
        self.process.stdin.write(letter.encode() + struct.pack("<I", len(payload)) + payload)
        self.process.stdin.flush()
        head = self.process.stdout.read(5)
        assert len(head) == 5, "encode_tool ended"
        code, length = struct.unpack("<BI", head)
        answer = self.process.stdout.read(length)
        if code:
            raise Failed(code, answer.decode())
        return answer

    def encode(self, text, special=False):
        answer = self.ask("s" if special else "e", text)
        return list(struct.unpack(f"<{len(answer) // 4}I", answer))

    @staticmethod
    def _pushes(answer):
        texts, at = [], 0
        while at < len(answer):
            length, = struct.unpack_from("<I", answer, at)
            texts.append(answer[at + 4:at + 4 + length].decode())  # strict: every push is valid UTF-8
            at += 4 + length
        return texts

    def decode(self, ids):
        return self._pushes(self.ask("d", struct.pack(f"<{len(ids)}I", *ids)))

    def stream(self, data, per_byte=False):
        return self._pushes(self.ask("B" if per_byte else "P", data))

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0


# A vocabulary of its own for each: what it adds to or takes from the defaults.
TRAINED = {
    "nmt_nfkc": dict(normalization_rule_name="nmt_nfkc", byte_fallback=True, user_defined_symbols=["<sep>", "[INST]", "aab"]),
    "no_fallback": dict(normalization_rule_name="nfkc_cf", byte_fallback=False, add_dummy_prefix=False, pad_id=3),
    "verbatim": dict(normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False,
                     user_defined_symbols=["aa\u2581b", "<sep", "\n", "\u2581\u2581"], control_symbols=["<|im_start|>"],
                     split_by_whitespace=False, split_digits=True),
    "bare": dict(normalization_rule_name="nfkc", byte_fallback=False, add_dummy_prefix=False, remove_extra_whitespaces=False),
}
UNIGRAM = {
    "unigram_nmt_nfkc": dict(normalization_rule_name="nmt_nfkc", byte_fallback=True, vocab_size=1200,
                             user_defined_symbols=["<sep>", "[INST]", "aab", "ab"]),
    "unigram_identity": dict(normalization_rule_name="identity", byte_fallback=False, remove_extra_whitespaces=False,
                             add_dummy_prefix=False, vocab_size=400),
    "unigram_nfkc_cf": dict(normalization_rule_name="nfkc_cf", byte_fallback=False, add_dummy_prefix=False, pad_id=3,
                            split_digits=True, vocab_size=2400, control_symbols=["<|im_start|>"]),
    "unigram_verbatim": dict(normalization_rule_name="identity", byte_fallback=True, remove_extra_whitespaces=False,
                             user_defined_symbols=["aa\u2581b", "<sep", "\n", "\u2581\u2581", "a"], vocab_size=3000,
                             control_symbols=["<|im_start|>"], split_by_whitespace=False, split_by_unicode_script=False),
    "unigram_nfkc": dict(normalization_rule_name="nfkc", byte_fallback=False, remove_extra_whitespaces=False, vocab_size=800,
                         unk_id=2, bos_id=0, eos_id=1, character_coverage=0.98),
}
MODELS = ["cem-kjv", *TRAINED, *UNIGRAM]

SYLLABLES = ("ka to mi shen ver lo ing ed tion un re st är ö ñ 東京 に は を かな カナ при вет мир καλη μερα שלום سلام नमस्ते 한국 어를 "
             "ﬁ ½ № ™ Å １２ ① ㍿ … - , . ! ' \" ( ) 0 1 2 3 7 9 x y").split()


def corpus(lines=2500):
    """Lines of invented words, so that merges of many scripts are learned."""
    rng = random.Random(11)
    lexicon = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(1500)]
    weights = [1 / (1 + i) for i in range(len(lexicon))]
    return lexicon, [" ".join(rng.choices(lexicon, weights, k=rng.randint(2, 14))) for _ in range(lines)]


@pytest.fixture(scope="session")
def words():
    english = ("the and of that to in he shall unto for his a they be is him LORD God I not with all it thou thy was my said "
               "Behold generations wherefore Zerubbabel").split()
    return corpus()[0] + english * 20


@pytest.fixture(scope="session")
def proto(tmp_path_factory):
    """By name, the bytes of each SentencePiece model, trained once."""
    made = {}

    def get(name):
        if name not in made and (name in TRAINED or name in UNIGRAM):
            options = UNIGRAM[name] if name in UNIGRAM else dict(vocab_size=1200, **TRAINED[name])
            prefix = tmp_path_factory.mktemp(name) / "model"
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(corpus()[1]), model_prefix=str(prefix), model_type="unigram" if name in UNIGRAM else "bpe",
                hard_vocab_limit=False, num_threads=2, minloglevel=2, **options)
            made[name] = prefix.with_suffix(".model").read_bytes()
        elif name not in made:
            made[name] = (DATA / f"{name}.tokenizer.model").read_bytes()
        return made[name]

    return get


@pytest.fixture(params=MODELS)
def pair(request, proto, tmp_path):
    """The sentencepiece library and our tool on one model."""
    data = proto(request.param)
    tool = Tool(spm_proto.write_gguf(spm_proto.read(data), tmp_path / "model.gguf"))
    yield sentencepiece.SentencePieceProcessor(model_proto=data), tool
    tool.close()
