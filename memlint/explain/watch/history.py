"""The history of PyTorch's CUDA allocator in this process: recorded if nobody else records it, written on failure."""

import logging
import os
from pathlib import Path

LOGGER = logging.getLogger("memlint.watch")
_CHECK = "PYTORCH_NVML_BASED_CUDA_CHECK"


class History:
    """The allocator's ring buffer of events, with the Python lines that allocated."""

    def __init__(self, max_entries: int) -> None:
        self.max_entries = max_entries
        self.is_own = False
        """True while this object has it recorded."""

    def begin(self) -> bool:
        """Begin to record, unless the program does so itself; False if there is no CUDA or HIP device."""
        import torch  # noqa: PLC0415 -- `import memlint` loads no torch

        from memlint.accelerator import private  # noqa: PLC0415

        if not _has_device():
            return False
        if private.is_history_recorded() or self.is_own:
            return True
        torch.cuda.init()
        private.record_history("all", context="alloc", stacks="python", max_entries=self.max_entries)
        self.is_own = True
        return True

    def end(self) -> None:
        """End what `begin` began; the history of others goes on."""
        from memlint.accelerator import private  # noqa: PLC0415

        if self.is_own:
            self.is_own = False
            private.record_history(None)

    def write(self, file: Path) -> None:
        """Write the snapshot, as `torch.cuda.memory._dump_snapshot` does."""
        from memlint.accelerator import private  # noqa: PLC0415

        private.dump_snapshot(str(file))


def _has_device() -> bool:
    """Ask NVML and not CUDA: processes that are forked later could not use CUDA otherwise."""
    import torch  # noqa: PLC0415

    if torch.cuda.is_initialized():
        return True
    before = os.environ.get(_CHECK)
    os.environ[_CHECK] = "1"
    try:
        return torch.cuda.is_available()
    finally:
        if before is None:
            del os.environ[_CHECK]
        else:
            os.environ[_CHECK] = before
