"""memlint's own findings: what it could not read, understand or run. They have pages like rules, and no check.

They are reported whatever is selected, because a run that skipped something must say so; only `ignore` with their code
silences them.
"""

import inspect
import linecache
import traceback
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from memlint.lint.rule import Case, Confidence, Finding, Rule, Severity
from memlint.source.comments import Malformed, Suppression
from memlint.source.files import Unreadable

COMMENTS = ("memlint", "noqa")
"""What stands in every file with a comment that suppresses something."""


LOCAL = "memlint_local_"
"""With which the names of packages begin that stand for folders of `rule-paths`."""


class Diagnostic(Rule):
    """A finding that the engine makes."""

    looks_at = "memlint's own run"
    saving = "There is none."

    @classmethod
    def at(cls, path: str, line: int, message: str, fix: str, column: int = 1, *, subject: str = "") -> Finding:
        """Make a Finding of this diagnostic, about the code `subject` if it is about one."""
        return Finding(
            code=cls.code,
            path=path,
            line=line,
            column=column,
            message=message,
            severity=cls.severity,
            confidence=Confidence.ANALYTIC,
            fix=fix,
            subject=subject,
        )


class UnreadableFile(Diagnostic):
    """A file cannot be read or parsed, so no rule looked at it.

    Reports a file that does not exist, is no regular file, may not be read, has an encoding Python cannot decode, is
    not valid Python for the interpreter memlint runs under, is nested too deeply for Python's parser, or is larger than
    8 MiB.

    ## Why it costs memory

    It does not. No rule looked at the file, so nothing is known about it.

    ## Known limits

    Syntax newer than the running interpreter is reported as invalid: run memlint under the version the code is for.
    In a directory, files that contain neither the name of PyTorch or of a library above it nor a suppression comment
    are left alone, and so are the mistakes in them.

    - https://docs.python.org/3/reference/lexical_analysis.html#encoding-declarations
    """

    code, name, severity = "MEM001", "unreadable-file", Severity.ERROR
    bad = (Case(source="import torch\n\ndef train(model:\n    pass\n", line=3),)
    good = (Case(source="import torch\n\ndef train(model):\n    pass\n"),)

    @classmethod
    def of(cls, error: Unreadable) -> Finding:
        """Say why a file was not read."""
        return cls.at(
            error.path, error.line, f"The file {error.reason}.", "Correct the file, or leave it out with `exclude`."
        )


class MalformedSuppression(Diagnostic):
    """A suppression comment is not understood or names no known rule.

    Reports comments that begin with `memlint:` but are neither `# memlint: ignore[CODE] reason` nor, on a line of its
    own, `# memlint: file-ignore[CODE] reason`, and suppressions of codes that no installed rule has. A suppression
    always names its codes: there is no form that silences everything.

    ## Why it costs memory

    It does not. The finding that was meant to be silenced is still reported, or a misspelt code hides nothing.

    ## Known limits

    Unknown codes in `# noqa` comments are not reported, because those belong to other tools as well. Ruff reports
    memlint's codes there as unknown unless `lint.external` in its configuration holds `"MEM"`.

    - https://docs.astral.sh/ruff/linter/#error-suppression
    """

    code, name, severity = "MEM002", "malformed-suppression", Severity.WARNING
    words: ClassVar[tuple[str, ...]] = COMMENTS
    bad = (
        Case(source="logits = None  # memlint: ignore MEM107\n", line=1),
        Case(source="# memlint: ignore[MEM170] kept for the metrics\nlogits = None\n", line=1, title="An unknown code"),
    )
    good = (Case(source="logits = None  # memlint: ignore[MEM107] kept for the metrics\n"),)

    @classmethod
    def of(cls, path: str, malformed: Malformed) -> Finding:
        """Report a comment that is no suppression."""
        return cls.at(
            path,
            malformed.line,
            f"The comment `{malformed.comment}` suppresses nothing.",
            malformed.hint,
            malformed.column,
        )


class BrokenRule(Diagnostic):
    """A rule or a plugin failed, so its findings are missing.

    Names the rule or plugin and the error. The other rules run as usual.

    ## Why it costs memory

    It does not. What the rule would have found is not in the report.

    ## Known limits

    A rule that never returns is stopped only by the time limit of the whole analysis.

    - https://packaging.python.org/en/latest/specifications/entry-points/
    """

    code, name, severity = "MEM003", "broken-rule", Severity.ERROR

    @classmethod
    def of_rule(cls, rule: Rule, error: BaseException, path: str) -> Finding:
        """Report a rule that raised `error` while looking at `path`."""
        where = traceback.extract_tb(error.__traceback__)
        place = f" ({where[-1].filename}:{where[-1].lineno})" if where else ""
        module = type(rule).__module__
        own = module.startswith(LOCAL)
        mend = f"Correct {inspect.getfile(type(rule))}" if own else f"Report it to the author of {module}"
        if isinstance(error, RecursionError):
            mend = (
                f"Leave the file out with `exclude` if its code is nested very deeply; else {mend[0].lower()}{mend[1:]}"
            )
        return cls.at(
            path,
            1,
            f"Rule {rule.code} ({rule.name}) failed: {describe(error)}{place}.",
            f"{mend}, and ignore {rule.code} until it is repaired.",
            subject=rule.code,
        )

    @classmethod
    def of_plugin(cls, plugin: str, distribution: str, error: BaseException, rule: object = None) -> Finding:
        """Report a plugin that cannot be imported, or `rule` in it that is none, where that is known."""
        path, line = _place(error, rule) or (f"<plugin {plugin}>", 1)
        return cls.at(
            path,
            line,
            f"Plugin {plugin} of {distribution} cannot be used: {describe(error)}.",
            f"Repair or uninstall {distribution}; the other rules ran.",
        )

    @classmethod
    def of_file(cls, file: Path, error: BaseException, rule: object = None) -> Finding:
        """Report a file of `rule-paths` that cannot be imported, or `rule` in it that is none."""
        path, line = _place(error, rule) or (str(file), 1)
        return cls.at(
            path,
            line,
            f"The rules of {file} cannot be used: {describe(error)}.",
            "Correct the file, and try it with `memlint test`; the other rules ran.",
        )


class UnusedSuppression(Diagnostic):
    """A suppression comment names a rule that finds nothing there.

    Reports every code in a `# memlint: ignore[...]`, `# memlint: file-ignore[...]` or `# noqa: ...` comment whose rule
    ran and found nothing on the lines that the comment covers. Codes of rules that were not selected, that failed, or
    that belong to other tools are left alone.

    A rule of traced steps has run on a line if a workload of this run ran it. Such a finding is a note, because another
    batch size, GPU or workload may need the comment. A rule that looks at the text and at traced steps has run when it
    has looked at both, so with `--no-exec` its comments are left alone.

    ## Why it costs memory

    It does not. But the comment would hide the next mistake that is made on its line.

    ## Known limits

    Rules of traced steps are judged only where every workload of the run could be analysed, and not where one of a file
    was named, as in `model.py::build`.

    - https://docs.astral.sh/ruff/rules/unused-noqa/
    """

    code, name, severity = "MEM004", "unused-suppression", Severity.WARNING
    words: ClassVar[tuple[str, ...]] = COMMENTS
    bad = (Case(source="total = 0  # memlint: ignore[MEM601] the cache is fragmented\n", line=1),)
    good = (Case(source="total = 0\n"),)

    @classmethod
    def of(cls, path: str, suppression: Suppression, code: str, *, traced: bool = False) -> Finding:
        """Report `code` in a comment. `traced`: its rule looks at traced steps, which differ from run to run."""
        alone = len(suppression.codes) == 1
        unused = cls.at(
            path,
            suppression.line,
            f"{code} finds nothing here{' in any workload of this run' if traced else ''}: the comment has no effect.",
            ("Remove the comment" if alone else f"Remove {code} from the comment")
            + (", unless another workload or batch size needs it." if traced else "."),
            suppression.column,
            subject=code,
        )
        return replace(unused, severity=Severity.NOTE) if traced else unused


DIAGNOSTICS: tuple[Diagnostic, ...] = (UnreadableFile(), MalformedSuppression(), BrokenRule(), UnusedSuppression())


def describe(error: BaseException) -> str:
    """Type and first line of an error."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def _place(error: BaseException, rule: object) -> tuple[str, int] | None:
    """File and line of the plugin's own code that `error` is about, else those of `rule`."""
    if isinstance(error, SyntaxError) and error.filename:
        return error.filename, error.lineno or 1
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if linecache.getline(frame.filename, frame.lineno or 1) and "importlib" not in frame.filename
    ]
    own = [frame for frame in frames if not frame.filename.startswith(__file__.removesuffix("diagnostics.py"))]
    if own:
        return own[-1].filename, own[-1].lineno or 1
    try:
        return inspect.getfile(rule), inspect.getsourcelines(rule)[1]  # type: ignore[arg-type]
    except (OSError, TypeError):  # no class, or a built-in one
        return None
