"""Texts become tokens as the engine's tokenizers make them, once, and windows are drawn the same after a resume."""
import json
import math
import os
import pathlib
import subprocess

import numpy as np
import pytest
import sentencepiece

from descent_train import data, vocab

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = (ROOT / "models" / "data" / "nrgpt-shakespeare.val.txt").read_text(encoding="utf-8")[:20000]
ODD = "  two  spaces \t tab\r\nnaïve 漢字 👩‍👩‍👧 e\u0301 \u00a0\u2028 end \n\n x\u0000y "


def file_of(directory, text):
    path = directory / "text.txt"
    path.write_bytes(text.encode())
    return path


def test_characters_are_sorted_and_the_split_counts_characters(tmp_path):
    text = "bä\r\nab漢äbaab" + "ab" * 5
    made = data.text_data(file_of(tmp_path, text), tmp_path / "cache", fraction=0.55)
    assert made.vocab.tokens == ["\n", "\r", "a", "b", "ä", "漢"]
    at = int(0.55 * len(text))
    assert [made.vocab.tokens[i] for i in made.train] == list(text[:at])
    assert [made.vocab.tokens[i] for i in made.val] == list(text[at:]) and made.val_text == text[at:]
    assert made.train.dtype == np.uint16


def test_a_character_not_in_training_is_an_error_or_the_unknown(tmp_path):
    path = file_of(tmp_path, "abcabcabcabcabcabc" + "axb")
    with pytest.raises(data.DataError, match="validation text: character 1 is 'x'.*1 such"):
        data.text_data(path, tmp_path / "cache")
    made = data.text_data(path, tmp_path / "cache", unknown="b")
    assert made.vocab.decode(made.val) == "abb"
    with pytest.raises(data.DataError, match="'z' cannot stand for"):
        data.text_data(path, tmp_path / "cache", unknown="z")


def test_what_is_no_text_or_too_short_is_refused(tmp_path):
    path = tmp_path / "text.txt"
    path.write_bytes(b"good \xff bad")
    with pytest.raises(data.DataError, match="byte 5 is not UTF-8"):
        data.text_data(path, tmp_path / "cache")
    with pytest.raises(data.DataError, match="fewer than two"):
        data.text_data(file_of(tmp_path, "abc"), tmp_path / "cache")
    with pytest.raises(data.DataError, match="'words'; expected chars, bpe or unigram"):
        data.text_data(file_of(tmp_path, TEXT), tmp_path / "cache", vocab="words")
    with pytest.raises(data.DataError, match="needs its size"):
        data.text_data(file_of(tmp_path, TEXT), tmp_path / "cache", vocab="bpe")
    with pytest.raises(data.DataError, match="no SentencePiece bpe model of 100000 pieces"):
        data.text_data(file_of(tmp_path, TEXT), tmp_path / "cache", vocab="bpe", size=100000)


def test_a_text_is_encoded_once(tmp_path, monkeypatch):
    path = file_of(tmp_path, TEXT)
    first = data.text_data(path, tmp_path / "cache")
    encode = vocab.Chars.encode
    calls = []
    monkeypatch.setattr(vocab.Chars, "encode", lambda self, text: calls.append(text) or encode(self, text))
    again = data.text_data(path, tmp_path / "cache")
    assert not calls and np.array_equal(first.train, again.train) and np.array_equal(first.val, again.val)
    assert again.vocab.tokens == first.vocab.tokens and again.val_text == first.val_text
    changed = data.text_data(file_of(tmp_path, TEXT.upper()), tmp_path / "cache")
    assert len(calls) == 2 and changed.vocab.decode(changed.val) == changed.val_text != first.val_text


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_pieces_are_sentencepieces_own_of_the_whole_text(tmp_path, monkeypatch, algorithm):
    made = data.text_data(file_of(tmp_path, TEXT), tmp_path / "cache", vocab=algorithm, size=500)
    reference = sentencepiece.SentencePieceProcessor(model_proto=made.vocab.data)
    assert made.vocab.size == reference.get_piece_size() == 500
    monkeypatch.setattr(vocab, "_ENCODED_AT_ONCE", 10)
    for text in (TEXT, ODD, "", "\n", "no newline"):
        ids = made.vocab.encode(text)
        assert ids.tolist() == reference.encode(text) and ids.dtype == np.uint16
        assert made.vocab.decode(ids) == text
        assert made.vocab.token_bytes[ids].sum() == len(text.encode())


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_pieces_come_from_the_training_text_alone_and_always_the_same(tmp_path, algorithm):
    assert "~" not in TEXT
    made = data.text_data(file_of(tmp_path, TEXT + "~~~~" * (len(TEXT) // 40)), tmp_path / "a", vocab=algorithm, size=500)
    model = sentencepiece.SentencePieceProcessor(model_proto=made.vocab.data)
    assert not any("~" in model.id_to_piece(i) for i in range(model.get_piece_size()))
    assert vocab.Pieces.train(TEXT, 500, algorithm).data == vocab.Pieces.train(TEXT, 500, algorithm).data


def test_bits_per_byte_counts_the_bytes_of_predicted_tokens():
    chars = vocab.Chars("aä漢")
    made = data.Data(chars.encode("a"), chars.encode("漢aäa"), chars, "漢aäa")
    assert made.predicted_bytes == 4  # of "aäa", which three predictions stand for
    assert made.bits_per_byte(1.0) == pytest.approx(3 / (4 * math.log(2)))


def test_words_are_whole_and_those_of_the_vocabulary():
    words = vocab.Words(["<eos>", "up", "down"])
    assert words.encode("up,down,<eos>").tolist() == words.encode("up,down,<eos>,").tolist() == [1, 2, 0]
    assert words.decode([2, 1]) == "down,up"
    with pytest.raises(data.DataError, match="'left' is not a word"):
        words.encode("up,left")
    for bad in (["a", "a"], ["a,b"], [""], ["a\nb"]):
        with pytest.raises(data.DataError):
            vocab.Words(bad)


def test_the_converter_takes_the_vocabularies_as_they_are_saved(tmp_path):
    """By the converter's own readers, in the Python that has their packages ($DESCENT_PYTHON; CTest sets it)."""
    saved = [vocab.Chars("abcä\n\""), vocab.Words(["<eos>", "a", "b"]), vocab.Pieces.train(TEXT, 500, "bpe")]
    paths = [v.save(tmp_path) for v in saved]
    script = ("import json, sys; from descent_convert import source\n"
              "for path in sys.argv[1:]: print(json.dumps(source.tokenizer('x', path, 10 ** 6).tokens))")
    done = subprocess.run([os.environ["DESCENT_PYTHON"], "-c", script, *paths], cwd=ROOT / "tools", capture_output=True,
                          text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    read = [json.loads(line) for line in done.stdout.splitlines()]
    model = sentencepiece.SentencePieceProcessor(model_proto=saved[2].data)
    assert read == [saved[0].tokens, saved[1].tokens, [model.id_to_piece(i) for i in range(500)]]


def test_the_validation_text_is_saved_byte_for_byte(tmp_path):
    made = data.text_data(file_of(tmp_path, TEXT + ODD), tmp_path / "cache", vocab="bpe", size=500)
    data.save_validation(made, tmp_path / "val.txt")
    assert (tmp_path / "val.txt").read_bytes() == made.val_text.encode() and "\r\n" in made.val_text


def test_windows_are_of_the_text_and_reach_both_ends():
    tokens = np.arange(50, 60, dtype=np.uint16)
    x, y = data.batch(tokens, data.new_rng(1), 400, 7)
    assert x.shape == y.shape == (400, 7) and x.dtype == y.dtype == np.int64
    assert np.array_equal(y, x + 1) and np.array_equal(x, x[:, :1] + np.arange(7))
    assert set(x[:, 0]) == {50, 51, 52}
    with pytest.raises(data.DataError, match="10 tokens are too few for windows of 10"):
        data.batch(tokens, data.new_rng(1), 1, 10)


def test_a_run_resumed_draws_what_it_would_have_drawn():
    tokens = np.arange(1000)
    rng = data.new_rng(7)
    data.batch(tokens, rng, 5, 3)
    state = json.loads(json.dumps(data.rng_state(rng)))
    expected = [data.batch(tokens, rng, 5, 3)[0].tolist() for _ in range(3)]
    resumed = data.rng_from_state(state)
    assert [data.batch(tokens, resumed, 5, 3)[0].tolist() for _ in range(3)] == expected
    assert data.batch(tokens, data.new_rng(8), 5, 3)[0].tolist() != data.batch(tokens, data.new_rng(7), 5, 3)[0].tolist()


def test_windows_begin_at_the_starts_where_there_are_some():
    tokens, starts = np.arange(100, dtype=np.uint16), np.array([0, 7, 20, 55, 90])
    x, y = data.batch(tokens, data.new_rng(1), 200, 12, starts)
    assert set(x[:, 0].tolist()) == {0, 7, 20, 55}  # a window from 90 on would end past the last token
    assert (y == x + 1).all() and (x[:, 11] == x[:, 0] + 11).all()


def test_given_tokens_are_no_targets():
    tokens, given = np.arange(50, dtype=np.uint16), np.zeros(50, bool)
    given[10:20] = True
    x, y = data.batch(tokens, data.new_rng(1), 100, 12, None, given)
    targets = x + 1
    assert (y == np.where((targets >= 10) & (targets < 20), data.UNPREDICTED, targets)).all() and (y == data.UNPREDICTED).any()
