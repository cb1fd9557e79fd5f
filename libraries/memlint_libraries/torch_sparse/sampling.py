"""Neighbours, walks and parts of a graph drawn from a matrix of torch_sparse.

sample.py, saint.py and rw.py; csrc/cpu/sample_cpu.cpp, saint_cpu.cpp, ego_sample_cpu.cpp and neighbor_sample_cpu.cpp,
of which none has a kernel for a GPU, and csrc/cuda/rw_cuda.cu. On the host numbers are drawn in the library's order.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from memlint.accelerator.device import is_virtual
from memlint.libraries.library import launch
from memlint_libraries.torch_sparse.storage import library
from memlint_libraries.torch_sparse.tensor import SparseTensor, provides

Tensor = torch.Tensor


@provides("sample", "sample")
def sample(src: SparseTensor, num_neighbors: int, subset: Tensor | None = None) -> Tensor:
    """Neighbours of each row [rows, num_neighbors], one of which may be drawn twice."""
    rowptr, col, _ = src.csr()
    counts = src.storage.rowcount()
    rowptr, counts = (rowptr[:-1], counts) if subset is None else (rowptr[subset], counts[subset])
    drawn = torch.rand((len(counts), num_neighbors), device=col.device)
    drawn.mul_(counts.to(drawn.dtype).view(-1, 1))
    drawn = drawn.to(torch.long)
    drawn.add_(rowptr.view(-1, 1))
    return col[drawn]


@provides("rw", "random_walk")
def random_walk(src: SparseTensor, start: Tensor, walk_length: int) -> Tensor:
    """Nodes of a walk from each of these [walks, walk_length + 1]."""
    rowptr, col, _ = src.csr()
    return _walks(rowptr, col, start, walk_length)


def _walks(rowptr: Tensor, col: Tensor, start: Tensor, walk_length: int) -> Tensor:
    if is_virtual(rowptr):
        library.assume()
        drawn = torch.rand(walk_length, len(start), device=start.device)
        out = torch.full((walk_length + 1, len(start)), -1, dtype=start.dtype, device=start.device)
        launch((rowptr, col, start, drawn), (out,))
        return out.t().contiguous()
    drawn = torch.rand(len(start), walk_length)
    nodes = [start]
    for step in drawn.unbind(1):
        begins, ends = rowptr[nodes[-1]], rowptr[nodes[-1] + 1]
        nodes.append(col[begins + (step * (ends - begins)).long()])
    return torch.stack(nodes, 1)


class _Graph:
    """Rows as lists, and nodes numbered as they are met."""

    def __init__(self, rowptr: Tensor, col: Tensor, nodes: Iterable[int] = ()) -> None:
        if is_virtual(rowptr) or is_virtual(col):
            raise RuntimeError("No CUDA version supported")
        self._begins, self._col = rowptr.tolist(), col.tolist()
        self.nodes: list[int] = []
        self._numbers: dict[int, int] = {}
        for node in nodes:
            self._numbers[node] = len(self.nodes)
            self.nodes.append(node)

    def entries(self, node: int) -> range:
        """The entries of the node's row."""
        return range(self._begins[node], self._begins[node + 1])

    def neighbour(self, entry: int) -> int:
        """The node of its column."""
        return int(self._col[entry])

    def number(self, entry: int) -> int:
        """Return the number of the node of the entry's column, and count the node as met."""
        node = self.neighbour(entry)
        if self._numbers.setdefault(node, len(self.nodes)) == len(self.nodes):
            self.nodes.append(node)
        return self._numbers[node]

    def known(self, entry: int) -> int | None:
        """The number of the node of its column, if that was met."""
        return self._numbers.get(self.neighbour(entry))

    def drawn(self, node: int, most: int, *, replace: bool) -> list[int]:
        """So many entries of its row; all of them where it has fewer or `most` is negative."""
        row = self.entries(node)
        if not row or most < 0 or (not replace and len(row) <= most):
            return list(row)
        if replace:
            return [row[_below(len(row))] for _ in range(most)]
        chosen: dict[int, None] = {}  # Floyd's way, as the library draws
        for last in range(len(row) - most, len(row)):
            drawn = _below(last)
            chosen[last if drawn in chosen else drawn] = None
        return [row[n] for n in chosen]


def _below(number: int) -> int:
    """Draw a number as the library does (csrc/cpu/utils.h:40)."""
    return int(torch.randint(0, number, (1,)))


def _of(values: Sequence[int]) -> Tensor:
    return torch.tensor(values, dtype=torch.long)


def _op(function: Any) -> Any:
    library.ops[f"torch_sparse::{function.__name__.strip('_')}"] = function
    return function


library.ops["torch_sparse::random_walk"] = _walks


@_op
def _sample_adj(
    rowptr: Tensor, col: Tensor, idx: Tensor, num_neighbors: int, replace: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    graph = _Graph(rowptr, col, idx.tolist())
    pairs: list[tuple[int, int]] = []
    begins = [0]
    for node in idx.tolist():
        entries = graph.drawn(node, num_neighbors, replace=replace)
        numbered = [(graph.number(entry), entry) for entry in entries]
        pairs += sorted(numbered, key=lambda pair: pair[0])
        begins.append(len(pairs))
    columns, numbers = [column for column, _ in pairs], [entry for _, entry in pairs]
    return _of(begins), _of(columns), _of(graph.nodes), _of(numbers)


@provides("sample", "sample_adj")
def sample_adj(
    src: SparseTensor, subset: Tensor, num_neighbors: int, replace: bool = False
) -> tuple[SparseTensor, Tensor]:
    """Rows of these nodes, of entries that are drawn, and the nodes of its columns: on the host alone."""
    rowptr, col, value = src.csr()
    rowptr, col, nodes, entries = _sample_adj(rowptr, col, subset, num_neighbors, replace)
    value = None if value is None else value[entries]
    return SparseTensor(None, rowptr, col, value, (len(subset), len(nodes)), is_sorted=True), nodes


@_op
def _saint_subgraph(idx: Tensor, rowptr: Tensor, _row: Tensor, col: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return _within(_Graph(rowptr, col, idx.tolist()))


def _within(graph: _Graph) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, columns and numbers of all entries between nodes that were met."""
    found = [
        (n, column, entry)
        for n, node in enumerate(graph.nodes)
        for entry in graph.entries(node)
        if (column := graph.known(entry)) is not None
    ]
    rows, columns, entries = zip(*found, strict=True) if found else ((), (), ())
    return _of(rows), _of(columns), _of(entries)


@provides("saint", "saint_subgraph")
def saint_subgraph(src: SparseTensor, node_idx: Tensor) -> tuple[SparseTensor, Tensor]:
    """Rows and columns of these nodes, and the numbers of their entries: on the host alone."""
    row, col, value = src.coo()
    row, col, entries = _saint_subgraph(node_idx, src.storage.rowptr(), row, col)
    value = None if value is None else value[entries]
    sizes = len(node_idx), len(node_idx)
    return SparseTensor(row, None, col, value, sizes, is_sorted=True), entries


@_op
def _neighbor_sample(
    colptr: Tensor, row: Tensor, input_node: Tensor, num_neighbors: Sequence[int], replace: bool, directed: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Nodes that are met from these on, a number of neighbours for each hop, and rows, columns and entries."""
    graph = _Graph(colptr, row, input_node.tolist())
    found: list[tuple[int, int, int]] = []
    begin, end = 0, len(graph.nodes)
    for most in num_neighbors:
        for column in range(begin, end):
            drawn = graph.drawn(graph.nodes[column], most, replace=replace)
            found += [(graph.number(entry), column, entry) for entry in drawn]
        begin, end = end, len(graph.nodes)
    if not directed:
        columns, rows, entries = _within(graph)
        return _of(graph.nodes), rows, columns, entries
    parts = zip(*found, strict=True) if found else ((), (), ())
    return (_of(graph.nodes), *map(_of, parts))  # type: ignore[return-value]


@_op
def _ego_k_hop_sample_adj(
    rowptr: Tensor, col: Tensor, idx: Tensor, depth: int, num_neighbors: int, replace: bool
) -> tuple[Tensor, ...]:
    """Find the nodes within `depth` hops of each node, in the order of their numbers, and the entries between them."""
    begins, columns, nodes, entries, ends, roots = [0], [], [], [], [0], []  # type: ignore[var-annotated]
    for root in idx.tolist():
        graph = _Graph(rowptr, col)
        met, first = [root], 0
        for _ in range(depth):
            last = len(met)
            for node in met[first:last]:
                # with replacement a row that is short enough is taken as it is
                short = len(graph.entries(node)) <= num_neighbors
                drawn = graph.drawn(node, -1 if short else num_neighbors, replace=replace)
                met += [graph.neighbour(entry) for entry in drawn]
            first = last
        part = _Graph(rowptr, col, sorted(set(met)))
        rows, cols, of_part = _within(part)
        counts = torch.bincount(rows, minlength=len(part.nodes)).cumsum(0) + len(columns)
        begins += counts.tolist()
        columns += (cols + len(nodes)).tolist()
        roots.append(part.nodes.index(root) + len(nodes))
        nodes += part.nodes
        entries += of_part.tolist()
        ends.append(len(nodes))
    return tuple(map(_of, (begins, columns, nodes, entries, ends, roots)))
