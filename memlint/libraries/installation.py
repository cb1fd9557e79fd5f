"""All libraries that are known, found in this process from now on."""

import sys
from collections.abc import Iterable

from memlint.config import Op
from memlint.libraries import (
    apex,
    bitsandbytes,
    compiled_kernels,
    custom_ops,
    d4rl,
    deepspeed,
    extensions,
    flash_attn_3,
    flash_attn_norms,
    gputil,
    gym,
    hub_kernels,
    mpi4py,
    nvml,
    own_ops,
    torchao,
    torchvision,
    transformers_attention,
    transformers_beams,
    triton,
    xformers,
)
from memlint.libraries.finders import Finder
from memlint.libraries.plugins import Plugins

LIBRARIES = (
    flash_attn_norms.library,
    flash_attn_3.library,
    apex.library,
    apex.extension,
    hub_kernels.library,
    *gym.libraries,
    d4rl.library,
    gputil.library,
    mpi4py.library,
)
"""The libraries of the engine; all others are plugins."""


def install(ops: Iterable[Op] = ()) -> None:
    """Let programs of this process find these libraries on a simulated GPU, whether they are installed or not.

    `ops` are those of the project's configuration. Raises UsageError where one makes no sense.
    """
    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        _install()
    for op in ops:
        own_ops.declare_configured(op)


def _install() -> None:
    finder = Finder(LIBRARIES, Plugins())
    hub_kernels.install(finder.use)
    finder.install()
    with_kernels = triton, bitsandbytes, compiled_kernels, torchao, torchvision, deepspeed, xformers, extensions
    for module in (*with_kernels, nvml):
        module.install()
    custom_ops.install()
    own_ops.install(finder)
    transformers_attention.install(finder.use)
    transformers_beams.install()
