"""What `cmake --install` leaves: a program that starts, libraries other programs compile against, a manual that renders."""

import os
import re
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent
BUILD = Path(os.environ["DESCENT_BUILD_DIR"])
MODEL = SOURCE / "models/nrgpt-shakespeare.gguf"


def output(*command, **more):
    done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **more)
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    prefix = tmp_path_factory.mktemp("prefix")
    output("cmake", "--install", str(BUILD), "--prefix", str(prefix))
    return prefix


def test_the_tree_is_complete(prefix):
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    libraries = Path(next(file for file in files if file.endswith("libdescent.a"))).parent
    assert files == {
        "bin/descent",
        "include/descent.h",
        f"{libraries}/libdescent.a",
        f"{libraries}/libdescent.so",
        f"{libraries}/libdescent.so.0",
        f"{libraries}/libdescent.so.{version()}",
        f"{libraries}/pkgconfig/descent.pc",
        "share/man/man1/descent.1",
    }


def version():
    return re.search(r"project\(descent VERSION (\S+)", (SOURCE / "CMakeLists.txt").read_text())[1]


def test_the_program_runs_from_there(prefix):
    assert version() in output(str(prefix / "bin/descent"), "--version")
    assert "nrgpt" in output(str(prefix / "bin/descent"), "info", str(MODEL))


@pytest.mark.parametrize("static", [False, True])
def test_a_program_compiles_against_it(prefix, tmp_path, static):
    libraries = next(prefix.rglob("pkgconfig")).parent
    query = ["pkg-config", "--cflags", "--libs", "descent"] + (["--static"] if static else [])
    flags = output(*query, env={**os.environ, "PKG_CONFIG_PATH": str(libraries / "pkgconfig")}).split()
    if static:
        flags = [str(libraries / "libdescent.a") if flag == "-ldescent" else flag for flag in flags]
    client = str(tmp_path / "client")
    output("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", str(HERE / "client.c"), "-o", client, *flags)
    environment = {**os.environ, "LD_LIBRARY_PATH": "" if static else str(libraries)}
    assert output(client, str(MODEL), env=environment) == "nrgpt\n"


def test_exports_are_exactly_what_the_header_declares(prefix):
    header = re.sub(r"/\*.*?\*/", "", (prefix / "include/descent.h").read_text(), flags=re.S)
    declared = set(re.findall(r"^DESCENT_API\b[^;(]*?\b(descent_\w+)\(", header, flags=re.M))
    library = next(prefix.rglob("libdescent.so"))
    exported = {line.split()[-1] for line in output("nm", "-D", "--defined-only", str(library)).splitlines()}
    assert len(declared) > 40
    assert exported == declared


def test_the_header_compiles_alone(prefix, tmp_path):
    (tmp_path / "alone.c").write_text("#include <descent.h>\n")
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wstrict-prototypes", "-Werror", "-fsyntax-only"]
    output("cc", *flags, f"-I{prefix}/include", str(tmp_path / "alone.c"))


def test_the_manual_is_clean():
    assert output("mandoc", "-T", "lint", "-W", "warning", str(SOURCE / "docs/descent.1")) == ""


def test_the_manual_names_every_command_and_option():
    manual = re.sub(r".\x08", "", output("mandoc", "-T", "ascii", str(SOURCE / "docs/descent.1")))
    program = str(BUILD / "descent")
    commands = re.findall(r"^  (\w+) ", output(program, "--help"), flags=re.M)
    assert "run" in commands
    for command in commands:
        assert re.search(rf"^ *{command}$", manual, flags=re.M), command
        options = set(re.findall(r"^ .*?(--[a-z][a-z-]+)", output(program, command, "--help"), flags=re.M))
        assert "--help" in options
        missing = [option for option in options if not re.search(rf"{option}(?![a-z-])", manual)]
        assert not missing, f"{command} has {missing}"
