"""Environments of gym and gymnasium that are not installed: policies get the sizes that their pages state."""

import importlib
import sys
from textwrap import dedent

import pytest

from memlint.base.errors import TraceError
from memlint.libraries import gym
from memlint.libraries.finders import Finder


@pytest.fixture(autouse=True)
def assumed(monkeypatch):
    """Texts of what is assumed."""
    texts = []
    monkeypatch.setattr(gym, "assume_once", texts.append)
    return texts


@pytest.mark.parametrize(
    ("name", "observation", "action"),
    [
        ("HalfCheetah-v2", (17,), (6,)),
        ("Ant-v3", (111,), (8,)),
        ("Ant-v4", (27,), (8,)),
        ("Pendulum-v1", (3,), (1,)),
        ("BipedalWalkerHardcore-v3", (24,), (4,)),
        ("hopper-medium-v2", (11,), (3,)),
        ("halfcheetah-medium-expert-v2", (17,), (6,)),
    ],
)
def test_an_environment_has_the_spaces_of_its_page(name, observation, action, assumed):
    environment = gym.make(name)
    assert (environment.observation_space.shape, environment.action_space.shape) == (observation, action)
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


def test_both_packages_are_known():
    assert [library.name for library in gym.libraries] == ["gym", "gymnasium"]
    assert gym.libraries[0].modules["gym"]["make"] is gym.make


def test_an_installed_package_makes_its_own_environments(monkeypatch, tmp_path):
    folder = tmp_path / "gymnasium"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        dedent("""
        class Env:
            def __class_getitem__(cls, kinds):
                return cls


        class CartPole(Env[int, int]):
            own = True


        def make(id):
            if id == "CartPole-v1":
                return CartPole()
            raise ImportError("MuJoCo is not installed")
        """)
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    for name in [each for each in sys.modules if each.partition(".")[0] == "gymnasium"]:
        monkeypatch.delitem(sys.modules, name)
    Finder([gym.libraries[1]]).install()
    gymnasium = importlib.import_module("gymnasium")
    monkeypatch.setitem(sys.modules, "gymnasium", gymnasium)
    assert gymnasium.make("CartPole-v1").own
    assert gymnasium.Env[int, int] is gymnasium.Env
    assert gymnasium.make("HalfCheetah-v4").action_space.shape == (6,)
    with pytest.raises(ImportError, match="MuJoCo"):
        gymnasium.make("Unknown-v0")
