"""descent eval: losses against a float64 reference and against the trainers' figures, exact match, and bad files."""
import json
import math
import re

import numpy as np
import pytest

from models import ALPHABET, CONTEXT, SPM_VOCAB, Nrgpt, characters, encode

def measure(descent, model, *arguments, **how):
    result = descent("eval", model, *arguments, "--json", **how)
    assert result.code == 0 and result.err == ""
    read = json.loads(result.text)
    assert list(read) == ["results"]
    return read["results"]


@pytest.fixture
def text_file(tmp_path):
    def write(content):
        path = tmp_path / "text"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def random_text(length, seed=0):
    return "".join(np.random.default_rng(seed).choice(list(ALPHABET), length))


@pytest.mark.parametrize("length", [2, 3, CONTEXT, CONTEXT + 1, CONTEXT + 2, 2 * CONTEXT + 1, 5 * CONTEXT - 3, 300])
def test_loss_is_the_reference_s(descent, made, text_file, length):
    """Every token but the first is predicted once, whether or not the last window is full."""
    model, text = made["chars"], random_text(length, seed=length)
    for result, steps in zip(measure(descent, model.path, "--file", text_file(text), "-T", "1,3,6"), (1, 3, 6), strict=True):
        nats = model.loss(encode(text), steps)
        assert set(result) == {"steps", "loss", "perplexity", "bits_per_byte", "predictions", "bytes", "token_steps"}
        assert result["token_steps"] == steps * (length - 1)
        assert result["steps"] == steps
        assert result["predictions"] == result["bytes"] == length - 1
        assert result["loss"] == pytest.approx(nats / (length - 1), rel=2e-5)
        assert result["perplexity"] == pytest.approx(math.exp(nats / (length - 1)), rel=1e-4)
        assert result["bits_per_byte"] == pytest.approx(nats / math.log(2) / (length - 1), rel=2e-5)


def test_a_list_of_depths_is_one_by_one(descent, made, text_file):
    """In the order asked, and to the last bit what each depth gives alone, in any chunks."""
    model, file = made["chars"].path, text_file(random_text(100))
    asked = [4, 1, 6, 4]
    alone = [measure(descent, model, "--file", file, "-T", steps)[0] for steps in asked]
    assert measure(descent, model, "--file", file, "-T", "4,1,6,4") == alone
    for how in (["--chunk", "5"], ["--chunk", "4096"], ["--threads", "1"], ["--cache-bytes", "20K"]):
        assert measure(descent, model, "--file", file, "-T", "4,1,6,4", *how) == alone


def test_depths_of_a_layered_model_are_as_asked(descent, shipped, text_file):
    file = text_file("In the beginning God created the heaven and the earth.\n")
    results = measure(descent, shipped("cem-kjv"), "--file", file, "-T", "2x2,2,1x3")
    assert [r["steps"] for r in results] == ["2x2", 2, "1x3"]
    assert results[0]["loss"] == results[1]["loss"] != results[2]["loss"]
    alone = measure(descent, shipped("cem-kjv"), "--file", file, "-T", "1x3")
    assert alone == results[2:]


def test_ranges_of_depths(descent, made, shipped, text_file):
    """A range is the depths it stands for, one by one; of two kinds of sub-layer, each with each, the second fastest."""
    file = text_file("In the beginning God created the heaven and the earth.\n")
    results = measure(descent, shipped("cem-kjv"), "--file", file, "-T", "1-3:2x2-3,2")
    assert [r["steps"] for r in results] == ["1x2", "1x3", "3x2", "3x3", 2]
    assert results == measure(descent, shipped("cem-kjv"), "--file", file, "-T", "1x2,1x3,3x2,3x3,2")
    results = measure(descent, made["chars"].path, "--file", text_file("abc"), "-T", "7,1-6:2,2-2")
    assert [r["steps"] for r in results] == [7, 1, 3, 5, 2]


@pytest.mark.parametrize("steps, words", [
    ("3-1", ['"3-1"', "FIRST-LAST"]), ("0-2", ['"0-2"', "1 to 65535"]), ("1-2:0", ["1-2:0"]), ("1-2:", ["1-2:"]), ("1-2x", ["1-2x"]),
    ("-2", ['"-2"']), ("1-70000", ["1-70000"]), ("1-2-3", ["1-2-3"]), ("1-4097", ["more than 4096"]),
    ("1-" + 60 * "0" + "1", ["?"]), ("1-2x3", ['"1x3"'])])
def test_ranges_that_are_none(descent, made, text_file, steps, words):
    result = descent("eval", made["chars"].path, "--file", text_file("abc"), "--steps=" + steps)
    assert result.code == 2 and result.out == b""
    for word in words:
        assert word in result.err


def test_the_trained_depth_is_the_default(descent, made, shipped, text_file):
    assert [r["steps"] for r in measure(descent, made["chars"].path, "--file", text_file("abc"))] == [3]
    assert [r["steps"] for r in measure(descent, shipped("cem-kjv"), "--file", text_file("abc"))] == [2]


def test_a_tokenizer_that_begins_texts(descent, made, text_file):
    """<s> comes first, so every token of the text is predicted; a byte of a byte token counts as one."""
    model = made["bos"]
    pieces = {"▁ab": SPM_VOCAB - 1, "c": SPM_VOCAB - 5, "ö": None}
    ids = np.array([1, pieces["▁ab"], pieces["c"]] + [3 + b for b in "ö".encode()])
    (result,) = measure(descent, model.path, "--file", text_file("abcö"))
    # " ab" has three bytes: the space that the tokenizer puts before a text belongs to its first token
    assert (result["predictions"], result["bytes"]) == (4, 3 + 1 + 2)
    assert result["loss"] == pytest.approx(model.loss(ids, 3) / 4, rel=2e-5)
    assert result["bits_per_byte"] == pytest.approx(model.loss(ids, 3) / 6 / math.log(2), rel=2e-5)


def test_standard_input_and_table(descent, made, text_file):
    model, text = made["chars"].path, random_text(50)
    (wanted,) = measure(descent, model, "--file", text_file(text), "-T2")
    assert measure(descent, model, "--file", "-", "-T2", input=text.encode()) == [wanted]
    table = descent("eval", model, "--file", "-", "-T2", input=text.encode()).text.splitlines()
    assert table[0].split() == ["steps", "loss", "perplexity", "bits/byte"]
    assert table[1].split() == ["2", f"{wanted['loss']:.5f}", f"{wanted['perplexity']:.4f}", f"{wanted['bits_per_byte']:.5f}"]
    assert table[2] == "predictions 49, bytes 49"


@pytest.mark.parametrize("content, words", [
    (b"", ["no token"]), (b"a", ["only one token"]), (b"\x00" * 1000, ["byte 0"]), (b"abc\xff", ["offset 3"]), (b"abc\xc3", ["offset 3"]),
    ("abcé".encode(), ["é", "byte 3"])])
def test_texts_that_cannot_be_measured(descent, made, text_file, content, words):
    result = descent("eval", made["chars"].path, "--file", text_file(content))
    assert result.code == 1 and result.out == b"" and result.err.startswith("descent: ") and result.err.count("\n") == 1
    for word in words:
        assert word in result.err


def test_bytes_of_any_kind_in_a_byte_vocabulary(descent, made, text_file):
    (result,) = measure(descent, made["bos"].path, "--file", text_file(b"\x00" * 40))
    assert (result["predictions"], result["bytes"]) == (41, 41)  # the space before the text is one of them


@pytest.mark.parametrize("kind, word", [("missing", "No such file"), ("directory", "directory")])
@pytest.mark.parametrize("option", ["--file", "--match"])
def test_files_that_cannot_be_read(descent, shipped, tmp_path, option, kind, word):
    file = tmp_path / "text"
    if kind == "directory":
        file.mkdir()
    result = descent("eval", shipped("nrgpt-listops"), option, file)
    assert result.code == 1 and str(file) in result.err and word in result.err


def test_mistakes(descent, made, text_file):
    model, file = made["chars"].path, text_file("abc")
    for arguments, word in [([], "--file"), (["--file", file, "--match", file], "--match"), (["--file", file, "-T", "1,0"], '"0"'),
                            (["--file", file, "-T", "1,,2"], "steps"), (["--file", file, "-T", "1,70000"], '"70000"'),
                            (["--file", file, "extra"], "extra")]:
        result = descent("eval", model, *arguments)
        assert result.code == 2 and result.out == b"" and word in result.err


def test_a_model_without_tokenizer_says_so(descent, made, text_file):
    for option in ("--file", "--match"):
        result = descent("eval", made["bare"].path, option, text_file("abc\tx"))
        assert result.code == 1 and "no tokenizer" in result.err


def test_divergence_is_an_error(descent, made, text_file):
    result = descent("eval", made["wild"].path, "--file", text_file("abc"), "--json")
    assert result.code == 1 and result.out == b"" and "diverged at token" in result.err


# The trainer measured the shipped models in PyTorch, without this program: models/data/NAME.figures.json.
TEXTS = ["nrgpt-shakespeare", "cem-kjv"]


def figures(data, name):
    """{T as it is written: the trainer's row of the shipped model}."""
    return {row["T"]: row for row in json.loads((data / f"{name}.figures.json").read_text())["swept"]["rows"]}


def assert_losses(descent, shipped, data, name, depths):
    results = measure(descent, shipped(name), "--file", data / f"{name}.val.txt", "-T", ",".join(depths))
    assert len(results) == len(depths) > 0
    for depth, result in zip(depths, results):
        assert result["loss"] == pytest.approx(figures(data, name)[depth]["loss"], abs=1e-4), depth
        assert result["bits_per_byte"] == pytest.approx(figures(data, name)[depth]["bits_per_byte"], abs=1e-4), depth


def test_one_figure_of_each_text(descent, shipped, data):
    """The quickest of them, so that every run of the tests measures each shipped model on its whole text."""
    for name in TEXTS:
        assert_losses(descent, shipped, data, name, list(figures(data, name))[:1])


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_figures_of_the_texts(descent, shipped, data, name):
    assert_losses(descent, shipped, data, name, list(figures(data, name)))


@pytest.mark.parametrize("name", [*TEXTS, "nrgpt-listops"])
def test_cards_hold_the_figures(data, shipped, name):
    """One row a depth, as the figures have it; and the card's command is about files that are there, with just these depths."""
    card, rows = shipped(name).with_suffix(".md").read_text(), figures(data, name)
    table = card.split("## One model, T swept")[1].split("## ")[0]
    shown = [line.strip("| ").split(" | ") for line in table.splitlines() if re.match(r"\| \d", line)][:len(rows)]
    assert [row[0] for row in shown] == list(rows)
    for row, figure in zip(shown, rows.values()):
        assert float(row[1]) == pytest.approx(figure["loss" if "loss" in figure else "exact_match"], abs=6e-4)
    (command,) = [line.split() for line in card.splitlines() if line.startswith("    descent eval ")]
    assert shipped(name).parents[1].joinpath(command[2]) == shipped(name)
    assert shipped(name).parents[1].joinpath(command[4]).is_file()
    assert command[5:] == ["--steps", ",".join(rows)]


def assert_exact_match(descent, shipped, data, depths):
    arguments = [shipped("nrgpt-listops"), "--match", data / "nrgpt-listops.eval.tsv", "-T", ",".join(depths)]
    results = measure(descent, *arguments)
    assert [str(r["steps"]) for r in results] == depths
    for depth, result in zip(depths, results):
        figure = figures(data, "nrgpt-listops")[depth]
        assert set(result) == {"steps", "exact_match", "right", "items", "tokens", "token_steps"}
        assert result["items"] == figure["items"] and result["token_steps"] == result["steps"] * result["tokens"]
        assert abs(result["right"] - figure["right"]) <= 1
        assert result["exact_match"] == result["right"] / figure["items"]
    table = [line.split() for line in descent("eval", *arguments).text.splitlines()]
    assert [row[:3] for row in table[1:]] == [[str(r["steps"]), f"{r['exact_match']:.4f}", str(r["right"])] for r in results]


def test_exact_match_of_listops(descent, shipped, data):
    assert_exact_match(descent, shipped, data, list(figures(data, "nrgpt-listops"))[:1])


@pytest.mark.slow
def test_exact_match_of_listops_at_every_depth(descent, shipped, data):
    assert_exact_match(descent, shipped, data, list(figures(data, "nrgpt-listops")))


def test_exact_match_counts_what_run_says(descent, shipped, text_file):
    """Items right and wrong on purpose; a prompt ends at its first =, and line ends may be those of Windows."""
    model, question = shipped("nrgpt-listops"), "add_10,(,0,median_10,(,1,7,1,),2,),="
    said = descent("run", model, question, "--temperature", "0", "-T8").text.rstrip(",").split(",")[-1]
    other = "4" if said != "4" else "5"
    lines = [f"{question}\t{said}", f"{question}\t{other}", f"{question},9,9,=\t{said}\r", "", f"{question}\t("]
    (result,) = measure(descent, model, "--match", text_file("\n".join(lines)), "-T8")
    assert (result["right"], result["items"]) == (2, 4)


@pytest.mark.parametrize("content, words", [
    ("", ["no line"]), ("\n\n", ["no line"]), ("=\t1\nadd_10,(\n", ["line 2", "tab"]), ("sub_10,(\t1\n", ["line 1", "sub_10"]),
    ("=\tnine\n", ["line 1", "nine"]), ("\t1\n", ["line 1", "0 tokens"]), (b"\x00" * 50, ["line 1"])])
def test_questions_that_cannot_be_asked(descent, shipped, text_file, content, words):
    result = descent("eval", shipped("nrgpt-listops"), "--match", text_file(content))
    assert result.code == 1 and result.out == b"" and result.err.count("\n") == 1
    for word in words:
        assert word in result.err


def test_exact_match_needs_an_end_of_text(descent, made, text_file):
    result = descent("eval", made["chars"].path, "--match", text_file("a\tb"))
    assert result.code == 1 and "end-of-text" in result.err


# ---- Beside another model --------------------------------------------------------------------------------------------


def log_softmax(logits):
    largest = logits.max(-1, keepdims=True)
    return logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))


def test_another_model_beside(descent, made, text_file, tmp_path):
    """KL(other || model), the other's loss and how often they agree, in windows, at each depth; what is said of the model alone
    stays what it was, to the last digit."""
    model, other = made["chars"], Nrgpt(len(ALPHABET), seed=9).write(tmp_path / "other.gguf", "other", characters)
    text = random_text(3 * CONTEXT + 5, seed=2)
    ids, file = encode(text), text_file(text)
    found = measure(descent, model.path, "--file", file, "-T", "1,3,6", "--against", other.path)
    alone = measure(descent, model.path, "--file", file, "-T", "1,3,6")
    for result, plain, steps in zip(found, alone, (1, 3, 6), strict=True):
        kl = agreed = 0
        for start in range(0, len(ids) - 1, CONTEXT):
            window = ids[start:min(start + CONTEXT, len(ids) - 1)]
            p, q = log_softmax(other.logits(window, steps)), log_softmax(model.logits(window, steps))
            kl += (np.exp(p) * (p - q)).sum()
            agreed += (p.argmax(-1) == q.argmax(-1)).sum()
        count = len(ids) - 1
        assert result.pop("kl") == pytest.approx(kl / count, rel=1e-4)
        assert result.pop("agreement") == pytest.approx(agreed / count)
        assert result.pop("reference_loss") == pytest.approx(other.loss(ids, steps) / count, rel=2e-5)
        assert result == plain
    table = descent("eval", model.path, "--file", file, "-T3", "--against", other.path).text.splitlines()
    assert table[0].split()[4:] == ["reference", "KL", "agreement"] and table[1].split()[1] == f"{alone[1]['loss']:.5f}"


def test_a_model_beside_itself(descent, shipped, text_file):
    file = text_file("In the beginning God created the heaven and the earth.\n")
    for result in measure(descent, shipped("cem-kjv"), "--file", file, "-T", "2x2,1x3", "--against", shipped("cem-kjv")):
        assert (result["kl"], result["agreement"], result["reference_loss"]) == (0, 1, result["loss"])


def test_pages_of_the_model_beside(descent, made, shipped, data, text_file):
    """Each has its own: one model with two kinds of pages is what the rounding of history alone does."""
    text = (data / "nrgpt-shakespeare.val.txt").read_text()[:600]
    model, file = shipped("nrgpt-shakespeare"), text_file(text)
    plain, coarse = (measure(descent, model, "--file", file, "--page-type", pages)[0]["loss"] for pages in ("f32", "q8"))
    assert plain != coarse
    for pages, beside, losses in ((["q8"], ["f32"], (coarse, plain)), (["f32"], ["q8"], (plain, coarse)), (["q8"], [], (coarse, coarse))):
        own = ["--against-page-type", *beside] if beside else []
        (result,) = measure(descent, model, "--file", file, "--page-type", *pages, "--against", model, *own)
        assert (result["loss"], result["reference_loss"]) == losses and (result["kl"] > 0) == bool(beside)
    result = descent("eval", model, "--file", file, "--against-page-type", "q8")
    assert result.code == 2 and "--against" in result.err


def test_windows_fit_either_cache(descent, made, text_file):
    """The other model's pages take more: as many windows go side by side as its cache holds."""
    model, file = made["chars"].path, text_file(random_text(20 * CONTEXT, seed=4))
    arguments = ["--file", file, "--page-type", "q8", "--against", model, "--against-page-type", "f32"]
    assert measure(descent, model, *arguments, "--cache-bytes", "20K") == measure(descent, model, *arguments)


def test_models_that_cannot_stand_beside(descent, made, shipped, text_file):
    file = text_file("abc")
    for arguments, code, word in [(["--file", file, "--against", shipped("nrgpt-listops")], 1, "vocabulary"),
                                  (["--file", file, "--against", "/nowhere.gguf"], 1, "/nowhere.gguf"),
                                  (["--match", file, "--against", made["chars"].path], 2, "--file")]:
        result = descent("eval", made["chars"].path, *arguments)
        assert result.code == code and word in result.err and result.out == b""


def test_special_tokens_of_a_text(descent, shipped, text_file):
    """Spelled out they are refused as text and, where that is asked for, are the tokens they name."""
    file = text_file("add_10,(,2,5,),=,7,<eos>,add_10,(,4,4,),=,8,<eos>")
    result = descent("eval", shipped("nrgpt-listops"), "--file", file)
    assert result.code == 1 and "<eos>" in result.err
    (whole,) = measure(descent, shipped("nrgpt-listops"), "--file", file, "--parse-special")
    assert whole["predictions"] == 15
    (first,) = measure(descent, shipped("nrgpt-listops"), "--file", text_file("add_10,(,2,5,),=,7,<eos>"), "--parse-special")
    assert first["predictions"] == 7 and first["loss"] * 7 < whole["loss"] * 15
