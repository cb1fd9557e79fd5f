from collections import Counter
from collections.abc import Collection, Iterable

from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule
from memlint.memory.records import Buffer, Category
from memlint.memory.timeline import without
from memlint_rules.support.dead_references import described
from memlint_rules.support.flow import MIN_NBYTES, grouped, peak_change
from memlint_rules.support.parameters import of_all_siblings

_STEPS_BETWEEN_WHICH_ALL_RAN = 2
"""A script's run ends when the optimizer has stepped: only the second step shows the code after the first one."""


class UnusedParameters(TraceRule):
    """Parameters take memory on the device but no step uses them.

    Looks for parameters that no kernel of any step reads or writes. Parameters whose counterpart in a sibling module is
    used, such as experts that get no token, are not reported.

    ## Why it costs memory

    A parameter takes memory from the move of the model to the device until the end. An unused one gets no gradient, and
    so no optimizer state, but `DistributedDataParallel` keeps a bucket of its size for it.

    ## How the saving is computed

    These storages are removed, and the peak is computed again.

    ## Known limits

    A module that is only used for some inputs or in another mode, such as a head for generation, is reported as well.
    Parameters of less than 1 MiB in total are not. If a script is ended after its first step, the code after that step
    is unknown, and nothing is reported. Nor is an entirely unused model beside a used one of the same shapes, such as a
    moving average that is updated occasionally.

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
        if context.workload.origin == "script":
            if context.trace.num_steps < _STEPS_BETWEEN_WHICH_ALL_RAN:
                return
            copies = _copies(parameters, used)
            parameters = [parameter for parameter in parameters if parameter.id not in copies]
        places = {_place(parameter) for parameter in parameters if parameter.id in used}
        unused = [
            parameter
            for parameter in parameters
            if parameter.id not in used and parameter.nbytes and _place(parameter) not in places
        ]
        nbytes = sum(parameter.nbytes for parameter in unused)
        if not places or nbytes < MIN_NBYTES:
            return
        unused.sort(key=lambda parameter: -parameter.nbytes)
        alike = Counter(f"`{each.name}`" if each.name else described(each) for each in unused).most_common()
        texts = [f"{count} x {text}" if count > 1 else text for text, count in alike[:3]]
        num_left = sum(count for _text, count in alike[3:])
        rest = f" and {num_left} more" if num_left else ""
        timeline = context.timeline
        yield self.finding(
            context,
            None,
            f"No step reads {', '.join(texts)}{rest}: {format_nbytes(nbytes)} of parameters.",
            nbytes=nbytes,
            peak_change=peak_change(timeline, without(timeline, [parameter.id for parameter in unused])),
            confidence=Confidence.EXACT_LIFETIME,
            fix="Do not construct unused modules, or delete them before the model is moved to the device.",
        )


def _place(parameter: Buffer) -> tuple[str, int]:
    """Return the common position of the parameter in all siblings; one without a name has no siblings."""
    return of_all_siblings(parameter.name), -1 if parameter.name else parameter.id


def _copies(parameters: Iterable[Buffer], used: Collection[int]) -> set[int]:
    """Return parameters of a script's models that no step uses, beside a used model of the same shapes."""
    models = grouped((each.name.partition(".")[0], each) for each in parameters if each.name)
    shapes = {name: Counter(each.shape for each in model) for name, model in models.items()}
    idle = {name for name, model in models.items() if not any(each.id in used for each in model)}
    copied = [name for name in idle if any(shapes[name] <= shapes[other] for other in models.keys() - idle)]
    return {parameter.id for name in copied for parameter in models[name]}
