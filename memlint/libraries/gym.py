"""gym and gymnasium: environments that are not installed have the spaces of their documentation, and no dynamics.

A policy's layers have the sizes of an environment's spaces, and no tensor is in it. Every observation and reward is
zero, and an episode ends after a few steps. Where gym or gymnasium is installed its own environments run, and its
wrappers take the others.
"""

import dis
import functools
import inspect
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, Self

import numpy as np

from memlint.base.errors import TraceError
from memlint.libraries.d4rl import recorded_steps, score_of
from memlint.libraries.gym_spaces import SCREEN, Spaces, spaces_of
from memlint.libraries.library import Library, assume_once

_EPISODE = 10
"""Steps of an episode here."""
_MEANINGS = (
    *("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT", "UPFIRE"),
    *("RIGHTFIRE", "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE", "DOWNLEFTFIRE"),
)


def _library(name: str) -> Library:
    library = Library(name, distribution=name, version="1.0")
    library.keeps_installed = True
    library.patch(f"{name}.envs.registration")(_make_what_is_missing)
    if name == "gymnasium":
        library.patch(f"{name}.vector")(functools.partial(_step_here, "AsyncVectorEnv", "SyncVectorEnv"))
        library.patch("stable_baselines3.common.vec_env")(functools.partial(_step_here, "SubprocVecEnv", "DummyVecEnv"))
    library.modules = {
        name: {"make": make, "Env": Environment},
        f"{name}.spaces": {"Box": Box, "Discrete": Discrete},
        f"{name}.envs.registration": {"registry": Registry(), "register": register},
    }
    return library


class Registry(dict[str, Any]):
    """The environments that a program has registered: none, as any name makes one."""

    @property
    def env_specs(self) -> Self:
        """Itself, as gym before 0.26 has it."""
        return self


def register(*_arguments: Any, **_options: Any) -> None:
    """Do nothing: any name makes an environment."""


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
    def unwrapped(self) -> Self:
        """The environment itself."""
        return self

    env = unwrapped
    """The environment in the wrappers that `make` puts around it."""

    def reset(self, **_options: object) -> Any:
        """Begin an episode, and return its first observation."""
        self._num_steps = 0
        return self.observation_space.sample().view(_Observation)

    def step(self, _action: object) -> Any:
        """Return zeros, and the end of the episode after a few steps."""
        self._num_steps += 1
        return _Outcome([self.observation_space.sample(), 0.0, self._num_steps % _EPISODE == 0, {}])

    def get_dataset(self) -> dict[str, Any]:
        """Return steps that were recorded, as d4rl has them."""
        return recorded_steps(self.spec.id)

    get_normalized_score = staticmethod(score_of)

    def seed(self, _seed: object = None) -> None:
        """Do nothing: nothing is random."""

    def render(self, *_arguments: object, **_options: object) -> None:
        """Show nothing."""

    def close(self) -> None:
        """Do nothing."""


def make(id: str, **_options: object) -> Environment:  # noqa: A002 -- as gym calls it
    """Return an environment by its name. Raises TraceError for one whose spaces are not known."""
    spaces = spaces_of(str(id))
    if spaces is None:
        raise TraceError(
            f"the environment {id!r} is not installed, and the shapes of its observations are not known",
            f"Install gym, and the package that the environment is in, where memlint runs, {sys.prefix}.",
        )
    _assume(id)
    return Environment(id, *spaces.made(Box, Discrete), spaces.most)


def _assume(name: str) -> None:
    assume_once(f"{name} is not installed: it has the spaces of its documentation, and all that it gives is zero")


# --- where gym or gymnasium is installed


def _make_what_is_missing(registration: Any) -> None:
    """Let its `make` give an environment whose package is not installed, with the spaces of its page."""
    make_installed = registration.make

    @functools.wraps(make_installed)
    def make_any(id: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002 -- as above
        package = sys.modules[registration.__name__.partition(".")[0]]
        try:
            environment = make_installed(id, *args, **kwargs)
            return _of_any_version(package, environment) if package.__name__ == "gym" else environment
        except Exception:  # of several kinds: unknown names, packages and files that are not there
            spaces = spaces_of(str(getattr(id, "id", id)))
            if spaces is None:
                raise
        name = str(getattr(id, "id", id))
        _assume(name)
        return _without_dynamics(package, name, spaces, kwargs.get("render_mode"))

    registration.make = make_any


def _step_here(apart: str, here: str, vectors: Any) -> None:
    """Let the class whose environments are in processes of their own step them in this one, as no tensor is there."""
    stepping, starting = getattr(vectors, here), getattr(vectors, apart)
    taken = inspect.signature(stepping.__init__).parameters

    def make(self: Any, env_fns: Any, *_args: Any, **options: Any) -> None:
        assume_once("no processes are started for environments: they take their steps in this one")
        stepping.__init__(self, env_fns, **{name: value for name, value in options.items() if name in taken})

    kind = type(apart, (stepping,), {"__init__": make})
    for module in (vectors, sys.modules[starting.__module__]):
        setattr(module, apart, kind)


def _of_any_version(package: Any, environment: Any) -> Any:
    """Return an environment whose results a program takes apart as gym gives them before and since version 0.26."""

    def begin(self: Any, **options: Any) -> Any:
        result = self.env.reset(**options)
        return result[0].view(_Observation) if isinstance(result, tuple) and type(result[0]) is np.ndarray else result

    def step(self: Any, action: Any) -> Any:
        seen, reward, *is_over, info = self.env.step(action)
        return _Outcome([seen, reward, any(is_over), info])

    attributes = {"reset": begin, "step": step, "seed": lambda _self, _seed=None: []}
    return type(type(environment).__name__, (package.Wrapper,), attributes)(environment)


def _without_dynamics(package: Any, name: str, spaces: Spaces, render_mode: str | None) -> Any:
    """Return an environment of a class that derives from the package's own, so that its wrappers take it."""
    observations, actions = spaces.made(package.spaces.Box, package.spaces.Discrete)
    is_new = package.__name__ != "gym"
    """True for gymnasium, whose programs all know that an episode ends in two ways."""

    def begin(self: Any, *, seed: int | None = None, options: object = None) -> Any:
        del options
        package.Env.reset(self, seed=seed)
        self.num_steps = 0
        seen = np.zeros(spaces.shape, spaces.dtype)
        return (seen, {}) if is_new else seen.view(_Observation)

    def step(self: Any, _action: object) -> Any:
        self.num_steps += 1
        seen, is_over = np.zeros(spaces.shape, spaces.dtype), self.num_steps % _EPISODE == 0
        return (seen, 0.0, is_over, False, {}) if is_new else _Outcome([seen, 0.0, is_over, {}])

    attributes = {
        "metadata": {"render_modes": ["human", "rgb_array"], "render_fps": 30},
        "observation_space": observations,
        "action_space": actions,
        "render_mode": render_mode,
        "spec": SimpleNamespace(id=name, max_episode_steps=spaces.most, reward_threshold=None, kwargs={}),
        "num_steps": 0,
        "reset": begin,
        "step": step,
        "seed": lambda _self, _seed=None: [],
        "render": lambda _self: np.zeros(SCREEN, np.uint8),
        "env": property(lambda self: self),
        "_max_episode_steps": spaces.most,
        "get_dataset": lambda _self: recorded_steps(name),
        "get_normalized_score": staticmethod(score_of),
    }
    if isinstance(spaces.actions, int):
        meanings = list(_MEANINGS[: spaces.actions])
        attributes |= {"ale": _Ale(), "_frameskip": 1, "get_action_meanings": lambda _self: meanings}
    return type("Environment", (package.Env,), attributes)()


class _Ale:
    """The part of the Arcade Learning Environment that wrappers ask."""

    def lives(self) -> int:
        """Return the lives that are left."""
        return 3

    def getScreenGrayscale(self, screen: Any) -> None:  # noqa: N802 -- as it is called there
        """Leave the screen black."""

    getScreenRGB = getScreenGrayscale  # noqa: N815


def _num_unpacked() -> int:
    """Return the number of names to which the line outside of this file takes apart what it iterates over, or zero."""
    frame = sys._getframe(2)
    opcode, number = frame.f_code.co_code[frame.f_lasti : frame.f_lasti + 2]
    return number if dis.opname[opcode] == "UNPACK_SEQUENCE" else 0


libraries = (_library("gym"), _library("gymnasium"))
