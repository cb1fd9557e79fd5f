"""Spectra as pairs of real numbers, as in PyTorch 1, and the choice of a backend that torchaudio had."""

from __future__ import annotations

import functools
from typing import Any

import torch


def with_real_spectra(_name: str, module: Any) -> None:
    """Let `stft` of torch give pairs of real numbers where it is not told, and `istft` take them."""
    to_spectrum, from_spectrum = module.stft, module.istft

    @functools.wraps(to_spectrum)
    def stft(signal: torch.Tensor, *arguments: Any, return_complex: bool | None = None, **named: Any) -> torch.Tensor:
        is_complex = signal.is_complex() if return_complex is None else return_complex
        spectrum: torch.Tensor = to_spectrum(signal, *arguments, return_complex=is_complex, **named)
        return spectrum

    @functools.wraps(from_spectrum)
    def istft(spectrum: torch.Tensor, *arguments: Any, **named: Any) -> torch.Tensor:
        of_complex = spectrum if spectrum.is_complex() else torch.view_as_complex(spectrum.contiguous())
        signal: torch.Tensor = from_spectrum(of_complex, *arguments, **named)
        return signal

    module.stft, module.istft = stft, istft


def set_audio_backend(_backend: str | None) -> None:
    """Do nothing: torchaudio has one backend since version 2.9."""
