"""gym and gymnasium where they are not installed: environments with the spaces of their documentation, and no dynamics.

A policy's layers have the sizes of an environment's spaces, and no tensor is in it. Every observation and reward is
zero, and an episode ends after a few steps. Source of the sizes: the pages of the environments of gym 0.26 and
gymnasium 1.0.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np

from memlint.base.errors import TraceError
from memlint.libraries.library import Library, assume_once

_EPISODE = 10
"""Steps of an episode here."""
_DISCRETE = {
    "Acrobot": (6, 3, 500),
    "CartPole": (4, 2, 500),
    "LunarLander": (8, 4, 1000),
    "MountainCar": (2, 3, 200),
}
"""By name: size of the observation, number of actions, and steps after which an episode is cut."""
_CONTINUOUS = {
    "BipedalWalker": (24, 4, 1.0, 1600),
    "HalfCheetah": (17, 6, 1.0, 1000),
    "Hopper": (11, 3, 1.0, 1000),
    "InvertedPendulum": (4, 1, 3.0, 1000),
    "LunarLanderContinuous": (8, 2, 1.0, 1000),
    "MountainCarContinuous": (2, 1, 1.0, 999),
    "Pendulum": (3, 1, 2.0, 200),
    "Pusher": (23, 7, 2.0, 100),
    "Swimmer": (8, 2, 1.0, 1000),
    "Walker2d": (17, 6, 1.0, 1000),
}
"""By name: sizes of the observation and of an action, its largest value, and steps after which an episode is cut."""
_BY_VERSION = {
    "Ant": ({"2": 111, "3": 111, "4": 27, "5": 105}, 8, 1.0, 1000),
    "Humanoid": ({"2": 376, "3": 376, "4": 376, "5": 348}, 17, 0.4, 1000),
    "HumanoidStandup": ({"2": 376, "4": 376, "5": 348}, 17, 0.4, 1000),
    "InvertedDoublePendulum": ({"2": 11, "4": 11, "5": 9}, 1, 1.0, 1000),
    "Reacher": ({"2": 11, "4": 11, "5": 10}, 2, 1.0, 50),
}
"""The same of environments whose observation changed with their version."""


def _library(name: str) -> Library:
    library = Library(name, distribution=name, version="1.0", only_missing=True)
    library.modules = {
        name: {"make": make, "Env": Environment},
        f"{name}.spaces": {"Box": Box, "Discrete": Discrete},
    }
    library.patches = {name: _make_what_is_missing}
    return library


class Box:
    """A space of arrays."""

    def __init__(self, low: Any = -np.inf, high: Any = np.inf, shape: Any = None, dtype: Any = np.float32) -> None:
        self.shape = tuple(np.shape(low) if shape is None else shape)
        self.dtype = np.dtype(dtype)
        self.low, self.high = np.full(self.shape, low, self.dtype), np.full(self.shape, high, self.dtype)

    def sample(self) -> Any:
        """Return zeros."""
        return np.zeros(self.shape, self.dtype)

    def seed(self, _seed: object = None) -> None:
        """Do nothing: nothing is random."""


class Discrete:
    """A space of whole numbers."""

    shape: tuple[int, ...] = ()
    dtype = np.dtype(np.int64)

    def __init__(self, n: int) -> None:
        self.n = n

    def sample(self) -> int:
        """Return zero."""
        return 0

    def seed(self, _seed: object = None) -> None:
        """Do nothing: nothing is random."""


class _Observation(np.ndarray[Any, Any]):
    """An observation; `observation, info = env.reset()` takes it apart as gymnasium's environments give it."""

    def __iter__(self) -> Iterator[Any]:
        return iter((self, {}) if _num_unpacked() == 2 and self.shape != (2,) else np.asarray(self))


class _Outcome(list[Any]):
    """Result of a step: observation, reward, the end of the episode once (gym) or in two ways (gymnasium), and more."""

    def __iter__(self) -> Iterator[Any]:
        observation, reward, is_over, info = super().__iter__()
        return iter([observation, reward, is_over, *([False] if _num_unpacked() == 5 else []), info])


def _make_what_is_missing(module: Any) -> None:
    """Let an installed package, which makes its own environments, give these where it lacks one or its simulator."""
    if getattr(module, "__file__", None) is None:
        return
    own = module.make

    @functools.wraps(own)
    def make_either(id: Any, *arguments: Any, **options: Any) -> Any:  # noqa: A002 -- as gym calls it
        try:
            return own(id, *arguments, **options)
        except Exception as error:
            try:
                return make(getattr(id, "id", id))
            except TraceError:
                raise error from None

    module.make = make_either


class Environment:
    """An environment without dynamics. A program may derive its own from it."""

    metadata: ClassVar[dict[str, Any]] = {}
    observation_space: Any = None
    action_space: Any = None

    def __init__(self, name: str = "", observations: Any = None, actions: Any = None, most: int = 0) -> None:
        self.observation_space, self.action_space = observations, actions
        self.spec = SimpleNamespace(id=name, max_episode_steps=most, reward_threshold=0.0)
        self._max_episode_steps = most
        self._num_steps = 0

    @property
    def unwrapped(self) -> Environment:
        """The environment itself."""
        return self

    def reset(self, **_options: object) -> Any:
        """Begin an episode, and return its first observation."""
        self._num_steps = 0
        return self.observation_space.sample().view(_Observation)

    def step(self, _action: object) -> Any:
        """Return zeros, and the end of the episode after a few steps."""
        self._num_steps += 1
        return _Outcome([self.observation_space.sample(), 0.0, self._num_steps % _EPISODE == 0, {}])

    def seed(self, _seed: object = None) -> None:
        """Do nothing: nothing is random."""

    def render(self, *_arguments: object, **_options: object) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing."""


def make(id: str, **_options: object) -> Environment:  # noqa: A002 -- as gym calls it
    """Return an environment by its name. Raises TraceError for one whose spaces are not known."""
    base, _, version = str(id).rpartition("-v")
    base = base.removesuffix("Hardcore")
    first = base.partition("-")[0].lower()  # `hopper-medium-v2` is data of a Hopper
    base = next((each for each in (*_DISCRETE, *_CONTINUOUS, *_BY_VERSION) if each.lower() == first), base)
    sizes = _BY_VERSION[base][0] if base in _BY_VERSION else {}
    if base in _DISCRETE:
        size, num, most = _DISCRETE[base]
        environment = Environment(id, Box(shape=(size,)), Discrete(num), most)
    elif base in _CONTINUOUS:
        size, num, high, most = _CONTINUOUS[base]
        environment = Environment(id, Box(shape=(size,)), Box(-high, high, (num,)), most)
    elif version in sizes:
        _, num, high, most = _BY_VERSION[base]
        environment = Environment(id, Box(shape=(sizes[version],)), Box(-high, high, (num,)), most)
    else:
        raise TraceError(
            f"the environment {id!r} is not installed, and the shapes of its observations are not known",
            f"Install gym, and the package that the environment is in, where memlint runs, {sys.prefix}.",
        )
    assume_once(f"{id} is not installed: it has the spaces of its documentation, and all that it gives is zero")
    return environment


def _num_unpacked() -> int:
    """Return the number of names to which the line outside of this file takes apart what it iterates over, or zero."""
    frame = sys._getframe(2)
    opcode, number = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return number if dis.opname[opcode] == "UNPACK_SEQUENCE" else 0


libraries = (_library("gym"), _library("gymnasium"))
