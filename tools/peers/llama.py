"""llama.cpp as a peer: built natively from the source that the package llama-cpp-python carries, timed by its own llama-bench.

    python3 tools/peers/llama.py build FOLDER
    python3 tools/peers/llama.py time FOLDER MODEL.gguf [-t 2] [-p 512] [-n 32] [-d 64] [-r 5]

The folder is not the repository's; what is there already is not made again. The build is llama.cpp's own Release build for this
processor (GGML_NATIVE), with nothing but the CPU. Times are printed as JSON.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tarfile

PACKAGE, VERSION = "llama-cpp-python", "0.3.36"
_OFF = ("GGML_BLAS", "BUILD_SHARED_LIBS", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_SERVER", "LLAMA_BUILD_APP",
        "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_OPENSSL")


def program(folder):
    return pathlib.Path(folder) / f"llama-{VERSION}" / "bin" / "llama-bench"


def _source(folder):
    source = folder / f"llama-cpp-python-{VERSION}"
    if not source.is_dir():
        package = folder / f"llama_cpp_python-{VERSION}.tar.gz"
        if not package.is_file():
            subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", PACKAGE, "-d", folder,
                            f"{PACKAGE}=={VERSION}"], check=True)
        with tarfile.open(package) as archive:
            root = archive.getnames()[0].split("/")[0]
            archive.extractall(folder, filter="data")
        (folder / root).rename(source)
    return source / "vendor" / "llama.cpp"


def build(folder, jobs=2):
    """Makes llama-bench in the folder unless it is there; returns its path."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    made = program(folder)
    if not made.is_file():
        source, target = _source(folder), made.parent.parent
        settings = ["-DCMAKE_BUILD_TYPE=Release", "-DGGML_NATIVE=ON", *(f"-D{name}=OFF" for name in _OFF)]
        subprocess.run(["nice", "cmake", "-S", source, "-B", target, "-G", "Ninja", *settings], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run(["nice", "cmake", "--build", target, "--target", "llama-bench", "-j", str(jobs)], check=True,
                       stdout=subprocess.DEVNULL)
    return made


def time(folder, model, threads=2, prompts=(), generated=0, depths=(0,), repeats=5):
    """What llama-bench measures: a list of {"prompt", "generated", "depth", "tokens_per_second": {median, least, most}}, one for
    each prompt length and, where tokens are generated, one for each depth they are generated at."""
    told = []
    for p, n, at in (*((p, 0, (0,)) for p in prompts), (0, generated, depths)):
        if not p and not n:
            continue
        run = subprocess.run([program(folder), "-m", model, "-t", str(threads), "-p", str(p), "-n", str(n), "-d",
                              ",".join(map(str, at)), "-r", str(repeats), "-o", "json"], check=True, capture_output=True,
                             text=True, env=_environment())
        for result in json.loads(run.stdout):
            rates = sorted(result["samples_ts"])
            told.append({"prompt": result["n_prompt"], "generated": result["n_gen"], "depth": result["n_depth"],
                         "model_bytes": result["model_size"], "parameters": result["model_n_params"],
                         "tokens_per_second": {"median": rates[len(rates) // 2], "least": rates[0], "most": rates[-1]}})
    return told


def _environment():
    """Without what would tell its threads how to wait: it has its own way."""
    return {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_"))}


def _numbers(text):
    return tuple(int(n) for n in text.split(","))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("build")
    one.add_argument("folder")
    one = commands.add_parser("time")
    one.add_argument("folder")
    one.add_argument("model")
    one.add_argument("-t", "--threads", type=int, default=2)
    one.add_argument("-p", "--prompts", type=_numbers, default=(512,))
    one.add_argument("-n", "--generated", type=int, default=32)
    one.add_argument("-d", "--depths", type=_numbers, default=(64,))
    one.add_argument("-r", "--repeats", type=int, default=5)
    args = parser.parse_args()
    if args.command == "build":
        print(build(args.folder))
    else:
        print(json.dumps(time(args.folder, args.model, args.threads, args.prompts, args.generated, args.depths, args.repeats)))


if __name__ == "__main__":
    main()
