"""`descent bench MODEL`: every line with all its figures, and multiply-adds and bytes as counted here by hand. How fast
anything is is no test's affair."""
import json
import os
import subprocess
import sys

import pytest

from conftest import BINARY, ROOT

FAST = ("--quick", "--seconds", "0.001")
C = 64  # of every golden model

# name: (weights a token, attention a token and token seen, layers of history a token and token seen, head), by models.md
BY_HAND = {
    # T [ 2 H C^2 of queries and outputs + W1 and W2 both ways + R ]; T * 2 H C
    "nrgpt-ff2w": (6 * (2 * 2 * C * C + 4 * 256 * C + C * C), 6 * 2 * 2 * C, 6 * C, 65 * C),
    # R is a vector; W once forth and back
    "nrgpt-ff1-rms-diag-alpha": (4 * (2 * 2 * C * C + 2 * 256 * C), 4 * 2 * 2 * C, 4 * C, 65 * C),
    # W1 is C x C
    "nrgpt-ff2": (4 * (2 * 3 * C * C + 2 * C * C + 2 * 256 * C + C * C), 4 * 2 * 3 * C, 4 * C, 65 * C),
    # 2 layers, T 2x2: keys once and queries both ways each step; gate once and up both ways; P's U and V both ways each step
    "cem-shared-r8-silu": (2 * (C * C + 2 * (2 * C * C + 4 * 8 * C) + 96 * C + 2 * (2 * 96 * C + 4 * 8 * C)),
                           2 * 2 * (2 * C + 2 * C), 2 * 2 * 2 * C, 61 * C),
    # P is diagonal; the diagonal is scored and summed for each of 4 heads
    "cem-perhead-diag-gelu": (2 * (C * C + 2 * 2 * C * C + 96 * C + 2 * 2 * 96 * C), 2 * 2 * (2 * C + 4 * 2 * C), 2 * 2 * 2 * C,
                              61 * C),
    # 2 blocks of Q, K, V, O and the feed-forward
    "gpt": (2 * (4 * C * C + 2 * 256 * C), 2 * 2 * C, 2 * 2 * C, 65 * C),
}


def ordered(spread):
    assert 0 < spread["least"] <= spread["median"] <= spread["most"]


def line_of(told, what, **shape):
    (line,) = [x for x in told["lines"] if x["what"] == what and all(x[k] == v for k, v in shape.items())]
    return line


@pytest.mark.parametrize("name", BY_HAND)
def test_multiply_adds_are_those_of_the_formulas(name, golden, told):
    weights, attention, history, head = BY_HAND[name]
    said = told(golden(name), "--only", "decode,prefill", "--contexts", "10", "--batches", "1,3", *FAST)
    for batch in (1, 3):
        line = line_of(said, "decode", batch=batch)
        n = line["tokens"]
        assert n >= batch and n % batch == 0
        counted = line["work"]["multiply_adds"]
        assert (counted["weights"], counted["attention"], counted["head"]) == (n * weights, n * attention * 10, n * head)
        assert line["work"]["bytes"]["history"] == 4 * n * history * 10
    prompt = line_of(said, "prefill")
    n = prompt["tokens"] // 10
    counted = prompt["work"]["multiply_adds"]
    assert (counted["weights"], counted["attention"], counted["head"]) == (10 * n * weights, 55 * n * attention, n * head)
    keys = said["steps"] * {"nrgpt-ff2": 3}.get(name, 2) * C * C if name.startswith("nrgpt") else 0
    assert counted["saved_by_cheaper_form"] == 10 * n * keys


def test_a_strict_mask_sees_one_token_less(golden, told):
    line = line_of(told(golden("nrgpt-ff2w-strict"), "--only", "decode", "--contexts", "10", "--batches", "1", *FAST), "decode")
    assert line["work"]["multiply_adds"]["attention"] == line["row_steps"] * 2 * 2 * C * 9


def test_bytes_once_a_product_and_once_a_step(golden, told):
    line = line_of(told(golden("nrgpt-ff2w"), "--only", "decode", "--contexts", "10", "--batches", "4", *FAST), "decode", batch=4)
    passes, n = line["row_steps"] // 4, line["tokens"]
    assert passes * 4 == line["row_steps"] == 6 * n
    assert line["work"]["bytes"]["per_product"] == 4 * n * (6 * (2 * 2 * C * C + 4 * 256 * C + C * C) + 65 * C)
    assert line["work"]["bytes"]["weights"] == 4 * passes * (2 * C * C + 2 * 256 * C + C * C) + 4 * n // 4 * 65 * C


def test_padding_is_read_but_not_multiplied_with(tmp_path, told):
    model = tmp_path / "padded.gguf"
    subprocess.run([sys.executable, ROOT / "tools" / "generate_model.py", "nrgpt", model, "--type", "q8_0", "--tokenizer", "none",
                    "--width", "36", "--heads", "2", "--hidden", "72", "--vocab", "96", "--steps", "3"], check=True,
                   stdout=subprocess.DEVNULL, timeout=300)
    line = line_of(told(model, "--only", "decode", "--contexts", "8", "--batches", "1", *FAST), "decode")
    n, counted, read = line["tokens"], line["work"]["multiply_adds"], line["work"]["bytes"]
    assert counted["weights"] == n * 3 * (2 * 2 * 36 * 36 + 4 * 72 * 36 + 36 * 36) and counted["head"] == n * 96 * 36
    row, wide = 2 * 34, 3 * 34  # 36 numbers in 2 blocks of 32, 72 in 3
    assert read["weights"] == n * (3 * (2 * 36 * row + 72 * row + 36 * wide + 36 * row) + 96 * row)


def test_each_tensor_is_held_against_the_peak_of_its_type(tmp_path, golden, told):
    """Half of the feed-forward kept in F32, all else Q8_0: the compute limit is bytes over their peak and floats over theirs."""
    model = tmp_path / "mixed.gguf"
    subprocess.run([BINARY, "quantize", golden("nrgpt-ff2w"), model, "--type", "Q8_0", "--tensor", "blk.0.ffn_1.weight=F32"], check=True,
                   stdout=subprocess.DEVNULL, timeout=300)
    for path, floats in ((model, 2 * 256 * C), (golden("nrgpt-ff2w"), None)):
        said = told(path, "--only", "decode,prefill", "--contexts", "10", "--batches", "2", *FAST)
        for line in said["lines"]:
            counted, limits = line["work"]["multiply_adds"], line["work"]["limit_seconds"]
            of_bytes = counted["weights"] - 6 * line["tokens"] * floats + counted["head"] if floats else 0
            assert counted["of_bytes"] == of_bytes
            int8, f32 = (said["machine"][f"{kind}_multiply_adds_per_second"] for kind in ("int8", "f32"))
            rest = counted["weights"] + counted["head"] - of_bytes + counted["attention"]
            assert limits["compute"] == pytest.approx(of_bytes / int8 + rest / f32, rel=1e-4)
            saved = counted["saved_by_cheaper_form"] / (int8 if floats else f32)  # of the attention's matrices
            assert limits["compute_in_cheaper_form"] == pytest.approx(limits["compute"] - saved, rel=1e-4)


def test_threads_are_those_the_engine_takes(golden):
    """Without -t: as many as the process may use, for the model's work and the machine's peaks alike."""
    done = subprocess.run([BINARY, "bench", golden("gpt"), "--only", "prefill", "--contexts", "8", *FAST, "--json"], capture_output=True,
                          text=True, check=True, timeout=300, preexec_fn=lambda: os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}))
    assert json.loads(done.stdout)["machine"]["threads"] == 1


def test_every_line_has_its_figures(golden, told):
    said = told(golden("nrgpt-ff2w"), "--contexts", "12", "--batches", "1,2", *FAST, "--page-type", "f16")
    assert [x["what"] for x in said["lines"]] == ["prefill", "decode", "decode", "mixed", "sweep", "deepening", "latency", "drafts"]
    assert (said["steps"], said["page_type"], said["repeats"], said["model"]["family"]) == (6, "f16", 2, "nrgpt")
    machine = said["machine"]
    assert machine["threads"] == 1 and machine["int8_multiply_adds_per_second"] > 0 < machine["f32_multiply_adds_per_second"]
    assert machine["read"] and all(x["bytes"] > 0 < x["bytes_per_second"] for x in machine["read"])
    assert said["products"] == []  # for who asks
    for line in said["lines"]:
        ordered(line["seconds"])
        for beside in line["beside"].values():
            ordered(beside["seconds"])
            assert beside["ratio"] == pytest.approx(line["seconds"]["median"] / beside["seconds"]["median"], rel=1e-3)
        if line["what"] == "latency":
            continue
        ordered(line["tokens_per_second"])
        assert line["tokens_per_second"]["median"] == pytest.approx(line["tokens"] / line["seconds"]["median"], rel=1e-3)
        if line["what"] == "drafts":
            assert 0 <= line["accepted"] <= line["drafted"] and list(line["beside"]) == ["without drafts"]
            continue
        work = line["work"]
        limits = work["limit_seconds"]
        assert 0 < limits["weights"] <= limits["memory"] and 0 < limits["compute_in_cheaper_form"] <= limits["compute"]
        assert line["fraction_of_limit"] == pytest.approx(max(limits["memory"], limits["compute"]) / line["seconds"]["median"],
                                                          rel=1e-3)
        counted = work["multiply_adds"]
        assert line["multiply_adds_per_second"] == pytest.approx(
            (counted["weights"] + counted["attention"] + counted["head"]) / line["seconds"]["median"], rel=1e-3)
    assert line_of(said, "mixed")["steps"] == [3, 6, 12] and line_of(said, "deepening")["steps"] == [6, 12]
    assert line_of(said, "sweep")["row_steps"] == 32 * 12
    assert line_of(said, "sweep")["work"]["multiply_adds"]["head"] == 32 * 12 * 65 * C
    assert list(line_of(said, "sweep")["beside"]) == ["steps and heads", "steps alone"]
    assert line_of(said, "deepening")["row_steps"] == 6 * 12
    memory = said["memory"]
    assert memory["file_bytes"] == golden("nrgpt-ff2w").stat().st_size and memory["cache_bytes"] > 0
    assert memory["ratio"] == pytest.approx(memory["resident_bytes"] / (memory["file_bytes"] + memory["cache_bytes"]), rel=1e-3)


def test_products_of_every_type(golden, told):
    """Asked for, and alone. Their bytes are those of the type, and shares follow from the seconds."""
    said = told(golden("gpt"), "--only", "products", *FAST)
    assert said["lines"] == [] and said["memory"] is None
    found = {(p["type"], p["scales"], p["vectors"]): p for p in said["products"]}
    bits = {("Q8_0", "tile"): 8.03, ("Q8_0", "row"): 8.5, ("Q4_0", "tile"): 4.03, ("Q4_0", "row"): 4.5, ("Q4_K", None): 4.5,
            ("Q6_K", None): 6.56, ("F16", None): 16, ("BF16", None): 16, ("F32", None): 32}
    assert set(found) == {(*layout, vectors) for layout in bits for vectors in (1, 4, 16)}
    for (kind, scales, vectors), p in found.items():
        assert p["from"] == "L2" and 8 * p["bytes"] * vectors / p["multiply_adds"] == pytest.approx(bits[kind, scales], rel=0.1)
        peak = said["machine"][("f32" if kind in ("F16", "BF16", "F32") else "int8") + "_multiply_adds_per_second"]
        for way in (p["forth"], p["back"]):
            assert way["seconds"] > 0 < p["read_seconds"]
            assert way["of_reading"] == pytest.approx(p["read_seconds"] / way["seconds"], rel=1e-3)
            assert way["of_peak"] == pytest.approx(p["multiply_adds"] / way["seconds"] / peak, rel=1e-3)


def test_products_for_people(golden, bench):
    done = bench(golden("gpt"), "--only", "products,prefill", "--contexts", "8", *FAST)
    assert done.returncode == 0, done.stderr
    shown = [line.split() for line in done.stdout.splitlines()]
    assert [line[:2] for line in shown if line and line[0].startswith(("Q", "F", "BF"))] == [
        ["Q8_0", "tile"], ["Q8_0", "row"], ["Q4_0", "tile"], ["Q4_0", "row"], ["Q4_K", "L2"], ["Q6_K", "L2"], ["F16", "L2"], ["BF16", "L2"],
        ["F32", "L2"]]
    assert any(line and line[0] == "prefill" for line in shown)


def test_a_prompt_takes_memory_for_few_rows_at_a_time(tmp_path, told):
    """What it takes beside the cache is that of a tile, which one of 200 tokens has no more of than one of 40: here a row of a
    tile has some 100 KB."""
    model = tmp_path / "wide.gguf"
    subprocess.run([sys.executable, ROOT / "tools" / "generate_model.py", "nrgpt", model, "--type", "q8_0", "--tokenizer", "none",
                    "--width", "64", "--heads", "1", "--hidden", "8192", "--vocab", "96", "--steps", "1", "--context", "256"], check=True,
                   stdout=subprocess.DEVNULL, timeout=300)

    def beside_cache(context):
        memory = told(model, "--only", "memory", "--contexts", str(context), *FAST)["memory"]
        return memory["resident_bytes"] - memory["cache_bytes"]

    assert beside_cache(200) - beside_cache(40) < 4e6


def test_what_a_model_cannot_do_is_left_out(golden, told):
    def lines(name):
        return [x["what"] for x in told(golden(name), "--contexts", "8", "--batches", "2", *FAST)["lines"]]

    assert lines("cem-shared-eta3") == ["prefill", "decode", "mixed", "latency"]
    assert lines("gpt") == ["prefill", "decode"]


def test_mixed_depths_each_have_their_cost(golden, told):
    line = line_of(told(golden("nrgpt-ff2w"), "-T", "4", "--only", "mixed", "--contexts", "8", "--batches", "3", *FAST), "mixed")
    assert line["steps"] == [2, 4, 8]
    work, steps = line["work"]["multiply_adds"], line["row_steps"]
    assert work["weights"] == steps * (2 * 2 * C * C + 4 * 256 * C + C * C) and work["attention"] == steps * 2 * 2 * C * 8


def test_contexts_end_where_the_models_does(golden, told):
    said = told(golden("nrgpt-ff2w"), "--only", "prefill", "--contexts", "8,512,1024", *FAST)
    assert [x["context"] for x in said["lines"]] == [8, 32]


def test_a_table_for_people(golden, bench):
    done = bench(golden("nrgpt-ff2w"), "--contexts", "8", *FAST)
    assert done.returncode == 0, done.stderr
    for word in ("decode", "2 repetitions", "machine: ", "1..32", "3,6,12", "steps and heads", "resident "):
        assert word in done.stdout


def test_what_is_wrong_is_said(golden, bench):
    model = golden("nrgpt-ff2w")
    for arguments, code, said in ([(model, "--only", "decode,speed"), 2, "speed"], [(model, "--contexts", "0"), 2, "--contexts"],
                                  [(model, "--batches", "1,,2"), 2, "--batches"], [(model, "-T", "0"), 2, "0"],
                                  [(model, "--batches", "64", "--chunk", "8"), 2, "--chunk"], [("none.gguf",), 1, "none.gguf"],
                                  [(golden("gpt"), "-T", "3"), 2, "3"], [(), 2, "MODEL"]):
        done = bench(*arguments)
        assert (done.returncode, done.stdout) == (code, ""), (arguments, done)
        assert said in done.stderr and done.stderr.count("\n") <= 2


def test_no_memory_for_the_histories(golden, bench):
    done = bench(golden("nrgpt-ff2w"), "--only", "decode", "--contexts", "32", "--batches", "16", "--cache-bytes", "100K", *FAST)
    assert done.returncode == 1 and "texts of 32 tokens" in done.stderr and done.stdout == ""
