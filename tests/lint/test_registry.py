"""Finding rules, and choosing among them."""

import sys
from importlib.metadata import EntryPoint

import pytest

from memlint.base.errors import UsageError
from memlint.lint.registry import GROUP, load_rules, sections, select_rules
from memlint.lint.rule import HEADINGS, Severity, SourceRule

DOC = "A rule.\n\n" + "\n".join(f"## {heading}\n" for heading in HEADINGS)

PLUGIN = '''
from __future__ import annotations
from memlint.lint.rule import Rule, Severity, SourceRule

class Mine({base}):
    """{doc}"""
    code = "{code}"
    name = "mine"
    summary = "Mine."
    severity = Severity.WARNING
    def check(self, source):
        yield from ()
'''


@pytest.fixture
def plugin(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    names = []

    def make(name, text):
        (tmp_path / f"{name}.py").write_text(text)
        names.append(name)
        return EntryPoint(name, name, GROUP)

    yield make
    for name in names:
        sys.modules.pop(name, None)


def good_plugin(code="ABC123", base="SourceRule", doc=DOC):
    return PLUGIN.format(code=code, base=base, doc=doc)


def test_built_in_rules_are_found_through_the_entry_point():
    registry = load_rules()
    codes = [rule.code for rule in registry.rules]
    assert {"MEM001", "MEM002", "MEM003", "MEM010", "MEM101", "MEM107", "MEM404"} <= set(codes)
    assert codes == sorted(codes)
    assert registry.problems == ()


def test_a_third_party_rule_is_loaded_like_a_built_in_one(plugin):
    registry = load_rules([plugin("mine_good", good_plugin())])
    assert registry["abc123"].name == "mine"
    assert registry["mine"].code == "ABC123"
    assert registry.problems == ()


def test_the_sentence_text_and_links_of_a_docstring_need_no_headings(plugin):
    text = good_plugin(
        doc="A rule.\n\n    Looks.\n\n    ## Why it costs memory\n\n    ## Known limits\n\n    - https://a.b\n    "
    )
    registry = load_rules([plugin("mine_bare", text.replace('summary = "Mine."', ""))])
    assert registry.problems == ()
    assert registry["ABC123"].summary == "A rule."
    chapters = sections(type(registry["ABC123"]))
    assert (chapters["What it does"], chapters["References"]) == ("Looks.", "- https://a.b")
    assert chapters["How the saving is computed"] == SourceRule.saving


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import no_such_module", "ModuleNotFoundError"),
        ("def f(:", "SyntaxError"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("RULES = [int]", "no subclass"),
        (good_plugin(code="abc"), "not capital letters and three digits"),
        (good_plugin(base="Rule"), "Mine is neither a SourceRule nor a TraceRule"),
        (good_plugin(doc="A rule."), "no heading 'What it does'"),
        (good_plugin(doc=DOC.removeprefix("A rule.")).replace('summary = "Mine."', ""), "has no summary"),
        (good_plugin().replace("Severity.WARNING", '"fatal"'), "is no severity"),
    ],
)
def test_a_broken_plugin_is_one_finding_that_names_it_and_the_rest_is_loaded(plugin, text, says):
    plugins = [plugin("mine_broken", text), plugin("mine_whole", good_plugin(code="XYZ001"))]
    registry = load_rules(plugins)
    (problem,) = registry.problems
    assert problem.code == "MEM003"
    assert "mine_broken" in problem.message
    assert says in problem.message
    assert registry["XYZ001"]


def test_a_plugin_that_fails_on_import_is_reported_at_its_line(plugin):
    (problem,) = load_rules([plugin("mine_line", "x = 1\n\nraise RuntimeError('no')\n")]).problems
    assert problem.path.endswith("mine_line.py")
    assert problem.line == 3


def test_a_missing_plugin_is_a_finding():
    (problem,) = load_rules([EntryPoint("gone", "no_such_plugin", GROUP)]).problems
    assert "gone" in problem.message


def test_of_two_rules_with_one_code_the_built_in_one_runs_and_the_other_is_a_finding(plugin):
    registry = load_rules(
        [plugin("mine_twice", good_plugin(code="MEM404")), EntryPoint("builtin", "memlint_rules", GROUP)]
    )
    (problem,) = registry.problems
    assert "mine_twice.Mine has the code MEM404, and so has memlint_rules" in problem.message
    assert problem.path.endswith("mine_twice.py")
    assert registry["MEM404"].name == "eval-without-no-grad"
    assert not registry.complete


def test_one_broken_rule_does_not_take_the_others_of_its_plugin_away(plugin):
    future = "from __future__ import annotations\n"
    other = good_plugin(code="").replace("class Mine", "class Other").replace(future, "")
    text = good_plugin() + other
    registry = load_rules([plugin("mine_half", text)])
    assert registry["ABC123"]
    (problem,) = registry.problems
    assert "mine_half.Other has no code" in problem.message
    assert problem.line == text.splitlines().index("class Other(SourceRule):") + 1


def test_a_base_class_with_an_underscore_is_no_rule(plugin):
    assert load_rules([plugin("mine_base", good_plugin(code="").replace("class Mine", "class _Mine"))]).problems == ()


def rule(number):
    attributes = {"code": f"MEM{number}", "name": f"rule-{number}", "summary": "x", "severity": Severity.NOTE}
    return type(f"Rule{number}", (SourceRule,), attributes)()


RULES = [rule(number) for number in (101, 107, 204, 404)]


def codes(select=("ALL",), ignore=()):
    return [int(chosen.code[3:]) for chosen in select_rules(RULES, select, ignore)]


def test_all_rules_are_chosen_by_default():
    assert codes() == [101, 107, 204, 404]


def test_beginnings_of_codes_select_and_ignore():
    assert codes(select=["MEM1"]) == [101, 107]
    assert codes(select=["mem204", "MEM4"]) == [204, 404]
    assert codes(ignore=["MEM1"]) == [204, 404]
    assert codes(select=[]) == []


def test_the_longest_beginning_decides():
    assert codes(select=["MEM1"], ignore=["MEM107"]) == [101]
    assert codes(select=["MEM107"], ignore=["MEM1"]) == [107]
    assert codes(select=["ALL", "MEM107"], ignore=["MEM"]) == [107]


def test_ignore_wins_between_equals():
    assert codes(select=["MEM107", "MEM1"], ignore=["MEM107"]) == [101]
    assert codes(select=["ALL"], ignore=["ALL"]) == []


@pytest.mark.parametrize(("typed", "meant"), [("MEM170", "MEM107"), ("MEM1O7", "MEM107"), ("rule-402", "MEM404")])
def test_an_unknown_code_is_an_error_with_the_closest_one(typed, meant):
    for options in ({"select": [typed]}, {"ignore": [typed]}):
        with pytest.raises(UsageError) as caught:
            codes(**options)
        assert typed in caught.value.message
        assert meant in caught.value.hint


def test_an_empty_code_is_an_error():
    with pytest.raises(UsageError):
        codes(select=[""])


def test_diagnostics_stay_unless_they_are_ignored_by_name():
    installed = load_rules().rules
    chosen = [rule.code for rule in select_rules(installed, ["MEM404"])]
    assert chosen == ["MEM001", "MEM002", "MEM003", "MEM004", "MEM404"]
    assert [rule.code for rule in select_rules(installed, ["MEM404"], ["MEM0"])] == ["MEM404"]
