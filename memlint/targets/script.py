"""What `memlint run` runs, as a plain record."""

import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Count = Annotated[int, Field(ge=1, strict=True)]
END_SIGNAL = getattr(signal, "SIGUSR2", signal.SIGTERM)
"""Asks a script to end and to answer with what was seen so far."""


class Script(BaseModel):
    """A training script with its arguments, and how far it is run."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """That budgets and comparisons know it by."""
    path: str = ""
    """Absolute path of the file; empty with a module."""
    module: str = ""
    """Name of a module that is run as `python -m` does."""
    arguments: tuple[str, ...] = ()
    steps: Count = 2
    """Optimizer steps, or steps by hand, after which it is ended."""
    whole: bool = False
    """Whether it runs to its end instead, with loaders cut to `batches` batches."""
    batches: Count = 3
    ranks: Count | None = None
    """World size that `rank` is told of, as by torchrun; None without torchrun."""
    rank: Annotated[int, Field(ge=0, strict=True)] = 0
    """Which of these it is."""
    fake_data: bool = False
    """Whether data that is not there is made up."""
    keep_writes: bool = False
    """Whether it writes files where it wants to, and not into a scratch folder."""
    repeat: bool = False
    """Whether evaluation batches of shapes that were seen before are run again."""
    gpu: str | None = None
    """None: what the settings say."""
    allocator: str = ""
    """`PYTORCH_ALLOC_CONF`; the variable of the environment counts where it is empty."""

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if self.rank >= (self.ranks or 1):
            raise ValueError(f"there is no rank {self.rank} of {self.ranks or 1}")
        return self

    @property
    def command(self) -> str:
        """As it was typed: `train.py --epochs 3`."""
        start = ("-m", self.module) if self.module else (Path(self.path).name,)
        return shlex.join((*start, *self.arguments))


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a script was over."""

    reason: str
    """The end of a sentence: `2 steps were taken`."""
    goes_on: bool = False
    """Whether the script would have gone on."""
    is_failure: bool = False
    """Whether it is less than what was asked for."""
    traceback: tuple[str, ...] = ()
    """With a failure: `path:line in function` of the user's lines, outermost first."""
    hint: str = ""
    """What to do about it, where that is known."""
