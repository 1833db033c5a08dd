#!/usr/bin/env python3
"""Converts a checkpoint to GGUF: python3 tools/convert.py IN OUT [options]. docs/convert.md explains.

The work is in descent_convert; this file finds the Python packages it needs, for generate_model.py as well. They are in the
repository's .venv, made by tools/setup.sh, so that where the Python that was called lacks them that one takes over.
"""

import importlib
import os
import sys

TOOLS = os.path.dirname(os.path.abspath(__file__))
VENV = os.path.join(os.path.dirname(TOOLS), ".venv")


def start(script, package):
    """Runs `package`.cli with the arguments the file `script` was called with; returns the exit status."""
    name = os.path.basename(script)
    if sys.version_info < (3, 10):
        print(f"{name}: Python 3.10 or newer is needed", file=sys.stderr)
        return 1
    sys.path.insert(0, TOOLS)
    try:
        import gguf  # noqa: F401
        import jinja2  # noqa: F401
        import numpy  # noqa: F401
    except ImportError as e:
        python = os.path.join(VENV, "bin", "python")
        if os.path.exists(python) and os.path.realpath(sys.prefix) != os.path.realpath(VENV):
            os.execv(python, [python, os.path.abspath(script), *sys.argv[1:]])
        print(f"{name}: the Python package '{e.name}' is missing; tools/setup.sh --tests installs it in .venv",
              file=sys.stderr)
        return 1
    return importlib.import_module(package + ".cli").main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(start(__file__, "descent_convert"))
