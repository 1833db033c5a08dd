"""tools/bench_tokenizers.py on little text: who takes part, that ids agree, and what it refuses. How fast is no test's business."""

import json
import pathlib
import subprocess
import sys

import sentencepiece

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "tests" / "data" / "cem-kjv.tokenizer.model"


def bench(*arguments):
    return subprocess.run([sys.executable, ROOT / "tools" / "bench_tokenizers.py", *map(str, arguments)], capture_output=True,
                          text=True, timeout=300)


def test_json(tmp_path):
    text = "In the beginning God created the heaven and the earth.\n"
    (tmp_path / "text").write_text(text)
    done = bench(MODEL, "--text", tmp_path / "text", "--bytes", 20 * len(text), "--repeats", 3, "--json")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    library = sentencepiece.SentencePieceProcessor(model_file=str(MODEL))
    assert result["tokens"] == len(library.encode(20 * text)) and result["bytes"] == 20 * len(text)
    assert (result["kind"], result["vocabulary"], result["repeats"]) == ("llama", 2048, 3)
    ours, theirs = result["libraries"]
    assert ours["library"] == "descent" and theirs["library"] == f"sentencepiece {sentencepiece.__version__}"
    for row in result["libraries"]:
        assert row["same_ids"] is True
        assert row["fastest_seconds"] <= row["median_seconds"] <= row["slowest_seconds"]
        assert row["megabytes_per_second"] == result["bytes"] / 1e6 / row["median_seconds"]
        assert row["times_ours"] == row["median_seconds"] / ours["median_seconds"]


def test_table():
    done = bench(MODEL, MODEL, "--bytes", 3000, "--repeats", 1)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 8
    for head, titles, ours, theirs in (lines[:4], lines[4:]):
        assert head.startswith(f"{MODEL}: llama, 2048 tokens; 3000 bytes of text") and titles.split()[:2] == ["library", "MB/s"]
        assert ours.split()[0] == "descent" and theirs.split()[0] == "sentencepiece" and theirs.endswith("yes")


def test_refused(tmp_path):
    (tmp_path / "bad.model").write_bytes(b"\n\xff")
    done = bench(tmp_path / "bad.model")
    assert done.returncode == 1 and "bad.model: no SentencePiece model" in done.stderr and done.stdout == ""
    done = bench(MODEL, "--bytes", 0)
    assert done.returncode == 2 and "--bytes and --repeats are at least 1" in done.stderr
    (tmp_path / "empty").write_bytes(b"")
    done = bench(MODEL, "--text", tmp_path / "empty")
    assert done.returncode == 1 and "there is no text to encode" in done.stderr
