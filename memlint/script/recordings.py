"""Recordings that torchaudio reads by torchcodec, which is often not there: since 2.9 it has no reader of its own."""

from __future__ import annotations

import wave
from typing import TYPE_CHECKING, Any

import torch

from memlint.workloads.placeholders import is_missing

if TYPE_CHECKING:
    from types import ModuleType

    from memlint.script.replacing import Replacing

_OF_16_BITS = 2
_LARGEST = 2**15


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


def _read(recording: wave.Wave_read, begin: int, count: int) -> torch.Tensor:
    """Return these samples of each channel, between -1 and 1."""
    if recording.getsampwidth() != _OF_16_BITS:
        raise wave.Error
    recording.setpos(begin)
    data = bytearray(recording.readframes(count if count >= 0 else recording.getnframes()))
    samples = torch.frombuffer(data, dtype=torch.int16) if data else torch.zeros(0, dtype=torch.int16)
    return samples.view(-1, recording.getnchannels()).T / _LARGEST
