"""What only a person at a terminal sees: the dialogue, Ctrl-C, the progress bar, colours."""
import os
import signal
import subprocess

import pytest

PROMPT = rb"> $"


@pytest.fixture
def talk(terminal, shipped):
    """A dialogue with the small Shakespeare model, at its first prompt."""

    def start(*arguments):
        one = terminal("run", shipped("nrgpt-shakespeare"), *arguments)
        one.expect(rb"/help lists commands\.\r\n")
        one.expect(PROMPT)
        return one

    return start


def continuation(descent, model, prompt, *options):
    return descent("run", model, prompt, *options).text.rstrip("\n").replace("\n", "\r\n").encode()


def test_every_line_is_a_prompt(talk, descent, shipped):
    options = ["-s", "3", "-n", "30"]
    one = talk(*options)
    for prompt in ("ROMEO", "JULIET", "ROMEO"):
        one.send(prompt + "\n")
        found = one.expect(rb"(?s)(.*?)(?:\r\n)+\x1b\[2m\[T = 4, seed 3 \| prompt (\d+) tokens.*?generated 30, .*?row steps\]")
        assert found[1].rstrip(b"\r\n") == continuation(descent, shipped("nrgpt-shakespeare"), prompt, *options)
        assert int(found[2]) == len(prompt)
        one.expect(PROMPT)
    one.send("\x04")
    assert one.finish() == 0


def test_a_prompt_over_lines(talk, descent, shipped):
    options = ["-s", "3", "-n", "30"]
    one = talk(*options)
    one.send("ROMEO:\\\n")
    one.expect(rb"\| $")
    one.send("But\n")
    found = one.expect(rb"(?s)(.*?)(?:\r\n)+\x1b\[2m\[T = 4.*? prompt 10 tokens")
    assert found[1].rstrip(b"\r\n") == continuation(descent, shipped("nrgpt-shakespeare"), "ROMEO:\nBut", *options)


def test_commands(talk, descent, shipped):
    one = talk("-s", "3", "-n", "5")
    for line, answer in [("/steps 2", rb"T = 2, temperature 1, seed 3, max tokens 5, trace off\r\n"),
                         ("/seed -9", rb"T = 2, temperature 1, seed -9, "),
                         ("/temperature 0", rb"T = 2, temperature 0, seed -9, "),
                         ("/max-tokens 7", rb"max tokens 7, "),
                         ("/max-tokens 0", rb"max tokens the rest of the context, "),
                         ("/trace", rb"trace on\r\n"),
                         ("/reset", rb"T = 4, temperature 1, seed 3, max tokens 5, trace off\r\n"),
                         ("/steps 0", rb"descent: /steps: .*1 to 65535\r\nT = 4"),
                         ("/steps", rb"descent: /steps needs a value\r\n"),
                         ("/seed x", rb"descent: /seed must be an integer, got \"x\"\r\n"),
                         ("/temperature -1", rb"descent: /temperature.*\r\nT = 4, temperature 1"),
                         ("/temperature x", rb"descent: /temperature must be a number"),
                         ("/max-tokens x", rb"descent: /max-tokens must be"),
                         ("/stepz 3", rb"descent: unknown command /stepz; did you mean /steps\r\n"),
                         ("/zzzzzz", rb"descent: unknown command /zzzzzz; /help lists them\r\n"),
                         ("/help", rb"(?s)/steps .*/quit .*Ctrl-D\r\nT = 4")]:
        one.send(line + "\n")
        one.expect(answer)
        one.expect(PROMPT)
    one.send("/steps 2\n")
    one.expect(PROMPT)
    one.send("/temperature 0\n")
    one.expect(PROMPT)
    one.send("A\n")
    found = one.expect(rb"(?s)(.*?)\r\n\x1b\[2m\[T = 2, ")
    assert found[1] == continuation(descent, shipped("nrgpt-shakespeare"), "A", "-T2", "--temperature", "0", "-n5")
    one.expect(PROMPT)
    one.send("/quit\n")
    assert one.finish() == 0


def test_trace_in_the_dialogue(talk):
    one = talk("-s", "3", "-n", "2")
    one.send("/trace\n")
    one.expect(PROMPT)
    one.send("A\n")
    one.expect(rb"(?s)from position 0.*attention +feed_forward.*from position 1")
    one.expect(PROMPT)


def test_prompts_said_again_are_in_the_cache(talk):
    """Also at a larger depth: what is there is deepened."""
    one = talk("-n", "1")
    prompt = "But slain of here out miseral sad to prince, what say you to the matter now then?"
    one.send(prompt + "\n")
    first = one.expect(rb"prompt (\d+) tokens(, \d+ from the cache)?")
    assert int(first[1]) == len(prompt) and not first[2]
    one.expect(PROMPT)
    one.send(prompt + "\n")
    again = one.expect(rb"prompt \d+ tokens, (\d+) from the cache.*? (\d+) row steps\]")
    assert 0 < int(again[1]) < len(prompt)
    assert int(again[2]) == 4 * (len(prompt) - int(again[1]))


def test_a_prompt_that_cannot_be_used_does_not_end_the_dialogue(talk):
    one = talk("-n", "2", "-s", "1")
    one.send("\n")
    one.expect(PROMPT)
    one.send("{\n")
    one.expect(rb"descent: the prompt: the vocabulary has no character")
    one.expect(PROMPT)
    one.send("x" * 300 + "\n")
    one.expect(rb"descent: the prompt has 300 tokens, more than the 256")
    one.expect(PROMPT)
    one.send("//\n")  # a prompt that begins with a slash, which this vocabulary cannot spell
    one.expect(rb"the vocabulary has no character \"/\"")
    one.expect(PROMPT)
    one.send("A\n")
    one.expect(rb"generated 2")


def test_ctrl_c_in_the_dialogue(talk):
    """During a text it ends the text; at the prompt it forgets what was typed; neither ends the dialogue."""
    one = talk("-T", "2000", "-s", "1")
    one.send("A\n")
    one.expect(rb"[^\r\n]")
    one.interrupt()
    stopped = one.expect(rb"generated (\d+)")
    assert int(stopped[1]) < 255
    one.expect(PROMPT)
    one.interrupt()
    one.expect(PROMPT)
    one.send("/steps 1\n")
    one.expect(rb"T = 1, ")
    one.expect(PROMPT)
    one.send("A\n")
    one.expect(rb"generated 256")
    one.expect(PROMPT)
    one.send("\x04")
    assert one.finish() == 0


@pytest.mark.parametrize("busy", [False, True])
def test_sigterm_ends_the_dialogue(talk, busy):
    one = talk("-T", "2000", "-s", "1")
    if busy:
        one.send("A\n")
        one.expect(rb"[^\r\n]")
    one.process.send_signal(signal.SIGTERM)
    assert one.finish() == 130


def test_ctrl_c_without_dialogue(terminal, shipped):
    """The text so far stays, on a line that ends, and the exit code says what happened."""
    one = terminal("run", shipped("nrgpt-shakespeare"), "A", "-T", "2000", "-s", "1")
    first = one.expect(rb"[^\r\n]")[0]
    one.interrupt()
    assert one.finish() == 130
    assert first and b"\r\n" in one.seen
    assert one.seen.rstrip().endswith(b"row steps]\x1b[0m")


def test_text_on_a_terminal_ends_its_line(terminal, shipped, descent):
    model, options = shipped("nrgpt-shakespeare"), ["-s", "1", "-n", "5"]
    one = terminal("run", model, "A", *options)
    assert one.finish() == 0
    text = continuation(descent, model, "A", *options)
    assert one.seen.startswith(text + b"\r\n\x1b[2m[T = 4, seed 1 | prompt 1 tokens")


def test_no_summary_and_no_bar_in_a_pipe(terminal, shipped, descent, data):
    """Standard output alone on the terminal: nothing but the result comes."""
    model = shipped("nrgpt-listops")
    one = terminal("eval", model, "--match", data / "nrgpt-listops.eval.tsv", "-T", "1", stderr=subprocess.DEVNULL)
    assert one.finish() == 0
    assert one.seen.replace(b"\r\n", b"\n") == descent("eval", model, "--match", data / "nrgpt-listops.eval.tsv", "-T", "1").out


@pytest.mark.parametrize("option, file, unit", [("--file", "nrgpt-shakespeare.val.txt", b"row steps/s"),
                                                ("--match", "nrgpt-listops.eval.tsv", b"items/s")])
def test_progress_bar(terminal, shipped, data, tmp_path, option, file, unit):
    """On the terminal while it lasts, then gone; the result in a pipe is free of it."""
    read, write = os.pipe()
    model = shipped(file.split(".")[0])
    source = tmp_path / "part"
    source.write_bytes((data / file).read_bytes()[:6000].rsplit(b"\n", 1)[0])
    one = terminal("eval", model, option, source, "-T", "1,2", "--json", stdout=write)
    os.close(write)
    assert one.finish() == 0
    with os.fdopen(read, "rb") as out:
        assert out.read().startswith(b'{"results": [{"steps": 1, ')
    bars = one.seen.split(b"\r\x1b[K")
    assert len(bars) > 2 and bars[0] == b"" and bars[-1] == b""
    assert all(unit in bar and b" left" in bar and b"%" in bar for bar in bars[1:-1])
    assert b"100%" in bars[-2]


def test_ctrl_c_ends_a_measurement(terminal, shipped, data):
    one = terminal("eval", shipped("nrgpt-shakespeare"), "--file", data / "nrgpt-shakespeare.val.txt", "-T", "500")
    one.expect(rb"row steps/s")
    one.interrupt()
    assert one.finish() == 130
    assert one.seen.endswith(b"\r\x1b[K") and b"loss" not in one.seen.split(b"\r\x1b[K")[-1]


def test_colours_can_be_refused(terminal, shipped, monkeypatch, binary):
    plain = terminal("info", shipped("nrgpt-listops"))
    assert plain.finish() == 0 and b"\x1b[1m" in plain.seen
    from terminal import Terminal
    from conftest import environment
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        one = Terminal([binary, "info", shipped("nrgpt-listops")], {**environment(), name: value})
        try:
            assert one.finish() == 0 and b"\x1b" not in one.seen and b"Tensors" in one.seen
        finally:
            one.close()
