"""Checkpoints in several .safetensors files: the same model as from one; an index and files that contradict each other."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import save_file

import checkpoints
from checkpoints import cem_config, cem_state
from descent_convert import shards

CONFIG = cem_config()
INDEX = "model.safetensors.index.json"


def write(path, state, places, config=CONFIG, files=None):
    """`places`: tensor to file, the index; `files`: file to tensors, what the places say by default."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    (path / INDEX).write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": places}))
    for file in set(places.values()) if files is None else files:
        names = [n for n in places if places[n] == file] if files is None else files[file]
        save_file({n: np.ascontiguousarray(state[n]) for n in names}, path / file)
    return path


def spread(state, count):
    """Tensors dealt to files in turn."""
    return {name: f"model-{i % count + 1:05}-of-{count:05}.safetensors" for i, name in enumerate(state)}


@pytest.mark.parametrize("count", [1, 2, 5])
def test_the_same_bytes_as_from_one_file(count, good, tmp_path):
    state = cem_state(CONFIG)
    whole = good(checkpoints.write_directory(tmp_path / "whole", state, CONFIG), "--name", "x").read_bytes()
    path = write(tmp_path / "parts", state, spread(state, count))
    assert good(path, "--name", "x").read_bytes() == whole
    assert good(path / INDEX, "--name", "x").read_bytes() == whole


def test_index_and_files_must_agree(refused, tmp_path):
    state = cem_state(CONFIG)
    places = spread(state, 2)
    first, second = sorted(set(places.values()))
    name = next(n for n in places if places[n] == first)
    files = {file: [n for n in places if places[n] == file] for file in (first, second)}
    path = tmp_path / "in"
    refused(write(path, state, places, files={**files, second: files[second] + [name]}), second, name, first)
    refused(write(path, state, places, files={**files, first: files[first][1:]}), INDEX, name, "is not in", first)
    more = {**state, "extra": np.zeros(3, np.float32)}
    refused(write(path, more, places, files={**files, first: files[first] + ["extra"]}), "holds 'extra'", "nothing")
    refused(write(path, more, {**places, "extra": first}), "'extra' is not part")
    refused(write(path, state, {**places, name: second}, files=files), name)
    write(path, state, places)
    os.remove(path / second)
    refused(path, second, "No such file")
    os.mkfifo(path / second)
    refused(path, "not an ordinary file")


@pytest.mark.parametrize("place", ["../x.safetensors", "/x.safetensors", "a/x.safetensors", "x.bin", "", "..", 3, None, ["x"]])
def test_files_lie_beside_the_index(place, refused, tmp_path):
    state = cem_state(CONFIG)
    path = write(tmp_path / "in", state, spread(state, 1))
    places = {**spread(state, 1), "embed.weight": place}
    (path / INDEX).write_text(json.dumps({"weight_map": places}))
    refused(path, "embed.weight", "beside the index")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"weight_map": 3}', '{"weight_map": {}}', '{"weight_map": {"a": "b", "a": "b"}}',
                                  "nonsense", '{"weight_map": ' + "[" * 100000])
def test_an_index_that_is_none(text, refused, tmp_path):
    state = cem_state(CONFIG)
    path = write(tmp_path / "in", state, spread(state, 1))
    (path / INDEX).write_text(text)
    refused(path, INDEX)


def test_bounds(refused, tmp_path, monkeypatch):
    state = cem_state(CONFIG)
    path = write(tmp_path / "in", state, spread(state, 3))
    monkeypatch.setattr(shards, "MAX_FILES", 2)
    refused(path, "3 files", "at most 2")
    monkeypatch.setattr(shards, "MAX_INDEX", 20)
    refused(path, "at most 20")


def test_no_file_of_the_checkpoint_is_written_over(convert, tmp_path):
    state = cem_state(CONFIG)
    path = write(tmp_path / "in", state, spread(state, 2))
    for file in path.glob("*.safetensors*"):
        before = file.read_bytes()
        result = convert(path, file)
        assert result.status == 1 and "checkpoint itself" in result.err
        assert file.read_bytes() == before


def test_one_checkpoint_a_directory(refused, tmp_path):
    state = cem_state(CONFIG)
    path = write(tmp_path / "in", state, spread(state, 2))
    save_file(state, path / "model.safetensors")
    refused(path, "more than one", INDEX)
