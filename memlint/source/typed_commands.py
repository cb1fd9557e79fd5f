"""Commands that a project's documents and shell scripts type to run its Python scripts, without their launchers."""

import html
import math
import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import NamedTuple

from memlint.source.own_folder import with_own_folder
from memlint.source.project_files import ProjectFiles
from memlint.source.shell_arithmetic import computed
from memlint.source.shell_branches import Branches, commands_of
from memlint.source.similar_files import CONFIGS

_DOCUMENTS = (".md", ".mdx", ".rst", ".sh")
_MAY_RUN = re.compile(r"\.py\b|\.sh\b|-m ")
_OF_COMMANDS = (".py", ".sh", "-m ", "cd ")
_CONTINUED = re.compile(
    r"\\[ \t]*(?:#[^\n]*\r?\n[ \t]+|\r?\n)\s*|\r?\n[ \t]*(?=--\w[\w-]*(?:[ =\\]|\r?$))", re.MULTILINE
)
"""The end of a line that goes on: a line that begins with an option is never a command of its own."""
_PREFORMATTED = re.compile(r"<pre\b[^>]*>(?:<code\b[^>]*>)?(.*?)(?:</code>)?</pre>", re.DOTALL)
"""Code as documents in HTML show it."""
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)(?!.*```)")
_IN_LINE = re.compile(r"``?([^`\n]+)``?")
_PROMPT = re.compile(r"^\s*(?:[$>%]\s+|\(\w+\)\s*\$\s+)")
_PYTHON = re.compile(
    r"(?:^|/)(?:python[\d.]*|torchrun|accelerate|deepspeed|composer|horovodrun|mpirun|mpiexec|srun|fabric)$"
)
"""Programs that start a script of Python."""
_OF_HELP = frozenset(("-h", "--help"))
_TORCHRUN = re.compile(r"(?:^|[\s/])torchrun\s|-m\s+torch\.distributed\.(?:run|launch)\s")
"""Launchers that give a script the variables of a process group."""
_NUM_PROCESSES = re.compile(r"--(?:nproc[-_]per[-_]node|nnodes)[= ]\"?(?:\d+:)?([1-9]\d*)\b")
"""The numbers of nodes, and of processes on each, that torchrun is told."""
_LAUNCHER_MODULES = ("torch", "accelerate", "deepspeed", "lightning", "cProfile", "pdb", "debugpy", "pip", "ipykernel")
"""Packages whose modules, behind `python -m`, start a script or are no part of a project."""
_CUT = re.compile(r"\s(?:\|\|?|[12&]?>>?|&|2>&1)(?:\s.*)?$|\s[12&]?>>?\s*\S+.*$|\s+#.*$|;.*$")
"""Pattern of what follows a command on its line: pipes, redirections, comments."""
_QUOTING, _PLAIN_WORDS = re.compile(r"['\"\\]"), re.compile(r"[^ \t\r\n]+")
_ALTERNATIVES = re.compile(r"\{\s*(\w+)(?:\s*[/,|]\s*\w+)+\s*\}|(?<=\w)()(?:/[a-z]){2,}(?=\.\w+(?:\s|$))")
"""One of several, as documents write it: `{s,m,l}`, and `yolon/s/m.yaml` for `yolon.yaml`."""
_STEPS = re.compile(r"\s*(?:&&|;)\s*")
_BRACKETED = re.compile(r"<([^<>\n]+)>|\[([^-\[\]\n][^\[\]\n]*)\]")
_OPTIONAL = re.compile(r"\[\s*-[^\]\n]*\]")
_ASSIGNED = re.compile(
    r"^\s*(?:export\s+|local\s+)?(\w+)(\+?)=(\"[^\"]*\"|'[^']*'|\((?:[^()]|\([^()]*\))*\)|\$\(\(.*?\)\)|\$\[.*?\]|[^\s;]*)"
)
_COUNTED = re.compile(r"^\s*\(\(\s*(\w+)\s*\+=\s*(\d+)\s*\)\)")
"""A line that adds to a number."""
_QUOTED = re.compile(r"^[ \t]*(?:export[ \t]+)?\w+\+?=\"[^\"\n]*\n[^\"]*\"", re.MULTILINE)
"""A variable that gets a text of several lines."""
_LISTED = re.compile(
    r"^[ \t]*(?:(?:local|export|declare[ \t]+-a)[ \t]+)?\w+\+?=\((?:[^()]|\([^()]*\))*?\n[ \t]*\)", re.MULTILINE
)
"""A variable that gets a list of several lines."""
_COMMENT = re.compile("(?:^|(?<=[\\s\1]))#[^\n\1]*", re.MULTILINE)
_LENGTH = re.compile(r"\$\{#(\w+)\}")
_OF_VARIABLE = re.compile(r"\s*(?:eval\s+|(?=\"?\$\{?\w))")
"""Beginning of a line that runs what a variable holds."""
_STARTS_VARIABLE = re.compile(r"\b(?:python[\d.]*|torchrun|launch)\s+\"?\$\{?\w")
"""A program that is started with what a variable holds."""
_COMPUTED = re.compile(r"\$|`")
"""Pattern of text that a shell replaces: a variable that is not known, or the output of a command."""
_OF_BRANCHES = re.compile(r"\s*(?:if|elif|then|else|fi)\b")
_LOOPED = re.compile(r"^\s*for\s+(\w+)\s+in\s+([^;]+)")
_MOST_OF_LOOP = 8
"""Values of a loop's variable with which a command is read."""
RUNNERS = ("uv", "pdm", "poetry", "pipenv", "conda", "mamba", "micromamba", "pixi", "rye", "hatch")
"""Programs that run another one in an environment, as `uv run` does."""
_OF_MACHINE = frozenset(
    [
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "MASTER_ADDR",
        "MASTER_PORT",
        "NODE_RANK",
        "WORLD_SIZE",
        "RANK",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
    ]
)
"""Variables that choose among a machine's GPUs, and those of a group of processes."""
_VARIABLE_SET = re.compile(r"\w+=")
"""Beginning of a word that sets an environment variable, before a command."""
_VARIABLE = re.compile(r"\$\{(\w+)(?:\[[@*]\]|:?-([^}]*))?\}|\$(\w+)")
_ARGUMENT = re.compile(r"^-|[=./<\[]")
"""Pattern of the first argument of a script that is typed without `python`: not of a sentence."""
_REST = re.compile(r"\"?\$[@*]\"?|\"?\$\{@(?::(\d+))?[^}]*\}\"?")
"""All arguments of a shell script, or those from a number on."""
_PRECISION = re.compile(r"(?:^|[\s/])accelerate\s+launch\s.*--mixed_precision[ =](\w+)")
"""The precision that accelerate is told before the script."""
_PLACEHOLDER = re.compile(
    r"[$`<>\[\]]|\{[A-Za-z][\w -]*\}|\.\.\.|=\*\*$|(?:^|[/=_ -])(?:path[/_]to|your|my|xxx+|todo)(?:$|[/_ -])|"
    r"^(?-i:(?=\w*(?:_|PATH|DIR|DATA|FILE|ROOT|NAME))[A-Z][A-Z_]+)$",
    re.IGNORECASE,
)


_LIST = re.compile(r"(?:-*[\w.]+=)?\[[\d., +-]*\]|[\w.]+=\[[\w,./-]*\]")
"""A list of numbers, or one that hydra is given: no placeholder, in spite of its brackets."""
_IS_TEMPLATE = re.compile(r"[$`<>\[\]]|\{[A-Za-z][\w -]*\}|\.\.\.|(?:^|=)\*\*$")
"""Characters of a placeholder, such as `<folder>`, `{folder}` or `$DATA`, which no real path has."""
_REST_OF_OPTIONS = re.compile(r"ARG(UMENT)?S|OPT(ION)?S|EXTRA|@")
"""Words of what stands for any number of options."""
_NAME_OF_SETTING = re.compile(r"-[\w.-]+|[\w.+/]+")
_IN_VALUE = re.compile(r"(?<=[=:])<[^<>]+>(?=:|$)")
"""A placeholder that is one part of a value: `ImageNet:split=TRAIN:root=<DIR>`."""
_OF_PLACE = re.compile(
    r"path|dir(?![a-z]*ect)|director|folder|root|data(?!.?(set|name))|file|ckpt|checkpoint|weights|output|save|"
    r"resume|pretrained|init|finetune|json|csv|image|video|source|dest|log(?!.?(level|freq|step|interval|name))",
    re.IGNORECASE,
)
"""Names of options, and words of templates, for places in the file system."""
CONFIG_OPTION = re.compile(r"-c|-?-?(cfg|config|conf|fname|yaml|opt)([_-]?(file|path|name))?", re.IGNORECASE)
"""Options that take the path of a config."""
_OF_SETTINGS = (*CONFIGS, ".py", ".conf", ".gin")
_FEWEST_NAMES = 3
"""Values that are names of settings: so many make a command a template."""
_EMPTY = frozenset(["path", "to", "your", "the", "my", "a", "an", "of", "with", "and", "dir", "directory", "folder"])
_MOST_WORDS = 2


class TypedCommand(NamedTuple):
    """One run of a script."""

    script: Path
    module: str
    """The name behind `python -m`, or the function of a command: `package.module:function`; empty for a file."""
    arguments: tuple[str, ...]
    folder: Path
    """The directory in which it is typed."""
    document: Path | None = None
    """The file that types it; None if none does."""
    line: int = 0
    ranks: int = 0
    """Processes that torchrun starts, which may join a process group: one where nothing says how many; 0 without it."""
    precision: str = ""
    """The precision of the step that accelerate is told when it starts the script; empty without one."""
    name: str = ""
    """The name of a command that the project declares, such as `yolo`; empty for a script."""
    code: str = ""
    """The program, where a document shows it: each line at its own number; empty for a script."""
    variables: tuple[tuple[str, str], ...] = ()
    """Environment variables that are set before it on its line, but those of the machine."""

    @property
    def start(self) -> tuple[str, ...]:
        """The words before the arguments: the script by its path from `folder`."""
        if self.name:
            return (self.name,)
        return ("-m", self.module) if self.module else (os.path.relpath(self.script, self.folder),)

    @property
    def num_placeholders(self) -> int:
        """Number of arguments that stand for what a reader has, such as `/path/to/data`."""
        return sum(map(is_placeholder, self.arguments))


def is_placeholder(argument: str) -> bool:
    """Return True if the text stands for something that each reader has in a place of his own."""
    return _PLACEHOLDER.search(argument) is not None and _LIST.fullmatch(argument) is None


def concrete(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return arguments that can be typed: a path for each that stands for one, and no option with another value.

    `--data [YOUR DATA]` becomes `--data data`: memlint makes up what is not there. `--name $EXP` keeps the default, as
    do `seed=SEED policy=POLICY algo=ANY`, whose values are the names of settings.
    """
    words: list[str] = []
    before = ("", *arguments)
    is_of_names = sum(map(_is_own_name, before, arguments)) >= _FEWEST_NAMES
    for last, argument in zip(before, arguments, strict=False):
        option, has_value, value = argument.partition("=")
        if not has_value or _NAME_OF_SETTING.fullmatch(option) is None:
            option, value = "", argument
        is_name = value.isupper() and value.isidentifier() and (has_value or _is_option(last))
        is_own = is_of_names and (is_name or _is_own_name(last, argument))
        is_template = is_own or _IS_TEMPLATE.search(value) or (" " in value and is_placeholder(value))
        if _LIST.fullmatch(argument) or not is_template:
            words.append(argument)
            continue
        if _REST_OF_OPTIONS.search(value):
            continue
        name = option or (words[-1] if words and _is_option(words[-1]) else "")
        if _OF_PLACE.search(name) or (not name and _OF_PLACE.search(value)):
            path = _IN_VALUE.sub(lambda match: _made_path(match[0]), value)
            path = _made_path(value) if path == value else path
            words.append(f"{option}={path}" if option else path)
        elif name and not option:
            words.pop()
    return tuple(words)


def _is_own_name(before: str, argument: str) -> bool:
    """Return True for the name of its option, or for a word of it in capitals: `--lr=lr`, `algo=ALGO_NAME`."""
    option, has_value, value = argument.partition("=")
    option, value = (option, value) if has_value else (before, argument)
    option = option.lstrip("-").lower()
    words = re.split(r"[._-]+", option)
    return value == option or (value.isupper() and not set(words).isdisjoint(value.lower().split("_")))


def _is_option(word: str) -> bool:
    return re.fullmatch(r"--?[A-Za-z][\w.-]*", word) is not None


def _made_path(template: str) -> str:
    """Return the words of a template as a path: of `[path to imagenet]` `imagenet`, of `$DATA_PATH/a` `data/a`."""
    suffix = re.search(r"(?<=[\w>\]}])((?:\.[A-Za-z]\w*)+)$", template)
    stem = template[: suffix.start()] if suffix else template
    parts = [re.findall(r"[A-Za-z0-9]+", part.lower()) for part in re.split(r"[/\\]", stem)]
    kept = [[word for word in part if word not in _EMPTY][:_MOST_WORDS] for part in parts]
    return ("/".join("_".join(part) for part in kept if part) or "data") + (suffix[0] if suffix else "")


def typed_configs(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the paths that arguments give as a config: what a script reads there are settings, and no data.

    `-c` may stand for anything: what follows it is a config if its name ends as one's.
    """
    for before, word in zip(("", *arguments), arguments, strict=False):
        option, _, value = word.partition("=")
        named = word if CONFIG_OPTION.fullmatch(before) else value if CONFIG_OPTION.fullmatch(option) else ""
        if named and (before != "-c" or Path(named).suffix in ("", *_OF_SETTINGS)):
            yield named


def typed_commands(files: ProjectFiles) -> Iterator[TypedCommand]:
    """Yield the commands in documents, in the order of the files and of the lines in them, each once."""
    seen = set()
    documents = [path for path in files.paths if path.suffix in _DOCUMENTS]
    for path in sorted(documents, key=lambda path: (path.stem.lower() != "readme", len(path.parts), str(path))):
        for command in _commands(path, files):
            if command[:4] not in seen:
                seen.add(command[:4])
                yield command


def _commands(path: Path, files: ProjectFiles, rest: Sequence[str] = ()) -> Iterator[TypedCommand]:
    """Yield the commands of one document; of a shell script with the arguments `rest` only those that hand them on."""
    text = with_own_folder(files.text(path), path) if path.suffix == ".sh" else files.text(path)
    if not (_MAY_RUN.search(text) or any(name in text for name in files.commands)):
        return
    variables = _numbered(rest)
    loops: dict[str, list[str]] = {}
    folder, branches = path.parent, Branches()
    for number, line in _typed_lines(path, text):
        if path.suffix == ".sh" and (line.lstrip().startswith("#") or not _runs(line, branches, variables)):
            continue
        _assign(line, variables, loops)
        if path.suffix == ".sh":
            rest = _shifted(rest, line, variables)
        for step in _steps(line, variables, files.commands):
            for words in _words_of_loop(step, variables, loops, rest):
                command = _command(words, step, folder, path, number, files)
                if command is not None and (not rest or _has_one_of(rest, command.arguments)):
                    yield command
            words = _words(step, variables)
            if path.suffix != ".sh":
                yield from _of_shell_script(words, folder, path, number, files)
            if words[:1] == ["cd"] and len(words) == 2:
                folder = next((each for each in (folder / words[1], folder) if each.is_dir()), folder).resolve()


def _command(
    words: list[str], step: str, folder: Path, document: Path, line: int, files: ProjectFiles
) -> TypedCommand | None:
    """Return the run of a script that the words of a step are; None for another command, or one that asks for help."""
    declared = _declared_in(words, folder, document, line, files)
    if declared is not None:
        return declared
    run = _script_in(words)
    found = _found(run[1], folder, document, files) if run is not None else None
    if run is None or found is None or not _OF_HELP.isdisjoint(run[2]):
        return None
    if not run[2] and "..." in step.split():  # which stands for arguments that are left out
        return None
    ranks = _ranks(step[: step.find(run[1].rpartition("/")[2])])
    told = _PRECISION.search(" ".join(words))
    if (started := _started_by(found[0], run[2], folder, document, files)) is not None:
        return TypedCommand(started[0], "", started[2], started[1], document, line, 1)
    precision, variables = told[1] if told else "", tuple(_variables(words))
    arguments = tuple(
        os.path.relpath(each, found[1]) if f"{each}/".startswith(f"{document.parent}/") else each for each in run[2]
    )
    return TypedCommand(found[0], run[0], arguments, found[1], document, line, ranks, precision, variables=variables)


def _variables(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the environment variables with a value that stand before a command."""
    for word in takewhile(_VARIABLE_SET.match, dropwhile(lambda word: word in ("env", "export", "sudo"), words)):
        name, _, value = word.partition("=")
        if value and name not in _OF_MACHINE and not is_placeholder(value):
            yield name, value


def _ranks(launcher: str) -> int:
    """Return the number of processes that torchrun starts by the words before the script; 0 without torchrun."""
    return math.prod(map(int, _NUM_PROCESSES.findall(launcher))) if _TORCHRUN.search(launcher) is not None else 0


def _declared_in(
    words: Sequence[str], folder: Path, document: Path, line: int, files: ProjectFiles
) -> TypedCommand | None:
    """Return the run of a command that the project declares, if the words are one with arguments."""
    words = list(dropwhile(lambda word: word in (*RUNNERS, "run") or _VARIABLE_SET.match(word), words))
    name, arguments = "".join(words[:1]), tuple(words[1:])
    called = files.commands.get(name, "")
    place = called.partition(":")[0].replace(".", "/")
    names = (f"{place}.py", f"{place}/__init__.py") if called and arguments and _OF_HELP.isdisjoint(arguments) else ()
    found = next(filter(None, (_found(each, folder, document, files) for each in names)), None)
    return None if found is None else TypedCommand(found[0], called, arguments, folder, document, line, name=name)


def _started_by(
    launcher: Path, arguments: Sequence[str], folder: Path, document: Path, files: ProjectFiles
) -> tuple[Path, Path, tuple[str, ...]] | None:
    """Return the script that a launcher of the project's own starts, its folder, and what it is given.

    The launcher's own options, such as `--nodes 4`, are not for the script. None if it starts none.
    """
    first = next(iter(arguments), "")
    started = _found(first, folder, document, files) if first.endswith(".py") else None
    if started is None or started[0] == launcher or "__main__" not in files.text(started[0]):  # a config, as mmcv's
        return None
    own, text = files.text(launcher), files.text(started[0])
    given: list[str] = []
    is_own = False
    for word in arguments[1:]:
        if word.startswith("--"):
            is_own = f'"{word}"' in own and f'"{word}"' not in text
        if not is_own:
            given.append(word)
    return *started, tuple(given)


def _runs(line: str, branches: Branches, variables: dict[str, str]) -> bool:
    """Return True if a line of a shell script runs, by the `if` around it."""
    always = branches.run
    for command in commands_of(line) if _OF_BRANCHES.match(line) else ():
        with suppress(ValueError):  # quotes that do not match
            branches.read(shlex.split(_with_values(command, variables)))
        always = always and branches.run
    return always and branches.run


def _has_one_of(given: Sequence[str], arguments: Sequence[str]) -> bool:
    return any(each in word for each in given for word in arguments)


def _shifted(rest: Sequence[str], line: str, variables: dict[str, str]) -> Sequence[str]:
    """Return the arguments that a shell script still has after a line; the variables get their new numbers."""
    if line.split() != ["shift"]:
        return rest
    variables |= _numbered(rest[1:])
    return rest[1:]


def _numbered(arguments: Sequence[str]) -> dict[str, str]:
    return {str(number): text for number, text in enumerate(arguments, 1)}


def _steps(line: str, variables: dict[str, str], commands: Collection[str]) -> Iterator[str]:
    """Yield the commands of a line that run something or change the folder."""
    if _OF_VARIABLE.match(line):
        line = _with_values(_OF_VARIABLE.sub("", line, count=1), variables).strip("\"'")
    elif _STARTS_VARIABLE.search(line):
        line = _with_values(line, variables)
    if any(each in line for each in (*_OF_COMMANDS, *commands)):  # which is found much faster than the pattern
        steps = _STEPS.split(_CUT.sub("", _OPTIONAL.sub("", line)))
        own = (any(each in step for each in commands) for step in steps)
        yield from (s for s, is_own in zip(steps, own, strict=True) if is_own or _MAY_RUN.search(s) or s[:3] == "cd ")


def _of_shell_script(
    words: Sequence[str], folder: Path, document: Path, line: int, files: ProjectFiles
) -> Iterator[TypedCommand]:
    """Yield the commands of a shell script that a document's line runs; with arguments, those to which it hands them.

    An argument may stand for a folder, such as `${DATAPATH}`.
    """
    start = next((i for i, word in enumerate(words[:2]) if word.endswith(".sh")), None)
    found = None if start is None else _found(words[start].removeprefix("./"), folder, document, files)
    if start is not None and found is not None:
        for each in _commands(found[0], files, concrete(words[start + 1 :])):
            yield each._replace(document=document, line=line)


def _typed_lines(path: Path, text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that may be typed, with their numbers: those of code in a document."""
    number, in_code = 1, path.suffix == ".sh"
    if not in_code and "<pre" in text:
        text = _PREFORMATTED.sub(lambda match: "    " + html.unescape(match[1]).replace("\n", "\n    "), text)
    text = _CONTINUED.sub("\1", text)
    if path.suffix == ".sh":
        text = _QUOTED.sub(lambda match: match[0].replace("\n", "\1"), text)
        text = _LISTED.sub(lambda match: _COMMENT.sub("", match[0]).replace("\n", "\1"), text)
    for logical in text.split("\n"):
        joined = logical.replace("\1", " ")
        line = _PROMPT.sub("", joined)
        if path.suffix != ".sh" and _FENCE.match(line):
            in_code = not in_code
        elif in_code or line != joined or line.startswith((" ", "\t") if path.suffix == ".rst" else "    "):
            yield number, line
        else:
            yield from ((number, span) for span in _IN_LINE.findall(line))
        number += 1 + logical.count("\1")


def _assign(line: str, variables: dict[str, str], loops: dict[str, list[str]]) -> None:
    """Take over what a shell script's line gives a variable, unless that depends on what nobody knows.

    Of a loop's variable `variables` gets the first value and `loops` all.
    """
    if match := _ASSIGNED.match(line):
        before, is_list = variables.get(match[1], "") if match[2] else "", match[3].startswith("(")
        value = _with_values(match[3].strip("\"'"), variables)
        value = f"{before} {value[1:-1]}".strip() if is_list else before + value
        if value and (" --" in value or not _COMPUTED.search(value)):  # of a command other parts are known
            variables[match[1]] = value
            loops.pop(match[1], None)
    elif (match := _COUNTED.match(line)) and variables.get(match[1], "").isdigit():
        variables[match[1]] = str(int(variables[match[1]]) + int(match[2]))
    elif match := _LOOPED.match(line):
        values = [each.strip("\"'") for each in _with_values(match[2], variables).split()]
        if values and not _COMPUTED.search("".join(values)):
            variables[match[1]], loops[match[1]] = values[0], values[:_MOST_OF_LOOP]


def _words_of_loop(
    step: str, variables: dict[str, str], loops: dict[str, list[str]], rest: Sequence[str] = ()
) -> Iterator[list[str]]:
    """Yield the words of a command: once for each value of the first variable of a loop that it has."""
    name = next((match[1] or match[3] for match in _VARIABLE.finditer(step) if (match[1] or match[3]) in loops), None)
    for value in [None] if name is None else loops[name]:
        yield _words(step, variables if name is None or value is None else {**variables, name: value}, rest)


def _with_values(text: str, variables: dict[str, str]) -> str:
    def value(match: re.Match[str]) -> str:
        return variables.get(match[1] or match[3], match[2] if match[2] else match[0])

    measured = _LENGTH.sub(lambda match: str(len(variables[match[1]])) if match[1] in variables else match[0], text)
    return computed(_VARIABLE.sub(value, measured), variables)


def _words(step: str, variables: dict[str, str], rest: Sequence[str] = ()) -> list[str]:
    given = _REST.sub(lambda match: shlex.join(rest[max(int(match[1] or 1) - 1, 0) :]), step)
    given = _ALTERNATIVES.sub(lambda match: match[1] or "", given)
    text = _with_values(given, variables)
    text = _BRACKETED.sub(lambda match: f"'{match[0]}'" if " " in match[0] and "'" not in match[0] else match[0], text)
    if _QUOTING.search(text) is None:  # what `shlex.split` then does, in a tenth of its time
        words = _PLAIN_WORDS.findall(text)
    else:
        try:
            words = shlex.split(text)
        except ValueError:  # a quote that another line ends
            words = text.split()
    return [word for word in words if word not in ("...", "\\")]  # a continuation of nothing, too


def _script_in(words: list[str]) -> tuple[str, str, tuple[str, ...]] | None:
    """Return the module, the place of the script and its arguments, if the words run one."""
    start = next((i for i, word in enumerate(words) if _PYTHON.search(word)), None)
    if start is None and words[1:2] == ["run"] and words[0] in RUNNERS:
        start = 1
    if start is None:
        # A list of files has their purposes behind their names.
        is_typed = words[:1] and (words[0].startswith("./") or (len(words) > 1 and _ARGUMENT.search(words[1])))
        is_own = is_typed and words[0].endswith(".py")
        start = -1 if is_own else None
    if start is None:
        return None
    for i, word in enumerate(words[start + 1 :], start + 1):
        module = words[i + 1] if word == "-m" and i + 1 < len(words) else ""
        if module and module.partition(".")[0] not in _LAUNCHER_MODULES:
            return module, f"{module.replace('.', '/')}.py", tuple(words[i + 2 :])
        if word.endswith(".py") and "=" not in word:
            return "", word, tuple(words[i + 1 :])
    return None


def _found(place: str, folder: Path, document: Path, files: ProjectFiles) -> tuple[Path, Path] | None:
    """Return the script at a place, and the folder that it counts from.

    That is `folder`, or one above the document, or else the only one in the project that has such a file. A shell
    script may have moved to another one.
    """
    above = (each for each in document.parents if each.is_relative_to(files.root))
    names = [Path(place), Path(place).with_suffix("") / "__main__.py"]
    for each in dict.fromkeys((folder, *above)):
        for name in names:
            if (file := each / name).is_file():
                return file.resolve(), each
    for parts in (each.parts for each in names):
        alike = [path for path in files.paths if path.parts[-len(parts) :] == parts]
        if len(alike) == 1:
            return alike[0], alike[0].parents[len(parts) - 1]
    named = [path for path in files.paths if path.suffix == ".sh" and path.name == Path(place).name]
    return (named[0], files.root) if len(named) == 1 else None
