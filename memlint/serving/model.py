"""A model that is to be served, as a child describes it: plain records."""

from typing import Literal

from memlint.report.model import Record

Role = Literal["linear", "experts", "vocabulary", "other"]
"""Kind of the module that a parameter belongs to; `experts` hold the matrices of several linear modules."""
Attention = Literal["full", "sliding", "chunked", "latent", "state"]
"""The memory of a layer: every token, those of a window or of a chunk, one latent for a token, or a state."""
Sampler = Literal["sort", "threshold", "masks"]
"""How an engine cuts the logits to the k largest and to a probability p.

`sort` sorts them with their indices, `threshold` looks for a threshold in a copy for each multiprocessor, `masks` makes
masked logits and their probabilities.
"""


class Parameter(Record):
    """A parameter as the model declares it, before any engine cuts it."""

    name: str
    shape: tuple[int, ...]
    role: Role
    layer: int = -1
    """Position of the decoder layer that it belongs to; -1 outside of them."""
    in_text: bool = True
    """False for a part that reads images or recordings."""


class State(Record):
    """A state of a layer with state instead of tokens: sizes before tensor parallelism cuts the first of them."""

    cut: int
    """Size that ranks divide among them."""
    rest: int
    """Product of the other sizes."""
    is_float32: bool = False
    """True if it is float32 whatever the model's dtype."""


class CacheLayer(Record):
    """The cache of one layer for a request."""

    attention: Attention
    num_heads: int = 0
    """Heads of keys; 1 for a latent."""
    head: int = 0
    """Size of a key's head, or of a latent."""
    head_of_value: int = 0
    """Size of a value's head; 0 for a latent, which has none."""
    window: int = 0
    """Tokens of the window or of the chunk."""
    states: tuple[State, ...] = ()


class Encoder(Record):
    """The part of a model that reads images."""

    tokens_of_item: int
    """Tokens that one image takes in the text at most."""
    values_of_item: int
    """Values of its pixels."""


class ServedModel(Record):
    """A model to be served."""

    name: str
    torch: str
    dtype: str
    vocab_size: int
    hidden_size: int
    max_positions: int
    """Longest text that the model is made for."""
    rotary: int
    """Values of the tables of its rotary embeddings."""
    num_heads: int
    num_kv_heads: int
    num_layers: int
    parameters: tuple[Parameter, ...]
    layers: tuple[CacheLayer, ...]
    encoder: Encoder | None = None
    quantization: str = ""
    """Method of the config's `quantization_config`."""


class ProfileOrder(Record):
    """A profile run: one step of the model on as many tokens as the engine will ever batch, then the sampler."""

    gpu: str
    dtype: str
    tensor_parallel: int
    num_tokens: int
    num_sequences: int
    sampler: Sampler
    is_last_stage: bool
    """False for a stage of a pipeline that gives its hidden states to the next: it samples nothing."""
    is_compiled: bool
    """True if the layers are compiled."""
    quantizes_inputs: bool
    """True if the inputs of matrices are made 8 bits wide."""
    keeps_workspace: bool
    """True if the buffer of fused experts is kept until the sampler has run."""


class Profile(Record):
    """Answer to a ProfileOrder."""

    nbytes: int
    """Peak of what PyTorch allocates beyond the weights."""
