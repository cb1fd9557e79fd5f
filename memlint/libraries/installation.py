"""All libraries that are known, found in this process from now on."""

import sys

from memlint.libraries import (
    apex,
    bitsandbytes,
    custom_ops,
    deepspeed,
    flash_attn,
    flash_attn_3,
    mamba,
    own_ops,
    torchao,
    transformers_attention,
    triton,
    xformers,
)
from memlint.libraries.finding import ExtensionFinder, Finder
from memlint.libraries.library import Library

LIBRARIES = (
    flash_attn.library,
    flash_attn_3.library,
    apex.library,
    mamba.library,
    mamba.convolution,
    *(
        Library(name, distribution=name.replace("_", "-"), version="unknown")
        for name in ("transformer_engine", "torch_scatter", "torch_sparse", "torch_cluster", "pyg_lib", "fbgemm_gpu",
                     "spconv", "MinkowskiEngine")
    ),
)  # fmt: skip
"""The last of them are not known at all: what a program uses of them is named."""


def install() -> None:
    """Let programs of this process find these libraries on a simulated GPU, whether they are installed or not."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    finder = Finder(LIBRARIES)
    finder.install()
    sys.meta_path.insert(0, ExtensionFinder(LIBRARIES))
    for module in (triton, bitsandbytes, torchao, deepspeed, xformers):
        module.install()
    custom_ops.install()
    own_ops.install(finder)
    transformers_attention.install(finder.use)
