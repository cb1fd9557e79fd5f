"""Files of a checkpoint whose folder is not on this machine: weights without values, settings and a tokenizer."""

from __future__ import annotations

import base64
import importlib
import json
import os
import re
import struct
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

from memlint.targets.known_configs import known_config
from memlint.workloads.config_parts import text_config
from memlint.workloads.fake_tokenizers import tokens_of_bytes
from memlint.workloads.missing_checkpoints import STANDS_FOR
from memlint.workloads.notes import note_replaced

_TOKENS = 32_000
"""Tokens of a vocabulary of unknown size: those of Llama 1 and 2, whose file most others were named after."""
_STATED_TOKENS = re.compile(r"(?<!\d)[1-9]\d{3,5}(?!\d)")
"""A number of tokens in the name of a vocabulary, such as `spm_64000.model`."""
_RESERVED = {128_256: 256}
"""Special tokens that a program adds to those of the file, by their sum: Llama 3's (llama/tokenizer.py)."""
SETTINGS_OF_WEIGHTS = ("config.json", "params.json")
"""Files of settings beside weights, as transformers and Meta's own code name them."""
_VOCABULARY = "tokenizer.json"
"""The vocabulary beside them, in the format of the package tokenizers."""
_MOST_FOLDERS = 3
_UNKNOWN, _CONTROL = 2, 3
"""Types of pieces in SentencePiece's sentencepiece_model.proto."""


def write_weights(path: Path) -> None:
    """Write a file that stands for weights: whoever loads it finds that they are absent."""
    empty = b"{}"
    is_tensors = path.suffix == ".safetensors"
    path.write_bytes(struct.pack("<Q", len(empty)) + empty if is_tensors else STANDS_FOR)


def num_shards() -> int:
    """Return how many files of weights a folder has: one for each process that loads one."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def are_known_settings(place: str) -> bool:
    """Return True of a vocabulary, and of the settings of a model that is known by the folder's name."""
    name = PurePath(place).name
    return name == _VOCABULARY or (name in SETTINGS_OF_WEIGHTS and _config(place) is not None)


def write_settings(place: str, path: Path) -> None:
    """Write the settings that a JSON file at `place` holds: of the model that a folder of it names, if it is known.

    Without them a program goes on with its own defaults, and that is an assumption.
    """
    config = _config(place)
    name = PurePath(place).name
    if name == _VOCABULARY:
        size = _vocabulary(PurePath(place))
        note_replaced(f"{name} of the checkpoint is not there: a vocabulary of {size:,} words replaces it")
        path.write_text(_tokenizer(size), "utf-8")
        return
    if config is None:
        note_replaced(f"{name} of the checkpoint is not there: what it would set has its default values")
        fields: dict[str, Any] = {}
    else:
        note_replaced(f"{name} of the checkpoint is not there: it has the sizes known by the name of its folder")
        fields = _of_reference_code(config) if PurePath(place).stem == "params" else config.to_dict()
    path.write_text(json.dumps(fields), "utf-8")


def _tokenizer(size: int) -> str:
    """Return a vocabulary of words as the package tokenizers reads it."""
    tokenizers: Any = importlib.import_module("tokenizers")
    special = ("<unk>", "<s>", "</s>")
    words = (*special, *(f"w{number}" for number in range(size - len(special))))
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel({w: n for n, w in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    return str(made.to_str())


def _of_reference_code(config: Any) -> dict[str, Any]:
    """Return the sizes as params.json of Meta's checkpoints of Llama has them (llama/model.py, ModelArgs).

    The width of a feed-forward is 8/3 of the model's, rounded up to a multiple: here of the width itself.
    """
    heads, kv_heads = config.num_attention_heads, config.num_key_value_heads
    return {
        "dim": config.hidden_size,
        "n_layers": config.num_hidden_layers,
        "n_heads": heads,
        **({"n_kv_heads": kv_heads} if kv_heads != heads else {}),
        "vocab_size": config.vocab_size,
        "multiple_of": config.intermediate_size,
    }


def write_pieces(place: PurePath, path: Path, _options: object) -> str:
    """Write a vocabulary as SentencePiece reads it: unknown words, with what stands for a space between them."""
    size = _vocabulary(place)
    special = (("<unk>", _UNKNOWN), ("<s>", _CONTROL), ("</s>", _CONTROL), ("▁", 1))
    others = ((f"▁w{number}", 1) for number in range(size - len(special)))
    path.write_bytes(b"".join(_piece(text, kind) for text, kind in (*special, *others)))
    return f"a vocabulary of {size:,} tokens"


def write_ranks(place: PurePath, path: Path, _options: object) -> str:
    """Write a vocabulary as tiktoken reads it: on each line the bytes of a token, and its rank."""
    size = _vocabulary(place)
    size -= _RESERVED.get(size, 0)
    lines = (base64.b64encode(token) + b" %d\n" % rank for rank, token in enumerate(tokens_of_bytes(size)))
    path.write_bytes(b"".join(lines))
    return f"a vocabulary of {size:,} tokens"


def _vocabulary(place: PurePath) -> int:
    """Return the tokens of a vocabulary: those of a known model, or as many as the file's name says."""
    config = _config(str(place))
    if config is not None:
        return int(text_config(config).vocab_size)
    stated = _STATED_TOKENS.search(place.name)
    return int(stated[0]) if stated is not None else _TOKENS


def _config(place: str) -> Any:
    """Return the config of the model that is named by a folder of `place`, the innermost first; None without any."""
    transformers: Any = importlib.import_module("transformers")
    for name in _names(PurePath(place)):
        if (known := known_config(name)) is not None:
            return getattr(transformers, known[0])(**known[1])
    return None


def _names(place: PurePath) -> Iterator[str]:
    """Yield names of models that folders state: in Llama-2-7b also that with the ending of transformers' format."""
    for folder in place.parts[-2 : -2 - _MOST_FOLDERS : -1]:
        yield folder
        yield f"{folder}-hf"


def _piece(text: str, kind: int) -> bytes:
    """Return a piece of SentencePiece's model, with score 0, as a field of its protocol buffer."""
    encoded = text.encode()
    content = b"\x0a" + _length(encoded) + encoded + b"\x15" + struct.pack("<f", 0.0) + b"\x18" + bytes([kind])
    return b"\x0a" + _length(content) + content


def _length(content: bytes) -> bytes:
    assert len(content) < 128, "a length of one byte"
    return bytes([len(content)])
