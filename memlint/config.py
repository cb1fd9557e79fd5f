"""`[tool.memlint]` of the closest pyproject.toml, or memlint.toml, as frozen Settings.

As with ruff, the closest file wins and nothing is merged; a pyproject.toml without `[tool.memlint]` is ignored, and
memlint.toml takes precedence over pyproject.toml in the same directory. Command-line options override both.
"""

import tomllib
from difflib import get_close_matches
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, ValidationError

from memlint.base.config_files import read_configs
from memlint.base.errors import UsageError
from memlint.base.units import LARGEST_SIZE, Cache, Compile, Dtype, Mode, dtype_named, parse_context, parse_nbytes

CONFIGURATIONS = ("memlint.toml", "pyproject.toml")
"""Files that a project is configured in."""
_PROJECT_MARKS = ("pyproject.toml", "memlint.toml", "setup.py", "setup.cfg", ".git")
_USUAL_FILES = (
    *("README.md", "README.rst", "README.txt", "README", "readme.md", "Readme.md"),
    *("LICENSE", "LICENSE.md", "LICENSE.txt", "requirements.txt", "environment.yml", "environment.yaml"),
)
"""Files that show the folder of a project that has none of those marks, such as a downloaded archive."""


def _size(value: object) -> object:
    """Convert a size, a text or a whole number, to bytes; pydantic reports anything else."""
    if not isinstance(value, str | int) or isinstance(value, bool) or value == 0:
        return value
    try:
        return parse_nbytes(str(value))
    except UsageError as error:
        raise ValueError(error.message) from error


def _dtype(value: object) -> object:
    """Convert another name of a dtype; pydantic reports anything that is not text."""
    if not isinstance(value, str):
        return value
    try:
        return dtype_named(value)
    except UsageError as error:
        raise ValueError(f"{error.message}: {error.hint[:1].lower()}{error.hint[1:]}") from error


def _context(value: object) -> object:
    """Convert a context as `_size` does, or from a line of nvidia-smi."""
    try:
        if isinstance(value, int):
            return parse_context(f"{value}B")
        return parse_context(value) if isinstance(value, str) else value
    except UsageError as error:
        raise ValueError(f"{error.message}. {error.hint}") from error


def _one_or_many(value: object) -> object:
    """Accept `select = "MEM1"` as short for `select = ["MEM1"]`."""
    return [value] if isinstance(value, str) else value


def _sizes_by_name(value: object) -> object:
    """Convert one size for every Workload to a table with the name `*`."""
    if isinstance(value, str | int):
        return {"*": {"max": value}}
    return value


Count = Annotated[int, Field(gt=0, strict=True)]
Size = Annotated[int, Field(gt=0, le=LARGEST_SIZE, strict=True)]
_WithUnit = PlainSerializer(lambda nbytes: f"{nbytes}B", return_type=str, when_used="json")
"""For a child that reads these Settings: a small number without a unit would be refused there."""
NBytes = Annotated[int, Field(gt=0, strict=True), BeforeValidator(_size), _WithUnit]
Context = Annotated[int, Field(gt=0, strict=True), BeforeValidator(_context)]
Codes = Annotated[tuple[str, ...], BeforeValidator(_one_or_many)]


class _Table(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, alias_generator=lambda name: name.replace("_", "-")
    )


class Budget(_Table):
    """`[tool.memlint.budget.NAME]`: the limits of a Workload, absolute or relative to an earlier Report."""

    max: NBytes | None = None
    max_increase: NBytes | None = None
    max_increase_percent: Annotated[float, Field(ge=0)] | None = None
    level: Literal["error", "warning"] = "error"


class Op(_Table):
    """`[[tool.memlint.op]]`: the arguments of `memlint.op` for one op, with its functions as text."""

    name: str
    shapes: str
    saves: Codes = ()
    workspace: int | str = 0
    backward_workspace: int | str = 0


class Settings(_Table):
    """The settings of memlint; None for those that memlint chooses."""

    batch: Size | None = None
    dtype: Annotated[Dtype, BeforeValidator(_dtype)] | None = None
    mode: Mode | None = None
    optimizer: str | None = None
    gpu: str | None = None
    gpu_prices: dict[str, Annotated[float, Field(ge=0)]] = {}
    """Prices of GPUs by name, in any one unit: the cheapest GPU that a step fits into is named first."""
    torch: str | None = None
    context: Context | None = None
    """Measured bytes that a process has on the GPU beside PyTorch's memory."""
    compile: Compile | None = None
    """Simulation of `torch.compile`: see `memlint.targets.workload.Workload`."""
    strategy: str | None = None
    world_size: Size | None = None
    rank: Annotated[int, Field(ge=0)] | Literal["worst"] | None = None
    dimensions: dict[str, Size] = {}
    """Sizes of named dimensions other than the batch."""
    prompt: Size | None = None
    new_tokens: Size | None = None
    num_beams: Size | None = None
    """For a generation: tokens of the prompt, tokens that are added to it, and beams."""
    kv_cache: Cache | None = None
    """Kind of the cache that `generate` makes."""
    budget: Annotated[dict[str, Budget], BeforeValidator(_sizes_by_name)] = {}
    """Budgets by name of the Workload; `*` is for all others. `budget = "24GiB"` is short for `*`."""
    select: Codes = ("ALL",)
    """Codes of rules, or their beginnings; the longest match decides, `ignore` wins a tie."""
    extend_select: Codes = ()
    """Codes in addition to `select`."""
    ignore: Codes = ()
    per_file_ignores: dict[str, Codes] = {}
    """Codes not to report, by pattern of the file's name or of its path in the project."""
    rule_paths: Codes = ()
    """Folders or files of the project with rules of its own; memlint runs their code."""
    exclude: Codes = ()
    """Patterns, as in a .gitignore, to leave out of searched directories; relative to the configuration file."""
    stub: Codes = ()
    """Packages to replace by placeholders when files import them; a placeholder fails when the model uses it."""
    config_of: tuple[tuple[str, str], ...] = ()
    """Names of models on the Hub, and of checkpoints, that are not on this machine, with their settings in JSON."""
    op: tuple[Op, ...] = ()
    """Ops of compiled extensions that do not load here."""
    workload: tuple[dict[str, Any], ...] = ()
    """Unparsed tables; `memlint.targets.workload_tables` reads them."""
    ask_scripts: bool = True
    """True if `memlint check` runs the project's scripts to see how they build the models of a file."""
    sweep: bool = True
    """True if `memlint check` shows the batch sizes around that of each Workload."""
    timeout: Annotated[float, Field(gt=0)] = 120.0
    """Time limit in seconds for the Workloads of one file."""
    memory_limit: NBytes = 8 * 2**30
    """Resident bytes of the child process and everything it started."""

    def budget_of(self, workload: str) -> Budget | None:
        """Return the budget of the Workload of that name."""
        return self.budget.get(workload) or self.budget.get("*")


def find_settings(start: Path) -> tuple[Settings, Path]:
    """Return the Settings for files in the directory `start`, and the absolute root of their project.

    Raises UsageError, naming the file and the key, if the configuration is wrong.
    """
    start = start.resolve()
    for directory in (start, *start.parents):
        for name in CONFIGURATIONS:
            file = directory / name
            table = _table_of(file) if file.exists() or file.is_symlink() else None
            if table is not None:
                return _parse(table, file), directory
    return Settings(), next(filter(_is_marked, (start, *start.parents)), None) or _unmarked_root(start)


def _is_marked(folder: Path) -> bool:
    """Return True for the folder of a project; a setup.py within a package builds a part, such as an extension."""
    if (folder / "__init__.py").is_file():
        return any((folder / name).exists() for name in (*CONFIGURATIONS, ".git"))
    return any((folder / mark).exists() for mark in _PROJECT_MARKS)


def _unmarked_root(start: Path) -> Path:
    """Return the folder of the project that `start` is in, by its README or licence, or else by its packages.

    Around a folder with a README the project goes on as long as the folder around it has one as well. Nobody's home is
    a project.
    """
    outside = (Path.home(), Path(start.anchor))
    folders = list(takewhile(lambda folder: folder not in outside, (start, *start.parents)))
    described = [any((folder / name).is_file() for name in _USUAL_FILES) for folder in folders]
    if any(described):
        first = described.index(True)
        return folders[first + described[first:].index(False) - 1] if False in described[first:] else folders[-1]
    return next((folder for folder in folders if not (folder / "__init__.py").is_file()), start)


def override(settings: Settings, **options: object) -> Settings:
    """Return Settings with the given command-line options (neither None nor empty).

    As with ruff, `select` replaces the configuration's whole choice of rules, while `extend_select` and `ignore` change
    it: each overrides the configuration for the same codes. Raises UsageError, naming the option, if an option makes no
    sense.
    """
    changed: dict[str, Any] = {name: value for name, value in options.items() if value not in (None, ())}
    if "dimensions" in changed:
        changed["dimensions"] = {**settings.dimensions, **changed["dimensions"]}
    extended, ignored = changed.get("extend_select", ()), changed.get("ignore", ())
    if "select" in changed:
        changed = {"extend_select": (), "ignore": (), **changed}
    else:
        changed["select"] = _without(settings.select, ignored)
        changed["extend_select"] = (*_without(settings.extend_select, ignored), *extended)
        changed["ignore"] = (*_without(settings.ignore, extended), *ignored)
    try:
        checked = Settings.model_validate(changed)
    except ValidationError as error:
        key = str(error.errors()[0]["loc"][0])
        raise UsageError(f"--{key.replace('_', '-')}: {_reason(error)}", "See `memlint check --help`.") from error
    return settings.model_copy(update={name: getattr(checked, name) for name in changed})


def code_prefix(text: str) -> str:
    """Return a code, or the beginning of codes, in the form used for comparing: upper-case, and empty for `ALL`."""
    code = text.strip().upper()
    return "" if code == "ALL" else code


def _without(codes: tuple[str, ...], taken_back: tuple[str, ...]) -> tuple[str, ...]:
    """Return `codes` without those that begin with one of `taken_back`."""
    beginnings = tuple(code_prefix(code) for code in taken_back)
    return tuple(code for code in codes if not code_prefix(code).startswith(beginnings))


def _table_of(file: Path) -> dict[str, Any] | None:
    """Return memlint's table in `file`, None if a pyproject.toml has none."""
    if not file.is_file():  # reading a FIFO would block; a link may be dangling
        raise UsageError(f"{file} is not a file", "Remove it, or write a file in its place.")
    try:
        document = _document(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", "Correct the file.") from error
    except RecursionError as error:
        raise UsageError(f"{file} cannot be read: too many brackets in each other", "Correct the file.") from error
    if file.name != "pyproject.toml":
        return document
    table, name = document, ""
    for key in ("tool", "memlint"):
        name = f"{name}.{key}".lstrip(".")
        table = table.get(key, {})
        if not isinstance(table, dict):
            raise UsageError(f"{file}: {name} is not a table (got {table!r})", f"Write [{name}] above its keys.")
    return table if "memlint" in document.get("tool", {}) else None


@lru_cache(maxsize=8)
def _document(text: str) -> dict[str, Any]:
    """Parse TOML: the settings of one file are asked for several times."""
    return tomllib.loads(text)


def _parse(table: dict[str, Any], file: Path) -> Settings:
    prefix = "tool.memlint." if file.name == "pyproject.toml" else ""
    if isinstance(files := table.get("config-of"), dict) and all(isinstance(path, str) for path in files.values()):
        table = {**table, "config-of": read_configs((name, file.parent / path) for name, path in files.items())}
    try:
        return Settings.model_validate(table)
    except ValidationError as error:
        first = error.errors()[0]
        keys = [key for key in first["loc"] if key not in ("int", "float", "str")]  # a union's branches are no keys
        if "*" in keys and not isinstance(table["budget"], dict):
            keys = keys[: keys.index("*")]
        name = prefix + ".".join(str(key + 1) if isinstance(key, int) else key for key in keys)
        if first["type"] == "extra_forbidden":
            raise UsageError(f"{file}: unknown key {name}", _did_you_mean(keys)) from error
        raise UsageError(f"{file}: {name}: {_reason(error)}", "Correct the value.") from error


def _reason(error: ValidationError) -> str:
    first = error.errors()[0]
    message = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
    message = message[:1].lower() + message[1:]
    return message if first["type"] in ("missing", "value_error") else f"{message} (got {first['input']!r})"


def _did_you_mean(keys: list[int | str]) -> str:
    """Return a hint for the last of `keys`, from the known keys of its table."""
    table = Settings if len(keys) == 1 else Budget  # no other table has keys of its own
    known = [field.alias or name for name, field in table.model_fields.items()]
    close = get_close_matches(str(keys[-1]), known, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known keys: {', '.join(known)}."
