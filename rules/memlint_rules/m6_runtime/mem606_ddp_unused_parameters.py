import re

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Finding, Findings, Severity, SourceRule, is_notable, place_of
from memlint.source.calls import argument, is_literal
from memlint.source.scopes import calls, is_test
from memlint.source.text import Source
from memlint.whatif.changes import WithoutUnusedSearch
from memlint_rules.support.ranks import DDP, ddp_call

_FIX = (
    "Leave it out if every parameter takes part in every step, or give `static_graph=True` if it is always the same "
    "ones that do not."
)
_CHECKPOINTS = re.compile(r"checkpoint\(|checkpoint_sequential\(|gradient_checkpointing_enable\(")
_WITHOUT_REENTRY = re.compile(r"use_reentrant['\"]?\s*[=:]\s*False")


class DdpUnusedParameters(SourceRule):
    """DistributedDataParallel searches the graph for unused parameters in every step.

    Looks for `DistributedDataParallel(..., find_unused_parameters=True)` without `static_graph=True`.

    ## Why it costs memory

    The flag allows parameters to be unused in a step; it does not save their cost: a weight, a place in a bucket and
    the optimizer's state. DDP then traverses the whole graph after each forward, and returns a copy of every output,
    which then exists twice; `static_graph=True` does so only in the first step. With reentrant activation
    checkpointing, which runs several backwards in one step, the flag fails; `static_graph=True` works.

    ## How the saving is computed

    For a step on several ranks it is exact: the step is run again with wrappers that have neither flag. If that fails
    because parameters are unused, or saves little, no bytes are reported. MEM202 reports the memory of unused
    parameters.

    ## Known limits

    The source does not tell whether all parameters are used. If that changes from step to step, the flag is needed and
    `static_graph` is wrong: then suppress the finding.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
    - https://github.com/pytorch/pytorch/issues/74115
    """

    code, name, severity = "MEM606", "ddp-unused-parameters", Severity.NOTE
    example = """\
from torch.nn.parallel import DistributedDataParallel

def wrap(model, rank):
    return DistributedDataParallel(
        model, device_ids=[rank], gradient_as_bucket_view=True, find_unused_parameters=True
    )
"""
    bad = (Case(example, line=4),)
    good = (
        Case("""\
from torch.nn.parallel import DistributedDataParallel

def wrap(model, rank):
    return DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True)
"""),
        Case("""\
from torch.nn.parallel import DistributedDataParallel

def wrap(model, rank):
    return DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True, static_graph=True)
""").but(title="The same parameters are unused in every step"),
    )

    def check(self, source: Source) -> Findings:
        if "find_unused_parameters" not in source.words or is_test(source):
            return
        for _scope, call in calls(source, DDP):
            searches = is_literal(argument(call, "find_unused_parameters"), True)
            if not searches or argument(call, "static_graph") is not None:
                continue
            reentrant = _CHECKPOINTS.search(source.text) and not _WITHOUT_REENTRY.search(source.text)
            yield self.finding(
                source,
                call,
                "`find_unused_parameters=True` fails with activation checkpointing of the reentrant kind, which "
                "this file may use: a parameter is then ready twice."
                if reentrant
                else "`find_unused_parameters=True` goes through the graph in every step and copies every output of "
                "the module: unused parameters keep their weight, their place in a bucket and their optimizer state.",
                _FIX,
            )

    def check_steps(self, context: Context) -> Findings:
        """Report the cost of the flags in a step on several ranks."""
        world = context.trace.world
        answer = context.what_if(WithoutUnusedSearch()) if world is not None and world.size > 1 else None
        if answer is None or not is_notable(answer.peak_change, context.estimate.requested.estimate):
            return
        yield Finding(
            code=self.code,
            **place_of(ddp_call(context.trace), context),
            message="DistributedDataParallel hands out a copy of every output of the module because of "
            f"`find_unused_parameters=True` or `static_graph=True`: {format_nbytes(-answer.peak_change)} of the peak. "
            "Every parameter took part in the steps that were run, without the flags as well.",
            severity=Severity.WARNING,
            confidence=Confidence.EXACT_RETRACE,
            nbytes=-answer.peak_change,
            peak_change=answer.peak_change,
            fix=_FIX,
        )
