"""First stage of `memlint check`: what was typed, as Targets."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from memlint.base.errors import MemlintError, TargetError
from memlint.commands.analyse.look import Look
from memlint.commands.check.notebooks import Written, is_notebook, of_notebook
from memlint.commands.targets import Targets, distinct, passed_over, resolve, together
from memlint.report.from_rules import error_of, failed_target
from memlint.report.model import Skipped, Workload
from memlint.targets.target import SEPARATOR


class CheckOptions(Look):
    """How to check, beside what stands in Settings."""

    execute: bool = True
    """True to run the Workloads, and load the rules in `rule-paths`."""
    cache: bool = True
    """True to keep findings of source rules and answers of workers from run to run."""
    affected: bool = False
    """The arguments are files that were changed: run the Workloads of their projects that one of them is a part of."""
    force_exclude: bool = False
    """Leave out what the configuration excludes even if it is named."""
    baseline: Path | None = None
    """Leave out the findings in this file."""
    statistics: bool = False
    """Count the findings of each rule."""


@dataclass(frozen=True, slots=True)
class CheckTargets:
    """The targets that the arguments name."""

    targets: tuple[Targets, ...]
    failures: tuple[Workload, ...]
    """Arguments that are no target, and configured Workloads whose file is gone."""
    skipped: tuple[Skipped, ...]
    """The files that are excluded or not affected."""
    notebooks: tuple[Written, ...] = ()
    """The notebooks among them."""


def check_targets(
    arguments: Sequence[str],
    settings: Mapping[str, object],
    options: CheckOptions,
    folder: Path | None = None,
    *,
    strict: bool = False,
) -> CheckTargets:
    """Resolve all arguments. Those of several that are no target become failures, unless it is `strict`.

    `settings` are those that the command line gave; programs that stand for notebooks are written into `folder`. Raises
    MemlintError for configuration and for an only argument that make no sense.
    """
    notebooks: list[Written] = []
    wrong: dict[str, MemlintError] = {}
    resolved: list[Targets] = []
    try:
        if options.affected:
            from memlint.commands.affected import resolve_affected  # noqa: PLC0415

            resolved = resolve_affected(arguments, settings, force_exclude=options.force_exclude, cache=options.cache)
        for argument in () if options.affected else arguments:
            try:
                if folder is not None and is_notebook(argument):
                    target, written = of_notebook(argument, folder, settings, force_exclude=options.force_exclude)
                    resolved.append(target)
                    notebooks.append(written)
                else:
                    resolved.append(resolve(argument, settings, force_exclude=options.force_exclude))
            except TargetError as error:
                if strict or len(arguments) == 1:
                    raise
                wrong[argument] = error
    except OSError as error:
        raise TargetError(f"{error.filename} cannot be read: {error.strerror}", "Is it a path?") from error
    targets = tuple(together(distinct(resolved)))
    lost = {name: error for target in targets if options.execute for name, error in target.lost}
    failures = tuple(failure(name, error) for name, error in (wrong | lost).items())
    return CheckTargets(targets, failures, tuple(passed_over(targets)), tuple(notebooks))


def failure(target: str, error: MemlintError, traceback: Iterable[str] = ()) -> Workload:
    """The Workload that stands for a target that failed as a whole, in a message that does not repeat its name."""
    file = str(Path(target.partition(SEPARATOR)[0]).resolve())
    message = error.message.removeprefix(f"{file} ").removeprefix(f"{target} ")
    texts = {"message": message, "hint": error.hint or "See the whole traceback with -v."}
    return failed_target(target, error_of(error, traceback).model_copy(update=texts))
