"""The page of server/web: its build gives the bytes that are committed, and what it does in chromium. The files *.test.mjs run under
Node's runner, side by side, since what they do most is wait."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tools")]

from descent_generate import cli as generate  # noqa: E402
from serving import Server  # noqa: E402

SOURCES = ROOT / "server" / "web"
KEY = "right-key"


def test_the_committed_bytes_are_those_of_a_build(tmp_path):
    done = subprocess.run(["node", SOURCES / "build.mjs", tmp_path], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    committed = {path.name: path.read_bytes() for path in (SOURCES / "dist").iterdir()}
    assert set(built) == set(committed) == {"index.html", "app.js", "app.css"}
    for name, data in built.items():
        assert data == committed[name], f"{name} is not what `npm ci && npm run build` in server/web writes"
    assert sum(map(len, built.values())) < 250_000


def test_versions_are_pinned():
    """What package.json names is one version, and the lock has it with its digest."""
    import json
    for folder in (SOURCES, HERE):
        named = json.loads((folder / "package.json").read_text())
        locked = json.loads((folder / "package-lock.json").read_text())["packages"]
        for name, version in {**named["dependencies"], **named.get("devDependencies", {})}.items():
            assert re.fullmatch(r"\d+\.\d+\.\d+", version), (name, version)
            assert locked[f"node_modules/{name}"]["version"] == version and locked[f"node_modules/{name}"]["integrity"], name


@pytest.fixture(scope="module")
def long(tmp_path_factory):
    """A model with room for a text of 2,000 tokens, whose tokenizer takes any text."""
    path = tmp_path_factory.mktemp("models") / "long.gguf"
    assert generate.main(["nrgpt", str(path), "--width", "32", "--heads", "2", "--hidden", "64", "--vocab", "600", "--context", "2048",
                          "--steps", "3", "--chat-template", "chatml"]) == 0
    return path


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    """A model without energy and without T."""
    path = tmp_path_factory.mktemp("models") / "gpt.gguf"
    assert generate.main(["gpt", str(path), "--width", "32", "--heads", "2", "--hidden", "64", "--vocab", "600", "--context", "128"]) == 0
    return path


@pytest.fixture(scope="module")
def servers(long, gpt, tmp_path_factory):
    """Addresses of servers, as the environment of the tests."""
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(KEY + "\n")
    shipped = [ROOT / "models" / f"{name}.gguf" for name in ("nrgpt-shakespeare", "cem-kjv")]
    with Server([*shipped, long, gpt]) as every, Server([*shipped, long]) as quiet, Server([shipped[0]], "--api-key-file", keys) as keyed:
        yield {"DESCENT_URL": every.url, "DESCENT_URL_QUIET": quiet.url, "DESCENT_URL_KEYED": keyed.url}


@pytest.fixture
def doomed(long):
    """A server that a test kills while it streams."""
    server = Server([long])
    yield server
    server.kill()


def test_page(servers, doomed):
    chromium = shutil.which("chromium")
    assert chromium, "chromium is missing: tools/setup.sh --tests installs it"
    told = {**servers, "DESCENT_URL_DOOMED": doomed.url, "DESCENT_PID_DOOMED": str(doomed.process.pid), "DESCENT_CHROMIUM": chromium}
    environment = {name: value for name, value in os.environ.items() if name != "NODE_TEST_CONTEXT"}
    command = ["node", "--test", "--test-reporter=tap", "--test-concurrency=3", *sorted(HERE.glob("*.test.mjs"))]
    done = subprocess.run(command, cwd=HERE, env={**environment, **told}, text=True, encoding="utf-8", timeout=500,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    assert done.returncode == 0, "\n".join(re.findall(r"^not ok .*?^  \.\.\.$", done.stdout, re.M | re.S)) or done.stdout[-12000:]
    counts = {name: int(number) for name, number in re.findall(r"^# (tests|pass|fail|skipped|todo) (\d+)$", done.stdout, re.M)}
    assert counts["pass"] == counts["tests"] >= 61 and counts["skipped"] == counts["todo"] == 0, done.stdout[-12000:]
