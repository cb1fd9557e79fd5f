"""Options of a command line, as the calls of `add_argument` in a script's text tell them."""

import re
from collections.abc import Sequence

from memlint.source.typed_commands import TypedCommand

ADDED = re.compile(r"add_argument\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
FLAG = re.compile(r"[\"'](--?[\w-]+)[\"']")
"""A call that adds an option, with what it is given, and the names of the option in it."""
_CHOICES = re.compile(r"\bchoices\s*=\s*[\[(]([^\])]*)[\])]")
_MODEL_OPTION = re.compile(
    r"--?(model|arch|architecture|net|network|backbone|encoder)([_-]?(name|type|arch))?", re.IGNORECASE
)


def has_option(text: str, command: TypedCommand, word: str) -> bool:
    """Return True if a script with this text may have the option of a word of its command, such as `--lr=0.1`.

    argparse takes the beginning of an option for it, if no other one begins so.
    """
    option = word.partition("=")[0]
    names = (each.partition("=")[0] for each in command.arguments if each.startswith("--") or "=" in each)
    if "add_argument(" not in text or ("parse_known_args" in text and any("." in each for each in names)):
        return True
    begins_so = set(re.findall(rf"[\"']({re.escape(option)}[\w-]*)[\"']", text))
    return option in begins_so or len(begins_so) == 1


def model_option(text: str) -> tuple[str, str, str]:
    """Return the option of a script that chooses a model, the text that adds it, and its default; each may be empty."""
    added = {flag: each for each in ADDED.findall(text) for flag in FLAG.findall(each)}
    option = next(filter(_MODEL_OPTION.fullmatch, added), "")
    default = re.search(r"default\s*=\s*[\"']([\w./-]+)[\"']", added.get(option, ""))
    return option, added.get(option, ""), "" if default is None else default[1]


def choices_of(added: str) -> list[str]:
    """Return the words that an option takes; none if it takes any."""
    choices = _CHOICES.search(added)
    return [] if choices is None else re.findall(r"[\"']([\w.-]+)[\"']", choices[1])


def choice(added: str, name: str | None) -> str | None:
    """Return the name as the option spells it: `UNET3D` for `UNet3D`; None if it takes others alone."""
    choices = choices_of(added)
    return next(
        (each for each in choices if name is not None and each.lower() == name.lower()), None if choices else name
    )


def with_model(arguments: Sequence[str], option: str, value: str) -> tuple[str, ...]:
    """Return the arguments with another model, without those that choose parts of the one that is typed."""
    pairs = zip(("", *arguments), arguments, strict=False)
    chosen = (any(_MODEL_OPTION.fullmatch(each) for each in (before, word.partition("=")[0])) for before, word in pairs)
    return (*(word for word, is_of_model in zip(arguments, chosen, strict=True) if not is_of_model), option, value)
