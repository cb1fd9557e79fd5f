"""Meshes that are not there, in the formats that are text."""

from __future__ import annotations

from pathlib import Path, PurePath

import pytest

from memlint.script.fake_meshes import mesh
from tests.script.isolated import needs, run


@pytest.mark.parametrize("suffix", [".obj", ".off", ".ply", ".stl"])
def test_a_mesh_is_closed_around_a_sphere(tmp_path: Path, suffix: str) -> None:
    trimesh = pytest.importorskip("trimesh")
    assert mesh(PurePath(f"body{suffix}"), tmp_path / f"body{suffix}", {}).startswith("a mesh of 5,042 vertices")
    made = trimesh.load(str(tmp_path / f"body{suffix}"))
    assert made.vertices.shape == (5042, 3)
    assert made.is_watertight
    assert 4.1 < made.volume < 4.19, "of a sphere of radius 1, from outside"


def test_the_faces_of_a_mesh_go_around_it_once() -> None:
    """Each edge is one of two triangles, in both directions: what a closed surface is (Euler: V - E + F = 2)."""
    from memlint.script.fake_meshes import _sphere

    vertices, triangles = _sphere()
    edges = [(each[i], each[(i + 1) % 3]) for each in triangles for i in range(3)]
    assert len(set(edges)) == len(edges)
    assert {(b, a) for a, b in edges} == set(edges)
    assert len(vertices) - len(edges) // 2 + len(triangles) == 2


@pytest.mark.parametrize("name", [pytest.param("trimesh", marks=needs("trimesh"))])
def test_a_package_that_asks_before_it_opens_gets_one(tmp_path: Path, name: str) -> None:
    text = f"""\
        import {name}
        print(len({name}.load("shapes/loong.obj").vertices))
    """
    assert (run(tmp_path / "p", text).error or "").startswith("ValueError")
    assert run(tmp_path / "q", text, fake=True).stdout == "5042\n"
