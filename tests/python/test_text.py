"""Encoding, decoding, sampling and generating."""
import numpy as np
import pytest
from conftest import open_model

import descent


@pytest.fixture
def text(nrgpt):
    """Some text the golden character vocabulary can spell."""
    return "".join(nrgpt.piece(i).decode() for i in (3, 9, 20, 41, 9, 60))


def test_characters(nrgpt, text):
    assert nrgpt.encode(text).tolist() == [3, 9, 20, 41, 9, 60] and nrgpt.encode(text).dtype == np.uint32
    assert nrgpt.decode([3, 9, 20, 41, 9, 60]) == text
    assert nrgpt.encode(text.encode()).tolist() == [3, 9, 20, 41, 9, 60]
    assert nrgpt.encode("").tolist() == [] and nrgpt.decode([]) == ""
    assert (nrgpt.tokenizer.model, nrgpt.tokenizer.eos) == ("chars", None)


def test_words():
    with open_model("nrgpt-listops-bare") as model:
        assert model.tokenizer.model == "words"
        assert model.tokenizer.eos == model.encode("<eos>", parse_special=True)[0]
        ids = model.encode("max_10,(,1,2,)")
        assert ids.size == 5 and model.decode(ids) == "max_10,(,1,2,),"  # a word brings its separator


def test_a_model_without_tokenizer(cem):
    assert cem.tokenizer is None
    for call in (lambda: cem.decode([1]), lambda: cem.piece(1), lambda: next(cem.generate("a"))):
        with pytest.raises(descent.Error, match="no tokenizer"):
            call()


def test_sampling_is_greedy_at_zero_and_follows_the_seed(nrgpt):
    logits = np.zeros(65, np.float32)
    logits[[40, 12]] = 5
    assert nrgpt.sample(logits, temperature=0) == 12
    assert nrgpt.sample(logits, temperature=0, bias={40: 0.5}) == 40
    assert nrgpt.sample(logits, [12, 12, 3], temperature=0, frequency_penalty=1) == 12  # all of it prompt
    assert nrgpt.sample(logits, [12, 12, 3], prompt_count=1, temperature=0, frequency_penalty=1) == 40
    drawn = [nrgpt.sample(logits, [1] * n, seed=5) for n in range(30)]
    assert drawn == [nrgpt.sample(logits, [1] * n, seed=5) for n in range(30)]
    assert drawn != [nrgpt.sample(logits, [1] * n, seed=6) for n in range(30)]
    assert {nrgpt.sample(logits, seed=s, top_k=2) for s in range(50)} == {12, 40}


@pytest.mark.parametrize("knobs", [{"temperature": -1}, {"top_p": 0}, {"bias": {65: 1.0}}, {"bias": {-1: 1.0}}, {"seed": 2**63},
                                   {"min_tokens": -1}])
def test_bad_knobs(nrgpt, knobs):
    with pytest.raises(descent.Error) as error:
        nrgpt.sample(np.zeros(65), **knobs)
    assert error.value.code == descent.Code.BAD_ARGUMENT


def test_unknown_knobs_and_shapes(nrgpt):
    for knob in ("temprature", "n_bias"):
        with pytest.raises(TypeError, match=knob):
            nrgpt.sample(np.zeros(65), **{knob: 1})
    with pytest.raises(descent.Error, match="shape"):
        nrgpt.sample(np.zeros(64))
    with pytest.raises(descent.Error) as error:
        nrgpt.sample(np.full(65, np.nan))
    assert error.value.code == descent.Code.DIVERGED


def test_generation_is_repeated_sampling(nrgpt, text):
    ids = nrgpt.encode(text).tolist()
    made = list(nrgpt.generate_ids(ids, steps=4, max_tokens=8, temperature=0.8, seed=3))
    whole = list(ids)
    for _ in range(8):
        logits = nrgpt.logits(whole, steps=4)[-1]
        whole.append(nrgpt.sample(logits, whole, len(ids), temperature=0.8, seed=3))
    assert made == whole[len(ids):]
    assert "".join(nrgpt.generate(text, steps=4, max_tokens=8, temperature=0.8, seed=3)) == nrgpt.decode(made)


def test_generation_ends(nrgpt):
    prompt = [1] * (nrgpt.info.context - 3)
    assert len(list(nrgpt.generate_ids(prompt, steps=1, temperature=0))) == 3
    assert list(nrgpt.generate_ids(prompt, steps=1, max_tokens=0)) == []
    with open_model("nrgpt-listops-bare") as model:
        always = {model.tokenizer.eos: 1000.0}
        assert list(model.generate_ids([1, 2], bias=always)) == []
        assert len(list(model.generate_ids([1, 2], bias=always, min_tokens=2))) == 2
        stream = model.generate_ids([1, 2], bias=always, ignore_eos=True)
        assert next(stream) != model.tokenizer.eos
        stream.close()
