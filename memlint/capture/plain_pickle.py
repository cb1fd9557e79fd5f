"""Pickles of plain objects, read in order and within bounds: what PyTorch's memory snapshots consist of.

Python's own unpickler keeps every event of a snapshot as a dict, several GB of a long run, and can be made to run code.
This reader knows the opcodes of dicts, lists, tuples, texts and numbers, and no others: nothing in a file can name a
class or a function. It follows no object into another, so that depth and cycles cost nothing. Dicts with a key `action`
are events: each goes to an EventTaker as soon as it is whole, and EVENT stands in its place.
"""

import re
import struct
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

MOST_NBYTES: Final = 2**31
"""Bytes of a pickle, after decompression."""
_MOST_PLAIN: Final = 2**28
"""Bytes that are no events: stacks, and what lies in segments."""
_MOST_OBJECTS: Final = 4_000_000
"""Dicts, lists and texts that are no events."""
_MOST_ON_STACK: Final = 2**24
_MOST_MEMO: Final = 2**27
_MOST_MARKS: Final = 64
_MOST_PATTERNS: Final = 64
_MOST_OF_NUMBER: Final = 9
"""Bytes of an unsigned number of 64 bits, whose sign takes a further one."""
_CHUNK: Final = 2**22
_EMPTY_LIST: Final = 0x5D
_MARGIN: Final = 2**16
"""Bytes after the current one that are there unless the file ends: more than an event has."""

_VALUE: Final = rb"(h.|j.{4}|K.|M.{2}|J.{4}|\x8a(?:\x03.{3}|\x04.{4}|\x05.{5}|\x06.{6}|\x07.{7}|\x08.{8})|[N\x88\x89])"
_TOKEN: Final = re.compile(_VALUE, re.DOTALL)
_PUT: Final = rb"(?:\x94|q.|r.{4})"
_EVENT_START: Final = re.compile(rb"\}" + _PUT + rb"\(", re.DOTALL)
_REFERENCE: Final = re.compile(rb"h.|j.{4}", re.DOTALL)
_LIST: Final = rb"\]" + _PUT + rb"\((?:h.|j.{4})*e"
"""A list of objects that were written before, as a stack is one of frames."""
_LIST_OR_VALUE: Final = rb"(" + _LIST + rb"|" + _VALUE[1:]
_LIST_OR_TOKEN: Final = re.compile(_LIST_OR_VALUE, re.DOTALL)
_CONSTANT: Final = re.compile(rb"(?:\x8c(?P<nbytes>.)|K(?P<first>.)K(?P<second>.)\x86" + _PUT + rb")", re.DOTALL)
"""Opcodes of values that PyTorch writes anew for each event though many have the same: a text's start, or a pair."""

Values: TypeAlias = tuple[bytes, ...]
"""The values of an event as they stand in the pickle, which `Reader.value` decodes."""


class PlainPickleError(ValueError):
    """A pickle that holds something else than plain objects, or more than the bounds allow."""


class _Event:
    """The place of an event."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "EVENT"


EVENT: Final = _Event()
_MARK: Final = object()


class Source(Protocol):
    """A file, compressed or not."""

    def read(self, size: int = -1, /) -> bytes:
        """Read at most `size` bytes; none at the end."""


class EventTaker(Protocol):
    """Receives the events of a pickle in their order."""

    def take(self, event: dict[str, Any]) -> None:
        """Take an event."""

    def taker(self, keys: tuple[str, ...], value: Callable[[bytes], Any]) -> Callable[[Values], Any] | None:
        """Return a function that takes the values of an event with these keys; None if `take` is to be called.

        `value` decodes one of them. Constants stand for no value and no key. What the function returns is kept in place
        of a list that is one of the values.
        """


class _Pattern(NamedTuple):
    """Events that are written in one way."""

    regex: re.Pattern[bytes]
    take: Callable[[Values], Any]
    memo: tuple[Any, ...]
    """The objects that each event adds to the memo: up to the value that may be a list, if one may."""
    rest: tuple[Any, ...]
    """Those after it."""
    list_group: int
    """Position of that value, and -1 if none may be a list."""


def read_plain(file: Source, events: EventTaker) -> Any:
    """Read the object of a pickle. Raises PlainPickleError, and OSError of the file."""
    return _Reader(file, events).read()


class _Reader:
    def __init__(self, file: Source, events: EventTaker) -> None:
        self.file = file
        self.events = events
        self.data = b""
        self.memo: list[Any] = []
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.num_objects = 0
        self.num_nbytes = self.of_events = 0
        self.is_over = False
        self.patterns: list[_Pattern] = []

    def value(self, token: bytes) -> Any:
        """Decode a value of an event."""
        code = token[0]
        if code == 0x4B:
            return token[1]
        if code == 0x8A:
            return int.from_bytes(token[2:], "little", signed=True)
        if code in (0x4D, 0x4A):
            return int.from_bytes(token[1:], "little", signed=code == 0x4A)
        if code in (0x68, 0x6A):
            return self._remembered(int.from_bytes(token[1:], "little"))
        if code == _EMPTY_LIST:
            references = _REFERENCE.findall(token, token.index(b"(") + 1, len(token) - 1)
            return [self._remembered(int.from_bytes(each[1:], "little")) for each in references]
        return {0x4E: None, 0x88: True, 0x89: False}[code]

    def _remembered(self, number: int) -> Any:
        if number >= len(self.memo):
            raise PlainPickleError("it refers to an object that it does not hold")
        return self.memo[number]

    def _more(self, position: int) -> None:
        """Drop what was read, and read on."""
        self.num_nbytes += position
        if self.num_nbytes > MOST_NBYTES:
            raise PlainPickleError(f"it has more than {MOST_NBYTES >> 30} GiB")
        if self.num_nbytes - self.of_events > _MOST_PLAIN:
            raise PlainPickleError(f"more than {_MOST_PLAIN >> 20} MiB of it are no events of an allocator")
        rest = self.data[position:]
        chunk = b"" if self.is_over else self.file.read(_CHUNK)
        self.is_over = len(chunk) == 0
        self.data = rest + chunk

    def _count(self, num: int = 1) -> None:
        self.num_objects += num
        if self.num_objects > _MOST_OBJECTS:
            raise PlainPickleError(f"it has more than {_MOST_OBJECTS:,} dicts, lists and texts that are no events")

    def _put(self, number: int) -> None:
        memo = self.memo
        if number > len(memo) or number >= _MOST_MEMO:
            raise PlainPickleError("it numbers its objects in a way that no pickler does")
        if number == len(memo):
            memo.append(self.stack[-1])
        else:
            memo[number] = self.stack[-1]

    def _since_mark(self) -> list[Any]:
        if not self.marks:
            raise PlainPickleError("it is damaged")
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def _text(self, position: int, nbytes: int) -> int:
        """Push the text that stands at `position`; return the position after it."""
        end = position + nbytes
        if nbytes > _CHUNK:
            raise PlainPickleError(f"it has a text of more than {_CHUNK >> 20} MiB")
        while end > len(self.data) and not self.is_over:
            self._more(position)
            position, end = 0, nbytes
        if end > len(self.data):
            raise PlainPickleError("it ends too early")
        self._count()
        self.stack.append(self.data[position:end].decode("utf-8", "surrogatepass"))
        return end

    def read(self) -> Any:
        """Read the object."""
        try:
            return self._read()
        except (IndexError, struct.error) as error:
            raise PlainPickleError("it is damaged or ends too early") from error

    def _read(self) -> Any:  # noqa: C901, PLR0912, PLR0915 (calls cost)
        stack, marks, memo = self.stack, self.marks, self.memo
        position, enough = 0, -1
        event_start: dict[int, tuple[int, int]] = {}
        while True:
            if position > enough:
                self._more(position)
                event_start.clear()
                position, data = 0, self.data
                enough = len(data) if self.is_over else max(len(data) - _MARGIN, 0)
            code = data[position]
            position += 1
            if code == 0x7D:  # EMPTY_DICT
                taken = self._events(position - 1, enough)
                if taken:
                    position += taken - 1
                else:
                    event_start[len(stack)] = position - 1, self.num_objects
                    self._count()
                    stack.append({})
            elif code == 0x94:  # MEMOIZE
                if len(memo) >= _MOST_MEMO:
                    raise PlainPickleError("it has too many objects")
                memo.append(stack[-1])
            elif code == 0x28:  # MARK
                marks.append(len(stack))
                if len(marks) > _MOST_MARKS or len(stack) > _MOST_ON_STACK:
                    raise PlainPickleError("it is nested too deeply")
            elif code == 0x68:  # BINGET
                stack.append(self._remembered(data[position]))
                position += 1
            elif code == 0x6A:  # LONG_BINGET
                stack.append(self._remembered(int.from_bytes(data[position : position + 4], "little")))
                position += 4
            elif code == 0x4B:  # BININT1
                stack.append(data[position])
                position += 1
            elif code == 0x4D:  # BININT2
                stack.append(int.from_bytes(data[position : position + 2], "little"))
                position += 2
            elif code == 0x4A:  # BININT
                stack.append(int.from_bytes(data[position : position + 4], "little", signed=True))
                position += 4
            elif code == 0x8A:  # LONG1
                length = data[position]
                if length > _MOST_OF_NUMBER:
                    raise PlainPickleError("it has a number of more than 64 bits")
                stack.append(int.from_bytes(data[position + 1 : position + 1 + length], "little", signed=True))
                position += 1 + length
            elif code == 0x75:  # SETITEMS
                items = self._since_mark()
                self._fill(stack[-1], items)
                position = self._closed(position, event_start)
            elif code == 0x73:  # SETITEM
                self._fill(stack[-3], stack[-2:])
                del stack[-2:]
                position = self._closed(position, event_start)
            elif code == 0x65:  # APPENDS
                items = self._since_mark()
                self._list().extend(items)
            elif code == 0x61:  # APPEND
                item = stack.pop()
                self._list().append(item)
            elif code == 0x5D:  # EMPTY_LIST
                self._count()
                stack.append([])
            elif code == 0x8C:  # SHORT_BINUNICODE
                position = self._text(position + 1, data[position])
                if data is not self.data:
                    data, enough = self.data, -1
            elif code in (0x58, 0x8D):  # BINUNICODE, BINUNICODE8
                width = 4 if code == 0x58 else 8
                length = int.from_bytes(data[position : position + width], "little")
                position = self._text(position + width, length)
                if data is not self.data:
                    data, enough = self.data, -1
                    event_start.clear()
            elif code == 0x71:  # BINPUT
                self._put(data[position])
                position += 1
            elif code == 0x72:  # LONG_BINPUT
                self._put(int.from_bytes(data[position : position + 4], "little"))
                position += 4
            elif code == 0x4E:  # NONE
                stack.append(None)
            elif code in (0x88, 0x89):  # NEWTRUE, NEWFALSE
                stack.append(code == 0x88)
            elif code == 0x47:  # BINFLOAT
                stack.append(struct.unpack(">d", data[position : position + 8])[0])
                position += 8
            elif code == 0x29:  # EMPTY_TUPLE
                stack.append(())
            elif code in (0x85, 0x86, 0x87):  # TUPLE1 to TUPLE3
                num = code - 0x84
                if num > len(stack):
                    raise PlainPickleError("it is damaged")
                self._count()
                stack[-num:] = [tuple(stack[-num:])]
            elif code == 0x74:  # TUPLE
                self._count()
                stack.append(tuple(self._since_mark()))
            elif code == 0x80:  # PROTO
                position += 1
            elif code == 0x95:  # FRAME
                position += 8
            elif code == 0x2E:  # STOP
                if len(stack) != 1 or marks:
                    raise PlainPickleError("it is damaged")
                return stack[0]
            else:
                raise PlainPickleError(_foreign(code))
            if len(stack) > _MOST_ON_STACK:
                raise PlainPickleError("it holds too many objects at once")

    def _list(self) -> list[Any]:
        top = self.stack[-1]
        if type(top) is not list:
            raise PlainPickleError("it is damaged")
        return top

    def _fill(self, top: Any, items: list[Any]) -> None:
        if type(top) is not dict or len(items) % 2:
            raise PlainPickleError("it is damaged")
        keys = items[::2]
        if not all(type(key) is str for key in keys):
            raise PlainPickleError("a key of its dicts is no text")
        top.update(zip(keys, items[1::2], strict=True))

    def _closed(self, position: int, event_start: dict[int, tuple[int, int]]) -> int:
        """Take the dict on top of the stack if it is an event."""
        top = self.stack[-1]
        start, num_objects = event_start.pop(len(self.stack) - 1, (None, self.num_objects - 1))
        if "action" in top:
            self.events.take(top)
            self.num_objects = num_objects
            self.stack[-1] = EVENT
            memo = self.memo
            for number in range(len(memo) - 1, max(len(memo) - 1 - 2 * len(top) - 1, -1), -1):
                if memo[number] is top:
                    memo[number] = EVENT
                    break
            if start is not None:
                self.of_events += position - start
                if len(self.patterns) < _MOST_PATTERNS:
                    self._learn(start, position)
        return position

    def _learn(self, start: int, end: int) -> None:
        """Make a pattern of how the event between two positions is written, if all its keys were written before."""
        span = self.data[start:end]
        begin = _EVENT_START.match(span)
        if begin is None:
            return
        position, keys, parts, memo = begin.end(), list[str](), [rb"\}" + _PUT + rb"\("], [EVENT]
        lists: list[tuple[int, int]] = []
        while position < len(span) - 1:
            key = _REFERENCE.match(span, position)
            name = self.value(key[0]) if key is not None else None
            if key is None or type(name) is not str:
                return
            parts.append(re.escape(key[0]))
            if (constant := _CONSTANT.match(span, key.end())) is not None:
                position = self._learn_constant(span, constant, parts, memo)
            elif (value := _LIST_OR_TOKEN.match(span, key.end())) is not None:
                position = value.end()
                is_list = value[0][0] == _EMPTY_LIST
                if is_list:
                    lists.append((len(keys), len(memo)))
                parts.append(_LIST_OR_VALUE if is_list else _VALUE)
                keys.append(name)
            else:
                return
        take = self.events.taker(tuple(keys), self.value)
        if span[position:] == b"u" and len(set(keys)) == len(keys) and len(lists) <= 1 and take is not None:
            group, at = lists[0] if lists else (-1, len(memo))
            regex = re.compile(b"".join(parts) + b"u", re.DOTALL)
            self.patterns.append(_Pattern(regex, take, tuple(memo[:at]), tuple(memo[at:]), group))

    @staticmethod
    def _learn_constant(span: bytes, constant: re.Match[bytes], parts: list[bytes], memo: list[Any]) -> int:
        """Add a text or pair to a pattern; return the position after it."""
        if constant["nbytes"] is None:
            parts.append(re.escape(constant[0][:5]) + _PUT)
            memo.append((constant["first"][0], constant["second"][0]))
            return constant.end()
        end = constant.end() + constant["nbytes"][0]
        put = re.compile(_PUT, re.DOTALL).match(span, end)
        if put is None:
            raise PlainPickleError("it is damaged")
        parts.append(re.escape(span[constant.start() : end]) + _PUT)
        memo.append(span[constant.end() : end].decode("utf-8", "surrogatepass"))
        return put.end()

    def _matched(self, position: int) -> re.Match[bytes] | None:
        """Match the event at a position with the patterns; that which matches comes to be the first."""
        for index, pattern in enumerate(self.patterns):
            match = pattern.regex.match(self.data, position)
            if match is not None:
                self.patterns.insert(0, self.patterns.pop(index))
                return match
        return None

    def _events(self, start: int, enough: int) -> int:
        """Take the events that follow one another from `start` on, as far as they are written in a known way.

        Return the number of their bytes.
        """
        data, memo, stack = self.data, self.memo, self.stack
        position, num = start, 0
        if not self.patterns:
            return 0
        regex, take, entries, rest, list_group = self.patterns[0]
        while position <= enough:
            match = regex.match(data, position)
            if match is None:
                match = self._matched(position)
                if match is None:
                    break
                regex, take, entries, rest, list_group = self.patterns[0]
            values = match.groups()
            kept = take(values)
            memo.extend(entries)
            if list_group >= 0:
                if values[list_group][0] == _EMPTY_LIST:
                    memo.append(kept)
                memo.extend(rest)
            position = match.end()
            num += 1
        if len(memo) > _MOST_MEMO or len(stack) + num > _MOST_ON_STACK:
            raise PlainPickleError("it has too many objects")
        stack.extend([EVENT] * num)
        self.of_events += position - start
        return position - start


def _foreign(code: int) -> str:
    import pickletools  # noqa: PLC0415 -- for a message alone

    opcodes: dict[str, Any] = pickletools.code2op  # type: ignore[attr-defined]
    known = opcodes.get(chr(code))
    if known is not None and known.name in ("GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE"):
        return f"it names a class or a function ({known.name}), which no snapshot does"
    return f"it has {known.name if known else f'the byte {code:#x}'}, which no snapshot has"
