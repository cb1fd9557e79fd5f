"""Sessions without a child: what a child would answer is answered in this process."""

from pathlib import Path

from memlint.base.errors import MemlintError
from memlint.base.frames import user_lines
from memlint.capture.capture import Capture
from memlint.commands.analyse.analyse import analyse as ask_all
from memlint.commands.analyse.analysis import Analysis
from memlint.commands.analyse.look import Look
from memlint.config import Settings
from memlint.session.main import _answer
from memlint.session.target import Target
from memlint.worker.protocol import Limits, Request
from memlint.worker.session import Answered, JobError
from memlint.workloads.candidates import Discovery


class InProcess:
    """A Session whose jobs are done here."""

    is_script = False
    knows_variables = has_tables = True
    seconds_left = 1000.0

    def __init__(self, request, discovery=None):
        self.request, self.limits = request, Limits()
        self.target = Target(request, discovery)
        self.partial, self.estimates = None, {}

    def ask(self, job):
        try:
            answered = _answer(self.target, job)
        except MemlintError as error:
            raise JobError(error, tuple(user_lines(error))) from error
        parts = answered if isinstance(answered, tuple) else (answered,)
        captures = [each for each in parts if isinstance(each, Capture)]
        records = [each.model_dump(mode="json") for each in parts if hasattr(each, "model_dump")]
        return Answered(*(records or [None]), *(captures or [None]))

    def begin(self, job):
        """Do nothing ahead."""

    def keep(self, result):
        self.partial = result

    def can_answer(self, _job):
        return True

    def rules_begin(self):
        pass

    renew_time = rules_begin

    def tell_compiling(self, _tell):
        pass


def analyse(request, **look):
    """The Result of a request, as `memlint check` has it."""
    return ask_all(InProcess(request), Look(**look))


def analysed(workload, root=Path(), budget=None, **options):
    """The Context of rules for one Workload."""
    request = Request(target=workload.target, path=workload.path or None, root=str(root), settings=Settings())
    session = InProcess(request, Discovery((workload,)))
    capture = session.target.trace(0)
    return Analysis.of(capture, session, 0, budget, **options)
