"""Traces made by hand, and a Context that answers from what a test says."""

from dataclasses import dataclass, field
from math import prod
from types import SimpleNamespace

from memlint.memory.devices import device_named
from memlint.memory.estimate import estimate
from memlint.memory.records import Buffer, Category, Frame, Geometry, Node, Phase, Trace
from memlint.memory.timeline import Timeline

ITEMSIZES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8}
MIB = 2**20


def at(line, path="/home/user/model.py", function="forward"):
    return Frame(path, line, function)


def contiguous(shape):
    return tuple(prod(shape[i + 1 :]) for i in range(len(shape)))


def channels_last(shape):
    _, c, h, w = shape
    return (c * h * w, 1, w * c, c)


@dataclass
class Script:
    """A program as the tracer would see it, written kernel by kernel."""

    modules: tuple = (("", "Model"),)
    nodes: list = field(default_factory=list)
    buffers: list = field(default_factory=list)
    events: list = field(default_factory=list)
    event_nodes: list = field(default_factory=list)
    step_nodes: list = field(default_factory=list)

    def step(self):
        self.step_nodes.append(len(self.nodes))

    def kernel(self, op, *, reads=(), phase=Phase.FORWARD, module="", frame=None):
        """A kernel that reads Buffers (ids or Geometries); its outputs are made by `make` afterwards."""
        inputs = tuple(each if isinstance(each, Geometry) else self.whole(each) for each in reads)
        step = len(self.step_nodes) - 1
        self.nodes.append(Node(len(self.nodes), op, phase, step, frame, module, inputs, (), len(self.events)))
        for geometry in inputs:
            self.buffers[geometry.buffer] = self.buffers[geometry.buffer]._replace(last_used=len(self.nodes) - 1)

    def make(self, *shape, dtype="float32", category=Category.TEMPORARY, module="", frame=None, nonzeros=None):
        node = self.nodes[-1] if self.nodes else None
        self.buffers.append(
            Buffer(
                id=len(self.buffers),
                nbytes=prod(shape) * ITEMSIZES[dtype],
                shape=shape,
                dtype=dtype,
                category=category,
                op=node.op if node else "aten.empty.memory_format",
                phase=node.phase if node else Phase.OTHER,
                step=node.step if node else -1,
                frame=frame,
                module=module,
                name="",
                node=node.index if node else -1,
                last_used=node.index if node else -1,
                born=len(self.events),
                died=None,
                nonzeros=nonzeros,
            )
        )
        self._event(len(self.buffers) - 1)
        return len(self.buffers) - 1

    def free(self, *buffers):
        for buffer in buffers:
            self.buffers[buffer] = self.buffers[buffer]._replace(died=len(self.events))
            self._event(~buffer)

    def _event(self, event):
        self.events.append(event)
        self.event_nodes.append(len(self.nodes) - 1)

    def whole(self, buffer, stride=None):
        made = self.buffers[buffer]
        return Geometry(buffer, made.shape, stride or contiguous(made.shape), made.dtype)

    def trace(self):
        return Trace(
            nodes=tuple(self.nodes),
            buffers=tuple(self.buffers),
            events=tuple(self.events),
            event_nodes=tuple(self.event_nodes),
            num_steps=len(self.step_nodes),
            step_nodes=tuple(self.step_nodes),
            assumptions=(),
            modules=tuple(self.modules),
            torch="2.13.0",
            device="a100-80gb",
        )


class FakeContext:
    """`changes` maps a change, or its type, to bytes by which the peak moves; others do not apply."""

    def __init__(
        self, trace, *, gpu="a100-80gb", mode="train", budget=None, changes=None, holders=None, thorough=False
    ):
        self.workload = SimpleNamespace(path="/home/user/model.py", mode=mode, batch=8, origin="target")
        self.device = device_named(gpu)
        self.trace = trace
        self.timeline = Timeline.of(trace)
        self.estimate = estimate(self.timeline, self.device, trace.nodes)
        self.budget = budget
        self.thorough = thorough
        self.assumed = frozenset()
        self.asked = []
        self._changes = changes or {}
        self._holders = holders or {}

    def retrace(self, change):
        self.asked.append(change)
        moved = self._changes.get(change, self._changes.get(type(change)))
        if moved is None:
            return None
        peak = self.estimate.requested.estimate + moved
        return SimpleNamespace(requested=SimpleNamespace(low=peak, estimate=peak, high=peak))

    def what_if(self, *changes):
        (change,) = changes
        after = self.retrace(change)
        if after is None:
            return None
        moved = after.requested.estimate - self.estimate.requested.estimate
        return SimpleNamespace(estimate=after, peak_change=moved, recompute_flops=0, step_flops=0)

    def show_as_well(self, change):
        return self.what_if(change) if self.thorough else None

    def holders(self, buffer_ids):
        return {buffer: self._holders[buffer] for buffer in buffer_ids if buffer in self._holders}
