"""descent.choose: each rule of models.md recomputed from n plain choices of the same seed, their traces and logprobs, and the
constants in the model's file."""
import json
import math
import os
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import end, request
from gguf import GGUFReader
from serving import BINARY, Server

N = 6
RULES = ["energy", "energy_gap", "logprob", "vote"]
ALPHAS = "nrgpt-ff1-rms-diag-alpha"  # a golden model


@pytest.fixture(scope="module")
def files(shipped, made):
    golden = Path(os.environ["DESCENT_GOLDEN_DIR"])
    return {**{name: shipped(name) for name in ("nrgpt-shakespeare", "nrgpt-listops", "cem-kjv")},
            **{name: golden / f"{name}.gguf" for name in (ALPHAS, "gpt")}, "pieces": made["pieces"],
            "mute": made["mute"]}


@pytest.fixture(scope="module")
def server(files):
    server = Server([*files.values()], "--drain-delay", "0", "--drain", "5")
    yield server
    end(server)


def history_term(path):
    """i -> what is added to the energy of the token at position i: models.md section 4."""
    reader = GGUFReader(path)
    value = {name: field.contents() for name, field in reader.fields.items()}
    if "nrgpt.attention.beta" in value:
        alphas = [tensor.data for tensor in reader.tensors if tensor.name == "blk.0.attn_alpha.weight"]
        total = float(alphas[0].sum()) if alphas else value["nrgpt.attention.head_count"]
        strict = value["nrgpt.attention.mask"] == "strict"
        return lambda i: total / value["nrgpt.attention.beta"] * math.log(i if strict else i + 1)
    heads = value["cem.attention.head_count"]
    tau = math.sqrt(value["cem.embedding_length"] / heads)
    return lambda i: value["cem.block_count"] * tau * heads * math.log(i + 1)


def ask(server, model, prompt, **fields):
    return server.json("/v1/completions", {"model": model, "prompt": prompt, "max_tokens": 10, "seed": 31, **fields})


class Candidate:
    """What a plain choice with logprobs and trace says of itself."""

    def __init__(self, choice, prompt_tokens, term):
        logprobs = choice["logprobs"]["token_logprobs"]
        self.text, self.tokens = choice["text"], len(logprobs)
        self.logprob = sum(logprobs) / len(logprobs) if logprobs else None
        self.energies, self.gaps = [], []
        for token in choice["descent"]["trace"]:
            i = token["position"] - prompt_tokens
            if not 0 <= i < self.tokens:  # the prompt's last token; tokens of a stop string
                continue
            assert i == len(self.gaps)
            series = [values for descent in token["descents"] for values in descent["energy"].values()]
            self.energies.append(sum(values[-1] for values in series) + term(token["position"]))
            self.gaps.append(sum(values[0] - values[-1] for values in series))


def judge(rule, candidates):
    """(index, scores) by the rule."""
    if rule == "logprob":
        scores = [c.logprob for c in candidates]
    elif rule == "vote":
        votes = Counter(c.text for c in candidates)
        scores = [votes[c.text] for c in candidates]
        best = max(range(len(candidates)), key=lambda i: (scores[i], candidates[i].logprob or -math.inf, -i))
        return best, scores
    elif rule == "energy_gap":
        scores = [sum(c.gaps) / len(c.gaps) if c.gaps else None for c in candidates]
    else:
        common = min((len(c.energies) for c in candidates if c.energies), default=0)
        scores = [sum(c.energies[:common]) / common if c.energies else None for c in candidates]
    sign = -1 if rule == "energy" else 1
    return max(range(len(candidates)), key=lambda i: (-math.inf if scores[i] is None else sign * scores[i], -i)), scores


def plain(server, files, model, prompt, **fields):
    """The answer with all candidates as choices, and what is known of each."""
    descent = {**fields.pop("descent", {}), "trace": True, "draft_steps": 0}
    answer = ask(server, model, prompt, n=N, logprobs=0, descent=descent, **fields)
    term = history_term(files[model])
    return answer, [Candidate(choice, answer["usage"]["prompt_tokens"], term) for choice in answer["choices"]]


CASES = {
    "causal": ("nrgpt-shakespeare", "ROMEO:", {}),
    "strict": ("nrgpt-listops", "min_10,(,4,max_10,(,1,2,),),=", {"temperature": 2.5, "max_tokens": 20, "seed": 35}),
    "layers": ("cem-kjv", "And God said", {}),
    "alphas": (ALPHAS, [1, 2, 3], {}),
    "stops": ("nrgpt-shakespeare", "ROMEO:\n", {"stop": ["A", "e", " t"], "max_tokens": 40}),
    "deep": ("nrgpt-shakespeare", "ROMEO:", {"descent": {"steps": 9, "step_scale": 0.5}}),
    "exit": ("nrgpt-shakespeare", "ROMEO:", {"descent": {"steps": 12, "exit": {"criterion": "state", "threshold": 0.3}}}),
    "kinds": ("cem-kjv", "And God said", {"descent": {"steps": {"attention": 3, "mlp": 1}}}),
    "exits": ("cem-kjv", "And God said", {"descent": {"steps": 6, "exit": {"criterion": "state", "threshold": 0.3}}}),
    "short": ("cem-kjv", "And God said", {"descent": {"steps": 1}, "max_tokens": 2}),
    "single": ("nrgpt-shakespeare", "ROMEO:", {"max_tokens": 1}),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", CASES)
def test_the_rule_as_recomputed(server, files, case, rule):
    model, prompt, fields = CASES[case]
    answer, candidates = plain(server, files, model, prompt, **fields)
    lengths = {len(c.gaps) for c in candidates}
    assert case not in ("stops", "strict") or len(lengths) > 1, "texts of several lengths are what this is about"
    assert case != "stops" or 0 in lengths, "and one that is empty"
    best, scores = judge(rule, candidates)
    got = ask(server, model, prompt, **{**fields, "descent": {**fields.get("descent", {}), "choose": {"n": N, "by": rule},
                                                              "draft_steps": 0}})
    said = got["descent"]["choose"]
    assert list(said) == ["n", "by", "index", "score", "scores"]
    assert (said["n"], said["by"], said["index"]) == (N, rule, best)
    assert said["scores"] == [None if score is None else pytest.approx(score, rel=1e-4, abs=1e-4) for score in scores]
    assert said["score"] == said["scores"][best]
    [choice] = got["choices"]
    assert choice["index"] == 0 and choice["text"] == candidates[best].text and choice["logprobs"] is None
    assert choice["finish_reason"] == answer["choices"][best]["finish_reason"]
    assert got["usage"]["completion_tokens"] == answer["usage"]["completion_tokens"]
    if rule.startswith("energy"):  # texts that are observed each compute their prompt, as traced ones do
        assert got["usage"]["descent_steps"] == answer["usage"]["descent_steps"]


def choose(server, model, prompt, rule, n=N, **fields):
    descent = {"choose": {"n": n, "by": rule}, **fields.pop("descent", {})}
    return ask(server, model, prompt, descent=descent, **fields)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", ["causal", "strict", "layers", "stops", "single", "kinds"])
def test_every_candidate_and_what_each_rule_says_of_it(server, files, case, rule):
    """One sampling of n texts is enough to compare the rules; the answer itself does not change."""
    model, prompt, fields = CASES[case]
    answer, candidates = plain(server, files, model, prompt, **fields)
    asked = {"descent": {**fields.get("descent", {}), "draft_steps": 0}, **{k: v for k, v in fields.items() if k != "descent"}}
    bare = choose(server, model, prompt, rule, **asked)
    choice = {"choose": {"n": N, "by": rule, "candidates": True}}
    got = ask(server, model, prompt, **{**asked, "descent": {**asked["descent"], **choice}})
    told = got["descent"]["choose"].pop("candidates")
    assert got["descent"] == bare["descent"] and got["choices"] == bare["choices"]
    by_rule = {name: judge(name, candidates)[1] for name in RULES}
    energies = rule.startswith("energy")
    for i, (one, c) in enumerate(zip(told, candidates, strict=True)):
        assert list(one) == ["text", "finish_reason", "tokens", "logprob", "energy", "energy_gap", "votes"]
        assert one["text"] == c.text == answer["choices"][i]["text"] and one["tokens"] == c.tokens
        assert one["finish_reason"] == answer["choices"][i]["finish_reason"] and one["votes"] == by_rule["vote"][i]
        for name in ("logprob", "energy", "energy_gap"):
            score = by_rule[name][i] if name == "logprob" or energies else None
            assert one[name] == (None if score is None else pytest.approx(score, rel=1e-4, abs=1e-4))


def test_candidates_of_several_prompts_and_of_a_model_without_texts(server):
    got = ask(server, "nrgpt-shakespeare", ["ROMEO:", "To be"], descent={"choose": {"n": 3, "candidates": True}})
    every = ask(server, "nrgpt-shakespeare", ["ROMEO:", "To be"], n=3)["choices"]
    told = [one["text"] for said in got["descent"]["choose"] for one in said["candidates"]]
    assert told == [choice["text"] for choice in every]
    mute = ask(server, "mute", [1, 2], descent={"choose": {"n": 2, "candidates": True}})["descent"]["choose"]["candidates"]
    assert [(one["text"], one["votes"], one["tokens"]) for one in mute] == [("", None, 10)] * 2
    assert "candidates" not in choose(server, "nrgpt-shakespeare", "a", "logprob", n=1)["descent"]["choose"]
    reply = request(server, "POST", "/v1/completions", {"model": "nrgpt-shakespeare", "prompt": "a",
                                                        "descent": {"choose": {"candidates": "all"}}})
    assert reply.status == 400 and reply.error["param"] == "descent.choose.candidates"


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("model", ["nrgpt-shakespeare", "cem-kjv"])
def test_a_tie_goes_to_the_first(server, model, rule):
    said = choose(server, model, "The ", rule, temperature=0)["descent"]["choose"]
    assert said["index"] == 0 and len(set(said["scores"])) == 1 and said["score"] == said["scores"][0]


@pytest.mark.parametrize("rule", RULES)
def test_texts_of_nothing(server, rule):
    """Every token ends a text before it: nothing to judge by, but the empty text can be voted for."""
    letters = [chr(c) for c in range(ord("A"), ord("Z") + 1)]
    got = choose(server, "nrgpt-shakespeare", "ROMEO:\n", rule, stop=letters, n=3)
    said = got["descent"]["choose"]
    assert got["choices"][0]["text"] == "" and said["index"] == 0
    assert said["scores"] == ([3] * 3 if rule == "vote" else [None] * 3) and said["score"] == said["scores"][0]


@pytest.mark.parametrize("rule", RULES)
def test_texts_of_an_end_alone(server, rule):
    """EOS is a token, with its logprob, but it is never descended."""
    got = choose(server, "nrgpt-listops", "min_10,(,4,max_10,(,1,2,),),=,2", rule, n=3)
    said = got["descent"]["choose"]
    assert (got["choices"][0]["text"], got["choices"][0]["finish_reason"], said["index"]) == ("", "stop", 0)
    assert said["score"] is None if rule.startswith("energy") else said["score"] is not None


def test_the_most_frequent_text_wins_and_ties_go_to_the_likelier(server, files):
    seen = set()
    for seed in range(12):
        fields = {"seed": seed, "max_tokens": 2, "temperature": 0.7}
        _, candidates = plain(server, files, "nrgpt-shakespeare", "ROMEO:\nI", **fields)
        best, scores = judge("vote", candidates)
        said = choose(server, "nrgpt-shakespeare", "ROMEO:\nI", "vote", **fields)["descent"]["choose"]
        assert (said["index"], said["scores"]) == (best, scores)
        ties = {c.text for c, score in zip(candidates, scores) if score == max(scores)}
        seen.add(len(ties) > 1)
    assert seen == {True, False}, "both kinds of vote are to be seen"


@pytest.mark.parametrize("rule", RULES)
def test_one_candidate_is_the_plain_text(server, rule):
    expected = ask(server, "nrgpt-shakespeare", "ROMEO:")["choices"]
    got = choose(server, "nrgpt-shakespeare", "ROMEO:", rule, n=1)
    assert got["choices"] == expected and got["descent"]["choose"]["index"] == 0
    assert len(got["descent"]["choose"]["scores"]) == 1


def test_defaults_are_eight_by_logprob(server):
    said = ask(server, "nrgpt-shakespeare", "ROMEO:", descent={"choose": {}})["descent"]["choose"]
    assert said["by"] == "logprob" and said["n"] == len(said["scores"]) == 8
    assert "choose" not in ask(server, "nrgpt-shakespeare", "ROMEO:", descent={"choose": None})["descent"]


@pytest.mark.parametrize("rule", ["energy", "vote"])
def test_each_of_several_prompts_has_its_own(server, rule):
    """Prompt p's candidates are drawn from streams (seed, p, 0 .. n - 1), as its choices are."""
    prompts = ["ROMEO:", "To be"]
    every = ask(server, "nrgpt-shakespeare", prompts, n=N)["choices"]
    got = choose(server, "nrgpt-shakespeare", prompts, rule)
    assert [choice["index"] for choice in got["choices"]] == [0, 1]
    for p, said in enumerate(got["descent"]["choose"]):
        assert got["choices"][p]["text"] == every[N * p + said["index"]]["text"] and len(said["scores"]) == N
    assert got["usage"]["completion_tokens"] == 10 * N * 2


@pytest.mark.parametrize("rule", RULES)
def test_beside_echo_logprobs_and_trace(server, rule):
    bare = choose(server, "nrgpt-shakespeare", "To be", rule)
    full = choose(server, "nrgpt-shakespeare", "To be", rule, echo=True, logprobs=2, descent={"trace": True})
    assert full["descent"]["choose"] == bare["descent"]["choose"]
    [choice] = full["choices"]
    assert choice["text"] == "To be" + bare["choices"][0]["text"]
    assert len(choice["logprobs"]["tokens"]) == 15 and choice["logprobs"]["token_logprobs"][0] is None
    assert [token["position"] for token in choice["descent"]["trace"]] == list(range(4, 14))


def test_chat_chooses_too(server):
    body = {"model": "pieces", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "seed": 4}
    every = server.json("/v1/chat/completions", {**body, "n": 3})["choices"]
    got = server.json("/v1/chat/completions", {**body, "descent": {"choose": {"n": 3, "by": "energy"}}})
    [choice] = got["choices"]
    assert choice["message"] == every[got["descent"]["choose"]["index"]]["message"]


def test_the_same_choice_under_load(server):
    def one(rule):
        return choose(server, "nrgpt-shakespeare", "ROMEO:", rule, max_tokens=12)

    alone = {rule: one(rule) for rule in RULES}
    with ThreadPoolExecutor(8) as pool:
        for rule, got in zip(RULES * 2, pool.map(one, RULES * 2)):
            assert got["choices"] == alone[rule]["choices"] and got["descent"]["choose"] == alone[rule]["descent"]["choose"]


def test_candidates_count_as_sequences(serve, shipped):
    server = serve([shipped("nrgpt-shakespeare")], "--max-queue", "6", "--max-sequences", "8")

    def refused(prompt, n):
        reply = request(server, "POST", "/v1/completions", {"model": "nrgpt-shakespeare", "prompt": prompt,
                                                            "descent": {"choose": {"n": n}}})
        assert reply.status == 400
        return reply.error

    assert refused("a", 9)["message"] == "descent.choose.n is 9: expected an integer from 1 to 8"
    assert "is 2 prompts of 5 choices each, 10 sequences, more than the 8" in refused(["a", "b"], 5)["message"]
    assert refused("a", 7)["code"] == "too_many_sequences"


@pytest.mark.parametrize("fields, param, words", [
    ({"stream": True}, "descent.choose", "is set with stream, but the text is chosen when all are there: expected no stream"),
    ({"n": 2}, "descent.choose", "is set and n is 2: expected 1, since one text is returned"),
    ({"best_of": 3}, "descent.choose", "is set and best_of is 3: expected 1, since one text is returned"),
    ({"model": "gpt", "prompt": [1]}, "descent.choose.by",
     "is energy, but model gpt does not descend an energy: expected logprob or vote"),
    ({"model": "mute", "prompt": [1], "descent": {"choose": {"by": "vote"}}}, "descent.choose.by",
     "is vote, but model mute has no tokenizer, so that there are no texts to count"),
])
def test_what_cannot_be_chosen(server, fields, param, words):
    body = {"model": "nrgpt-shakespeare", "prompt": "a", "descent": {"choose": {"n": 2, "by": "energy"}}, **fields}
    reply = request(server, "POST", "/v1/completions", body)
    assert reply.status == 400 and reply.error["param"] == param and reply.error["message"] == f"{param} {words}"


def test_a_trace_has_nothing_to_choose(server):
    reply = request(server, "POST", "/v1/descent/trace", {"model": "nrgpt-shakespeare", "prompt": "a",
                                                          "descent": {"choose": {"n": 2}}})
    assert reply.status == 400
    assert reply.error["message"] == "descent.choose is set, but the trace of one text is asked for: expected null"


def test_models_without_energy_choose_by_what_they_have(server):
    got = choose(server, "gpt", [1, 2], "logprob", logprobs=0)
    assert got["descent"]["choose"]["score"] == max(got["descent"]["choose"]["scores"])


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("case", ["causal", "strict", "layers", "stops"])
def test_the_command_line_s_is_the_same(server, files, case, rule):
    model, prompt, fields = CASES[case]
    served = choose(server, model, prompt, rule, **fields)
    asked = {"seed": 31, "max_tokens": 10, "temperature": 1, **fields}
    stops = [f"--stop={text}" for text in asked.get("stop", [])]
    command = [BINARY, "run", files[model], prompt, "--json", "--choose", f"{N}:{rule}", f"-s{asked['seed']}",
               f"-n{asked['max_tokens']}", "--temperature", str(asked["temperature"]), *stops]
    got = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    assert got["text"] == served["choices"][0]["text"]
    said, expected = got["choose"], served["descent"]["choose"]
    assert [said[name] for name in ("n", "by", "index")] == [expected[name] for name in ("n", "by", "index")]
    assert said["scores"] == [None if score is None else pytest.approx(score, rel=1e-7) for score in expected["scores"]]
    if case == "causal":
        streamed = subprocess.run([part for part in command if part != "--json"], check=True, capture_output=True, text=True)
        assert (streamed.stdout, streamed.stderr) == (got["text"], "")
