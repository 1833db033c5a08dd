"""A `descent serve` of a test's own: started on a free port, waited for, asked for its metrics, stopped.

    with Server([path, "name=" + other], "--max-queue", 4) as server: server.url, server.metric("descent_requests_running")
"""
import json
import os
import re
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("DESCENT_BUILD_DIR", ROOT / "build" / "release")) / "descent"
_ADDRESS = re.compile(r"https?://[^\s\"/]+:[1-9][0-9]*")


class Server:
    def __init__(self, models, *flags, binary=BINARY, ready=True):
        """`models` as `serve` takes them; `flags` beside --port 0. Returns once /ready says so, unless told not to."""
        assert Path(binary).is_file(), f"{binary} is missing: build first, or set DESCENT_BUILD_DIR"
        command = [binary, "serve", *map(str, models), "--port", "0", *map(str, flags)]
        self.log = []  # lines of standard error
        self.told = False  # to end
        self._said = threading.Condition()
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True, errors="replace")
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.url = self._address()
            if ready:
                self.until(lambda: self.status("/ready") == 200, "the server is not ready")
        except BaseException:
            self.kill()
            raise

    def _read(self):
        for line in self.process.stderr:
            with self._said:
                self.log.append(line.rstrip("\n"))
                self._said.notify_all()

    def _address(self, seconds=60):
        """The first address the log names is where it listens."""
        with self._said:
            found = None

            def look():
                nonlocal found
                found = next((m for line in self.log if (m := _ADDRESS.search(line))), None)
                return found or self.process.poll() is not None

            self._said.wait_for(look, timeout=seconds)
        assert found, "the server named no address:\n" + "\n".join(self.log)
        return found.group()

    def until(self, true, complaint, seconds=30):
        """Waits for `true()`; asks every 5 ms, since there is nothing that would wake a client of HTTP."""
        end = time.monotonic() + seconds
        while not true():
            assert self.process.poll() is None, "the server ended:\n" + "\n".join(self.log[-20:])
            assert time.monotonic() < end, f"{complaint} after {seconds} s:\n" + "\n".join(self.log[-20:])
            time.sleep(0.005)

    def ask(self, path, body=None, headers=()):
        """(status, headers, body as bytes) of a GET, or of a POST of `body` as JSON."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, {"Content-Type": "application/json", **dict(headers)})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.headers, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.headers, error.read()

    def status(self, path):
        return self.ask(path)[0]

    def json(self, path, body=None):
        """The answer of a request that must be a 200."""
        status, _, answer = self.ask(path, body)
        assert status == 200, (status, answer)
        return json.loads(answer)

    def metric(self, *names):
        """The sum of metrics, of one moment, over their labels."""
        status, _, text = self.ask("/metrics")
        assert status == 200
        total = 0.0
        for name in names:
            values = [line.rsplit(" ", 1)[1] for line in text.decode().splitlines() if re.match(re.escape(name) + r"[ {]", line)]
            assert values, f"/metrics has no {name}"
            total += sum(map(float, values))
        return total

    def active(self):
        """How many sequences run or wait."""
        return self.metric("descent_requests_running", "descent_requests_waiting")

    def idle(self):
        """Waits until no sequence runs or waits: what a client that left must bring about. What follows a sequence's end comes
        later: room in the queue, counters, the line in the log."""
        self.until(lambda: self.active() == 0, "rows are still running or waiting")

    def running(self, count=1):
        self.until(lambda: self.metric("descent_requests_running") >= count, f"fewer than {count} sequences run")

    def terminate(self):
        """The first signal: the server drains."""
        self.told = True
        self.process.terminate()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stderr.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """A server that is gone by itself has failed, whatever the tests saw. The second signal stops it at once."""
        ended = self.process.poll()
        self.process.send_signal(signal.SIGTERM)
        self.process.send_signal(signal.SIGINT)  # two of one kind may arrive as one
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError("two signals did not end the server:\n" + "\n".join(self.log[-20:])) from None
        self._reader.join()
        self.process.stderr.close()
        assert ended is None or self.told, f"the server ended by itself, status {ended}:\n" + "\n".join(self.log[-40:])
