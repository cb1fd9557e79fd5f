import ast
import re
from collections.abc import Iterator

from memlint.lint.rule import Case, Findings, Severity, SourceRule
from memlint.source.calls import argument, before, called, chain
from memlint.source.scopes import Scope, scopes, uses_torch
from memlint.source.text import Source, dotted_name

_METHODS = frozenset({"cuda", "to", "half", "bfloat16", "eval", "train", "requires_grad_"})
_WORDS = frozenset({"half", "bfloat16", "float16", "dtype"})
_CAST = re.compile(r"\.\s*((half|bfloat16)\(\s*\)|to\(\s*(dtype\s*=\s*)?[\w.]*(float16|half|dtype)\s*\))")
_CAST_OF_CALL = re.compile(r"\.(cuda|to|eval|train|requires_grad_)\([^()]*(\([^()]*\)[^()]*)*\)[\s\\]*" + _CAST.pattern)
_HALF = re.compile(r"torch\.(bfloat16|float16|half)|([\w.]+\.)?\w*dtype")
_DEVICE = re.compile(r"""(f?['"])cuda.*|torch\.device\(f?['"]cuda.*|([\w.]+\.)?_?(device|dev|gpu|rank|local_rank)""")
_TEST = re.compile(r"test|setUp")
_MODELS = ("model", "net", "network", "unet", "vae", "encoder", "decoder", "transformer", "teacher")
_MODEL = re.compile(rf"(.*_)?({'|'.join(_MODELS)})", re.IGNORECASE)


class CastAfterMove(SourceRule):
    """A model is moved to the GPU in float32 and cast there, which briefly takes twice the bytes.

    Looks for `model.cuda().half()`, `model.to(device).to(torch.bfloat16)` and the like, also in two consecutive
    statements.

    ## Why it costs memory

    The GPU holds all weights in float32, four bytes each, before the first is cast to two bytes. For a model that just
    fits in half precision this is twice too much. If the peak of the step is higher than four bytes per parameter, the
    order does not change the peak.

    ## How the saving is computed

    The possible saving is two bytes per parameter during the setup of the model.

    ## Known limits

    Models are recognised by the usual names, by calls of a class, and by `from_pretrained`. The rule cannot tell
    whether a variable called `dtype` is a half precision.

    - https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.to
    - https://docs.pytorch.org/tutorials/recipes/recipes/module_load_state_dict_tips.html
    """

    code, name, severity = "MEM508", "cast-after-move", Severity.INFO
    example = """\
import torch
from models import Transformer

def build(config):
    return Transformer(config).cuda().half()
"""
    bad = (
        Case(example, line=5),
        Case("""\
import torch

def prepare(model, device):
    model.to(device)
    model = model.to(torch.bfloat16)
    return model
""").but(title="In two statements", line=5),
    )
    good = (
        bad[0].but({"return Transformer(config).cuda().half()": "return Transformer(config).half().cuda()"}),
        Case("""\
import torch

def prepare(model, device):
    return model.to(device, torch.bfloat16)
""").but(title="Both at once, parameter by parameter"),
    )

    def check(self, source: Source) -> Findings:
        if _WORDS.isdisjoint(source.words) or not uses_torch(source):
            return
        if not (any(_casts_model(source.text)) or _CAST_OF_CALL.search(source.text)):
            return
        for scope in scopes(source):
            for call in () if _TEST.match(scope.name) else scope.calls:
                if not _casts(call):
                    continue
                model = before(call, _METHODS)
                if _is_model(model) and (_moved_in(call) or _moved_above(scope, call, model)):
                    yield self.finding(
                        source,
                        call,
                        f"`{ast.unparse(model)[:60]}` is on the GPU in float32 before it is cast, four bytes per "
                        "parameter instead of two.",
                        "Cast first, then move, or do both in one call: `.to(device, dtype)`.",
                    )


def _casts_model(text: str) -> Iterator[bool]:
    """Yield, for everything in `text` that looks like a cast, True if it looks like the cast of a model."""
    for cast in _CAST.finditer(text):
        yield text[max(0, cast.start() - 60) : cast.start()].rstrip(" \n\\").lower().endswith(_MODELS)


def _casts(call: ast.Call) -> bool:
    if called(call) in ("half", "bfloat16"):
        return isinstance(call.func, ast.Attribute) and not call.args
    if called(call) != "to" or len(call.args) + len(call.keywords) != 1:
        return False
    dtype = argument(call, "dtype", 0)
    return dtype is not None and _HALF.fullmatch(ast.unparse(dtype)) is not None


def _moves(call: ast.Call) -> bool:
    if called(call) == "cuda":
        return True
    if called(call) != "to" or len(call.args) + len(call.keywords) != 1:
        return False
    device = argument(call, "device", 0)
    return device is not None and _DEVICE.fullmatch(ast.unparse(device)) is not None


def _is_model(node: ast.expr) -> bool:
    if isinstance(node, ast.Call):
        name = called(node)
        return name == "from_pretrained" or (name[:1].isupper() and not name.isupper() and "Tensor" not in name)
    return _MODEL.fullmatch(dotted_name(node).rpartition(".")[2]) is not None


def _moved_in(call: ast.Call) -> bool:
    """Return True if the same chain moves the model before."""
    return any(_moves(other) for other in list(chain(call, _METHODS))[1:])


def _moved_above(scope: Scope, call: ast.Call, model: ast.expr) -> bool:
    """Return True if the previous statement only moves it."""
    statement = next((parent for parent in scope.around(call) if isinstance(parent, ast.stmt)), None)
    if not isinstance(statement, ast.Expr | ast.Assign) or statement.value is not call or not dotted_name(model):
        return False
    block = getattr(scope.parents[statement], "body", [])
    position = block.index(statement) if isinstance(block, list) and statement in block else 0
    above = block[position - 1] if position else None
    if not isinstance(above, ast.Expr | ast.Assign) or not isinstance(above.value, ast.Call):
        return False
    calls = list(chain(above.value, _METHODS))
    return (
        dotted_name(before(above.value, _METHODS)) == dotted_name(model)
        and any(map(_moves, calls))
        and not any(map(_casts, calls))
    )
