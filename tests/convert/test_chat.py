"""Which chat template is stored: the model's own Jinja template is run and compared with the four of docs/convert.md."""

import json

import pytest

import checkpoints
import reading
from checkpoints import nrgpt_state, training
from descent_convert import chat
from test_hf import added, byte_level

# Templates as models state them.
CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
          "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")
LLAMA2 = """{% if messages[0]['role'] == 'system' %}
    {%- set system, turns = messages[0]['content'], messages[1:] -%}
{% else %}
    {%- set system, turns = none, messages -%}
{% endif %}
{%- for turn in turns -%}
    {%- if (turn.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('turns') }}{% endif -%}
    {%- set text = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + turn.content if loop.first and system is not none else turn.content -%}
    {%- if turn.role == 'user' -%}
        {{ bos_token ~ '[INST] ' ~ text.strip() ~ ' [/INST]' }}
    {%- else -%}
        {{ ' ' ~ text | trim ~ ' ' ~ eos_token }}
    {%- endif -%}
{%- endfor -%}"""
LLAMA3 = ("{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + "
          "message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}"
          "{{ content }}{% endfor %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}")
PLAIN = """{% for m in messages %}
{{ {'system': '', 'user': 'User: ', 'assistant': 'Assistant: '}[m.role] }}{{ m.content }}{{ '\n\n' }}
{%- endfor %}
Assistant:"""
MATCHING = {"plain": PLAIN, "chatml": CHATML, "llama2": LLAMA2, "llama3": LLAMA3}


def find(template, bos="<s>", eos="</s>"):
    return chat.of_model({"tokenizer_config.json": ("dir/tokenizer_config.json", json.dumps({"chat_template": template}).encode())}, bos, eos)


@pytest.mark.parametrize("name", MATCHING)
def test_matches(name):
    assert find(MATCHING[name]) == (name, None)


# What docs/convert.md says, written out.
@pytest.mark.parametrize("name, expected", [
    ("plain", " S \n\nUser:  one \n\nAssistant: two\n\nUser: three\n\nAssistant:"),
    ("chatml", "<|im_start|>system\n S <|im_end|>\n<|im_start|>user\n one <|im_end|>\n<|im_start|>assistant\ntwo<|im_end|>\n"
               "<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\n"),
    ("llama2", "<s>[INST] <<SYS>>\n S \n<</SYS>>\n\n one [/INST] two </s><s>[INST] three [/INST]"),
    ("llama3", "<s><|start_header_id|>system<|end_header_id|>\n\nS<|eot_id|><|start_header_id|>user<|end_header_id|>\n\none<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\ntwo<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nthree<|eot_id|>"
               "<|start_header_id|>assistant<|end_header_id|>\n\n"),
])
def test_renderings(name, expected):
    messages = [("system", " S "), ("user", " one "), ("assistant", "two"), ("user", "three")]
    assert chat.render(name, messages, "<s>", "</s>") == expected


@pytest.mark.parametrize("messages", [[("assistant", "a")], [("user", "a"), ("user", "b")], [("user", "a"), ("system", "b")]])
def test_llama2_takes_turns(messages):
    with pytest.raises(ValueError, match="take turns"):
        chat.render("llama2", messages)


@pytest.mark.parametrize("template", [
    CHATML.replace("im_end", "im_stop"), "{{ bos_token }}" + CHATML, CHATML.replace("message['content']", "message['content'] | trim"),
    CHATML.replace("message['content']", "message['content'] | e"), LLAMA3.replace("| trim", ""), LLAMA2.replace("' ' ~ eos_token", "eos_token"),
    "{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\nYou are helpful.<|im_end|>\n' }}{% endif %}" + CHATML, "", "chat",
    LLAMA2.replace("messages[0]['content'], messages[1:]", "raise_exception('no system'), messages"),
])
def test_none_of_them(template):
    name, note = find(template)
    assert name is None and "is none of plain, chatml, llama2, llama3" in note


@pytest.mark.parametrize("template", [
    "{% for %}", "{{ messages[0].__class__.__mro__ }}", "{{ undefined_function() }}", "{% include 'x' %}", "{{ 1 / 0 }}",
    "{% for i in range(10 ** 9) %}{% endfor %}", "{{ 'a' * 10 ** 12 }}", "{{ ('a' * 10 ** 7) }}", "{{ messages.append(1) }}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
])
def test_templates_that_do_not_run(template):
    """They end, whatever they are, and in what memory the sandbox has."""
    name, note = find(template)
    assert name is None and "does not run" in note and "\n" not in note


def test_where_the_template_is():
    def found(config, jinja=None):
        files = {"tokenizer_config.json": ("a", json.dumps(config).encode())}
        if jinja:
            files["chat_template.jinja"] = ("b", jinja.encode())
        return chat.of_model(files, "<s>", "</s>")

    assert found({}) == (None, None) and chat.of_model({}, "", "") == (None, None)
    assert found({"chat_template": CHATML}, LLAMA3)[0] == "llama3"
    assert found({"chat_template": [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}]})[0] == "chatml"
    assert found({"chat_template": [{"name": "tool_use", "template": CHATML}]}) == (None, None)
    with pytest.raises(chat.ConvertError, match="chat_template"):
        found({"chat_template": 5})


def test_stored(convert, tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    checkpoints.write_pt(folder / "ckpt.pt", training(nrgpt_state(V=300)))
    values = byte_level()
    values["added_tokens"] += [added(261, "<|im_start|>"), added(262, "<|im_end|>")]
    (folder / "tokenizer.json").write_text(json.dumps(values))
    out = tmp_path / "out.gguf"
    for template, stored in ((CHATML, "chatml"), ("{{ messages }}", None), (None, None)):
        (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": template, "eos_token": "<|im_end|>"}))
        result = convert(folder, out)
        assert result.status == 0 and reading.fields(out).get("descent.chat_template") == stored
        assert ("chat template" in result.err) == (template is not None and stored is None)


def test_conversations_are_told_apart():
    """Each of the four differs from the others on every conversation, so that what matches is one of them only."""
    for messages in chat.FIXTURES:
        assert len({chat.render(name, messages, "<s>", "</s>") for name in chat.TEMPLATES}) == len(chat.TEMPLATES)
