"""Recordings of torchaudio: files, and data sets that are not on this machine.

It reads files by torchcodec, which is often not there: since 2.9 it has no reader of its own.
"""

from __future__ import annotations

import wave
from typing import TYPE_CHECKING, Any

import torch

from memlint.base.patching import in_place_of
from memlint.workloads.notes import note, note_fake_data
from memlint.workloads.placeholders.absent_packages import is_missing

if TYPE_CHECKING:
    from types import ModuleType

    from memlint.script.replacing import Replacing

_OF_16_BITS = 2
_LARGEST = 2**15
_NUM_RECORDINGS = 1024
_DATA_SETS: dict[str, tuple[int, float, tuple[Any, ...]]] = {
    "CMUARCTIC": (16_000, 3.2, ("words 9", "words 1")),
    "FluentSpeechCommands": (16_000, 2.3, ("words 1", "words 1", "words 4", "class 6", "class 14", "class 4")),
    "GTZAN": (22_050, 30, ("class 10",)),
    "LIBRISPEECH": (16_000, 12.3, ("words 33", 1, 1, "index")),
    "IEMOCAP": (16_000, 4.5, ("words 1", "neu", "words 1")),
    "LibriLightLimited": (16_000, 12.7, ("words 33", 1, 1, "index")),
    "LIBRITTS": (24_000, 5.6, ("words 17", "words 17", 1, 1, "words 1")),
    "LJSPEECH": (22_050, 6.6, ("words 17", "words 17")),
    "SPEECHCOMMANDS": (16_000, 1, ("class 35", "words 1", "index")),
    "TEDLIUM": (16_000, 7.5, ("words 20", 1, 1, "index")),
    "VCTK_092": (48_000, 3.6, ("words 8", "words 1", "words 1")),
    "VoxCeleb1Identification": (16_000, 8.2, ("index", "words 1")),
    "YESNO": (8_000, 6, ([0, 1, 0, 1, 0, 1, 0, 1],)),
}
"""For each data set: samples in a second, seconds of a recording on average, and what an item has beside them.

Sources: the pages of the data sets and the papers that describe them, as of November 2026.
"""


def replace_load_of_torchaudio(module: ModuleType, replacing: Replacing) -> None:
    """Let `torchaudio.load` read plain WAV files, as those that memlint makes up are, where it could read none."""
    load = module.load
    if hasattr(module, "info") or not is_missing("torchcodec"):
        return

    def load_wav(uri: Any, frame_offset: int = 0, num_frames: int = -1, *args: Any, **kwargs: Any) -> Any:
        try:
            with wave.open(uri if hasattr(uri, "read") else str(uri)) as recording:
                read = _read(recording, frame_offset, num_frames)
        except (wave.Error, EOFError):
            return load(uri, frame_offset, num_frames, *args, **kwargs)
        channels_first = kwargs.get("channels_first", (*args, True, True)[1])
        return (read if channels_first else read.T), recording.getframerate()

    replacing.put(module, "load", load_wav)


def replace_data_sets_of_torchaudio(module: ModuleType, replacing: Replacing, *, fake: bool) -> None:
    """Make the classes of `torchaudio.datasets` report missing data, or with `fake` give silence in its place."""
    for name in _DATA_SETS:
        if (cls := getattr(module, name, None)) is not None:
            replacing.put(cls, "__init__", _filled(cls, name, fake=fake))


def _filled(cls: Any, name: str, *, fake: bool) -> Any:
    init = cls.__init__
    rate, seconds, rest = _DATA_SETS[name]

    def item(self: Any, number: int) -> tuple[Any, ...]:
        _ = self._walker[number]  # which ends a loop over all
        return torch.zeros(1, int(rate * seconds)), rate, *(_value(each, number) for each in rest)

    @in_place_of(init)
    def filled(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except Exception as error:  # of files that are not there, or of what was made up in their place
            root = args[0] if args else kwargs.get("root")
            if not fake:
                hint = "put it there, or add --fake-data to use silence"
                note(error, f"wants the data set {name}, which is not in {root}", hint)
                raise
            self._walker = [f"{number}.wav" for number in range(_NUM_RECORDINGS)]
            methods = {"__getitem__": item, "__len__": lambda self: len(self._walker)}
            self.__class__ = type(type(self).__name__, (type(self),), methods)
            length = f"{seconds:g} seconds, sampled {rate:,} times a second"
            note_fake_data(
                f"the data set {name} is not in {root}: replaced by {_NUM_RECORDINGS:,} silences of {length}"
            )

    return filled


def _value(form: Any, number: int) -> Any:
    """Return a value of an item: one of some classes, so many words, its number, or what `form` is itself."""
    kind, _, count = form.partition(" ") if isinstance(form, str) else ("", "", "")
    match kind:
        case "class":
            return f"class {number % int(count)}"
        case "words":
            return " ".join(f"w{word}" for word in range(int(count)))
        case "index":
            return number
    return form


def _read(recording: wave.Wave_read, begin: int, count: int) -> torch.Tensor:
    """Return these samples of each channel, between -1 and 1."""
    if recording.getsampwidth() != _OF_16_BITS:
        raise wave.Error
    recording.setpos(begin)
    data = bytearray(recording.readframes(count if count >= 0 else recording.getnframes()))
    samples = torch.frombuffer(data, dtype=torch.int16) if data else torch.zeros(0, dtype=torch.int16)
    return samples.view(-1, recording.getnchannels()).T / _LARGEST
