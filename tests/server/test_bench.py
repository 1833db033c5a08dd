"""`descent bench serve`: both sides do the same work, and every figure is there. How fast they are is no test's affair."""
import json
import re
import subprocess

import pytest
from serving import BINARY, Server

SHORT = ["--prompt-tokens", "3", "--tokens", "4", "--seconds", "0.01", "--threads", "1"]


def bench(*arguments):
    return subprocess.run([BINARY, "bench", *map(str, arguments)], capture_output=True, text=True, timeout=300)


def json_of(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ordered(spread):
    assert 0 < spread["least"] <= spread["median"] <= spread["most"]


def test_both_sides_do_the_same(shipped):
    told = json_of(bench("serve", shipped("nrgpt-shakespeare"), *SHORT, "--streams", "1,3", "--repeats", "2", "--crowd", "0",
                         "--slow-readers", "0", "--json"))
    assert told["steps"] == [2, 4, 8]
    assert [row["streams"] for row in told["rows"]] == [1, 3]
    for row in told["rows"]:
        http, engine = row["http"], row["in_process"]
        assert http["tokens"] == engine["tokens"] == 2 * 4 * row["streams"] * row["texts_per_stream"]
        assert http["token_steps"] == engine["token_steps"] >= 2 * http["tokens"]
        for side in (http, engine):
            ordered(side["tokens_per_second"])
            assert 0 < side["first_token_seconds"]["p50"] <= side["first_token_seconds"]["p99"]
            assert 0 <= side["inter_token_seconds"]["p50"] <= side["inter_token_seconds"]["p99"]
        ordered(row["ratio"])
    assert told["crowd"] is None


def test_a_hundred_streams_in_a_crowd(shipped):
    told = json_of(bench("serve", shipped("nrgpt-shakespeare"), *SHORT, "--streams", "1", "--repeats", "1", "--crowd", "6",
                         "--slow-readers", "3", "--stream-interval", "0", "-T", "1", "--json"))
    crowd = told["crowd"]
    assert crowd["streams"] == 100 and (crowd["others"], crowd["slow_readers"]) == (6, 3)
    for ratio in crowd["inter_token_ratio"].values():
        ordered(ratio)
    assert crowd["in_crowd"]["tokens"] == crowd["alone"]["tokens"] == 4 * 100 * crowd["texts_per_stream"]
    ordered(crowd["ratio"])


def test_a_table_for_people_of_a_server_that_runs(shipped):
    path = shipped("cem-kjv")
    with Server([path], "--threads", "1") as server:
        done = bench("serve", path, *SHORT, "--url", server.url, "--name", "cem-kjv", "--streams", "2", "--repeats", "1", "--crowd",
                     "0", "--slow-readers", "1", "-T", "1x2")
        assert done.returncode == 0, done.stderr
        assert "at T 1x2 in turn" in done.stdout and "in process" in done.stdout
        assert re.search(r"\n1 of the others read .* alone: p50 \S+ \(\S+\), p99 \S+ \(\S+\)\n", done.stdout), done.stdout
        assert server.metric("descent_generated_tokens_total") >= 2 * 4


def test_what_is_wrong_is_said(shipped):
    path = shipped("nrgpt-shakespeare")
    for arguments, code, said in [(["serve"], 2, "MODEL"), (["serve", path, "--streams", "0"], 2, "--streams"),
                                  (["serve", path, "--tokens", "500"], 2, "context"), (["serve", "none.gguf"], 1, "none.gguf"),
                                  ([], 2, "MODEL"), (["serve", path, "--url", "http://127.0.0.1:1"], 1, "http://127.0.0.1:1")]:
        done = bench(*arguments)
        assert (done.returncode, done.stdout) == (code, "") and said in done.stderr, (arguments, done)


@pytest.mark.parametrize("prompt, tokens", [(16, 128), (200, 56)])
def test_texts_are_as_long_as_the_context_leaves_room_for(shipped, prompt, tokens):
    told = json_of(bench("serve", shipped("nrgpt-shakespeare"), "--prompt-tokens", prompt, "--streams", "1", "--repeats", "1",
                         "--seconds", "0.01", "--crowd", "0", "--slow-readers", "0", "-T", "1", "-t", "1", "--json"))
    assert (told["prompt_tokens"], told["tokens"]) == (prompt, tokens)
    row, = told["rows"]
    assert row["http"]["tokens"] == tokens * row["texts_per_stream"]
