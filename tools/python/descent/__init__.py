"""Energy-based language models from Python: logits, states x(t) and energies of libdescent as numpy arrays.

    import descent
    model = descent.Model("models/nrgpt-shakespeare.gguf")
    run = model.run(model.encode("To be"), steps=6, observe=("energy", "state", "final"))
    run.logits, run.states, run.energy["attention"], run.own_change

The module is descent.h (the engine's header, which says what every number means) with arrays for pointers, exceptions for
status codes, and objects that close themselves.
"""
from ._model import Info, Model, Tensor, TokenizerInfo
from ._native import Code, Error, library as _library
from ._run import Run, Trace
from ._sequence import Batch, Cache, Observation, Sequence

__all__ = ["Batch", "Cache", "Code", "Error", "Info", "Model", "Observation", "Run", "Sequence", "Tensor", "TokenizerInfo",
           "Trace", "isa", "__version__"]

__version__ = _library.descent_version().decode()


def isa():
    """The instruction set the engine computes with: "avx512-vbmi", "avx512-vnni", "avx512", "avx2" or "portable"."""
    return _library.descent_isa().decode()
