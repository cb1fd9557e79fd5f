"""`memlint run`: one script, checked as any other target is."""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memlint.base.errors import TargetError
from memlint.base.temporary import exchange_folder
from memlint.commands.check.check import Checked, check_resolved
from memlint.commands.check.notebooks import is_notebook, written_notebook
from memlint.commands.check.targets import CheckOptions, CheckTargets
from memlint.commands.parts import OnPart, nobody
from memlint.commands.targets import of_scripts
from memlint.config import find_settings, override
from memlint.source.console_scripts import folder_of_package
from memlint.targets.launchers import Launch, assignments_before, fields_of, is_launch, launch_of, launch_of_module
from memlint.targets.script import Script
from memlint.targets.shell_scripts import launch_in, shell_script


def started_by(words: Sequence[str], *, is_module: bool) -> dict[str, Any]:
    """Return the fields of the Script that a command line starts: of a script itself, a launcher, or a shell script.

    With `is_module`, the first word is a module. Raises MemlintError if it starts none.
    """
    first, *arguments = words
    launch: Launch | None = None
    variables, command = assignments_before(words)
    if is_module:
        launch = launch_of_module(first, arguments)
    elif (script := shell_script(command)) is not None:
        launch = launch_in(Path(script[0]), script[1:], variables)
    elif is_launch(words):
        launch = launch_of(words)
    if launch is None:
        path, module = ("", first) if is_module else (first, "")
        return {"name": module or Path(path).stem, "path": path, "module": module, "arguments": tuple(arguments)}
    return {
        **fields_of(launch),
        "path": launch.path and str(Path(launch.folder, launch.path)),
        "folder": "" if launch.folder == "." else str(Path(launch.folder).resolve()),
        "variables": tuple(launch.variables.items()),
        "typed": launch.words,
    }


def run(
    script: Script,
    settings: Mapping[str, object],
    options: CheckOptions,
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
    on_part: OnPart = nobody,
) -> Checked:
    """Run `script`, whose path may be relative, with the rules of the project that it belongs to.

    `settings` are those that the command line gave, `options`, `on_wait` and `on_part` as for `check`. Raises
    MemlintError for a script that is not there, and for configuration that makes no sense.
    """
    file = Path(script.path).expanduser()
    if script.module:
        package, folder = script.package, Path(script.folder)
        if not package.isidentifier():
            raise TargetError(f"{script.module!r} is not the name of a module", "Write -m package.module.")
        is_there = find_spec(package) or (folder / package).exists() or (folder / f"{package}.py").exists()
        _, root = find_settings(folder.resolve())
        if not (is_there or folder_of_package(package, (root, root / "src"))):
            raise TargetError(f"there is no module {script.module}", "Run memlint where `python -m` finds it.")
    elif not file.is_file():
        problem = "is not a file" if file.exists() else "does not exist"
        hint = "Give the file that Python would run: memlint run train.py."
        if script.typed:
            hint = f"Run memlint in the folder where `{script.command}` finds it."
        raise TargetError(f"{script.path or repr('')} {problem}", hint)
    elif any("\ud800" <= character <= "\udfff" for character in str(file.absolute())):
        raise TargetError(f"the name {str(file)!r} is not UTF-8", "Rename the file.")
    if is_notebook(script.path):
        with exchange_folder() as place:
            return check_resolved(_cells(script, settings, Path(place)), (), options, on_wait, on_part)
    start = Path(script.folder).resolve() if script.module else file.resolve().parent
    found_settings, root = find_settings(start)
    merged = override(found_settings, **settings)
    absolute = script.model_copy(update={"path": "" if script.module else str(file.resolve())})
    files = () if script.module else (file,)
    resolved = CheckTargets((of_scripts([absolute], merged, root, files),), (), ())
    return check_resolved(resolved, (), options, on_wait, on_part)


def _cells(script: Script, settings: Mapping[str, object], folder: Path) -> CheckTargets:
    """Give the program of a notebook, written into `folder`, as a script that runs where the notebook is."""
    written, _ = written_notebook(script.path, folder)
    home = Path(script.path).expanduser().resolve().parent
    found, root = find_settings(home)
    typed = script.typed or (script.path, *script.arguments)
    program = script.model_copy(update={"path": str(written.file), "folder": str(home), "typed": typed})
    targets = of_scripts([program], override(found, **settings), root, (written.file,))
    return CheckTargets((targets,), (), (), (written,))
