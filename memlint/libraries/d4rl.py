"""d4rl where it is not installed: steps of control that were recorded, all zero, in as many rows as it downloads.

Source of the numbers of rows: D4RL's paper (Fu et al., 2020, arXiv:2004.07219), and for what was recorded of a policy
that learned, its second version; but for HalfCheetah's 202 episodes not yet held against the files. A program that
keeps all rows on the GPU takes memory by them.
"""

import re
from typing import Any

import numpy as np

from memlint.base.errors import TraceError
from memlint.libraries.gym_spaces import spaces_of
from memlint.libraries.library import Library, assume_once

library = Library("d4rl", distribution="d4rl", version="1.1")
_ROWS = (
    ("hopper-medium-replay", 402_000),
    ("halfcheetah-medium-replay", 202_000),
    ("walker2d-medium-replay", 302_000),
    (r"\w+-medium-expert", 2_000_000),
    ("maze2d-medium", 2_000_000),
    ("maze2d-large", 4_000_000),
    ("pen-human", 5_000),
    ("hammer-human", 11_310),
    ("door-human", 6_729),
    ("relocate-human", 9_942),
    ("(?:pen|hammer|door|relocate)-", 500_000),
    ("kitchen-complete", 3_680),
    ("kitchen-", 136_950),
)
"""Numbers of rows by the beginning of a name."""
_USUAL_ROWS = 1_000_000
"""Those of all other names."""


def recorded_steps(name: str) -> dict[str, Any]:
    """Return the arrays of `get_dataset`: the shape of each is [rows, ...]. Raises TraceError for an unknown name."""
    spaces = spaces_of(name)
    if spaces is None or isinstance(spaces.actions, int):
        raise TraceError(
            f"the recorded steps {name!r} are not on this machine, and their shapes are not known",
            "Install d4rl where memlint runs, and load them once.",
        )
    num_rows = next((number for begins, number in _ROWS if re.match(begins, name.lower())), _USUAL_ROWS)
    assume_once(f"{name} of d4rl is not on this machine: it has {num_rows:,} steps, and all are zero")
    length = min(spaces.most, num_rows)
    ends = np.arange(1, num_rows + 1) % length == 0
    return {
        "observations": np.zeros((num_rows, *spaces.shape), np.float32),
        "next_observations": np.zeros((num_rows, *spaces.shape), np.float32),
        "actions": np.zeros((num_rows, spaces.actions[0]), np.float32),
        "rewards": np.zeros(num_rows, np.float32),
        "terminals": np.zeros(num_rows, bool),
        "timeouts": ends,
    }


def score_of(*_scores: Any) -> float:
    """Return the normalized score of a policy that gets nothing."""
    return 0.0


@library.provides("d4rl")
def qlearning_dataset(env: Any, dataset: Any = None, terminate_on_end: bool = False, **_options: Any) -> dict[str, Any]:
    """Return steps with what was seen behind each; the last one of an episode that was cut is left out."""
    steps = env.get_dataset() if dataset is None else dataset
    kept = np.ones(len(steps["rewards"]), bool) if terminate_on_end else ~steps["timeouts"]
    names = ("observations", "actions", "next_observations", "rewards", "terminals")
    return {name: steps[name][kept] for name in names}


@library.provides("d4rl")
def sequence_dataset(env: Any, dataset: Any = None, **_options: Any) -> Any:
    """Yield the steps of each episode."""
    steps = env.get_dataset() if dataset is None else dataset
    ends = np.flatnonzero(steps["timeouts"]) + 1
    parts = {name: np.split(values, ends) for name, values in steps.items()}
    for number in range(len(ends)):
        yield {name: each[number] for name, each in parts.items()}


library.modules["d4rl"]["get_normalized_score"] = score_of
for _name in ("gym_mujoco", "locomotion", "hand_manipulation_suite", "pointmaze", "kitchen"):
    library.modules[f"d4rl.{_name}"] = {}
