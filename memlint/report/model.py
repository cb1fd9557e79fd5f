"""The Report: the versioned document every renderer reads.

Writing is strict: a field the model does not know is an error. Reading tolerates unknown fields, because fields may
be added, never removed, within a version. Sizes are bytes, lines and columns count from 1, paths are POSIX paths
relative to the directory memlint ran in, absolute where they lie outside of it.
"""

from typing import Annotated, Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, FailFast, Field, NonNegativeInt, model_validator

from memlint.base.units import Measure, Outcome
from memlint.lint.severity import Confidence, Severity
from memlint.memory.records import Category, Phase
from memlint.targets.script import Happened

NOT_BY_LINE = (
    *(Category.PARAMETER, Category.BUFFER, Category.OPTIMIZER_STATE, Category.GRADIENT),
    Category.WORKSPACE,
)
"""Categories that live because the model, its training and the libraries need them, not for a line of code."""
ErrorKind = Literal["usage", "target", "workload", "trace", "worker", "rule", "internal"]

_Item = TypeVar("_Item")
Several = Annotated[list[_Item], FailFast()]
"""A list that is refused at its first wrong item: to say what is wrong with millions would take gigabytes."""


class Record(BaseModel):
    """A part of a document: written once, and with known fields only."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


class Place(Record):
    """A source line."""

    path: str
    line: NonNegativeInt
    function: str = ""
    """The function that the line stands in."""


Library = Annotated[Place | None, Field(exclude_if=lambda place: place is None)]


class Located(Record):
    """Something that a line of the project made; `path` and `line` are None where none did."""

    path: str | None = None
    line: NonNegativeInt | None = None
    library: Library = None
    """The line of an installed package that ran in the call; left out where the project's line itself is meant."""


class Interval(Record):
    """Bytes: the best guess, and how far off it can be where something cannot be known."""

    low: NonNegativeInt
    estimate: NonNegativeInt
    high: NonNegativeInt


class Peak(Record):
    """The four peaks of a step."""

    requested: Interval
    """The bytes that tensors asked for."""
    allocated: Interval
    """`torch.cuda.max_memory_allocated`: with the allocator's rounding."""
    reserved: Interval
    """`torch.cuda.max_memory_reserved`: whole segments."""
    device: Interval
    """The bytes that nvidia-smi shows: reserved and the CUDA context."""

    def __getitem__(self, measure: Measure) -> Interval:
        return cast("Interval", getattr(self, measure))


class BufferKind(Located):
    """The kind of a Buffer, and the line and kernel that made it."""

    category: Category
    op: str
    """The kernel that made it."""
    dtype: str
    shape: tuple[NonNegativeInt, ...]
    module: str = ""
    name: str = ""
    """Qualified name of a parameter, or of what belongs to one."""


class AliveBuffer(BufferKind):
    """One storage that is alive at the peak."""

    nbytes: NonNegativeInt
    why: str = ""
    """Why it is alive: `saved for backward`, `held by a Python reference`, `in use`."""


class ModuleBytes(Record):
    """The bytes that one module holds at the peak, without its submodules."""

    module: str
    """Path in the model, empty for the model itself and for what lies outside of it."""
    type: str = ""
    nbytes: NonNegativeInt
    num_buffers: NonNegativeInt
    categories: dict[Category, NonNegativeInt] = {}


class LineBytes(Located):
    """The bytes that one source line holds at the peak."""

    source: str = ""
    """The text of the line, or of the library's, without indentation."""
    nbytes: NonNegativeInt
    num_buffers: NonNegativeInt
    dtype: str = ""
    """The dtype of the biggest Buffer; `shape` is of the same Buffer."""
    shape: tuple[NonNegativeInt, ...] = ()
    categories: dict[Category, NonNegativeInt] = {}
    module: str = ""
    """The module all of it belongs to; repeated blocks as in `h.*.attn`."""
    why: str = ""


class Course(Record):
    """The live bytes over the traced steps in few numbers: the events cut into equal stretches."""

    nbytes: Several[NonNegativeInt]
    """The most requested bytes live within each stretch."""
    phases: Several[Phase]
    """The phase in which each stretch begins."""
    steps: Several[int]
    """The step in which each stretch begins; -1 while the model is being set up."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if not len(self.nbytes) == len(self.phases) == len(self.steps):
            raise ValueError("a course has as many phases and steps as bytes")
        return self


class StreamPeak(Record):
    """The bytes of one CUDA stream at its own peak: each has pools of its own in the caching allocator."""

    stream: NonNegativeInt
    """0 is the default stream."""
    collectives: Several[str] = []
    """Kinds of those that were called on it."""
    requested: NonNegativeInt
    allocated: NonNegativeInt
    reserved: NonNegativeInt


class Traffic(Record):
    """The collectives of one kind and size in the last step, or the messages between two ranks."""

    kind: str
    """As `torch.distributed` calls it: `all_gather`."""
    ranks: NonNegativeInt
    """The number of ranks in each group."""
    within_node: bool
    """True if all ranks of a group are on one machine, of eight GPUs."""
    calls: NonNegativeInt
    nbytes: NonNegativeInt
    """The bytes of all tensors that they gather, reduce or send."""
    sent: NonNegativeInt
    """The bytes that a rank sends for that over its links, in a ring."""


class Outside(Record):
    """Bytes on a GPU that something else than the caching allocator holds."""

    name: str
    """`CUDA context`, `NCCL among 8 ranks (all_gather)`."""
    nbytes: Interval


class Ranks(Record):
    """The process of many that was simulated."""

    rank: NonNegativeInt
    world_size: NonNegativeInt
    strategy: str = ""
    """How the model was spread over ranks, where that was asked for: `ddp`, `fsdp`."""
    traffic: Several[Traffic] = []
    """The traffic of the last step, most bytes first."""
    outside: Several[Outside] = []
    """The bytes on the GPU outside of the caching allocator, part of the peak of `device` alone."""
    others: str = ""
    """How other ranks may differ from this one."""


class Doubtful(Record):
    """A reason why the peak of `device` may be lower or higher than its estimate, and by how many bytes."""

    cause: Literal["context", "cache", "workspaces"]
    """The CUDA context and what else is outside of the allocator; cached segments; memory of libraries' algorithms."""
    below: NonNegativeInt
    above: NonNegativeInt
    why: str
    """Names what it depends on, and how to know it."""


class PeakMoment(Located):
    """The peaks, and what ran when the highest was reached."""

    peak: Peak
    phase: Phase
    op: str
    module: str = ""


class Generation(Record):
    """The memory that a generation keeps for its tokens."""

    prompt: NonNegativeInt | None = None
    new_tokens: NonNegativeInt
    cache_nbytes: NonNegativeInt
    """Bytes of keys, values and states after the last token."""
    cache_per_token: NonNegativeInt
    """Bytes by which the last token made them grow; 0 where their size is fixed."""
    copies_nbytes: NonNegativeInt
    """Bytes that caches take at the peak beyond that, as where one grows into a new tensor."""


class Estimate(PeakMoment):
    """The peaks of a step, and what is alive at the highest."""

    doubtful: Annotated[Several[Doubtful], Field(exclude_if=lambda doubtful: not doubtful)] = []
    """Why the peak of `device` is an interval; left out where it is none."""
    phase_peaks: dict[Phase, NonNegativeInt] = {}
    """Highest requested bytes within each phase."""
    model_peaks: Annotated[dict[str, NonNegativeInt], Field(exclude_if=lambda peaks: not peaks)] = {}
    """Highest requested bytes while each model of a script runs, where it calls several and trains none."""
    least: NonNegativeInt | None = None
    """Highest requested bytes if every tensor died right after its last use; parameters and the like stay."""
    categories: dict[Category, NonNegativeInt]
    """Requested bytes at the peak."""
    at_peak: Several[AliveBuffer] = []
    """Biggest first; may be cut, see `num_at_peak`."""
    num_at_peak: NonNegativeInt = 0
    """How many Buffers are alive at the peak, listed or not."""
    by_module: Several[ModuleBytes] = []
    by_line: Several[LineBytes] = []
    course: Course | None = None
    """None where nothing took memory."""
    streams: Annotated[Several[StreamPeak], Field(exclude_if=lambda streams: not streams)] = []
    """Left out where all is on the default stream."""
    generation: Annotated[Generation | None, Field(exclude_if=lambda generation: generation is None)] = None
    """Left out where nothing was generated."""


class Site(BufferKind):
    """The common description of Buffers that one line made alike."""

    function: str = ""
    """The function that the line stands in."""


class Stretch(Record):
    """Events in a row that belong to one phase of one step."""

    first: NonNegativeInt
    """Position of the first of them in the events."""
    phase: Phase
    step: int
    """-1 while the model is being set up, then 0, 1, ..."""


class Buffers(Record):
    """Buffers by their numbers."""

    sites: Several[Site]
    buffer_sites: Several[NonNegativeInt]
    """For each Buffer the position of what describes it in `sites`."""
    nbytes: Several[NonNegativeInt]
    """For each Buffer the bytes it asks for."""

    def _is_described(self) -> bool:
        return len(self.nbytes) == len(self.buffer_sites) and max(self.buffer_sites, default=-1) < len(self.sites)


class Timeline(Buffers):
    """Every Buffer of the GPU, and when it opens and closes: the events of Estimate's peaks, in order."""

    events: Several[int]
    """`b` opens Buffer b, in the order of the numbers; `-b - 1` closes it. The rest outlives the traced steps."""
    stretches: Several[Stretch]
    """All events, in order."""
    streams: Several[NonNegativeInt] = Field(default=[], exclude_if=lambda streams: not streams)
    """For each Buffer the CUDA stream it belongs to; not there where all belong to the default stream, 0."""
    first_after_index: NonNegativeInt | None = Field(default=None, exclude_if=lambda buffer: buffer is None)
    """The first Buffer born after a kernel that reads at an index: from then on Windows's driver gives addresses below
    the first segment as well."""
    emptied: Several[NonNegativeInt] = Field(default=[], exclude_if=lambda positions: not positions)
    """Positions of events before which the program emptied PyTorch's cache; left out where it never did."""
    peak: int
    """Position of the event after which most requested bytes are live; -1 if there are no events."""
    failures: Several[NonNegativeInt] = Field(default=[], exclude_if=lambda positions: not positions)
    """Positions of events after which a request failed, of a recording; left out where none did."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        opened, closed = 0, set()
        for event in self.events:
            if event == opened:
                opened += 1
            elif event < 0 and ~event < opened and event not in closed:
                closed.add(event)
            else:
                raise ValueError("an event of a timeline opens or closes what it cannot")
        firsts = [stretch.first for stretch in self.stretches]
        is_whole = (
            self._is_described()
            and opened == len(self.nbytes)
            and len(self.streams) in (0, opened)
            and firsts == sorted(set(firsts))
            and (firsts[:1] == [0] or not (firsts or self.events))
            and max(firsts, default=-1) < max(len(self.events), 1)
            and (0 <= self.peak < len(self.events) or (self.peak == -1 and not self.events))
            and max([*self.failures, *self.emptied], default=-1) < len(self.events)
        )
        if not is_whole:
            raise ValueError("positions in a timeline lie outside of its lists, or in no order")
        return self


class Kernel(Located):
    """One kernel of a step, at the line that ran it; a kernel of the backward at that of its forward."""

    op: str
    phase: Phase
    function: str = ""
    """The function that the line stands in."""
    module: str = ""
    flops: NonNegativeInt = 0
    """Floating-point operations of matrix products, convolutions and attention; 0 for all others."""
    read: NonNegativeInt = 0
    """Bytes of the Buffers that it reads, each as a whole."""
    written: NonNegativeInt = 0
    """Bytes of the Buffers that it returns or writes in place."""
    opened: NonNegativeInt = 0
    """Bytes of the Buffers that open while it runs, those that only it needs included."""


class Graph(Buffers):
    """The last traced step: its kernels, the Buffers that they open or use, and the way of these between them.

    Kernels and Buffers are named by their positions. -1 is what lies outside of the step.
    """

    step: int
    """The step, counted from 0; -1 if none was traced."""
    kernels: Several[Kernel]
    """In the order in which they start."""
    born: Several[int]
    """For each Buffer the kernel that opens it; -1: it was there before the step."""
    last_used: Several[int]
    """For each Buffer the last kernel that reads or writes it."""
    died: Several[int]
    """For each Buffer the kernel that had started last when it closed; -1: it outlives the step."""
    flow_sources: Several[int]
    """For each edge the kernel that wrote its Buffer last; -1: none in this step did."""
    flow_targets: Several[NonNegativeInt]
    """For each edge the kernel that reads the Buffer or writes it in place."""
    flow_buffers: Several[NonNegativeInt]
    """For each edge its Buffer."""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        num_kernels, num_buffers = len(self.kernels), len(self.nbytes)
        lifetimes = (self.born, self.last_used, self.died)
        is_whole = (
            self._is_described()
            and all(len(nodes) == num_buffers for nodes in lifetimes)
            and all(-1 <= node < num_kernels for nodes in lifetimes for node in nodes)
            and len(self.flow_sources) == len(self.flow_targets) == len(self.flow_buffers)
            and max(self.flow_targets, default=-1) < num_kernels
            and max(self.flow_buffers, default=-1) < num_buffers
            and all(-1 <= source < target for source, target in zip(self.flow_sources, self.flow_targets, strict=True))
        )
        if not is_whole:
            raise ValueError("positions in a graph lie outside of its lists, or in no order")
        return self


class Limit(Record):
    """A limit, and the peak that is compared with it."""

    limit: NonNegativeInt
    limit_name: str
    """The name of the limit: title of a GPU, or `budget`."""
    measure: Measure = "device"
    """The one of the four peaks that is compared."""


class Verdict(Limit):
    """The outcome of comparing a peak with a limit; `uncertain` when the limit lies between its low and high."""

    outcome: Outcome
    level: Literal["error", "warning"] = "error"
    """`error` if exceeding it fails the run."""


class Assumption(Located):
    """Something that was not said or cannot be known, and what was taken instead."""

    text: str
    found: Annotated[bool, Field(exclude_if=lambda found: not found)] = False
    """True if the project's own files say so; left out if nobody does."""


class Change(PeakMoment):
    """A change of the program that was simulated, and the peaks with it: in a plan, with it and all before it."""

    kind: str
    """Name of the change in `memlint.whatif.changes`."""
    text: str
    """The change to make."""
    snippet: Several[str] = []
    """Lines of Python that do it to a `model`, where the text does not say it all."""
    effect: Literal["exact", "numerics", "dynamics"]
    """The effect on training: none, other rounding, or another course."""
    peak_change: int
    """How the peak of requested bytes changes against the program as it is; negative saves."""
    recompute_flops: NonNegativeInt = 0
    """Floating-point operations that a step takes more than as it is."""
    recompute_share: float = 0.0
    """The same as a share of those of the step as it is."""


class Plan(Limit):
    """Changes that bring the peak below a limit, in the order in which to make them."""

    met: bool
    """True if the limit holds after the last change; if not, this is the best that was found."""
    changes: Several[Change] = []
    num_traces: NonNegativeInt = 0
    """How many programs were traced to find it."""


class Error(Record):
    """Why there is no answer, and what to do about it."""

    kind: ErrorKind
    message: str
    hint: str = ""
    traceback: Several[str] = []
    """The user's own lines, outermost first, one `path:line in function` each."""


class SweepRow(Record):
    """The peaks at one batch size, as in an Estimate, or why there are none."""

    batch: NonNegativeInt
    requested: Interval | None = None
    allocated: Interval | None = None
    reserved: Interval | None = None
    device: Interval | None = None
    outcome: Outcome | None = None
    """The outcome of comparing `device` with the GPU; None for the host, of which memlint knows no limit."""
    evidence: Literal["traced", "computed"] = "traced"
    """`traced` if a step of this batch was run, `computed` if its peaks follow from steps of others."""
    error: str | None = None


class OnGpu(Record):
    """The results for one Workload with one dtype on one GPU."""

    name: str
    target: str
    mode: str
    optimizer: str | None
    dtype: str
    gpu: str
    """As in the catalogue."""
    gpu_title: str
    gpu_nbytes: NonNegativeInt
    """The bytes that a process can use; 0 for the host, of which memlint knows no limit."""
    strategy: Annotated[str, Field(exclude_if=lambda strategy: not strategy)] = ""
    """How the model is spread over ranks; left out where that was not asked for."""
    world_size: Annotated[NonNegativeInt, Field(exclude_if=lambda size: size == 1)] = 1
    """Ranks; left out with one. The batch is that of each."""
    compiled: Annotated[bool | None, Field(exclude_if=lambda compiled: compiled is None)] = None
    """True if code was compiled, False if code that the program compiles ran eagerly; left out where there is none."""
    is_partial: bool = False
    """True if it was stopped before it was complete."""
    error: str | None = None
    """Why there is nothing."""
    hint: str = ""

    @property
    def title(self) -> str:
        """Its dtype, and if it is compiled or eager where there are both."""
        if self.compiled is None:
            return self.dtype
        return f"{self.dtype}, {'compiled' if self.compiled else 'eager'}"


class Sweep(OnGpu):
    """One Workload with one dtype on one GPU, and one size of each dimension but the batch."""

    dimensions: dict[str, NonNegativeInt] = {}
    """The dimensions that the Workload declares, with their sizes."""
    rows: Several[SweepRow] = []
    """The results by batch size."""
    largest: SweepRow | None = None
    """The largest batch that surely fits, if one was found."""
    is_limit: bool = False
    """True if it is known that no larger one surely fits."""
    traced: Several[NonNegativeInt] = []
    """Batch sizes that were run."""
    note: str | None = None
    """Why nothing could be computed from other sizes."""


class Budget(Record):
    """The limits of a Workload's peaks, by itself and against an earlier Report; None if that is not limited."""

    max: NonNegativeInt | None = None
    max_increase: int | None = None
    max_increase_percent: float | None = None
    level: Literal["error", "warning"] = "error"
    """`error` if exceeding it fails the run."""


class Write(Located):
    """A file that a script would have written or removed, and the line that first would have done it."""

    file: str
    nbytes: NonNegativeInt | None = None
    """Bytes that it would have; None if it would be gone."""


class Connection(Located):
    """Another machine that a script wanted to speak with, in vain, and the line that first did."""

    host: str


class Program(Record):
    """Another program that a script started, of which nothing is simulated."""

    command: str
    """As a shell takes it."""
    is_offline: bool
    """True if the kernel kept it from speaking with other machines."""
    path: str | None = None
    """With `line` and `library` the line that first did it."""
    line: NonNegativeInt | None = None
    library: Library = None


class Script(Record):
    """How the run of a training script went."""

    command: str
    """As it was typed: `train.py --epochs 3`."""
    steps: NonNegativeInt
    """Whole steps that it took."""
    happened: Happened | None = None
    """The point that it reached by itself; `built`: the step of the Estimate, if there is one, is memlint's own."""
    step_peaks: Several[NonNegativeInt] = []
    """Highest requested bytes in each step, the evaluation and saving after it included."""
    step_seconds: Several[float] = []
    """The seconds that each whole step took to simulate."""
    ending: str
    """Why the run was over."""
    stop: Annotated[Error | None, Field(exclude_if=lambda error: error is None)] = None
    """The error that ended a script between its model and its first step, where memlint then took one."""
    lacks: Annotated[str, Field(exclude_if=lambda name: not name)] = ""
    """The package or model for want of which it ended then: memlint's step has nothing of what that makes."""
    own: Annotated[Several[str], Field(exclude_if=lambda parts: not parts)] = []
    """The parts of the steps that are memlint's: of its own step `inputs` and `loss`, of a script's the `data`."""
    not_reached: Several[Phase] = []
    """Phases that may come later in the script and did not come in the run."""
    frees_later: Annotated[bool, Field(exclude_if=lambda frees: not frees)] = False
    """True if it frees parameters after these steps that are frozen in them, so that a step takes more."""
    evaluations: NonNegativeInt = 0
    """Calls of a model without gradients."""
    remembered: NonNegativeInt = 0
    """How many of these were answered as one before of the same shapes."""
    writes: Several[Write] = []
    """None of them happened, unless --keep-writes was asked for."""
    connections: Several[Connection] = []
    programs: Several[Program] = []
    not_guarded: Several[str] = []
    """Names what the kernel of this machine does not refuse to code that is not Python's and to started programs."""


class FittingGpu(Record):
    """A GPU that the step would fit into, by the kernels of the one that was simulated."""

    name: str
    title: str
    total_nbytes: NonNegativeInt
    price: Annotated[float, Field(ge=0)] | None = None
    """The price in the configuration, in its unit; None if it has none."""


class Workload(Record):
    """One Workload and its Estimate, or the error that stood in the way."""

    name: str
    target: str
    """`path.py::Name`, `path.py` or `config.json`."""
    mode: Literal["train", "inference", "generate"] | None = None
    batch: NonNegativeInt | None = None
    dtype: str | None = None
    optimizer: str | None = None
    gpu: str | None = None
    """Name in memlint's catalogue, or `cpu`."""
    torch: str = ""
    """The version of PyTorch on the GPU that was asked for; empty is the one of the Report."""
    context: Annotated[NonNegativeInt, Field(exclude_if=lambda nbytes: not nbytes)] = 0
    """The CUDA context that was given; left out where it is what memlint knows of the GPU."""
    allocator: str = ""
    """`PYTORCH_ALLOC_CONF` of the program."""
    origin: str = ""
    """`target`, `declared`, `config`, `discovered`, `script` or `recording`."""
    script: Script | None = None
    """The script, if one was run."""
    ranks: Annotated[Ranks | None, Field(exclude_if=lambda ranks: ranks is None)] = None
    """Left out of a program that joins no process group."""
    guessed: str = ""
    """Arguments of the target that nobody named: `n_channels=3, n_classes=10`."""
    built_by: Annotated[str, Field(exclude_if=lambda text: not text)] = ""
    """The script that was asked and builds it so: `as train.py --depth 12 builds it`; left out without one."""
    assumptions: Several[Assumption] = []
    estimate: Estimate | None = None
    timeline: Timeline | None = None
    """The lifetimes of Buffers, if they were asked for."""
    graph: Graph | None = None
    """The graph of the last step, if it was asked for."""
    verdict: Verdict | None = None
    """Against the GPU."""
    fitting: Annotated[list[FittingGpu] | None, Field(exclude_if=lambda gpus: gpus is None)] = None
    """GPUs that it would fit into, cheapest first, those without a price by their memory; left out of the host's."""
    allowed: Budget | None = None
    """The limits in its configuration; None if that says nothing."""
    budget: Verdict | None = None
    """Against the most that it is allowed."""
    sweep: Several[Sweep] = []
    """Batch sizes around this one, with its dtype and another."""
    what_ifs: Several[Change] = []
    """Changes that rules had simulated, each made alone; those of the same kind next to each other."""
    plan: Plan | None = None
    """The plan, if one was asked for."""
    error: Error | None = None
    """Why there is no Estimate, or, of a script, why it is of less than was asked for."""
    explanation: Annotated[str, Field(exclude_if=lambda text: not text)] = ""
    """Why a recorded run failed, or what held its memory, in a sentence; left out of all others."""

    @property
    def file(self) -> str:
        """The file of its target."""
        return self.target.partition("::")[0]

    @property
    def measure(self) -> Measure:
        """The peak that matters most: the one that is compared with the GPU."""
        return self.verdict.measure if self.verdict else "requested" if self.gpu == "cpu" else "device"

    @property
    def verdicts(self) -> list[Verdict]:
        """Against the GPU, then against the budget, as far as there are such limits."""
        return [verdict for verdict in (self.verdict, self.budget) if verdict is not None]


class Finding(Record):
    """Something in the code that costs memory."""

    code: str
    path: str
    line: NonNegativeInt
    column: NonNegativeInt
    library: Library = None
    message: str
    severity: Severity
    confidence: Confidence
    nbytes: NonNegativeInt | None = None
    """Bytes attributable."""
    peak_change: int | None = None
    """How a peak changes when the fix is made; negative saves."""
    measure: Measure = "requested"
    """The peak that changes."""
    fix: str = ""
    """How to fix it."""
    workload: str | None = None
    """Name of the Workload it was found in; None for rules that read only the source."""
    workload_position: NonNegativeInt | None = None
    """The position of that Workload in `workloads`, counted from 0: several may have one name."""
    subject: Annotated[str, Field(exclude_if=lambda code: not code)] = ""
    """The code that one of memlint's own findings speaks of: of the rule that failed, or that a comment names; left out
    of all others."""


class Skipped(Record):
    """Something that was not analysed, and why."""

    path: str | None = None
    name: str = ""
    reason: str
    hint: str = ""


class Stale(Record):
    """An entry of the baseline for findings that are gone."""

    path: str
    code: str
    text: str
    """The text of the line; empty for the first, which stands for findings about a whole file."""
    count: NonNegativeInt
    """How many of them are gone."""


class Baseline(Record):
    """The findings that were known before."""

    path: str
    num_findings: NonNegativeInt
    """How many findings were left out because the baseline holds them."""
    stale: Several[Stale] = []


class CodeCount(Record):
    """How many findings a rule has."""

    code: str
    name: str
    count: NonNegativeInt


class Settings(Record):
    """The settings that were asked for, on the command line or in the configuration; None if left to memlint."""

    batch: NonNegativeInt | None = None
    dtype: str | None = None
    mode: str | None = None
    optimizer: str | None = None
    gpu: str | None = None
    torch: str | None = None
    strategy: Annotated[str | None, Field(exclude_if=lambda strategy: strategy is None)] = None
    """How models are spread over ranks; left out with `world_size` and `rank` where it was not asked for."""
    world_size: Annotated[NonNegativeInt | None, Field(exclude_if=lambda size: size is None)] = None
    rank: Annotated[NonNegativeInt | Literal["worst"] | None, Field(exclude_if=lambda rank: rank is None)] = None
    budget: NonNegativeInt | None = None
    """The bytes that Workloads without a budget of their own may take."""
    select: Several[str] = []
    extend_select: Several[str] = []
    ignore: Several[str] = []
    no_exec: bool = False
    quick: Annotated[bool, Field(exclude_if=lambda quick: not quick)] = False
    """True if no rule was run and no table made, because of `--quick`."""


class Report(Record):
    """Everything one run of memlint has to say."""

    version: Literal[1] = 1
    tool: str = Field(description="`memlint` and its version.")
    torch: str | None = None
    """Version of PyTorch the Workloads ran on; None if none ran."""
    settings: Settings = Settings()
    workloads: Several[Workload] = []
    findings: Several[Finding] = []
    skipped: Several[Skipped] = []
    baseline: Baseline | None = None
    statistics: list[CodeCount] | None = None
    """With `--statistics`: findings by code, most first."""

    @property
    def num_failed(self) -> int:
        """How many Workloads could not be analysed."""
        return sum(workload.error is not None for workload in self.workloads)

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of all verdicts."""
        return [verdict.outcome for workload in self.workloads for verdict in workload.verdicts]
