"""The papers' claims about NRGPT and CEM, measured on the models that ship: docs/science.md, its pictures and its numbers.

    python3 tools/science.py --descent build/release/descent                    # about 15 minutes on two cores
    python3 tools/science.py --descent build/release/descent --only shakespeare --work /var/tmp/science
    python3 tools/science.py --render                                           # the page again, from docs/science/results.json

Needs matplotlib and numpy. What a claim is, and how one is added: descent_science/__init__.py.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from descent_science import command  # noqa: E402

if __name__ == "__main__":
    sys.exit(command.main())
