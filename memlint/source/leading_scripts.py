"""Scripts of a project that lead to one of its files, as commands, in the order in which a person would try them."""

import ast
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain, islice, takewhile
from pathlib import Path
from typing import Any, NamedTuple

from memlint.base import cache
from memlint.source.completed_commands import Completion, is_config
from memlint.source.files import Unreadable
from memlint.source.model_makers import makers
from memlint.source.option_texts import choice, has_option, model_option, with_model
from memlint.source.options import Option, options_in, typed
from memlint.source.program_files import Project
from memlint.source.project_files import ProjectFiles
from memlint.source.scripts import training_at_import
from memlint.source.shown_programs import shown_programs
from memlint.source.text import Source, dotted_name
from memlint.source.typed_commands import TypedCommand, concrete, is_placeholder, typed_commands

_KIND = "leading-scripts"
_MOST_EXAMINED = 16
"""Scripts whose imports are followed, the likeliest first."""
_MOST, _MOST_OF_ONE = 6, 2
"""Number of commands that are given, and of those with one script."""
_MOST_UNCERTAIN = 2
_MOST_BEFORE_SHOWN, _MOST_SHOWN = 2, 2
"""Scripts that train which come before programs that documents show, and the number of these."""
_TRAINS = re.compile(r"(.*[_-])?(pre)?(train|training|trainer|main|run|finetune|fit|tune)(?![a-z]).*", re.IGNORECASE)
_TRAINS_FURTHER = re.compile(r"fine[_-]?tun|lin(ear)?[_-]?prob|transfer", re.IGNORECASE)
"""Parts of the names of those that train what another one has trained before."""
_OTHERWISE = re.compile(
    r"(.*[_-])?(eval(uate|uation|uator)?|val(idate)?|(?<!cross.)validation|test(s|ing)?|infer(ence)?|predict(ion)?|sample(r)?|sampling|demo|app|"
    r"generat(e|ion)|synthesi[sz]e|agent|play|distill(ation)?|export|convert(er)?|benchmark|bench|profile|visuali[sz]e|plot|examples?|"
    r"submission|plan|prepare|preprocess|download|server?|deploy|setup|conftest|cache|calc(ulate)?|compute|metrics?|"
    r"extract|create|average|webui|render(er|ing)?|flops|params|latency|speed|throughput)(?![a-z]).*",
    re.IGNORECASE,
)
"""Stems of scripts that do something else with a model than train it, or nothing."""
_EVALUATES = re.compile(
    r"--?(test|eval|evaluate|test[_-]only|eval[_-]only|inference|throughput)(=true)?|--?(inference|demo|predict)[_-]\w+"
    r"|\w*(eval|test)(_only)?=true|(--?)?(mode|task)=(test|eval|infer|predict|valid)\w*",
    re.IGNORECASE,
)
"""Arguments with which a training script does not train."""
_SETS_TRAINING = re.compile(r"(?<![a-zA-Z])(epochs|lr|learning[_-]rate)(?![a-zA-Z])")
"""Settings of training among arguments: `run_benchmark.py` with them trains."""
_OPTIM = re.compile(r"optim(?!\w)(?<!\woptim)")
_OF_TRAINING = re.compile(r"(?<![a-zA-Z])[Tt]rain(?:er|ers|ing)?(?![a-zA-Z])")
_TRAINS_ITSELF = re.compile(r"\.backward\([\s\S]*opt\w*\.step\(|\.fit\(")
_EXAMPLE_TRAINS = re.compile(r"\.backward\(|\.fit\(|[Tt]rainer\b")
"""Code of scripts, and of shorter examples, that trains a model."""
_WORDS_OF_SCRIPTS, _ENDS_OF_TRAINERS = ("backward", "fit", "optim", "__main__"), ("Trainer",)
"""Words of which a script that does something has one."""
_HYDRA, _TARGET = ("hydra", "omegaconf"), re.compile(r"\b_target_\s*:\s*[\"']?([\w.]+)\.\w+")
"""Packages that make the objects which configs name, and such a name with its module: `_target_: agents.Trainer`."""
_READS_CONFIGS = frozenset(
    (
        *_HYDRA,
        "yaml",
        "lightning",
        "pytorch_lightning",
        "jsonargparse",
        "toml",
        "mmengine",
        "mmcv",
        "gin",
        "hyperpyyaml",
    )
)
"""Packages by which a program may find a class whose name is in a config."""
_CONFIGS = frozenset((".yaml", ".yml", ".py"))
_LOOKS_UP = re.compile(r"__dict__\[|\bgetattr\(|import_module\(|\bcreate_model\(|\beval\(|globals\(\)\[")
"""Ways in which a script finds a model by a text."""
_GENERIC = frozenset(("model", "models", "net", "network", "main", "train", "base", "layers", "utils", "modules"))
_OF_PROJECTS = ("README.md", "README.rst", "setup.py", "pyproject.toml", "requirements.txt")
"""Names of files in the folder from which a project's scripts are run."""


class LeadingScript(NamedTuple):
    """A command that may build what the file defines, and how surely."""

    command: TypedCommand
    is_certain: bool
    """True if its imports lead to the file; False if only what it decides at run time can."""
    trains: bool
    """False if its name, or an argument, says that it does something else than train."""


class LeadingScripts:
    """Search in one project for the scripts that lead to one of its files."""

    def __init__(self, file: Path, root: Path, *, keep: bool = True) -> None:
        """`file` and `root` are absolute; with `keep` what is found is kept for the next time."""
        self.file, self.root, self._keep = file, root, keep
        self._files = ProjectFiles(root, file, keeps_index=keep)
        self._project = Project(root, cache=keep)
        self._defaults: dict[Path, dict[str, Option]] = {}
        self._folders: dict[Path, Path] = {}
        self._leading: dict[str | Path, bool] = {}
        self._completion = Completion(self._files, lambda: self._configs)

    @cached_property
    def commands(self) -> tuple[LeadingScript, ...]:
        """The commands, the likeliest first."""
        if not self._keep:
            return tuple(islice(self._found(), _MOST))
        commands = self.kept
        if commands is None:
            commands = tuple(islice(self._found(), _MOST))
            cache.write(self.root, _KIND, str(self.file), self._key, {"commands": list(map(_encoded, commands))})
        return commands

    @cached_property
    def kept(self) -> tuple[LeadingScript, ...] | None:
        """The commands that were found before in the project as it is now; None if nothing is kept of that."""
        return cache.read(self.root, _KIND, str(self.file), self._key, _decoded)

    @cached_property
    def _key(self) -> str:
        return cache.key_of(*self._state())

    def _state(self) -> Iterator[str]:
        """Yield what tells the files of the project, as they are now, from those of another time."""
        for name in sorted(self._files.names):
            with suppress(OSError):
                status = os.stat(name)  # noqa: PTH116 -- thousands of them
                yield f"{name} {status.st_mtime_ns} {status.st_size}"

    def _found(self) -> Iterator[LeadingScript]:
        scripts: dict[Path, list[TypedCommand]] = {}
        typed = list(map(self._completion.completed, self._all()))
        for command in sorted([*typed, *self._choosing(typed), *self._configured(typed)], key=self._order):
            scripts.setdefault(command.script, []).append(command)
        later: list[LeadingScript] = []
        trainers = self._trainers(scripts, later)
        shown = (
            LeadingScript(each, is_certain=True, trains=_EXAMPLE_TRAINS.search(each.code) is not None)
            for each in shown_programs(self._files, self._names - _GENERIC, self._is_imported_by)
        )
        first, examples = list(islice(trainers, _MOST_BEFORE_SHOWN)), list(islice(shown, _MOST_SHOWN))
        only_shows = not any(each.trains for each in examples)
        is_typed = any(each.command.document is not None for each in first)
        is_first = any(map(self._is_about_file, first)) or (is_typed and only_shows)
        typed_later = (each for each in later if each.trains and each.command.document is not None)
        likely = list(islice(typed_later, _MOST_UNCERTAIN)) if examples and only_shows and not first else []
        yield from chain(first, likely, examples) if is_first else chain(likely, examples, first)
        yield from trainers
        later = [each for each in later if each not in likely]
        later.sort(key=lambda each: (not each.trains, not each.is_certain))
        # Of those that only may lead there few are asked: one that surely does, and evaluates, comes before the others.
        yield from sorted(later, key=lambda each: not each.is_certain and each not in later[:_MOST_UNCERTAIN])

    def _is_about_file(self, found: LeadingScript) -> bool:
        """Return True if a script, or a config of the project, names what the file defines."""
        return bool(self._configs) or self._files.mentions(found.command.script, self._names - _GENERIC)

    def _trainers(
        self, scripts: Mapping[Path, Sequence[TypedCommand]], others: list[LeadingScript]
    ) -> Iterator[LeadingScript]:
        """Yield the commands that train and surely lead to the file; `others` gets those that may lead there."""
        for script in list(scripts)[:_MOST_EXAMINED]:
            leads = self._leads(script, is_typed=any(each.document for each in scripts[script]))
            configured = [] if leads else list(filter(self._has_config_of_file, scripts[script]))
            leads = True if configured else leads
            for command in (configured or scripts[script])[:_MOST_OF_ONE] if leads is not False else ():
                found = LeadingScript(command, bool(leads), not self._evaluates(command))
                if found.is_certain and found.trains:
                    yield found
                else:
                    others.append(found)

    def _all(self) -> Iterator[TypedCommand]:
        """Yield all commands that documents type, and scripts without any that do something when they are run."""
        typed = list(typed_commands(self._files))
        yield from typed
        known = {each.script for each in typed}
        for path in self._files.paths:
            if path.suffix != ".py" or path in known or self._is_test(path):
                continue
            is_named = _OTHERWISE.fullmatch(path.stem) or _TRAINS.fullmatch(path.stem)
            if not (is_named or self._files.may_mention(path, _WORDS_OF_SCRIPTS, _ENDS_OF_TRAINERS)):
                continue
            text = self._files.text(path)
            trains = _TRAINS_ITSELF.search(text) is not None if path == self.file else _may_train(text)
            if trains or (path != self.file and is_named and self._does_something(path)):
                yield TypedCommand(path, "", (), self._folder(path))

    def _is_test(self, script: Path) -> bool:
        """Return True for a script in a folder of tests, whose sizes are small on purpose, unless the file is there."""
        folders = {"test", "tests"}.intersection(script.relative_to(self.root).parts[:-1])
        return bool(folders.difference(self.file.relative_to(self.root).parts))

    def _choosing(self, typed: Sequence[TypedCommand]) -> Iterator[TypedCommand]:
        """Yield the first command of each script with an option that chooses what the file defines, by its name."""
        seen = {each.script for each in typed if self._names_target(each)}
        for command in typed:
            if command.script in seen or command.script == self.file:
                continue
            seen.add(command.script)
            text = self._files.text(command.script)
            option, added, default = model_option(text)
            if not option:
                continue
            of_file = default != "" and self._files.mentions(self.file, [default])
            chosen = self._registered(added) or (None if of_file else choice(added, self._name_in(text)))
            is_default = chosen == default and option not in command.arguments
            if chosen is not None and not is_default:
                yield command._replace(arguments=with_model(command.arguments, option, chosen))

    def _configured(self, typed: Sequence[TypedCommand]) -> Iterator[TypedCommand]:
        """Yield the first command of each script with a config that names what the file defines, in place of another.

        The other one is a config of the project, too, and names nothing of the file.
        """
        seen: set[Path] = set()
        for command in typed:
            places = [i for i, each in enumerate(command.arguments) if (command.folder / each).suffix in _CONFIGS]
            place = next((i for i in places if (command.folder / command.arguments[i]).is_file()), None)
            if place is None or command.script in seen or self._evaluates(command):
                continue
            config = (command.folder / command.arguments[place]).resolve()
            beside = [each for each in self._configs if each.is_relative_to(config.parent.parent)]
            alike = [each for each in beside if each.suffix == config.suffix]
            own = min(alike, key=partial(self._unlikeness, command), default=None)
            seen.add(command.script)
            if own is not None and config not in self._configs:
                arguments = list(command.arguments)
                arguments[place] = os.path.relpath(own, command.folder)
                yield command._replace(arguments=tuple(arguments))

    def _unlikeness(self, command: TypedCommand, config: Path) -> tuple[int, bool]:
        """Return how little a config has of a script's name in its own, and if its folder has another than the file."""
        words = set(re.split(r"[^a-z0-9]+", config.stem.lower())).intersection(_stem(command).lower().split("_"))
        return -len(words - _GENERIC), config.parent.name not in self._names.union(self._keys)

    def _registered(self, added: str) -> str | None:
        """Return the choice of an option under which a table of the project has what the file defines."""
        return next((key for key in self._keys if re.search(rf"[\"']{re.escape(key)}[\"']", added)), None)

    @cached_property
    def _keys(self) -> tuple[str, ...]:
        """The keys under which tables, or branches, of the project's other files have what the file defines."""
        names = "|".join(map(re.escape, sorted(self._names - {""})))
        made = rf"(?:\w+\.)*(?:{names})(?!\w)"
        of_tables = re.findall(rf"(?<!== )[\"']([\w./-]+)[\"']\s*:\s*{made}", self._quoting)
        branch = rf"==\s*[\"']([\w./-]+)[\"']\s*:\s*\n\s+(?:\w+\s*=|return)\s*{made}\("
        return (*of_tables, *re.findall(branch, self._quoting))

    def _name_in(self, text: str) -> str | None:
        """Return the name by which a script that looks models up by a text may find what the file defines."""
        names = sorted(self._names - {""}, key=lambda each: (each == self.file.stem, "base" not in each, each))
        names = [each for each in names if each.lower() not in _GENERIC]
        quoted = (each for each in names if re.search(rf"[\"']{re.escape(each)}[\"']", self._quoting))
        chosen = next(iter(self._keys), None) or next(quoted, None)
        return chosen or (next(iter(names), None) if _LOOKS_UP.search(text) else None)

    @cached_property
    def _quoting(self) -> str:
        """The text of the project's other files of Python that have the name of the file or of one of its classes."""
        paths = (path for path in self._files.paths if path.suffix == ".py" and path != self.file)
        return "\n".join(self._files.text(path) for path in paths if self._files.mentions(path, self._names))

    def _folder(self, script: Path) -> Path:
        """Return the directory from which people start a script: that of the README above it, or the project's."""
        if script.parent not in self._folders:
            above = [folder for folder in script.parents if folder.is_relative_to(self.root)]
            readme = (folder for folder in above if any((folder / name).is_file() for name in _OF_PROJECTS))
            self._folders[script.parent] = next(readme, self.root)
        return self._folders[script.parent]

    def _order(self, command: TypedCommand) -> tuple[object, ...]:
        is_own = command.script == self.file and _TRAINS_ITSELF.search(self._files.text(self.file)) is not None
        is_trial = command.script == self.file and not is_own
        may_train = _may_train(self._files.text(command.script))
        steps = len(Path(os.path.relpath(command.script, self.file.parent)).parts)
        return (
            is_trial or (not is_own and self._evaluates(command)),
            not is_own,
            self._is_of_another_part(command.script),
            self._num_unknown(command),
            not self._names_target(command),
            model_option(self._files.text(command.script))[2] not in self._names,
            command.document is None or not may_train,
            _TRAINS.fullmatch(_stem(command)) is None,
            not self._is_named_after_target(command),
            not may_train,
            command.document is None,
            command.document is not None and command.document.suffix == ".sh",
            _TRAINS_FURTHER.search(_stem(command)) is not None,
            steps,
            command.num_placeholders,
            self._num_unusual(command),
        )

    def _evaluates(self, command: TypedCommand) -> bool:
        """Return True if a script's name or arguments say that it trains nothing, or all that it does with a model."""
        if command.name:
            return _evaluates(command)
        text = self._files.text(command.script)
        verb, _, noun = next(iter(command.arguments), "").partition(".")
        if verb.isidentifier() and _OTHERWISE.fullmatch(verb) is not None and (not noun or noun.isidentifier()):
            return True
        if noun.isidentifier() and _TRAINS.fullmatch(verb) is not None:  # `train.model`, of a program with runners
            return False
        place = command.document or command.script
        if place.suffix == ".sh" and "train" not in place.stem.lower() and _OTHERWISE.fullmatch(place.stem) is not None:
            return True
        only_shows = not (_may_train(text) or "CLI(" in text or _OF_TRAINING.search(text))
        only_shows = only_shows and (".eval()" in text or _TRAINS.fullmatch(_stem(command)) is None)
        return _evaluates(command) or only_shows

    def _num_unknown(self, command: TypedCommand) -> int:
        """Return the number of options that the script does not have (any more)."""
        return sum(
            not has_option(self._files.text(command.script), command, each)
            for each in command.arguments
            if each.startswith("--")
        )

    def _num_unusual(self, command: TypedCommand) -> int:
        """The number of options with another value than the script's default: shell scripts have many commands."""
        if command.document is None or command.document.suffix != ".sh":
            return 0
        if command.script not in self._defaults:
            with suppress(Unreadable):
                source = Source.from_text(self._files.text(command.script), str(command.script))
                self._defaults[command.script] = options_in(source, self.root)
        defaults = self._defaults.get(command.script, {})
        own = typed(defaults, command.arguments)
        return sum(own[name].value != defaults[name].value for name in own)

    def _is_of_another_part(self, script: Path) -> bool:
        """Return True if the file is in a project within the project, and the script is not."""
        return any(not script.is_relative_to(folder) for folder in self._inner_projects)

    @cached_property
    def _inner_projects(self) -> tuple[Path, ...]:
        """The folders around the file, below the project's, that have a README or requirements of their own."""
        inner = (folder for folder in self.file.parents if folder != self.root and folder.is_relative_to(self.root))
        return tuple(folder for folder in inner if any((folder / name).is_file() for name in _OF_PROJECTS))

    def _names_target(self, command: TypedCommand) -> bool:
        """Return True if an argument says the name of the file or of one of its classes, and not just the project's.

        So does one that is a config with such a name in it.
        """
        if any((command.folder / each).resolve() in self._configs for each in command.arguments):
            return True
        values = (each.partition("=")[2] if each.startswith("-") else each for each in command.arguments)
        pairs = ((word, each) for each in values for word in re.split(r"[^A-Za-z0-9_]+", each))
        words = {word for word, each in pairs if word == each or word.lower() not in self._of_project}
        return not words.isdisjoint(self._names.union(self._keys))

    def _is_named_after_target(self, command: TypedCommand) -> bool:
        """Return True if the script has a name of the file or one of its classes in its own: `train_vae.py`."""
        words = set(re.split(r"[^a-z0-9]+", _stem(command).lower())) - self._of_project
        return not words.isdisjoint({name.lower() for name in self._names} - _GENERIC)

    @cached_property
    def _of_project(self) -> frozenset[str]:
        """Words of the project's name, which tell none of its scripts from the others."""
        return frozenset(re.split(r"[^a-z0-9]+", self.root.name.lower()))

    @cached_property
    def _names(self) -> frozenset[str]:
        """The names that stand for the file: its own, and those of its classes and of the functions that give one."""
        return frozenset({self.file.stem, *self._classes, *makers(self._tree, self._classes)})

    @cached_property
    def _tree(self) -> ast.Module:
        try:
            return Source.from_text(self._files.text(self.file), str(self.file)).tree
        except Unreadable:
            return ast.Module([], [])

    def _leads(self, script: Path, *, is_typed: bool) -> bool | None:
        """Return True if the script's imports lead to the file, None if nobody can say without running it.

        What a document types does something.
        """
        if not (is_typed or self._does_something(script)):
            return False
        program = self._project.parts([script], to_the_end=True)
        if self.file in program.files or (not program.words.isdisjoint(_HYDRA) and self._is_in_targets):
            return True
        by_config = self._configs and not program.words.isdisjoint(_READS_CONFIGS)
        return None if program.undecided or by_config else False

    def _does_something(self, script: Path) -> bool:
        """Return True if work is done when it is run, and not only when it is imported and called."""
        text = self._files.text(script)
        if "__main__" in text:
            return True
        with suppress(Unreadable):
            source = Source.from_text(text, str(script))
            body = source.tree.body
            own = {each.name for each in body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
            begun = (
                each.value.func for each in body if isinstance(each, ast.Expr) and isinstance(each.value, ast.Call)
            )
            works = any(isinstance(each, ast.For | ast.While | ast.With) for each in body)
            return works or training_at_import(source) is not None or any(dotted_name(each) in own for each in begun)
        return False

    def _has_config_of_file(self, command: TypedCommand) -> bool:
        """Return True if an argument is a config in Python, which imports the file."""
        values = (each.rpartition("=")[2] for each in command.arguments if each.endswith(".py"))
        places = [(command.folder / each).resolve() for each in values]
        return any(each in self._files.paths and self._leads_by(each) for each in places)

    def _is_imported_by(self, program: Source) -> bool:
        """Return True if the imports of a program in a document lead to the file."""
        froms = [each.module or "" for each in ast.walk(program.tree) if isinstance(each, ast.ImportFrom)]
        names = {each for name in (*program.imports.values(), *froms) for each in (name, name.rpartition(".")[0])}
        modules, folder = sorted(names - {""}), Path(program.path).parent
        beside = (folder.joinpath(*name.split(".")).with_suffix(".py") for name in modules)
        starts: list[str | Path] = [*modules, *(path for path in beside if path in self._files.paths)]
        if "hub" in program.words:
            starts.append(self.root / "hubconf.py")  # in which `torch.hub.load` finds the models of a project
        return any(map(self._leads_by, starts))

    def _leads_by(self, start: str | Path) -> bool:
        """Return True if a module, or a file of the project, leads to the file by its imports."""
        if start not in self._leading:
            files, modules = ((), (start,)) if isinstance(start, str) else ((start,), ())
            self._leading[start] = self.file in self._project.parts(files, modules, to_the_end=True).files
        return self._leading[start]

    @cached_property
    def _is_in_targets(self) -> bool:
        """True if a module of which a config makes something, such as the agent of a run, leads to the file."""
        yaml = (path for path in self._files.paths if path.suffix in (".yaml", ".yml"))
        modules = sorted({each for path in yaml for each in _TARGET.findall(self._files.text(path))})
        return self.file in self._project.parts((), modules, to_the_end=True).files

    @cached_property
    def _configs(self) -> tuple[Path, ...]:
        """Configs of the project that name a class of the file, or a function that gives one, the nearest first.

        So do those that name its module by the folder and the one above, as `model: unet.small` does, and those with
        a key under which the project has it, as a value of its own.
        """
        names = sorted(self._classes.union(makers(self._tree, self._classes)))
        of_classes = rf"(?<![\w./-])(?:[\w.]*\.)?(?:{'|'.join(map(re.escape, names))})(?!\w)"
        of_module = (
            rf"(?<![\w.])(?:\w+\.)*{re.escape('.'.join(self.file.parts[-3:-1]))}(?:\.{self.file.stem})?(?![\w.])"
        )
        of_keys = rf"(?m::[ \t]*[\"']?(?:{'|'.join(map(re.escape, self._keys))})[\"']?[ \t]*$)"
        pattern = re.compile("|".join((of_classes, of_module, *([of_keys] if self._keys else ()))))
        yaml = (path for path in self._files.paths if path.suffix in (".yaml", ".yml"))
        found = [path for path in yaml if names and pattern.search(self._files.text(path))]
        quoted = re.compile(rf"[\"'](?:{'|'.join(map(re.escape, names))})[\"']")
        programs = (path for path in self._files.paths if path.suffix == ".py" and is_config(str(path)))
        return (*found, *(path for path in programs if names and quoted.search(self._files.text(path))))

    @cached_property
    def _classes(self) -> frozenset[str]:
        return frozenset(each.name for each in self._tree.body if isinstance(each, ast.ClassDef))


def _may_train(text: str) -> bool:
    """Return True if code calls something of training: one pattern with alternatives would take 50 times as long."""
    return any(call in text for call in (".backward(", ".fit(", "Trainer(")) or _OPTIM.search(text) is not None


def _stem(command: TypedCommand) -> str:
    """Return the name that says what a command does: of one that the project declares with its verbs."""
    if command.name:
        return "_".join((command.name, *takewhile(str.isidentifier, command.arguments)))
    return command.script.stem if command.script.stem != "__main__" else command.script.parent.name


def _evaluates(command: TypedCommand) -> bool:
    if command.name:
        return _TRAINS.fullmatch(_stem(command)) is None
    stem = _stem(command)
    runs = _TRAINS.fullmatch(stem) is not None and any(map(_SETS_TRAINING.search, command.arguments))
    is_otherwise = _OTHERWISE.fullmatch(stem) is not None and not runs
    return is_otherwise or any(map(_EVALUATES.fullmatch, command.arguments))


def _encoded(found: LeadingScript) -> list[object]:
    command = found.command
    places = [str(command.script), str(command.folder), command.document and str(command.document)]
    launch = [command.line, command.ranks, command.precision, command.name, command.code, command.variables]
    return [*places, command.module, command.arguments, launch, found.is_certain, found.trains]


def _decoded(entry: Any) -> tuple[LeadingScript, ...]:
    return tuple(
        LeadingScript(
            TypedCommand(
                *(Path(script), module, tuple(words), Path(folder), document and Path(document)),
                *(*launch, tuple((name, value) for name, value in variables)),
            ),
            *known,
        )
        for script, folder, document, module, words, (*launch, variables), *known in entry["commands"]
    )


def shown_as(command: TypedCommand) -> str:
    """Return the script, by its path from the current directory, and its arguments."""
    if command.code:
        return f"{os.path.relpath(command.script)}:{command.line}"
    start = command.start if command.module else (os.path.relpath(command.script),)
    return shlex.join((*start, *concrete(command.arguments)))


def typed_as(command: TypedCommand) -> str:
    """Return the line to type in the current directory that runs a command with memlint."""
    here = Path.cwd()
    data = ("--fake-data",) if any(is_placeholder(each) for each in command.arguments) else ()
    ranks = ("--ranks", str(command.ranks)) if command.ranks else ()
    launcher = ("accelerate", "launch", "--mixed_precision", command.precision) if command.precision else ()
    line = shlex.join(("memlint", "run", *ranks, *data, *launcher, *command.start, *concrete(command.arguments)))
    line = " ".join((*(f"{name}={shlex.quote(value)}" for name, value in command.variables), line))
    return line if command.folder == here else f"cd {shlex.quote(os.path.relpath(command.folder, here))} && {line}"


def likeliest_command(file: Path, root: Path, *, keep: bool = True) -> str:
    """Return the line that most likely runs what `file` defines, as `memlint run` of a script; empty without one."""
    commands = (each.command for each in LeadingScripts(file, root, keep=keep).commands)
    return next((typed_as(each) for each in commands if not each.code), "")


def training_command(root: Path) -> str:
    """Return the line that runs the training that a document of the project types first; empty without one."""
    files = ProjectFiles(root, root / "train.py")
    typed = sorted(typed_commands(files), key=lambda each: (each.num_placeholders, each.document != root / "README.md"))
    named = (each for each in typed if not _evaluates(each))
    trains = (each for each in named if each.name or _may_train(files.text(each.script)))
    return next(map(typed_as, trains), "")
