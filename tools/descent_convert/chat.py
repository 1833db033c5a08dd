"""Chat templates: the four that the server writes, and which of them a model's own template is.

A model states its template as a Jinja program, which no server of ours runs. Here it is run once, on conversations that tell
templates apart, and compared with the four; docs/convert.md defines them in words. A program from a model is not trusted: it
runs in Jinja's sandbox, in a process of its own (chat_sandbox.py) with little time and memory.
"""

import json
import os
import subprocess
import sys

from . import jsonfile
from .errors import ConvertError, show

MAX_TEMPLATE = 1 << 20
TEMPLATES = ("plain", "chatml", "llama2", "llama3")

_SECONDS = 60  # of the clock; the process stops itself after two of its own


# -- The four. A message is (role, content), role one of system, user and assistant. What is returned is a list of (text,
# whether it is the template's own): special tokens are looked for in the template's text, never in the contents.

def plain(messages, bos, eos):
    labels = {"system": "", "user": "User: ", "assistant": "Assistant: "}
    parts = []
    for role, content in messages:
        parts += [(labels[role], True), (content, False), ("\n\n", True)]
    return [*parts, ("Assistant:", True)]


def chatml(messages, bos, eos):
    parts = []
    for role, content in messages:
        parts += [(f"<|im_start|>{role}\n", True), (content, False), ("<|im_end|>\n", True)]
    return [*parts, ("<|im_start|>assistant\n", True)]


def llama2(messages, bos, eos):
    system = [content for role, content in messages[:1] if role == "system"]
    parts = []
    for turn, (role, content) in enumerate(messages[len(system):]):
        if role != ("user", "assistant")[turn % 2]:
            raise ValueError("after one system message at most, user and assistant take turns")
        if role == "assistant":
            parts += [(" ", True), (content.strip(), False), (f" {eos}", True)]
        elif turn == 0 and system:
            parts += [(f"{bos}[INST] <<SYS>>\n", True), (system[0], False), ("\n<</SYS>>\n\n", True), (content.rstrip(), False),
                      (" [/INST]", True)]
        else:
            parts += [(f"{bos}[INST] ", True), (content.strip(), False), (" [/INST]", True)]
    return parts


def llama3(messages, bos, eos):
    parts = [(bos, True)]
    for role, content in messages:
        parts += [(f"<|start_header_id|>{role}<|end_header_id|>\n\n", True), (content.strip(), False), ("<|eot_id|>", True)]
    return [*parts, ("<|start_header_id|>assistant<|end_header_id|>\n\n", True)]


def render(name, messages, bos="", eos=""):
    """The text of the template `name`."""
    parts = {"plain": plain, "chatml": chatml, "llama2": llama2, "llama3": llama3}[name](messages, bos, eos)
    return "".join(text for text, _ in parts)


class Stated:
    """A tokenizer with the chat template that a model's metadata states beside it."""

    def __init__(self, tokenizer, template):
        self.tokens, self.kind = tokenizer.tokens, tokenizer.kind
        self._tokenizer, self._template = tokenizer, template

    def write(self, writer):
        self._tokenizer.write(writer)
        writer.add_string("descent.chat_template", self._template)


# -- Conversations that tell templates apart: with and without a system message, several turns, contents whose white space a
# template may remove and whose characters it may escape.

FIXTURES = (
    [("user", "Hello")],
    [("system", "You answer briefly."), ("user", "What is 2 + 2?")],
    [("user", "Hi"), ("assistant", "Hello! How can I help?"), ("user", "Tell me a joke.")],
    [("system", "Be kind.\nBe brief."), ("user", "One"), ("assistant", "1"), ("user", "Two"), ("assistant", "2"), ("user", "Three")],
    [("user", "  spaces around \n"), ("assistant", "\n and here\t "), ("user", " \n\nagain  ")],
    [("system", "  a system \n"), ("user", "  with spaces  ")],
    [("user", "<b>\"quoted\" & 'single'</b> {{ braces }} {% raw %} \\n \u00e9\u4e2d\U0001f600")],
)


def of_model(files, bos, eos):
    """Which of TEMPLATES the model's own is, None where it is none of them or there is none, and a note for a person or None.
    `files`: path and bytes by name, of tokenizer_config.json and chat_template.jinja; bos, eos: the tokens' text."""
    template, where = _template(files)
    if template is None:
        return None, None
    rendered = _run(template, bos, eos)
    if isinstance(rendered, str):
        return None, f"{where}: the chat template does not run ({rendered}): none is stored, chat needs one named"
    for name in TEMPLATES:
        if rendered == [render(name, messages, bos, eos) for messages in FIXTURES]:
            return name, None
    return None, f"{where}: the chat template is none of {', '.join(TEMPLATES)}: none is stored, chat needs one named"


def _template(files):
    """The source of the default template and the path of the file it is in, or (None, None)."""
    if "chat_template.jinja" in files:
        path, data = files["chat_template.jinja"]
        try:
            return data.decode("utf-8"), path
        except UnicodeDecodeError as e:
            raise ConvertError(f"{path}: byte {e.start} is not UTF-8") from None
    if "tokenizer_config.json" not in files:
        return None, None
    path, data = files["tokenizer_config.json"]
    config = jsonfile.Config(jsonfile.loads(data, path), path)
    value = config.values.get("chat_template")
    if isinstance(value, list):  # several, by name
        named = {item.get("name"): item.get("template") for item in value if isinstance(item, dict) and isinstance(item.get("name"), str)}
        value = named.get("default")
    if value is None:
        return None, None
    if not isinstance(value, str):
        raise config.bad("chat_template", "text or a list of named texts")
    return value, path


def _run(template, bos, eos):
    """The fixtures as the template renders them, a list; or one line of text that says why it does not."""
    if len(template) > MAX_TEMPLATE:
        return f"it is longer than {MAX_TEMPLATE} characters"
    messages = [[{"role": role, "content": content} for role, content in conversation] for conversation in FIXTURES]
    request = json.dumps({"template": template, "conversations": messages, "bos": bos, "eos": eos})
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "chat_sandbox.py")
    try:
        done = subprocess.run([sys.executable, program], input=request.encode(), capture_output=True, timeout=_SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return "it does not end"
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return "it takes too much time or memory"
    if "error" in answer:
        return show(answer["error"], 200)
    return answer["texts"]
