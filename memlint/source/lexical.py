"""Questions about code that its text answers without a syntax tree, so that few files of a project are parsed.

A file for which the answer is no holds nothing that is searched for; one for which it is yes may still hold nothing.
"""

import re
from collections.abc import Collection
from functools import lru_cache

_SPACE = r"[\s\\)]*"
"""Text that may stand between a name and the parenthesis of its call: `(Model) (...)`, lines that go on."""
_CHOSEN = re.compile(rf"[\w)\]}}'\"][\s\\]*\[(?:[^\[\]]|\[[^\[\]]*\])*\]{_SPACE}\(|\]\]{_SPACE}\(")
"""Call of an entry, as in `models[args.arch](...)`; not of a list itself, which is none. Deep nesting counts as one."""
_ASKED = re.compile(rf"getattr(?!\w)(?<!\wgetattr){_SPACE}\([^()]*(?:\([^()]*\)[^()]*)*\){_SPACE}\(")
"""Call of an attribute that is asked for by its name, as in `getattr(models, arch)(...)`."""
_SETTINGS = re.compile(
    rf"(?<!\w)(?:add_argument|DEFINE_\w+){_SPACE}\(|(?<!\w)CfgNode(?!\w)"
    r"|(?<!\w)class (?:Config|DefaultConfig|Options|Settings)(?!\w)"
)
_MAPPING = re.compile(rf"(?<!\w)(?:HParams|Namespace|(?:Attr|Easy|Config)Dict|edict|dict){_SPACE}\(")
_TOKEN = re.compile(
    r"'''.*?'''|\"\"\".*?\"\"\"|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"|#[^\n]*|[=!<>:]=|[()\[\]{}=]", re.DOTALL
)
_FEW = 4


def may_call(text: str, names: Collection[str]) -> bool:
    """Return True if code may call one of `names`, a method of it, or something that it finds by its name."""
    return may_choose(text) or _called(frozenset(names)).search(text) is not None


def may_choose(text: str) -> bool:
    """Return True if code may call what it finds by a name."""
    return _CHOSEN.search(text) is not None or _ASKED.search(text) is not None


def may_import(text: str, modules: Collection[str], names: Collection[str]) -> bool:
    """Return True if code may have `names` from a file that one of `modules` is a part of the module name of.

    That is from an import of such a module, a relative one, one of all names, or one that is made at run time, whose
    result has one of `names`; or where a call stands behind more than names: `make().Model()`.
    """
    imported, asked = _imported(frozenset(modules), frozenset(names))
    is_asked = "import_module" in text or "__import__" in text
    return imported.search(text) is not None or (is_asked and asked.search(text) is not None)


def may_call_itself(text: str, name: str) -> bool:
    """Return True if code may call `name`, as written."""
    return _called(frozenset((name,))).search(text) is not None


def may_hold_settings(text: str) -> bool:
    """Return True if code may have options of a command line, or a call with as many keywords as settings have."""
    if _SETTINGS.search(text) is not None:
        return True
    return any(_has_keywords(text, match.end()) for match in _MAPPING.finditer(text))


@lru_cache(maxsize=64)
def _called(names: frozenset[str]) -> re.Pattern[str]:
    # Text first, conditions later: such a pattern is searched ten times as fast.
    each = (rf"{name}(?!\w)(?<!\w{name})(?<!def {name})(?<!class {name})" for name in map(re.escape, sorted(names)))
    return re.compile(rf"(?:{'|'.join(each)}){_SPACE}(?:\.[\s\\]*\w+{_SPACE})?\(")


@lru_cache(maxsize=64)
def _imported(modules: frozenset[str], names: frozenset[str]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return the pattern of imports, and that of `names` as attributes."""
    module, name = ("|".join(map(re.escape, sorted(filter(None, each)))) for each in (modules, names))
    known = rf"(?:from|import)\b(?:[^\n\\]|\\\n)*?(?:\*|\b(?:{module})\b)"
    line = rf"(?:^|[;:])[ \t]*(?:from[ \t]+\.|{known})"
    attribute = rf"\.[\s\\]*(?:{name})\b"
    behind = rf"(?:[)\]]|\b(?:{module}))[\s\\]*{attribute}"
    return re.compile(rf"{line}|{behind}", re.MULTILINE), re.compile(attribute)


def _has_keywords(text: str, start: int) -> bool:
    """Return True if the call whose parenthesis ends at `start` has as many keywords as settings have."""
    depth, num_keywords = 1, 0
    for match in _TOKEN.finditer(text, start):
        token = match[0]
        if token in "([{":
            depth += 1
        elif token in ")]}":
            depth -= 1
            if not depth:
                return False
        elif token == "=" and depth == 1:
            num_keywords += 1
            if num_keywords == _FEW:
                return True
    return False
