"""docker/: what the image is built from is there and is enough, what it installs is what the program is linked with, and whatever
starts the server (image, compose, Kubernetes) says what `descent serve` takes, within the memory and the time it gives. No image
is built."""
import fnmatch
import json
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from test_install import BUILD, SOURCE, output

DOCKER = SOURCE / "docker"
SIZES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}


def instructions():
    """[(stage, name, what follows)] of the Dockerfile; a stage is a number."""
    text = re.sub(r"^\s*#.*\n", "", (DOCKER / "Dockerfile").read_text(), flags=re.M)
    stage, found = -1, []
    for line in re.sub(r"\\\n\s*", "", text).splitlines():
        if line:
            name, rest = line.split(maxsplit=1)
            stage += name == "FROM"
            found.append((stage, name, rest))
    return found


def only(name):
    """The last instruction of that name: the one that counts."""
    return [rest for _, instruction, rest in instructions() if instruction == name][-1]


def matches(pattern, path):
    """As .dockerignore means it: a pattern names a file or a folder, * stays within a name, **/ is any folder."""
    anywhere = pattern.startswith("**/")
    wanted, parts = pattern.removeprefix("**/").split("/"), path.split("/")
    starts = range(len(parts)) if anywhere else [0]
    return any(len(parts) - at >= len(wanted) and all(map(fnmatch.fnmatchcase, parts[at:], wanted)) for at in starts)


def goes_in(path):
    """A file of the checkout is given to the build."""
    given = True
    for line in (SOURCE / ".dockerignore").read_text().splitlines():
        if line and line[0] != "#" and matches(line.removeprefix("!"), path):
            given = line[0] == "!"
    return given


@pytest.fixture(scope="module")
def context():
    """Paths of the files that a build is given of this checkout."""
    tops = {line[1:].split("/")[0] for line in (SOURCE / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    files = [SOURCE / top for top in tops] + [path for top in tops for path in (SOURCE / top).rglob("*")]
    return [path for path in (str(file.relative_to(SOURCE)) for file in files if file.is_file()) if goes_in(path)]


@pytest.fixture(scope="module")
def options():
    """{option: its default or None} of `descent serve`."""
    told = re.sub(r"\n {10,}", " ", output(str(BUILD / "descent"), "serve", "--help"))
    return {m[1]: m[2] for m in re.finditer(r"^ .*?(--[a-z-]+)(?:.*default ([^)]+)\))?", told, flags=re.M)}


def test_what_is_built_from_is_enough(context, tmp_path):
    """cmake, with what the Dockerfile says, finds every file that it would compile or install."""
    assert not any(map(goes_in, ("tests/CMakeLists.txt", "build/release/descent", ".git/config", ".venv/pyvenv.cfg", "docs/train.md",
                                 "server/web/node_modules/preact/package.json", "tools/train/__pycache__/a.pyc")))
    for path in context:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(SOURCE / path, tmp_path / path)
    configure, build, install = next(
        rest for stage, name, rest in instructions() if (stage, name) == (0, "RUN") and "cmake" in rest).split(" && ")
    output(*configure.split(), cwd=tmp_path)
    output(*build.split(), "--", "-n", cwd=tmp_path)
    told = (tmp_path / "build/release/cmake_install.cmake").read_text()
    for path in re.findall(rf'"{re.escape(str(tmp_path))}/([^"$]+)"', told):
        assert (tmp_path / path).exists(), path
    prefix = re.search(r"--prefix (\S+)", install)[1]
    assert any(rest.startswith(f"--from=build {prefix}/bin/descent ") for _, name, rest in instructions() if name == "COPY")


def test_what_is_copied_exists(context):
    """Each source of a COPY is there for it, and each script that is run."""
    for stage, name, rest in instructions():
        if name == "COPY" and not rest.startswith("--from"):
            for source in rest.split()[:-1]:
                assert source == "." or any(fnmatch.fnmatchcase(path, source) for path in context), source
        if (stage, name) == (0, "RUN") and rest.startswith("tools/"):
            assert rest.split()[0] in context and (SOURCE / rest.split()[0]).stat().st_mode & 0o111


def test_libraries_are_those_of_the_program():
    """No more and no fewer packages than the program is linked with; libc is everywhere."""
    needed = re.findall(r"\(NEEDED\).*\[(\S+)\]", output("readelf", "-d", str(BUILD / "descent")))
    packages = {line.split(":")[0] for name in needed
                for line in output("dpkg", "-S", f"*-linux-gnu/{name}").splitlines()}
    installed = re.search(r"--no-install-recommends (.*?) &&", only("RUN"))[1].split()
    clang = {"libomp5-14": "libgomp1"}
    assert set(installed) == {clang.get(package, package) for package in packages} - {"libc6"}


def arguments_of(words):
    """(options, models) of words behind `descent serve`; an option and its value may be two words."""
    taken, models, words = {}, [], list(words)
    while words:
        word = words.pop(0)
        if not word.startswith("-"):
            models.append(word)
        else:
            name, _, value = word.partition("=")
            taken[name] = value or words.pop(0)
    return taken, models


def image():
    entry = json.loads(only("ENTRYPOINT"))
    assert entry[:2] == ["descent", "serve"]
    return entry[2:], json.loads(only("CMD"))


def compose(*names):
    """The service `server` of compose files, a later one's entries over those of earlier ones."""
    service = {}
    for name in names:
        service |= yaml.safe_load((DOCKER / name).read_text())["services"]["server"]
    return service


def objects():
    """{kind: object} of Kubernetes."""
    return {one["kind"]: one for one in yaml.safe_load_all((DOCKER / "kubernetes.yaml").read_text())}


def pod():
    return objects()["Deployment"]["spec"]["template"]["spec"]


def commands():
    entry, models = image()
    yield "image", entry + models
    yield "compose with keys", entry + compose("compose.yaml", "keys.yaml")["command"]
    yield "kubernetes", entry + pod()["containers"][0]["args"]


@pytest.mark.parametrize("words", [pytest.param(words, id=name) for name, words in commands()])
def test_options_and_models_are_there(words, options, context):
    taken, models = arguments_of(words)
    assert taken.keys() <= options.keys()
    assert models and all(f"models/{name}" in context for name in models)


def size(text):
    number, unit = re.fullmatch(r"(\d+)([kmg]?)i?b?", str(text).lower()).groups()
    return int(number) * SIZES[unit]


def seconds(text):
    return int(re.fullmatch(r"(\d+)s?", str(text))[1])


def test_memory_and_time_are_enough(options):
    """There is a limit of memory, of which the caches take half, and nobody is killed who still drains."""
    drain = sum(float(options[name]) for name in ("--drain-delay", "--drain"))
    for names in (["compose.yaml"], ["compose.yaml", "keys.yaml"]):
        service = compose(*names)
        assert "--cache-bytes" not in arguments_of(service.get("command", []))[0] and size(service["mem_limit"]) >= 2**30
        assert seconds(service["stop_grace_period"]) > drain
        assert service["ulimits"]["nofile"] > int(options["--max-connections"])
    server = pod()["containers"][0]
    assert "--cache-bytes" not in arguments_of(server["args"])[0] and size(server["resources"]["limits"]["memory"]) >= 2**30
    assert pod()["terminationGracePeriodSeconds"] > drain


def test_nobody_is_root_and_nothing_is_written():
    user, group = only("USER").split(":")
    assert int(user) > 0 and int(group) > 0 and f"--uid {user} --gid {group}" in only("RUN")
    for service in yaml.safe_load((DOCKER / "compose.yaml").read_text())["services"].values():
        assert service["read_only"] and service["cap_drop"] == ["ALL"] and "no-new-privileges:true" in service["security_opt"]
    assert pod()["securityContext"]["runAsNonRoot"]
    allowed = pod()["containers"][0]["securityContext"]
    assert allowed["readOnlyRootFilesystem"] and not allowed["allowPrivilegeEscalation"] and allowed["capabilities"] == {"drop": ["ALL"]}


def test_ports_are_those_listened_on():
    entry, _ = image()
    admin = arguments_of(entry)[0]["--admin-listen"].split(":")[1]
    assert only("EXPOSE").split() == ["8080", admin]
    assert compose("compose.yaml")["ports"][0].endswith(":8080")
    assert {port["name"]: port["containerPort"] for port in pod()["containers"][0]["ports"]} == {"http": 8080, "admin": int(admin)}
    targets = yaml.safe_load((DOCKER / "prometheus.yaml").read_text())["scrape_configs"][0]["static_configs"][0]["targets"]
    assert targets == [f"server:{admin}"]
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert pod()["containers"][0][probe]["httpGet"]["port"] == "admin"
    assert objects()["Service"]["spec"]["selector"].items() <= objects()["Deployment"]["spec"]["template"]["metadata"]["labels"].items()


def test_prometheus_takes_its_file():
    tool = shutil.which("promtool", path=Path(sys.executable).parent) or shutil.which("promtool")
    assert tool, "promtool is missing: tools/setup.sh --tests fetches it"
    assert "SUCCESS" in output(tool, "check", "config", str(DOCKER / "prometheus.yaml"))


def test_health_is_asked_and_sigterm_ends_it():
    """The image's command and its health check, on free ports: healthy once it is ready, no longer once it ends."""
    entry, models = image()
    words = [str(BUILD / "descent"), "serve", *entry, "--port=0", "--admin-listen=127.0.0.1:0", "--drain-delay=0", *models]
    check = json.loads(only("HEALTHCHECK").split("CMD ", 1)[1])
    process = subprocess.Popen(words, cwd=SOURCE / "models", stderr=subprocess.PIPE, text=True)
    try:
        port = next(m[1] for line in process.stderr if (m := re.search(r"also on port (\d+)", line)))
        assert any("ready; try" in line for line in process.stderr)
        check = [word.replace("127.0.0.1/9090", f"127.0.0.1/{port}") for word in check]
        assert port in check[-1]
        assert subprocess.run(check, timeout=10).returncode == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=30) == 0
        assert subprocess.run(check, timeout=10, stderr=subprocess.DEVNULL).returncode != 0
    finally:
        process.kill()
        process.stderr.close()
        process.wait()
