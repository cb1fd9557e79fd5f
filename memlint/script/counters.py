"""Packages that count a model's operations, or draw them, as `torch.jit.trace` records them: no virtual GPU lets it."""

from types import ModuleType, SimpleNamespace

from memlint.base.after_import import after_import


def count_nothing() -> None:
    """Let fvcore find no operations in a model, and TensorBoard draw none, from their import on."""
    after_import("fvcore.nn.jit_analysis", _trace_nothing)
    for name in ("torch.utils.tensorboard.writer", "tensorboardX.writer"):
        after_import(name, _draw_nothing)


def _trace_nothing(module: ModuleType) -> None:
    setattr(module, "_get_scoped_trace_graph", lambda *_: SimpleNamespace(nodes=tuple))  # noqa: B010 -- fvcore's own name


def _draw_nothing(module: ModuleType) -> None:
    module.SummaryWriter.add_graph = lambda *_, **__: None
