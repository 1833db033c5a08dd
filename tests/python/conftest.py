"""The module under test is tools/python; the engine it loads is $DESCENT_LIBRARY, the models lie in $DESCENT_GOLDEN_DIR
(tests/golden converted; CTest sets both)."""
import os
import pathlib
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools" / "python"))

import descent  # noqa: E402

NRGPT = ["nrgpt-ff1", "nrgpt-ff1-rms-diag-alpha", "nrgpt-ff2", "nrgpt-ff2w", "nrgpt-ff2w-scalar", "nrgpt-ff2w-strict"]
BARE = ["nrgpt-listops-bare"]
RECURRENT = ["gpt-rec-parallel"]
CEM = ["cem-none-noprecond", "cem-perhead-diag-gelu", "cem-shared-eta3", "cem-shared-r8-silu"]


def model_path(name):
    return pathlib.Path(os.environ["DESCENT_GOLDEN_DIR"]) / f"{name}.gguf"


def open_model(name):
    return descent.Model(model_path(name))


@pytest.fixture
def nrgpt():
    with open_model("nrgpt-ff2w") as model:
        yield model


@pytest.fixture
def cem():
    with open_model("cem-shared-r8-silu") as model:
        yield model


@pytest.fixture
def gpt():
    with open_model("gpt") as model:
        yield model


@pytest.fixture
def ids():
    """Tokens every golden model has (the smallest vocabulary is 20)."""
    return [(7 * i + i * i // 3) % 20 for i in range(23)]
