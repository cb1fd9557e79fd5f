"""Make a Comparison of two Reports."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from memlint.base.units import Measure
from memlint.base.version import __version__
from memlint.compare.comparison import (
    BatchChange,
    BudgetCheck,
    BudgetOutcome,
    BudgetRule,
    Comparison,
    Facts,
    LargestBatch,
    Side,
    State,
    WorkloadChange,
)
from memlint.compare.match import paired
from memlint.compare.peak_growth import peak_growth
from memlint.lint.diagnostics import UnreadableFile
from memlint.report.formats.problems import without_numbers
from memlint.report.from_rules import failed_target
from memlint.report.model import Budget, Error, Finding, Report, Sweep, Workload
from memlint.report.phrases import is_own_step, ranks_text
from memlint.report.workloads import findings_by_workload

_COMPARABLE = ("mode", "batch", "dtype", "optimizer", "gpu", "torch", "context")


def compare(
    base: Report | None,
    head: Report,
    *,
    base_label: str = "base",
    head_label: str = "head",
    base_commit: str | None = None,
    head_commit: str | None = None,
) -> Comparison:
    """Compare two Reports; without `base` everything is new. The budgets are those in `head`.

    If one side could not load a target, each Workload that the other side found in that target gets its error.
    """
    lost_base, lost_head = _failures(base) if base else [], _failures(head)
    pairs = paired(
        _analysed(base) if base else [],
        _analysed(head),
        lambda each: (each.workload.name, each.workload.target, *(getattr(each.workload, f) for f in _COMPARABLE)),
        lambda each: (each.workload.name, each.workload.target, each.workload.dtype),
        lambda each: (each.workload.name, each.workload.target),
        lambda each: each.workload.name,
    )
    one_sided = {each.file for each in lost_base} ^ {each.file for each in lost_head} if base else set()
    new, fixed = _new_and_fixed(*(_findings_elsewhere(report, one_sided) if report else [] for report in (base, head)))
    return Comparison(
        tool=f"memlint {__version__}",
        base=Side(label=base_label, commit=base_commit, tool=base.tool, torch=base.torch) if base else None,
        head=Side(label=head_label, commit=head_commit, tool=head.tool, torch=head.torch),
        notes=list(_notes(base, head)),
        workloads=[_change(pair) for pair in _paired_with_causes(pairs, lost_base, lost_head)],
        findings_new=new,
        findings_fixed=fixed,
    )


def _notes(base: Report | None, head: Report) -> Iterator[str]:
    if base is None:
        yield "there is nothing to compare with: all is new"
        return
    if base.tool != head.tool:
        yield f"base was analysed by {base.tool}, head by {head.tool}: estimates may differ for that reason"
    if None not in (base.torch, head.torch) and base.torch != head.torch:
        yield f"base ran on PyTorch {base.torch}, head on {head.torch}: estimates may differ for that reason"
    not_run = [name for name, report in (("base", base), ("head", head)) if report.settings.no_exec]
    if not_run:
        yield f"no workload of {' or '.join(not_run)} was run, because of --no-exec"
    elif not base.workloads and not head.workloads:
        yield "neither side has a workload: declare one, or name a file with models in it"


class _Analysed(NamedTuple):
    workload: Workload
    findings: Sequence[Finding]


_Pair = tuple[_Analysed | None, _Analysed | None]


def _analysed(report: Report) -> list[_Analysed]:
    return [_Analysed(*each) for each in zip(report.workloads, findings_by_workload(report).of_workloads, strict=True)]


def _findings_elsewhere(report: Report, files: Collection[str]) -> list[Finding]:
    """Return findings of source rules in files other than `files`, and the files that could not be read."""
    findings = findings_by_workload(report).of_source
    return [each for each in findings if each.path not in files or _is_unreadable(each)]


def _failures(report: Report) -> list[Workload]:
    """Return the targets and files that could not be loaded, each as a Workload with their name and the error."""
    targets = [workload for workload in report.workloads if _is_target(workload)]
    files = (finding for finding in report.findings if _is_unreadable(finding))
    return [*targets, *(failed_target(each.path, Error(kind="target", message=each.message)) for each in files)]


def _is_target(workload: Workload) -> bool:
    """Return True for an entry that stands for a target that could not be loaded, and is no Workload."""
    return workload.error is not None and workload.name == workload.target


def _is_unreadable(finding: Finding) -> bool:
    """Return True if the finding says that its file is unreadable; searches of a directory skip such files."""
    return finding.code == UnreadableFile.code


def _is_in(workload: Workload, failure: Workload) -> bool:
    """Return True if the target that could not be loaded is that of the Workload, or its file."""
    return failure.target in (workload.target, workload.file)


def _paired_with_causes(
    pairs: Sequence[_Pair], lost_base: list[Workload], lost_head: list[Workload]
) -> Iterator[_Pair]:
    """Yield the pairs, with each unmatched Workload paired with the lost target that it belongs to.

    That target then forms no pair of its own.
    """
    base_only = [before.workload for before, after in pairs if before and not after]
    head_only = [after.workload for before, after in pairs if after and not before]
    for before, after in pairs:
        explained = before or _cause(after, lost_base), after or _cause(before, lost_head)
        if None not in explained or not _is_cause(before or after, head_only if before else base_only):
            yield explained


def _cause(analysed: _Analysed | None, lost: Iterable[Workload]) -> _Analysed | None:
    return next((_Analysed(each, []) for each in lost if analysed and _is_in(analysed.workload, each)), None)


def _is_cause(analysed: _Analysed | None, others: Iterable[Workload]) -> bool:
    return analysed is not None and _is_target(analysed.workload) and any(_is_in(o, analysed.workload) for o in others)


def _change(pair: _Pair) -> WorkloadChange:
    before, after = (analysed.workload if analysed else None for analysed in pair)
    named = before if before and (after is None or _is_target(after)) else after
    assert named is not None
    base, head = _facts(before), _facts(after)
    is_known = not any(facts is not None and facts.error is not None for facts in (base, head))
    new, fixed = _new_and_fixed(*(each.findings if each else [] for each in pair)) if is_known else ([], [])
    measure: Literal["requested", "device"] = "requested" if named.gpu == "cpu" else "device"
    growth: dict[str, Any] = {}
    if before and after and before.estimate and after.estimate:
        growth = {"notes": list(_differences(base, head)), **peak_growth(before.estimate, after.estimate)}
    change = WorkloadChange(
        name=named.name,
        target=named.target,
        state="unchanged",
        measure=measure,
        base=base,
        head=head,
        **growth,
        largest=_largest(before, after),
        batches=_batches(before, after),
        budget=_checks(after.allowed if after else None, base, head, measure),
        findings_new=new,
        findings_fixed=fixed,
    )
    return change.model_copy(update={"state": _state(change)})


def _state(change: WorkloadChange) -> State:
    base, head = change.base, change.head
    if head is None:
        return "removed"
    if head.error is not None:
        return "failed"
    if base is None:
        return "new"
    if base.error is not None:
        return "recovered"
    if change.change:
        return "grown" if change.change > 0 else "shrunk"
    same = base.peak == head.peak and all(each.base == each.head for each in change.largest)
    differs = change.notes or change.findings_new or change.findings_fixed or change.categories or change.lines
    return "unchanged" if same and not differs else "changed"


def _facts(workload: Workload | None) -> Facts | None:
    if workload is None:
        return None
    return Facts(
        **{fact: getattr(workload, fact) for fact in _COMPARABLE} | {"torch": workload.torch or "as installed"},
        peak=workload.estimate.peak if workload.estimate else None,
        verdict=workload.verdict,
        ranks=workload.ranks,
        streams=workload.estimate.streams if workload.estimate else [],
        is_own_step=is_own_step(workload.script),
        error=workload.error.message if workload.error else None,
    )


def _differences(base: Facts | None, head: Facts | None) -> Iterator[str]:
    """Yield the settings that differ between the two sides."""
    for fact in _COMPARABLE:
        before, after = getattr(base, fact), getattr(head, fact)
        if before != after:
            yield f"{fact} {before} in base, {after} in head"
    own = [name for name, facts in (("base", base), ("head", head)) if facts is not None and facts.is_own_step]
    if len(own) == 1:
        yield f"the step is memlint's own in {own[0]}: the script ended before its first one"
    sides = [ranks_text(facts.ranks if facts else None) or "one process" for facts in (base, head)]
    if sides[0] != sides[1]:
        yield f"{sides[0]} in base, {sides[1]} in head"


def _checks(budget: Budget | None, base: Facts | None, head: Facts | None, measure: Measure) -> list[BudgetCheck]:
    """Return a check for each limit of `budget`; none if head has no peak.

    As in `memlint check`, a maximum is exceeded only if even the low end of the interval exceeds it: the unknown part
    fails no run. An increase is the change of the estimates: the unknown part is the same on both sides.
    """
    if budget is None or head is None or head.peak is None:
        return []
    after = head.peak[measure]
    before = base.peak[measure].estimate if base is not None and base.peak is not None else None
    increase = None if before is None else after.estimate - before
    percent = None if before is None or increase is None else 100 * increase / max(before, 1)
    limits: list[tuple[BudgetRule, float | None, float | None, float | None]] = [
        ("max", budget.max, after.estimate, after.low),
        ("max-increase", budget.max_increase, increase, increase),
        ("max-increase-percent", budget.max_increase_percent, percent, percent),
    ]
    made = []
    for rule, limit, actual, least in limits:
        if limit is None:
            continue
        outcome: BudgetOutcome = "unknown" if least is None else "exceeded" if least > limit else "kept"
        if rule == "max" and outcome == "kept" and after.high > limit:
            outcome = "uncertain"
        made.append(BudgetCheck(rule=rule, limit=limit, actual=actual, outcome=outcome, level=budget.level))
    return made


def _largest(before: Workload | None, after: Workload | None) -> list[LargestBatch]:
    def key(sweep: Sweep) -> Hashable:
        return sweep.dtype, sweep.compiled, sweep.gpu, tuple(sorted(sweep.dimensions.items()))

    def batch(sweep: Sweep | None) -> int | None:
        return sweep.largest.batch if sweep and sweep.largest else None

    pairs = paired(before.sweep if before else [], after.sweep if after else [], key)
    return [
        LargestBatch(dtype=sweep.dtype, gpu=sweep.gpu, gpu_title=sweep.gpu_title, base=batch(old), head=batch(new))
        for old, new in pairs
        if (sweep := new or old) is not None and (batch(old), batch(new)) != (None, None)
    ]


def _batches(before: Workload | None, after: Workload | None) -> list[BatchChange]:
    """Return device peaks by batch size, each side in its own dtype."""
    old, new = _by_batch(before), _by_batch(after)
    return [BatchChange(batch=batch, base=old.get(batch), head=new.get(batch)) for batch in sorted({*old, *new})]


def _by_batch(workload: Workload | None) -> dict[int, int]:
    if workload is None:
        return {}
    sweeps = [each for each in workload.sweep if each.dtype == workload.dtype and each.compiled is not False]
    return {row.batch: row.device.estimate for sweep in sweeps for row in sweep.rows if row.device is not None}


def _new_and_fixed(base: Sequence[Finding], head: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Return the findings that only head has, and those that only base has. Sizes in messages and lines may differ."""

    def what(finding: Finding) -> tuple[str, str]:
        return finding.code, without_numbers(finding.message)

    pairs = paired(
        base,
        head,
        lambda finding: (*what(finding), finding.path, finding.line),
        lambda finding: (*what(finding), finding.path),
        what,
    )
    new = [after for before, after in pairs if after is not None and before is None]
    return new, [before for before, after in pairs if before is not None and after is None]
