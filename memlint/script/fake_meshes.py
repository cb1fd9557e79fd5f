"""Meshes that are not on this machine: a sphere of triangles, in the formats that are text."""

import functools
import math
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

_NUM_RINGS, _NUM_AROUND = 70, 72
"""Vertices from pole to pole and around: 5,042 with the poles, as scanned bodies have thousands."""
_Triangle = tuple[int, int, int]
_Vertex = tuple[float, float, float]


def mesh(place: PurePath, path: Path, _options: Mapping[str, Any]) -> str:
    """Write a sphere in the format that the name of `place` says; return its description."""
    vertices, triangles = _sphere()
    points = [f"{x:.6f} {y:.6f} {z:.6f}" for x, y, z in vertices]
    sides = [f"3 {a} {b} {c}" for a, b, c in triangles]
    match place.suffix.lower():
        case ".off":
            lines = ["OFF", f"{len(points)} {len(sides)} 0", *points, *sides]
        case ".ply":
            of_vertices = [f"element vertex {len(points)}", *(f"property float {axis}" for axis in "xyz")]
            of_faces = [f"element face {len(sides)}", "property list uchar int vertex_indices"]
            lines = ["ply", "format ascii 1.0", *of_vertices, *of_faces, "end_header", *points, *sides]
        case ".stl":
            lines = ["solid sphere", *(line for each in triangles for line in _facet(each, points)), "endsolid sphere"]
        case _:
            lines = [*(f"v {each}" for each in points), *(f"f {a + 1} {b + 1} {c + 1}" for a, b, c in triangles)]
    path.write_text("\n".join(lines) + "\n")
    return f"a mesh of {len(points):,} vertices and {len(sides):,} triangles"


def _facet(triangle: _Triangle, points: list[str]) -> list[str]:
    corners = [f"vertex {points[each]}" for each in triangle]
    return ["facet normal 0 0 1", "outer loop", *corners, "endloop", "endfacet"]


@functools.cache
def _sphere() -> tuple[list[_Vertex], list[_Triangle]]:
    """Return the vertices of a sphere, the poles last, and its triangles."""
    vertices, triangles = list[_Vertex](), list[_Triangle]()
    for ring in range(_NUM_RINGS):
        height = math.pi * (ring + 1) / (_NUM_RINGS + 1)
        for step in range(_NUM_AROUND):
            turn = 2 * math.pi * step / _NUM_AROUND
            vertices.append((math.sin(height) * math.cos(turn), math.sin(height) * math.sin(turn), math.cos(height)))
    top, bottom, last = len(vertices), len(vertices) + 1, (_NUM_RINGS - 1) * _NUM_AROUND
    vertices += [(0.0, 0.0, 1.0), (0.0, 0.0, -1.0)]
    for step in range(_NUM_AROUND):
        after = (step + 1) % _NUM_AROUND
        triangles += [(top, step, after), (bottom, last + after, last + step)]
        for ring in range(_NUM_RINGS - 1):
            a, b = ring * _NUM_AROUND + step, ring * _NUM_AROUND + after
            triangles += [(a, a + _NUM_AROUND, b), (b, a + _NUM_AROUND, b + _NUM_AROUND)]
    return vertices, triangles
