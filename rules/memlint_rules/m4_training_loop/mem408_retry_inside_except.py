import ast
import re

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.scopes import Scope, scopes
from memlint.source.text import Source, dotted_name

_LETS_GO = re.compile(r"__traceback__|with_traceback\(None\)|clear_frames")
_BUILTIN = re.compile(r"(str|repr|print|len|isinstance|type|range|int|float|min|max|getattr|hasattr|format)")
_HARMLESS = re.compile(
    r"empty_cache|collect|zero_grad|print|info|warning|warn|error|debug|log|write|format|synchronize|sleep|update|append"
    r"|time|clear|memory_summary|memory_allocated|reset_peak_memory_stats|exit|step|item|size|to|cuda|join|split|get"
)


class RetryInsideExcept(SourceRule):
    """A retry inside the exception handler runs while the traceback still keeps the failed attempt's tensors.

    Looks for handlers of `torch.OutOfMemoryError`, and of errors whose text is compared with "out of memory", that
    repeat a call of the `try` block, or call the function that contains them.

    ## Why it costs memory

    While a handler runs, Python keeps the exception, its traceback, and through it the frames of every function that
    was active when the allocation failed, with all their local tensors. So the second attempt starts while the memory
    of the first is still allocated, and `empty_cache` cannot free it.

    ## How the saving is computed

    The possible saving is the memory that the failed attempt had allocated.

    ## Known limits

    Calls are compared by name. Handlers that clear the traceback are left out.

    - https://docs.pytorch.org/docs/stable/notes/faq.html#my-out-of-memory-exception-handler-can-t-allocate-memory
    """

    code, name, severity = "MEM408", "retry-inside-except", Severity.INFO
    example = """\
import torch

def run(model, batch):
    try:
        return model(batch)
    except torch.OutOfMemoryError:
        torch.cuda.empty_cache()
        first, second = batch.chunk(2)
        return torch.cat([model(first), model(second)])
"""
    bad = (Case(example, line=9),)
    good = (
        bad[0].but(
            {
                "torch.cuda.empty_cache()": "pass",
                "        first, second = batch.chunk(2)": "    first, second = batch.chunk(2)",
                "        return torch.cat([model(first), model(second)])": (
                    "    return torch.cat([model(first), model(second)])"
                ),
            }
        ),
        Case("""\
import torch

def fit(model, loader, optimizer):
    for x in loader:
        try:
            model(x).mean().backward()
        except RuntimeError as error:
            if "out of memory" not in str(error):
                raise
            optimizer.zero_grad()
            torch.cuda.empty_cache()
""").but(title="The batch is skipped"),
    )

    def check(self, source: Source) -> Findings:
        if "OutOfMemoryError" not in source.text and "out of memory" not in source.text:
            return
        for scope in scopes(source):
            for node in scope.nodes:
                if isinstance(node, ast.Try):
                    tried = _names(node.body) | ({scope.name} - {""})
                    for handler in node.handlers:
                        if _is_out_of_memory(handler):
                            yield from self._retries(scope, handler, tried)

    def _retries(self, scope: Scope, handler: ast.ExceptHandler, tried: set[str]) -> Findings:
        if _LETS_GO.search(ast.unparse(handler)):
            return
        for call in scope.calls:
            if handler in scope.around(call) and _name(call) in tried:
                yield self.finding(
                    scope.source,
                    call,
                    f"`{ast.unparse(call)[:60]}` runs inside the handler, whose traceback still keeps every tensor of "
                    "the attempt that failed.",
                    "Only note in the handler that memory ran out, and try again after it.",
                )
                return


def _is_out_of_memory(handler: ast.ExceptHandler) -> bool:
    caught = ast.unparse(handler.type) if handler.type is not None else ""
    return "OutOfMemoryError" in caught or "out of memory" in ast.unparse(handler)


def _names(body: list[ast.stmt]) -> set[str]:
    """Return the calls in `body` that may allocate, as written."""
    return {_name(node) for statement in body for node in ast.walk(statement) if isinstance(node, ast.Call)} - {""}


def _name(call: ast.Call) -> str:
    name = dotted_name(call.func)
    harmless = _BUILTIN.fullmatch(name) or ("." in name and _HARMLESS.fullmatch(name.rpartition(".")[2]))
    # A recursive method is called through `self`.
    return "" if harmless else name.removeprefix("self.")
