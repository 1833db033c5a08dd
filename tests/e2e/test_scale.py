"""descent scale: its numbers against a float64 reference, eval's and a plain sum of log-likelihoods; a run that is broken off or
shared out gives the numbers of one run; pictures and tables hold the JSON's numbers; what is wrong is told."""
import csv
import fcntl
import json
import math
import re
import signal
import subprocess
import time
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from models import ALPHABET, CONTEXT, SPM_VOCAB, encode

SVG = "{http://www.w3.org/2000/svg}"
TIMES = ("seconds", "tokens_per_second", "joules")


def scale(descent, *arguments, **how):
    result = descent("scale", *arguments, "--json", **how)
    assert result.code == 0, result.err
    assert result.err == ""
    return json.loads(result.text)


def timeless(told):
    """What is the same whenever and in however many parts it is measured."""
    return {**told, "rows": [{k: v for k, v in row.items() if k not in TIMES} for row in told["rows"]]}


def random_text(length, seed=0):
    return "".join(np.random.default_rng(seed).choice(list(ALPHABET), length))


@pytest.fixture
def write(tmp_path):
    def write(name, content):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def lines_of(records):
    return "".join(json.dumps(r) + "\n" for r in records)


# ---- Numbers -----------------------------------------------------------------------------------------------------------


def log_softmax(logits):
    largest = logits.max(-1, keepdims=True)
    return logits - largest - np.log(np.exp(logits - largest).sum(-1, keepdims=True))


def windows(ids):
    for start in range(0, len(ids) - 1, CONTEXT):
        inputs = ids[start:min(start + CONTEXT, len(ids) - 1)]
        yield inputs, ids[start + 1:start + 1 + len(inputs)]


def reference(model, ids, steps):
    """Summed over a text's predictions: nats, hits, energy at x(T), and every r of the last step."""
    nats = hits = energy = 0
    r = []
    for inputs, targets in windows(ids):
        log_p = log_softmax(model.logits(inputs, steps))
        nats -= log_p[np.arange(len(inputs)), targets].sum()
        hits += (log_p.argmax(-1) == targets).sum()
        x, seen = model.descend(inputs, steps)
        energy += (seen[steps][0] + seen[steps][1]).sum()
        before, _ = model.descend(inputs, steps - 1)
        g, h = (model._normal(y) + model.norm_bias for y in (before, x))
        r += list(np.linalg.norm(h - g, axis=-1) / np.linalg.norm(g, axis=-1))
    return nats, hits, energy, np.array(r)


def test_rows_are_the_reference_s(descent, made, write):
    model, text = made["chars"], random_text(5 * CONTEXT + 3)
    n, threshold = len(text) - 1, 0.2
    told = scale(descent, model.path, "--text", write("text", text), "-T", "6,1,3,3", "--threshold", threshold)
    assert [row["steps"] for row in told["rows"]] == [1, 3, 6]
    assert (told["kind"], told["inputs"], told["done"], told["documents"], told["trained"]) == ("texts", 6, 6, 1, 3)
    for row in told["rows"]:
        nats, hits, energy, r = reference(model, encode(text), row["steps"])
        assert abs(r - threshold).min() > 1e-4  # so that rounding decides about nobody
        assert row["loss"] == pytest.approx(nats / n, rel=2e-5)
        assert row["perplexity"] == pytest.approx(math.exp(nats / n), rel=1e-4)
        assert row["bits_per_byte"] == pytest.approx(nats / n / math.log(2), rel=2e-5)
        assert row["accuracy"] == pytest.approx(hits / n, abs=1e-12)
        assert row["energy"] == pytest.approx(energy / n, rel=1e-4)
        assert row["relative_change"] == pytest.approx(r.mean(), rel=1e-4)
        assert row["converged"] == pytest.approx((r < threshold).mean(), abs=1e-12)
        assert (row["predictions"], row["bytes"], row["tokens"], row["token_steps"]) == (n, n, n, n * row["steps"])
        assert row["multiply_adds"] == sum(row["multiply_adds_by"].values()) > 0
        low, high = row["intervals"]["loss"]
        assert low < row["loss"] < high
        assert row["difference"]["loss"]["value"] == pytest.approx(row["loss"] - told["rows"][1]["loss"], abs=1e-12)
    assert 0 < told["rows"][1]["converged"] + told["rows"][2]["converged"]


@pytest.mark.parametrize("name, steps", [("nrgpt-shakespeare", "1,4,7"), ("cem-kjv", "1-2x1-2")])
def test_loss_and_steps_are_eval_s(descent, shipped, write, name, steps):
    file = write("text", "In the beginning God created the heaven and the earth.\n" * 8)
    told = scale(descent, shipped(name), "--text", file, "-T", steps)
    evaluated = json.loads(descent("eval", shipped(name), "--file", file, "-T", steps, "--json").text)["results"]
    assert len(told["rows"]) == len(evaluated) in (3, 4)
    for row, other in zip(told["rows"], evaluated):
        assert row["loss"] == pytest.approx(other["loss"], rel=1e-9)
        for key in ("predictions", "bytes", "token_steps"):
            assert row[key] == other[key]


def test_exact_match_is_eval_s(descent, shipped, data, write):
    """Lines with tabs, and the same questions as JSON."""
    lines = (data / "nrgpt-listops.eval.tsv").read_text().splitlines()[:70]  # more than are answered side by side
    tabs = write("questions.tsv", "\n".join(lines))
    pairs = [line.split("\t") for line in lines]
    objects = write("questions.jsonl", lines_of({"prompt": p.split("=")[0] + "=", "answer": a} for p, a in pairs))
    model, steps = shipped("nrgpt-listops"), "2,3,5"
    evaluated = json.loads(descent("eval", model, "--match", tabs, "-T", steps, "--json").text)["results"]
    told = scale(descent, model, "--records", tabs, "-T", steps)
    assert told["kind"] == "answers"
    for row, other in zip(told["rows"], evaluated, strict=True):
        assert (row["right"], row["items"], row["tokens"]) == (other["right"], other["items"], other["tokens"])
        assert row["accuracy"] == pytest.approx(other["exact_match"]) and row["token_steps"] == other["token_steps"]
        assert row["loss"] is None and row["energy"] < 0 and row["relative_change"] > 0
    assert 0 < told["rows"][0]["right"] < 70
    again = scale(descent, model, "--records", objects, "-T", steps)
    assert timeless(again)["rows"] == timeless(told)["rows"]
    assert json.loads(descent("eval", model, "--match", objects, "-T", steps, "--json").text)["results"] == evaluated


def choice_sums(model, prompt, whole, first, steps):
    """log p of the tokens from `first` on, in float64."""
    log_p = log_softmax(model.logits(np.array(whole[:-1]), steps))
    return sum(log_p[i - 1, whole[i]] for i in range(first, len(whole)))


def test_choices_are_weighed_by_their_likelihood(descent, made, write):
    """By the sum, and by the sum for each byte: both from the float64 reference; loss is the right choice's."""
    model, random = made["chars"], np.random.default_rng(4)
    questions = []
    for i in range(12):
        text = lambda n: "".join(random.choice(list(ALPHABET[:26]), n))
        questions.append({"prompt": text(random.integers(1, 8)), "choices": [text(random.integers(1, 8)) for _ in range(2 + i % 3)],
                          "answer": int(random.integers(2))})
    told = scale(descent, model.path, "--records", write("q.jsonl", lines_of(questions)), "-T", "1,4")
    assert told["kind"] == "choices"
    for row in told["rows"]:
        right = by_bytes = nats = predictions = tokens = 0
        for q in questions:
            prompt, answer = list(encode(q["prompt"])), q["answer"]
            sums = [choice_sums(model, prompt, prompt + list(encode(c)), len(prompt), row["steps"]) for c in q["choices"]]
            right += int(np.argmax(sums)) == answer
            by_bytes += int(np.argmax([s / len(c) for s, c in zip(sums, q["choices"])])) == answer
            nats -= sums[answer]
            predictions += len(q["choices"][answer])
            tokens += sum(len(prompt) + len(c) - 1 for c in q["choices"])
        assert (row["right"], row["items"], row["predictions"], row["tokens"]) == (right, 12, predictions, tokens)
        assert row["accuracy_by_bytes"] == pytest.approx(by_bytes / 12)
        assert row["loss"] == pytest.approx(nats / predictions, rel=2e-5)
        assert row["bytes"] == predictions
    assert [row["right"] for row in told["rows"]] != [round(12 * row["accuracy_by_bytes"]) for row in told["rows"]]


def test_a_token_of_both_prompt_and_choice(descent, made, write):
    """" a" and "b" are one token together: then the whole text behind <s> is weighed, of every choice."""
    model, piece = made["bos"], lambda k: SPM_VOCAB - k  # the vocabulary ends with ▁ a b c ab ▁a abc ▁ab
    record = {"prompt": "a", "choices": ["b", "c"], "answer": 0}
    (row,) = scale(descent, model.path, "--records", write("q.jsonl", lines_of([record])), "-T", "2")["rows"]
    joined = -choice_sums(model, None, [1, piece(1)], 1, 2)
    apart = -choice_sums(model, None, [1, piece(3), piece(5)], 1, 2)
    assert row["loss"] == pytest.approx(joined, rel=2e-5) and row["predictions"] == 1
    assert row["right"] == (joined < apart)
    (other,) = scale(descent, model.path, "--records", write("q.jsonl", lines_of([{**record, "answer": 1}])), "-T", "2")["rows"]
    assert other["loss"] == pytest.approx(apart / 2, rel=2e-5) and other["predictions"] == 2
    assert row["right"] + other["right"] == 1


def test_early_exit_and_step_scale_pass_through(descent, made, write):
    model, file = made["chars"].path, write("text", random_text(60))
    how = ["-T", "2,9", "--exit", "state:0.3"]
    told = scale(descent, model, "--text", file, *how)
    evaluated = json.loads(descent("eval", model, "--file", file, *how, "--json").text)["results"]
    assert [r["token_steps"] for r in told["rows"]] == [r["token_steps"] for r in evaluated]
    assert told["rows"][1]["token_steps"] < 9 * 59 and told["exit"] == "state:0.3"
    half = scale(descent, model, "--text", file, "-T", "2", "--step-scale", "0.5")["rows"][0]
    (other,) = json.loads(descent("eval", model, "--file", file, "-T2", "--step-scale", "0.5", "--json").text)["results"]
    assert half["loss"] == pytest.approx(other["loss"], rel=1e-9)
    assert half["loss"] != scale(descent, model, "--text", file, "-T", "2")["rows"][0]["loss"]


def test_depths_by_default(descent, made, shipped, write):
    """Powers of two up to four times the trained T, and that; without it among them there is no difference to it."""
    file = write("text", "abcabc")
    told = scale(descent, made["chars"].path, "--text", file)
    assert [row["steps"] for row in told["rows"]] == [1, 2, 3, 4, 8]
    assert told["rows"][2]["difference"]["loss"]["value"] == 0
    (row,) = scale(descent, made["chars"].path, "--text", file, "-T", "2")["rows"]
    assert row["difference"]["loss"]["value"] is None
    assert "the trained T, 3, is not among these" in descent("scale", made["chars"].path, "--text", file, "-T2").text


def test_documents_and_windows(descent, made, write):
    """Intervals draw texts where there are eight or more of them, their windows otherwise, or as asked."""
    texts = [random_text(CONTEXT + 5 + i, seed=i) for i in range(8)]
    model, listed = made["chars"].path, write("texts.jsonl", lines_of({"text": t, "id": i} for i, t in enumerate(texts)))
    files = [a for i, t in enumerate(texts[:3]) for a in ("--text", write(f"t{i}", t))]
    many = scale(descent, model, "--texts", listed, "-T", "2")
    assert (many["documents"], many["inputs"], many["units"], many["n_units"]) == (8, 16, "documents", 8)
    few = scale(descent, model, *files, "-T", "2")
    assert (few["documents"], few["inputs"], few["units"], few["n_units"], few["name"]) == (3, 6, "windows", 6, "3 files")
    asked = scale(descent, model, "--texts", listed, "-T", "2", "--resample", "windows")
    assert (asked["units"], asked["n_units"]) == ("windows", 16)
    assert asked["rows"][0]["loss"] == many["rows"][0]["loss"]
    assert asked["rows"][0]["intervals"]["loss"] != many["rows"][0]["intervals"]["loss"]
    nats = sum(made["chars"].loss(encode(t), 2) for t in texts)
    assert many["rows"][0]["loss"] == pytest.approx(nats / sum(len(t) - 1 for t in texts), rel=2e-5)


def test_what_diverges_is_counted(descent, made, write):
    told = scale(descent, made["wild"].path, "--text", write("text", random_text(40)), "-T", "1,2")
    row = told["rows"][1]
    assert row["diverged"] == row["inputs"] == 3 and row["loss"] is None and row["energy"] is None
    assert "inputs diverged" in descent("scale", made["wild"].path, "--text", write("text", "abcabc"), "-T", "2").text


# ---- Broken off, shared out -----------------------------------------------------------------------------------------------


def test_a_run_cut_anywhere_goes_on(descent, made, write, tmp_path):
    """The log cut at any byte is what a process killed there leaves; whole lines are taken, the rest is measured again."""
    model, file, log = made["chars"].path, write("text", random_text(200)), tmp_path / "log"
    how = ["--text", file, "-T", "1,4"]
    whole = scale(descent, model, *how)
    assert timeless(scale(descent, model, *how, "--resume", log)) == timeless(whole)
    content = log.read_bytes()
    head = content.index(b"\n") + 1
    cuts = [0, 1, head - 1, head, head + 5, len(content) - 1, len(content), *np.random.default_rng(0).integers(0, len(content), 6)]
    for cut in cuts:
        log.write_bytes(content[:cut])
        assert timeless(scale(descent, model, *how, "--resume", log)) == timeless(whole)
        assert log.read_bytes().startswith(content[:cut + 1][:max(head, content.rfind(b"\n", 0, cut) + 1)])
        assert sorted(json.loads(line)["input"] for line in log.read_text().splitlines()[1:]) == list(range(13))


def test_a_killed_run_goes_on(descent, binary, shipped, data, write, tmp_path):
    log, file = tmp_path / "log", write("text", (data / "nrgpt-shakespeare.val.txt").read_text()[:3000])
    how = [shipped("nrgpt-shakespeare"), "--text", file, "-T", "1,2", "--chunk", "128"]
    run = subprocess.Popen([binary, "scale", *map(str, how), "--resume", log], stdout=subprocess.DEVNULL)
    while not (log.exists() and log.read_bytes().count(b"\n") > 3) and run.poll() is None:
        time.sleep(0.002)
    run.send_signal(signal.SIGKILL)
    run.wait()
    kept = log.read_bytes()
    assert kept.count(b"\n") > 3
    told = scale(descent, *how, "--resume", log)
    assert log.read_bytes().startswith(kept[:kept.rindex(b"\n") + 1])
    assert timeless(told) == timeless(scale(descent, *how))


def test_shards_merge_to_the_same_bits(descent, made, shipped, data, write, tmp_path):
    texts = write("texts.jsonl", lines_of({"text": random_text(40 + 7 * i, seed=i)} for i in range(9)))
    questions = write("q.jsonl", lines_of({"prompt": random_text(5, i), "choices": ["ab", "cde", "f"], "answer": i % 3} for i in range(7)))
    answers = write("a.tsv", "\n".join((data / "nrgpt-listops.eval.tsv").read_text().splitlines()[:5]))
    for model, how in [(made["chars"].path, ["--texts", texts, "-T", "1,3,5"]), (made["chars"].path, ["--records", questions, "-T", "2,3"]),
                       (shipped("cem-kjv"), ["--texts", texts, "-T", "1x2,2"]), (shipped("nrgpt-listops"), ["--records", answers, "-T", "2,5"])]:
        whole = scale(descent, model, *how)
        parts = [tmp_path / f"part{i}" for i in (3, 1, 2)]
        for i, part in zip((3, 1, 2), parts):
            part.unlink(missing_ok=True)
            one = scale(descent, model, *how, "--shard", f"{i}/3", "--resume", part, "--threads", "1")
            assert 0 < one["done"] < one["inputs"] == whole["inputs"]
        assert timeless(scale(descent, "--merge", *parts)) == timeless(whole)


@pytest.fixture
def parts(descent, made, write, tmp_path):
    """Two shards of one run."""
    paths = [tmp_path / "one", tmp_path / "two"]
    for i, path in enumerate(paths):
        scale(descent, made["chars"].path, "--text", write("text", random_text(100)), "-T", "2", "--shard", f"{i + 1}/2", "--resume", path)
    return paths


def test_parts_that_make_no_whole(descent, parts, write, made, tmp_path):
    one, two = (path.read_text() for path in parts)
    other = tmp_path / "other"
    scale(descent, made["chars"].path, "--text", write("text", random_text(100)), "-T", "3", "--shard", "2/2", "--resume", other)
    head, line = two.splitlines()[:2]
    reading = json.loads(line)

    def changed(**how):
        return head + "\n" + json.dumps({**reading, **how}) + "\n"

    for files, words in [([parts[0]], ["3 of the experiment's 7 inputs", "the first is 1"]), ([*parts, parts[0]], ["one, line 2", "twice"]),
                         ([parts[0], other], ["other", "depths", '["3"]', '["2"]']), ([tmp_path / "none"], ["No such file"]),
                         ([write("x1", "no JSON\n")], ["no file of descent scale"]), ([write("x2", "")], ["no file of descent scale"]),
                         ([write("x3", '{"descent_scale": 1}\n')], ["line 1", "not the setup"]),
                         ([write("x4", head.replace('"inputs":7', '"inputs":99999999999') + "\n")], ["readings"]),
                         ([write("x5", head.replace('"depths":["2"]', '"depths":["2y"]') + "\n")], ["not the setup"]),
                         ([write("x14", head.replace('"descent_scale":1', '"descent_scale":2') + "\n")], ["not the setup", "of this version"]),
                         ([write("x6", head + "\n[1]\n")], ["line 2", "no line of this experiment"]), ([write("x7", head + "\n{\n")], ["line 2"]),
                         ([write("x8", changed(input=7))], ["line 2"]), ([write("x9", changed(input=-1))], ["line 2"]),
                         ([write("x10", changed(readings=[]))], ["line 2"]), ([write("x11", changed(readings=[[1]]))], ["a reading is not"]),
                         ([write("x12", changed(readings=[[-1] * len(reading["readings"][0])]))], ["a reading is not"]),
                         ([write("x13", changed(readings=[["a"] * len(reading["readings"][0])]))], ["a reading is not"])]:
        result = descent("scale", "--merge", *files)
        assert result.code == 1 and result.out == b"" and result.err.count("\n") == 1, result.err
        for word in words:
            assert word in result.err
    assert descent("scale", "--merge", *parts).code == 0


@pytest.mark.parametrize("how, words", [
    (["--threshold", "0.1"], ["threshold"]), (["-T", "2,3"], ["depths"]), (["--exit", "state"], ["exit"]), (["--step-scale", "0.5"], ["knobs", '"step-scale":"0.5"']), (["--momentum", "0.5"], ["knobs"]),
    (["--page-type", "f16"], ["page_type"]), (["--shard", "1/2"], ["shard", '"1/1"', '"1/2"'])])
def test_a_log_of_another_experiment(descent, made, write, tmp_path, how, words):
    model, file, log = made["chars"].path, write("text", random_text(40)), tmp_path / "log"
    scale(descent, model, "--text", file, "-T", "2", "--resume", log)
    before = log.read_bytes()
    result = descent("scale", model, "--text", file, "-T", "2", "--resume", log, *how)
    assert result.code == 1 and result.out == b"" and "of another experiment" in result.err
    for word in words:
        assert word in result.err
    assert log.read_bytes() == before


def test_a_log_of_other_data_or_another_model(descent, made, write, tmp_path):
    log, text = tmp_path / "log", random_text(40)
    scale(descent, made["chars"].path, "--text", write("text", text), "-T", "2", "--resume", log)
    for model, content, word in [(made["chars"].path, text[:-1] + ("a" if text[-1] != "a" else "b"), "data"), (made["bell"].path, text, "model")]:
        result = descent("scale", model, "--text", write("text", content), "-T", "2", "--resume", log)
        assert result.code == 1 and f"its {word} is" in result.err
    innocent = write("poem", "roses are red\n")
    result = descent("scale", made["chars"].path, "--text", write("text", text), "--resume", innocent)
    assert result.code == 1 and "no file of descent scale" in result.err and innocent.read_bytes() == b"roses are red\n"


def test_ctrl_c_keeps_what_is_done(descent, terminal, shipped, data, tmp_path):
    log, file = tmp_path / "log", data / "nrgpt-shakespeare.val.txt"
    how = ["scale", shipped("nrgpt-shakespeare"), "--text", file, "-T", "1,2", "--chunk", "128", "--resume", log]
    run = terminal(*how)
    run.expect(rb"scale \[[#.]+\] +\d+% .* left")
    while not (log.exists() and log.read_bytes().count(b"\n") > 2):
        run.expect(rb"left")
    run.interrupt()
    assert run.finish() == 130
    done = log.read_bytes().count(b"\n") - 1
    assert f"interrupted after {done} of ".encode() in run.seen and b"the same command goes on" in run.seen
    assert b"loss" in run.seen and f"{done} windows of ".encode() in run.seen


# ---- Showing -----------------------------------------------------------------------------------------------------------


def numbers_of(svg):
    """{what a point or cell stands for: its number} of the picture, from what it says when pointed at."""
    root = ElementTree.parse(svg).getroot()
    assert root.tag == SVG + "svg"
    found = {}
    for title in root.iter(SVG + "title"):
        if title.text and " = " in title.text:
            name, said = title.text.split(" = ")[1].split(": ")
            metric, value = said.split(",")[0].split(" ")[-2:]
            found[name, metric if "accuracy by" not in said else "accuracy_by_bytes"] = float(value)
    return root, found


def test_the_curve_holds_the_json_s_numbers(descent, made, write, tmp_path):
    told = scale(descent, made["chars"].path, "--text", write("a & <b>", random_text(90)), "-T", "1,2,3,6", "--svg", tmp_path / "svg",
                 "--trained-range", "2-4")
    root, found = numbers_of(tmp_path / "svg")
    wanted = {(str(row["steps"]), m): row[m] for row in told["rows"] for m in ("loss", "energy", "relative_change")}
    assert found == wanted
    text = " ".join(t.text or "" for t in root.iter(SVG + "text"))
    for words in ("chars on a & <b>", "loss (nats per token)", "recursion depth T (steps, log scale)", "energy per token", "r_t", "trained T = 3",
                  "trained over 2 to 4", "95% intervals by resampling 6 windows"):
        assert words in text
    assert "prefers-color-scheme: dark" in root.find(SVG + "style").text
    x = {c.find(SVG + "title").text.split(":")[0]: float(c.get("cx")) for c in root.iter(SVG + "circle")}
    assert x["T = 2"] - x["T = 1"] == pytest.approx(x["T = 6"] - x["T = 3"], abs=0.02)  # a log axis


def test_the_map_of_a_grid(descent, shipped, write, tmp_path):
    told = scale(descent, shipped("cem-kjv"), "--text", write("text", "In the beginning God created the heaven. " * 9), "-T", "1-3x1-2",
                 "--svg", tmp_path / "svg", "--title", "A grid <of> two")
    root, found = numbers_of(tmp_path / "svg")
    assert len(told["rows"]) == 6 and found == {(str(row["steps"]), "loss"): row["loss"] for row in told["rows"]}
    text = " ".join(t.text or "" for t in root.iter(SVG + "text"))
    for words in ("A grid <of> two", "T of attention (steps)", "T of the MLP (steps)", "trained", f"{told['rows'][0]['loss']:.4f}"):
        assert words in text


def test_pictures_of_answers_and_of_one_depth(descent, made, shipped, data, write, tmp_path):
    questions = write("q.jsonl", lines_of({"prompt": "ab", "choices": ["c", "de"], "answer": i % 2} for i in range(4)))
    told = scale(descent, made["chars"].path, "--records", questions, "-T", "1,2", "--svg", tmp_path / "svg")
    root, found = numbers_of(tmp_path / "svg")
    assert found["1", "accuracy"] == told["rows"][0]["accuracy"] and found["2", "accuracy_by_bytes"] == told["rows"][1]["accuracy_by_bytes"]
    answers = write("a.tsv", "\n".join((data / "nrgpt-listops.eval.tsv").read_text().splitlines()[:3]))
    told = scale(descent, shipped("nrgpt-listops"), "--records", answers, "-T", "5", "--svg", tmp_path / "svg")
    assert numbers_of(tmp_path / "svg")[1]["5", "accuracy"] == told["rows"][0]["accuracy"]
    assert scale(descent, made["wild"].path, "--text", write("text", "abcabc"), "-T", "2", "--svg", tmp_path / "svg")["rows"][0]["loss"] is None
    assert numbers_of(tmp_path / "svg")[1] == {}


def test_csv_and_table_hold_the_json_s_numbers(descent, made, write, tmp_path):
    how = [made["chars"].path, "--text", write("text", random_text(90)), "-T", "1,3"]
    told = scale(descent, *how, "--csv", tmp_path / "csv")
    with open(tmp_path / "csv", newline="") as file:
        rows = list(csv.DictReader(file))
    for row, json_row in zip(rows, told["rows"], strict=True):
        for key in ("steps", "loss", "perplexity", "accuracy", "energy", "converged", "token_steps", "multiply_adds", "seconds"):
            assert float(row[key]) == json_row[key]
        assert [float(row["loss_low"]), float(row["loss_high"])] == json_row["intervals"]["loss"]
        assert float(row["loss_difference_low"]) == json_row["difference"]["loss"]["low"]
        assert row["joules"] == "" if json_row["joules"] is None else float(row["joules"]) > 0
    table = descent("scale", *how).text.splitlines()
    assert table[0].split()[:4] == ["T", "loss", "95%", "interval"] and len(table) == 4
    assert table[1].split()[1] == f"{told['rows'][0]['loss']:.4f}" and "trained T 3" in table[3]


def test_a_table_on_a_terminal_has_bars(terminal, made, write):
    run = terminal("scale", made["chars"].path, "--text", write("text", random_text(50)), "-T", "1,3")
    assert run.finish() == 0
    shown = re.sub(r"\x1b\[\d*m", "", run.seen.decode().split("\x1b[K")[-1]).splitlines()
    assert [line for line in shown if "█" * 10 in line] == [shown[2]] and len(shown) == 8  # two blocks of columns, a note
    assert all(len(line) <= 100 for line in shown[:-1]) and shown[5].split()[0] == "1"


def test_names_cannot_drive_a_terminal(descent, made, write, tmp_path):
    file = write(b"x\x1b[31mred\xff".decode(errors="surrogateescape"), random_text(30))
    result = descent("scale", made["bell"].path, "--text", file, "-T", "2", "--svg", tmp_path / "svg")
    assert result.code == 0 and b"\x1b" not in result.out and b"\x1b" not in (tmp_path / "svg").read_bytes()


# ---- What is wrong -------------------------------------------------------------------------------------------------------


def test_mistakes(descent, made, write, tmp_path):
    model, file = made["chars"].path, write("text", "abc")
    for arguments, word in [([model], "--text"), ([model, "--text", file, "--records", file], "either"), ([model, "x", "--text", file], "one model"),
                            ([model, "--text", file, "-T", "0"], '"0"'), ([model, "--text", file, "-T", "1-2000"], "1024"),
                            ([model, "--text", file, "--shard", "1/2"], "--resume"),
                            ([model, "--text", file, "--resume", tmp_path / "r", "--shard", "3/2"], "3/2"),
                            ([model, "--text", file, "--resume", tmp_path / "r", "--shard", "0/2"], "0/2"),
                            ([model, "--text", file, "--resamples", "100000", "-T", "1-200"], "95869"),
                            ([model, "--text", file, "--trained-range", "5-2"], "5-2"), ([model, "--text", file, "--threshold", "-1"], "threshold"),
                            ([model, "--text", file, "--resamples", "0"], "resamples"), (["--merge", file, "--text", file], "--merge"),
                            ([model, "--text", file, "--exit", "soon"], "--exit"), ([], "MODEL")]:
        result = descent("scale", *arguments)
        assert result.code == 2 and result.out == b"" and word in result.err, (arguments, result.err)
    assert not (tmp_path / "r").exists()


@pytest.mark.parametrize("option, name, content, words", [
    ("--text", "t", "", ["t:", "no token"]), ("--text", "t", "a", ["only one token"]), ("--text", "t", "ab\x00", ["byte 2"]),
    ("--texts", "t.jsonl", "", ["no line with a text"]), ("--texts", "t.jsonl", '{"text": "abc"}\n\n{"text": "a"}\n', ["line 3", "only one token"]),
    ("--texts", "t.jsonl", '{"text": "abc"}\n{"text": 5}\n', ["line 2", '"text"']), ("--texts", "t.jsonl", "abc\n", ["line 1", "no JSON"]),
    ("--texts", "t.jsonl", '["abc"]\n', ["line 1", '"text"']), ("--records", "q.jsonl", "\n", ["no line"]),
    ("--records", "q.tsv", "ab\n", ["q.tsv, line 1", "tab"]), ("--records", "q.jsonl", "[1]\n", ["line 1", "an object"]),
    ("--records", "q.jsonl", '{"prompt": "a"}\n', ["line 1", "answer must be a text"]),
    ("--records", "q.jsonl", '{"prompt": 1, "answer": "a"}\n', ["prompt must be a text, got 1"]),
    ("--records", "q.jsonl", '{"prompt": "a", "choices": ["b"], "answer": 0}\n', ["2 to 256"]),
    ("--records", "q.jsonl", '{"prompt": "a", "choices": "bc", "answer": 0}\n', ["a list of texts"]),
    ("--records", "q.jsonl", '{"prompt": "a", "choices": ["b", 2], "answer": 0}\n', ["choice 1 must be a text, got 2"]),
    ("--records", "q.jsonl", '{"prompt": "a", "choices": ["b", ""], "answer": 0}\n', ["choice 1 is empty"]),
    ("--records", "q.jsonl", '{"prompt": "a", "choices": ["b", "c"], "answer": 2}\n', ["0 to 1, got 2"]),
    ("--records", "q.jsonl", '{"prompt": "a", "choices": ["b", "c"], "answer": "b"}\n', ["index"]),
    ("--records", "q.jsonl", '{"prompt": "", "choices": ["b", "c"], "answer": 0}\n', ["0 tokens"]),
    ("--records", "q.jsonl", '{"prompt": "a", "choices": ["b", "cccccccccccccccccc"], "answer": 0}\n', ["choice 1", "19 tokens", "17"]),
    ("--records", "q.jsonl", '{"prompt": "a", "choices": ["b", "c"], "answer": 0}\n{"prompt": "a", "answer": "b"}\n', ["line 2", "one kind"]),
    ("--records", "q.tsv", "a\tb\n", ["end-of-text"])])
def test_data_that_cannot_be_measured(descent, made, write, option, name, content, words):
    result = descent("scale", made["chars"].path, option, write(name, content))
    assert result.code == 1 and result.out == b"" and result.err.count("\n") == 1, result.err
    for word in words:
        assert word in result.err


def test_a_model_without_tokenizer_says_so(descent, made, write):
    for option in ("--text", "--records"):
        result = descent("scale", made["bare"].path, option, write("text", "abc\tx"))
        assert result.code == 1 and "no tokenizer" in result.err


def test_files_that_cannot_be_written(descent, made, write, tmp_path):
    for option in ("--csv", "--svg", "--resume"):
        result = descent("scale", made["chars"].path, "--text", write("text", "abc"), option, tmp_path / "no" / "such")
        assert result.code == 1 and "No such file" in result.err
        assert ("loss" in result.text) == (option != "--resume"), "what was measured is shown all the same"


def test_a_log_has_one_writer(descent, made, write, tmp_path):
    log = tmp_path / "log"
    with open(log, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        result = descent("scale", made["chars"].path, "--text", write("text", "abc"), "--resume", log)
    assert result.code == 1 and "another process" in result.err


def test_eval_leaves_choices_to_scale(descent, made, write):
    record = {"prompt": "a", "choices": ["b", "c"], "answer": 0}
    result = descent("eval", made["chars"].path, "--match", write("q.jsonl", lines_of([record])))
    assert result.code == 1 and "descent scale" in result.err
