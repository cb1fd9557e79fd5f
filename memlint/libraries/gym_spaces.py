"""The spaces of the environments of gym and gymnasium, by their names.

Source of the sizes: the pages of the environments of gym 0.26, gymnasium 1.0, the Arcade Learning Environment, and
D4RL's paper (Fu et al., 2020, arXiv:2004.07219) for those that it adds.
"""

import re
from typing import Any, NamedTuple

import numpy as np

_DISCRETE = {
    "Acrobot": (6, 3, 500),
    "CartPole": (4, 2, 500),
    "LunarLander": (8, 4, 1000),
    "MountainCar": (2, 3, 200),
}
"""By name: size of the observation, number of actions, and steps after which an episode is cut."""
_CONTINUOUS = {
    "AntMaze": (29, 8, 1.0, 1000),
    "BipedalWalker": (24, 4, 1.0, 1600),
    "Door": (39, 28, 1.0, 200),
    "HalfCheetah": (17, 6, 1.0, 1000),
    "Hammer": (46, 26, 1.0, 200),
    "Hopper": (11, 3, 1.0, 1000),
    "InvertedPendulum": (4, 1, 3.0, 1000),
    "Kitchen": (60, 9, 1.0, 280),
    "LunarLanderContinuous": (8, 2, 1.0, 1000),
    "Maze2d": (4, 2, 1.0, 300),
    "MountainCarContinuous": (2, 1, 1.0, 999),
    "Pen": (45, 24, 1.0, 100),
    "Pendulum": (3, 1, 2.0, 200),
    "Pusher": (23, 7, 2.0, 100),
    "Relocate": (39, 30, 1.0, 200),
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
SCREEN, _RAM, _MOST_OF_GAME = (210, 160, 3), (128,), 27_000


class Spaces(NamedTuple):
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


_SEEN_FROM_ABOVE = {"carracing": Spaces((96, 96, 3), np.uint8, (3, 1.0), 1000)}


def spaces_of(name: str) -> Spaces | None:
    """Return the spaces of an environment; None where no page states them."""
    base, _, version = name.removeprefix("ALE/").rpartition("-v")
    base = base.removesuffix("Hardcore")
    game = re.sub(r"NoFrameskip$|Deterministic$", "", base.removesuffix("-ram"))
    if game in _NUM_ACTIONS:
        shape = _RAM if base.endswith("-ram") else SCREEN
        return Spaces(shape, np.uint8, _NUM_ACTIONS[game], _MOST_OF_GAME)
    first = base.partition("-")[0].lower()  # `hopper-medium-v2` is data of a Hopper
    if first in _SEEN_FROM_ABOVE:
        return _SEEN_FROM_ABOVE[first]
    base = next((each for each in (*_DISCRETE, *_CONTINUOUS, *_BY_VERSION) if each.lower() == first), base)
    if base in _DISCRETE:
        size, num, most = _DISCRETE[base]
        return Spaces((size,), np.float32, num, most)
    if base in _CONTINUOUS:
        size, num, high, most = _CONTINUOUS[base]
        return Spaces((size,), np.float32, (num, high), most)
    sizes, num, high, most = _BY_VERSION.get(base, ({}, 0, 0.0, 0))
    return Spaces((sizes[version],), np.float32, (num, high), most) if version in sizes else None
