from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.timeline import without
from memlint.tracing.records import Category
from memlint_rules.flow import MIN_NBYTES, peak_change
from memlint_rules.parameters import of_all_siblings


class UnusedParameters(TraceRule):
    """Parameters take memory on the device and no step uses them.

    Looks for parameters that no kernel of any step reads or writes. Those whose counterpart in a sibling module is
    used, as with experts that get no token, are left alone.

    ## Why it costs memory

    A parameter takes its bytes from the moment the model is moved until the end. It gets no gradient, and so no
    optimizer state, but `DistributedDataParallel` keeps a bucket of its size for it.

    ## How the saving is computed

    These storages are taken out, and the peak is computed again.

    ## Known limits

    A module that only some inputs or another mode reach, such as a head for generation, is reported as well. Parameters
    of less than 1 MiB in all are not.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html
    """

    code, name, severity = "MEM202", "unused-parameters", Severity.WARNING
    bad = (
        Case.of_layers(
            {"head": "nn.Linear(4096, 2)", "old_head": "nn.Linear(4096, 4096)"},
            "return self.head(x)",
            {"x": "torch.randn(4, 4096)"},
            line=1,
        ),
    )
    good = (
        bad[0].but({"        self.old_head = nn.Linear(4096, 4096)\n": ""}),
        bad[0].but(
            {
                "self.head = nn.Linear(4096, 2)\n        self.old_head = nn.Linear(4096, 4096)": (
                    "self.experts = nn.ModuleList(nn.Linear(4096, 4096) for _ in range(4))"
                ),
                "return self.head(x)": "return self.experts[0](x) + self.experts[2](x)",
            },
            title="Experts take turns",
        ),
    )

    def check(self, context: Context) -> Findings:
        geometries = (each for node in context.trace.nodes if node.step >= 0 for each in (*node.inputs, *node.outputs))
        used = {geometry.buffer for geometry in geometries}
        parameters = [buffer for buffer in context.trace.buffers if buffer.category is Category.PARAMETER]
        places = {of_all_siblings(parameter.name) for parameter in parameters if parameter.id in used}
        unused = [
            parameter
            for parameter in parameters
            if parameter.id not in used and parameter.nbytes and of_all_siblings(parameter.name) not in places
        ]
        nbytes = sum(parameter.nbytes for parameter in unused)
        if not places or nbytes < MIN_NBYTES:
            return
        unused.sort(key=lambda parameter: -parameter.nbytes)
        names = [f"`{parameter.name}`" for parameter in unused[:3]]
        rest = f" and {len(unused) - 3} more" if len(unused) > 3 else ""
        timeline = context.timeline
        yield self.finding(
            context,
            None,
            f"No step reads {', '.join(names)}{rest}: {format_nbytes(nbytes)} of parameters.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, without(timeline, [parameter.id for parameter in unused])),
            confidence=Confidence.EXACT_LIFETIME,
            fix="Do not construct what is not used, or delete it before the model is moved to the device.",
        )
