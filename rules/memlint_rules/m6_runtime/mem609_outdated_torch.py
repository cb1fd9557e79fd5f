import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.text import Source

_PINNED = re.compile(
    r"torch\s*(?:(?:[<>!=~]=?|===)[^,]*,\s*)*(?:(?:==|~=|<=)\s*[01]\.[\d.*]*|<\s*(?:[01]\.[\d.*]+|2(?:\.0)*))(?:\s*,.*)?"
)
_WORTH_PARSING = re.compile(r"""['"]torch\s*[<>=~!]""")


class OutdatedTorch(SourceRule):
    """The requirements keep PyTorch below 2.0, where gradients are kept and attention takes more memory.

    Looks for requirements such as `"torch==1.13"` or `"torch<2"` in Python files, as in a `setup.py`.

    ## Why it costs memory

    Since PyTorch 2.0 `zero_grad` frees the gradients by default; before, it filled them with zeros and they stayed
    alive through the next forward. 2.0 also brought `scaled_dot_product_attention`, which does not write the scores to
    memory, and 2.1 `torch.load(mmap=True)` and hooks that apply the optimizer during backward.

    ## Known limits

    `requirements.txt`, `pyproject.toml` and environment files are not read.

    - https://github.com/pytorch/pytorch/releases/tag/v2.0.0
    """

    code, name, severity = "MEM609", "outdated-torch", Severity.NOTE
    example = """\
from setuptools import setup

setup(name="model", version="1.0", install_requires=["torch==1.13.1", "numpy"])
"""
    bad = (
        Case(example, line=3),
        Case("""\
from setuptools import setup

setup(name="model", version="1.0", install_requires=["torch>=1.8,<2"])
""").but(title="Anything below 2", line=3),
    )
    good = (
        Case("""\
from setuptools import setup

setup(name="model", version="1.0", install_requires=["torch>=2.4", "numpy"])
"""),
        Case("""\
from setuptools import setup

setup(name="model", version="1.0", install_requires=["torch>=1.8"])
""").but(title="A lower bound"),
    )

    def check(self, source: Source) -> Findings:
        if not _WORTH_PARSING.search(source.text):
            return
        for node in source.index.of(ast.Constant):
            if isinstance(node.value, str) and _PINNED.fullmatch(node.value.strip()):
                yield self.finding(
                    source,
                    node,
                    f"`{node.value.strip()}` allows only PyTorch 1, which keeps gradients filled with zeros after "
                    "`zero_grad` and has no attention that leaves the scores out of memory.",
                    "Require PyTorch 2 if the code allows it.",
                )
