"""mpi4py where it is not installed: the communicator of a program that is alone.

Programs ask it for their rank, and hand on addresses and counts. Source of the names: the pages of mpi4py 4.0 on
`MPI.Comm`.
"""

import copy
from types import SimpleNamespace
from typing import Any

from memlint.libraries.library import Library, assume_once

library = Library("mpi4py", distribution="mpi4py", version="4.0")


class Communicator:
    """The communicator of one process: what is sent to all comes back."""

    rank, size = 0, 1

    def __init__(self) -> None:
        self.Split = self.Split_type = self.Dup = lambda *_, **__: self
        self.Barrier = self.barrier = self.Abort = self.Free = lambda *_, **__: None
        self.bcast = self.reduce = self.allreduce = self.scan = lambda sent, *_, **__: copy.copy(sent)
        self.gather = self.allgather = self.alltoall = lambda sent, *_, **__: [sent]
        self.scatter = lambda sent, *_, **__: sent[0]
        self.Bcast = lambda *_, **__: None
        self.Reduce = self.Allreduce = self.Allgather = self.Gather = self.Scatter = _copied

    def Get_rank(self) -> int:  # noqa: N802 -- its name
        """Return the rank."""
        assume_once("mpi4py is not installed: the program is alone")
        return self.rank

    def Get_size(self) -> int:  # noqa: N802 -- its name
        """Return the number of processes."""
        return self.size


def _copied(sent: Any, received: Any, *_: object, **__: object) -> None:
    """Put what is sent where it is received, unless the program says that it is there (`MPI.IN_PLACE`)."""
    sent, received = (each[0] if isinstance(each, list | tuple) else each for each in (sent, received))
    if sent is not MPI.IN_PLACE:
        received[...] = sent


_constants = ("SUM", "MAX", "MIN", "PROD", "LOR", "LAND", "COMM_TYPE_SHARED", "INT", "FLOAT", "DOUBLE", "IN_PLACE")
_world = Communicator()
MPI = SimpleNamespace(
    COMM_WORLD=_world,
    COMM_SELF=_world,
    Comm=Communicator,
    Get_processor_name=lambda: "localhost",
    Is_initialized=lambda: True,
    **{name: f"MPI.{name}" for name in _constants},
)
"""The module `mpi4py.MPI`."""
library.modules = {"mpi4py": {"MPI": MPI}, "mpi4py.MPI": vars(MPI)}
