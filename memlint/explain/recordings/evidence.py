"""Everything that is found in a Recording before it is judged."""

from typing import NamedTuple, Self

from memlint.capture.lifetimes import Course, Lifetimes, course, lifetimes
from memlint.capture.recorded import Recording
from memlint.explain.recordings.failure import Failure, failure_of
from memlint.explain.recordings.kinds import Kinds, kinds
from memlint.explain.recordings.replay import Program
from memlint.explain.recordings.steps import Growth, Steps, find_steps, growth


class Evidence(NamedTuple):
    """A Recording, and what follows from it."""

    recording: Recording
    alive: Lifetimes
    course: Course
    program: Program
    steps: Steps
    kinds: Kinds
    growth: Growth | None
    failure: Failure | None

    @classmethod
    def of(cls, recording: Recording) -> Self:
        """Find it."""
        alive = lifetimes(recording)
        run = course(recording, alive)
        program = Program(recording)
        steps = find_steps(recording, alive)
        told = kinds(recording, alive, steps, run.failures[-1] if run.failures else None)
        return cls(recording, alive, run, program, steps, told, growth(alive, steps), failure_of(program, run))
