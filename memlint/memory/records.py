"""Records of a trace: no torch objects, every size in bytes.

`Node` and `Buffer` are named tuples and not dataclasses because a trace makes thousands of them and must cost no more
than the step it observes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple


class Phase(StrEnum):
    """Phase of a step."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    EVALUATION = "evaluation"
    """Outermost calls of a model without gradients, in a script."""
    PREFILL = "prefill"
    """The beginning of a generation: the model's first call reads the prompt, and gives the first token."""
    SAVING = "saving"
    OTHER = "other"
    DECODE = "decode"
    """The rest of a generation: each call of the model gives one more token."""
    GENERATION = "generation"
    """In older Reports: `PREFILL` and `DECODE` together."""


FORWARDS = frozenset((Phase.FORWARD, Phase.PREFILL, Phase.DECODE))
"""Phases in which a step calls its model."""


class Category(StrEnum):
    """Purpose of a Buffer. `ACTIVATION` means saved for backward."""

    PARAMETER = "parameter"
    BUFFER = "buffer"
    GRADIENT = "gradient"
    OPTIMIZER_STATE = "optimizer_state"
    INPUT = "input"
    ACTIVATION = "activation"
    TEMPORARY = "temporary"
    COMMUNICATION = "communication"
    """Operands of collectives, and parameters copied out of them, if no other category applies."""
    WORKSPACE = "workspace"
    OTHER = "other"
    KV_CACHE = "kv_cache"
    """Keys, values and states that a generation keeps of the tokens so far, and copies of them while they grow."""


class Frame(NamedTuple):
    """A source line: absolute path, line counted from 1, name of the function."""

    path: str
    line: int
    function: str
    caller: Frame | None = None
    """Innermost line of the project that led here, if the line itself is in an installed package."""

    @property
    def of_project(self) -> Frame:
        """Line that a person who works on the project can change."""
        return self.caller or self

    def __str__(self) -> str:
        """Format as `train.py:31`, or `train.py:31 (in modeling_gpt2.py:104)`."""
        own = f"{Path(self.path).name}:{self.line}"
        return own if self.caller is None else f"{self.caller} (in {own})"


class Geometry(NamedTuple):
    """A tensor as one kernel saw it: the Buffer it lies in (-1 for a host tensor) and its layout there."""

    buffer: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    """Dtype as PyTorch prints it without the prefix: `float32`, `int64`."""


class Node(NamedTuple):
    """One kernel that ran. Views make no memory and are no nodes; their readers carry the viewed layout."""

    index: int  # type: ignore[assignment]  # hides the method of tuples, which a record has no use for
    """Position in `Trace.nodes`."""
    op: str
    """Qualified overload, e.g. `aten.addmm.default`. Out-variants whose output was made for the call are named as
    the functional overload. Behind one that raised stands ` (failed)`; it has no tensors."""
    phase: Phase
    step: int
    """-1 while the model is being set up, then 0, 1, ..."""
    frame: Frame | None
    """Innermost line outside PyTorch and the standard library; for backward kernels, that of their forward."""
    module: str
    """Path of the innermost module, e.g. `transformer.h.0.attn`; empty at the root or outside the model."""
    inputs: tuple[Geometry, ...]
    outputs: tuple[Geometry, ...]
    """Tensors returned or written, new ones and those written in place."""
    event: int
    """Position in `Trace.events` before which this kernel started."""
    is_by_hand: bool = False
    """True if the program runs it around its optimizer or in its place, as to clip gradients."""


NO_NODE = Node(-1, "", Phase.OTHER, -1, None, "", (), (), 0)
"""Index of a Node for events before the first Node."""


class Buffer(NamedTuple):
    """One storage, from birth to death. Buffers of the host cost no GPU bytes and appear in no event."""

    id: int
    """Position in `Trace.buffers`."""
    nbytes: int
    """Size as requested, not rounded."""
    shape: tuple[int, ...]
    dtype: str
    category: Category
    op: str
    """Kernel that made it, as in `Node.op`; for workspaces the library, e.g. `cublas`."""
    phase: Phase
    step: int
    frame: Frame | None
    module: str
    name: str
    """Qualified name for parameters, buffers, their gradients and optimizer state; else empty."""
    node: int
    """Node that made it; -1 if none was running."""
    last_used: int
    """Last Node that reads or writes it; equals `node` if nothing uses it again."""
    born: int
    """Position of its opening in `Trace.events`."""
    died: int | None
    """Position of its closing in `Trace.events`; None if it outlives the trace."""
    nonzeros: int | None
    """Upper bound on the nonzero elements, if the program's operations give one below numel."""
    is_in_cycle: bool = False
    """True if only a reference cycle keeps it alive after the last step."""


class Assumption(NamedTuple):
    """A fact that a machine without the GPU cannot know, and the value that is assumed."""

    text: str
    frame: Frame | None
    found: bool = False
    """True if the project's own files state it, so that it is no real assumption."""


class Doubt(NamedTuple):
    """A Buffer whose size cannot be known exactly: its `nbytes` is the best guess between these."""

    buffer: int
    low: int
    high: int


class Collective(NamedTuple):
    """One collective of a process group, or a message between two of its ranks."""

    node: int
    """Index of its Node."""
    kind: str
    """Kind as `torch.distributed` calls it: `all_reduce`, `all_gather`, `reduce_scatter`, `send`."""
    group: str
    """Name of the group."""
    size: int
    """Number of ranks in the group."""
    within_node: bool
    """True if all of them are on one machine."""
    nbytes_in: int
    """Bytes of the tensors that this rank contributes."""
    nbytes_out: int
    """Bytes of the tensors that it receives."""
    stream: int
    """Stream that was current."""
    backend: str
    """Backend of the group, as the program requested it: `nccl`, `gloo`."""
    neighbours: tuple[int, int]
    """The ranks before and after this one in the group, by their numbers in the world."""
    shares: bool
    """True if its communicator and the first one share buffers."""


class Round(NamedTuple):
    """The calls of a model that give one token of a generation, in a prefill or after it."""

    node: int
    """Index of the first Node."""
    start: int
    """Position in the events at which it begins."""
    end: int
    """Position in the events at which the last call has returned, before a token is chosen."""


class World(NamedTuple):
    """The process group that a program joined."""

    rank: int
    size: int
    shares_splits: bool = False
    """True if groups made later are split off it (`device_id`) and share its communicator's buffers."""


class Streams(NamedTuple):
    """Streams that use Buffers, and the driver's state: besides sizes, these decide the addresses of Buffers."""

    own: Mapping[int, int]
    """For each Buffer the stream that was current at its birth, from whose pool it is taken; stream 0 is left out."""
    held: Mapping[int, int]
    """For each Buffer that another stream used as well (`Tensor.record_stream`), the position in the events at which
    its bytes can be reused at the latest."""
    first_after_index: int | None = None
    """The first Buffer born after a kernel that reads at an index; see `memlint.memory.allocator.driver`."""
    oldest_first: bool = False
    """True if the allocator takes free blocks of one size by the age of their segments and not by address, as from
    torch 2.13 on: then what the driver does with addresses changes nothing, and `first_after_index` is None."""
    emptied: tuple[int, ...] = ()
    """Positions of the events before which the program gave cached segments back (`torch.cuda.empty_cache`)."""


ONE_STREAM = Streams({}, {})
CUDA_GRAPHS = 129
"""Number of the stream that stands for the pool of CUDA graphs; those of programs are 1 to 128."""


@dataclass(frozen=True, slots=True)
class Whole:
    """All storages of a generation of which a Trace shows the first and the last rounds alone."""

    sizes: array[int]
    """Bytes of each storage."""
    events: array[int]
    """Events as in Trace, with these storages."""
    doubts: tuple[Doubt, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """Whole steps of a Workload as kernels and storages."""

    nodes: tuple[Node, ...]
    buffers: tuple[Buffer, ...]
    events: tuple[int, ...]
    """Events in order: `b` opens Buffer b, `~b` (that is, -b - 1) closes it."""
    event_nodes: tuple[int, ...]
    """For each event the Node under which it happened: the last one started, -1 before the first."""
    num_steps: int
    step_nodes: tuple[int, ...]
    """The first Node of each step."""
    assumptions: tuple[Assumption, ...]
    modules: tuple[tuple[str, str], ...]
    """Path and class name of every module of the model, in `named_modules` order, the root as an empty path."""
    torch: str
    """PyTorch version that ran."""
    device: str
    """Name of the GPU requested, or `cpu`."""
    doubts: tuple[Doubt, ...] = ()
    streams: Streams = ONE_STREAM
    collectives: tuple[Collective, ...] = ()
    world: World | None = None
    """Process group; None if the program joined none."""
    trained: tuple[frozenset[int], ...] = ()
    """For each optimizer the Buffers of parameters that it received and that require a gradient."""
    with_gradient: frozenset[int] = frozenset()
    """Buffers of parameters that have had a gradient, which may lie in one Buffer with others."""
    switches: tuple[tuple[str, str], ...] = ()
    """Path of each model that can checkpoint its activations and does not, and its switch as code."""
    reads_allocator: bool = False
    """True if the program read figures of the caching allocator, which depend on its settings."""
    seeded: frozenset[str] = frozenset()
    """Values of `Node.op` that draw random numbers."""
    without_overload: frozenset[str] = frozenset()
    """Values of `Node.op` that are no overload of a PyTorch operator."""
    rounds: tuple[Round, ...] = ()
    """The rounds of all generations: the prefill of one, then one for each token after the first."""
    graph_breaks: tuple[Frame, ...] = ()
    """Lines at which compiled code ends, and begins anew after them."""
    whole: Whole | None = None
    """All storages, where the Trace leaves out rounds of a generation; None where it has everything."""

    def buffers_of(self, geometries: Iterable[Geometry]) -> list[Buffer]:
        """Return the Buffers that tensors lie in, each once; host tensors lie in none."""
        return [self.buffers[each] for each in dict.fromkeys(geometry.buffer for geometry in geometries) if each >= 0]

    def is_parameter(self, geometry: Geometry) -> bool:
        """Return True if it lies in the storage of a parameter."""
        return geometry.buffer >= 0 and self.buffers[geometry.buffer].category is Category.PARAMETER


def has_parameters(trace: Trace) -> bool:
    """Return True if a parameter lies on the GPU or on the host."""
    return any(buffer.category is Category.PARAMETER for buffer in trace.buffers)


def computes_on_gpu(trace: Trace) -> bool:
    """Return True if a kernel computes from GPU data, beyond filling a new tensor and reading single numbers."""
    on_gpu = {event for event in trace.events if event >= 0}
    return any(
        geometry.buffer in on_gpu
        and geometry.shape
        and all(geometry.buffer != written.buffer for written in node.outputs)
        for node in trace.nodes
        for geometry in node.inputs
    )


class Storages(NamedTuple):
    """The storages of a Trace, under the same numbers."""

    sizes: tuple[int, ...]
    """Bytes of each storage."""
    events: tuple[int, ...]
    doubts: tuple[Doubt, ...]
    """As in Trace."""
    workspaces: frozenset[int]
    """Workspaces of libraries, which belong to the first call that needs them."""
    streams: Streams = ONE_STREAM


class Flow(NamedTuple):
    """A Buffer on its way from the Node that wrote it last to a Node that reads it or writes it in place."""

    source: int
    """Index of the Node, always below `target`; -1 if no Node wrote it before."""
    target: int
    buffer: int
    """Id of the Buffer."""


def data_flow(trace: Trace) -> Iterator[Flow]:
    """Yield the edges of a Trace by target, each once: together with `trace.nodes` a directed acyclic multigraph."""
    writers: dict[int, int] = {}
    for node in trace.nodes:
        for buffer in dict.fromkeys(geometry.buffer for geometry in (*node.inputs, *node.outputs)):
            if buffer >= 0 and trace.buffers[buffer].node < node.index:  # otherwise it is born inside this kernel
                yield Flow(writers.get(buffer, -1), node.index, buffer)
        writers.update((geometry.buffer, node.index) for geometry in node.outputs)
