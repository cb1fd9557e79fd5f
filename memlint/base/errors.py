"""Errors that a user can cause: each is a MemlintError, which ends the command with exit code 2.

A message says what happened, where, and what to type next.
"""


class MemlintError(Exception):
    """Base of the errors that a user can cause: the `message`, and a `hint` about what to do (may be empty)."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


NO_MODULE_FOUND = "no torch.nn.Module found"
"""Message for a file that was named and does not define a module; the hints differ by command."""


class UsageError(MemlintError):
    """The command line or the configuration makes no sense."""


class TargetError(MemlintError):
    """A path, a name or a model cannot be found or read."""


class WorkloadError(MemlintError):
    """The model cannot be built, called or given inputs."""


class RankNeededError(MemlintError):
    """A rank waits for an object of another rank, which has not been simulated so far."""

    def __init__(self, key: tuple[int, int, int]) -> None:
        """`key` holds the sending rank, the waiting rank, and how many objects the sender had sent to it before."""
        self.key = key
        self.rank, self.receiver, _number = key
        super().__init__(
            f"rank {self.receiver} waits for an object of rank {self.rank}, which is not simulated here",
            f"Run where processes can be copied: on Linux, in a process with one thread; or simulate rank {self.rank}.",
        )


class TraceError(MemlintError):
    """The virtual accelerator cannot carry out an operation."""


class WorkerError(MemlintError):
    """The child process crashed, hung, exited or ran out of memory."""


class RuleError(MemlintError):
    """A rule or a plugin is broken."""


class ProgramError(Exception):
    """Base of the exceptions that memlint's own code raises inside a program: control flow, never shown to the user."""


GUARD = "memlint runs a file by importing it: guard its script part with `if __name__ == '__main__':`."
"""Hint for a file that is a script and does its work, or ends the process, when it is imported."""
