"""The limit of open files, which scripts raise because the workers of their loaders hand tensors on in files."""

from contextlib import suppress
from typing import Any


def raised_as_far_as_it_goes() -> None:
    """Let a program ask for more open files than this machine grants: it gets what there is."""
    with suppress(ImportError):  # Windows has no such limits
        import resource  # noqa: PLC0415

        limit = resource.setrlimit

        def setrlimit(kind: int, limits: Any) -> None:
            most = resource.getrlimit(kind)[1]
            if kind == resource.RLIMIT_NOFILE and most != resource.RLIM_INFINITY:
                limits = tuple(most if each == resource.RLIM_INFINITY else min(each, most) for each in limits)
            limit(kind, limits)

        resource.setrlimit = setrlimit
