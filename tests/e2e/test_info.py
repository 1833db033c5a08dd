"""descent info against what the public gguf package reads from the same file."""
import json

import gguf
import pytest


@pytest.fixture(params=["nrgpt-shakespeare", "nrgpt-listops", "cem-kjv"])
def model(request, shipped):
    return shipped(request.param)


def info(descent, *arguments):
    result = descent("info", *arguments, "--json")
    assert result.code == 0 and result.err == ""
    return json.loads(result.text)


def test_json_agrees_with_the_gguf_package(descent, model):
    shown, read = info(descent, model), gguf.GGUFReader(model)
    assert [(t["name"], t["shape"], t["bytes"], t["type"]) for t in shown["tensors"]] == [
        (t.name, [int(d) for d in t.shape], int(t.n_bytes), t.tensor_type.name) for t in read.tensors]
    assert shown["parameters"] == sum(int(t.n_elements) for t in read.tensors)
    keys = [key for key in read.fields if not key.startswith("GGUF.")]
    assert list(shown["metadata"]) == keys
    for key in keys:
        value = read.fields[key].contents()
        if isinstance(value, str):
            assert shown["metadata"][key] == value
        elif isinstance(value, int) and not isinstance(value, bool):
            assert shown["metadata"][key] == str(value)
    assert shown["memory"]["file_bytes"] == model.stat().st_size
    assert shown["family"] == read.fields["general.architecture"].contents()


def test_text_says_the_same_as_json(descent, model):
    shown, text = info(descent, model), descent("info", model).text
    for tensor in shown["tensors"]:
        assert any(tensor["name"] in line and str(tensor["bytes"]) in line for line in text.splitlines())
    for key in shown["metadata"]:
        assert f"  {key} = " in text
    for word in (shown["family"], shown["variant"], str(shown["parameters"]), shown["isa"], shown["fingerprint"]):
        assert word in text


def test_depth_of_both_kinds(descent, shipped):
    assert info(descent, shipped("cem-kjv"))["trained_steps"] == {"attention": 2, "mlp": 2}
    assert info(descent, shipped("nrgpt-listops"))["trained_steps"] == {"block": 5}
    asked = info(descent, shipped("cem-kjv"), "--steps", "3x1")
    assert asked["memory"]["steps"] == {"attention": 3, "mlp": 1}


def test_products(descent, shipped, monkeypatch):
    """A line for each type the model's tensors have and one for the pages: of the instruction set in use."""
    model = shipped("nrgpt-shakespeare")

    def products(*options):
        return {(p["of"], p["type"]): p["arithmetic"] for p in info(descent, model, *options)["products"]}

    monkeypatch.setenv("DESCENT_ISA", "portable")
    assert products() == {("weights", "F32"): "f32, 4 lanes", ("history", "f32"): "f32, 4 lanes"}
    assert set(products("--page-type", "q8")) == {("weights", "F32"), ("history", "q8")}
    assert "f32, 4 lanes" in descent("info", model).text


def test_memory_of_histories(descent, shipped):
    """A plane of NRGPT is C numbers a token: doubling T or halving the page type shows in exactly those bytes."""
    model = shipped("nrgpt-shakespeare")

    def history(*arguments):
        return info(descent, model, *arguments)["memory"]["history_bytes"]

    shape = info(descent, model)
    plane = 4 * shape["width"] * shape["context"]
    assert history("--steps", "8") - history("--steps", "4") == 4 * plane
    assert history("--steps", "8") - history("--steps", "8", "--page-type", "f16") == 8 * plane // 2
    plain = history("--steps", "8", "--page-type", "f32")
    assert plain - history("--steps", "8", "--page-type", "bf16") == 8 * plane // 2
    assert plain - history("--steps", "8", "--page-type", "q8") == 8 * (plane - plane // 4 - plane // 32)
    assert history("--context", "1") < history("--context", str(shape["context"]))


def test_context_beyond_the_model(descent, shipped):
    context = info(descent, shipped("nrgpt-listops"))["context"]
    result = descent("info", shipped("nrgpt-listops"), "--context", str(context + 1))
    assert result.code == 2 and str(context) in result.err and str(context + 1) in result.err


def test_model_without_tokenizer(descent, made):
    assert info(descent, made["bare"].path)["tokenizer"] is None
    assert "none" in descent("info", made["bare"].path).text


def test_metadata_cannot_drive_the_terminal(descent, made):
    text = descent("info", made["bell"].path).text
    assert "\x1b" not in text
    assert "general.description = red \\x1b[31m\\nsecond line" in text


@pytest.mark.parametrize("kind", ["missing", "directory", "empty", "text", "cut"])
def test_files_that_are_no_models(descent, made, tmp_path, kind):
    path = tmp_path / "file"
    if kind == "directory":
        path.mkdir()
    elif kind == "empty":
        path.touch()
    elif kind == "text":
        path.write_text("Once upon a time")
    elif kind == "cut":
        whole = made["chars"].path.read_bytes()
        path.write_bytes(whole[:len(whole) // 2])
    for arguments in (["info", path], ["info", path, "--json"], ["run", path, "a"], ["eval", path, "--file", __file__]):
        result = descent(*arguments)
        assert result.code == 1 and result.out == b""
        assert result.err.startswith("descent: ") and str(path) in result.err and result.err.count("\n") == 1
