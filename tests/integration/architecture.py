"""The picture of docs/architecture.md: the packages of memlint and what they import, drawn from the code.

`python -m tests.integration.architecture docs/architecture.md` writes the picture of today into the page.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import grimp
import networkx as nx

ROOT = Path(__file__).parents[2]
ENGINE = "memlint"
PYTHON_API = f"{ENGINE}/__init__.py"
TORCH_LINE = "The torch line"
"""How the name of its contract begins."""
_DRAWN = re.compile(r"(?<=<!-- drawn from the code -->\n).*?(?=<!-- end of what is drawn -->)", re.DOTALL)


def import_graph() -> nx.DiGraph[str]:
    """Packages, with an edge from each to those it imports, in functions and for types too.

    A node has `imports_torch`, true if a module of the package itself imports torch, and `is_below_line`, true if the
    contract of the torch line in pyproject.toml forbids the package to those above. `memlint/__init__.py` counts as a
    package, `memlint/__main__.py` belongs to `cli`.
    """
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    roots = linter["root_packages"]
    (torch_line,) = (each for each in linter["contracts"] if each["name"].startswith(TORCH_LINE))
    below_line = {_package_of(module) for module in torch_line["forbidden_modules"]}
    modules = grimp.build_graph(*roots, include_external_packages=True, cache_dir=None)
    importers_of_torch = modules.find_modules_that_directly_import("torch")
    graph: nx.DiGraph[str] = nx.DiGraph()
    for module in sorted(modules.modules):
        if module.partition(".")[0] not in roots:
            continue
        package = _package_of(module)
        graph.add_node(package, is_below_line=package in below_line)
        graph.nodes[package].setdefault("imports_torch", False)
        graph.nodes[package]["imports_torch"] |= module in importers_of_torch
        for imported in modules.find_modules_directly_imported_by(module):
            if imported.partition(".")[0] in roots and _package_of(imported) != package:
                graph.add_edge(package, _package_of(imported))
    return graph


def _package_of(module: str) -> str:
    root, _, inner = module.partition(".")
    if root != ENGINE:
        return root
    package = inner.partition(".")[0]
    return {"": PYTHON_API, "__main__": "cli"}.get(package, package)


def drawing(graph: nx.DiGraph[str]) -> str:
    """Markdown: a Mermaid diagram and a table of all imports.

    The diagram leaves out an arrow where a longer way of arrows leads to the same package.
    """
    ranks = {package: rank for rank, package in enumerate(nx.lexicographical_topological_sort(graph))}
    lines = ["```mermaid", "flowchart TD"]
    for title, is_below_line in (("above the torch line", False), ("below the torch line", True)):
        members = [package for package in ranks if graph.nodes[package]["is_below_line"] == is_below_line]
        lines += [f'  subgraph {title.replace(" ", "_")}["{title}"]']
        lines += [f'    {_identifier(package)}["{package}"]' for package in members]
        lines += ["  end"]
    arrows = sorted(nx.transitive_reduction(graph).edges, key=lambda arrow: [ranks[package] for package in arrow])
    lines += [f"  {_identifier(importer)} --> {_identifier(imported)}" for importer, imported in arrows]
    lines += ["```", "", "| package | contents | imports |", "|---|---|---|"]
    for package in ranks:
        imported = sorted(graph.successors(package), key=lambda name: ranks[name])
        torch = ["torch"] if graph.nodes[package]["imports_torch"] else []
        lines.append(f"| `{package}` | {_contents(package)} | {', '.join([*imported, *torch]) or 'nothing'} |")
    return "\n".join(lines) + "\n"


def _identifier(package: str) -> str:
    return re.sub(r"\W", "_", package)


def _contents(package: str) -> str:
    """The first sentence of the package's docstring."""
    name = package if package != PYTHON_API else ENGINE
    spec = find_spec(name if name.startswith(ENGINE) else f"{ENGINE}.{name}")
    assert spec is not None, package
    assert spec.origin is not None, f"{package} has no __init__.py"
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8")))
    assert docstring, f"{spec.origin} has no docstring"
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"(?<=\.)\s", paragraph)[0].replace("|", "\\|")


def redrawn(text: str, graph: nx.DiGraph[str]) -> str:
    """`text`, a page, with the picture of `graph` in the place of its own."""
    assert len(_DRAWN.findall(text)) == 1, "the page has no single place for the picture"
    return _DRAWN.sub(lambda _: f"\n{drawing(graph)}\n", text)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        page = Path(argument)
        page.write_text(redrawn(page.read_text(encoding="utf-8"), import_graph()), encoding="utf-8")
