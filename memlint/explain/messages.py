"""Messages about memory in a log: found, and their numbers taken apart."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Final

from memlint.explain.wordings import BACKEND, DEVICE, FORMS, KEYS, PROCESS, Failure, Form, Wording

_FACTORS: Final = {"b": 1, "bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_NUMBER = re.compile(r"(\d+(?:\.(\d*))?)\s?([a-zA-Z]*)")
_LENGTH = 1500
"""Characters behind the start of a message in which its numbers stand: the longest wording, with a dozen processes."""
_MARGIN = 400
"""Characters around a word of a message in which its pattern matches: the longest pattern takes fewer."""
MOST_MESSAGES = 2000
_RANK = re.compile(r"(?:\[(?:rank|default)(\d+)\]|\brank[ :=]+(\d+))", re.IGNORECASE)
_MARKS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]|\*\*")
"""Colours of terminals, and the bold type of Markdown."""


@dataclass(frozen=True, slots=True)
class Amount:
    """Bytes as a message gives them: rounded to the digits that it prints."""

    nbytes: int
    rounding: int = 0
    """Most bytes by which the true number differs."""

    @property
    def low(self) -> int:
        """Least bytes that it can stand for."""
        return max(0, self.nbytes - self.rounding)

    @property
    def high(self) -> int:
        """Most bytes that it can stand for."""
        return self.nbytes + self.rounding

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.nbytes + other.nbytes, self.rounding + other.rounding)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(max(0, self.nbytes - other.nbytes), self.rounding + other.rounding)


@dataclass(frozen=True, slots=True)
class Process:
    """Another process on the same GPU, and the bytes that it holds there."""

    pid: int
    held: Amount


@dataclass(frozen=True, slots=True)
class Numbers:
    """The amounts in a message; None for those that its wording lacks and that do not follow from the others."""

    requested: Amount | None = None
    """The request that failed."""
    capacity: Amount | None = None
    free: Amount | None = None
    """Free on the device, as the driver says."""
    allocated: Amount | None = None
    """Alive in PyTorch; of a process that was killed, its resident memory."""
    private_pools: Amount | None = None
    """Part of `allocated` that the pools of CUDA graphs hold."""
    unallocated: Amount | None = None
    """Reserved by PyTorch, in no tensor, and in segments of which other parts are in use."""
    reserved: Amount | None = None
    """Sum of `allocated` and `unallocated`."""
    allowed: Amount | None = None
    """Most that PyTorch, or a kernel, may take."""
    in_use: Amount | None = None
    """Held by this process: reserved, the CUDA context, and libraries."""
    elsewhere: Amount | None = None
    """Held by this process beside PyTorch's allocator, where the message says so."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message about memory."""

    wording: Wording
    failure: Failure
    is_sure: bool
    text: str
    """The line with which it starts."""
    line: int
    """Number of that line, from 1."""
    position: int
    """Number of characters before it."""
    numbers: Numbers
    backend: str = "CUDA"
    device: int | None = None
    rank: int | None = None
    processes: tuple[Process, ...] = ()
    """Other processes on the device that the message lists."""
    is_boundless: bool = False
    """True if it asked for more than 2**60 bytes."""
    offers_expandable: bool = False
    """True if it was written by a PyTorch that has expandable segments."""


def amount(text: str) -> Amount:
    """Parse an amount such as `1.39 GiB`, `0 bytes`, `6.80 GB` (of MPS) or `12918388kB`, all in powers of 1024."""
    match = _NUMBER.match(text)
    assert match is not None, text
    unit = match[3].lower()
    factor = _FACTORS[unit if unit in _FACTORS else f"{unit[:1]}ib" if unit else "b"]
    digits = len(match[2] or "")
    return Amount(round(float(match[1]) * factor), 0 if factor == 1 else round(factor * 10**-digits / 2))


def messages_in(log: str) -> tuple[Message, ...]:
    """Return the messages in `log` in their order, each once per rank however often it is printed.

    Of a log with more than MOST_MESSAGES the first are read: one of them is the cause.
    """
    text = _MARKS.sub("", log)
    starts: dict[int, tuple[int, Form]] = {}
    end = -1
    windows = list(_windows(text))
    matches = sorted(
        (
            (match.start(), priority, match.end(), form)
            for priority, form in enumerate(FORMS)
            for first, last in windows
            for match in form.pattern.finditer(text, first, last)
        ),
        key=lambda each: each[:2],
    )
    for start, _, stop, form in matches:
        if start >= end:
            starts[start] = (stop, form)
            end = stop
    messages: dict[object, Message] = {}
    order = sorted(starts)[:MOST_MESSAGES]
    line, before = 1, 0
    for start, after in zip(order, (*order[1:], len(text)), strict=False):
        form = starts[start][1]
        line, before = line + text.count("\n", before, start), start
        message = _message(form, text, start, min(after, start + _LENGTH), line)
        key = (form.wording, form.failure, message.numbers, message.is_boundless, message.rank)
        messages.setdefault(key, message)
    return tuple(_without_echoes(messages.values()))


def _windows(text: str) -> Iterator[tuple[int, int]]:
    """Yield the parts of `text` in which messages can stand, with some of what is around their words."""
    places = sorted(match.start() for key in KEYS for match in re.finditer(re.escape(key), text))
    first = last = 0
    for place in places:
        if place - _MARGIN > last:
            if last:
                yield first, last
            first = max(0, place - _MARGIN)
        last = place + _MARGIN
    if last:
        yield first, last


def _message(form: Form, text: str, start: int, end: int, number: int) -> Message:
    line_start = text.rfind("\n", 0, start) + 1
    line_end = text.find("\n", start)
    line = text[line_start : line_end if line_end >= 0 else len(text)]
    part = text[start:end]
    numbers, processes = _amounts(form, part)
    device = _first(DEVICE.search(_one_line(part)))
    rank = _first(_RANK.search(text[line_start:start])) or _first(
        _RANK.search(line) if form.wording == "killed" else None
    )
    backend = BACKEND.search(part)
    name = "CUDA" if backend is None else backend[1] or ("MPS" if "MPS" in backend[0] else "XPU")
    return Message(
        form.wording,
        form.failure,
        form.is_sure,
        line.strip(),
        number,
        start,
        numbers,
        name,
        None if device is None else int(device),
        None if rank is None else int(rank),
        processes,
        is_boundless="allocate more than" in part[:200],
        offers_expandable="expandable_segments" in part,
    )


@lru_cache(maxsize=256)
def _amounts(form: Form, part: str) -> tuple[Numbers, tuple[Process, ...]]:
    """Return the amounts of a message, and the other processes that it lists; some logs repeat one a thousand times."""
    numbers = Numbers(**{name: found for name, pattern in form.numbers if (found := _amount_at(pattern, part))})
    listed = tuple(Process(int(each[1]), amount(each[2])) for each in PROCESS.finditer(_one_line(part)))
    return _completed(numbers, listed)


def _amount_at(pattern: re.Pattern[str], part: str) -> Amount | None:
    """Return the amount of a pattern; terminals break lines between words and inside them, so both are tried."""
    match = pattern.search(_one_line(part)) or pattern.search(part.replace("\n", ""))
    text = _first(match)
    return None if text is None else amount(text)


def _one_line(part: str) -> str:
    return re.sub(r"\s*\n[ \t#>|]*", " ", part)


def _first(match: re.Match[str] | None) -> str | None:
    return next((group for group in match.groups() if group is not None), None) if match else None


def _completed(numbers: Numbers, listed: tuple[Process, ...]) -> tuple[Numbers, tuple[Process, ...]]:
    """Derive what follows from the numbers; give them, and the listed processes that are others.

    In a container the driver counts processes by other numbers, and lists the process itself as one of them.
    """
    values = {each.name: getattr(numbers, each.name) for each in fields(numbers)}
    allocated, unallocated, reserved = (values[name] for name in ("allocated", "unallocated", "reserved"))
    if reserved is None and allocated is not None and unallocated is not None:
        values["reserved"] = reserved = allocated + unallocated
    elif unallocated is None and allocated is not None and reserved is not None:
        values["unallocated"] = reserved - allocated
    capacity, free = values["capacity"], values["free"]
    if listed and values["in_use"] is None and None not in (reserved, capacity, free):
        held = sum(each.held.low for each in listed)
        own = [each for each in listed if each.held.high >= reserved.low]
        if own and held + reserved.low > (capacity - free).high:
            itself = min(own, key=lambda each: each.held.nbytes)
            values["in_use"] = itself.held
            listed = tuple(each for each in listed if each is not itself)
    return Numbers(**values), listed


def _without_echoes(messages: Iterable[Message]) -> Iterator[Message]:
    """Yield the messages, without those that only name a failure of which another one of that rank has the numbers."""
    every = [(each.numbers != Numbers() or each.is_boundless, each) for each in messages]
    told = {(each.wording, each.rank) for tells, each in every if tells}
    yield from (each for tells, each in every if tells or (each.wording, each.rank) not in told)
