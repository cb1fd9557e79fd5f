"""Records of what a script has built when it is over or stopped: its models, optimizers, loaders and settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from pydantic import ConfigDict

from memlint.memory.records import Frame
from memlint.source.fed_calls import FedCall
from memlint.targets.script import Ending, Happened


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that a script has given, and its place."""

    value: int | str
    source: str
    """The place in words: `DataLoader(batch_size=32)`, `args.batch_size`."""
    frame: Frame | None = None
    """The user's line that gave it; None for a value of a namespace or config."""
    is_sure: bool = True
    """False for a value that is only known by its name, or by one of several loaders."""


@dataclass(frozen=True, slots=True)
class BuiltInput:
    """A tensor that a model was called with, or a plain value, which has no shape and the dtype `constant`."""

    name: str
    """The parameter of `forward`, and the keys within it: `batch.images`; digits for further positional ones."""
    shape: tuple[int, ...]
    dtype: str
    value: bool | int | float | str | None = None
    """The plain value; None for a tensor."""


@dataclass(frozen=True, slots=True)
class BuiltClass:
    """A class of modules, and the first call of its constructor."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")

    module: str
    qualname: str
    path: str
    """Absolute path of the file that defines the class; empty if it has none."""
    num_parameters: int
    frame: Frame | None = None
    """The user's line that called the constructor; None for a copy."""
    arguments: bytes | None = None
    """The constructor's arguments, for `memlint.workloads.construction.recorded_arguments`; None if they are unknown or
    cannot be pickled.
    """
    shown: str = ""
    """The call as text: `GPT(GPTConfig(n_layer=12))`."""
    inputs: tuple[BuiltInput, ...] = ()
    """The tensors of the first call by the script itself, and by no module around it."""
    is_base: bool = False
    """True for one that the class of the model derives from."""

    @property
    def name(self) -> str:
        """The class as a person would say it."""
        return self.qualname.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class BuiltModel(BuiltClass):
    """A module that is no part of another one."""

    __pydantic_config__: ClassVar[ConfigDict] = BuiltClass.__pydantic_config__

    is_called: bool = False
    """True if it, or a part of it, was called on the GPU, or on the CPU by a script that trains it there."""
    is_training: bool = True
    """True if it was in training mode, in its first call or at the end."""
    has_optimizer: bool = False
    """True if an optimizer has some of its parameters."""
    is_copy: bool = False
    """True if it was copied from another one, as an average of weights is."""
    called_at: Frame | None = None
    """The user's line of its own first call there."""
    parts: tuple[BuiltClass, ...] = ()
    """The classes of the project's own files among its submodules, each with the instance that was called, or else its
    first.
    """
    fed: FedCall | None = None
    """Its call in the text of the training loop; None if none is seen."""
    frozen: tuple[str, ...] = ()
    """Names of the modules and parameters in it that are frozen, where the rest is trained."""
    is_freed_later: bool = False
    """True if the training frees them after some epochs."""
    num_gpus: int = 1
    """Number of GPUs among which DataParallel divides its batches."""

    @property
    def takes_picture(self) -> bool:
        """True if its only input was a batch of pictures."""
        return [(len(each.shape), each.dtype) for each in self.inputs] == [(4, "float32")]


@dataclass(frozen=True, slots=True)
class BuiltOptimizer:
    """An optimizer that a script has made."""

    name: str
    """Its class."""
    defaults: Mapping[str, object] = field(default_factory=dict, hash=False)
    """Those of its default settings that are plain values: `lr`, `foreach`, `fused`."""
    num_parameters: int = 0
    """Number of values that it updates."""


@dataclass(frozen=True, slots=True)
class Built:
    """Everything that a script has built when it is over or stopped."""

    command: str
    """The script as the user typed it: `train.py --epochs 3`."""
    ending: Ending
    models: tuple[BuiltModel, ...] = ()
    """Trained ones first, then the largest."""
    optimizers: tuple[BuiltOptimizer, ...] = ()
    stated_optimizer: Setting | None = None
    """The name of the optimizer, as a Workload has it, in the text of the loop; only where the script has made none."""
    batch: Setting | None = None
    """Items per batch: of the training loader if there is one, else by the name of an argument or a config's value."""
    dtype: Setting | None = None
    """A Workload's dtype; None if neither autocast nor the parameters say one."""
    accumulation: Setting | None = None
    """Batches per step; None if nothing says so."""
    criteria: tuple[str, ...] = ()
    """Classes of the losses that were made outside of models."""
    sizes: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Whole numbers in arguments, configs and variables of the script, by name."""
    happened: Happened = "nothing"
    """The point that the script itself reached."""
    made_up: str = ""
    """The stand-in for the first data that was not there: a vocabulary may come from it; empty if all was there."""
    fewest_items: int | None = None
    """Items in the smallest training data; None if there is none."""
    lacks: str = ""
    """Advice on the packages that are not installed and that tensors may pass through; empty without any."""
    passed_over: str = ""
    """The first line whose error was passed over, so that the rest is not all that the script would have built."""

    def classes_of(self, path: str, qualname: str = "") -> list[tuple[BuiltModel, BuiltClass]]:
        """Return the classes of a file that were built, or the one of this name, each with the model that has it.

        A file of functions that build models has the classes of another one: then these models are meant.
        """
        each_class = ((model, each) for model in self.models for each in (model, *model.parts))
        own = [(m, each) for m, each in each_class if each.path == path and qualname in ("", each.qualname)]
        made = ((m, m) for m in self.models if m.frame is not None and m.frame.path == path and not qualname)
        return own or list(made)


@dataclass(frozen=True, slots=True)
class Asked:
    """The answer of a script of the project that was asked how it builds what a file defines."""

    built: Built
    command: str
    """The script, by its path from the current directory, and its arguments."""
    others: tuple[str, ...] = ()
    """Other scripts that may build it, with their arguments."""
    trains: bool = True
    """False if its name, or its text, says that it does something else than train."""
    is_example: bool = False
    """True for code in a document: it says only by what it does with the model if that is trained."""
    ranks: int = 0
    """Processes that torchrun starts of the script; 0 without it."""
    trainer: str = ""
    """The script that trains it, if that ended before it built it: all that was built but the models is that one's."""

    def trained_by(self, command: str, built: Built | None) -> Self:
        """Return the same models with the settings of the script that trains them, which has built none itself.

        A picture is as large as what this one evaluates: what trains them says the size, or nothing does.
        """
        models = tuple(
            replace(each, is_called=False, is_training=True, inputs=() if each.takes_picture else each.inputs)
            for each in self.built.models
        )
        settings = Built(command, self.built.ending) if built is None else built
        others = tuple(each for each in self.others if each != command)
        built = replace(settings, models=models)
        return replace(self, built=built, others=others, trainer=command, trains=True)
