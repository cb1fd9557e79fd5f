import ast
import re
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from memlint.base.ownership import is_installed, is_memlint
from memlint.base.units import format_nbytes
from memlint.lint.rule import MANY_NODES, Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Buffer
from memlint.memory.retention import Holder
from memlint.memory.timeline import live
from memlint.source.files import Unreadable
from memlint.source.text import Source
from memlint_rules.support.dead_references import biggest_of, change_without, dead_at_peak, described, nbytes_of
from memlint_rules.support.flow import grouped


class DeadAtPeakReference(TraceRule):
    """A Python variable keeps a tensor alive at the peak that nothing reads again.

    Looks at the peak for storages whose last kernel has run and that are alive only because a Python variable still
    refers to them. To verify this, memlint runs the step again up to the peak and clears the variable: the storages
    must then be freed. The finding names the variable and the line that its function had reached.

    ## Why it costs memory

    PyTorch frees a tensor when its last reference goes. A local variable lives until its function returns or the name
    is bound again, so a model's output that only the loss needs stays alive through the whole backward pass, where the
    peak usually is.

    ## How the saving is computed

    The lifetime of each such storage is cut off right after its last use, in every step, and the peak is computed
    again.

    ## Known limits

    Only variables in functions that are active at the peak are found, including the items of tuples, lists, dicts and
    model outputs; attributes of modules are not. The rule leaves out tensors that a `del` in one of your functions
    would not free: tensors that autograd also holds (in the backward of a `torch.autograd.Function`, those of
    `ctx.saved_tensors`), arguments that the caller also holds, and variables of installed packages. A tensor that is
    read only after the step, for a metric, is reported: copy what the metric needs and delete the rest. Inputs,
    gradients and storages below 1 MiB are left out, and so are notes in traces of more than 6,000 kernels.

    - https://docs.pytorch.org/docs/stable/notes/faq.html#my-model-reports-cuda-runtime-error-2-out-of-memory
    """

    code, name, severity = "MEM107", "dead-at-peak-reference", Severity.WARNING
    looks_at = "the lifetimes in a traced step"
    bad = (
        Case.of_layers(
            {"embedding": "nn.Embedding(50_000, 64)", "head": "nn.Linear(64, 50_000)"},
            """\
logits = self.head(self.embedding(tokens))
loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
return {"loss": loss, "logits": logits}""",
            {"tokens": "torch.zeros(4, 256, dtype=torch.int64)"},
            title="The loop keeps what the model returns until its next iteration",
            line=12,
        ),
        Case.of_model(
            """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 4096), nn.Linear(4096, 256)

    def forward(self, x):
        outputs = []
        for scale in (1.0, 2.0, 3.0):
            outputs.append(x + scale)
        y = self.down(self.up(outputs[-1])).mean()
        y.backward(retain_graph=True)
        return y
""",
            'Model(), {"x": torch.randn(2048, 256)}',
            title="A list keeps what each turn of a loop makes: one finding for all of it",
            line=15,
        ),
    )
    good = (
        bad[0].but({'return {"loss": loss, "logits": logits}': 'return {"loss": loss}'}),
        Case.of_model(
            """\
class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, g):
        x, s = ctx.saved_tensors
        return g * (s + x * s * (1 - s))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 4096), nn.Linear(4096, 256)

    def forward(self, x):
        return self.down(Swish.apply(self.up(x))).mean()
""",
            'Model(), {"x": torch.randn(2048, 256)}',
            title="Autograd holds what was saved until the backward returns, whatever it deletes",
        ),
        Case.of_model(
            """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(256, 4096), nn.Linear(4096, 256)

    def forward(self, x, found=False):
        spare = torch.zeros(4096, 4096, device=x.device)
        y = self.down(self.up(x)).mean()
        y.backward(retain_graph=True)
        if found:
            y = y + spare.sum()
        return y
""",
            'Model(), {"x": torch.randn(2048, 256)}',
            title="A branch that this step does not take reads it",
        ),
    )

    def check(self, context: Context) -> Findings:
        """Yield one finding per variable and line, largest first: the items of a list are one variable."""
        dead = [each for each in dead_at_peak(context) if not _is_of_library_alone(context, each)]
        peak = max(live(context.timeline), default=0)
        if len(context.trace.nodes) > MANY_NODES and not is_notable(-nbytes_of(dead), peak):
            return  # finding the holders takes another run
        holders = context.holders([each.id for each in dead]) if dead else {}
        groups = grouped((_place(holders[each.id], each), each) for each in dead if each.id in holders)
        for group in sorted(groups.values(), key=lambda group: -nbytes_of(group)):
            biggest = biggest_of(group)
            holder = holders[biggest.id]
            own_loop = is_memlint(holder.frame.path)
            if own_loop and "loss" in context.assumed:
                continue  # a real loss may read it again
            if not own_loop and _may_be_read_later(holder):
                continue  # in a branch that this step did not take
            own = dict.fromkeys(holders[each.id] for each in group)
            if len({each.variable for each in own}) > 1:
                holder = replace(holder, variable=_whole(holder))
            yield self.finding(
                context,
                biggest.frame if own_loop else holder.frame,
                _in_own_loop(holder, group, biggest) if own_loop else _in_program(holder, group, biggest),
                nbytes=nbytes_of(group),
                peak_change=change_without(context, group),
                confidence=Confidence.EXACT_LIFETIME,
                fix="In training return only the loss, or in the loop take only what is needed, "
                "`loss = model(**batch).loss`, or `del` the rest before `backward()`."
                if own_loop
                else _fix(own),
            )


def _is_of_library_alone(context: Context, buffer: Buffer) -> bool:
    """Return True if no function of the project can hold it: `generate` of a library made it and calls none."""
    is_made_by_library = buffer.frame is not None and is_installed(buffer.frame.of_project.path)
    return context.workload.mode == "generate" and is_made_by_library


def _whole(holder: Holder) -> str:
    """Return the variable without the item or attribute that holds something."""
    return re.split(r"[.\[]", holder.variable, maxsplit=1)[0]


def _place(holder: Holder, buffer: Buffer) -> tuple[object, ...]:
    """Return the place of a finding about a held Buffer, and the variable that it names."""
    frame = buffer.frame if is_memlint(holder.frame.path) and buffer.frame is not None else holder.frame
    return frame.of_project.path, frame.of_project.line, holder.frame.function, _whole(holder)


def _fix(holders: Collection[Holder]) -> str:
    """Return the code that makes the variables of these holders, which have one name, release the tensor."""
    names = dict.fromkeys(name for each in holders for name in each.names)
    if len(holders) > 1 and [*names] == [_whole(next(iter(holders)))]:  # others of its items may be read again
        return f"Keep in `{next(iter(names))}` only what is read again: bind other items to None after their last use."
    return f"Write `del {', '.join(names)}` after the last use, or bind the name to what replaces it."


def _may_be_read_later(holder: Holder) -> bool:
    """Return True if the function's source reads the variable after its current line, before it is bound again."""
    try:
        source = Source.read(Path(holder.frame.path))
    except Unreadable:
        return False
    around = [node for node in source.index.of(ast.FunctionDef) if _spans(node, holder.frame.line)]
    names = [node for node in ast.walk(around[-1]) if isinstance(node, ast.Name)] if around else []
    later = [node for node in names if node.id == holder.variable and node.lineno > holder.frame.line]
    first = min((node.lineno for node in later), default=0)
    return any(isinstance(node.ctx, ast.Load) for node in later if node.lineno == first)


def _spans(node: ast.FunctionDef, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _in_program(holder: Holder, group: list[Buffer], biggest: Buffer) -> str:
    return (
        f"`{holder.variable}` in `{holder.frame.function}` keeps {format_nbytes(nbytes_of(group))} alive at the peak "
        f"that nothing reads again ({described(biggest)}{f'; {len(group)} in all' if len(group) > 1 else ''})."
    )


def _in_own_loop(holder: Holder, group: list[Buffer], biggest: Buffer) -> str:
    """Describe the model's output in the training loop, which is memlint's own and stands for the user's."""
    return (
        f"The {biggest.dtype} {list(biggest.shape)} made here is part of what the model returns "
        f"(`{holder.variable}`), so a loop that binds the output keeps {format_nbytes(nbytes_of(group))} through "
        "`backward()` that nothing reads again."
    )
