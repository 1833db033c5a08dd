"""/v1/descent/scaling: measures against `descent eval`, completions, traces and plain resampling; what runs beside an experiment,
and what becomes of one whose client leaves, whose time is over or whose server ends."""
import http.client
import json
import math
import subprocess
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import numpy as np
import pytest
from conftest import end, events, generate, open_stream, request
from serving import BINARY, ROOT, Server

PATH = "/v1/descent/scaling"
SHAKESPEARE = (ROOT / "models" / "data" / "nrgpt-shakespeare.val.txt").read_text()
KJV = (ROOT / "models" / "data" / "cem-kjv.val.txt").read_text()
LISTOPS = [line.split("\t") for line in (ROOT / "models" / "data" / "nrgpt-listops.eval.tsv").read_text().splitlines()]
QUESTIONS = [{"prompt": line[:line.index("=") + 1], "answer": answer} for line, answer in LISTOPS]
CHOICES = [{"prompt": "ROMEO:\nI ", "choices": ["am", "zqx", "have"], "answer": 2},
           {"prompt": "To be or not to ", "choices": ["be, my lord", "xx"], "answer": 0},
           {"prompt": "First Citizen:\nWe are ", "choices": ["a", "accounted poor citizens, the patricians good."], "answer": 1}]
METRICS = ["loss", "perplexity", "bits_per_byte", "accuracy", "energy", "relative_change", "converged"]


@pytest.fixture(scope="module")
def short(tmp_path_factory):
    """A model of little context, so that little text has windows."""
    path = tmp_path_factory.mktemp("models") / "short.gguf"
    generate(["nrgpt", str(path), "--vocab", "320", "--context", "16", "--steps", "4", "--seed", "5"])
    return path


@pytest.fixture(scope="module")
def server(shipped, made, short):
    files = [short, *(shipped(name) for name in ("nrgpt-shakespeare", "cem-kjv", "nrgpt-listops"))]
    server = Server([*files, *(made[name] for name in ("slow", "mute", "broken"))], "--drain-delay", "0", "--drain", "5")
    yield server
    end(server)


def measure(server, model, **fields):
    answer = server.json(PATH, {"model": model, **fields})
    assert answer["object"] == "descent.scaling" and answer["progress"]["done"] == answer["progress"]["total"]
    return answer


def rows(server, model, **fields):
    return measure(server, model, **fields)["rows"]


def evaluated(path, text, steps, tmp_path, *flags):
    """What `descent eval` says of a text at each depth."""
    (tmp_path / "text").write_text(text)
    command = [BINARY, "eval", path, "--file", tmp_path / "text", "--steps", steps, "--json", *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["results"]


def spell(steps):
    """A depth as "3x2", or "4" where both T agree or there is one."""
    if isinstance(steps, dict):
        steps = "x".join(str(steps[kind]) for kind in ("attention", "mlp"))
    first, *rest = str(steps).split("x")
    return first if rest in ([], [first]) else str(steps)


# ---- Texts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model, text, steps, spelled", [
    ("nrgpt-shakespeare", SHAKESPEARE[:300], [1, 4, 6], "1,4,6"),
    ("cem-kjv", KJV[:450], ["1x1", {"attention": 3}, 2], "1x1,3x2,2x2")])
def test_the_loss_of_a_text_is_eval_s(server, shipped, tmp_path, model, text, steps, spelled):
    got = rows(server, model, texts=[text], steps=steps)
    expected = evaluated(shipped(model), text, spelled, tmp_path)
    assert len(got) == len(expected) == 3
    for row, said in zip(got, expected):
        assert spell(row["steps"]) == spell(said["steps"])
        assert row["loss"] == pytest.approx(said["loss"], rel=1e-8) and row["perplexity"] == pytest.approx(said["perplexity"], rel=1e-8)
        assert row["bits_per_byte"] == pytest.approx(said["bits_per_byte"], rel=1e-8)
        assert row["predictions"] == said["predictions"] and row["token_steps"] == said["token_steps"]


def test_with_an_exit_too(server, shipped, tmp_path):
    text, exit = SHAKESPEARE[2000:2120], {"criterion": "state", "threshold": 0.3}
    got = rows(server, "nrgpt-shakespeare", texts=[text], steps=[4, 12], descent={"exit": exit})
    expected = evaluated(shipped("nrgpt-shakespeare"), text, "4,12", tmp_path, "--exit", "state:0.3")
    for row, said in zip(got, expected):
        assert row["loss"] == pytest.approx(said["loss"], rel=1e-8) and row["token_steps"] == said["token_steps"] < row["tokens"] * row["steps"]
    assert rows(server, "nrgpt-shakespeare", texts=[text], steps=[4], descent={"step_scale": 0.5})[0]["loss"] != got[0]["loss"]


def test_a_solver_is_eval_s_too(server, shipped, tmp_path):
    solver = {"method": "anderson", "nstep": 4, "residual": 0.01}
    text = SHAKESPEARE[:120]
    [row] = rows(server, "nrgpt-shakespeare", texts=[text], steps=[12], descent={"solver": solver})
    [result] = evaluated(shipped("nrgpt-shakespeare"), text, "12", tmp_path, "--solver", "anderson:4:0.01")
    assert row["loss"] == pytest.approx(result["loss"], rel=1e-6)
    [plain] = rows(server, "nrgpt-shakespeare", texts=[text], steps=[12])
    assert abs(row["loss"] - plain["loss"]) > 0.01, "plain steps lead elsewhere"


def test_answers_are_solved_for_at_each_depth(server):
    solved = rows(server, "nrgpt-listops", records=QUESTIONS[:20], steps=[3, 5], descent={"solver": {"method": "anderson", "residual": 1000}})
    assert [row["token_steps"] for row in solved] == [row["tokens"] for row in solved], "one step each is enough for that residual"


def test_one_pass_where_the_model_deepens(server):
    text = SHAKESPEARE[:100]
    answer = measure(server, "nrgpt-shakespeare", texts=[text], steps=[2, 6, 3])
    assert [row["steps"] for row in answer["rows"]] == [2, 6, 3]
    assert answer["usage"]["descent_steps"] == 6 * (len(text) - 1)
    assert [row["token_steps"] for row in answer["rows"]] == [steps * (len(text) - 1) for steps in (2, 6, 3)]
    layered = measure(server, "cem-kjv", texts=[KJV[:300]], steps=[1, 2])
    assert layered["usage"]["descent_steps"] == sum(row["token_steps"] for row in layered["rows"])


def test_energy_r_and_accuracy_are_the_traces(server):
    text, T, threshold = SHAKESPEARE[300:340], 5, 0.12
    [row] = rows(server, "nrgpt-shakespeare", texts=[text], steps=[T], threshold=threshold)
    [traced] = server.json("/v1/descent/trace", {"model": "nrgpt-shakespeare", "prompt": text, "descent": {"steps": T}, "top": 1})["traces"]
    predicting = [token["trace"] for token in traced["tokens"][:-1]]
    energies = [sum(term[-1] for term in token["descents"][0]["energy"].values()) for token in predicting]
    changes = np.array([token["descents"][0]["r"][-1] for token in predicting])
    assert row["energy"] == pytest.approx(np.mean(energies), rel=1e-5) and row["relative_change"] == pytest.approx(changes.mean(), rel=1e-5)
    assert 0 < row["converged"] < 1 and row["converged"] == pytest.approx(np.mean(changes < threshold))
    logprobs = [token["logprob"] for token in traced["tokens"][1:]]
    assert row["loss"] == pytest.approx(-np.mean(logprobs), rel=1e-6)
    likeliest = [token["guesses"][0]["token"] for token in predicting]
    assert row["right"] == sum(a == b["token"] for a, b in zip(likeliest, traced["tokens"][1:])) and row["items"] == len(text) - 1


def test_layers_add_up_their_energies(server):
    text, steps = KJV[100:180], {"attention": 2, "mlp": 3}
    [row] = rows(server, "cem-kjv", texts=[text], steps=[steps])
    [traced] = server.json("/v1/descent/trace", {"model": "cem-kjv", "prompt": text, "descent": {"steps": steps}})["traces"]
    predicting = [token["trace"]["descents"] for token in traced["tokens"][:-1]]
    energies = [sum(term[-1] for descent in token for term in descent["energy"].values()) for token in predicting]
    changes = [max(descent["r"][-1] for descent in token) for token in predicting]
    assert row["energy"] == pytest.approx(np.mean(energies), rel=1e-5) and row["relative_change"] == pytest.approx(np.mean(changes), rel=1e-5)


def test_tokens_may_be_given(server):
    text = "ROMEO:\nBut soft"
    tokens = server.json("/tokenize", {"model": "nrgpt-shakespeare", "prompt": text})["tokens"]
    for a, b in zip(rows(server, "nrgpt-shakespeare", texts=[text], steps=[1, 4]), rows(server, "nrgpt-shakespeare", texts=[tokens], steps=[1, 4])):
        assert {name: a[name] for name in METRICS} == {name: b[name] for name in METRICS}
    [row] = rows(server, "mute", texts=[[1, 2, 3, 4]], steps=[2])
    assert row["predictions"] == 3 and row["bytes"] == 0 and row["bits_per_byte"] is None and row["loss"] > 0


def test_depths(server):
    text = KJV[:60]
    assert [row["steps"] for row in rows(server, "cem-kjv", texts=[text])] == [{"attention": 2, "mlp": 2}]
    assert [row["steps"] for row in rows(server, "cem-kjv@3x1", texts=[text])] == [{"attention": 3, "mlp": 1}]
    grid = rows(server, "cem-kjv", texts=[text], steps={"attention": [1, 3], "mlp": [2, 1]})
    assert [(row["steps"]["attention"], row["steps"]["mlp"]) for row in grid] == [(1, 2), (1, 1), (3, 2), (3, 1)]
    side = rows(server, "cem-kjv", texts=[text], steps={"mlp": [1, 2]})
    assert [row["steps"] for row in side] == [{"attention": 2, "mlp": 1}, {"attention": 2, "mlp": 2}]


def test_a_text_that_diverges_is_counted(server):
    [row] = rows(server, "broken", texts=["the cat", "a zoo of cats"], steps=[2])
    assert (row["inputs"], row["diverged"], row["loss"]) == (2, 1, None)
    assert rows(server, "broken", texts=["the cat"], steps=[2])[0]["loss"] > 0


@pytest.mark.parametrize("model, flag, data, fields", [
    ("nrgpt-shakespeare", "--text", SHAKESPEARE[:300], {"texts": [SHAKESPEARE[:300]], "steps": [2, 4]}),
    ("cem-kjv", "--texts", "".join(json.dumps({"text": KJV[i * 90:i * 90 + 60]}) + "\n" for i in range(9)),
     {"texts": [KJV[i * 90:i * 90 + 60] for i in range(9)], "steps": ["1x1", "2x2"]}),
    ("nrgpt-listops", "--records", "".join("\t".join(line) + "\n" for line in LISTOPS[:7]), {"records": QUESTIONS[:7], "steps": [3, 5]}),
    ("nrgpt-shakespeare", "--records", "".join(json.dumps(record) + "\n" for record in CHOICES), {"records": CHOICES, "steps": [2, 4]})],
    ids=["text", "texts", "answers", "choices"])
def test_rows_are_descent_scale_s(server, shipped, tmp_path, model, flag, data, fields):
    file = tmp_path / ("data.tsv" if "\t" in data.split("\n")[0] else "data.jsonl")
    file.write_text(data)
    steps = ",".join(map(str, fields["steps"]))
    command = [BINARY, "scale", shipped(model), flag, file, "--steps", steps, "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    took = {"seconds", "tokens_per_second", "joules"}
    got = rows(server, model, **fields)
    assert len(got) == len(said["rows"]) == 2
    for row, other in zip(got, said["rows"]):
        assert spell(row.pop("steps")) == spell(other.pop("steps"))
        assert {name: close(value) for name, value in other.items() if name not in took} == {
            name: value for name, value in row.items() if name not in took}


def close(value):
    """As it is in an answer, whose numbers have nine digits."""
    if isinstance(value, dict):
        return {name: close(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [close(inner) for inner in value]
    return pytest.approx(value, rel=1e-7, abs=1e-12) if isinstance(value, float) else value


# ---- Intervals -------------------------------------------------------------------------------------------------------------


def resampled(values, weights, seed=7, n=20000):
    """Percentiles of ratios of sums over plain resamples of units: values, weights [units, ...]."""
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(values), (n, len(values)))
    return values[drawn].sum(axis=1) / weights[drawn].sum(axis=1)


@pytest.mark.parametrize("as_documents", [True, False])
def test_intervals_are_those_of_plain_resampling(server, as_documents):
    """Units are documents, or one document's windows; differences are of the same units at both depths."""
    context, n = 16, 12
    tokens = server.json("/tokenize", {"model": "short", "prompt": SHAKESPEARE[:1000]})["tokens"][:n * context + 1]
    windows = [tokens[i * context:(i + 1) * context + 1] for i in range(n)]
    alone = [rows(server, "short", texts=[window], steps=[3, 4]) for window in windows]
    nats = np.array([[row["loss"] * row["predictions"] for row in each] for each in alone])
    weights = np.full(n, float(context))
    texts = windows if as_documents else [tokens]
    first, second = rows(server, "short", texts=texts, steps=[3, 4], intervals={"resamples": 20000, "seed": 3})
    for column, row in enumerate((first, second)):
        assert row["loss"] == pytest.approx(nats[:, column].sum() / weights.sum(), rel=1e-7)
        low, high = np.quantile(resampled(nats[:, column], weights), [0.025, 0.975])
        assert row["intervals"]["loss"] == pytest.approx([low, high], abs=0.04 * (high - low))
        assert row["intervals"]["perplexity"] == pytest.approx(np.exp(row["intervals"]["loss"]), rel=1e-6)
    difference = first["difference"]["loss"]
    low, high = np.quantile(resampled(nats[:, 0] - nats[:, 1], weights), [0.025, 0.975])
    assert difference["value"] == pytest.approx(first["loss"] - second["loss"], abs=2e-8)
    assert [difference["low"], difference["high"]] == pytest.approx([low, high], abs=0.04 * (high - low))
    alone = np.quantile(resampled(nats[:, 0], weights, 8) - resampled(nats[:, 1], weights, 9), [0.025, 0.975])
    assert difference["high"] - difference["low"] < 0.5 * (alone[1] - alone[0]), "not what unpaired resamples give"
    assert second["difference"]["loss"] == {"value": 0, "low": 0, "high": 0}


def test_what_is_resampled(server):
    """Two texts of a window each and one of two, of tokens: four windows, three documents."""
    texts = [[40, 41, 42, 43], [50, 60, 70], list(range(80, 110))]

    def ask(**intervals):
        answer = measure(server, "short", texts=texts, steps=[2], intervals={"resamples": 300, **intervals})
        return answer["descent"]["units"], answer["rows"][0]["intervals"]["loss"]

    assert ask() == ask(units="windows") and ask()[0] == "windows"
    assert ask(units="documents")[0] == "documents" and ask(units="documents")[1] != ask()[1]
    eight = measure(server, "short", texts=texts[:1] * 8, steps=[2])
    assert eight["descent"]["units"] == "documents" and len(set(eight["rows"][0]["intervals"]["loss"])) == 1
    assert measure(server, "nrgpt-shakespeare", records=CHOICES)["descent"]["units"] == "records"


def test_seed_level_and_reference(server):
    texts = [SHAKESPEARE[i * 100:i * 100 + 12] for i in range(8)]

    def ask(steps=(1, 4), **intervals):
        answer = measure(server, "short", texts=texts, steps=list(steps), intervals=intervals)
        return answer, answer["rows"][0]["intervals"]["loss"]

    assert ask(seed=1)[1] == ask(seed=1)[1] != ask(seed=2)[1]
    narrow, wide = ask(level=0.5)[1], ask(level=0.99)[1]
    assert wide[0] < narrow[0] < narrow[1] < wide[1]
    assert ask()[0]["descent"] == {"reference": 4, "threshold": 0.03, "resamples": 1000, "level": 0.95, "seed": 0,
                                  "units": "documents"}
    answer, interval = ask(steps=(1, 3))
    assert answer["descent"]["reference"] is None and None not in interval
    assert set(answer["rows"][0]["difference"]["loss"].values()) == {None}
    [row] = rows(server, "short", texts=texts[:1], steps=[4])
    assert row["intervals"]["loss"] == [None, None], "one unit has no interval"


# ---- Records ---------------------------------------------------------------------------------------------------------------


def test_answers_are_exact_matches(server):
    """Right where a greedy completion of at most 60 tokens ends, and its last token before the end is the answer."""
    questions, steps = QUESTIONS[:24], [1, 3, 5, 11]
    got = rows(server, "nrgpt-listops", records=questions, steps=steps)

    def ask(T, question):
        [choice] = server.json("/v1/completions", {"model": "nrgpt-listops", "prompt": question["prompt"], "max_tokens": 60,
                                                   "temperature": 0, "logprobs": 0, "descent": {"steps": T}})["choices"]
        tokens = choice["logprobs"]["tokens"]
        return choice["finish_reason"] == "stop" and tokens[-2].strip(",") == question["answer"], len(tokens)

    for T, row in zip(steps, got):
        with ThreadPoolExecutor(8) as pool:
            found = list(pool.map(lambda question: ask(T, question), questions))
        assert (row["steps"], row["items"], row["right"]) == (T, 24, sum(right for right, _ in found))
        prompts = sum(len(server.json("/tokenize", {"model": "nrgpt-listops", "prompt": q["prompt"]})["tokens"]) for q in questions)
        assert row["tokens"] == prompts + sum(count - 1 for _, count in found) and row["token_steps"] == T * row["tokens"]
        assert row["loss"] is None and row["bits_per_byte"] is None, "of its own greedy text it is nobody's"
        assert row["predictions"] == sum(count for _, count in found)
    rights = np.array([row["right"] for row in got])
    assert got[2]["accuracy"] > 0.9 > 0.5 > got[0]["accuracy"] and len(set(rights)) > 2
    low, high = got[1]["intervals"]["accuracy"]
    assert low <= got[1]["accuracy"] <= high and got[0]["difference"]["accuracy"]["high"] < 0


def test_energies_of_answers_are_of_prompt_and_answer(server):
    question, T = QUESTIONS[3], 5
    [row] = rows(server, "nrgpt-listops", records=[question], steps=[T])
    [traced] = server.json("/v1/descent/trace", {"model": "nrgpt-listops", "prompt": question["prompt"], "max_tokens": 60,
                                                 "temperature": 0, "descent": {"steps": T}})["traces"]
    prompt = len(server.json("/tokenize", {"model": "nrgpt-listops", "prompt": question["prompt"]})["tokens"])
    predicting = [token["trace"]["descents"][0] for token in traced["tokens"][prompt - 1:-1]]
    energies = [sum(term[-1] for term in descent["energy"].values()) for descent in predicting]
    assert row["predictions"] == len(predicting) and row["energy"] == pytest.approx(np.mean(energies), rel=1e-5)
    assert row["relative_change"] == pytest.approx(np.mean([descent["r"][-1] for descent in predicting]), rel=1e-4)


def test_steps_of_answers_that_stop_early_are_those_made(server):
    exit = {"criterion": "state", "threshold": 0.3}
    [row] = rows(server, "nrgpt-listops", records=QUESTIONS[:6], steps=[12], descent={"exit": exit})
    [full] = rows(server, "nrgpt-listops", records=QUESTIONS[:6], steps=[12])
    assert row["token_steps"] < 0.7 * full["token_steps"]
    again = rows(server, "nrgpt-listops", records=QUESTIONS[:6], steps=[12], descent={"exit": exit})
    assert again[0]["token_steps"] == row["token_steps"], "pages of the first are not taken for steps of the second"


@pytest.mark.parametrize("model, steps, criterion, readings, energies", [
    ("nrgpt-shakespeare", [3, 6], "kl", 2, 0), ("nrgpt-shakespeare", [3, 6], "entropy", 1, 0), ("cem-kjv", [2], "energy", 0, 1)])
def test_what_exits_ask_for_is_used_too(server, model, steps, criterion, readings, energies):
    """At a threshold that stops nobody each step of each token asks; an NRGPT's sweep is one pass."""
    exit = {"criterion": criterion, "threshold": 0}
    usage = measure(server, model, texts=[SHAKESPEARE[:90]], steps=steps, descent={"exit": exit})["usage"]
    assert usage.get("descent_readings", 0) == readings * usage["descent_steps"]
    assert usage.get("descent_energies", 0) == energies * usage["descent_steps"]


def test_what_the_exits_of_answers_ask_for_is_used_too(server):
    """A question is answered, and then measured with its answer: of both."""
    exit = {"criterion": "kl", "threshold": 0}
    usage = measure(server, "nrgpt-listops", records=QUESTIONS[:3], steps=[4], descent={"exit": exit})["usage"]
    assert usage["descent_readings"] == 2 * usage["descent_steps"] and "descent_energies" not in usage
    assert "descent_readings" not in measure(server, "nrgpt-listops", records=QUESTIONS[:1], steps=[4])["usage"]


def test_choices_are_by_likelihood(server):
    [row] = rows(server, "nrgpt-shakespeare", records=CHOICES, steps=[4])
    right = by_bytes = 0
    nats = predictions = 0
    for record in CHOICES:
        sums = []
        for choice in record["choices"]:
            [said] = server.json("/v1/completions", {"model": "nrgpt-shakespeare", "prompt": record["prompt"] + choice, "max_tokens": 0,
                                                     "echo": True, "logprobs": 0, "descent": {"steps": 4}})["choices"]
            sums.append(sum(said["logprobs"]["token_logprobs"][len(record["prompt"]):]))
        each = [total / len(choice) for total, choice in zip(sums, record["choices"])]
        right += int(np.argmax(sums)) == record["answer"]
        by_bytes += int(np.argmax(each)) == record["answer"]
        nats -= sums[record["answer"]]
        predictions += len(record["choices"][record["answer"]])
    assert (row["right"], row["items"], row["predictions"]) == (right, 3, predictions)
    assert row["accuracy"] == pytest.approx(right / 3) and row["accuracy_by_bytes"] == pytest.approx(by_bytes / 3)
    assert right != by_bytes, "the two are to be told apart"
    assert row["loss"] == pytest.approx(nats / predictions, rel=1e-6)


# ---- What is beside it -------------------------------------------------------------------------------------------------------


LONG = {"model": "slow", "texts": ["the quick"] * 5000, "steps": [200]}  # minutes of work, in small pieces
HEAVY = {"model": "slow", "texts": ["the quick brown fox " * 150], "steps": [200]}  # and in one


def read_event(stream):
    while True:
        line = stream.readline()
        assert line, "the stream ended"
        if line.startswith(b"data: "):
            return json.loads(line[6:])


def broken_off(stream):
    """What is left to read of a stream that ends without its end."""
    with pytest.raises(http.client.IncompleteRead) as broken:
        stream.read()
    return broken.value.partial


def leave(server, connection, stream):
    stream.close()
    connection.close()
    server.idle()


def test_interactive_requests_come_first_and_who_leaves_frees_its_rows(server):
    connection, stream = open_stream(server, PATH, LONG)
    first = read_event(stream)
    assert first["progress"] == {"done": 0, "total": 5000, "seconds_left": None} and first["rows"] == []
    server.until(lambda: server.metric("descent_requests_running") > 0, "it does not begin")
    for _ in range(3):
        text = server.json("/v1/completions", {"model": "slow", "prompt": "the quick", "max_tokens": 4, "seed": 1})
        assert text["usage"]["completion_tokens"] == 4
    server.until(lambda: server.active() > 0, "the experiment is over already")  # its windows come one after another
    leave(server, connection, stream)
    server.until(lambda: any(PATH in line and '"finish":"cancelled"' in line for line in server.log), "it is not logged")


def test_who_leaves_without_a_stream_frees_its_rows_too(server):
    where = urlsplit(server.url)
    connection = http.client.HTTPConnection(where.hostname, where.port)
    connection.request("POST", PATH, json.dumps(LONG), {"Content-Type": "application/json"})
    server.until(lambda: server.metric("descent_requests_running") > 0, "it does not begin")
    connection.close()
    server.idle()


def test_who_leaves_while_it_is_summed_up(serve, short):
    """As many resamples as are allowed, which take seconds, if not as long as a busy machine may keep a client waiting: it comes
    until it has left in time. (That they end early: tests/unit/test_scaling_left.c.)"""
    texts, depths = 3000, 40
    server = serve([short])
    where = urlsplit(server.url)
    body = json.dumps({"model": "short", "texts": [[1, 2]] * texts, "steps": list(range(1, depths + 1)), "intervals": {"resamples": 2200}})
    logged, finish = [], None
    while finish != "cancelled":
        seen, before = len(logged), server.metric("descent_token_steps_total")
        connection = http.client.HTTPConnection(where.hostname, where.port)
        connection.request("POST", PATH, body, {"Content-Type": "application/json"})
        server.until(lambda: server.metric("descent_token_steps_total") - before == texts * depths, "the sweeps do not end", 120)
        connection.close()
        server.until(lambda: sum(PATH in line for line in server.log) > seen, "it is not logged", 120)
        logged = [json.loads(line) for line in server.log if PATH in line]
        finish = logged[-1]["finish"]
        assert len(logged) < 10, logged


def test_a_stream_with_nothing_to_say_is_kept_alive(serve, made):
    server = serve([made["slow"]], "--sse-keepalive", "0.1")
    connection, stream = open_stream(server, PATH, HEAVY)
    read_event(stream)
    comments = [line for line in (stream.readline() for _ in range(6)) if line.startswith(b":")]
    assert len(comments) >= 2
    leave(server, connection, stream)


def test_a_rate_is_told_only_of_who_ran_alone(server):
    small = {"texts": ["the quick brown fox"] * 2, "steps": [2, 20]}
    alone = rows(server, "slow", **small)
    assert all(row["tokens_per_second"] == pytest.approx(row["tokens"] / row["seconds"], rel=1e-6) for row in alone)
    connection, stream = open_stream(server, PATH, LONG)
    read_event(stream)
    server.until(lambda: server.metric("descent_requests_running") > 0, "it does not begin")
    for row, other in zip(rows(server, "slow", **small), alone):
        assert row["tokens_per_second"] is None and row["seconds"] is None and row["joules"] is None
        assert {name: row[name] for name in METRICS} == {name: other[name] for name in METRICS}
    leave(server, connection, stream)


def test_a_stream_says_what_the_whole_answer_does(serve, made):
    server = serve([made["slow"]], "--max-queue", "1")  # one window after the other
    fields = {"texts": [list(range(40 + i, 45 + i)) for i in range(5)], "steps": [1, 4]}
    whole = measure(server, "slow", **fields)
    reply = request(server, "POST", PATH, {"model": "slow", **fields, "stream": True})
    assert reply.headers["content-type"].startswith("text/event-stream") and reply.body.startswith(b": ")
    *chunks, done = events(reply)
    assert done == "[DONE]" and len({chunk["id"] for chunk in chunks}) == 1
    assert {chunk["object"] for chunk in chunks} == {"descent.scaling.chunk"}
    assert all("usage" not in chunk for chunk in chunks[:-1])
    counts = [chunk["progress"]["done"] for chunk in chunks]
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == chunks[-1]["progress"]["total"] == 5
    assert len(chunks) >= 3, "what there is by then comes before the end"
    assert all([row["steps"] for row in chunk["rows"]] == [1, 4] and 1 <= chunk["rows"][0]["inputs"] <= chunk["progress"]["done"]
               for chunk in chunks if chunk["rows"])
    for row, other in zip(chunks[-1]["rows"], whole["rows"]):
        assert {name: row[name] for name in [*METRICS, "intervals", "difference"]} == {name: other[name] for name in [*METRICS, "intervals", "difference"]}
    assert chunks[-1]["usage"] == whole["usage"] and chunks[-1]["descent"] == whole["descent"]


def test_answers_come_depth_by_depth(server):
    reply = request(server, "POST", PATH, {"model": "nrgpt-listops", "records": QUESTIONS[:80], "steps": [3, 5, 1], "stream": True})
    *chunks, _ = events(reply)
    seen = [[row["steps"] for row in chunk["rows"]] for chunk in chunks]
    assert seen[-1] == [3, 5, 1] and all(steps in ([], [5], [3, 5], [3, 5, 1]) for steps in seen), "the trained one first"
    assert all(row["inputs"] == 80 for chunk in chunks for row in chunk["rows"])


# ---- Limits ----------------------------------------------------------------------------------------------------------------


def test_token_steps_are_bounded_before_anything_runs(serve, shipped):
    server = serve([shipped("nrgpt-shakespeare"), shipped("cem-kjv"), shipped("nrgpt-listops")], "--max-sweep-token-steps", "400")
    fits = {"model": "nrgpt-shakespeare", "texts": ["a" * 101], "steps": [1, 4]}
    assert request(server, "POST", PATH, fits).status == 200
    for body, steps in [({**fits, "steps": [1, 5]}, 500), ({**fits, "texts": ["a" * 102]}, 404),
                        ({"model": "cem-kjv", "texts": [[5] * 11], "steps": ["1x1", "2x2"]}, 10 * 4 * (2 + 4)),
                        ({"model": "nrgpt-listops", "records": QUESTIONS[:1], "steps": [5, 1]}, None)]:
        reply = request(server, "POST", PATH, body)
        if steps is not None and steps <= 400:
            assert reply.status == 200
            continue
        assert reply.status == 400 and reply.error["code"] == "sweep_too_large", reply.body
        assert "at most 400 are taken (--max-sweep-token-steps)" in reply.error["message"]
        assert steps is None or f"take up to {steps} token-steps" in reply.error["message"], reply.error
    assert server.metric("descent_token_steps_total") == 400 + 240


def test_a_full_queue_is_a_429_and_a_small_one_is_enough(serve, shipped, made):
    server = serve([shipped("nrgpt-shakespeare"), made["slow"]], "--max-queue", "4")
    assert len(rows(server, "nrgpt-shakespeare", texts=["abc"] * 9, steps=[1, 2])) == 2
    connection, stream = open_stream(server, PATH, LONG)
    read_event(stream)
    reply = request(server, "POST", PATH, {"model": "nrgpt-shakespeare", "texts": ["abc"]})
    assert reply.status == 429 and int(reply.headers["retry-after"]) >= 1 and "4 of 4 sequences" in reply.error["message"]
    leave(server, connection, stream)
    again = {"model": "nrgpt-shakespeare", "texts": ["abc"], "steps": [1]}
    server.until(lambda: request(server, "POST", PATH, again).status == 200, "the queue is full of one who left")


def test_when_the_time_is_over_what_was_measured_is_the_answer(serve, made):
    server = serve([made["slow"]], "--request-time", "5", "--max-queue", "1")
    *chunks, done = events(request(server, "POST", PATH, {"model": "slow", "texts": ["ab"] * 50000, "steps": [200], "stream": True}))
    last = chunks[-1]
    assert done == "[DONE]" and last["descent"]["stop"] == "time"
    assert 1 <= last["progress"]["done"] < last["progress"]["total"] == 50000
    assert [row["inputs"] for row in last["rows"]] == [last["progress"]["done"]]
    hasty = serve([made["slow"]], "--request-time", "0.1")
    reply = request(hasty, "POST", PATH, HEAVY)
    assert reply.status == 504 and reply.error["code"] == "request_timeout" and reply.headers["x-should-retry"] == "false"


def test_a_server_that_ends_says_so(made):
    with Server([made["slow"]], "--drain-delay", "0", "--drain", "0.5") as server:
        connection, stream = open_stream(server, PATH, LONG)
        read_event(stream)
        server.terminate()
        said = broken_off(stream)
        connection.close()
        assert b"[DONE]" not in said and b'data: {"error":{"message":"the server is ending"' in said
        assert server.process.wait(30) == 0


def test_an_error_behind_the_status_is_an_event(serve, shipped):
    """The cache has room for a short text at that depth, and for a long one never."""
    server = serve([shipped("nrgpt-shakespeare")], "--cache-bytes", "4M")
    texts = ["abc"] * 64 + [SHAKESPEARE[:257]]
    connection, stream = open_stream(server, PATH, {"model": "nrgpt-shakespeare", "texts": texts, "steps": [64]})
    said = broken_off(stream)
    connection.close()
    assert b"[DONE]" not in said and "bytes" in json.loads(said.rsplit(b"data: ", 1)[1])["error"]["message"]


# ---- Errors ----------------------------------------------------------------------------------------------------------------


TEXT = {"texts": ["ab"]}
STEPS = "1 to 256"


@pytest.mark.parametrize("model, fields, param, words", [
    ("nrgpt-shakespeare", {}, "texts", "is missing: expected either texts or records"),
    ("nrgpt-shakespeare", {"texts": ["ab"], "records": []}, "texts", "is there beside records: expected either texts or records"),
    ("nrgpt-shakespeare", {"texts": "ab"}, "texts", "is a string: expected a list"),
    ("nrgpt-shakespeare", {"texts": []}, "texts", "has 0 texts: expected 1 to 131072"),
    ("nrgpt-shakespeare", {"texts": ["ab", 5]}, "texts[1]", "is 5: expected a string or a list of tokens"),
    ("nrgpt-shakespeare", {"texts": ["ab", "a"]}, "texts[1]", "has 1 tokens: expected 2 at least, since the first is not predicted"),
    ("nrgpt-shakespeare", {"texts": [""]}, "texts[0]", "has 0 tokens: expected 2 at least, since the first is not predicted"),
    ("nrgpt-shakespeare", {"texts": ["ab\u20ac"]}, "texts[0]", "cannot be read by nrgpt-shakespeare"),
    ("nrgpt-shakespeare", {"texts": [[1, 65]]}, "texts[0]", "has 65 at 1: expected tokens, integers from 0 to 64"),
    ("nrgpt-shakespeare", {"texts": [[1, "a"]]}, "texts[0]", "has a string at 1: expected tokens, integers from 0 to 64"),
    ("mute", {"texts": ["ab"]}, "texts[0]", "is a string, but model mute has no tokenizer: expected a list of tokens"),
    ("mute", {"records": [{}]}, "records", "is set, but model mute has no tokenizer to read them with: expected texts"),
    ("nrgpt-shakespeare", {"records": {}}, "records", "is an object: expected a list"),
    ("nrgpt-shakespeare", {"records": []}, "records", "has 0 records: expected 1 to 131072"),
    ("nrgpt-shakespeare", {"records": [5]}, "records[0]", "is no record: "),
    ("nrgpt-shakespeare", {"records": [{"answer": "a"}]}, "records[0]", "is no record: "),
    ("nrgpt-shakespeare", {"records": [{"prompt": "a", "choices": ["b"], "answer": 0}]}, "records[0]", "is no record: "),
    ("nrgpt-shakespeare", {"records": [{"prompt": "a", "choices": ["b", "c"], "answer": 2}]}, "records[0]", "is no record: "),
    ("nrgpt-shakespeare", {"records": [{"prompt": "a", "answer": "b"}]}, "records",
     "have answers, which end with a token that the tokenizer of model nrgpt-shakespeare does not have: expected choices"),
    ("nrgpt-listops", {"records": [QUESTIONS[0], {"prompt": "1,", "choices": ["2", "3"], "answer": 0}]}, "records[1]",
     "has choices, and those before it have none: expected records of one kind"),
    ("nrgpt-shakespeare", {**TEXT, "steps": []}, "steps", "has 0 depths: expected 1 to 1024"),
    ("nrgpt-shakespeare", {**TEXT, "steps": 4}, "steps", "is 4: expected a list of depths, or an object with a list of each kind"),
    ("nrgpt-shakespeare", {**TEXT, "steps": [1, 0]}, "steps[1]",
     "is 0: expected an integer from 1 to 256, or where layers descend twice also \"3x2\" or an object"),
    ("nrgpt-shakespeare", {**TEXT, "steps": [257]}, "steps[0]", "is 257: expected an integer from 1 to 256"),
    ("nrgpt-shakespeare", {**TEXT, "steps": ["257"]}, "steps[0]", "asks for 257 steps, more than the 256 this server allows"),
    ("nrgpt-shakespeare", {**TEXT, "steps": ["3x2"]}, "steps[0]", "is no depth of nrgpt-shakespeare: "),
    ("nrgpt-shakespeare", {**TEXT, "steps": ["deep"]}, "steps[0]", "is a string: expected an integer"),
    ("nrgpt-shakespeare", {**TEXT, "steps": [1, 4, 1]}, "steps[2]", "is 1, which is there already: expected each depth once"),
    ("cem-kjv", {**TEXT, "steps": [2, "2x2"]}, "steps[1]", "is 2, which is there already: expected each depth once"),
    ("cem-kjv", {**TEXT, "steps": [{"block": 1}]}, "steps[0].block", "is no field: expected one of attention, mlp"),
    ("cem-kjv", {**TEXT, "steps": [{"mlp": 0}]}, "steps[0].mlp", "is 0: expected an integer from 1 to 256"),
    ("cem-kjv", {**TEXT, "steps": {"mlp": 3}}, "steps.mlp", "is 3: expected a list"),
    ("cem-kjv", {**TEXT, "steps": {"mlp": []}}, "steps.mlp", "has 0 depths: expected 1 to 1024"),
    ("cem-kjv", {**TEXT, "steps": {"mlp": [1, "2"]}}, "steps.mlp", "has a string at 1: expected integers from 1 to 256"),
    ("cem-kjv", {**TEXT, "steps": {"attention": list(range(1, 41)), "mlp": list(range(1, 41))}}, "steps", "has 1600 depths: expected 1 to 1024"),
    ("cem-kjv", {**TEXT, "steps": {"attention": [1, 1]}}, "steps", "is 1x2, which is there already: expected each depth once"),
    ("nrgpt-shakespeare", {**TEXT, "threshold": -1}, "threshold", "is -1: expected a number from 0 to 1e+06"),
    ("nrgpt-shakespeare", {**TEXT, "intervals": {"n": 1}}, "intervals.n", "is no field: expected one of resamples, seed, level, units"),
    ("nrgpt-shakespeare", {**TEXT, "intervals": {"units": "lines"}}, "intervals.units", 'is "lines": expected one of auto, windows, documents'),
    ("nrgpt-shakespeare", {**TEXT, "intervals": {"resamples": 0}}, "intervals.resamples", "is 0: expected an integer from 1 to 100000"),
    ("nrgpt-shakespeare", {**TEXT, "intervals": {"seed": -1}}, "intervals.seed", "is -1: expected an integer of at least 0"),
    ("nrgpt-shakespeare", {**TEXT, "intervals": {"level": 1}}, "intervals.level", "is 1: expected a number above 0 and at most 0.9999"),
    ("nrgpt-shakespeare", {"texts": ["ab"] * 3000, "intervals": {"resamples": 100000}}, "intervals.resamples",
     "are 100000, of 3000 units at 1 depths 300000000 draws; at most 268435456 are made"),
    ("nrgpt-shakespeare", {"texts": ["ab"] * 1000, "steps": list(range(1, 201))}, "texts",
     "are 1000 windows at 200 depths, 200000 measures; at most 131072 are kept"),
    ("nrgpt-shakespeare", {**TEXT, "steps": list(range(1, 201)), "intervals": {"resamples": 100000}}, "intervals.resamples",
     "are 100000, at 200 depths 140000000 numbers; at most 16777216 are kept"),
    ("nrgpt-shakespeare", {"records": [{"prompt": "a", "choices": ["b"] * 256, "answer": 0}] * 20, "steps": list(range(1, 65))},
     "records", "have 2304 choices in the first 9 alone, which take up to 147456 token-steps at these 64 depths"),
    ("nrgpt-shakespeare", {**TEXT, "steps": [1, 4], "descent": {"solver": {"method": "anderson"}}}, "steps",
     "has 2 depths, and with descent.solver texts and choices begin anew at each: expected one"),
    ("nrgpt-shakespeare", {**TEXT, "stream": 1}, "stream", "is 1: expected true or false"),
    ("nrgpt-shakespeare", {**TEXT, "descent": {"steps": 3}}, "descent.steps", "is no field: expected one of exit"),
    ("nrgpt-shakespeare", {**TEXT, "descent": {"exit": {"criterion": "soon"}}}, "descent.exit.criterion", 'is "soon": expected one of none'),
])
def test_what_is_no_experiment(server, model, fields, param, words):
    reply = request(server, "POST", PATH, {"model": model, **fields})
    assert reply.status == 400, reply.body
    assert (reply.error["param"], reply.error["message"][:len(param) + 1]) == (param, param + " ")
    assert words in reply.error["message"], reply.error["message"]


def test_a_model_without_depth_has_one_row(serve, tmp_path):
    generate(["gpt", str(tmp_path / "flat.gguf"), "--vocab", "64", "--context", "32", "--tokenizer", "none"])
    server = serve([tmp_path / "flat.gguf"])
    [row] = rows(server, "flat", texts=[[1, 2, 3]])
    assert row["steps"] is None and row["loss"] > 0 and row["energy"] is None and row["relative_change"] is None
    reply = request(server, "POST", PATH, {"model": "flat", "texts": [[1, 2]], "steps": [1]})
    assert reply.error["message"] == "steps is set, but no sub-layer of model flat has a T: it runs once"
