"""The search in a file's text never misses what its syntax tree has."""

import ast
from pathlib import Path

import pytest

from memlint.source.calls import called, last_name
from memlint.source.lexical import may_call, may_call_itself, may_choose, may_hold_settings, may_import
from memlint.source.options import options_in
from memlint.source.text import Source

ROOT = Path(__file__).parents[2]
REAL = [
    file
    for folder in ("fixtures/scripts", "fixtures/models", "benchmarks")
    for file in sorted((ROOT / folder).glob("*.py"))
]


@pytest.fixture(scope="module")
def sources():
    return [Source.read(path) for path in REAL]


def test_every_call_in_real_files_is_possible_by_their_text(sources):
    assert len(sources) > 30
    for source in sources:
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Call) and (name := called(node)):
                assert may_call_itself(source.text, name), (source.path, name)
                assert may_call(source.text, [name])
                if isinstance(node.func, ast.Attribute) and (holder := last_name(node.func.value)):
                    assert may_call(source.text, [holder]), (source.path, holder)


def test_every_file_with_settings_may_hold_some_by_its_text(sources):
    library = [Source.read(file) for file in sorted(Path(ast.__file__).parent.glob("[a-d]*.py"))]
    holding = [source for source in (*sources, *library) if options_in(source, ROOT)]
    assert len(holding) > 5
    assert all(may_hold_settings(source.text) for source in holding)
    assert sum(may_hold_settings(source.text) for source in library) < len(library) / 2


@pytest.mark.parametrize(
    "text",
    [
        "Net(3)",
        "nets.Net (3)",
        "(Net)(3)",
        "Net \\\n  (3)",
        "Net.small(3)",
        "Net . small (3)",
        "MODELS[name](3)",
        "getattr(models, name)(3)",
        "getattr(models, prefix() + name)(3)",
    ],
)
def test_calls_of_every_form_are_possible(text):
    assert may_call(text, ["Net"])


@pytest.mark.parametrize(
    "text", ["class Net(Module): ...", "def Net(): ...", "# Net is here", "OtherNet(3)", "Net2(3)", "x: Net = y"]
)
def test_what_only_mentions_a_name_is_no_call(text):
    assert not may_call(text, ["Net"])


@pytest.mark.parametrize(
    "text", ["[Net](docs/net.md)", "- [Net](net.md)", "x = [Net]", "layers[0]", "isinstance(x, list[Net])"]
)
def test_a_link_or_a_list_is_no_table_of_models(text):
    assert not may_choose(text)


@pytest.mark.parametrize(
    "text", ["M[a](3)", "M[a[b]](3)", "M[a[b[c]]](3)", "make()[a](3)", "{'a': Net}[a](3)", "M[\n  a\n](3)", "M [a] (3)"]
)
def test_a_call_of_an_entry_of_a_table_chooses(text):
    assert may_choose(text)


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("from nets.unet import Net", True),
        ("import torch, unet", True),
        ("from . import Net", True),
        ("from elsewhere import *", True),
        ("from \\\n  nets import Net", True),
        ("if x: from nets import Net", True),
        ("module = import_module(name)\nmodule.Net(3)", True),
        ("package = import_module(name)", False),
        ("build().Net(3)", True),
        ("import all_nets\nall_nets.nets.Net(3)", True),
        ("from elsewhere import Net\nNet(3)  # as nets has it", False),
        ("import torch", False),
    ],
)
def test_only_files_that_may_have_the_name_from_the_module_are_worth_parsing(text, may):
    assert may_import(text, {"nets", "unet"}, {"Net"}) is may


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("parser.add_argument('--lr')", True),
        ("flags.DEFINE_integer('batch', 3)", True),
        ("_C = CfgNode()", True),
        ("dict(a=1, b=f(x, y=2), c='(', d=[{}])", True),
        ("AttrDict(a=1, b='''=)''', c=3,  # )\n d=4)", True),
        ("dict(a=1, b=f(x=1, y=2, z=3), c=4)", False),
        ("dict(a == b, c == d, e == f, g == h)", False),
        ("dict(pairs)\na = b = c = d = 1", False),
        ("my_dict(a=1, b=2, c=3, d=4)", False),
    ],
)
def test_settings_are_options_of_a_command_line_or_calls_with_many_keywords(text, may):
    assert may_hold_settings(text) is may
