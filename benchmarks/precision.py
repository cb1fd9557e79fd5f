"""What the source rules say about published code, and a random choice of it to read.

    python benchmarks/precision.py
    python benchmarks/precision.py --sample 50 --seed 1 --code MEM506 checkouts/*

Runs all source rules over the Python files of transformers, timm, torchvision and torch as they are installed, or over
those of the folders named, prints how many findings there are per rule and folder, and then findings chosen at random,
with the lines around them. What came of reading them is in `docs/rules/precision.md`.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

import click
from tabulate import tabulate

from memlint.lint.diagnostics import Diagnostic
from memlint.lint.processes import check_paths, num_cpus
from memlint.lint.registry import load_rules
from memlint.lint.rule import Finding  # noqa: TC001
from memlint.lint.selection import select_rules
from memlint.source.files import python_files

PACKAGES = ("transformers", "timm", "torchvision", "torch")
AROUND = 9
"""Lines shown before and after a finding."""


def folder_of(package: str) -> Path:
    spec = find_spec(package)
    assert spec is not None, f"{package} is not installed"
    assert spec.origin is not None
    return Path(spec.origin).parent


def show(number: int, finding: Finding, folders: dict[str, Path]) -> None:
    """Print a finding and the lines around it."""
    path = Path(finding.path)
    package = next(name for name, folder in folders.items() if path.is_relative_to(folder))
    print(f"\n=== {number} {finding.code} {package}/{path.relative_to(folders[package])}:{finding.line}")
    print(f"    {finding.severity.value}: {finding.message}")
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    for line in range(max(1, finding.line - AROUND), min(len(lines), finding.line + AROUND) + 1):
        print(f"{'>' if line == finding.line else ' '} {line:5} {lines[line - 1][:150]}")


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(file_okay=False, exists=True, path_type=Path))
@click.option("--sample", type=click.IntRange(min=0), default=100, show_default=True, help="Findings to show.")
@click.option("--seed", type=int, default=20261122, show_default=True, help="Of the choice.")
@click.option("--code", multiple=True, help="Only these rules.")
@click.option("--cache", type=click.Path(file_okay=False, path_type=Path), help="Keep findings below this folder.")
def main(paths: tuple[Path, ...], sample: int, seed: int, code: tuple[str, ...], cache: Path | None) -> None:
    """Print counts, and findings to read, in PATHS or in the installed packages."""
    folders = {path.resolve().name: path.resolve() for path in paths}
    if not folders:
        folders = {f"{package} {version(package)}": folder_of(package) for package in PACKAGES}
    installed = load_rules().rules
    rules = select_rules(installed, code or ("ALL",))
    diagnostics = {rule.code for rule in installed if isinstance(rule, Diagnostic)}
    counts: Counter[tuple[str, str]] = Counter()
    found: list[Finding] = []
    for package, folder in folders.items():
        files = list(python_files([folder]))
        findings = check_paths(files, rules, cache_root=cache, jobs=num_cpus())
        counts.update((finding.code, package) for finding in findings)
        found += [finding for finding in findings if finding.code not in diagnostics]
        print(f"{package}: {len(files)} files, {len(findings)} findings", file=sys.stderr)
    codes = sorted({code for code, _package in counts})
    rows = [[code, *(counts[code, package] for package in folders)] for code in codes]
    print(tabulate(rows, ["rule", *folders], tablefmt="github"))
    found.sort(key=lambda finding: (finding.path, finding.line, finding.column, finding.code))
    chosen = random.Random(seed).sample(found, min(sample, len(found)))
    for number, finding in enumerate(chosen, 1):
        show(number, finding, folders)


if __name__ == "__main__":
    main()
