"""The result of `memlint.watch`: a context, and callbacks for what trains."""

from typing import Any

from memlint.explain.watch.watching import Watching


class Watch(Watching):
    """A context beside a training loop, or the callbacks of a trainer."""

    def for_trainer(self) -> Any:
        """Return a callback for Hugging Face's Trainer: `Trainer(..., callbacks=[memlint.watch().for_trainer()])`."""
        from memlint.explain.watch.trainer_callback import TrainerWatch  # noqa: PLC0415 -- it needs transformers

        return TrainerWatch(self)

    def for_lightning(self) -> Any:
        """Return a callback for Lightning: `L.Trainer(callbacks=[memlint.watch().for_lightning()])`."""
        from memlint.explain.watch.lightning_callback import lightning_watch  # noqa: PLC0415 -- it needs lightning

        return lightning_watch(self)

    def for_accelerate(self) -> Any:
        """Return a tracker for accelerate: `Accelerator(log_with=[memlint.watch().for_accelerate()])`.

        It begins with `accelerator.init_trackers`, and counts a step with each `accelerator.log`.
        """
        from memlint.explain.watch.accelerate_tracker import AccelerateWatch  # noqa: PLC0415 -- it needs accelerate

        return AccelerateWatch(self)
