"""The interface of rules: how a rule is written, what it may ask, and what it reports.

A rule is a class: its attributes name it, its docstring is its page (a sentence, what the rule does, sections with
headings, a list of links), `bad` and `good` are run as tests and printed in the page. A SourceRule reads the text of a
file; a TraceRule asks the Context of a traced Workload.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from enum import StrEnum
from textwrap import indent
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from memlint.base.errors import RuleError
from memlint.base.ownership import is_installed
from memlint.base.units import Measure, format_nbytes
from memlint.lint.severity import Confidence as Confidence  # noqa: PLC0414 -- part of what rules import from here
from memlint.lint.severity import Severity as Severity  # noqa: PLC0414
from memlint.memory.records import Frame  # noqa: TC001 -- pydantic, which keeps Findings in the cache, looks it up
from memlint.source.text import source_at

if TYPE_CHECKING:
    from memlint.memory.devices import Device
    from memlint.memory.estimate import Estimate
    from memlint.memory.records import Trace
    from memlint.memory.retention import Holder, LongRun
    from memlint.memory.timeline import Timeline
    from memlint.source.text import Source
    from memlint.targets.workload import Workload
    from memlint.whatif.change import Change
    from memlint.whatif.simulation import WhatIf

SAVING = "How the saving is computed"
HEADINGS = (
    "What it does",
    "Why it costs memory",
    "Example",
    "Use instead",
    SAVING,
    "Known limits",
    "References",
)
"""The headings of every rule's page, in this order."""
FROM_CASES = {"Example": "bad", "Use instead": "good"}
"""The headings that the docstring leaves out, because the page fills them from cases."""

LIBRARIES = ("torch", "lightning", "transformers", "accelerate", "diffusers", "timm", "deepspeed", "fastai")
"""Words one of which stands in every file that has to do with PyTorch. `torch` is in `torchvision`, `pytorch_lightning`
and the like; through the others a file can use PyTorch without ever naming it."""

NOTABLE_NBYTES = 16 * 2**20
NOTABLE_SHARE = 0.01
"""A change of the peak below the larger of these (bytes, share of the peak) is a note."""
MANY_NODES = 6000
"""Kernels of a Trace from which on another one takes seconds: rules that know another way to a figure then take it."""


class Applicability(StrEnum):
    """The certainty about a Correction."""

    SAFE = "safe"
    """The program computes the same numbers and objects of the same types, and cannot fail where it did not."""
    UNSAFE = "unsafe"
    """It most likely does, but something that cannot be seen decides."""


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Put `text` in the place of the characters from `start` up to `end`, counted from 0 in the text of the Source."""

    start: int
    end: int
    text: str


@dataclass(frozen=True, slots=True)
class Correction:
    """Edits of one file that belong together: all are made, or none."""

    edits: tuple[Edit, ...]
    """At least one; none overlaps another."""
    applicability: Applicability


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing a rule found."""

    code: str
    path: str
    line: int
    """From 1."""
    column: int = 1
    """From 1."""
    message: str
    severity: Severity
    confidence: Confidence
    nbytes: int | None = None
    """Bytes attributable to what was found; None where the rule cannot know."""
    peak_change: int | None = None
    """Bytes by which a peak changes after the fix, negative for a fall; None where it was not computed."""
    measure: Measure = "requested"
    """The peak that changes."""
    fix: str
    correction: Correction | None = None
    """The change that `--fix` makes to the file; None if a person has to."""
    subject: str = ""
    """The code that one of memlint's own findings speaks of: of the rule that failed, or that a comment names."""
    library: Frame | None = None
    """The line of an installed package that was found; `path` and `line` are then the project's call of it."""


Findings = Iterator[Finding]
"""The findings that `check` yields."""


@dataclass(frozen=True, slots=True)
class Case:
    """An example of a rule: a whole file. Cases of a TraceRule declare a model in it."""

    source: str
    _: KW_ONLY
    line: int | None = None
    """The line the finding must be on; None for any."""
    title: str = ""
    dtype: str = "float32"
    """The dtype of the Workload, as in its record."""
    budget: int | None = None
    """Bytes the step may take."""
    detailed: bool = False
    """True if it takes a detailed report (`-v`) to find it."""

    @classmethod
    def of_model(cls, model: str, workload: str, *, imports: str = "", **options: Any) -> Case:
        """Make the file that imports `torch` and `nn`, defines `model` and declares `workload`.

        `imports` are more lines of imports; `workload` is what `memlint_workload` returns, `Model(), {"x": ...}`;
        `options` are fields of the Case.
        """
        source = (
            f"import torch\nfrom torch import nn\n{imports}\n\n{model}\n\n"
            f"def memlint_workload():\n    return {workload}\n"
        )
        return cls(source, **options)

    @classmethod
    def of_layers(
        cls,
        layers: Mapping[str, str],
        forward: str,
        inputs: Mapping[str, str],
        *,
        name: str = "Model",
        imports: str = "",
        **options: Any,
    ) -> Case:
        """Make the file of a model with these layers and this body of `forward`, called with `inputs`.

        All is Python: `{"head": "nn.Linear(4, 2)"}`, `"return self.head(x)"` and `{"x": "torch.randn(8, 4)"}`.
        """
        layers_text = "\n".join(["super().__init__()", *(f"self.{name} = {made}" for name, made in layers.items())])
        model = (
            f"class {name}(nn.Module):\n    def __init__(self):\n{indent(layers_text, ' ' * 8)}\n\n"
            f"    def forward(self, {', '.join(inputs)}):\n{indent(forward, ' ' * 8)}\n"
        )
        example = ", ".join(f'"{argument}": {made}' for argument, made in inputs.items())
        return cls.of_model(model, f"{name}(), {{{example}}}", imports=imports, **options)

    def but(self, changes: Mapping[str, str] = MappingProxyType({}), **options: Any) -> Case:
        """Make the twin of this Case in which each old text, found exactly once, is replaced by its new one.

        Line and title are its own; all else stays unless it is given. Raises RuleError.
        """
        source = self.source
        for old, new in changes.items():
            if (count := source.count(old)) != 1:
                raise RuleError(
                    f"the text {old!r} that a case changes stands {count} times in the case that it changes",
                    "Give a text that stands there once.",
                )
            source = source.replace(old, new)
        return replace(self, source=source, **{"line": None, "title": "", **options})


class Context(Protocol):
    """The questions that a rule may ask about a traced Workload."""

    timeline: Timeline
    estimate: Estimate
    budget: int | None

    @property
    def workload(self) -> Workload:
        """The Workload as it was analysed."""

    @property
    def device(self) -> Device:
        """Its GPU, or the host."""

    @property
    def trace(self) -> Trace:
        """Its steps."""

    @property
    def assumed(self) -> frozenset[str]:
        """Those of `batch`, `dtype`, `optimizer` and `loss` that memlint assumed, because nobody says them."""

    def retrace(self, change: Change) -> Estimate | None:
        """Trace the changed program and estimate it; None where the change does not apply to it."""

    def what_if(self, *changes: Change) -> WhatIf | None:
        """Say what the changes do together and what they cost; None where one does not apply."""

    def show_as_well(self, change: Change) -> WhatIf | None:
        """Simulate an alternative to what a finding proposes, which only a detailed report shows.

        Nothing is simulated for other reports, nor where that would run a program again that was traced before: then,
        and where the change does not apply, the result is None.
        """

    def holders(self, buffer_ids: Collection[int]) -> Mapping[int, Holder]:
        """Which variables alone hold these Buffers at the peak; what something else holds as well is missing."""

    @property
    def long_run(self) -> LongRun:
        """Four steps in a row, and the variables that keep what these leave behind."""


class Rule:
    """The base of SourceRule, TraceRule and memlint's own diagnostics."""

    code: ClassVar[str]
    """Letters and three digits, `MEM107`."""
    name: ClassVar[str]
    """Kebab-case."""
    summary: ClassVar[str] = ""
    """One sentence; where it is not given, the first of the docstring."""
    severity: ClassVar[Severity]
    looks_at: ClassVar[str]
    """The line of the page that says what the rule needs."""
    saving: ClassVar[str] = ""
    """The first sentence of the page about how the saving is computed."""
    words: ClassVar[tuple[str, ...]] = LIBRARIES
    """In lower case. Files without any of these words are not parsed for the rule's sake; empty for every file."""
    bad: ClassVar[tuple[Case, ...]] = ()
    good: ClassVar[tuple[Case, ...]] = ()


class SourceRule(Rule):
    """A rule that reads the text of one file after the other; nothing is run."""

    looks_at = "source text, nothing is run"
    traced_as: ClassVar[str] = ""
    """Code of the rule that says the same of traced steps: of a script that was run, that one's word counts."""
    text_decides: ClassVar[bool] = False
    """True if traced steps only add figures to findings of the text: comments that it does not need have no use."""
    saving = "It is not: the rule reads source text and runs nothing."

    def check(self, source: Source) -> Findings:
        """Yield what is wrong with the file."""
        raise NotImplementedError

    def check_steps(self, _context: Context) -> Findings:
        """Yield what is known better of a traced Workload: the bytes that each step adds."""
        yield from ()

    def finding(
        self,
        source: Source,
        node: ast.expr | ast.stmt,
        message: str,
        fix: str,
        severity: Severity | None = None,
        correction: Correction | None = None,
    ) -> Finding:
        """Make a Finding at `node`: a heuristic without bytes."""
        return Finding(
            code=self.code,
            path=source.path,
            line=node.lineno,
            column=node.col_offset + 1,
            message=message,
            severity=severity or self.severity,
            confidence=Confidence.HEURISTIC,
            fix=fix,
            correction=correction,
        )


class TraceRule(Rule):
    """A rule that looks at a traced Workload: at the Trace, the Timeline or the Estimate of its Context."""

    looks_at = "a traced step"
    rests_on: ClassVar[str] = ""
    """The setting of the step that its findings speak of: one that memlint took itself is named in them."""

    def check(self, context: Context) -> Findings:
        """Yield what is wrong with the Workload."""
        raise NotImplementedError

    def finding(
        self,
        context: Context,
        frame: Frame | None,
        message: str,
        *,
        nbytes: int,
        peak_change: int,
        fix: str,
        confidence: Confidence = Confidence.MODELLED,
        measure: Measure = "requested",
    ) -> Finding:
        """Make a Finding at `frame` whose severity follows from `peak_change`; it says so when the peak does not fall.

        It stands where `place_of` puts it.
        """
        before = getattr(context.estimate, measure)
        if peak_change >= 0:
            message = f"{message} The peak would not fall: it is {describe_peak(context.estimate)}."
        return Finding(
            code=self.code,
            **place_of(frame, context),
            message=self.with_assumption(context, message),
            severity=self.severity if _is_worth_a_change(peak_change, before.estimate, context) else Severity.NOTE,
            confidence=confidence,
            nbytes=nbytes,
            peak_change=peak_change,
            measure=measure,
            fix=fix,
        )

    def with_assumption(self, context: Context, message: str) -> str:
        """`message`, and that it rests on a setting which memlint took itself, if so."""
        if self.rests_on not in context.assumed:
            return message
        value = getattr(context.workload, self.rests_on)
        return f"{message} This rests on {self.rests_on} {value}, which memlint took itself."


def place_of(frame: Frame | None, context: Context) -> dict[str, Any]:
    """The fields `path`, `line` and `library` of a Finding: on the line of the project that led to `frame`.

    Where no line of it did, that is where the project defines the model or declares it; without a frame it is line 1 of
    the Workload's file.
    """
    workload = context.workload
    if frame is None:
        return {"path": workload.path, "line": 1}
    line = frame.of_project
    if is_installed(line.path) and workload.path:
        return {"path": workload.path, "line": _line_of(workload.path, workload.qualname), "library": line}
    return {"path": line.path, "line": line.line, "library": frame if frame.caller else None}


def _line_of(path: str, qualname: str) -> int:
    """Return the line on which a file defines a class or function; 1 if it is not found."""
    source = source_at(path)
    nodes = source.index.of(ast.ClassDef, ast.FunctionDef) if source is not None else ()
    return next((node.lineno for node in nodes if node.name == qualname.partition(".")[0]), 1)


def is_notable(peak_change: int, peak: int) -> bool:
    """Return True if a fall of the peak, in bytes, is large enough for more than a note."""
    return -peak_change >= max(NOTABLE_NBYTES, NOTABLE_SHARE * peak)


def _is_worth_a_change(peak_change: int, peak: int, context: Context) -> bool:
    """Say whether a fall of `peak` bytes is notable, and the step takes more than the CUDA context does.

    Whatever takes less fits wherever PyTorch starts at all.
    """
    return is_notable(peak_change, peak) and peak >= context.device.context_nbytes


def describe_peak(estimate: Estimate) -> str:
    """Describe the peak: bytes, phase, kernel and line."""
    place = f" at {estimate.frame}" if estimate.frame else ""
    return (
        f"{format_nbytes(estimate.requested.estimate)} in {estimate.phase.value}, {estimate.op or 'no kernel'}{place}"
    )
