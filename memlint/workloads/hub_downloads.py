"""The commands that bring what a name on the Hugging Face Hub stands for to this machine, where memlint finds it."""

import re

_OF_MACHINE = r"(?:path|data|models?|pretrained\w*|ckpts?|checkpoints?|weights|outputs?|runs?|logs?|cache|local)/"
"""Usual names of folders on a machine."""
_NAME = re.compile(rf"(?!\.|{_OF_MACHINE})[\w.-]+/[\w.-]+")
"""The name of a model, behind that of whose it is; a folder of weights has other ones."""


def download_of(name: str, folder: str | None = None) -> str:
    """Return `download it once (hf download me/tiny config.json), or `; empty if the name is none of the Hub's."""
    file = f"{folder}/config.json" if folder else "config.json"
    return f"download it once (hf download {name} {file}), or " if _NAME.fullmatch(name) else ""


def download_by(owner: type, name: str, folder: str | None = None) -> str:
    """Return the same for what a class of transformers loads by several files, as tokenizers are."""
    inner = f", subfolder='{folder}'" if folder else ""
    line = f"from transformers import {owner.__name__} as T; T.from_pretrained('{name}'{inner})"
    return f'download it once (python -c "{line}"), or ' if _NAME.fullmatch(name) else ""
