"""Options that several commands have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import click

from memlint.base.errors import UsageError
from memlint.base.units import DTYPES, Cache, Compile, Mode, dtype_named
from memlint.cli import completion
from memlint.report.formats import FORMATS

MODES = get_args(Mode)
FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(file_okay=False, exists=True, path_type=Path)
SECONDS: dict[str, Any] = {"type": click.FloatRange(min=0, min_open=True), "metavar": "SECONDS"}
COLOR = click.option("--color", type=click.Choice(("auto", "always", "never")), default="auto", show_default=True)
NO_LOCAL_RULES = click.option("--no-exec", is_flag=True, help="Leave out the rules in rule-paths: their code is run.")


def dtype_of(_context: click.Context, _option: click.Parameter, text: str | None) -> str | None:
    """The first name of a dtype that may be given by another. Raises UsageError."""
    try:
        return None if text is None else dtype_named(text)
    except UsageError as error:
        raise UsageError(f"--dtype: {error.message}", error.hint) from None


def by_comma(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> tuple[str, ...]:
    """The parts of an option's values."""
    return tuple(part.strip() for text in texts for part in text.split(",") if part.strip())


def rank_of(_context: click.Context, _option: click.Parameter, text: str | None) -> int | str | None:
    """The number of a rank, or `worst`."""
    if text is None or text == "worst":
        return text
    if not text.isdecimal():
        raise UsageError(f"--rank {text!r} is no rank", "They count from 0; worst is the one that takes most.")
    return int(text)


def configs_by_name(
    _context: click.Context, _option: click.Parameter, texts: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    """The content of the JSON files of `--config-of NAME=FILE`, by name. Raises UsageError."""
    from memlint.base.config_files import read_configs  # noqa: PLC0415 -- few commands need it

    for text in texts:
        if not text.rpartition("=")[0]:
            example = "Write --config-of openai-community/gpt2=config.json, or checkpoint.pt=settings.json."
            raise UsageError(f"--config-of {text!r} is not a name and a file with a JSON object", example)
    return read_configs([(name, Path(path)) for name, _, path in (text.rpartition("=") for text in texts)])


CONFIG_OF = click.option(
    "--config-of",
    multiple=True,
    metavar="NAME=PATH",
    callback=configs_by_name,
    help="JSON settings of a model on the Hub, or of a checkpoint, that is not here; a folder has a pipeline's.",
)


def sizes_by_name(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> dict[str, int] | None:
    """Sizes by name of `--dim NAME=SIZE`; None without any."""
    from memlint.base.units import LARGEST_SIZE  # noqa: PLC0415

    sizes = {}
    for text in texts:
        name, separator, size = (part.strip() for part in text.partition("="))
        if name == "batch":
            raise UsageError(f"--dim {text} is the batch size", "Write --batch N.")
        if not separator or not name.isidentifier():
            raise UsageError(f"--dim {text!r} is not a name and a size", "Write --dim seq=2048.")
        number = int(size) if size.isdecimal() and len(size) <= len(str(LARGEST_SIZE)) else 0
        if not 1 <= number <= LARGEST_SIZE:
            raise UsageError(
                f"--dim {text}: {size!r} is not a size",
                f"Write a whole number from 1 to {LARGEST_SIZE}, as in --dim {name}=2048.",
            )
        sizes[name] = number
    return sizes or None


def format_option(*formats: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The form of what a command prints, the first by default; in all commands the option has the same two names."""
    names = ("--output-format", "--format", "output_format")
    return click.option(*names, type=click.Choice(formats), default=formats[0], show_default=True)


CODES: dict[str, Any] = {"metavar": "CODES", "multiple": True, "callback": by_comma}
RULES: dict[str, Any] = {**CODES, "shell_complete": completion.rules}
PACKAGES: dict[str, Any] = {**CODES, "metavar": "NAMES"}


def step_options(of: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the options that describe a Workload's step; their help begins with `of`."""
    return all_of(
        click.option("--batch", type=click.IntRange(min=1), metavar="N", help=f"{of}Batch size."),
        click.option(
            "--dim",
            "dimensions",
            multiple=True,
            metavar="NAME=SIZE",
            callback=sizes_by_name,
            help=f"{of}Another dimension, as seq=2048.",
        ),
        click.option(
            "--dtype",
            metavar=f"[{'|'.join(DTYPES)}]",
            callback=dtype_of,
            shell_complete=completion.dtypes,
            help=f"{of}Type of the weights, or float32 with autocast (-amp).",
        ),
        click.option("--mode", type=click.Choice(MODES), help=f"{of}What a step is."),
        click.option("--optimizer", metavar="NAME", help=f"{of}Name, file.py::callable, or none."),
        click.option("--prompt", type=click.IntRange(min=1), metavar="N", help=f"{of}Tokens of a prompt, to generate."),
        click.option("--new-tokens", type=click.IntRange(min=1), metavar="N", help=f"{of}Tokens to generate after it."),
        click.option("--num-beams", type=click.IntRange(min=1), metavar="N", help=f"{of}Beams of the generation."),
        cache_option(of),
    )


def cache_option(of: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The cache of a generation."""
    kinds = tuple(filter(None, get_args(Cache)))
    return click.option(
        "--cache", "kv_cache", type=click.Choice(kinds), help=f"{of}Cache of the generation; else the model's own."
    )


def workload_options(of: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return the options that describe a Workload and the limits it has to fit into; their help begins with `of`."""
    return all_of(
        step_options(of),
        click.option(
            "--gpu",
            metavar="NAME",
            shell_complete=completion.gpus,
            help=f"{of}GPU to estimate for, such as a100-80gb; cpu for the host.",
        ),
        torch_option(of),
        context_option(of),
        compile_option(of),
        click.option("--strategy", metavar="NAME", help=f"{of}ddp, fsdp, hsdp:2x4, tp:8 or tp:8+fsdp, with --ranks."),
        click.option("--ranks", "world_size", type=click.IntRange(min=1), metavar="N", help=f"{of}How many there are."),
        click.option("--rank", metavar="K", callback=rank_of, help=f"{of}Which of them is simulated, or worst."),
        click.option("--budget", metavar="SIZE", help=f"{of}Most device memory a workload may take, such as 24GiB."),
    )


def torch_option(of: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The version of PyTorch that will run."""
    return click.option("--torch", metavar="VERSION", help=f"{of}PyTorch on the GPU, such as 2.10; else the installed.")


def context_option(of: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The CUDA context, where it was measured."""
    return click.option(
        "--context",
        metavar="SIZE",
        help=f"{of}CUDA context as measured there, such as 512MiB, or a line of nvidia-smi; else a range by GPU.",
    )


def compile_option(of: str = "") -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Simulation of `torch.compile`."""
    return click.option(
        "--compile",
        type=click.Choice(get_args(Compile)),
        help=f"{of}torch.compile: run eagerly, compile what the code compiles, or the whole model.  [default: auto]",
    )


def all_of(*options: Callable[[Callable[..., None]], Callable[..., None]]) -> Callable[..., Callable[..., None]]:
    """Several options as one decorator."""

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return with_options


CHECK_OPTIONS = all_of(
    click.option(
        "--alloc-conf", metavar="CONF", default="", help="The allocator's settings, as in PYTORCH_ALLOC_CONF."
    ),
    click.option("--quick", is_flag=True, help="The verdict alone: run no rules, and make no tables."),
    click.option("--allow-dynamics", is_flag=True, help="With --plan: also changes of the course of training."),
    click.option(
        "--select", **CODES, shell_complete=completion.rules, help="Rules to run: codes or their beginnings, by comma."
    ),
    click.option(
        "--extend-select", **CODES, shell_complete=completion.rules, help="Rules to run beside those configured."
    ),
    click.option("--ignore", **CODES, shell_complete=completion.rules, help="Rules to leave out."),
    format_option("text", *FORMATS),
    click.option("--timeline", is_flag=True, help="With json: also the lifetime of every tensor, for memlint report."),
    click.option("--graph", is_flag=True, help="With json: also the step as a graph, for memlint report."),
    click.option("-o", "--output-file", type=FILE, help="Write the report there."),
    click.option("--statistics", is_flag=True, help="Count the findings of each rule instead of listing them."),
    click.option("--add-ignore", is_flag=True, help="Write suppression comments for all findings into the files."),
    click.option("--baseline", type=FILE, help="Leave out the findings in this file."),
    click.option("--write-baseline", type=FILE, help="Write all findings into this file, for --baseline."),
)
"""Add the options of `check` and `run`: the rules, the form of the report, and what is done with findings instead."""
