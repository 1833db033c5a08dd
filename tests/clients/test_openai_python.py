"""The official `openai` package for Python: completions, chat, streams, logprobs, n, stop, T, errors, timeouts, cancelling."""
import asyncio
import contextlib
import math

import openai
import pytest
from descent_convert import chat as templates

from conftest import CHAT

TALK = [("system", "Be brief."), ("user", "Who goes there?"), ("assistant", "A friend."), ("user", "What friend?")]
MESSAGES = [{"role": role, "content": content} for role, content in TALK]
# More than a test waits for: what runs it is cancelled.
LONG = {"model": "plain@200", "prompt": "Once", "max_tokens": 1900, "extra_body": {"ignore_eos": True}}


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=60) as client:
        yield client


@contextlib.contextmanager
def connected(server, **how):
    how = {"api_key": "none", "max_retries": 0, "timeout": 60, **how}
    with openai.OpenAI(base_url=server.url + "/v1", **how) as client:
        yield client


# ---- Models


def test_models(client):
    listed = {model.id: model for model in client.models.list()}
    assert {*CHAT, "nrgpt-listops", "nrgpt-shakespeare", "cem-kjv"} == set(listed)
    assert listed["llama2"].descent["family"] == "cem"
    at = client.models.retrieve("nrgpt-shakespeare@12")
    assert at.id == "nrgpt-shakespeare@12" and at.object == "model"
    with pytest.raises(openai.NotFoundError, match="nrgpt-shakespeare"):
        client.models.retrieve("gpt-4")


# ---- Completions


def test_completion(client, engine):
    model = engine("nrgpt-shakespeare")
    done = client.completions.create(model="nrgpt-shakespeare", prompt="To be, or", max_tokens=12, temperature=0)
    ids = list(model.generate_ids(model.encode("To be, or", add_special=True), max_tokens=12, temperature=0))
    assert done.choices[0].text == model.decode(ids)
    assert done.choices[0].finish_reason == "length"
    assert (done.object, done.model) == ("text_completion", "nrgpt-shakespeare")
    prompt = len(model.encode("To be, or", add_special=True))
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.usage.total_tokens) == (prompt, 12, prompt + 12)
    assert done.system_fingerprint.startswith("fp_")


def test_same_seed_same_text_and_another(client):
    def ask(seed):
        done = client.completions.create(model="plain", prompt="Once", max_tokens=40, seed=seed)
        return done.choices[0].text, done.descent["seed"]

    assert ask(7) == ask(7)
    assert ask(7)[0] != ask(8)[0]
    text, seed = ask(None)
    assert ask(seed) == (text, seed)


def test_choices_of_several_prompts(client):
    """index = prompt * n + choice, and each choice is the same alone as beside the others."""
    prompts = ["Once upon", "A time", "there"]
    how = {"model": "llama2", "max_tokens": 10, "seed": 3}
    done = client.completions.create(prompt=prompts, n=2, **how)
    assert sorted(choice.index for choice in done.choices) == list(range(6))
    texts = {choice.index: choice.text for choice in done.choices}
    assert len(set(texts.values())) == 6
    first = client.completions.create(prompt=prompts[0], n=2, **how)
    assert [choice.text for choice in sorted(first.choices, key=lambda c: c.index)] == [texts[0], texts[1]]


def test_tokens_as_prompt(client, engine):
    ids = [int(i) for i in engine("plain").encode("Once upon a time")]
    how = {"model": "plain", "max_tokens": 8, "seed": 1}
    alone = client.completions.create(prompt=ids, **how)
    listed = client.completions.create(prompt=[ids, ids[:3]], **how)
    assert listed.choices[0].text == alone.choices[0].text
    assert alone.usage.prompt_tokens == len(ids)
    assert alone.choices[0].text == client.completions.create(prompt="Once upon a time", **how).choices[0].text


def test_logprobs_and_echo(client, engine):
    model, prompt = engine("nrgpt-shakespeare"), "To be, or not to be"
    choice, = client.completions.create(model="nrgpt-shakespeare@4", prompt=prompt, max_tokens=5, temperature=0, logprobs=3,
                                        echo=True).choices
    said = choice.logprobs
    ids = [int(i) for i in model.encode(prompt, add_special=True)]
    ids += list(model.generate_ids(ids, steps=4, max_tokens=5, temperature=0))
    assert choice.text == model.decode(ids)
    logits = model.logits(ids, steps=4).astype(float)
    for place, (token, logprob, top) in enumerate(zip(ids, said.token_logprobs, said.top_logprobs, strict=True)):
        if place == 0:
            assert logprob is None and top is None
            continue
        row = logits[place - 1]
        expected = row - row.max() - math.log(sum(math.exp(value - row.max()) for value in row))
        assert logprob == pytest.approx(expected[token], abs=1e-4)
        assert logprob in top.values() and len(top) in (3, 4)
        assert max(top.values()) == pytest.approx(expected.max(), abs=1e-4)
    assert "".join(said.tokens) == choice.text
    assert [choice.text[at:][:len(token)] for at, token in zip(said.text_offset, said.tokens, strict=True)] == said.tokens


def test_prompt_scored_without_generating(client):
    done = client.completions.create(model="nrgpt-shakespeare", prompt="To be", max_tokens=0, echo=True, logprobs=0)
    assert done.choices[0].text == "To be"
    assert len(done.choices[0].logprobs.tokens) == done.usage.prompt_tokens
    assert done.usage.completion_tokens == 0


def stop_in(text):
    """A string of several tokens in the middle of a text."""
    return text[len(text) // 2:][:4]


def test_stop(client):
    how = {"model": "plain", "prompt": "Once", "max_tokens": 60, "seed": 5}
    whole = client.completions.create(**how).choices[0].text
    stop = stop_in(whole)
    stopped = client.completions.create(stop=[stop, "never said"], **how).choices[0]
    assert stopped.finish_reason == "stop"
    assert stopped.text == whole[:whole.index(stop)]


def test_stream_is_the_text_in_pieces(client):
    how = {"model": "plain", "prompt": "Once", "max_tokens": 60, "seed": 5}
    whole = client.completions.create(**how)
    chunks = list(client.completions.create(stream=True, stream_options={"include_usage": True}, **how))
    assert len({chunk.id for chunk in chunks}) == 1
    *spoken, last = chunks
    assert last.choices == [] and last.usage == whole.usage
    assert all(chunk.usage is None for chunk in spoken)
    assert "".join(chunk.choices[0].text for chunk in spoken) == whole.choices[0].text
    assert [chunk.choices[0].finish_reason for chunk in spoken if chunk.choices[0].finish_reason] == ["length"]
    assert len(spoken) > 20

    stop = stop_in(whole.choices[0].text)
    stopped = list(client.completions.create(stream=True, stop=stop, **how))
    assert "".join(chunk.choices[0].text for chunk in stopped) == whole.choices[0].text.split(stop)[0]
    assert stopped[-1].choices[0].finish_reason == "stop"


def test_stream_of_several_choices(client):
    how = {"model": "llama3", "prompt": ["Once", "Twice"], "n": 2, "max_tokens": 20, "seed": 2}
    whole = {choice.index: choice.text for choice in client.completions.create(**how).choices}
    texts = dict.fromkeys(range(4), "")
    for chunk in client.completions.create(stream=True, **how):
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == whole


# ---- Chat


@pytest.mark.parametrize("template", CHAT)
def test_chat_is_the_rendered_prompt(client, engine, template):
    """Each template's conversation gives the text of the same tokens as a prompt; streamed, the same in pieces."""
    model = engine(template)
    rendered = templates.render(template, TALK, model.spelling(model.tokenizer.bos), model.spelling(model.tokenizer.eos))
    ids = [int(i) for i in model.encode(rendered, add_special=template == "plain", parse_special=True)]
    how = {"model": template, "max_tokens": 30, "seed": 11}
    prompted = client.completions.create(prompt=ids, **how)
    answer = client.chat.completions.create(messages=MESSAGES, **how)
    assert answer.usage.prompt_tokens == len(ids)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == prompted.choices[0].text
    assert answer.object == "chat.completion"

    stream = client.chat.completions.create(messages=MESSAGES, stream=True, stream_options={"include_usage": True}, **how)
    first, *chunks, last = stream
    assert first.choices[0].delta.role == "assistant" and first.choices[0].delta.content == ""
    assert last.choices == [] and last.usage == answer.usage
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == answer.choices[0].message.content
    assert chunks[-1].choices[0].finish_reason == answer.choices[0].finish_reason


def test_special_tokens_spelled_in_a_message_are_text(client):
    def tokens(content, **more):
        messages = [{"role": "user", "content": content}]
        return client.chat.completions.create(model="chatml", messages=messages, max_tokens=1, **more).usage.prompt_tokens

    spelled = tokens("<|im_end|>")
    assert spelled > tokens("<|im_end|>", extra_body={"parse_special": True}) == tokens("x")


def test_chat_logprobs(client):
    how = {"model": "chatml", "messages": MESSAGES, "max_tokens": 20, "seed": 4, "logprobs": True, "top_logprobs": 3}
    answer = client.chat.completions.create(**how)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens
    spoken = b"".join(bytes(entry.bytes) for entry in content)
    assert spoken.decode(errors="replace") == answer.choices[0].message.content
    for entry in content:
        values = [other.logprob for other in entry.top_logprobs]
        assert len(values) == 3 and values == sorted(values, reverse=True) and values[0] <= 0
        assert (entry.token, entry.logprob) in [(other.token, other.logprob) for other in entry.top_logprobs] \
            or entry.logprob <= values[-1]
    streamed = [choice.logprobs for chunk in client.chat.completions.create(stream=True, **how) for choice in chunk.choices]
    assert [entry for logprobs in streamed if logprobs for entry in logprobs.content] == content


def test_contents_in_parts_and_every_role(client):
    parts = [{"type": "text", "text": "Who goes "}, {"type": "text", "text": "there?"}]
    how = {"model": "plain", "max_tokens": 12, "seed": 1}
    whole = client.chat.completions.create(messages=[{"role": "user", "content": "Who goes there?"}], **how)
    assert client.chat.completions.create(messages=[{"role": "user", "content": parts}], **how).choices == whole.choices
    developer = [{"role": "developer", "content": "Be brief."}, *MESSAGES[1:]]
    asked = client.chat.completions.create(messages=MESSAGES, **how)
    assert client.chat.completions.create(messages=developer, **how).choices == asked.choices


def test_chat_choices_and_most_tokens(client):
    answer = client.chat.completions.create(model="plain", messages=MESSAGES, n=3, max_completion_tokens=9, seed=1)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3
    assert answer.usage.completion_tokens <= 27


def test_fields_that_change_nothing_pass(client):
    how = {"model": "plain", "messages": MESSAGES, "max_tokens": 8, "seed": 1}
    plain = client.chat.completions.create(**how)
    passing = {"tools": [], "tool_choice": "none", "store": False, "metadata": {"a": "b"}, "service_tier": "auto", "user": "u",
               "prompt_cache_key": "k", "safety_identifier": "s", "verbosity": "low", "response_format": {"type": "text"},
               "extra_body": {"nobody_knows": 1}}
    assert client.chat.completions.create(**passing, **how).choices == plain.choices


# ---- T


def test_depth_by_name_object_and_effort(client):
    def asked(model="plain", **more):
        answer = client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=6, seed=2, **more)
        assert answer.model == model
        return answer.descent["steps"], answer.choices[0].message.content

    assert asked()[0] == 3  # what it was trained at
    assert asked("plain@5") == asked(extra_body={"descent": {"steps": 5}})
    assert asked("plain@5", extra_body={"descent": {"steps": 9}})[0] == 9
    assert [asked(reasoning_effort=effort)[0] for effort in ("minimal", "low", "medium", "high")] == [1, 2, 3, 6]
    assert asked("plain@5", reasoning_effort="high")[0] == 5
    assert asked("llama2@3x1")[0] == {"attention": 3, "mlp": 1}


def test_requests_of_any_depth_at_once(server, client):
    """Everybody's T in one batch: each gets the text it gets alone."""
    each = [("plain@1", "Once"), ("plain@7", "Once"), ("plain@3", "Once upon a time"), ("llama2@2x2", "Once"),
            ("llama2@1x4", "there was"), ("plain@12", "there"), ("llama3@2", "Once"), ("plain@3", "Once upon a")]
    asked = [{"model": model, "prompt": prompt, "max_tokens": 24, "seed": n} for n, (model, prompt) in enumerate(each * 2)]
    alone = [client.completions.create(**one).choices[0].text for one in asked]

    async def together():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as several:
            return await asyncio.gather(*(several.completions.create(**one) for one in asked))

    assert [done.choices[0].text for done in asyncio.run(together())] == alone


# ---- Errors


@pytest.mark.parametrize("what, param", [
    ({"max_tokens": -1}, "max_tokens"), ({"temperature": -1}, "temperature"), ({"n": 0}, "n"), ({"logprobs": 21}, "logprobs"),
    ({"extra_body": {"descent": {"steps": 0}}}, "descent.steps"), ({"extra_body": {"descent": {"stepz": 1}}}, "descent.stepz"),
    ({"suffix": "x"}, "suffix"), ({"stop": ["x" * 300]}, "stop"), ({"logit_bias": {"999999": 1}}, "logit_bias")])
def test_bad_field(client, what, param):
    with pytest.raises(openai.BadRequestError) as refused:
        client.completions.create(**{"model": "plain", "prompt": "Once", **what})
    error = refused.value
    assert error.status_code == 400 and error.type == "invalid_request_error"
    assert error.param is not None and error.param.startswith(param)
    assert error.message


def test_unsupported_is_said(client):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    for what in ({"tools": [tool]}, {"response_format": {"type": "json_object"}},
                 {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.chat.completions.create(**{"model": "plain", "messages": MESSAGES, **what})
        assert refused.value.code == "unsupported_parameter"


def test_chat_without_template(client):
    with pytest.raises(openai.BadRequestError, match="--chat-template") as refused:
        client.chat.completions.create(model="nrgpt-shakespeare", messages=MESSAGES)
    assert refused.value.code == "chat_template_unsupported"


def test_prompt_over_the_context(client):
    with pytest.raises(openai.BadRequestError, match="3000.*2048|2048.*3000"):
        client.completions.create(model="plain", prompt=[5] * 3000)


def test_not_found(client):
    with pytest.raises(openai.NotFoundError, match="chatml"):
        client.completions.create(model="gpt-4", prompt="x")
    with pytest.raises(openai.NotFoundError, match="/v1/chat/completions"):
        client.responses.create(model="plain", input="x")
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="plain", input="x")


def test_keys(serve, chat_models, tmp_path):
    (tmp_path / "keys").write_text("right-key\n# a comment\nother-key\n")
    server = serve([chat_models["plain"]], "--api-key-file", tmp_path / "keys")
    with connected(server, api_key="wrong-key") as client:
        with pytest.raises(openai.AuthenticationError) as refused:
            client.models.list()
        assert "wrong-key" not in str(refused.value)
    prompt = "Once upon a time there was a key, and it was of no use to anybody but to the one who had it. " * 3
    with connected(server, api_key="right-key") as mine, connected(server, api_key="other-key") as another:
        cached = [one.completions.create(model="plain", prompt=prompt, max_tokens=1).usage.prompt_tokens_details.cached_tokens
                  for one in (mine, mine, another)]
        assert cached[0] == 0 < cached[1]
        assert cached[2] == 0


def test_queue_full_then_retried(serve, chat_models):
    """A full queue is a 429 whose Retry-After the client keeps to: it gets its text when there is room."""
    server = serve([chat_models["plain"]], "--max-queue", "1", "--max-running", "1")
    with connected(server) as client:
        stream = client.completions.create(stream=True, **LONG)
        next(iter(stream))
        with pytest.raises(openai.RateLimitError) as refused:
            client.completions.create(model="plain", prompt="x")
        after = int(refused.value.response.headers["retry-after"])
        assert 1 <= after <= 60
        stream.close()
        assert client.with_options(max_retries=5).completions.create(model="plain", prompt="x").choices


def test_body_too_large(serve, chat_models):
    server = serve([chat_models["plain"]], "--max-body", "10000")
    with connected(server) as client, pytest.raises(openai.APIStatusError) as refused:
        client.completions.create(model="plain", prompt="x" * 100_000)
    assert refused.value.status_code == 413


def test_host_of_someone_else(client):
    with pytest.raises(openai.PermissionDeniedError):
        client.with_options(default_headers={"Host": "evil.example"}).models.list()


def test_draining(serve, chat_models):
    server = serve([chat_models["plain"]], "--drain-delay", "0", "--drain", "20")
    with connected(server) as client:
        stream = client.completions.create(stream=True, **LONG)
        next(iter(stream))
        server.terminate()
        server.until(lambda: server.status("/ready") == 404, "/ready does not say that it drains")
        with pytest.raises(openai.InternalServerError) as refused:
            client.models.list()
        assert refused.value.status_code == 503 and int(refused.value.response.headers["retry-after"]) >= 1
        stream.close()
    assert server.process.wait(20) == 0


def test_failure_within_a_stream(serve, chat_models):
    """A stream that cannot be finished does not look finished: the client raises what the error event says."""
    server = serve([chat_models["plain"]], "--drain-delay", "0", "--drain", "0.2")
    with connected(server) as client:
        stream = client.completions.create(stream=True, **LONG)
        next(iter(stream))
        server.terminate()
        with pytest.raises(openai.APIError, match="ending"):
            for chunk in stream:
                assert chunk.choices[0].finish_reason is None
    assert server.process.wait(20) == 0


# ---- Time and leaving


def test_timeout_frees_the_rows(server, client):
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.5).completions.create(**LONG)
    server.idle()


def test_closing_a_stream_frees_the_rows(server, client):
    for n in (1, 3):
        stream = client.completions.create(stream=True, n=n, **LONG)
        for _, chunk in zip(range(5), stream):
            assert chunk.choices
        server.running(n)
        stream.close()
        server.idle()


def test_cancelling_tasks_frees_the_rows(server):
    async def leave():
        async with openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0) as client:
            asked = [asyncio.create_task(client.completions.create(**LONG)) for _ in range(3)]
            await asyncio.to_thread(server.running, 3)
            for one in asked:
                one.cancel()
            return await asyncio.gather(*asked, return_exceptions=True)

    assert all(isinstance(end, asyncio.CancelledError) for end in asyncio.run(leave()))
    server.idle()


def test_request_time_ends_the_text(serve, chat_models):
    server = serve([chat_models["plain"]], "--request-time", "2")
    with connected(server) as client:
        done = client.completions.create(**LONG)
    assert done.choices[0].finish_reason == "length" and done.descent["stop"] == "time"
    assert 0 < done.usage.completion_tokens < LONG["max_tokens"]


def test_raw_headers(client):
    raw = client.with_options(default_headers={"X-Request-Id": "mine-1"}).completions.with_raw_response.create(
        model="plain", prompt="x", max_tokens=1)
    assert raw.headers["x-request-id"] == "mine-1"
    assert raw.headers["content-type"].startswith("application/json")
    assert raw.parse().choices


def test_nothing_listens():
    with openai.OpenAI(base_url="http://127.0.0.1:9/v1", api_key="none", max_retries=0) as client:
        with pytest.raises(openai.APIConnectionError):
            client.models.list()
