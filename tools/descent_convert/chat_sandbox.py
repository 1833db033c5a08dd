"""Run as a program by chat.py: renders a model's chat template in Jinja's sandbox, within limits of time and memory.

Standard input is JSON with `template`, `conversations`, `bos`, `eos`; standard output JSON with `texts`, one a conversation
(null where the template refuses it), or `error`.
"""

import json
import resource
import sys

_SECONDS = 2
_MEMORY = 1 << 30
_MAX_TEXT = 1 << 20


class Refused(Exception):
    """The template called raise_exception."""


def _refuse(message):
    raise Refused(str(message))


def main():
    resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = json.load(sys.stdin)
    try:
        answer = {"texts": _render(request)}
    except MemoryError:
        answer = {"error": "it takes too much memory"}
    except Exception as e:  # noqa: BLE001 - a template may raise anything
        answer = {"error": f"{type(e).__name__}: {e}"[:1000]}
    json.dump(answer, sys.stdout)


def _render(request):
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
    environment.globals["raise_exception"] = _refuse
    template = environment.from_string(request["template"])
    texts = []
    for messages in request["conversations"]:
        try:
            text = template.render(messages=messages, bos_token=request["bos"], eos_token=request["eos"], add_generation_prompt=True)
        except Refused:
            text = None
        if text is not None and len(text) > _MAX_TEXT:
            raise ValueError("it writes too much")
        texts.append(text)
    return texts


if __name__ == "__main__":
    main()
