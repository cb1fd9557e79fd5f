"""Sizes in bytes, read from text, written for people and held against a limit; counts of things."""

import re
from typing import Literal, TypeAlias

from memlint.base.errors import UsageError

LARGEST_SIZE = 2**31 - 1
"""Of the batch or another named dimension. PyTorch's kernels count many of them in 32 bits."""

_FACTORS = {
    "": 1,
    "b": 1,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*")
_SIZE_IN_LINE = re.compile(r"(?<![\w.])\d+(?:\.\d+)?\s?[KMGT]i?B\b", re.IGNORECASE)
_CONTEXTS = range(32 << 20, 8 << 30)
"""From a third of the smallest to twice the largest that processes were seen to hold beside PyTorch's memory."""

Outcome: TypeAlias = Literal["fits", "does not fit", "uncertain"]
Measure: TypeAlias = Literal["requested", "allocated", "reserved", "device"]
Dtype: TypeAlias = Literal["float32", "bfloat16", "float16", "bf16-amp", "fp16-amp"]
Mode: TypeAlias = Literal["train", "inference"]


def parse_nbytes(text: str) -> int:
    """Bytes of `24GiB`, `512 MB` or `1048576`; fractions are rounded down.

    Raises UsageError for anything else.
    """
    match = _SIZE.fullmatch(text)
    if match is None or match[2].lower() not in _FACTORS:
        raise UsageError(f"{text!r} is not a size", "Write a number and a unit, such as 24GiB or 512MB.")
    factor = _FACTORS[match[2].lower()]
    return int(float(match[1]) * factor) if "." in match[1] else int(match[1]) * factor


def parse_context(text: str) -> int:
    """Bytes of a CUDA context: a size as `1.7GiB`, or text with one size in it, as a line of nvidia-smi has.

    `|    0   N/A  N/A     12345      C   python     412MiB |` is 412 MiB; of `412MiB / 40960MiB` the first counts.
    Raises UsageError for text with no size or several, and for more than any context takes.
    """
    sizes = _SIZE_IN_LINE.findall(re.sub(r"/\s*\d+\s?[KMGT]i?B", "", text)) if _SIZE.fullmatch(text) is None else [text]
    if len(sizes) != 1:
        problem = "names no size" if not sizes else "names several sizes"
        raise UsageError(
            f"the context {text.strip()!r} {problem}",
            "Give a size such as 512MiB, or the line of one process from nvidia-smi.",
        )
    nbytes = parse_nbytes(sizes[0])
    if nbytes not in _CONTEXTS:
        raise UsageError(
            f"{format_nbytes(nbytes)} is no CUDA context",
            "Give what a process holds beside PyTorch's memory: what nvidia-smi shows less memory_reserved.",
        )
    return nbytes


def format_nbytes(nbytes: int) -> str:
    """`nbytes` in the largest binary unit that keeps it at least 1: three significant digits, at most two decimals."""
    sign = "-" if nbytes < 0 else ""
    value = float(abs(nbytes))
    if value < 1024:
        return f"{sign}{int(value)} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if round(value, 1) < 1024 or unit == "TiB":
            break
    return f"{sign}{value:.2f} {unit}" if value < 10 else f"{sign}{value:.1f} {unit}"


def format_count(number: int, noun: str) -> str:
    """`1 finding`, `2 findings`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def outcome(low: int, high: int, limit: int) -> Outcome:
    """Whether bytes, of which only bounds may be known, stay within a limit; `uncertain` where it lies between them."""
    return "fits" if high <= limit else "does not fit" if low > limit else "uncertain"
