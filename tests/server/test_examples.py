"""/openapi.json against the server: every request example is sent as it stands, every answer has the schema the document gives
its status, and every example of an answer is what such an answer looks like."""
import json
from pathlib import Path

import jsonschema
import pytest
import referencing
from referencing.jsonschema import DRAFT202012

from serving import Server

DOCUMENT = json.loads((Path(__file__).resolve().parents[2] / "server" / "openapi.json").read_text())
REGISTRY = referencing.Registry().with_resource("urn:openapi", DRAFT202012.create_resource(DOCUMENT))
OPERATIONS = [(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods if method in ("get", "post")]


def operation(method, path):
    return DOCUMENT["paths"][path][method]


def request_examples(method, path):
    """(name, body) of an operation's examples; a GET has one, without a body."""
    if method == "get":
        return [("get", None)]
    content = operation(method, path)["requestBody"]["content"]["application/json"]
    return [(name, example["value"]) for name, example in content["examples"].items()]


REQUESTS = [(method, path, name) for method, path in OPERATIONS for name, _ in request_examples(method, path)]
ANSWERS = [(method, path, status, kind, name) for method, path in OPERATIONS
           for status, answer in operation(method, path)["responses"].items()
           for kind, content in answer.get("content", {}).items() for name in content.get("examples", {})]


def escaped(part):
    return part.replace("~", "~0").replace("/", "~1")


def check(instance, *place):
    """Against the schema at that place of the document."""
    schema = {"$ref": "urn:openapi#/" + "/".join(map(escaped, place))}
    jsonschema.Draft202012Validator(schema, registry=REGISTRY).validate(instance)


def check_answer(method, path, status, kind, text):
    place = ("paths", path, method, "responses", str(status), "content", kind, "schema")
    if kind == "application/json":
        check(json.loads(text), *place)
    elif kind == "text/event-stream":
        check_events(path, text)
    else:
        check(text, *place)


def check_events(path, text):
    """A stream's chunks, and that it ends as one that nothing went wrong with."""
    chunk = {"/v1/completions": "completion_chunk", "/v1/chat/completions": "chat_chunk", "/v1/descent/scaling": "scaling_chunk"}[path]
    events = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    assert events[-1] == "[DONE]" and len(events) > 2
    for event in events[:-1]:
        check(json.loads(event), "components", "schemas", chunk)


@pytest.fixture(scope="module")
def server(shipped):
    with Server([shipped(name) for name in ("nrgpt-shakespeare", "cem-kjv", "nrgpt-listops")], "--chat-template", "plain") as server:
        yield server


def example_url(method, path):
    """The path with the examples of its parameters put in."""
    query = []
    for parameter in operation(method, path).get("parameters", ()):
        if parameter["in"] == "path":
            path = path.replace("{%s}" % parameter["name"], parameter["example"])
        else:
            query.append(f"{parameter['name']}={parameter['example']}")
    return path + ("?" + "&".join(query) if query else "")


def test_the_server_gives_this_document(server):
    assert server.json("/openapi.json") == DOCUMENT


def test_every_endpoint_is_described():
    """Those of the interface's table that are there."""
    assert {path for _, path in OPERATIONS} == {
        "/health", "/ready", "/v1/models", "/v1/models/{id}", "/v1/completions", "/v1/chat/completions", "/v1/descent/trace", "/v1/descent/states",
        "/v1/descent/scaling", "/tokenize", "/detokenize", "/tokenizer_info", "/metrics", "/props", "/openapi.json", "/", "/app.js", "/app.css"}


@pytest.mark.parametrize("method, path", OPERATIONS)
def test_every_operation_has_examples_of_both_sides(method, path):
    assert request_examples(method, path)
    for kind, content in operation(method, path)["responses"]["200"]["content"].items():
        assert content.get("examples"), kind


@pytest.mark.parametrize("method, path, name", REQUESTS)
def test_request_example(server, method, path, name):
    body = dict(request_examples(method, path))[name]
    if body is not None:
        check(body, "paths", path, method, "requestBody", "content", "application/json", "schema")
    status, headers, answer = server.ask(example_url(method, path), body)
    assert status == 200, answer
    kind = headers.get_content_type()
    assert kind == ("text/event-stream" if body and body.get("stream") else kind)
    check_answer(method, path, status, kind, answer.decode("latin-1" if kind == "application/octet-stream" else "utf-8"))
    example = operation(method, path)["responses"]["200"]["content"][kind]["examples"].get(name)
    if example and kind == "application/json":
        assert shape(json.loads(answer)) == shape(example["value"])


MEASURED = {"tokens_per_second", "joules"}  # null where the machine has no counters, or somebody else's requests run beside


def shape(value, name=""):
    """What has which fields: objects by name, lists by the shapes that are in them, anything else by its kind. A completion's
    `top_logprobs` are objects whose names are tokens: which ones is the model's affair."""
    if name in MEASURED:
        return "measured"
    if isinstance(value, dict) and name == "top_logprobs" and all(isinstance(inner, float) for inner in value.values()):
        return "tokens"
    if isinstance(value, dict):
        return {name: shape(inner, name) for name, inner in value.items()}
    if isinstance(value, list):
        kinds = []
        for inner in (shape(each, name) for each in value):
            if inner not in kinds:
                kinds.append(inner)
        return kinds
    return "number" if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value).__name__


@pytest.mark.parametrize("method, path, status, kind, name", ANSWERS)
def test_answer_example(method, path, status, kind, name):
    content = DOCUMENT["paths"][path][method]["responses"][status]["content"][kind]
    value = content["examples"][name]["value"]
    check_answer(method, path, status, kind, json.dumps(value) if kind == "application/json" else value)
