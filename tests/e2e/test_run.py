"""descent run: texts against a float64 reference, every way to give a prompt, and what stops a text."""
import json
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import environment
from models import ALPHABET, CONTEXT, SPM_VOCAB, encode


def run_json(descent, model, *arguments, **how):
    result = descent("run", model, *arguments, "--json", **how)
    assert result.code == 0 and result.err == ""
    assert result.text.count("\n") == 1
    return json.loads(result.text)


def decode(ids):
    return "".join(ALPHABET[i] for i in ids)


@pytest.mark.parametrize("steps", [1, 2, 3, 7])
@pytest.mark.parametrize("prompt", ["a", "the cat s", "x.\nz"])
def test_greedy_text_is_the_reference_s(descent, made, steps, prompt):
    model = made["chars"]
    room = CONTEXT - len(prompt) + 1
    wanted = model.greedy(encode(prompt), steps, room)
    got = run_json(descent, model.path, prompt, "--temperature", "0", "-T", steps, "--draft-steps", 0)
    assert got["tokens"] == wanted and got["text"] == decode(wanted)
    assert got["steps"] == steps and got["finish_reason"] == "length" and got["prompt_tokens"] == len(prompt)
    assert got["row_steps"] == steps * CONTEXT  # the last token is chosen, not descended
    assert descent("run", model.path, prompt, "--temperature", "0", "-T", steps).text == decode(wanted)


def test_drafts_change_no_text(descent, shipped):
    model = shipped("nrgpt-shakespeare")
    plain = run_json(descent, model, "ROMEO:", "-n60", "-s4", "--draft-steps", 0)
    assert plain["drafted_tokens"] == plain["accepted_tokens"] == 0 and plain["row_steps"] == 4 * 65
    for steps in (1, 2, 3, "auto"):
        got = run_json(descent, model, "ROMEO:", "-n60", "-s4", "--draft-steps", steps)
        assert got["tokens"] == plain["tokens"] and got["accepted_tokens"] <= got["drafted_tokens"]
        assert got["accepted_tokens"] > 0 or steps == "auto"
    for name, steps, said in (("nrgpt-shakespeare", 4, "at a depth of 4"), ("cem-kjv", 1, "NRGPT")):
        refused = descent("run", shipped(name), "a", "--draft-steps", steps)
        assert (refused.code, refused.text) == (1, "") and f"draft_steps is {steps}" in refused.err and said in refused.err
    assert descent("run", model, "a", "--draft-steps", "often").code == 2


def test_one_candidate_is_the_text_and_what_is_no_choice_is_refused(descent, made):
    """What several are judged by is tested where a server says what each of them was: server/test_choose.py."""
    model = made["chars"].path
    plain = run_json(descent, model, "the cat", "-n9", "-s4", "--draft-steps", 0)
    got = run_json(descent, model, "the cat", "-n9", "-s4", "--choose", "1:energy", "--trace")
    assert got["tokens"] == plain["tokens"] and got["row_steps"] == plain["row_steps"]
    assert got["choose"]["scores"] == [got["choose"]["score"]] and len(got["trace"]) == len(plain["tokens"])
    assert descent("run", model, "the cat", "-n9", "-s4", "--choose", "3:vote", "--temperature", 0).text == run_json(
        descent, model, "the cat", "-n9", "--temperature", 0)["text"]
    for text in ("8", "0:vote", "129:vote", "8:luck", "x:vote", ":vote", "8:"):
        refused = descent("run", model, "a", "--choose", text)
        assert (refused.code, refused.text) == (2, "") and "--choose must be N:BY" in refused.err


def test_the_trained_depth_is_the_default(descent, made):
    model = made["chars"].path
    assert run_json(descent, model, "a", "-s1")["steps"] == 3
    assert descent("run", model, "a", "-s1").out == descent("run", model, "a", "-s1", "-T3").out


def test_depths_of_a_layered_model(descent, shipped):
    model = shipped("cem-kjv")
    both = run_json(descent, model, "And", "-n3", "-T2", "-s1")
    assert both["steps"] == 2 and both["tokens"] == run_json(descent, model, "And", "-n3", "-T2x2", "-s1")["tokens"]
    assert run_json(descent, model, "And", "-n3", "-T3x1")["steps"] == "3x1"


def test_sources_of_a_prompt(descent, made, tmp_path):
    model = made["chars"].path
    file = tmp_path / "prompt"
    file.write_text("the\n")
    options = ["-s", "4", "-n", "8"]
    texts = {descent("run", model, "the\n", *options).out,
             descent("run", model, "--file", file, *options).out,
             descent("run", model, "--file", "-", *options, input=b"the\n").out,
             descent("run", model, *options, input=b"the\n").out,
             descent("run", model, "the\n", *options, input=b"not this").out}
    assert len(texts) == 1 and len(texts.pop()) == 8


def test_seeds(descent, made):
    model = made["chars"].path
    texts = {seed: descent("run", model, "a", "--seed", seed).out for seed in range(-3, 4)}
    assert len(set(texts.values())) == 7
    assert descent("run", model, "a", "--seed", "2", "--threads", "1", "--chunk", "1").out == texts[2]
    random = [run_json(descent, model, "a") for _ in range(2)]
    assert random[0]["seed"] != random[1]["seed"]
    assert descent("run", model, "a", "--seed", random[0]["seed"]).text == random[0]["text"]


def test_largest_seeds(descent, made):
    for seed in (-2**63, 2**63 - 1):
        assert run_json(descent, made["chars"].path, "a", "--seed", seed)["seed"] == seed


def test_sampler_options_reach_the_sampler(descent, made):
    model = made["chars"]
    prompt = "the cat"
    ids = encode(prompt)
    logits = model.logits(ids, 3)[-1]
    best = int(logits.argmax())

    def first(*options):
        return run_json(descent, model.path, prompt, "-n1", *options)["tokens"][0]

    for narrow in (["--top-k", "1"], ["--top-p", "1e-6"], ["--min-p", "1"], ["--temperature", "0"]):
        assert {first("-s", s, *narrow) for s in range(5)} == {best}
    assert len({first("-s", s, "--temperature", "5") for s in range(12)}) > 3
    assert first("--logit-bias", "7=1000") == 7
    assert first("--temperature", "0", "--logit-bias", f"{best}=-1000") == int(np.delete(logits, best).argmax()) + (
        np.delete(logits, best).argmax() >= best)
    greedy = ["--temperature", "0", "-n", "9"]
    assert "a" * 9 == run_json(descent, model.path, prompt, *greedy, "--logit-bias", "0=1000")["text"]
    mixed = run_json(descent, model.path, prompt, *greedy, "--logit-bias", "0=1000", "--frequency-penalty", "2000")["text"]
    assert mixed.startswith("a") and mixed.count("a") == 1
    once = run_json(descent, model.path, prompt, *greedy, "--logit-bias", "0=1000", "--presence-penalty", "2000")["text"]
    assert once == mixed


def test_repetition_penalty(descent, made):
    """Of a prompt after which a letter of its own comes next, and no longer does."""
    model, prompt = made["chars"], "the bat"
    ids = encode(prompt)
    logits = model.logits(ids, 3)[-1]
    assert int(logits.argmax()) in ids
    got = run_json(descent, model.path, prompt, "-n1", "--temperature", "0", "--repetition-penalty", "4")["tokens"]
    assert got == [int(penalized(logits, ids, 4).argmax())] != [int(logits.argmax())]


def penalized(logits, seen, penalty):
    logits = logits.copy()
    for token in set(seen):
        logits[token] *= penalty if logits[token] < 0 else 1 / penalty
    return logits


def test_typical_sampling_leaves_out_the_unlikely(descent, made):
    """With a small typical mass one token is left: the one whose surprise is nearest the entropy."""
    model = made["chars"]
    logits = model.logits(encode("the cat"), 3)[-1]
    p = np.exp(logits - logits.max())
    p /= p.sum()
    distance = np.abs(-np.log(p) + (p * np.log(p)).sum())
    got = {run_json(descent, model.path, "the cat", "-n1", "-s", s, "--typical-p", "1e-6")["tokens"][0] for s in range(5)}
    assert got == {int(distance.argmin())}


def test_most_tokens(descent, made):
    got = run_json(descent, made["chars"].path, "abc", "-n", "5")
    assert len(got["tokens"]) == 5 and got["finish_reason"] == "length"
    got = run_json(descent, made["chars"].path, "abc", "-n", "99999999999")
    assert len(got["tokens"]) == CONTEXT - 3 + 1


def test_prompts_that_fill_the_context(descent, made):
    model = made["chars"]
    full = "abcdefghijklmnop"
    assert len(full) == CONTEXT
    got = run_json(descent, model.path, full, "--temperature", "0")
    assert got["tokens"] == model.greedy(encode(full), 3, 1)
    result = descent("run", model.path, full + "q")
    assert result.code == 1 and result.out == b""
    assert result.err == "descent: the prompt has 17 tokens, more than the 16 of the context of model chars\n"


def test_empty_prompts(descent, made, tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    for arguments in ([""], ["--file", empty], []):
        result = descent("run", made["chars"].path, *arguments)
        assert result.code == 1 and result.out == b""
        assert result.err.startswith("descent: the prompt is empty: ")
    assert run_json(descent, made["bos"].path, "", "-n", "2")["prompt_tokens"] == 1


@pytest.mark.parametrize("prompt, words", [
    (b"a\x00b", ["byte 1"]), (b"\x00" * 100, ["byte 0"]), (b"ab\xff", ["UTF-8", "offset 2"]), (b"ab\xc3", ["UTF-8", "offset 2"]), ("né".encode(), ["é", "byte 1"])])
def test_prompts_that_the_vocabulary_cannot_spell(descent, made, tmp_path, prompt, words):
    file = tmp_path / "prompt"
    file.write_bytes(prompt)
    result = descent("run", made["chars"].path, "--file", file)
    assert result.code == 1 and result.out == b"" and result.err.count("\n") == 1
    for word in words:
        assert word in result.err


def test_bytes_of_any_kind_go_into_a_byte_vocabulary(descent, made, tmp_path):
    file = tmp_path / "prompt"
    file.write_bytes(b"\x00\xff\xc3(")
    got = run_json(descent, made["bos"].path, "--file", file, "-n", "5", "--ignore-eos")
    assert len(got["tokens"]) == 5


def test_output_is_always_utf8(descent, made):
    """A random model over byte tokens makes no sense, and still no broken character."""
    for seed in range(20):
        result = descent("run", made["bos"].path, "ab", "-s", seed, "--temperature", "3", "--ignore-eos")
        assert result.code == 0
        result.out.decode()


@pytest.mark.parametrize("kind, word", [("missing", "No such file"), ("directory", "directory")])
def test_prompt_files_that_cannot_be_read(descent, made, tmp_path, kind, word):
    file = tmp_path / "prompt"
    if kind == "directory":
        file.mkdir()
    result = descent("run", made["chars"].path, "--file", file)
    assert result.code == 1 and str(file) in result.err and word in result.err


def test_token_ids(descent, made):
    ids = encode("the cat")
    listed = ",".join(map(str, ids))
    for name in ("bare", "chars"):
        model = made[name]
        wanted = model.greedy(ids, 3, 5)
        result = descent("run", model.path, "--tokens", listed, "-n", "5", "--temperature", "0")
        assert result.code == 0 and result.text == ",".join(map(str, wanted)) + "\n"
        echoed = descent("run", model.path, "--tokens", listed, "-n", "5", "--temperature", "0", "--echo")
        assert echoed.text == listed + "," + result.text
        got = run_json(descent, model.path, "--tokens", listed, "-n", "5", "--temperature", "0")
        assert got["tokens"] == wanted and got["text"] is None


def test_a_model_without_tokenizer_says_so(descent, made):
    for arguments in (["a"], ["--file", __file__], []):
        result = descent("run", made["bare"].path, *arguments)
        assert result.code == 1 and "no tokenizer" in result.err and "--tokens" in result.err


def test_echo(descent, made):
    model, options = made["chars"].path, ["-s", "1", "-n", "6"]
    plain = descent("run", model, "the cat", *options).text
    assert descent("run", model, "the cat", *options, "--echo").text == "the cat" + plain
    assert run_json(descent, model, "the cat", *options, "--echo")["text"] == "the cat" + plain


def test_stop_strings(descent, made):
    model, options = made["chars"].path, ["-s", "1", "-n", "12"]
    whole = descent("run", model, "the", *options).text
    for begin, end in [(3, 4), (3, 6), (0, 1), (5, 9), (10, 12)]:
        stop = whole[begin:end]
        got = run_json(descent, model, "the", *options, "--stop", stop)
        assert got["text"] == whole[:whole.index(stop)] and got["finish_reason"] == "stop"
        assert descent("run", model, "the", *options, "--stop", "zzzzzz", "--stop", stop).text == got["text"]
    never = whole[8:12] + "z"  # its beginning comes at the very end, and must not be lost
    got = run_json(descent, model, "the", *options, "--stop", never)
    assert got["text"] == whole and got["finish_reason"] == "length"


def test_end_of_text(descent, shipped):
    model, question = shipped("nrgpt-listops"), "add_10,(,0,median_10,(,1,7,1,),2,),="
    got = run_json(descent, model, question, "--temperature", "0", "-T", "8")
    assert got["finish_reason"] == "stop" and got["text"].rstrip(",").split(",")[-1] == "3"
    longer = run_json(descent, model, question, "--temperature", "0", "-T", "8", "--ignore-eos")
    assert longer["finish_reason"] == "length" and longer["tokens"][:len(got["tokens"])] == got["tokens"]
    later = run_json(descent, model, question, "--temperature", "0", "-T", "8", "--min-tokens", len(got["tokens"]) + 3)
    assert len(later["tokens"]) >= len(got["tokens"]) + 3
    special = run_json(descent, model, question + ",3,<eos>", "--parse-special", "-n1")
    assert special["prompt_tokens"] == got["prompt_tokens"] + 2


def test_trace_is_the_reference_s(descent, made):
    model, prompt, steps = made["chars"], "the cat", 4
    got = run_json(descent, model.path, prompt, "--temperature", "0", "-n", "3", "-T", steps, "--trace")
    ids = list(encode(prompt)) + got["tokens"]
    _, wanted = model.descend(np.array(ids), steps)
    assert [t["token"] for t in got["trace"]] == got["tokens"]
    for token in got["trace"]:
        i = token["position"]
        assert ids[i + 1] == token["token"] and token["text"] == ALPHABET[token["token"]]
        assert [s["t"] for s in token["steps"]] == list(range(steps + 1))
        for step, (attention, feed_forward, norm) in zip(token["steps"], wanted):
            energy = step["energy"]
            assert energy["attention"] == pytest.approx(attention[i], abs=1e-4 * max(1, abs(attention[i])))
            assert energy["feed_forward"] == pytest.approx(feed_forward[i], abs=1e-4 * max(1, abs(feed_forward[i])))
            if not step["final"]:
                assert step["update_norm"] == pytest.approx(norm[i], rel=1e-3)
        for now, then in zip(token["steps"], token["steps"][1:]):
            change = sum(then["energy"].values()) - sum(now["energy"].values())
            assert now["own_change"] + then["history_change"] == pytest.approx(change, abs=1e-3)
        assert token["steps"][-1]["final"] and token["steps"][-1]["update_norm"] is None


def test_trace_changes_no_text(descent, made):
    model = made["chars"].path
    plain = descent("run", model, "the", "-s", "3")
    traced = descent("run", model, "the", "-s", "3", "--trace")
    assert plain.out == traced.out and plain.err == "" and traced.err != ""


def test_trace_table_holds_the_numbers_of_the_json(descent, made):
    options = [made["chars"].path, "the", "-s", "3", "-n", "4", "--trace"]
    table, got = descent("run", *options).err.splitlines(), run_json(descent, *options)
    rows = [line.split() for line in table if line.strip()[:1].isdigit()]
    steps = [step for token in got["trace"] for step in token["steps"]]
    assert len(rows) == len(steps) == 4 * 4
    for row, step in zip(rows, steps):
        assert int(row[0]) == step["t"]
        assert float(row[1]) == pytest.approx(sum(step["energy"].values()), abs=1e-4)
        assert row[2:4] == [f"{e:.4f}" for e in step["energy"].values()]
        assert row[5] == ("-" if step["history_change"] is None else f"{step['history_change']:.4f}")
    assert sum("from position" in line for line in table) == 4


def test_trace_of_a_layered_model(descent, shipped):
    got = run_json(descent, shipped("cem-kjv"), "And God", "-n", "2", "-T", "3x2", "--trace")
    for token in got["trace"]:
        places = [(s["layer"], s["kind"], s["t"]) for s in token["steps"]]
        assert places == [(layer, kind, t) for layer in range(4) for kind, steps in (("attention", 3), ("mlp", 2))
                          for t in range(steps + 1)]


def test_page_types(descent, made):
    model = made["chars"].path
    for page_type in ("f16", "bf16", "q8"):
        assert len(descent("run", model, "the", "-s1", "--page-type", page_type, "-n", "8").out) == 8


def test_divergence_is_an_error(descent, made):
    for arguments in ([], ["--json"], ["--trace"]):
        result = descent("run", made["wild"].path, "abc", *arguments)
        assert result.code == 1 and result.out == b""
        assert result.err.startswith("descent: ") and "diverged at token" in result.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interruption_keeps_what_was_written(binary, shipped, number):
    options = [binary, "run", shipped("nrgpt-shakespeare"), "A", "-T", "500", "-s", "1"]
    started = subprocess.Popen(options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    first = started.stdout.read(1)
    started.send_signal(number)
    rest, err = started.communicate(timeout=60)
    assert started.returncode == 130 and err == b""
    done = subprocess.run(options + ["-n", str(len(first + rest))], capture_output=True, env=environment())
    assert done.stdout == first + rest and len(first + rest) < 127


def wait_for_handler(process, number, timeout=60):
    """Returns once the program catches the signal."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        caught = next(int(line.split()[1], 16) for line in lines if line.startswith("SigCgt:"))
        if caught >> (number - 1) & 1:
            return
    raise AssertionError("the signal is not caught")


def test_interrupted_json_is_whole(binary, shipped):
    """The object says that it is not all there is."""
    options = [binary, "run", shipped("nrgpt-shakespeare"), "A", "-T", "5000", "-s", "1", "--json"]
    started = subprocess.Popen(options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment())
    wait_for_handler(started, signal.SIGINT)
    started.send_signal(signal.SIGINT)
    out, _ = started.communicate(timeout=60)
    assert started.returncode == 130
    assert json.loads(out)["finish_reason"] == "interrupted"


def test_a_vocabulary_with_bytes(descent, made):
    """<s> is not text, and pieces after the prompt keep their spaces."""
    got = run_json(descent, made["bos"].path, "ab", "-n", "1", "--logit-bias", f"{SPM_VOCAB - 3}=1000")
    assert got["prompt_tokens"] == 2 and got["text"] == " a"
