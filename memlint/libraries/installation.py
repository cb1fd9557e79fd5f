"""All libraries that are known, found in this process from now on."""

import sys
from collections.abc import Iterable

from memlint.config import Op
from memlint.libraries import (
    apex,
    bitsandbytes,
    custom_ops,
    deepspeed,
    fbgemm,
    flash_attn_3,
    flash_attn_norms,
    mamba,
    mslk,
    own_ops,
    pyg_lib,
    spconv,
    torch_cluster,
    torch_scatter,
    torch_sparse,
    torchao,
    transformer_engine,
    transformers_attention,
    triton,
    xformers,
)
from memlint.libraries.finding import ExtensionFinder, Finder
from memlint.libraries.library import Library

LIBRARIES = (
    fbgemm.library,
    flash_attn_norms.library,
    flash_attn_3.library,
    apex.library,
    apex.extension,
    mamba.library,
    mamba.convolution,
    mslk.library,
    pyg_lib.library,
    spconv.library,
    torch_cluster.library,
    torch_scatter.library,
    torch_sparse.library,
    transformer_engine.library,
    Library("MinkowskiEngine", distribution="MinkowskiEngine", version="unknown"),
)
"""The last is not known at all: what a program uses of it is named."""


def install(ops: Iterable[Op] = ()) -> None:
    """Let programs of this process find these libraries on a simulated GPU, whether they are installed or not.

    `ops` are those of the project's configuration. Raises UsageError where one makes no sense.
    """
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        _install()
    for op in ops:
        own_ops.declare_configured(op)


def _install() -> None:
    finder = Finder(LIBRARIES)
    finder.install()
    sys.meta_path.insert(0, ExtensionFinder(LIBRARIES))
    for module in (triton, bitsandbytes, torchao, mslk, deepspeed, xformers, fbgemm):
        module.install()
    custom_ops.install()
    own_ops.install(finder)
    transformers_attention.install(finder.use)
