"""The simulated process and the number of processes it believes in, as torchrun would set them."""

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Self

_GPUS_PER_NODE = 8
"""GPUs of most machines with several (DGX, HGX and cloud instances)."""


@dataclass(frozen=True, slots=True)
class Rank:
    """One of `world_size` processes with a GPU each."""

    world_size: int
    number: int = 0

    @classmethod
    def current(cls) -> Self:
        """Return the rank in the environment, alone in the world if there is none."""
        return cls(int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0")))

    @property
    def per_node(self) -> int:
        """Number of processes on its machine."""
        return min(self.world_size, _GPUS_PER_NODE)

    def shares_node(self, others: Iterable[int]) -> bool:
        """Return True if these ranks are all on its machine."""
        return all(other // self.per_node == self.number // self.per_node for other in others)

    def variables(self) -> dict[str, str]:
        """Environment variables of torchrun.

        Each process sees only its own GPU, so it is the first of its machine to itself.
        """
        return {
            "RANK": str(self.number),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": str(self.per_node),
            "GROUP_RANK": str(self.number // self.per_node),
            "ROLE_RANK": str(self.number),
            "ROLE_WORLD_SIZE": str(self.world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RUN_ID": "none",
        }

    def cluster_variables(self) -> dict[str, str]:
        """Environment variables of a task that srun or mpirun has started."""
        number, size, node = str(self.number), str(self.world_size), str(self.number // self.per_node)
        num_nodes, per_node = str(-(-self.world_size // self.per_node)), str(self.per_node)
        return {
            **dict.fromkeys(("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"), number),
            **dict.fromkeys(("SLURM_NTASKS", "SLURM_NPROCS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE"), size),
            **dict.fromkeys(("SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"), "0"),
            **dict.fromkeys(("SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_GPUS_ON_NODE"), per_node),
            **dict.fromkeys(("SLURM_NNODES", "SLURM_JOB_NUM_NODES"), num_nodes),
            **dict.fromkeys(("SLURM_NODELIST", "SLURM_JOB_NODELIST", "SLURMD_NODENAME"), "localhost"),
            **dict.fromkeys(("SLURM_JOB_ID", "SLURM_JOBID"), "1"),
            "SLURM_NODEID": node,
        }


@contextlib.contextmanager
def environment(rank: Rank) -> Iterator[None]:
    """Set the variables of `rank` inside the block."""
    variables = rank.variables()
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
