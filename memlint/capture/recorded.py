"""Records of what the caching allocator of one GPU did, as it was recorded: events in columns, and the segments left.

Sizes are bytes. The columns of ten million events take a quarter of a GiB.
"""

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from memlint.base.ownership import is_installed
from memlint.memory.records import Category, Frame, Phase

ACTIONS: Final = (
    *("alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap"),
    *("oom", "snapshot", "other"),
)
"""Kinds of events as PyTorch names them (torch/csrc/cuda/memory_snapshot.cpp); `other` is any that is newer."""
ALLOC, FREE_REQUESTED, FREE, SEGMENT_ALLOC, SEGMENT_FREE, SEGMENT_MAP, SEGMENT_UNMAP, OOM, SNAPSHOT, OTHER = range(10)

_GENERATED: Final = "/torchinductor_"
"""Part of the paths of what torch.compile writes."""
_MOVES: Final = ("_apply", "cuda", "to", "to_empty")
"""Methods of modules that put their parameters on the GPU."""
GROWS: Final = (SEGMENT_ALLOC, SEGMENT_MAP)
RELEASES: Final = (SEGMENT_FREE, SEGMENT_UNMAP)
_MOST_LINES: Final = 2**31
"""Python 3.13 gives 2**64 - 1 for a line that it does not know."""
_OPERATOR: Final = re.compile(r"at::_ops::(\w+)::(?:call|redispatch)")
_STANDARD: Final = re.compile(
    r"[/\\](?:lib|Lib)[/\\](?:python\d(?:\.\d+)?[/\\])?(?!.*(?:site|dist)-packages)[^/\\]*\.py$"
)
_LIBRARIES: Final = (
    *("getNewWorkspace", "getCurrentCUDABlasHandle", "setWorkspaceForHandle", "run_conv_plan", "CUDABlasLt"),
    *("getCUDABlasLtWorkspace", "cudnn::", "parseChosenWorkspaceSize"),
)
"""Parts of names of C++ functions that ask for workspaces: cuBLAS's, cuBLASLt's and cuDNN's, as recorded stacks of
torch 2.0 to 2.13 have them."""


Column: TypeAlias = "array[int]"


class Site(NamedTuple):
    """The stack under which an event happened, as far as it matters."""

    frame: Frame | None
    """The innermost line outside PyTorch and Python."""
    op: str = ""
    """The innermost ATen operator; empty without C++ frames."""
    phase: Phase = Phase.OTHER
    """OTHER if the stack does not tell: it has no C++ frames, or no frames at all."""
    makes_workspace: bool = False
    accumulates: bool = False
    """True inside of autograd's accumulation of a gradient."""
    moves_module: bool = False
    """True inside of `Module.to` or `Module.cuda`."""
    empties_cache: bool = False
    has_frames: bool = True


@dataclass(slots=True)
class Events:
    """Columns of events in their order."""

    actions: Column = field(default_factory=lambda: array("b"))
    addresses: Column = field(default_factory=lambda: array("q"))
    """For `oom`: the bytes that were free on the GPU."""
    sizes: Column = field(default_factory=lambda: array("q"))
    streams: Column = field(default_factory=lambda: array("q"))
    sites: Column = field(default_factory=lambda: array("i"))
    """Positions in Recording.sites, -1 for none."""

    def __len__(self) -> int:
        return len(self.actions)

    def add(self, action: int, address: int, nbytes: int, stream: int, site: int) -> None:
        """Append an event. Raises OverflowError for numbers of more than 64 bits."""
        self.actions.append(action)
        self.addresses.append(address)
        self.sizes.append(nbytes)
        self.streams.append(stream)
        self.sites.append(site)

    def part(self, start: int, end: int) -> "Events":
        """Copy the events between two positions."""
        columns = (self.actions, self.addresses, self.sizes, self.streams, self.sites)
        return Events(*(column[start:end] for column in columns))


class RecordedBlock(NamedTuple):
    """A block of a segment."""

    address: int
    nbytes: int
    requested: int
    """Bytes that were asked for; 0 if it is free."""
    state: str
    """`active_allocated`, `active_pending_free`: freed while another stream may still use it, or `inactive`."""
    site: int
    """Position in Recording.sites; -1 if it is not recorded."""
    category: Category = Category.OTHER

    @property
    def is_free(self) -> bool:
        """True if the allocator may hand it out."""
        return self.state == "inactive"


class RecordedSegment(NamedTuple):
    """Memory that the allocator has from the driver."""

    address: int
    nbytes: int
    stream: int
    is_small: bool
    is_expandable: bool
    is_private: bool
    """True if it belongs to the pool of a CUDA graph or to another that the program made."""
    blocks: tuple[RecordedBlock, ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """The contents of a file about one GPU."""

    device: int
    events: Events
    sites: tuple[Site, ...]
    segments: tuple[RecordedSegment, ...]
    """Those at the end."""
    settings: str
    """`PYTORCH_ALLOC_CONF`."""
    knows_settings: bool
    torch: str = ""
    starts_empty: bool = False
    """True if it is known that nothing was allocated before."""
    peaks: Mapping[str, int] = field(default_factory=dict)
    """Most bytes by measure, if the file has them."""
    categories: Mapping[int, Category] = field(default_factory=dict)
    """By position of an allocation, if the file has them."""
    num_recorded: int = 1
    """Number of GPUs in the file that recorded something."""

    @property
    def reserved(self) -> int:
        """Bytes of segments at the end."""
        return sum(segment.nbytes for segment in self.segments)

    def site(self, number: int) -> Site | None:
        """Return a site by its position; None for -1."""
        return None if number < 0 else self.sites[number]

    def change_of_reserved(self, position: int) -> int:
        """Return the bytes by which an event changes what is reserved."""
        action = self.events.actions[position]
        if action in GROWS:
            return self.events.sizes[position]
        return -self.events.sizes[position] if action in RELEASES else 0

    def most_reserved(self) -> int:
        """Return the most bytes of segments at any time, found from the end back."""
        reserved = most = self.reserved
        for position in range(len(self.events) - 1, -1, -1):
            reserved -= self.change_of_reserved(position)
            most = max(most, reserved)
        return most


def site_of(frames: Sequence[Mapping[str, Any]]) -> Site:
    """Read a stack as a snapshot has it, innermost first: C++ frames and Python's, or either, or none."""
    python: list[tuple[str, int, str]] = []
    native: list[tuple[str, int, str]] = []
    for each in frames:
        file = str(each.get("filename", ""))
        (python if file.endswith(".py") else native).append((file, int(each.get("line", 0)), str(each.get("name", ""))))
    lines, in_torch = [], []
    for file, line, name in python:
        path = file.replace("\\", "/")
        _, is_torch, within = path.rpartition("/torch/")
        if is_torch or _GENERATED in path:
            in_torch.append((within, name))
        else:
            lines.append(Frame(file, line if line < _MOST_LINES else 0, name))
    names = [name for _, _, name in native]
    operators = (_OPERATOR.search(name) for name in names)
    if any(within.startswith("optim/") and name != "zero_grad" for within, name in in_torch):
        phase = Phase.OPTIMIZER
    elif any("torch::autograd::Engine::" in name for name in names):
        phase = Phase.BACKWARD
    else:
        phase = Phase.FORWARD if native and lines else Phase.OTHER
    return Site(
        frame=_innermost(lines),
        op=next((match[1] for match in operators if match), ""),
        phase=phase,
        makes_workspace=any(part in name for name in names for part in _LIBRARIES),
        accumulates=any("AccumulateGrad" in name for name in names),
        moves_module=any(within == "nn/modules/module.py" and name in _MOVES for within, name in in_torch),
        empties_cache=("cuda/memory.py", "empty_cache") in in_torch or any("emptyCache" in name for name in names),
        has_frames=bool(frames),
    )


def _innermost(lines: Sequence[Frame]) -> Frame | None:
    """The innermost line outside Python itself, with that of the project that led to it."""
    outside = [line for line in lines if not _STANDARD.search(line.path)] or list(lines)
    own = next((line for line in outside if not is_installed(line.path)), None)
    if own is None or outside[0] == own:
        return outside[0] if outside else None
    return outside[0]._replace(caller=own)
