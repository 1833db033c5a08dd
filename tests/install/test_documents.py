"""The documents: what they link to and name is there, and the commands they show take the options they are shown with."""
import os
import re
from pathlib import Path

import pytest
from test_install import BUILD, SOURCE, output

DOCUMENTS = [SOURCE / name for name in ("README.md", "SECURITY.md", "CHANGELOG.md", "tools/python/README.md")] + [
    path for folder in ("docs", "models") for path in sorted((SOURCE / folder).rglob("*.md"))]
OTHERS = {"--build", "--install", "--prefix", "--entrypoint", "--cpus", "--memory", "--stop-timeout", "--profile", "--read-only",
          "--no-deps"}  # of cmake, docker and pip
MADE = {"docker/keys"}  # by who follows the document
named = pytest.mark.parametrize("document", [pytest.param(path, id=str(path.relative_to(SOURCE))) for path in DOCUMENTS])


@pytest.fixture(scope="module")
def options():
    """{command of the program: its options}."""
    program = str(BUILD / "descent")
    commands = re.findall(r"^  (\w+) ", output(program, "--help"), flags=re.M) + ["bench serve"]
    assert {"serve", "run", "scale"} <= set(commands)
    return {command: set(re.findall(r"^ .*?(--[a-z][a-z-]+)", output(program, *command.split(), "--help"), flags=re.M))
            for command in commands}


@pytest.fixture(scope="module")
def known(options):
    """Every option of the program and of the scripts."""
    scripts = [path.read_text() for path in (SOURCE / "tools").rglob("*.py")] + [
        (SOURCE / "tools" / name).read_text() for name in ("setup.sh", "test.sh")]
    return OTHERS.union(*options.values(), *(re.findall(r"[\"' ](--[a-z][a-z0-9-]+)\b", text) for text in scripts))


def lines_of(text):
    """Lines of commands, those that go on joined to what they go on with."""
    joined = re.sub(r"(\\|\|)\n\s+", r"\1 ", text)
    return [line[4:].split(" #")[0] for line in joined.splitlines() if line.startswith("    ")]


@named
def test_what_it_names_is_there(document, known):
    text = document.read_text()
    for link in re.findall(r"\]\(([^)#\s]+)", text):
        assert link.startswith("https://") or (document.parent / link).exists(), link
    for path in re.findall(r"`((?:docker|docs|engine|models|server|tests|tools)/[\w./-]+)`", text):
        assert path in MADE or (SOURCE / path).exists() or (SOURCE / f"{path}.gguf").exists(), path
    assert not set(re.findall(r"`(--[a-z][a-z0-9-]*)", text)) - known


@named
def test_commands_take_what_they_are_shown_with(document, options):
    for line in lines_of(document.read_text()):
        for part in re.split(r"\||;|&&|> ", line):
            command = re.search(r"(?:^|[\s/])descent (bench serve|\w+)\b(.*)", part)
            if command and command[1] in options:
                assert set(re.findall(r"(--[a-z][a-z-]+)", command[2])) <= options[command[1]], line
            for path in re.findall(r"(?<![\w/])(?:models|tools)/[\w./-]+\.\w+", part):
                assert (SOURCE / path).exists(), line
            script = re.match(r"\s*(tools/\S+)", part)
            assert not script or os.access(SOURCE / script[1], os.X_OK), f"{line}: not executable"
