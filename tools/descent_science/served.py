"""A `descent serve` of a claim's own, for what only the server does: texts of many questions in one batch, chosen among.

    with served.Server(ctx, [path]) as server:
        told = server.candidates("nrgpt-listops@5", prompts, n=8, by="energy", temperature=1.0, seed=1)
"""
import json
import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from .context import ScienceError

SEQUENCES = 128  # of one request, at most: the server's own limit
TOKENS = 60  # of an answer, at most: what `descent eval --match` allows


class Server:
    def __init__(self, ctx, models):
        self.log = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        command = [ctx.descent, "serve", *models, "--port", "0", "--max-sequences", SEQUENCES]
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=self.log)
        try:
            self.url = self._ready(30)
        except BaseException:
            self.close()
            raise

    def _ready(self, seconds):
        """Its address, once it answers there."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and self.process.poll() is None:
            self.log.seek(0)
            found = re.search(r"http://[^\s\"/]+:[1-9][0-9]*", self.log.read())
            try:
                if found and urllib.request.urlopen(found.group() + "/ready", timeout=5).status == 200:
                    return found.group()
            except urllib.error.URLError:
                pass
            time.sleep(0.02)
        self.log.seek(0)
        raise ScienceError(f"descent serve did not come up: {self.log.read().strip() or 'it said nothing'}")

    def ask(self, path, body):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=600) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                raise ScienceError(f"{path}: {error.code} {error.read().decode(errors='replace')}") from error
        except OSError as error:
            raise ScienceError(f"{path}: {error}") from error

    def candidates(self, model, prompts, n, by, temperature, seed):
        """For each prompt what descent.choose says: its index by the rule, and its n candidates."""
        told, at_once = [], SEQUENCES // n
        for first in range(0, len(prompts), at_once):
            part = prompts[first:first + at_once]
            answer = self.ask("/v1/completions", {
                "model": model, "prompt": part, "max_tokens": TOKENS, "temperature": temperature, "seed": seed + first,
                "descent": {"choose": {"n": n, "by": by, "candidates": True}}})
            if answer["descent"].get("stop"):
                raise ScienceError(f"{model}: the server ran out of time for a request")
            chosen = answer["descent"]["choose"]
            told += chosen if isinstance(chosen, list) else [chosen]
        return told

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- Answers to ListOps questions --------------------------------------------------------------------------------------------

def questions(path, most):
    """(prompts up to the first =, answers) of lines PROMPT <tab> ANSWER."""
    prompts, answers = [], []
    for line in path.read_text(encoding="utf-8").splitlines()[:most]:
        prompt, _, answer = line.partition("\t")
        prompts.append(prompt[:prompt.index("=") + 1])
        answers.append(answer)
    return prompts, answers


def answer_of(candidate):
    """The token before the end of the text; None where the text did not end. Each token is written with a comma behind it."""
    return candidate["text"].removesuffix(",").rsplit(",", 1)[-1] if candidate["finish_reason"] == "stop" else None
