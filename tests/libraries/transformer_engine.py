"""What programs find in `transformer_engine.pytorch` and beside it."""

from types import SimpleNamespace

from memlint_libraries.transformer_engine import library

te = SimpleNamespace(
    **library.modules["transformer_engine.pytorch"],
    **library.modules["transformer_engine.common.recipe"],
    optimizers=SimpleNamespace(**library.modules["transformer_engine.pytorch.optimizers"]),
)
