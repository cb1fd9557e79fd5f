"""Settings of transformers for attention that models ask for by name: `attn_implementation="flash_attention_2"`.

The library of that name is then found, and a kernel of the hub that is FlashAttention is that library. Nothing changes
where no model asks: transformers does not choose a library because it could.
"""

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from memlint.base.after_import import after_import
from memlint.base.patching import patched
from memlint.libraries.hub_kernels import kernel, library_of

_LIBRARIES = {"flash_attention_2": "flash_attn", "flash_attention_3": "flash_attn_interface"}


def install(use: Callable[[str], None]) -> None:
    """Call `use` with the library that a model asks for, before transformers looks for it."""
    found: set[str] = set()

    def models(module: Any) -> None:
        model = module.PreTrainedModel
        adjust = getattr(model, "_check_and_adjust_attn_implementation", None)
        if adjust is None:
            return

        def adjusted(self: Any, attn_implementation: str | None, *args: Any, **kwargs: Any) -> Any:
            library = _LIBRARIES.get(attn_implementation or "")
            if library is not None and library not in found:
                use(library)
                _ask_again()
                found.add(library)
            return adjust(self, attn_implementation, *args, **kwargs)

        model._check_and_adjust_attn_implementation = adjusted

    def kernels(module: Any) -> None:
        load = getattr(module, "load_and_register_attn_kernel", None)
        if load is None:
            return

        def loaded(attn_implementation: str, *args: Any, **kwargs: Any) -> Any:
            library = library_of(attn_implementation.partition("@")[0].partition(":")[0].strip())
            if library is None:
                return load(attn_implementation, *args, **kwargs)
            use(library)

            def get_kernel(*_: Any, **__: Any) -> ModuleType:
                return kernel(library)

            with patched([(module, "get_kernel", get_kernel), (module, "is_kernels_available", lambda *_, **__: True)]):
                return load(attn_implementation, *args, **kwargs)

        module.load_and_register_attn_kernel = loaded

    after_import("transformers.modeling_utils", models)
    after_import("transformers.integrations.hub_kernels", kernels)


def _ask_again() -> None:
    """Let transformers look anew for packages, for which it reads about every one that is installed."""
    for name, function in vars(import_module("transformers.utils.import_utils")).items():
        if hasattr(function, "cache_clear") and ("flash_attn" in name or name == "_package_distribution_mapping"):
            function.cache_clear()
