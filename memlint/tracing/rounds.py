"""Rounds of a generation: the prefill, then one call of the model for each token, and the caches that they keep.

A round begins when a module is called, with no other module running, that the round before has called already. So an
encoder that runs once and the decoder's first call are one round, the prefill; so are the parts of a model that its
loop calls one after the other.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch

_PASSED = re.compile(r"past|cache|^(state|mems|rnn_state)$")
"""Names of the arguments and results in which models of transformers pass what they keep of earlier tokens."""
_KEPT = re.compile(
    r"cache_?(k|v|kv|keys?|values?)s?$|^(k|v|kv|keys?|values?)_?caches?$|(^|_)(kv|key_value)_?(cache|states?)s?$"
)
"""Names of attributes in which models keep keys and values themselves."""
_DEPTH = 5
"""Depth of objects and containers to which a cache is searched: layers, their states, parts of quantized ones."""


class Rounds:
    """Counts the rounds of the generation that runs."""

    def __init__(self) -> None:
        self.called: set[tuple[int, str]] = set()
        """The modules that the current round has called."""
        self.number = 0
        """0 in the prefill."""

    def begins(self, module: tuple[int, str]) -> bool:
        """Note an outermost call of a module, and return True if a round begins with it."""
        begins = module in self.called or not (self.called or self.number)
        if module in self.called:
            self.called.clear()
            self.number += 1
        self.called.add(module)
        return begins


def passed_caches(result: object, arguments: Mapping[str, object]) -> Iterator[torch.Tensor]:
    """Yield the tensors of caches among the named arguments and the results of a call."""
    fields = result if isinstance(result, Mapping) else {}
    for name, value in (*arguments.items(), *fields.items()):
        if value is not None and _PASSED.search(name) and not name.startswith("use_"):
            yield from _tensors(value, _DEPTH)


def kept_caches(module: torch.nn.Module) -> Iterator[torch.Tensor]:
    """Yield the tensors in which the modules of a model keep keys and values: buffers and attributes."""
    for each in module.modules():
        is_cache = "cache" in type(each).__name__.lower()
        for name, value in (*vars(each).items(), *each.named_buffers(recurse=False)):
            if is_cache and isinstance(value, torch.Tensor):
                yield value
            elif not name.startswith("_") and value is not None and _KEPT.search(name):
                yield from _tensors(value, 2)


def _tensors(value: Any, depth: int) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif not depth or isinstance(value, (str, bytes, int, float, torch.nn.Module, type)):
        return
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors(item, depth - 1)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item, depth - 1)
    elif hasattr(value, "__dict__"):
        for name, item in vars(value).items():
            if "config" not in name:
                yield from _tensors(item, depth - 1)
