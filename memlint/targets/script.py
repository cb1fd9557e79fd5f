"""The record of the script that `memlint run` runs."""

import re
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Happened = Literal["trained", "evaluated", "generated", "built", "computed", "nothing"]
"""The point that a script reached by itself: a whole step taken; a model called without gradients; a generation over;
a model built, and no more; only operations of its own on the GPU; none of these.
"""
Count = Annotated[int, Field(ge=1, strict=True)]
END_SIGNAL = getattr(signal, "SIGUSR2", signal.SIGTERM)
"""The signal that asks a script to end and to answer with what memlint has seen so far."""
HAD_BUILT = "; it had built "
"""Begins the part of an error of a script that says why no step of memlint's own was possible."""


class Amendment(NamedTuple):
    """A change of what an installed package offers, for a program that was written for another version of it."""

    kind: Literal[
        "module",
        "name",
        "attribute",
        "keyword",
        "positional",
        "by_name",
        "keys",
        "default",
        "none",
        "option",
        "word",
        "ranks",
        "conflict",
        "hook",
        "accelerator",
        "strategy",
        "screen",
        "groups",
        "settings",
        "folder",
        "task",
        "devices",
        "optimizers",
        "load",
        "config",
        "hparams",
        "variable",
        "launcher",
        "assertion",
        "model",
        "loader_index",
        "spectra",
        "strings",
        "ragged",
        "hidden",
        "sanity",
        "seed",
        "abstract",
        "mutable",
        "broken",
        "yaml",
    ]
    """A module, a name of one or an attribute of objects that is gone; an argument that a function or constructor no
    longer takes, by its name or its place, or that it takes for another value where none is given; a setting that may
    not be None; an option that a parser no longer has; a placeholder in a path, or a config that a group of hydra's
    lacks; the number of GPUs that it wants; an option that two parts of a parser have; a hook of a model, or a name
    of an accelerator, that Lightning no longer has; more GPUs than are there; several optimizers of one model; a
    checkpoint with more in it than weights; the path of a config where hydra wants the folder and the name; settings
    that a model of Lightning may not be given; an environment variable that is not set and names a place or an
    account, or that a launcher sets; an assertion of the user's on values or a version; a model of timm by a former
    name; a hook that wants the number of its loader; spectra of real numbers; columns of texts that take other
    values; a package of the project behind an installed one of its name; a check of validation that fails before
    Lightning trains; a seed that is a number of NumPy; a method that classes derived from one have to have; an object
    as the default of a field of a dataclass; a package that cannot be imported; the loader of YAML, where none is
    named.
    """
    owner: str
    """The module; for an option, the option; for a word that stands for another one, that."""
    name: str = ""
    """The name in the module, or several with spaces between them; for an argument `Class.__init__.argument`; for an
    option, its class or new name; for an assertion, its line; for a hidden package, its folder; for a broken one, why.
    """


class Script(BaseModel):
    """A training script with its arguments, and how far to run it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    """Name in budgets and comparisons."""
    path: str = ""
    """Absolute path of the file; empty for a module."""
    module: str = ""
    """Name of a module to run as `python -m` does, or the function that a command calls: `package.module:function`."""
    code: str = ""
    """The program, of which `path` only has the lines: code in a document; empty for a file that is one."""
    arguments: tuple[str, ...] = ()
    steps: Count = 2
    """Number of optimizer steps, or of steps by hand, after which the run ends."""
    whole: bool = False
    """True to run to the script's own end instead, with loaders cut to `batches` batches."""
    batches: Count = 3
    ranks: Count | None = None
    """World size that `rank` sees, as under torchrun; None without torchrun."""
    rank: Annotated[int, Field(ge=0, strict=True)] = 0
    """This process's rank."""
    fake_data: bool | None = None
    """True to replace missing data with fake data; None to do so once the script has ended for want of it."""
    seq: Count | None = None
    """Words of each text of a fake data set; None: as many as most scripts cut texts to."""
    config_of: tuple[tuple[str, str], ...] = ()
    """Settings, as JSON objects, of models and checkpoints that are not on this machine, by their names."""
    keep_writes: bool = False
    """True to let the script write files where it wants to, instead of into a scratch folder."""
    repeat: bool = False
    """True to run evaluation batches again even if their shapes were seen before."""
    folder: str = ""
    """Absolute path of the directory in which it is run; empty for that of memlint."""
    builds_only: bool = False
    """True if only what it builds is asked for: it ends when it calls its model."""
    gpu: str | None = None
    """Name of the GPU; None: the one of the settings."""
    allocator: str = ""
    """Value of `PYTORCH_ALLOC_CONF`; if empty, the environment variable counts."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables that the command line sets."""
    accelerate: tuple[str, ...] | None = None
    """Options of the `accelerate launch` that starts it, if one does."""
    amendments: tuple[Amendment, ...] = ()
    """Changes to make before it runs, learned from runs that ended without them."""
    typed: tuple[str, ...] = ()
    """Command line as the user typed it, if that is a launcher's, a shell script's or a command's."""
    is_started: bool = False
    """True if the program that was typed does nothing but to start this one."""

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if self.rank >= (self.ranks or 1):
            raise ValueError(f"there is no rank {self.rank} of {self.ranks or 1}")
        return self

    def amended(self, amendment: Amendment) -> Self:
        """Return the script with one more change."""
        ranks = int(amendment.name) if amendment.kind == "ranks" else self.ranks
        return self.model_copy(update={"amendments": (*self.amendments, amendment), "ranks": ranks})

    @property
    def package(self) -> str:
        """Name of the package that the module is in, or of the module itself; empty for a file."""
        return re.split(r"[.:]", self.module)[0]

    @property
    def makes_folders(self) -> bool:
        """True if a folder that is not there is made where the script writes in it."""
        return any(each.kind == "folder" for each in self.amendments)

    @property
    def command(self) -> str:
        """Command line as the user typed it: `train.py --epochs 3`."""
        if self.typed:
            return shlex.join(self.typed)
        start = ("-m", self.module) if self.module else (Path(self.path).name,)
        return shlex.join((*start, *self.arguments))


class Started(NamedTuple):
    """A Python program that a script has started."""

    words: tuple[str, ...]
    folder: str
    """Its working directory; empty for that of the script."""
    variables: tuple[tuple[str, str], ...]
    """Environment variables that the script has set for it."""


@dataclass(frozen=True, slots=True)
class Ending:
    """Why a script ended."""

    reason: str
    """The reason as the end of a sentence: `2 steps were taken`."""
    goes_on: bool = False
    """True if the script would have continued."""
    is_failure: bool = False
    """True if the run covered less than the user asked for."""
    traceback: tuple[str, ...] = ()
    """For a failure: `path:line in function` of the user's lines, outermost first."""
    hint: str = ""
    """Advice on how to mend a failure, if there is any."""
    amendment: Amendment | None = None
    """A change with which the script may come further, if a package of another version ended it."""
    is_refusal: bool = False
    """True if the script's parser rejected its arguments."""
    has_exited: bool = False
    """True if the script called `sys.exit` with a failure: what it says of it, it has printed."""
    lacks: str = ""
    """The package or the model for want of which it ended; empty for any other reason."""
