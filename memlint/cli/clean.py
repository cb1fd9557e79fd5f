"""`memlint clean`."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
def clean() -> None:
    """Remove the cache of the project around the current directory: .memlint_cache."""
    from memlint.base import cache as cachedir  # noqa: PLC0415
    from memlint.config import find_settings  # noqa: PLC0415

    removed = cachedir.clean(find_settings(Path())[1])
    click.echo(f"Removed {removed}." if removed else "There is no cache here.")
