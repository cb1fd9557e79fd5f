"""Metrics of torchmetrics that are told no task: before version 0.11 they took it from what they were given."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch


def with_tasks(_name: str, module: Any) -> None:
    """Let metrics of classification be made without a task: of their number of classes, or else they measure nothing.

    A metric keeps a few numbers: one that measures nothing costs no memory worth speaking of.
    """

    class Nothing(module.Metric):  # type: ignore[misc]
        """A metric that is always 0."""

        def update(self, *_values: Any, **_named: Any) -> None:
            """Leave the values out."""

        def compute(self) -> torch.Tensor:
            """Return 0."""
            return torch.zeros(())

    def of_classes(new: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(new)
        def make(cls: Any, *arguments: Any, **named: Any) -> Any:
            if "task" in named or (arguments and isinstance(arguments[0], str)):
                return new(cls, *arguments, **named)
            num_classes = named.pop("num_classes", None) or next(iter(arguments), None)
            if not isinstance(num_classes, int):
                return Nothing()
            return new(cls, task="multiclass", num_classes=max(2, num_classes), **named)

        return make

    for kind in vars(module).values():
        if isinstance(kind, type) and "task" in getattr(kind.__new__, "__annotations__", {}):
            kind.__new__ = staticmethod(of_classes(kind.__new__))  # type: ignore[method-assign]
