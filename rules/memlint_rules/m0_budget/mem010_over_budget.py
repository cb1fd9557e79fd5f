from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Finding, Findings, Severity, TraceRule, place_of
from memlint.memory.records import Category


class OverBudget(TraceRule):
    """The step takes more memory than its budget or than the GPU has.

    Compares the memory that the process would take on the device, reserved memory plus the CUDA context, with the
    budget of the workload, or without a budget with the memory of the GPU. With `--gpu cpu` only a budget is compared.

    ## Why it costs memory

    Beyond the GPU's memory the step ends with an out-of-memory error; beyond the budget it takes memory that was
    planned for something else.

    ## How the saving is computed

    The finding reports the bytes above the limit. It proposes no change, so no saving is computed; other findings say
    what would lower the peak.

    ## Known limits

    The comparison uses the most likely estimate. If its interval includes the limit, the message says so. The memory of
    other processes on the same GPU is not known.

    - https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
    """

    code, name, severity = "MEM010", "over-budget", Severity.ERROR
    rests_on = "batch"
    looks_at = "the estimate of a step"
    bad = (
        Case.of_layers(
            {"layer": "nn.Linear(8192, 8192)"},
            "return self.layer(x)",
            {"x": "torch.randn(2, 8192)"},
            title="16 bytes per parameter do not fit into 512 MiB",
            budget=536870912,
        ),
    )
    good = (
        Case.of_layers(
            {"layer": "nn.Linear(1024, 1024)"}, "return self.layer(x)", {"x": "torch.randn(2, 1024)"}, budget=1073741824
        ),
    )

    def check(self, context: Context) -> Findings:
        estimate, device = context.estimate, context.device
        limit = context.budget if context.budget is not None else device.total_nbytes
        if context.budget is None and not device.is_cuda:
            return
        taken = estimate.device
        if taken.estimate <= limit:
            return
        limit_name = "the budget" if context.budget is not None else f"the {device.title}'s memory"
        category, nbytes = max(estimate.categories.items(), key=lambda item: item[1])
        doubt = f" (it may fit: the interval begins at {format_nbytes(taken.low)})" if taken.low <= limit else ""
        yield Finding(
            code=self.code,
            **place_of(estimate.frame, context),
            message=self.with_assumption(
                context,
                f"The step takes {format_nbytes(taken.estimate)} of device memory, "
                f"{format_nbytes(taken.estimate - limit)} over {limit_name} of {format_nbytes(limit)}{doubt}. "
                f"Most of it at the peak is {category.value.replace('_', ' ')}: {format_nbytes(nbytes)}.",
            ),
            severity=self.severity,
            confidence=Confidence.MODELLED,
            nbytes=taken.estimate - limit,
            peak_change=None,
            fix=_fix(context, limit),
        )


_FOR_EVERY_BATCH = frozenset({Category.PARAMETER, Category.BUFFER, Category.GRADIENT, Category.OPTIMIZER_STATE})


def _fix(context: Context, limit: int) -> str:
    """Return advice on how to bring the step below `limit`; a smaller batch cannot if every batch needs more."""
    kept = sum(nbytes for category, nbytes in context.estimate.categories.items() if category in _FOR_EVERY_BATCH)
    if kept <= limit:
        smaller = "Lower the batch size, follow" if context.workload.batch > 1 else "Follow"
        return f"{smaller} the other findings, or choose a larger GPU with `--gpu`."
    if context.workload.mode != "train":
        return (
            f"Parameters and buffers alone take {format_nbytes(kept)}, whatever the batch: keep them in fewer bits, "
            "spread them over several GPUs, or choose a larger one with `--gpu`."
        )
    return (
        f"Parameters, their gradients and the optimizer's state alone take {format_nbytes(kept)}, whatever the batch: "
        "train fewer of them (adapters), keep them in fewer bits, shard them over several GPUs, or choose a larger GPU "
        "with `--gpu`."
    )
