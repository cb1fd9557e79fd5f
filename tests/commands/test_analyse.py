"""A file with several models keeps what is done on the way: it counts if the analysis is stopped."""

from __future__ import annotations

import pytest

from memlint.config import Settings
from memlint.worker.protocol import Request

pytest.importorskip("torch")

TWO = """
from torch import nn
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)
    def forward(self, x): return self.layer(x)
class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(64, 64)
    def forward(self, x): return self.layer(x)
"""


class Stopped(BaseException):
    """Stands for whatever stops the analysis."""


@pytest.fixture
def asked(tmp_path):
    """Sessions that note what is asked and kept, in order, and that stop before a job of some kind."""
    from memlint.commands.analyse.analyse import analyse
    from memlint.commands.analyse.look import Look
    from tests.in_process import InProcess

    class Noting(InProcess):
        def __init__(self, request, stop):
            super().__init__(request)
            self.stop, self.jobs, self.kept = stop, [], []

        def ask(self, job):
            self.jobs.append(repr(job))
            if self.stop(job, self.jobs):
                raise Stopped
            return super().ask(job)

        def keep(self, result):
            super().keep(result)
            self.kept.append(result)

    def ask(text, stop=lambda _job, _jobs: False, **settings):
        (tmp_path / "models_of_test.py").write_text(text)
        path = str(tmp_path / "models_of_test.py")
        session = Noting(
            Request(target=path, path=path, root=str(tmp_path), settings=Settings(batch=2, **settings)), stop
        )
        if stop.__name__ == "<lambda>":
            analyse(session, Look())
        else:
            with pytest.raises(Stopped):
                analyse(session, Look())
        return session

    return ask


def known(result):
    return [(each.name, each.estimate is not None) for each in result.workloads]


def test_before_each_model_of_several_there_is_what_was_done_and_what_is_left(asked):
    session = asked(TWO, select=["MEM003"])
    large = ("Large", True)
    assert [known(result) for result in session.kept] == [[("Large", False)], [large, ("Small", False)]]
    assert [result.left for result in session.kept] == [["Small"], []]


@pytest.mark.parametrize("number", [0, 1])
def test_a_stop_in_the_middle_of_a_trace_keeps_the_models_before_it(asked, number):
    def at_the_trace(job, _jobs):
        return repr(job) == f"TraceWorkload(workload={number})"

    session = asked(TWO, at_the_trace, select=["MEM003"])
    large, small = ("Large", number == 1), ("Small", False)
    assert known(session.partial) == [large, small][: 1 + number]
    assert session.partial.left == (["Small"] if number == 0 else [])


@pytest.mark.parametrize("number", [0, 1])
def test_a_stop_in_the_middle_of_rules_keeps_the_figure_and_says_that_findings_are_missing(asked, number):
    def at_the_rules(job, jobs):
        return "TraceWorkload" not in repr(job) and sum("TraceWorkload" in each for each in jobs) == 1 + number

    session = asked(TWO, at_the_rules)
    assert known(session.partial) == [("Large", True), ("Small", True)][: 1 + number]
    assert session.partial.left == (["Small"] if number == 0 else [])
    (skipped,) = session.partial.skipped
    assert skipped.name == ["Large", "Small"][number]
    assert "its rules were not finished" in skipped.reason
    assert "findings are missing" in skipped.reason
