"""What posting is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlint.commands.comment.marker import marker_of
from memlint.commands.comment.posting import Draft

if TYPE_CHECKING:
    from memlint.commands.comment.marker import Order
    from memlint.commands.comment.posting import Behavior


def draft(
    text: str = "## peak +1.4 GiB",
    *,
    tag: str = "default",
    order: Order | None = None,
    behavior: Behavior = "update",
    is_due: bool = True,
) -> Draft:
    return Draft(text, marker_of(text, tag, order), behavior, is_due)
