"""Paths, methods and bodies before any model is asked, and the endpoints that say what is served."""
import json
import re
import socket

import gguf
import pytest
from conftest import ROOT, generate, request

# nanoGPT's character vocabulary of this text: its 65 characters, sorted.
CHARACTERS = "\n !$&',-.3:;?ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
GET = ["/", "/app.js", "/app.css", "/health", "/ready", "/metrics", "/openapi.json", "/props", "/v1/models", "/v1/models/nrgpt-shakespeare", "/tokenizer_info"]
POST = ["/v1/completions", "/v1/chat/completions", "/v1/descent/trace", "/v1/descent/scaling", "/tokenize", "/detokenize"]


def refused(reply, status, words, code=None, kind="invalid_request_error"):
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/json"
    assert set(reply.error) == {"message", "type", "param", "code"}
    assert reply.error["type"] == kind and words in reply.error["message"], reply.error
    if code:
        assert reply.error["code"] == code


@pytest.mark.parametrize("path", GET)
def test_head_says_what_get_says_without_the_body(shakespeare, path):
    get, head = request(shakespeare, "GET", path), request(shakespeare, "HEAD", path)
    assert (get.status, head.status, head.body) == (200, 200, b"") and get.body
    assert head.headers["content-type"] == get.headers["content-type"]
    if path != "/metrics":  # its figures count the first of the two
        assert head.headers["content-length"] == get.headers["content-length"] == str(len(get.body))


OTHERS = [("GET, HEAD, OPTIONS", path, method) for path in GET for method in ("PUT", "DELETE", "PATCH", "TRACE", "POST")]
OTHERS += [("POST, OPTIONS", path, method) for path in POST for method in ("PUT", "DELETE", "PATCH", "TRACE", "GET", "HEAD")]


@pytest.mark.parametrize("allow, path, method", OTHERS)
def test_other_methods_are_405_and_allow_says_which(shakespeare, allow, path, method):
    reply = request(shakespeare, method, path, {} if method in ("PUT", "POST", "PATCH") else None)
    if method == "HEAD":
        assert (reply.status, reply.body) == (405, b"")
    else:
        refused(reply, 405, "takes " + allow.split(",")[0], "method_not_allowed")
    assert reply.headers["allow"] == allow


@pytest.mark.parametrize("path", [GET[0], POST[0]])
def test_options_says_what_is_allowed(shakespeare, path):
    reply = request(shakespeare, "OPTIONS", path)
    assert (reply.status, reply.body) == (204, b"")
    assert reply.headers["allow"] == ("GET, HEAD, OPTIONS" if path == GET[0] else "POST, OPTIONS")
    assert not [name for name in reply.headers if name.startswith("access-control")]


def test_unknown_paths_list_the_known_ones(shakespeare):
    for path in ["/nope", "/v1", "/v1/models/", "/v1/completions/", "/health/x", "//health", "/../health", "/v1/embeddings"]:
        reply = request(shakespeare, "GET", path)
        refused(reply, 404, "/v1/completions", kind="not_found_error")
    for path in ["/v1/responses", "/v1/responses/resp_1"]:
        refused(request(shakespeare, "POST", path, {}), 404, "use /v1/chat/completions", kind="not_found_error")


def test_a_path_that_is_no_text_is_shown_as_one(shakespeare):
    reply = request(shakespeare, "GET", "/%ff%0d%0aSet-Cookie:%20a")
    refused(reply, 404, "\\xff", kind="not_found_error")
    assert "set-cookie" not in reply.headers


def test_bodies_say_that_they_are_json(shakespeare):
    body = b'{"prompt": "ROMEO:"}'
    for path in POST:
        for kind in [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/jsonp",
                     "text/plain; application/json"]:
            reply = request(shakespeare, "POST", path, body, {"Content-Type": kind} if kind else {})
            refused(reply, 415, "application/json", "unsupported_media_type")
    for kind in ["application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "application/json ; a=b"]:
        assert request(shakespeare, "POST", "/tokenize", body, {"Content-Type": kind}).status == 200, kind


def test_the_length_is_judged_before_the_body_comes(shakespeare):
    for length in [16 << 20, (16 << 20) + 1, 10**9, 2**63]:
        with socket.create_connection(("127.0.0.1", int(shakespeare.url.rsplit(":", 1)[1])), timeout=60) as plain:
            plain.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                          f"Content-Length: {length}\r\nExpect: 100-continue\r\n\r\n".encode())
            answer = plain.recv(65536)
        assert answer.startswith(b"HTTP/1.1 413" if length > 16 << 20 else b"HTTP/1.1 100"), answer
        if length > 16 << 20:
            assert b"--max-body" in answer and str(length).encode() in answer


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b'{"prompt": "a", "prompt": "b"}', b'{"prompt": "\xff"}', b'{"a": 1e400}',
                                  b'{"a": NaN}', b"[" * 100000, b'{"prompt": 3}', b'{"prompt": ""', b"{} {}"])
def test_bodies_that_are_none_are_400(shakespeare, body):
    for path in POST:
        reply = request(shakespeare, "POST", path, body, {"Content-Type": "application/json"})
        assert reply.status == 400, (path, reply.body)
        assert reply.error["type"] == "invalid_request_error"


# ---- What is served ---------------------------------------------------------------------------------------------------


def test_models(shakespeare):
    listed = request(shakespeare, "GET", "/v1/models").json
    assert listed["object"] == "list"
    (model,) = listed["data"]
    card = json.loads((ROOT / "models" / "data" / "nrgpt-shakespeare.figures.json").read_text())
    assert (model["id"], model["object"], model["owned_by"]) == ("nrgpt-shakespeare", "model", "descent")
    own = model["descent"]
    assert own["family"] == "nrgpt" and own["quantization"] == "F32" and own["chat_template"] is None
    assert own["steps"] == own["trained_steps"] and own["vocabulary"] == len(CHARACTERS)
    assert own["system_fingerprint"].startswith("fp_")
    assert card  # the card's figures are of this file
    assert request(shakespeare, "GET", "/v1/models/nrgpt-shakespeare").json == model


def test_a_name_with_its_steps_resolves(shakespeare):
    model = request(shakespeare, "GET", "/v1/models/nrgpt-shakespeare@12").json
    assert model["id"] == "nrgpt-shakespeare@12" and model["descent"]["steps"] == 12
    assert request(shakespeare, "GET", "/v1/models/nrgpt-shakespeare%4012").json == model
    for name, status, words in [("x", 404, "nrgpt-shakespeare"), ("nrgpt-shakespeare@", 404, "steps"),
                                ("nrgpt-shakespeare@x", 404, "steps"), ("nrgpt-shakespeare@0", 404, "steps"),
                                ("nrgpt-shakespeare@3x2", 404, "steps"), ("nrgpt-shakespeare@257", 400, "--max-steps")]:
        reply = request(shakespeare, "GET", f"/v1/models/{name}")
        assert reply.status == status and words in reply.error["message"], (name, reply.body)


def test_several_models(serve, shipped):
    server = serve([shipped("nrgpt-shakespeare"), f"bible={shipped('cem-kjv')}", shipped("nrgpt-listops")])
    data = request(server, "GET", "/v1/models").json["data"]
    assert [model["id"] for model in data] == ["nrgpt-shakespeare", "bible", "nrgpt-listops"]
    steps = data[1]["descent"]["steps"]
    assert set(steps) == {"attention", "mlp"}
    assert request(server, "GET", "/v1/models/bible@3x2").json["descent"]["steps"] == {"attention": 3, "mlp": 2}
    assert request(server, "GET", "/props?model=bible").json["model_alias"] == "bible"
    assert request(server, "GET", "/props?model=none").status == 404
    assert request(server, "GET", "/tokenizer_info?model=bible").json["tokenizer"] == "llama"
    for reply in [request(server, "GET", "/tokenizer_info"), request(server, "POST", "/tokenize", {"prompt": "a"}),
                  request(server, "POST", "/detokenize", {"tokens": [1]})]:
        assert reply.status == 400 and reply.error["param"] == "model", reply.body
    for model in ["bible", "bible@2x1"]:
        tokens = request(server, "POST", "/tokenize", {"prompt": "In the beginning", "model": model}).json["tokens"]
        assert request(server, "POST", "/detokenize", {"tokens": tokens, "model": model}).json["content"] == "In the beginning"
    assert request(server, "POST", "/tokenize", {"prompt": "a", "model": "none"}).status == 404


def test_props(shakespeare):
    props = request(shakespeare, "GET", "/props").json
    assert props["model_path"] == "nrgpt-shakespeare.gguf" and props["model_alias"] == "nrgpt-shakespeare"
    assert props["default_generation_settings"]["params"]["temperature"] == 1
    assert props["total_slots"] == 64 and props["build_info"].startswith("descent ")
    assert props["default_generation_settings"]["n_ctx"] == props["descent"]["context"]


PAGE = {"/": ("index.html", "text/html; charset=utf-8"), "/app.js": ("app.js", "text/javascript; charset=utf-8"),
        "/app.css": ("app.css", "text/css; charset=utf-8")}


@pytest.mark.parametrize("path", PAGE)
def test_the_page_is_what_was_built(shakespeare, path):
    name, kind = PAGE[path]
    reply = request(shakespeare, "GET", path)
    assert reply.status == 200 and reply.headers["content-type"] == kind
    assert reply.body == (ROOT / "server" / "web" / "dist" / name).read_bytes()


@pytest.mark.parametrize("path", PAGE)
def test_the_page_is_fetched_again_when_it_is_another(shakespeare, path):
    first = request(shakespeare, "GET", path)
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache" and tag[0] == tag[-1] == '"'
    for held in [tag, f'"x", W/{tag}', "*"]:
        reply = request(shakespeare, "GET", path, None, {"If-None-Match": held})
        assert (reply.status, reply.body, reply.headers["etag"]) == (304, b"", tag), held
    assert request(shakespeare, "GET", path, None, {"If-None-Match": '"another"'}).body == first.body
    assert request(shakespeare, "GET", path, None, {"If-None-Match": tag.strip('"')}).status == 200


def test_the_page_may_load_and_run_nothing_else(shakespeare):
    policy = dict(rule.split(" ", 1) for rule in request(shakespeare, "GET", "/").headers["content-security-policy"].split("; "))
    assert policy["default-src"] == "'self'" and "script-src" not in policy and "style-src" not in policy
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["object-src"] == "'none'"
    html = request(shakespeare, "GET", "/").body.decode()
    assert not re.search(r"(?i)https?://(?!www\.w3\.org)|<style|\bon\w+=|<script(?![^>]*\bsrc=\"app\.js\")", html)
    assert not re.search(r"@import|url\(", request(shakespeare, "GET", "/app.css").body.decode())


def test_openapi_is_the_file(shakespeare):
    assert request(shakespeare, "GET", "/openapi.json").body == (ROOT / "server" / "openapi.json").read_bytes()


def test_metrics_count_what_was_asked(serve, shipped):
    server = serve([shipped("nrgpt-shakespeare")])
    before = server.metric("descent_requests_total")
    for method, path, body in [("GET", "/health", None), ("GET", "/nope", None), ("PUT", "/tokenize", {}), ("POST", "/tokenize", {})]:
        request(server, method, path, body)
    text = request(server, "GET", "/metrics").body.decode()
    for label in ['endpoint="other",code="404"', 'endpoint="/tokenize",code="405"', 'endpoint="/tokenize",code="400"']:
        assert f"descent_requests_total{{{label}}} 1" in text
    assert 'descent_requests_rejected_total{reason="invalid"} 3' in text
    assert server.metric("descent_requests_total") == before + 6  # those, and the two that read the figures


# ---- Tokens ------------------------------------------------------------------------------------------------------------


def test_tokens_and_back(shakespeare):
    context = request(shakespeare, "GET", "/v1/models/nrgpt-shakespeare").json["descent"]["context"]
    text = "ROMEO:\nBut, soft! what light"
    ids = [CHARACTERS.index(c) for c in text]
    for name in ["prompt", "content"]:
        reply = request(shakespeare, "POST", "/tokenize", {name: text})
        assert reply.json == {"tokens": ids, "count": len(ids), "max_model_len": context}
    reply = request(shakespeare, "POST", "/detokenize", {"tokens": ids})
    assert reply.json == {"prompt": text, "content": text}
    assert request(shakespeare, "POST", "/tokenize", {"prompt": ""}).json["tokens"] == []
    assert request(shakespeare, "POST", "/detokenize", {"tokens": []}).json["content"] == ""


@pytest.mark.parametrize("path, body, param", [
    ("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": 1}, "prompt"), ("/tokenize", {"content": ["a"]}, "content"),
    ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"), ("/tokenize", {"prompt": "ROM\u00c9O"}, "prompt"),
    ("/detokenize", {}, "tokens"), ("/detokenize", {"tokens": "a"}, "tokens"), ("/detokenize", {"tokens": [65]}, "tokens"),
    ("/detokenize", {"tokens": [1, -1]}, "tokens"), ("/detokenize", {"tokens": [1.5]}, "tokens"),
    ("/detokenize", {"tokens": [2**62]}, "tokens"), ("/tokenize", {"prompt": "a", "model": 1}, "model")])
def test_what_is_wrong_is_named(shakespeare, path, body, param):
    reply = request(shakespeare, "POST", path, body)
    assert (reply.status, reply.error["param"]) == (400, param), reply.body


def test_special_tokens(serve, tmp_path):
    """Of a sentencepiece vocabulary that begins with <unk>, <s>, </s> and adds <s>."""
    model = tmp_path / "small.gguf"
    generate(["nrgpt", str(model), "--width", "32", "--heads", "2", "--hidden", "64", "--vocab", "600", "--context", "64",
              "--tokenizer", "sentencepiece"])
    adds_bos = gguf.GGUFReader(model, "r+").fields["tokenizer.ggml.add_bos_token"]
    adds_bos.parts[adds_bos.data[0]][0] = True
    server = serve([model])
    info = request(server, "GET", "/tokenizer_info").json
    assert (info["bos_token"], info["eos_token"], info["pad_token"], info["vocabulary"]) == ("<s>", "</s>", None, 600)

    def tokens(**fields):
        return request(server, "POST", "/tokenize", {"prompt": "the<s>", **fields}).json["tokens"]

    plain = tokens(add_special_tokens=False)
    assert 1 not in plain
    assert tokens() == tokens(add_special_tokens=True) == [1] + plain
    assert tokens(add_special_tokens=False, parse_special=True)[-1] == 1
    assert request(server, "POST", "/detokenize", {"tokens": [1] + plain}).json["content"].endswith("the<s>")
