"""The Node clients, unmodified, each its own file of tests under Node's runner (NAME.test.mjs), against servers of its own."""
import os
import re
import subprocess
from pathlib import Path

import pytest
from serving import Server

HERE = Path(__file__).parent


def environment():
    """Without what would have a client speak to someone else: keys, addresses and tracing of a developer's own."""
    theirs = ("OPENAI_", "LANGCHAIN_", "LANGSMITH_", "AI_GATEWAY_")
    return {name: value for name, value in os.environ.items() if not name.startswith(theirs) and name != "NODE_TEST_CONTEXT"}


@pytest.fixture(scope="module")
def keyed(chat_models, tmp_path_factory):
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text("right-key\n")
    with Server([chat_models["plain"]], "--api-key-file", keys) as server:
        yield server


@pytest.fixture(scope="module")
def full(chat_models):
    with Server([chat_models["plain"]], "--max-queue", 1, "--max-running", 1, "--max-body", "100000") as server:
        yield server


@pytest.mark.parametrize("client", ["openai", "ai", "langchain"])
def test_client(server, keyed, full, client):
    urls = {"DESCENT_URL": server.url, "DESCENT_URL_KEYED": keyed.url, "DESCENT_URL_FULL": full.url}
    command = ["node", "--test", "--test-reporter=tap", HERE / f"{client}.test.mjs"]
    done = subprocess.run(command, cwd=HERE, env={**environment(), **urls}, text=True, encoding="utf-8", timeout=300,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, done.stdout[-12000:]
    counts = {name: int(number) for name, number in re.findall(r"^# (tests|pass|fail|skipped|todo) (\d+)$", done.stdout, re.M)}
    assert counts["pass"] == counts["tests"] >= 9 and counts["skipped"] == counts["todo"] == 0, done.stdout[-12000:]

