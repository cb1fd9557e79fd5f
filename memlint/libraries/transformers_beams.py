"""Beam search of transformers on a simulated GPU: it goes on to the greatest length, as no score is known.

Sampling does so by itself, because a token that is not known is never taken for the end of a text.
"""

import functools
from typing import Any

from memlint.accelerator.device import is_virtual
from memlint.base.after_import import after_import
from memlint.base.patching import patched

_SEARCH, _IS_UNFINISHED = "_beam_search", "_beam_search_has_unfinished_sequences"
"""Methods of transformers' GenerationMixin: the search, and the question after each token whether it goes on."""


def install() -> None:
    """Let beam searches of this process end at their greatest length and not before."""
    after_import("transformers.generation.utils", _follow)


def _follow(module: Any) -> None:
    mixin = module.GenerationMixin
    search, is_unfinished = getattr(mixin, _SEARCH, None), getattr(mixin, _IS_UNFINISHED, None)
    if search is None or is_unfinished is None:
        return

    @functools.wraps(search)
    def searching(self: Any, input_ids: Any, *args: Any, generation_config: Any, **kwargs: Any) -> Any:
        if not is_virtual(input_ids):
            return search(self, input_ids, *args, generation_config=generation_config, **kwargs)
        left: int = generation_config.max_length - input_ids.shape[1]

        def goes_on(*conditions: Any) -> bool:
            nonlocal left
            left -= 1
            is_unfinished(*conditions)
            return left > 0

        with patched([(mixin, _IS_UNFINISHED, staticmethod(goes_on))]):
            return search(self, input_ids, *args, generation_config=generation_config, **kwargs)

    setattr(mixin, _SEARCH, searching)
