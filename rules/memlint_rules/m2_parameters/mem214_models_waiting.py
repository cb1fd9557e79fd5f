from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby, pairwise
from typing import NamedTuple

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Buffer, Category, Trace
from memlint.memory.timeline import Timeline, live

_WEIGHTS = frozenset({Category.PARAMETER, Category.BUFFER})
_CONTAINER = "ModuleDict"
"""The class that holds models by name, and is never called."""
_FEW = 2
"""Turns of two models that follow one another directly; with more they take turns."""


class ModelsWaiting(TraceRule):
    """Models whose turn is over, or is still to come, lie on the GPU while another one runs and holds the peak.

    Looks at inference with several models: those that a script calls, or those in an `nn.ModuleDict` that a declared
    step calls. Models that take turns, as a network and its control do in each denoising step, count as one.

    ## Why it costs memory

    A pipeline that makes images encodes the text, denoises, and decodes. Each of its models works once, and the weights
    of all lie on the GPU all the time.

    ## How the saving is computed

    The weights of each model are counted from its first kernel until the next model begins, and the peak is computed
    again.

    ## Known limits

    Whenever a model's turn comes, its weights are copied from the host, which takes time. Weights that two models share
    are counted with the first of them. A program that brings most weights to the GPU after its first model has begun is
    left alone.

    - https://huggingface.co/docs/diffusers/optimization/memory#model-offloading
    """

    code, name, severity = "MEM214", "models-waiting", Severity.INFO
    example = """\
import memlint
import torch
from torch import nn


@torch.no_grad()
def step(models, inputs, optimizer):
    hidden = models["encoder"](inputs["x"])
    for _ in range(4):
        hidden = models["denoiser"](hidden)
    return models["decoder"](hidden)


@memlint.workload(mode="inference")
def pipeline():
    names = ("encoder", "denoiser", "decoder")
    models = nn.ModuleDict({name: nn.Sequential(*(nn.Linear(4096, 4096) for _ in range(8))) for name in names})
    return memlint.Declaration(models, {"x": torch.randn(8, 4096)}, step=step)
"""
    bad = (Case(example),)
    good = (
        bad[0].but(
            {
                'hidden = models["encoder"](': 'models.cpu()\n    hidden = models["encoder"].cuda()(',
                "    for _ in": '    models["encoder"].cpu(), models["denoiser"].cuda()\n    for _ in',
                "    return models": '    models["denoiser"].cpu(), models["decoder"].cuda()\n    return models',
            }
        ),
        bad[0].but(
            {'models["denoiser"](hidden)': 'models["encoder"](models["denoiser"](hidden))'}, title="They take turns"
        ),
        bad[0].but(
            {'names = ("encoder", "denoiser", "decoder")': 'names = ("encoder",)'}
            | {
                'models["denoiser"](hidden)': 'models["encoder"](hidden)',
                'return models["decoder"](hidden)': "return hidden",
            },
            title="There is one model",
        ),
    )

    def check(self, context: Context) -> Findings:
        if context.workload.mode == "train":
            return
        turns = _turns(context.trace, is_script=context.workload.origin == "script")
        if len({turn.models for turn in turns}) < 2 or _are_brought_for_their_turn(context.trace, turns):
            return
        peak = context.estimate.requested.estimate
        here, moved = _peaks(context.timeline, turns)
        change = moved.nbytes - here.nbytes
        waiting = sorted(here.waiting.items(), key=lambda item: -item[1])
        if not (waiting and is_notable(change, peak)):
            return
        names = ", ".join(name for models, _ in waiting for name in models)
        runs = "run" if len(here.running) > 1 else "runs"
        meanwhile = f"while {' and '.join(here.running)} {runs}" if here.running else "before the first one runs"
        yield self.finding(
            context,
            None,
            f"Weights of {names} wait on the GPU {meanwhile}: {format_nbytes(sum(here.waiting.values()))}; on the "
            f"host until their turn, the peak is {format_nbytes(-change)} lower.",
            nbytes=-change,
            peak_change=change,
            confidence=Confidence.MODELLED,
            fix='Call `enable_model_cpu_offload()` of a pipeline of diffusers in place of `to("cuda")`; bring other '
            'models to the GPU for their turn alone, and back with `to("cpu")`.',
        )


class _Turn(NamedTuple):
    """The beginning of what some models do by turns."""

    event: int
    models: tuple[str, ...]


class _Moment(NamedTuple):
    """A peak: its bytes, the models that run there, and the bytes of those that wait."""

    nbytes: int
    running: tuple[str, ...]
    waiting: Mapping[tuple[str, ...], int]


def _turns(trace: Trace, *, is_script: bool) -> list[_Turn]:
    """Return the turns of the models of a program, in order; empty if it has one model."""
    if not is_script and dict(trace.modules).get("") != _CONTAINER:
        return []
    running = [(node.event, node.module.partition(".")[0]) for node in trace.nodes if node.module]
    order = [next(group) for _, group in groupby(running, key=lambda item: item[1])]
    together = _by_turns(name for _, name in order)
    return [_Turn(event, together[name]) for event, name in order]


def _are_brought_for_their_turn(trace: Trace, turns: list[_Turn]) -> bool:
    """Return True if most weights came to the GPU after the first turn began; a few may be there in another dtype."""
    weights = [buffer for buffer in trace.buffers if buffer.category in _WEIGHTS]
    later = sum(buffer.nbytes for buffer in weights if buffer.born > turns[0].event)
    return 2 * later > sum(buffer.nbytes for buffer in weights)


def _by_turns(order: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return with each model those that take turns with it, itself included."""
    names = list(order)
    follows = Counter(pairwise(names))
    groups = {name: frozenset({name}) for name in names}
    for (first, second), count in follows.items():
        if follows[second, first] and count + follows[second, first] > _FEW:
            united = groups[first] | groups[second]
            groups.update(dict.fromkeys(united, united))
    return {name: tuple(sorted(group)) for name, group in groups.items()}


def _peaks(timeline: Timeline, turns: list[_Turn]) -> tuple[_Moment, _Moment]:
    """Return the peak as it is, and the one with the weights of a model there in its turn alone."""
    owners = {turn.models for turn in turns}
    owner_of = {name: models for models in owners for name in models}
    here = moved = _Moment(0, (), {})
    alive: Counter[tuple[str, ...]] = Counter()
    running: tuple[str, ...] = ()
    coming = iter([*turns, _Turn(len(timeline.events), ())])
    following = next(coming)
    for position, (event, nbytes) in enumerate(zip(timeline.events, live(timeline), strict=True)):
        while following.event <= position:
            running, following = following.models, next(coming)
        buffer = timeline.buffers[event if event >= 0 else ~event]
        if (owner := _owner(buffer, owner_of)) is not None:
            alive[owner] += buffer.nbytes if event >= 0 else -buffer.nbytes
        idle = alive.total() - alive[running]
        if nbytes > here.nbytes:
            here = _Moment(nbytes, running, {models: size for models, size in alive.items() if models != running})
        if nbytes - idle > moved.nbytes:
            moved = _Moment(nbytes - idle, running, {})
    return here, moved


def _owner(buffer: Buffer, owner_of: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    return owner_of.get(buffer.name.partition(".")[0]) if buffer.category in _WEIGHTS else None
