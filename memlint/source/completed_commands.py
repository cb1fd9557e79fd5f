"""Commands of documents with what they leave open filled in: a config of the project, arguments that are required."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from memlint.source.option_texts import ADDED, FLAG, choices_of, has_option
from memlint.source.project_files import ProjectFiles
from memlint.source.similar_files import CONFIGS, similar_file
from memlint.source.typed_commands import CONFIG_OPTION, TypedCommand, concrete, is_placeholder

_TAKES_NO_WORD_OR_MANY = re.compile(r"\bnargs\b|action\s*=\s*[\"'](store_|count|help|version)")
_OVERRIDE = re.compile(r"[\w.]+=")
"""A setting of a config, as hydra and its kind take it."""
_NEEDS_NO_WORD = re.compile(r"\bnargs\s*=\s*(?:[\"'][*?.]|\d|argparse)|action\s*=")
_NAME = re.compile(r"\s*[\"']([A-Za-z][\w-]*)[\"']")
"""The name of an argument that is told by its place."""
_IMPORT = re.compile(r"^(?:from|import) .*", re.MULTILINE)
_DEFAULT = re.compile(r"\bdefault\s*=\s*[\"']([^\"']+)[\"']")
_REQUIRED = re.compile(r"\brequired\s*=\s*True")
_LOCAL_RANK = re.compile(r"--local[_-]rank")
_NEEDS_NO_DATA = re.compile(r"dummy|synthetic|fake|random|toy", re.IGNORECASE)
"""Choices of an option with which a script reads no data."""
_OF_NUMBER = re.compile(r"type\s*=\s*(?:int|float)\b")
_OF_OTHER_TYPE = re.compile(r"\btype\s*=\s*(?!str\b|Path\b|pathlib\.Path\b)|\bchoices\s*=")
_OF_PYTHON_CONFIGS = re.compile(r"[/\\]conf(?:ig)?s?[/\\].*\.py$")
"""Places of configs that are written in Python, as mmengine's are."""
_TEMPLATE = re.compile(r"\{\w+\}|<\w+>|\$\{?\w+\}?")


class Completion:
    """Completes commands of one project for one of its files."""

    def __init__(self, files: ProjectFiles, configs: Callable[[], Sequence[Path]]) -> None:
        """`configs` gives those that name a class of the file, the nearest first."""
        self._files, self._configs = files, configs
        self._options: dict[Path, list[str]] = {}
        """The arguments of each script's parser that was looked at."""

    def completed(self, command: TypedCommand) -> TypedCommand:
        """Return the command with a config of the project in place of what stands for one."""
        arguments = [self._renamed(each, command) for each in self._with_numbers(self._joined(command), command)]
        for i, argument in enumerate(arguments):
            option, has_value, value = argument.partition("=")
            place = i if has_value else i + 1
            if not CONFIG_OPTION.fullmatch(option) or place >= len(arguments):
                continue
            value = value if has_value else arguments[place]
            if (command.folder / value).exists():
                continue
            if is_placeholder(value) or Path(value).suffix in CONFIGS:
                path = self._config_like(value, command)
                path = self._config_for(command) if path is None else path
                path = self._config_beside(value, option, command) if path is None else path
                if path is not None:
                    arguments[place] = f"{option}={path}" if has_value else path
        for i, argument in enumerate(arguments):
            option, has_value, value = argument.rpartition("=")
            file, other = command.folder / value, None
            if file.suffix in CONFIGS and not is_placeholder(value) and not file.exists():
                other = similar_file(file)
            if other is not None:
                arguments[i] = f"{option}{has_value}{os.path.relpath(other, command.folder)}"
        arguments = [self._of_folder(each, command) if is_placeholder(each) else each for each in arguments]
        chosen = self._chosen_group(command)
        if chosen is not None:
            arguments.append(chosen)
        completed = command._replace(arguments=tuple(arguments))
        return completed._replace(arguments=(*arguments, *self._required(completed)))

    def _config_beside(self, missing: str, option: str, command: TypedCommand) -> str | None:
        """Return the default of an option, or else the first config, in the folder of one that is not there."""
        place = command.folder / missing
        beside = sorted(
            path for path in self._files.paths if path.parent == place.parent and path.suffix == place.suffix
        )
        names = [os.path.relpath(each, command.folder) for each in beside if not is_placeholder(missing)]
        own = (added for added in self._added(command.script) if option in FLAG.findall(added))
        defaults = (match[1] for added in own if (match := _DEFAULT.search(added)))
        return next(chain((each for each in defaults if each in names), names), None)

    def _of_folder(self, word: str, command: TypedCommand) -> str:
        """Return the first config of the folder of a placeholder, as `configs/train/<name>`; the word without one."""
        folder = (command.folder / word).parent.resolve()
        found = sorted(path for path in self._files.paths if path.parent == folder and path.suffix in CONFIGS)
        is_inside = folder not in (command.folder.resolve(), *command.folder.resolve().parents)
        return os.path.relpath(found[0], command.folder) if found and is_inside and "=" not in word else word

    def _required(self, command: TypedCommand) -> Iterator[str]:
        """Yield the required places, and options with a text, a choice or a rank, that the command lacks."""
        given = {each.partition("=")[0] for each in concrete(command.arguments)}
        for added in self._added(command.script):
            place, is_text = _NAME.match(added), _OF_OTHER_TYPE.search(added) is None
            if place is not None and is_text and not command.arguments and _NEEDS_NO_WORD.search(added) is None:
                yield self._config_named(place[1], command) or place[1]
            is_text = is_text and _TAKES_NO_WORD_OR_MANY.search(added) is None
            flags = FLAG.findall(added.partition(",")[0]) + FLAG.findall(added)
            if not flags or not given.isdisjoint(flags) or _REQUIRED.search(added) is None:
                continue
            if texts := choices_of(added):
                yield from (flags[0], next(filter(_NEEDS_NO_DATA.search, texts), texts[0]))
            elif is_text:
                yield from (flags[0], self._config_named(flags[0], command) or flags[0].lstrip("-"))
            elif _LOCAL_RANK.fullmatch(flags[0]):  # which its launcher gives it
                yield from (flags[0], "0")

    def _added(self, script: Path) -> list[str]:
        """Return the arguments of the script's parser, which may be in a file of the project that it imports."""
        if script not in self._options:
            text = self._files.text(script)
            names = set(re.findall(r"\w+", "\n".join(_IMPORT.findall(text))))
            imported = (path for path in self._files.paths if path.suffix == ".py" and path.stem in names)
            near = (script, *sorted(imported, key=lambda path: len(path.parts)))
            found = (ADDED.findall(self._files.text(path)) for path in near)
            self._options[script] = next(filter(None, found), [])
        return self._options[script]

    def _config_named(self, name: str, command: TypedCommand) -> str | None:
        """Return the config for an argument of this name; None if it is none of a config."""
        return self._config_for(command) if CONFIG_OPTION.fullmatch(name) is not None else None

    def _joined(self, command: TypedCommand) -> list[str]:
        """Return its arguments; where an option takes one word, further ones belong to a placeholder: `your DIR`."""
        options = self._added(command.script)
        taken = (added for added in options if not _TAKES_NO_WORD_OR_MANY.search(added))
        of_one_word = {flag for added in taken for flag in FLAG.findall(added)}
        joined: list[str] = []
        for argument in command.arguments:
            is_open = len(joined) > 1 and joined[-2] in of_one_word and is_placeholder(joined[-1])
            if is_open and not argument.startswith("-") and not _OVERRIDE.match(argument):
                joined[-1] += f" {argument}"
            else:
                joined.append(argument)
        return joined

    def _with_numbers(self, arguments: Sequence[str], command: TypedCommand) -> Iterator[str]:
        """Yield the arguments without the options that take a number and have a word in capitals: `--gpus NUM_GPUS`."""
        options = self._added(command.script)
        of_number = {flag for each in options if _OF_NUMBER.search(each) for flag in FLAG.findall(each)}
        words = iter((*arguments, ""))
        word = next(words)
        for following in words:
            option, has_value, value = word.partition("=")
            value = value if has_value else following
            is_left_out = option in of_number and value.isupper() and value.isidentifier()
            if not is_left_out:
                yield word
            word = next(words, "") if is_left_out and not has_value else following

    def _config_like(self, template: str, command: TypedCommand) -> str | None:
        """Return a template with a name of a config in its place: of `{DATASET}.yml` the one that is named first.

        The script may add the folder. In place of a config that is no longer there one that begins with its name, or
        has it in other letters: `x4.yml` for `X4.yml`, which is one file on some systems.
        """
        place, text = Path(template), "" if command.document is None else self._files.text(command.document).lower()
        if place.suffix not in CONFIGS:
            return None
        stem, end = ".+".join(map(re.escape, _TEMPLATE.split(place.stem))), re.escape(place.suffix)
        end = r"\.ya?ml" if end in (r"\.yaml", r"\.yml") else end
        pattern = re.compile(f"{stem}{end}" if is_placeholder(template) else f"{stem}([_-].+)?{end}", re.IGNORECASE)
        inside = command.folder / place.parent
        paths = (path for path in self._files.paths if pattern.fullmatch(path.name))
        names = [path.name for path in paths if path.parent == inside or not place.parent.name]
        named = [name for name in names if Path(name).stem.lower() in text]
        alike = [name for name in names if name.lower() == place.name.lower()]
        name = min(alike or named or names, key=lambda name: text.find(Path(name).stem.lower()), default=None)
        return None if name is None else str(place.with_name(name))

    def _config_for(self, command: TypedCommand) -> str | None:
        """Return a config that the document of the command names, or else one that names the class, or the only one."""
        text = "" if command.document is None else self._files.text(command.document)
        named = [each for each in re.findall(r"[\w./-]+\.(?:ya?ml|py)\b", text) if is_config(each)]
        folders = (command.folder, command.folder if command.document is None else command.document.parent)
        places = [folder / name for name in named for folder in folders] + list(self._configs())
        others = [path for path in self._files.paths if path.suffix in (".yaml", ".yml")]
        of_name = [path for path in others if path.name in {Path(name).name for name in named}]
        places += of_name or (others if len(others) == 1 else [])
        found = next((place.resolve() for place in places if place.is_file()), None)
        return None if found is None else os.path.relpath(found, command.folder)

    def _chosen_group(self, command: TypedCommand) -> str | None:
        """Return the override with which hydra takes the config that names the class: `model=unet`."""
        text = self._files.text(command.script)
        match = re.search(r"hydra\.main\([^)]*config_path\s*=\s*[\"']([^\"']+)[\"']", text)
        if match is None:
            return None
        base = (command.script.parent / match[1]).resolve()
        if base.is_file():  # hydra before 1.0 took the path of a config
            base = base.parent
        groups = (path.relative_to(base).parts for path in self._configs() if path.is_relative_to(base))
        for *group, name in groups:
            key = "/".join(group)
            if group and not any(each.startswith(f"{key}=") for each in command.arguments):
                return f"{key}={Path(name).stem}"
        return None

    def _renamed(self, word: str, command: TypedCommand) -> str:
        """Return a word with an option that the script has by a shorter name: `--drop-path` for `--drop-path-rate`."""
        text = self._files.text(command.script)
        option, equals, value = word.partition("=")
        if not word.startswith("--") or has_option(text, command, word):
            return word
        parts = option.split("-")
        shorter = ("-".join(parts[:number]) for number in range(len(parts) - 1, 2, -1))
        return next((f"{each}{equals}{value}" for each in shorter if has_option(text, command, each)), word)


def is_config(name: str) -> bool:
    """Return True for the name or path of a config: of code, one in a folder of configs."""
    return not name.endswith(".py") or _OF_PYTHON_CONFIGS.search(f"/{name}") is not None
