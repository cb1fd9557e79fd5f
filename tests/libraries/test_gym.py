"""Environments of gym and gymnasium that are not installed: policies get the sizes that their pages state."""

import sys
from textwrap import dedent
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from memlint.base.errors import TraceError
from memlint.libraries import d4rl, gym


@pytest.fixture(autouse=True)
def assumed(monkeypatch):
    """Texts of what is assumed."""
    texts = []
    monkeypatch.setattr(gym, "assume_once", texts.append)
    monkeypatch.setattr(d4rl, "assume_once", texts.append)
    return texts


@pytest.mark.parametrize(
    ("name", "observation", "action"),
    [
        ("HalfCheetah-v2", (17,), (6,)),
        ("Ant-v3", (111,), (8,)),
        ("Ant-v4", (27,), (8,)),
        ("Pendulum-v1", (3,), (1,)),
        ("BipedalWalkerHardcore-v3", (24,), (4,)),
        ("CarRacing-v3", (96, 96, 3), (3,)),
        ("hopper-medium-v2", (11,), (3,)),
        ("halfcheetah-medium-expert-v2", (17,), (6,)),
    ],
)
def test_an_environment_has_the_spaces_of_its_page(name, observation, action, assumed):
    environment = gym.make(name)
    assert (environment.observation_space.shape, environment.action_space.shape) == (observation, action)
    assert environment.env.action_space is environment.action_space
    assert assumed == [
        f"{name} is not installed: it has the spaces of its documentation, and all that it gives is zero"
    ]


def test_discrete_actions_are_counted():
    assert gym.make("CartPole-v1").action_space.n == 2
    assert float(gym.make("Pendulum-v0").action_space.high[0]) == 2.0


@pytest.mark.parametrize("name", ["MyOwnWorld-v0", "Ant-v7", "Pong"])
def test_an_environment_that_nobody_knows_is_to_be_installed(name):
    with pytest.raises(TraceError, match="the shapes of its observations are not known") as caught:
        gym.make(name)
    assert caught.value.hint.startswith("Install gym")


def test_episodes_are_taken_apart_as_either_package_gives_them_and_end():
    names = {"environment": gym.make("CartPole-v1")}
    exec(  # the names to which a line takes a result apart are its own
        dedent("""
        state = environment.reset()
        new, info = environment.reset()
        after, reward, done, more = environment.step(0)
        later, reward, ended, cut, more = environment.step(0)
        num = 2
        while not environment.step(environment.action_space.sample())[2]:
            num += 1
        values = list(state)
        """),
        names,
    )
    assert names["state"].shape == names["new"].shape == names["later"].shape == (4,)
    assert (names["info"], names["done"], names["ended"], names["cut"]) == ({}, False, False, False)
    assert names["num"] < 20
    assert names["values"] == [0.0] * 4


@pytest.mark.parametrize(
    ("name", "shape", "actions"),
    [
        ("BreakoutNoFrameskip-v4", (210, 160, 3), 4),
        ("ALE/Pong-v5", (210, 160, 3), 6),
        ("Seaquest-ramDeterministic-v4", None, None),
        ("Seaquest-ram-v4", (128,), 18),
    ],
)
def test_games_have_a_screen_or_memory_and_their_actions(name, shape, actions):
    if shape is None:
        with pytest.raises(TraceError):
            gym.make(name)
        return
    environment = gym.make(name)
    assert (environment.observation_space.shape, environment.action_space.n) == (shape, actions)
    assert environment.observation_space.dtype == "uint8"


@pytest.fixture
def installed(monkeypatch):
    """A package like gymnasium, of which CartPole alone is there."""

    class Env:
        def reset(self, *, seed=None):
            self.seeded = seed

        @property
        def unwrapped(self):
            return self

    def make(id, **_options):  # noqa: A002 -- as there
        if id != "CartPole-v1":
            raise ModuleNotFoundError("No module named 'ale_py'")
        return "its own"

    package = ModuleType("boxes_gym")
    package.Env, package.spaces = Env, SimpleNamespace(Box=gym.Box, Discrete=gym.Discrete)
    registration = ModuleType("boxes_gym.envs.registration")
    registration.make = make
    monkeypatch.setitem(sys.modules, "boxes_gym", package)
    gym._make_what_is_missing(registration)
    return registration.make, package


def test_recorded_steps_have_the_sizes_of_their_environment_and_of_their_page():
    environment = gym.make("hopper-medium-replay-v2")
    steps = environment.get_dataset()
    assert (steps["observations"].shape, steps["actions"].shape) == ((402_000, 11), (402_000, 3))
    of_learning = d4rl.qlearning_dataset(environment)
    assert {len(each) for each in of_learning.values()} == {402_000 - 402}
    assert [len(each["rewards"]) for each in d4rl.sequence_dataset(environment)] == [1000] * 402
    with pytest.raises(TraceError, match="their shapes are not known"):
        d4rl.recorded_steps("somewhere-v0")


def test_an_environment_of_an_installed_gym_is_taken_apart_as_before_version_0_26():
    class Env:
        def reset(self):
            return np.zeros(3), {}

        def step(self, action):
            return np.zeros(3), 1.0, False, True, {}

    class Wrapper:
        def __init__(self, env):
            self.env = env

    environment = gym._of_any_version(SimpleNamespace(Wrapper=Wrapper), Env())
    environment.seed(0)
    assert environment.reset().shape == (3,)
    seen, info = environment.reset()
    seen, reward, is_over, info = environment.step(0)
    assert (seen.shape, reward, is_over, info) == ((3,), 1.0, True, {})
    seen, reward, is_over, is_cut, info = environment.step(0)
    assert (is_over, is_cut) == (True, False)


def test_an_installed_package_makes_its_own_environments(installed, assumed):
    make, _package = installed
    assert make("CartPole-v1", render_mode="rgb_array") == "its own"
    assert assumed == []
    with pytest.raises(ModuleNotFoundError, match="ale_py"):
        make("MyOwnWorld-v0")


def test_what_is_not_installed_derives_from_the_installed_package(installed, assumed):
    make, package = installed
    environment = make("BreakoutNoFrameskip-v4")
    assert isinstance(environment, package.Env)
    observation, info = environment.reset(seed=3)
    assert (observation.shape, observation.dtype, info, environment.seeded) == ((210, 160, 3), "uint8", {}, 3)
    ends = [environment.step(0)[2] for _ in range(10)]
    assert ends == [False] * 9 + [True]
    assert environment.unwrapped.get_action_meanings() == ["NOOP", "FIRE", "UP", "RIGHT"]
    assert environment.unwrapped.ale.lives() == 3
    assert len(assumed) == 1


def test_environments_take_their_steps_in_this_process(monkeypatch, assumed):
    class Here:
        def __init__(self, env_fns, copy=True):
            self.envs, self.copy = [make() for make in env_fns], copy

    vectors, inner = ModuleType("vectors"), ModuleType("vectors.asynchronous")
    apart = type("Apart", (), {"__module__": inner.__name__})
    vectors.Here, vectors.Apart, inner.Apart = Here, apart, apart
    monkeypatch.setitem(sys.modules, inner.__name__, inner)
    gym._step_here("Apart", "Here", vectors)
    assert vectors.Apart is inner.Apart
    made = vectors.Apart([list, dict], copy=False, context="spawn")
    assert (made.envs, made.copy, isinstance(made, Here)) == ([[], {}], False, True)
    assert assumed == ["no processes are started for environments: they take their steps in this one"]


def test_both_packages_are_known():
    assert [library.name for library in gym.libraries] == ["gym", "gymnasium"]
    assert gym.libraries[0].modules["gym"]["make"] is gym.make


def test_a_program_may_register_environments_and_look_for_them():
    gym.register(id="Push-v0", entry_point="push:Push")
    assert "Push-v0" not in gym.Registry().env_specs
