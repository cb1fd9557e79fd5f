"""Models that may be those of a file: which of them stand on their own, and why others are left out."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from torch import nn
from torch.nn.parameter import is_lazy

from memlint.targets.workload import Workload

_FEW = 10
"""A class is a small part of one that has more parameters by this factor."""


class LeftOut(NamedTuple):
    """A model in the file that is not analysed."""

    name: str
    reason: str
    call: str = ""
    """A call to type instead, with guessed arguments."""
    hint: str = ""
    """Advice on how to make it build."""
    is_trained: bool = False
    """True if a script of the project builds it."""


class Discovery(NamedTuple):
    """The Workloads of a target, and the models left out."""

    workloads: tuple[Workload, ...]
    left_out: tuple[LeftOut, ...] = ()


class Candidate(NamedTuple):
    """A model that was built, which may be a part of another one."""

    name: str
    num_parameters: int
    parts: frozenset[type]
    """Classes of its submodules."""
    workload: Workload
    is_trained: bool
    """True if a script of the project builds it."""
    is_built_elsewhere: bool
    """True if that script is another file: code in the model's own file may only try it out."""


def candidate_of(name: str, model: nn.Module, workload: Workload, *, is_trained: bool, elsewhere: bool) -> Candidate:
    """Describe a `model` that was built; `is_trained` and `elsewhere` are as the fields of these names."""
    parts = frozenset(type(part) for part in model.modules() if part is not model)
    number = sum(weight.numel() or is_lazy(weight) for weight in model.parameters())
    return Candidate(name, number, parts, workload, is_trained, elsewhere)


def chosen_of(
    candidates: Mapping[type, Candidate],
    failures: Mapping[str, LeftOut],
    classes: Mapping[str, type],
    of_others: Mapping[str, str],
    text: str,
) -> Discovery:
    """Keep the models that stand on their own, and explain why the others are left out."""
    built = {candidate.name for candidate in candidates.values()} | {kind.__name__ for kind in candidates}
    used = frozenset().union(*(candidate.parts for candidate in candidates.values()))
    left_out = [
        LeftOut(name, "it is a part of another model") if classes.get(name) in used else failure
        for name, failure in failures.items()
        if name not in built
    ]
    roots = []
    for kind, candidate in candidates.items():
        users = [other.name for user, other in candidates.items() if user is not kind and kind in other.parts]
        user = of_others.get(kind.__name__, "")
        failed = next((each for each in users_of(kind.__name__, of_others) if each in failures.keys() - built), "")
        if (
            user in built
            and of_others.get(user) != kind.__name__
            and _belongs(candidate, candidates.values(), of_others)
        ):
            users.append(user)  # the same model with other arguments
        elif failed and (failures[failed].is_trained or not candidate.is_trained):
            users.append(f"{failed}, which cannot be built")
        if users:
            left_out.append(LeftOut(candidate.name, f"it is a part of {users[0]}"))
        elif _is_base(kind, candidate, classes.values()):
            left_out.append(LeftOut(candidate.name, "other models derive from it"))
        elif candidate.num_parameters == 0:
            left_out.append(LeftOut(candidate.name, "it has no parameters"))
        else:
            roots.append(candidate)
    if any(root.is_trained for root in roots):
        others = [root for root in roots if not root.is_trained]
        left_out += (LeftOut(root.name, "no script of the project builds it") for root in others)
        roots = [root for root in roots if root.is_trained]
    roots.sort(key=lambda candidate: -candidate.num_parameters)
    workloads = (
        replace(root.workload, target=f"{text}::{root.name}", qualname=root.name, origin="discovered") for root in roots
    )
    left_out.sort(key=lambda each: not each.is_trained)
    return Discovery(tuple(workloads), tuple(left_out))


def _is_base(kind: type, candidate: Candidate, classes: Iterable[type]) -> bool:
    """Return True for a class of which nobody makes a model: its name says so, and others derive from it."""
    derived = any(other is not kind and issubclass(other, kind) for other in classes)
    return derived and not candidate.is_trained and _NAMED_BASE.search(kind.__name__) is not None


_NAMED_BASE = re.compile(r"^(?:Base|Abstract)|Base$")


def _belongs(candidate: Candidate, candidates: Iterable[Candidate], of_others: Mapping[str, str]) -> bool:
    """Return True if a class that others use is nothing without them: no other file builds it, or only as a small part.

    A script that builds both builds the whole.
    """
    users = frozenset(users_of(candidate.name, of_others))
    of_users = (each.num_parameters for each in candidates if each.name in users and each.is_trained)
    return not candidate.is_built_elsewhere or candidate.num_parameters * _FEW < max(of_users, default=0)


def users_of(name: str, of_others: Mapping[str, str]) -> Iterator[str]:
    """Yield the class that uses a class, the one that uses that, and so on."""
    seen = {name}
    while (name := of_others.get(name, "")) and name not in seen:
        seen.add(name)
        yield name
