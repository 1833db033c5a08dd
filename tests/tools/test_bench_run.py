"""What tools/bench.py makes of figures: targets judged, tables and picture drawn; and its peers' parts that need no llama.cpp:
files of random weights, and reading what llama-bench prints. The figures here are made up."""
import copy
import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

import gguf
import pytest

import bench as bench_script
import bench_targets
import plot_bench
from conftest import ROOT
from peers import llama, llama_models

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = {"cpu": "x86-64 avx2 <fma>", "threads": 2, "loops": "avx2", "int8_multiply_adds_per_second": 4e11,
           "f32_multiply_adds_per_second": 2e11, "read": []}


def spread(value):
    return {"median": value, "least": 0.9 * value, "most": 1.1 * value}


def line(what, context, batch, rate, share=0.5, **more):
    """A line of `rate` tokens/s whose limits are all the same share of its time of 1 s."""
    limits = dict.fromkeys(("weights", "memory", "compute", "compute_in_cheaper_form"), share)
    work = {"multiply_adds": {"weights": 300 * int(rate), "attention": 20 * int(rate), "head": 30 * int(rate), "saved_by_cheaper_form": 0},
            "bytes": {"per_product": 9, "weights": int(5e9), "history": 0}, "limit_seconds": limits, "read_bandwidth": 1e10}
    return {"what": what, "context": context, "batch": batch, "steps": [12], "seconds": spread(1.0), "beside": {},
            "tokens": int(rate), "row_steps": 12, "tokens_per_second": spread(rate), "multiply_adds_per_second": 350.0 * rate,
            "fraction_of_limit": share, "work": work, **more}


def beside(what, **ratios):
    return line(what, 64, 1, 50, beside={name.replace("_", " "): {"seconds": spread(1.0), "ratio": r} for name, r in ratios.items()})


@pytest.fixture
def told():
    """As tools/bench.py prints it, every target met."""
    nrgpt = [line("decode", 64, 1, 100, 0.9), line("decode", 512, 1, 80), line("decode", 64, 16, 700, 0.8), line("prefill", 512, 1, 900, 0.8),
             beside("sweep", steps_and_heads=1.05, steps_alone=2.0), beside("latency", all_at_it=1.2)]
    for one in nrgpt:  # a token of the real model
        one["work"]["multiply_adds"].update(weights=290_000_000 * one["tokens"], attention=14_000_000 * one["tokens"],
                                            head=38_600_000 * one["tokens"])
    told = {"threads": 2, "depths": {"1": 300.0, "12": 100.0, "32": 40.0}, "plain": {"seconds": spread(2.0)},
            "pairs": [{"ours": "nrgpt-90m", "theirs": "gpt2-124m", "type": "q8_0", "ratio": 1.2},
                      {"ours": "cem-llama160m-tied", "theirs": "llama-160m", "type": "q8_0", "ratio": 1.4},
                      {"ours": "nrgpt-90m", "theirs": "gpt2-124m", "type": "f16", "ratio": 0.1}],
            "ours": {"nrgpt-90m-q8_0": {"machine": MACHINE, "lines": nrgpt, "memory": {"ratio": 1.05}},
                     "cem-llama160m-tied-q8_0": {"machine": MACHINE, "lines": [line("decode", 64, 1, 120)], "memory": {"ratio": 1.1}},
                     "nrgpt-shakespeare": {"machine": MACHINE, "lines": [beside("sweep", steps_alone=1.1, steps_and_heads=1.0),
                                                                          beside("drafts", without_drafts=0.5)]},
                     "nrgpt-listops": {"machine": MACHINE, "lines": [beside("drafts", without_drafts=0.6)]}},
            "theirs": {"gpt2-124m-q8_0": [{"prompt": 0, "generated": 24, "depth": 64, "tokens_per_second": spread(90.0)},
                                          {"prompt": 512, "generated": 0, "depth": 0, "tokens_per_second": spread(800.0)}]}}
    ways = {way: {"seconds": 1.0, "of_reading": 0.9, "of_peak": 0.3} for way in ("forth", "back")}
    told["products"] = [{"type": kind, "scales": scales, "from": where, "vectors": vectors, "bytes": 1000, "multiply_adds": 1000,
                         "read_seconds": 0.9, **ways}
                        for kind, scales in (("Q8_0", "tile"), ("Q8_0", "row"), ("Q6_K", None))
                        for where in ("L2", "L3", "memory") for vectors in (1, 4, 16)]
    told["targets"] = bench_targets.judge(told)
    return told


def test_targets_are_met(told):
    assert len(told["targets"]) == 19
    assert all(t["met"] for t in told["targets"]), [t for t in told["targets"] if not t["met"]]
    assert {t["wanted"] for t in told["targets"]} == {1.0, 2.0, 1.5, 1.3, 0.8, 0.7, 1.15, 100, 1.1, 0.9, 0.85, 0.75}


def test_products_are_held_against_reading(told):
    told["products"][0]["back"] = {"seconds": 1.0, "of_reading": 0.7, "of_peak": 0.3}  # Q8_0 tile from L2
    (missed,) = [t for t in bench_targets.judge(told) if not t["met"]]
    assert (missed["measured"], missed["wanted"]) == (0.7, 0.75) and "W^T u" in missed["target"] and "L2" in missed["target"]


def test_files_quantized_in_another_way_are_made_again(tmp_path):
    made = tmp_path / "m-q8_0.gguf"
    assert not bench_script.is_made(made, "q8_0")
    made.write_bytes(b"")
    assert not bench_script.is_made(made, "q8_0") and bench_script.is_made(made, "f16")
    made.with_suffix(".recipe").write_text(bench_script.recipe("q8_0"))
    assert bench_script.is_made(made, "q8_0")
    made.with_suffix(".recipe").write_text(bench_script.recipe("q8_0").replace("Q8_0", "Q4_0"))
    assert not bench_script.is_made(made, "q8_0")


def test_a_target_not_met_is_told_with_what_was_counted(told):
    told["pairs"][0]["ratio"] = 0.7
    told["ours"]["nrgpt-90m-q8_0"]["lines"][0]["work"]["limit_seconds"]["weights"] = 0.79
    told["ours"]["nrgpt-90m-q8_0"]["memory"]["ratio"] = 1.11
    told["ours"]["nrgpt-listops"]["lines"][0]["beside"]["without drafts"]["ratio"] = 0.8
    missed = {t["target"]: t for t in bench_targets.judge(told) if not t["met"]}
    assert len(missed) == 5  # tokens/s and multiply-adds/s of the pair, bandwidth, memory, drafts
    bandwidth = missed["decode: weight bytes/s over read bandwidth"]
    assert (bandwidth["measured"], bandwidth["counted"]["bytes"]["weights"]) == (0.79, int(5e9))
    assert "NOT met" in bench_targets.line(bandwidth) and ">= 0.8" in bench_targets.line(bandwidth)


def test_multiply_adds_of_the_peers_are_counted_by_their_shapes():
    blocks = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    assert bench_targets.peer_multiply_adds("gpt2-124m") == blocks + 50257 * 768 + 12 * 2 * 768 * 80
    assert bench_targets.peer_multiply_adds("llama-160m") == blocks + 12 * 768 * 3072 + 32000 * 768 + 12 * 2 * 768 * 80


def test_the_pair_is_counted_at_the_context_it_is_timed_at(told):
    """80, where llama-bench is on average: a decode line at 64 says what attention takes there."""
    (target,) = [t for t in bench_targets.judge(told) if t["target"] == "the same in counted multiply-adds/s"]
    ours = 290_000_000 + 14_000_000 * 80 / 64 + 38_600_000
    assert target["counted"]["ours_per_token"] == pytest.approx(ours)
    assert target["measured"] == pytest.approx(1.2 * ours / bench_targets.peer_multiply_adds("gpt2-124m"))


def test_the_readme_has_its_marks(told, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text((ROOT / "README.md").read_text())
    assert plot(told, tmp_path, "--readme", readme).returncode == 0
    assert "| NRGPT-90M, T 12 | Q8_0 | 100 |" in readme.read_text().split("## Speed")[1].split("\n## ")[0]


def plot(told, folder, *options):
    path = folder / "bench.json"
    path.write_text(told if isinstance(told, str) else json.dumps(told))
    return subprocess.run([sys.executable, ROOT / "tools" / "plot_bench.py", path, *map(str, options)], capture_output=True, text=True,
                          timeout=60)


def test_tables_and_picture(told, tmp_path):
    done = plot(told, tmp_path, "--svg", tmp_path / "bench.svg")
    assert done.returncode == 0, done.stderr
    assert "| NRGPT-90M, T 12 | Q8_0 | 100 | 80 |  | 700 | 900 |" in done.stdout
    assert "| GPT-2 124M, llama.cpp | Q8_0 | 90 |" in done.stdout and "x86-64 avx2 <fma>; 2 threads" in done.stdout
    assert done.stdout.count(" met |") == len(told["targets"])
    root = ElementTree.parse(tmp_path / "bench.svg").getroot()
    points = [(float(c.get("cx")), float(c.get("cy"))) for c in root.iter(SVG + "circle")]
    assert points == sorted(points) and [y for _, y in points] == sorted(y for _, y in points)  # deeper is slower, lower down
    heights = [float(r.get("height")) for r in root.iter(SVG + "rect") if r.find(SVG + "title") is not None]
    assert len(heights) == 4 and max(heights) == heights[2]  # the fastest is the CEM's
    assert any("x86-64" in (t.text or "") for t in root.iter(SVG + "text"))


def test_the_tables_go_between_the_marks(told, tmp_path):
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- bench -->\nold\n<!-- /bench -->\nafter\n")
    for _ in range(2):
        assert plot(told, tmp_path, "--readme", readme).returncode == 0
        text = readme.read_text()
        assert text.startswith("before\n<!-- bench -->\nMachine: ") and text.endswith("<!-- /bench -->\nafter\n") and "old" not in text
        assert text.count("NRGPT-90M T 12 Q8_0 decode") == 1
    readme.write_text("no marks\n")
    done = plot(told, tmp_path, "--readme", readme)
    assert done.returncode == 1 and "<!-- bench -->" in done.stderr and readme.read_text() == "no marks\n"


def test_the_table_of_products_goes_into_the_page(told, tmp_path):
    page = tmp_path / "bench.md"
    page.write_text((ROOT / "docs" / "bench.md").read_text())
    assert plot(told, tmp_path, "--page", page).returncode == 0
    table = page.read_text().split("<!-- products -->\n")[1].split("<!-- /products -->")[0].splitlines()
    assert len(table) == 2 + 9 and "16 vectors, of the peak" in table[0]
    told["products"][0]["forth"] = {"seconds": 1.0, "of_reading": 0.8, "of_peak": 0.3}
    assert plot(told, tmp_path, "--page", page).returncode == 0
    assert "| Q8_0 tile | L2 | 0 | 0.80, 0.90 | 0.30, 0.30 | 0.30, 0.30 |" in page.read_text()


def test_other_input_is_one_clear_line(told, tmp_path):
    half = copy.deepcopy(told)
    del half["theirs"]
    for text in ("", "[]", "{}", json.dumps(half)):
        done = plot(text, tmp_path)
        assert done.returncode == 1 and done.stdout == "" and done.stderr.startswith("plot_bench.py: ") and done.stderr.count("\n") == 1


def test_without_a_program_it_says_so(tmp_path):
    done = subprocess.run([sys.executable, ROOT / "tools" / "bench.py", "--work", tmp_path, "--descent", tmp_path / "none"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "none is not there" in done.stderr and done.stdout == "" and list(tmp_path.iterdir()) == []


# ---- Peers ------------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("name, kind, matrices", [("gpt2-124m", "q8_0", 1 + 2 * 4), ("llama-160m", "f16", 2 + 2 * 7)])
def test_a_peers_file_has_its_shape(name, kind, matrices, tmp_path, monkeypatch):
    monkeypatch.setattr(llama_models, "C", 32)
    monkeypatch.setattr(llama_models, "HIDDEN", 64)
    monkeypatch.setattr(llama_models, "LAYERS", 2)
    monkeypatch.setattr(llama_models, "HEADS", 2)
    counted = llama_models.write(name, kind, str(tmp_path / "peer.gguf"))
    reader = gguf.GGUFReader(tmp_path / "peer.gguf")
    tensors = {t.name: t for t in reader.tensors}
    assert sum(t.tensor_type.name == kind.upper() for t in reader.tensors) == matrices
    assert sum(int(t.n_elements) for t in reader.tensors) == counted
    vocab = llama_models.MODELS[name][3]
    assert list(tensors["token_embd.weight"].shape) == [32, vocab]
    architecture = llama_models.MODELS[name][0]
    assert reader.fields[f"{architecture}.block_count"].contents() == 2
    assert reader.fields["tokenizer.ggml.model"].contents() == "no_vocab"
    assert (tensors["blk.1.attn_norm.weight"].data == 1).all() and ("blk.0.ffn_gate.weight" in tensors) == (architecture == "llama")


def test_what_llama_bench_prints_is_read(tmp_path, monkeypatch):
    program = llama.program(tmp_path)
    program.parent.mkdir(parents=True)
    program.write_text("""#!/usr/bin/env python3
import json, os, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert options["-t"] == "2" and options["-o"] == "json" and "OMP_WAIT_POLICY" not in os.environ
print(json.dumps([{"n_prompt": int(options["-p"]), "n_gen": int(options["-n"]), "n_depth": int(d), "model_size": 7,
                   "model_n_params": 5, "samples_ts": [3.0, 1.0, 2.0]} for d in options["-d"].split(",")]))
""")
    program.chmod(0o755)
    monkeypatch.setenv("OMP_WAIT_POLICY", "passive")
    told = llama.time(tmp_path, "model.gguf", 2, prompts=(64, 512), generated=8, depths=(64, 1000), repeats=3)
    assert [(t["prompt"], t["generated"], t["depth"]) for t in told] == [(64, 0, 0), (512, 0, 0), (0, 8, 64), (0, 8, 1000)]
    assert all(t["tokens_per_second"] == {"median": 2.0, "least": 1.0, "most": 3.0} for t in told)
    assert llama.build(tmp_path) == program  # there already: nothing is fetched
