"""From two Reports to their Comparison."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from memlint.base.version import __version__
from memlint.compare import budgets
from memlint.compare import peak_growth as growth
from memlint.compare.comparison import BatchChange, Comparison, Facts, Largest, Side, State, WorkloadChange
from memlint.compare.failures import failures, file_of, is_in, is_target, is_unreadable
from memlint.compare.match import paired
from memlint.report.findings_by_workload import findings_by_workload
from memlint.report.formats.problems import without_numbers

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence

    from memlint.report.model import Finding, Report, Sweep, Workload

_COMPARABLE = ("mode", "batch", "dtype", "optimizer", "gpu")


def compare(
    base: Report | None,
    head: Report,
    *,
    base_label: str = "base",
    head_label: str = "head",
    base_commit: str | None = None,
    head_commit: str | None = None,
) -> Comparison:
    """What differs between two Reports; without `base` everything is new. The budgets are those in `head`.

    Where a target could not be loaded on one side, its error is that of each Workload that the other side found in it.
    """
    lost_base, lost_head = failures(base) if base else [], failures(head)
    pairs = paired(
        _analysed(base) if base else [],
        _analysed(head),
        lambda each: (each.workload.name, each.workload.target, *(getattr(each.workload, f) for f in _COMPARABLE)),
        lambda each: (each.workload.name, each.workload.target, each.workload.dtype),
        lambda each: (each.workload.name, each.workload.target),
        lambda each: each.workload.name,
    )
    one_sided = {file_of(each) for each in lost_base} ^ {file_of(each) for each in lost_head} if base else set()
    new, fixed = _new_and_fixed(*(_of_others(report, one_sided) if report else [] for report in (base, head)))
    return Comparison(
        tool=f"memlint {__version__}",
        base=_side(base, base_label, base_commit) if base else None,
        head=_side(head, head_label, head_commit),
        notes=list(_notes(base, head)),
        workloads=[_change(pair) for pair in _explained(pairs, lost_base, lost_head)],
        findings_new=new,
        findings_fixed=fixed,
    )


def _side(report: Report, label: str, commit: str | None) -> Side:
    return Side(label=label, commit=commit, tool=report.tool, torch=report.torch)


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


def _of_others(report: Report, files: Collection[str]) -> list[Finding]:
    """What rules that read only the source found in other files than these, and which files could not be read."""
    return [each for each in findings_by_workload(report).of_source if each.path not in files or is_unreadable(each)]


def _explained(pairs: Sequence[_Pair], lost_base: list[Workload], lost_head: list[Workload]) -> Iterator[_Pair]:
    """The pairs, where a Workload without a match is paired with the target that was lost and that it is in.

    Such a target is then no more told by itself.
    """
    base_only = [before.workload for before, after in pairs if before and not after]
    head_only = [after.workload for before, after in pairs if after and not before]
    for before, after in pairs:
        explained = before or _cause(after, lost_base), after or _cause(before, lost_head)
        if None not in explained or not _is_cause(before or after, head_only if before else base_only):
            yield explained


def _cause(analysed: _Analysed | None, lost: Iterable[Workload]) -> _Analysed | None:
    return next((_Analysed(each, []) for each in lost if analysed and is_in(analysed.workload, each)), None)


def _is_cause(analysed: _Analysed | None, others: Iterable[Workload]) -> bool:
    return analysed is not None and is_target(analysed.workload) and any(is_in(o, analysed.workload) for o in others)


def _change(pair: _Pair) -> WorkloadChange:
    analysed_before, analysed_after = pair
    before, findings_base = analysed_before or (None, [])
    after, findings_head = analysed_after or (None, [])
    told = before if before and (after is None or is_target(after)) else after
    assert told is not None
    base, head = _facts(before), _facts(after)
    is_known = not any(facts is not None and facts.error is not None for facts in (base, head))
    new, fixed = _new_and_fixed(findings_base, findings_head) if is_known else ([], [])
    measure: Literal["requested", "device"] = "requested" if told.gpu == "cpu" else "device"
    peaks = (before.estimate if before else None), (after.estimate if after else None)
    both = peaks if peaks[0] is not None and peaks[1] is not None else None
    largest = _largest(before, after)
    change = WorkloadChange(
        name=told.name,
        target=told.target,
        state="unchanged",
        measure=measure,
        base=base,
        head=head,
        notes=list(_differences(base, head)) if both else [],
        categories=growth.categories(*both) if both else [],  # type: ignore[arg-type]
        modules=growth.modules(*both) if both else [],  # type: ignore[arg-type]
        lines=growth.lines(*both) if both else [],  # type: ignore[arg-type]
        buffers=growth.buffers(*both) if both else [],  # type: ignore[arg-type]
        largest=largest,
        batches=_batches(before, after),
        budget=budgets.checks(after.allowed if after else None, base, head, measure),
        findings_new=new,
        findings_fixed=fixed,
    )
    return change.model_copy(update={"state": _state(change)})


def _state(change: WorkloadChange) -> State:
    if change.head is None:
        return "removed"
    if change.head.error is not None:
        return "failed"
    if change.base is None:
        return "new"
    if change.base.error is not None:
        return "recovered"
    if change.change:
        return "grown" if change.change > 0 else "shrunk"
    same = change.base.peak == change.head.peak and all(each.base == each.head for each in change.largest)
    differs = change.notes or change.findings_new or change.findings_fixed or change.categories or change.lines
    return "unchanged" if same and not differs else "changed"


def _facts(workload: Workload | None) -> Facts | None:
    if workload is None:
        return None
    return Facts(
        **{fact: getattr(workload, fact) for fact in _COMPARABLE},
        peak=workload.estimate.peak if workload.estimate else None,
        verdict=workload.verdict,
        error=workload.error.message if workload.error else None,
    )


def _differences(base: Facts | None, head: Facts | None) -> Iterator[str]:
    """What was asked for differently on the two sides."""
    for fact in _COMPARABLE:
        before, after = getattr(base, fact), getattr(head, fact)
        if before != after:
            yield f"{fact} {before} in base, {after} in head"


def _largest(before: Workload | None, after: Workload | None) -> list[Largest]:
    def key(sweep: Sweep) -> Hashable:
        return sweep.dtype, sweep.gpu, tuple(sorted(sweep.dimensions.items()))

    pairs = paired(before.sweep if before else [], after.sweep if after else [], key)
    return [
        Largest(
            dtype=told.dtype,
            gpu=told.gpu,
            gpu_title=told.gpu_title,
            base=old.largest.batch if old and old.largest else None,
            head=new.largest.batch if new and new.largest else None,
        )
        for old, new in pairs
        if (told := new or old) is not None and ((old and old.largest) or (new and new.largest))
    ]


def _batches(before: Workload | None, after: Workload | None) -> list[BatchChange]:
    """Device peaks of each side's own dtype, by batch size."""
    old, new = _by_batch(before), _by_batch(after)
    return [BatchChange(batch=batch, base=old.get(batch), head=new.get(batch)) for batch in sorted({*old, *new})]


def _by_batch(workload: Workload | None) -> dict[int, int]:
    if workload is None:
        return {}
    rows = (row for sweep in workload.sweep if sweep.dtype == workload.dtype for row in sweep.rows)
    return {row.batch: row.device.estimate for row in rows if row.device is not None}


def _new_and_fixed(base: Sequence[Finding], head: Sequence[Finding]) -> tuple[list[Finding], list[Finding]]:
    """Findings that only head has, and that only base has. Sizes in messages may differ, lines may have moved."""
    pairs = paired(
        base,
        head,
        lambda finding: (*_what(finding), finding.path, finding.line),
        lambda finding: (*_what(finding), finding.path),
        _what,
    )
    return _only(after for before, after in pairs if before is None), _only(
        before for before, after in pairs if after is None
    )


def _what(finding: Finding) -> tuple[str, str]:
    return finding.code, without_numbers(finding.message)


def _only(findings: Iterable[Finding | None]) -> list[Finding]:
    return [finding for finding in findings if finding is not None]
