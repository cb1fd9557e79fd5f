"""All libraries that are known, found in this process from now on."""

import sys

from memlint.libraries import (
    apex,
    bitsandbytes,
    custom_ops,
    flash_attn,
    flash_attn_3,
    own_ops,
    torchao,
    transformers_attention,
    triton,
)
from memlint.libraries.finding import ExtensionFinder, Finder

LIBRARIES = (flash_attn.library, flash_attn_3.library, apex.library)


def install() -> None:
    """Let programs of this process find these libraries on a simulated GPU, whether they are installed or not."""
    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    finder = Finder(LIBRARIES)
    finder.install()
    sys.meta_path.insert(0, ExtensionFinder(LIBRARIES))
    for module in (triton, bitsandbytes, torchao):
        module.install()
    custom_ops.install()
    own_ops.install(finder)
    transformers_attention.install(finder.use)
