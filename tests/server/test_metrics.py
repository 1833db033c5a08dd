"""/metrics: what Prometheus' own tool says of the text, and that it and the log's lines tell of the same requests."""
import json
import re
import shutil
import socket
import subprocess
import sys
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from conftest import open_stream, request

MODEL = "nrgpt-shakespeare"
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
NAMES = """descent_requests_running descent_requests_waiting descent_requests_total descent_requests_rejected_total
    descent_prompt_tokens_total descent_cached_tokens_total descent_generated_tokens_total
    descent_drafted_tokens_total descent_accepted_tokens_total descent_token_steps_total descent_preemptions_total descent_cache_bytes descent_cache_limit_bytes descent_queue_seconds
    descent_time_to_first_token_seconds descent_inter_token_seconds descent_request_seconds descent_request_steps
    descent_batch_rows descent_row_step descent_build_info process_cpu_seconds_total process_resident_memory_bytes process_open_fds
    process_max_fds process_start_time_seconds""".split()


def scrape(server):
    """The text, and its samples: {(name, labels as written): value}."""
    reply = request(server, "GET", "/metrics")
    assert (reply.status, reply.headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    text = reply.body.decode()
    samples = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, labels, value = SAMPLE.fullmatch(line).groups()
            assert (name, labels) not in samples
            samples[name, labels] = float(value)
    return text, samples


def promtool(text):
    tool = shutil.which("promtool", path=Path(sys.executable).parent) or shutil.which("promtool")
    assert tool, "promtool is missing: tools/setup.sh --tests fetches it"
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def requests_of(server):
    """The log's lines of requests."""
    lines = [json.loads(line) for line in list(server.log) if line.startswith("{")]
    return [line for line in lines if "status" in line]


def test_everything_is_there_from_the_start(serve, shipped):
    text, samples = scrape(serve([shipped(MODEL)]))
    promtool(text)
    assert re.findall(r"# TYPE (\w+)", text) == NAMES
    counts = {key: value for key, value in samples.items() if key[0].endswith(("_total", "_count", "_sum", "_bucket"))
              and not key[0].startswith("process_")}
    probes = re.compile(r'endpoint="/ready"|_request_seconds')  # the wait for the server to be ready
    assert not [key for key, value in counts.items() if value and not probes.search(f"{key[0]} {key[1]}")]


def test_admin_port_has_them_too(serve, shipped):
    server = serve([shipped(MODEL)], "--admin-listen", "127.0.0.1:0")
    server.until(lambda: "also on port" in "\n".join(server.log), "no line names the port")
    port = re.search(r"also on port (\d+)", "\n".join(server.log)).group(1)
    main = scrape(server)[1]
    server.url = f"http://127.0.0.1:{port}"
    assert scrape(server)[1].keys() == main.keys()


def completion(**fields):
    return {"model": MODEL, "prompt": "ROMEO:\n", "max_tokens": 5, "seed": 1, "ignore_eos": True, **fields}


@pytest.fixture
def asked(serve, shipped, made):
    """A server that was asked for everything that ends differently, is idle again, and has logged all of it."""
    server = serve([shipped(MODEL), made["slow"]], "--chat-template", "plain", "--max-body", "4096", "--max-queue", "8")
    post = [("/v1/completions", completion(), 200), ("/v1/completions", completion(prompt="ROMEO:\n" * 12, descent={"steps": 2}), 200),
            ("/v1/completions", completion(prompt="ROMEO:\n" * 12, n=2, stream=True, descent={"steps": 2}), 200),
            ("/v1/completions", completion(prompt=["a", "b"], n=1, best_of=2, model=f"{MODEL}@7"), 200),
            ("/v1/completions", completion(max_tokens=0, echo=True, logprobs=1), 200),
            ("/v1/chat/completions", {"model": MODEL, "messages": [{"role": "user", "content": "Who"}], "max_tokens": 4,
                                      "reasoning_effort": "high"}, 200),
            ("/v1/descent/trace", {"model": MODEL, "prompt": "RO", "max_tokens": 1}, 200),
            ("/v1/descent/scaling", {"model": MODEL, "texts": ["ROMEO:", "JULIET:"], "steps": [1, 3]}, 200),
            ("/v1/completions", completion(descent={"steps": 0}), 400), ("/v1/completions", completion(model="gpt-5"), 404),
            ("/v1/completions", completion(prompt=["a"] * 9), 400), ("/v1/completions", completion(user="x" * 4096), 413),
            ("/v1/completions", {"frob": 1, **completion()}, 200), ("/tokenize", {"model": MODEL, "prompt": "a"}, 200),
            ("/tokenize", {"model": MODEL, "prompt": "\u20ac"}, 400)]
    got = [request(server, "POST", path, body) for path, body, _ in post]
    assert [reply.status for reply in got] == [status for _, _, status in post], [reply.body for reply in got]
    get = [("/v1/models", 200), (f"/v1/models/{MODEL}@3", 200), ("/v1/models/none", 404), ("/health", 200), ("/nowhere", 404),
           ("/v1/completions", 405)]
    assert [request(server, "GET", path).status for path, _ in get] == [status for _, status in get]
    assert request(server, "POST", "/tokenize", b"prompt=a", {"Content-Type": "text/plain"}).status == 415

    connection, stream = open_stream(server, "/v1/completions", completion(model="slow", max_tokens=4000))
    assert stream.readline() and server.running() is None
    stream.close()
    connection.close()
    server.idle()
    server.until(lambda: sum(line["path"] not in ("/ready", "/metrics") for line in requests_of(server)) == len(post) + len(get) + 2,
                 "requests are missing in the log")
    return server


def test_rows_are_counted_by_their_step(serve, shipped):
    """Seven tokens of a prompt and two of the three that follow make each of five steps."""
    server = serve([shipped(MODEL)])
    assert request(server, "POST", "/v1/completions", completion(max_tokens=3, descent={"steps": 5, "draft_steps": 0})).status == 200
    server.idle()
    _, samples = scrape(server)
    assert [samples["descent_row_step_bucket", f'le="{bound}"'] for bound in (1, 2, 4, 8, 1024)] == [9, 18, 36, 45, 45]
    assert samples["descent_row_step_sum", None] == 9 * (1 + 2 + 3 + 4 + 5)


def endpoint(path):
    if path.startswith("/v1/models/"):
        return "/v1/models/{id}"
    return "other" if path == "/nowhere" else path


def test_a_request_is_counted_before_the_next_one_is_answered(serve, shipped):
    """Two that come together, over and over: the second tells of the first."""
    server = serve([shipped(MODEL)])
    where = urlsplit(server.url)
    ask = b"".join(b"GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path for path in (b"/props", b"/metrics"))
    with socket.create_connection((where.hostname, where.port), timeout=60) as wire, wire.makefile("rb") as answers:
        for count in range(1, 6):
            wire.sendall(ask)
            bodies = []
            for _ in range(2):
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += answers.readline()
                bodies.append(answers.read(int(re.search(rb"(?i)content-length: (\d+)", head)[1])).decode())
            assert f'descent_requests_total{{endpoint="/props",code="200"}} {count}\n' in bodies[1]


def test_metrics_and_log_say_the_same(asked):
    text, samples = scrape(asked)
    promtool(text)
    lines = [line for line in requests_of(asked) if line["path"] != "/metrics"]

    counted = Counter((endpoint(line["path"]), str(line["status"])) for line in lines)
    labels = {key[1]: value for key, value in samples.items() if key[0] == "descent_requests_total" and "/metrics" not in key[1]}
    assert {label: value for label, value in labels.items() if value} == {
        f'endpoint="{path}",code="{code}"': count for (path, code), count in counted.items()}

    generating = [line for line in lines if "model" in line and line["sequences"]]
    assert len(generating) == 10
    for key in ("prompt_tokens", "cached_tokens", "generated_tokens", "token_steps"):
        assert samples[f"descent_{key}_total", None] == sum(line[key] for line in generating)
    assert 0 < samples["descent_cached_tokens_total", None] < samples["descent_prompt_tokens_total", None]
    sequences = sum(line["sequences"] for line in generating)
    assert samples["descent_queue_seconds_count", None] == sequences == 15
    assert samples["descent_batch_rows_sum", None] == samples["descent_token_steps_total", None]
    assert samples["descent_batch_rows_count", None] > 0
    assert samples["descent_row_step_count", None] == samples["descent_batch_rows_sum", None]

    # One more than all but the scrape that is under way: its own line comes when it is over.
    scrapes = samples["descent_requests_total", 'endpoint="/metrics",code="200"']
    assert samples["descent_request_seconds_count", None] == len(lines) + scrapes
    assert samples["descent_time_to_first_token_seconds_count", None] == sum(line["generated_tokens"] > 0 for line in generating)
    assert samples["descent_request_steps_count", None] == len(generating)
    assert samples["descent_request_steps_sum", None] == sum(max(map(int, line["steps"].split(","))) for line in generating)
    rejected = {key[1]: value for key, value in samples.items() if key[0] == "descent_requests_rejected_total"}
    assert rejected == {f'reason="{reason}"': count for reason, count in
                        dict(queue_full=0, unauthorized=0, too_large=1, draining=0, loading=0, invalid=8).items()}


def test_every_line_says_what_there_is_to_say(asked):
    lines = [line for line in requests_of(asked) if line["path"] != "/ready"]
    for line in lines:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])
        assert line["level"] == "info" and line["id"] and line["method"] in ("GET", "POST") and line["peer"] == "127.0.0.1"
    whole = next(line for line in lines if line.get("finish") == "length")
    assert whole.keys() == {"time", "level", "id", "method", "path", "peer", "status", "seconds", "model", "steps", "sequences",
                            "prompt_tokens", "cached_tokens", "generated_tokens", "token_steps", "queue_seconds",
                            "compute_seconds", "finish"}
    assert 0 < whole["compute_seconds"] <= whole["seconds"] and whole["queue_seconds"] <= whole["seconds"]
    assert [line["ignored"] for line in lines if "ignored" in line] == ["frob"]
    left = lines[-1] if lines[-1]["path"] == "/v1/completions" else next(line for line in lines if line.get("finish") == "cancelled")
    assert left["finish"] == "cancelled" and left["steps"] == "200" and left["token_steps"] > 0
    failed = [line for line in lines if line["status"] >= 400]
    assert failed and all(line["error"] for line in failed)


def test_no_prompt_and_no_key_is_logged(serve, shipped, tmp_path):
    (tmp_path / "keys").write_text("sk-7f3a\n")
    server = serve([shipped(MODEL)], "--api-key-file", tmp_path / "keys")
    secret = "Xanadu"
    for key, body in [("sk-7f3a", completion(prompt=secret)), ("sk-7f3a", completion(prompt=secret + "\u20ac")),
                      ("sk-7f3a", completion(prompt={secret: secret})), ("sk-7f3a", completion(prompt=secret * 100)),
                      ("sk-7f3a", completion(prompt=[secret, 1])), ("sk-7f3b", completion(prompt=secret)),
                      ("sk-7f3a", b'{"model": "' + MODEL.encode() + b'", "prompt": "' + secret.encode() + b'\xff"}')]:
        request(server, "POST", "/v1/completions", body, {"Authorization": f"Bearer {key}", "Content-Type": "application/json"})
    server.until(lambda: len([line for line in requests_of(server) if line["path"] == "/v1/completions"]) == 7,
                 "requests are missing in the log")
    said = "\n".join(server.log)
    assert secret not in said and "sk-7f3" not in said
