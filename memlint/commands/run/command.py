"""`memlint run`: one script, checked as any other target is."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

from memlint.base.errors import TargetError
from memlint.commands.check.command import Checked, check_resolved
from memlint.commands.check.targets import CheckOptions, CheckTargets
from memlint.commands.targets import of_scripts
from memlint.config import find_settings, override
from memlint.targets.script import Script
from memlint.targets.target import refuse_notebook


def run(
    script: Script,
    settings: Mapping[str, object],
    options: CheckOptions,
    on_wait: Callable[[str, float], None] = lambda _target, _seconds: None,
) -> Checked:
    """Run `script`, whose path may be relative, with the rules of the project that it belongs to.

    `settings` are those that the command line gave, `options` and `on_wait` as for `check`. Raises MemlintError for a
    script that is not there, and for configuration that makes no sense.
    """
    file = Path(script.path).expanduser()
    if script.module:
        package = script.module.partition(".")[0]
        if not package.isidentifier():
            raise TargetError(f"{script.module!r} is not the name of a module", "Write -m package.module.")
        if not (find_spec(package) or Path(package).exists() or Path(f"{package}.py").exists()):
            raise TargetError(f"there is no module {script.module}", "Run memlint where `python -m` finds it.")
    elif not file.is_file():
        problem = "is not a file" if file.exists() else "does not exist"
        raise TargetError(
            f"{script.path or repr('')} {problem}", "Give the file that Python would run: memlint run train.py."
        )
    elif any("\ud800" <= character <= "\udfff" for character in str(file.absolute())):
        raise TargetError(f"the name {str(file)!r} is not UTF-8", "Rename the file.")
    refuse_notebook(file, "run")
    start = Path.cwd() if script.module else file.resolve().parent
    found_settings, root = find_settings(start)
    merged = override(found_settings, **settings)
    absolute = script.model_copy(update={"path": "" if script.module else str(file.resolve())})
    files = () if script.module else (file,)
    resolved = CheckTargets((of_scripts([absolute], merged, root, files),), (), ())
    return check_resolved(resolved, (), options, on_wait)
