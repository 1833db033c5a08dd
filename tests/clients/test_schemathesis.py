"""schemathesis, its program as it is, against /openapi.json of a running server: no failure. The model takes every form of
request (a T for each sub-layer, a BOS, a chat template) and has the names that the document's examples use, one a server, so
that requests without a model mean it."""
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
QUICK = ("--phases", "examples,fuzzing,stateful", "--max-examples", "5")  # not every value at every field's bounds
LONG = ("--max-examples", "50")
OTHERS = ("--include-path", "/v1/chat/completions", "--include-path", "/tokenize")


@pytest.mark.parametrize("name, how", [
    pytest.param("nrgpt-shakespeare", QUICK, id="quick"),
    pytest.param("nrgpt-shakespeare", LONG, id="long", marks=pytest.mark.slow),
    pytest.param("cem-kjv", (*LONG, *OTHERS), id="other-names", marks=pytest.mark.slow)])
def test_no_failure(tmp_path, chat_models, serve, name, how):
    server = serve([f"{name}={chat_models['llama2']}"], "--request-time", "1")
    env = {**os.environ, "SCHEMATHESIS_HOOKS": "schemathesis_checks", "PYTHONPATH": str(HERE)}
    command = [Path(sys.executable).with_name("schemathesis"), "run", server.url + "/openapi.json", "--no-color",
               "--generation-deterministic", "--exclude-checks", "positive_data_acceptance", "--request-timeout", "60", *how]
    done = subprocess.run(command, cwd=tmp_path, env=env, text=True, timeout=550, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout[-12000:]
    assert re.search(r"([1-9][0-9]+) generated, \1 passed", done.stdout), done.stdout[-3000:]
    server.idle()
