"""mpi4py where it is not installed: a program is alone."""

import numpy as np

from memlint.libraries.mpi4py import MPI


def test_a_program_is_alone_and_gets_what_it_sends():
    world = MPI.COMM_WORLD
    assert (world.rank, world.Get_size(), world.Split(0, 1).Get_rank()) == (0, 1, 0)
    assert world.bcast("here", root=0) == "here"
    assert world.allgather(3) == [3]
    assert world.allreduce(2.5, op=MPI.SUM) == 2.5
    received = np.zeros(2)
    world.Allreduce(np.ones(2), received, op=MPI.SUM)
    world.Allreduce(MPI.IN_PLACE, received, op=MPI.SUM)
    assert received.tolist() == [1, 1]
