from memlint.base.units import format_nbytes
from memlint.lint.rule import Case, Confidence, Context, Findings, Severity, TraceRule, is_notable
from memlint.memory.records import Category, Frame, Trace
from memlint.whatif.changes import CompileModel, WithoutCompilation


class UncompiledModel(TraceRule):
    """A training step would take notably less memory if the model was compiled with `torch.compile`.

    Compiles the model in the simulation and compares the peaks, only for a detailed report (`-v`): to compile takes
    seconds to minutes. Where the program compiles its code, the eager step is simulated instead, for the table of
    changes.

    ## Why it costs memory

    Eager PyTorch runs one kernel after the other, and each makes a tensor of its own. Compiled, neighbouring
    elementwise operations become one kernel, whose intermediate values never exist in memory, and backward computes
    cheap ones again in place of saving them.

    ## How the saving is computed

    The step is traced again with the whole model compiled, as TorchDynamo, AOTAutograd and Inductor compile it for this
    GPU, and the peaks are compared.

    ## Known limits

    What is fused depends on the version of PyTorch, and sums may be rounded otherwise. A script is not compiled here:
    `memlint run --compile on` compares it.

    - https://docs.pytorch.org/docs/stable/generated/torch.compile.html
    """

    code, name, severity = "MEM624", "uncompiled-model", Severity.INFO
    bad = (
        Case.of_layers(
            {"up": "nn.Linear(256, 1024)", "down": "nn.Linear(1024, 256)"},
            "hidden = self.up(x)\nreturn self.down(hidden * torch.sigmoid(hidden) + hidden.sin()).tanh()",
            {"x": "torch.randn(16384, 256)"},
            detailed=True,
        ),
    )
    good = (
        bad[0].but({"torch.randn(16384, 256)": "torch.randn(16, 256)"}, title="Few bytes"),
        bad[0].but({"return Model(),": "return torch.compile(Model()),"}, title="Compiled"),
    )

    def check(self, context: Context) -> Findings:
        if context.workload.mode != "train":
            return
        if any(node.op.startswith("inductor.") for node in context.trace.nodes):
            context.show_as_well(WithoutCompilation())
            return
        answer = context.show_as_well(CompileModel())
        if answer is None or not is_notable(answer.peak_change, context.estimate.requested.estimate):
            return
        yield self.finding(
            context,
            _frame_of_most(context.trace),
            f"The model runs eagerly: compiled, the step would take {format_nbytes(-answer.peak_change)} less.",
            nbytes=-answer.peak_change,
            peak_change=answer.peak_change,
            confidence=Confidence.EXACT_RETRACE,
            fix="Compile it before the first step: `model.compile()`.",
        )


def _frame_of_most(trace: Trace) -> Frame | None:
    """Return the line of the largest activation."""
    saved = [each for each in trace.buffers if each.category is Category.ACTIVATION and each.frame is not None]
    return max(saved, key=lambda each: each.nbytes).frame if saved else None
