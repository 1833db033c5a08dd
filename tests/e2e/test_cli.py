"""The command line itself: help, versions, mistakes, and where output goes wrong."""
import os
import re
import subprocess

import pytest

from conftest import environment

COMMANDS = ["serve", "run", "eval", "trace", "scale", "info", "quantize", "bench"]


def assert_usage_error(result, *words):
    assert result.code == 2
    assert result.out == b""
    assert result.err.startswith("descent: ")
    for word in words:
        assert word in result.err


def test_help_lists_what_exists(descent):
    result = descent("--help")
    assert result.code == 0 and result.err == ""
    listed = re.findall(r"^  (\w+) ", result.text, re.M)
    assert listed == COMMANDS
    assert descent("-h").out == descent("help").out == result.out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command(descent, command):
    result = descent(command, "--help")
    assert result.code == 0 and result.err == ""
    assert result.text.startswith(f"usage: descent {command} ")
    assert command == "serve" or "--json" in result.text  # requests of a server say their own T, too
    assert command in ("serve", "quantize") or "--steps" in result.text
    assert max(map(len, result.text.splitlines())) <= 100
    assert descent("help", command).out == result.out
    assert descent(command, "--nonsense", "-h").out == result.out


def test_every_option_in_help_is_accepted(descent, made):
    """An option that help lists is never refused as unknown."""
    for command in COMMANDS:
        for option in re.findall(r"--([a-z-]+)", descent(command, "--help").text):
            if option != "help":
                assert "unknown option" not in descent(command, f"--{option}=?").err


def test_version(descent):
    result = descent("--version")
    assert result.code == 0
    assert re.fullmatch(r"descent \d+\.\d+\.\d+ \((avx512(-vnni|-vbmi)?|avx2|portable)\)\n", result.text)


def test_no_command(descent):
    result = descent()
    assert result.code == 2 and result.out == b"" and result.err.startswith("usage: descent COMMAND")


@pytest.mark.parametrize("typed, meant", [("rnu", "run"), ("evl", "eval"), ("information", None), ("xyzzy", None), ("", None)])
def test_unknown_command(descent, typed, meant):
    result = descent(typed)
    assert_usage_error(result, f'unknown command "{typed}"')
    assert (f'did you mean "{meant}"?' in result.err) if meant else ("did you mean" not in result.err)


def test_help_of_an_unknown_command(descent):
    assert_usage_error(descent("help", "rum"), 'did you mean "run"?')


@pytest.mark.parametrize("arguments, words", [
    (["--stpes", "3"], ["--stpes", "did you mean --steps?"]),
    (["--qqqqqqqq"], ["unknown option --qqqqqqqq"]),
    (["-Z"], ["unknown option -Z"]),
    (["a", "b"], ['unexpected argument "b"', "MODEL [PROMPT]"]),
    (["--json=yes"], ["--json takes no value"]),
    (["--seed"], ["--seed needs a value"]),
    (["--seed", "1.5"], ["--seed must be an integer", '"1.5"']),
    (["--seed", "99999999999999999999"], ["--seed"]),
    (["--seed", ""], ["--seed", '""']),
    (["--top-k", "-1"], ["--top-k must be an integer of at least 0"]),
    (["--max-tokens", "0"], ["--max-tokens must be an integer of at least 1"]),
    (["--temperature", "-0.1"], ["--temperature must be a number of at least 0"]),
    (["--temperature", "nan"], ["--temperature"]),
    (["--temperature", "inf"], ["--temperature"]),
    (["--temperature", "0x1p3"], ["--temperature"]),
    (["--temperature", "1 "], ["--temperature"]),
    (["--top-p", "0"], ["--top-p must be a number above 0, at most 1"]),
    (["--top-p=1.01"], ["--top-p"]),
    (["--min-p", "2"], ["--min-p must be a number from 0 to 1"]),
    (["--typical-p", "0"], ["--typical-p"]),
    (["--repetition-penalty", "0"], ["--repetition-penalty must be a number above 0"]),
    (["--page-type", "f64"], ["--page-type must be f32 or f16 or bf16 or q8"]),
    (["--cache-bytes", "2X"], ["--cache-bytes", "2G"]),
    (["--cache-bytes", "-1"], ["--cache-bytes"]),
    (["--cache-bytes", "0"], ["--cache-bytes"]),
    (["--cache-bytes", "9999999999999999G"], ["--cache-bytes"]),
    (["--threads", "0"], ["--threads must be an integer from 1 to 1024"]),
    (["--chunk", "65537"], ["--chunk must be an integer from 1 to 65536"]),
    (["--stop", ""], ["--stop"]),
    (["a", "--tokens", "1"], ["PROMPT", "--file", "--tokens"]),
    (["--tokens", "1", "--stop", "x"], ["--stop", "--tokens"]),
])
def test_options_refused(descent, made, arguments, words):
    assert_usage_error(descent("run", made["chars"].path, *arguments), *words)


@pytest.mark.parametrize("arguments, words", [
    (["--steps", "0"], ['"0"', "1 to 65535"]),
    (["--steps", "-1"], ['"-1"', "1 to 65535"]),
    (["--steps", "1000000000"], ['"1000000000"', "1 to 65535"]),
    (["--steps", "65536"], ["1 to 65535"]),
    (["--steps", "3x2"], ['"3x2"']),
    (["--steps", "0000000000000000000000000012junk"], ["steps"]),
    (["--steps", ""], ["steps"]),
    (["--tokens", "1,29"], ["--tokens must be ids from 0 to 28", '"29"']),
    (["--tokens", ""], ["--tokens"]),
    (["--tokens", "1,,2"], ["--tokens"]),
    (["--tokens", "1,-2"], ["--tokens"]),
    (["--tokens", "18446744073709551617"], ["--tokens"]),
    (["--logit-bias", "3"], ["--logit-bias must be ID=B"]),
    (["--logit-bias", "29=1"], ["--logit-bias", "0 to 28"]),
    (["--logit-bias", "1=x"], ["--logit-bias"]),
    (["--logit-bias", "1=1e999"], ["--logit-bias"]),
    (["--logit-bias", "=1"], ["--logit-bias"]),
])
def test_options_that_the_model_refuses(descent, made, arguments, words):
    prompt = [] if "--tokens" in arguments else ["a"]
    assert_usage_error(descent("run", made["chars"].path, *prompt, *arguments), *words)


@pytest.mark.parametrize("command, missing", [("run", "MODEL"), ("eval", "MODEL"), ("info", "FILE")])
def test_missing_argument(descent, command, missing):
    assert_usage_error(descent(command), missing)


def test_spellings_of_an_option(descent, made):
    """All of these say the same: T = 2, seed 5, and a prompt."""
    model = made["chars"].path
    spellings = [["--steps", "2", "--seed", "5", "ab"], ["--steps=2", "--seed=5", "ab"], ["-T2", "-s5", "ab"],
                 ["-T", "2", "-s", "5", "ab"], ["ab", "-s5", "-T2"], ["-s5", "-T2", "--", "ab"]]
    texts = {descent("run", model, "-n8", *words).out for words in spellings}
    assert len(texts) == 1 and len(texts.pop()) == 8


def test_double_dash_ends_the_options(descent, made):
    result = descent("run", made["chars"].path, "-n1", "--", "--help")
    assert result.code == 1  # "-" is no character of this model: so "--help" was taken for the prompt
    assert '"-"' in result.err


@pytest.mark.parametrize("size, number", [("512", 512), ("1K", 1024), ("0.5KiB", 512), ("2kB", 2048), ("700B", 700)])
def test_sizes(descent, made, size, number):
    """A cache that cannot hold one token is refused, with its limit in bytes."""
    result = descent("run", made["chars"].path, "a", "--cache-bytes", size)
    assert result.code == 1 and str(number) in result.err


def test_full_disk(descent, binary, made):
    with open("/dev/full", "wb") as full:
        for arguments in (["--version"], ["--help"], ["run", made["chars"].path, "a"], ["info", made["chars"].path],
                          ["info", made["chars"].path, "--json"], ["run", made["chars"].path, "a", "--json"]):
            done = subprocess.run([binary, *arguments], stdout=full, stderr=subprocess.PIPE, env=environment())
            assert done.returncode == 1
            assert done.stderr.decode() == "descent: cannot write the output: No space left on device\n"


def test_a_reader_that_leaves(binary, shipped):
    """A closed pipe ends the program early, and quietly."""
    read, write = os.pipe()
    started = subprocess.Popen([binary, "run", shipped("nrgpt-shakespeare"), "A", "-T", "400"], stdout=write,
                               stderr=subprocess.PIPE, env=environment())
    os.close(write)
    assert os.read(read, 1)
    os.close(read)
    assert started.stderr.read() == b""
    assert started.wait(120) == 0


def test_no_escape_sequences_in_pipes(descent, made):
    model = made["chars"].path
    for arguments in (["run", model, "a"], ["run", model, "a", "--trace"], ["info", model], ["--help"]):
        result = descent(*arguments)
        assert b"\x1b" not in result.out and "\x1b" not in result.err
