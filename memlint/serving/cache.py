"""Pages of a paged cache: what a block holds of every layer, how layers share block tables, how many blocks there are.

The rules are vLLM's: v1/kv_cache_interface.py and v1/core/kv_cache_utils.py of 0.19, v1/core/kv_cache_planning.py of
0.33. Layers of one kind form a group, or several of equal size, and each group of a request has a table of blocks of
its own; a block has room for a page of every layer of the largest group.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from memlint.base.errors import WorkloadError
from memlint.base.grouping import grouped
from memlint.serving.model import Attention, CacheLayer

_ALIGNMENT = 16
"""Tokens to which blocks of attention are rounded where a state has to fit into one."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Limits of a request, in tokens."""

    max_model_len: int
    max_num_batched_tokens: int
    """Tokens of a request that may be in flight beyond its window."""


@dataclass(frozen=True, slots=True)
class Page:
    """The part of one layer in a block."""

    attention: Attention
    num_tokens: int
    """Tokens of a block."""
    nbytes: int
    window: int = 0

    def blocks_of_request(self, lengths: Lengths) -> int:
        """Return the most blocks that a request of the longest length holds."""
        in_flight = lengths.max_num_batched_tokens
        match self.attention:
            case "state":
                return 1
            case "sliding":
                # One more, because a window may begin within a block.
                return -(-min(self.window - 1 + in_flight, lengths.max_model_len) // self.num_tokens) + 1
            case "chunked":
                return -(-min(self.window + in_flight, lengths.max_model_len) // self.num_tokens)
        return -(-lengths.max_model_len // self.num_tokens)


@dataclass(frozen=True, slots=True)
class Group:
    """Layers that share a table of blocks."""

    pages: tuple[Page, ...]
    """One for each layer."""

    @property
    def nbytes(self) -> int:
        """Bytes of a block."""
        return sum(page.nbytes for page in self.pages)

    @property
    def num_tokens(self) -> int:
        """Tokens of a block."""
        return min(page.num_tokens for page in self.pages)

    def blocks_of_request(self, lengths: Lengths) -> int:
        """Return the most blocks that a request of the longest length holds."""
        return max(page.blocks_of_request(lengths) for page in self.pages)


@dataclass(frozen=True, slots=True)
class Layout:
    """All groups of a model on one rank."""

    groups: tuple[Group, ...]

    @property
    def nbytes_of_block(self) -> int:
        """Bytes of one block of the pool, which any group may use."""
        return max((group.nbytes for group in self.groups), default=0)

    @property
    def num_tokens(self) -> int:
        """Tokens of the smallest block."""
        return min((group.num_tokens for group in self.groups), default=0)

    def blocks_of_request(self, lengths: Lengths) -> int:
        """Return the most blocks of the pool that a request of the longest length holds."""
        return sum(group.blocks_of_request(lengths) for group in self.groups)

    def longest(self, num_blocks: int, lengths: Lengths) -> int:
        """Return the longest length, up to that of `lengths`, of which one request fits into `num_blocks`; else 0."""
        low, high = 0, lengths.max_model_len
        while low < high:
            middle = (low + high + 1) // 2
            if self.blocks_of_request(replace(lengths, max_model_len=middle)) <= num_blocks:
                low = middle
            else:
                high = middle - 1
        return low


def layout_of(
    layers: Sequence[CacheLayer], ranks: int, itemsize: int, state_itemsize: int, num_tokens: int, ratio: float = 1.5
) -> Layout:
    """Lay the cache of `layers` out on one of `ranks`, in blocks of `num_tokens`, with values of `itemsize` bytes.

    Where the most layers of a kind are less than `ratio` times the fewest, these are padded to as many. Raises
    WorkloadError where pages of different kinds cannot be made equal.
    """
    states = [_nbytes_of_states(layer, ranks, state_itemsize) for layer in layers if layer.attention == "state"]
    tokens = [_nbytes_of_token(layer, ranks, itemsize) for layer in layers if layer.attention != "state"]
    if states and tokens:
        # A page of attention has to hold a state: HybridAttentionMambaModelConfig, model_executor/models/config.py.
        num_tokens = max(num_tokens, _ALIGNMENT * -(-max(states) // (_ALIGNMENT * max(tokens))))
    pages = [_page(layer, ranks, itemsize, state_itemsize, num_tokens) for layer in layers]
    if states and tokens:
        most = max(page.nbytes for page in pages)
        pages = [replace(page, nbytes=most) if page.attention == "state" else page for page in pages]
    return Layout(_groups(pages, ratio))


def _page(layer: CacheLayer, ranks: int, itemsize: int, state_itemsize: int, num_tokens: int) -> Page:
    if layer.attention == "state":
        return Page("state", num_tokens, _nbytes_of_states(layer, ranks, state_itemsize))
    return Page(layer.attention, num_tokens, num_tokens * _nbytes_of_token(layer, ranks, itemsize), layer.window)


def _nbytes_of_token(layer: CacheLayer, ranks: int, itemsize: int) -> int:
    heads = max(1, layer.num_heads // ranks)  # each rank has at least one, which others then repeat
    return heads * (layer.head + layer.head_of_value) * itemsize


def _nbytes_of_states(layer: CacheLayer, ranks: int, itemsize: int) -> int:
    return sum(-(-state.cut // ranks) * state.rest * (4 if state.is_float32 else itemsize) for state in layer.states)


def _groups(pages: Sequence[Page], ratio: float) -> tuple[Group, ...]:
    """Put layers into groups: one where all keep as many tokens, else several of about equal numbers of layers."""
    kinds = grouped((_kind(page), page) for page in pages)
    if len(kinds) <= 1:
        return tuple(Group(tuple(own)) for own in kinds.values())
    kinds = grouped((_kind(page), page) for page in _with_equal_bytes(pages))
    numbers = [len(own) for own in kinds.values()]
    size = max(numbers) if max(numbers) < ratio * min(numbers) else min(numbers)
    groups: list[Group] = []
    for own in kinds.values():
        num_groups = -(-len(own) // size)
        groups += [Group(tuple(own[start::num_groups])) for start in range(num_groups)]
    return tuple(groups)


def _kind(page: Page) -> tuple[Attention, int]:
    """Layers of one kind keep the same tokens."""
    return ("full" if page.attention == "latent" else page.attention), page.window


def _with_equal_bytes(pages: Sequence[Page]) -> list[Page]:
    """Let pages with fewer bytes hold more tokens, until all have as many bytes. Raises WorkloadError."""
    most = max(page.nbytes for page in pages)
    if any(most % page.nbytes for page in pages):
        sizes = ", ".join(map(str, sorted({page.nbytes for page in pages})))
        raise WorkloadError(
            f"layers of several kinds have pages of {sizes} bytes, which cannot be made equal",
            "The engine refuses such a model, or has a layout of its own for it that is not modelled.",
        )
    return [
        replace(page, nbytes=most, num_tokens=page.num_tokens * (most // page.nbytes)) if page.nbytes < most else page
        for page in pages
    ]
