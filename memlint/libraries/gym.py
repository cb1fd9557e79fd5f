"""gym and gymnasium: environments that are not installed have the spaces of their documentation, and no dynamics.

A policy's layers have the sizes of an environment's spaces, and no tensor is in it. Every observation and reward is
zero, and an episode ends after a few steps. Where gym or gymnasium is installed its own environments run, and its
wrappers take the others. Source of the sizes: the pages of the environments of gym 0.26, gymnasium 1.0 and the Arcade
Learning Environment.
"""

import dis
import functools
import inspect
import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple, Self

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


_ATARI = {
    3: "Freeway Skiing",
    4: "Atlantis Breakout",
    5: "Surround",
    6: "Bowling DemonAttack NameThisGame Pong Qbert SpaceInvaders UpNDown",
    7: "Assault",
    8: "Gopher Phoenix Tutankham",
    9: "Asterix BeamRider CrazyClimber Enduro MsPacman VideoPinball",
    10: "Amidar TimePilot WizardOfWor",
    14: "Asteroids KungFuMaster",
    18: (
        "Alien BankHeist BattleZone Berzerk Boxing Centipede ChopperCommand Defender DoubleDunk FishingDerby Frostbite "
        "Gravitar Hero IceHockey Jamesbond Kangaroo Krull MontezumaRevenge Pitfall PrivateEye Riverraid RoadRunner "
        "Robotank Seaquest Solaris StarGunner Tennis Venture YarsRevenge Zaxxon"
    ),
}
"""Games by the number of actions that they have."""
_NUM_ACTIONS = {name: number for number, names in _ATARI.items() for name in names.split()}
_SCREEN, _RAM, _MOST_OF_GAME = (210, 160, 3), (128,), 27_000
_MEANINGS = (
    *("NOOP", "FIRE", "UP", "RIGHT", "LEFT", "DOWN", "UPRIGHT", "UPLEFT", "DOWNRIGHT", "DOWNLEFT", "UPFIRE"),
    *("RIGHTFIRE", "LEFTFIRE", "DOWNFIRE", "UPRIGHTFIRE", "UPLEFTFIRE", "DOWNRIGHTFIRE", "DOWNLEFTFIRE"),
)


class _Spaces(NamedTuple):
    """The shape of an observation, and its type; actions as a number, or their shape and largest value."""

    shape: tuple[int, ...]
    dtype: Any
    actions: int | tuple[int, float]
    most: int
    """Steps after which an episode is cut."""

    def made(self, box: Any, discrete: Any) -> tuple[Any, Any]:
        """Return the spaces of observations and of actions, as these classes of gym or gymnasium."""
        whole = self.dtype is np.uint8
        low, high = (0, 255) if whole else (-np.inf, np.inf)
        observations = box(low, high, self.shape, self.dtype)
        if isinstance(self.actions, int):
            return observations, discrete(self.actions)
        size, limit = self.actions
        return observations, box(-limit, limit, (size,), np.float32)


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


def spaces_of(name: str) -> _Spaces | None:
    """Return the spaces of an environment; None where no page states them."""
    base, _, version = name.removeprefix("ALE/").rpartition("-v")
    base = base.removesuffix("Hardcore")
    game = re.sub(r"NoFrameskip$|Deterministic$", "", base.removesuffix("-ram"))
    if game in _NUM_ACTIONS:
        shape = _RAM if base.endswith("-ram") else _SCREEN
        return _Spaces(shape, np.uint8, _NUM_ACTIONS[game], _MOST_OF_GAME)
    first = base.partition("-")[0].lower()  # `hopper-medium-v2` is data of a Hopper
    base = next((each for each in (*_DISCRETE, *_CONTINUOUS, *_BY_VERSION) if each.lower() == first), base)
    if base in _DISCRETE:
        size, num, most = _DISCRETE[base]
        return _Spaces((size,), np.float32, num, most)
    if base in _CONTINUOUS:
        size, num, high, most = _CONTINUOUS[base]
        return _Spaces((size,), np.float32, (num, high), most)
    sizes, num, high, most = _BY_VERSION.get(base, ({}, 0, 0.0, 0))
    return _Spaces((sizes[version],), np.float32, (num, high), most) if version in sizes else None


# --- where gym or gymnasium is installed


def _make_what_is_missing(registration: Any) -> None:
    """Let its `make` give an environment whose package is not installed, with the spaces of its page."""
    make_installed = registration.make

    @functools.wraps(make_installed)
    def make_any(id: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: A002 -- as above
        try:
            return make_installed(id, *args, **kwargs)
        except Exception:  # of several kinds: unknown names, packages and files that are not there
            spaces = spaces_of(str(getattr(id, "id", id)))
            if spaces is None:
                raise
        name = str(getattr(id, "id", id))
        _assume(name)
        package = sys.modules[registration.__name__.partition(".")[0]]
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


def _without_dynamics(package: Any, name: str, spaces: _Spaces, render_mode: str | None) -> Any:
    """Return an environment of a class that derives from the package's own, so that its wrappers take it."""
    observations, actions = spaces.made(package.spaces.Box, package.spaces.Discrete)

    def begin(self: Any, *, seed: int | None = None, options: object = None) -> tuple[Any, dict[str, Any]]:
        del options
        package.Env.reset(self, seed=seed)
        self.num_steps = 0
        return np.zeros(spaces.shape, spaces.dtype), {}

    def step(self: Any, _action: object) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.num_steps += 1
        return np.zeros(spaces.shape, spaces.dtype), 0.0, self.num_steps % _EPISODE == 0, False, {}

    attributes = {
        "metadata": {"render_modes": ["human", "rgb_array"], "render_fps": 30},
        "observation_space": observations,
        "action_space": actions,
        "render_mode": render_mode,
        "spec": SimpleNamespace(id=name, max_episode_steps=spaces.most, reward_threshold=None, kwargs={}),
        "num_steps": 0,
        "reset": begin,
        "step": step,
        "render": lambda _self: np.zeros(_SCREEN, np.uint8),
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
