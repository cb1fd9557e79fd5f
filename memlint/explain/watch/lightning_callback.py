"""The watch as a callback of Lightning, which tells its callbacks of exceptions."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memlint.explain.watch.watching import Watching


def lightning_watch(watch: Watching) -> Any:
    """Return a callback of the Lightning that is used: `lightning` or `pytorch_lightning`, which do not mix."""
    name = "pytorch_lightning" if "pytorch_lightning" in sys.modules and "lightning" not in sys.modules else "lightning"
    base: Any = importlib.import_module(name if name == "pytorch_lightning" else "lightning.pytorch").Callback

    class LightningWatch(base):  # type: ignore[misc]
        """Begins and ends with `fit`, and explains the exception that ends it."""

        def on_fit_start(self, *_arguments: Any) -> None:
            watch.begin()

        def on_train_batch_end(self, *_arguments: Any) -> None:
            watch.step()

        def on_exception(self, _trainer: Any, _module: Any, exception: BaseException) -> None:
            watch.explain(exception)
            watch.end()

        def on_fit_end(self, *_arguments: Any) -> None:
            watch.end()

    return LightningWatch()
