"""Every error a user can cause: a MemlintError, which ends the command with exit code 2.

A message says what happened, where, and what to type next.
"""


class MemlintError(Exception):
    """What went wrong (`message`), and what to do about it (`hint`, may be empty)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


NO_MODULE_FOUND = "no torch.nn.Module found"
"""Of a file that was named; hints differ by command."""


class UsageError(MemlintError):
    """What was typed or configured makes no sense."""


class TargetError(MemlintError):
    """A path, a name or a model that cannot be found or read."""


class WorkloadError(MemlintError):
    """The model cannot be built, called or given inputs."""


class RankNeededError(MemlintError):
    """A rank waits for an object of another, which has not been simulated so far."""

    def __init__(self, key: tuple[int, int, int]) -> None:
        """`key`: the rank that sends it, the one that waits, and how many the one had sent the other before."""
        self.key = key
        self.rank, self.receiver, _number = key
        super().__init__(
            f"rank {self.receiver} waits for an object of rank {self.rank}, which is not simulated here",
            f"Run where processes can be copied: on Linux, in a process with one thread; or simulate rank {self.rank}.",
        )


class TraceError(MemlintError):
    """The virtual accelerator cannot carry out an operation."""


class WorkerError(MemlintError):
    """The child process crashed, hung, left or ran out of memory."""


class RuleError(MemlintError):
    """A rule or a plugin is broken."""


class ProgramError(Exception):
    """Base of what memlint's own part of a program raises beside the user's code: no mistake, and never shown."""


GUARD = "memlint runs a file by importing it: guard its script part with `if __name__ == '__main__':`."
"""The hint where a file is a script that does its work, or ends the process, when it is imported."""
