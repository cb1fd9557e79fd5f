"""The model of a library: the functions that programs call, and the ops that are its kernels.

A file of this package says of one library what each function gives, what it saves for backward, and what its kernels
take for themselves. Functions are plain PyTorch, mostly a `torch.autograd.Function`; a kernel is a function that
allocates what it returns and drops what it takes for itself:

    @library.kernel("forward(Tensor q, Tensor k, Tensor v) -> (Tensor, Tensor)")
    def _forward(q, k, v):
        partial_sums = temporary(4 * q.numel())
        del partial_sums
        return like(q), contiguous(q.shape[:-1], torch.float32)
"""

import os
import sys
from collections.abc import Callable, Iterable
from importlib.metadata import Distribution
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, NoReturn, TypeVar

import torch

from memlint.accelerator.device import contiguous, is_virtual, like, scratch
from memlint.accelerator.kernel import enter_hand_written
from memlint.accelerator.state import assume_once
from memlint.base.errors import TraceError
from memlint.libraries.fake_kernels import fake_of
from memlint.libraries.op_template import OP_TEMPLATE

__all__ = ["Library", "UnknownFunctionError", "assume_once", "contiguous", "launch", "like", "temporary"]

F = TypeVar("F", bound=Callable[..., Any])
temporary = scratch
"""Takes bytes of the GPU that a kernel needs while it runs; dropping the result gives them back."""


class UnknownFunctionError(TraceError):
    """A function is used that memlint does not model."""

    def __init__(self, name: str, message: str, install: str = "") -> None:
        """`install` is what to do first: a library whose own Python runs where it is installed is only missing."""
        hint = f"say what it gives, saves and takes: {OP_TEMPLATE.format(name=name)}; see docs/libraries.md."
        super().__init__(message, f"{install} Or {hint}" if install else f"S{hint[1:]}")


class UnknownAttributeError(UnknownFunctionError):
    """The program ended since a class of a stand-in lacks an attribute."""

    def __init__(self, package: str, message: str) -> None:
        super().__init__("", message)
        self.hint = f"memlint has read {package}; docs/libraries.md says what it knows."


_launches = torch.library.Library("memlint", "DEF")
_launches.define("launch(Tensor[] read, Tensor(a!)[] written) -> ()")
enter_hand_written("memlint.launch.default", lambda _read, _written: None)
torch.library.register_fake("memlint::launch", lambda _read, _written: None)


def launch(read: Iterable[Any], written: Iterable[Any] = ()) -> None:
    """Run a kernel that takes nothing for itself: what it writes is not known any more. Other values are no tensors.

    TorchDynamo follows it, so that a launch is part of a graph.
    """
    operands = _tensors if torch.compiler.is_compiling() else _virtual
    read, written = operands(read), operands(written)
    if read or written:
        torch.ops.memlint.launch(read, written)


def _virtual(values: Iterable[Any]) -> list[torch.Tensor]:
    return [value for value in values if is_virtual(value)]


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    return [value for value in values if isinstance(value, torch.Tensor)]


class Library:
    """A package that is known by what its kernels take of the GPU."""

    every: ClassVar[list["Library"]] = []

    def __init__(
        self, name: str, *, distribution: str, version: str, extensions: tuple[str, ...] = (), assumption: str = ""
    ) -> None:
        self.name = name
        """The name that programs import."""
        self.distribution = distribution
        """The name that is installed."""
        self.version = version
        """The one whose sources were read."""
        self.extensions = extensions
        """Compiled modules of it, which refuse to load where there is no GPU."""
        self.modules: dict[str, dict[str, Any]] = {}
        """The modelled functions and classes, by module and name."""
        self.keeps_installed = False
        """True if the functions and classes of an installed package are its own, and nothing stands for them."""
        self.patches: dict[str, Callable[[ModuleType], None]] = {}
        """Changes to modules of packages that are there, by module."""
        self.ops: dict[str, Callable[..., Any]] = {}
        """The modelled ops of `torch.ops`, by names such as "pyg::knn"."""
        says = f"kernels of {distribution} are not run: they take what the sources of version {version} say"
        self._assumption = assumption or says
        self._ops = torch.library.Library(f"memlint_{name}", "FRAGMENT")
        self.every.append(self)

    def provides(self, *modules: str) -> Callable[[F], F]:
        """Let the decorated function or class stand in these modules of the library, by its name."""

        def enter(function: F) -> F:
            for module in modules:
                self.modules.setdefault(module, {})[function.__name__] = function
            return function

        return enter

    def patch(self, *modules: str) -> Callable[[F], F]:
        """Call the decorated function with each of these modules, of any package, once the program has imported it."""

        def enter(function: F) -> F:
            self.patches.update(dict.fromkeys(modules, function))
            return function

        return enter

    def kernel(self, schema: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Make an op of this schema, which the decorated function carries out on the virtual device."""

        def enter(function: Callable[..., Any]) -> Callable[..., Any]:
            name = self._ops.define(schema).rpartition("::")[2]

            def carry_out(*args: Any, **kwargs: Any) -> Any:
                self.assume()
                return function(*args, **kwargs)

            enter_hand_written(f"memlint_{self.name}.{name}.default", carry_out)
            torch.library.register_fake(f"memlint_{self.name}::{name}", fake_of(function), lib=self._ops)
            op: Callable[..., Any] = getattr(getattr(torch.ops, f"memlint_{self.name}"), name).default
            return op

        return enter

    def enter_ops(self) -> None:
        """Let `torch.ops` have what is known there, as it does once the library is imported."""
        for name, function in self.ops.items():
            namespace, _, op = name.partition("::")
            setattr(getattr(torch.ops, namespace), op, function)

    @property
    def is_installed(self) -> bool:
        """True if the package itself is there, and no module in its place."""
        return getattr(sys.modules.get(self.name), "__file__", None) is not None

    def has_module(self, name: str) -> bool:
        """Return True if functions in a module of this name, or inside it, are modelled."""
        return any(f"{known}.".startswith(f"{name}.") for known in self.modules)

    def models(self, name: str) -> bool:
        """Return True if a module, function or class of this dotted name is modelled, at least in part."""
        module, _, function = name.rpartition(".")
        return self.has_module(name) or function in self.modules.get(module, {})

    def assume(self) -> None:
        """Say, once, that a kernel is not run."""
        assume_once(self._assumption)

    def unknown(self, name: str) -> type:
        """Return a placeholder for a function or class that is not modelled; using it raises an error that says so."""
        namespace = {"__module__": name.rpartition(".")[0], "_library": self, "_name": name}
        return _Unknown(name.rpartition(".")[2], (), namespace)


class _Unknown(type):
    """Class of what is not known: it can be named, asked about and imported, and not used."""

    _library: Library
    _name: str

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        cls._refuse()

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        cls._refuse(f".{name}")

    def _refuse(cls, more: str = "") -> NoReturn:
        name, distribution = f"{cls._name}{more}", cls._library.distribution
        if cls._library.is_installed:
            text, install = f"{name} of {distribution} is used, and it is not known what its kernels take", ""
        else:
            text = f"{name} is used, and {distribution} is not installed"
            install = f"Install it where memlint runs, {sys.prefix}: pip install {distribution}."
        assume_once(text)  # a program that goes on without it may take other memory
        raise UnknownFunctionError(name, text, install)


class Metadata(Distribution):
    """The metadata that `importlib.metadata` finds for a library that has a stand-in."""

    def __init__(self, library: Library) -> None:
        self._texts = {
            "METADATA": f"Metadata-Version: 2.1\nName: {library.distribution}\nVersion: {library.version}\n",
            "top_level.txt": library.name,
        }

    def read_text(self, filename: str) -> str | None:
        return self._texts.get(filename)

    def locate_file(self, path: str | os.PathLike[str]) -> Path:
        raise FileNotFoundError(path)
