"""The SFTTrainer of trl before version 0.20, with its settings as arguments, and a collator for answers alone."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any

_RENAMED = {"max_seq_length": "max_length"}
"""Settings that were called otherwise as arguments."""
_LEFT_OUT = ("infinite", "num_of_sequences", "chars_per_token")
"""Arguments on how texts are packed which there are no settings for: they change no sizes."""


def with_settings_as_arguments(_name: str, module: Any) -> None:
    """Let an SFTTrainer be given its settings beside its `args`, and its tokenizer by that name."""
    trainer, settings = module.SFTTrainer, module.SFTConfig
    init = trainer.__init__
    own = inspect.signature(init).parameters
    known = {each.name for each in dataclasses.fields(settings)}

    @functools.wraps(init)
    def __init__(self: Any, model: Any = None, args: Any = None, *others: Any, **named: Any) -> None:  # noqa: N807 -- it stands for it
        if "tokenizer" in named:
            named.setdefault("processing_class", named.pop("tokenizer"))
        if named.get("formatting_func") is not None:
            named["formatting_func"] = _of_one(named["formatting_func"])
        settled = [name for name in named if name not in own and _RENAMED.get(name, name) in known]
        moved = {_RENAMED.get(name, name): named.pop(name) for name in settled}
        if args is None:
            args = settings(output_dir="trainer_output")
        elif not isinstance(args, settings):
            args = settings(**{**args.to_dict(), "hub_token": args.hub_token})  # which `to_dict` hides
        for name, value in moved.items():
            setattr(args, name, value)
        init(self, model, args, *others, **{name: value for name, value in named.items() if name not in _LEFT_OUT})

    trainer.__init__ = __init__


def _of_one(format_many: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a function for the text of one example; `format_many` gives those of many, as was asked for."""

    def text(example: Any) -> Any:
        texts = format_many({name: [value] for name, value in example.items()})
        return texts[0] if isinstance(texts, list) else format_many(example)

    return text


def DataCollatorForCompletionOnlyLM(*_templates: Any, tokenizer: Any, **_options: Any) -> Any:  # noqa: N802 -- its name
    """Return a collator of whole texts: which of the labels count changes no bytes."""
    from transformers import DataCollatorForLanguageModeling  # noqa: PLC0415 -- slow, and only needed here

    return DataCollatorForLanguageModeling(tokenizer, mlm=False)
