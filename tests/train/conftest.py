"""The trainer's tests run with a Python that has torch, sentencepiece and pytest: Debian's own is enough."""
import os
import pathlib
import sys

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch starts its threads: one that spins takes a core
import torch  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "train"))
torch.set_num_threads(1)  # small tensors, and tests that run side by side


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes more than 20 s on two cores")
