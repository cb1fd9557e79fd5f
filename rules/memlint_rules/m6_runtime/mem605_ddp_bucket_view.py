import re

from memlint.lint.edits import unsafe, with_argument
from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, unpacks
from memlint.source.scopes import calls, is_test
from memlint.source.text import Source
from memlint_rules.support.ranks import DDP

_DETACHES = re.compile(r"\.grad\.detach_\(")
_EVALUATES = re.compile(r"no_grad|inference_mode|\.eval\(\)")
_TRAINS = re.compile(r"backward\(|optim", re.IGNORECASE)


class DdpBucketView(SourceRule):
    """DistributedDataParallel holds every gradient twice: as a tensor of its own and in a bucket.

    Looks for `DistributedDataParallel(...)` without `gradient_as_bucket_view`.

    ## Why it costs memory

    DDP reduces gradients in buckets, which it allocates once and keeps: together they are as large as all gradients. By
    default `parameter.grad` is a tensor of its own beside its place in the bucket. With `gradient_as_bucket_view=True`
    it is a view of the bucket, so each gradient exists once.

    ## How the saving is computed

    PyTorch's documentation gives the saving as the total size of the gradients, the bytes of the trained parameters,
    visible from the second iteration on. If a script runs, MEM610 reports the saving in its steps; wrappers that it
    does not report are then only a note.

    ## Known limits

    Calls that unpack keyword arguments are left out, as are files that only evaluate, and files that call
    `grad.detach_()`, which views do not allow. Wrappers of other libraries are not checked.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html
    """

    code, name, severity = "MEM605", "ddp-bucket-view", Severity.WARNING
    traced_as = "MEM610"
    example = """\
from torch.nn.parallel import DistributedDataParallel

def wrap(model, rank):
    return DistributedDataParallel(model.to(rank), device_ids=[rank])
"""
    bad = (Case(example, line=4),)
    good = (
        bad[0].but({"device_ids=[rank]": "device_ids=[rank], gradient_as_bucket_view=True"}),
        Case("""\
import torch

def wrap(model, **options):
    return torch.nn.parallel.DistributedDataParallel(model, **options)
""").but(title="The caller decides"),
    )

    def check(self, source: Source) -> Findings:
        if "DistributedDataParallel" not in source.words or _DETACHES.search(source.text) or is_test(source):
            return
        if _EVALUATES.search(source.text) and not _TRAINS.search(source.text):
            return
        for _scope, call in calls(source, DDP):
            if unpacks(call) or argument(call, "gradient_as_bucket_view") is not None:
                continue
            yield self.finding(
                source,
                call,
                "DDP keeps its buckets beside the gradients, so every gradient is in memory twice.",
                "Add `gradient_as_bucket_view=True`.",
                correction=unsafe(with_argument(source, call, "gradient_as_bucket_view=True")),
            )
