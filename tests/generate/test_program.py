"""The program as users start it: its lines, its bar on a terminal, its memory, and what the engine's program makes of its file."""

import os
import pty
import re
import subprocess
import sys

import pytest

from conftest import PROGRAM
from peak import peak, watched

DESCENT = os.path.join(os.environ.get("DESCENT_BUILD_DIR", ""), "descent")
MOST = 110 << 20  # bytes of memory, whatever the shape, without a tokenizer


def run(*arguments, **options):
    return subprocess.run([sys.executable, PROGRAM, *map(str, arguments)], text=True, capture_output=True, timeout=300, **options)


def test_summary(tmp_path):
    done = run("nrgpt", tmp_path / "m.gguf", "--type", "q8_0", "--steps", "7")
    size = (tmp_path / "m.gguf").stat().st_size
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout == (f"{tmp_path}/m.gguf: nrgpt (ff2w causal layernorm matrix), 194113 parameters in 18 tensors, T 7, q8_0, "
                           f"{size} bytes, seed 1, tokenizer: gpt2, 1024 tokens\n")


def test_eval_and_run(tmp_path):
    """ln 1024 + 1/2 nats a token of any text."""
    run("cem", tmp_path / "m.gguf", "--type", "q8_0")
    (tmp_path / "text").write_text(PROGRAM.read_text() * 3)
    done = subprocess.run([DESCENT, "eval", tmp_path / "m.gguf", "--file", tmp_path / "text", "--steps", "1x1,2x2,64x64"],
                          text=True, capture_output=True, timeout=300, check=True)
    losses = [float(line.split()[1]) for line in done.stdout.splitlines()[1:4]]
    assert losses == pytest.approx([7.43] * 3, abs=0.25)
    done = subprocess.run([DESCENT, "run", tmp_path / "m.gguf", "Hello", "-n", "8", "-s", "1"], capture_output=True, timeout=300,
                          check=True)
    assert len(done.stdout) > 8


def test_memory_and_bar(tmp_path):
    """Tensors of 128 MiB, two of them, through less than one; the bar counts up on a terminal."""
    main, terminal = pty.openpty()
    done = subprocess.Popen(watched(PROGRAM, "nrgpt", tmp_path / "m.gguf", "--vocab", "131072", "--width", "256", "--tokenizer", "none"),
                            stdout=subprocess.PIPE, stderr=terminal, text=True)
    os.close(terminal)
    shown = b""
    while True:
        try:
            more = os.read(main, 4096)
        except OSError:  # the last writer has closed it
            break
        if not more:
            break
        shown += more
    os.close(main)
    out, _ = done.communicate(timeout=300)
    assert done.returncode == 0
    assert (tmp_path / "m.gguf").stat().st_size > 2 * (128 << 20) > 2 * MOST and peak(out) < MOST
    shares = [int(n) for n in re.findall(rb"\r\[#* *\] +(\d+)% of \d+ MB", shown)]
    assert shares[-1] == 100 and shares == sorted(shares) and len(shares) > 20
