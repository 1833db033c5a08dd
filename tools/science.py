"""The papers' claims about NRGPT and CEM, measured on the models that ship: docs/science.md, its pictures and its numbers.

    .venv/bin/python tools/science.py --descent build/release/descent                    # 6 to 15 minutes on two cores
    .venv/bin/python tools/science.py --descent build/release/descent --only shakespeare --work /var/tmp/science
    .venv/bin/python tools/science.py --render                                           # the page again, from docs/science/results.json

Needs matplotlib and numpy, as in the .venv that tools/setup.sh --tests makes. What a claim is, and how one is added: descent_science/__init__.py.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
try:
    from descent_science import command  # noqa: E402
except ModuleNotFoundError as error:
    sys.exit(f"science.py: the Python package {error.name!r} is missing; tools/setup.sh --tests makes a .venv that has it: .venv/bin/python tools/science.py")

if __name__ == "__main__":
    sys.exit(command.main())
