"""Models of transformers that return their output alone."""

from dataclasses import dataclass
from typing import Any, ClassVar

from memlint.whatif.change import Change, Effect, NotApplicableError, model_of

_SWITCHES = ("output_hidden_states", "output_attentions", "output_scores", "output_logits")


@dataclass(frozen=True, slots=True)
class OnlyTheOutput(Change):
    """Switch off the settings of transformers that let a model return what its layers have computed.

    Not applicable if none is on.
    """

    text: ClassVar[str] = f"return the output alone: no {', '.join(f'`{name}`' for name in _SWITCHES)}"
    effect: ClassVar[Effect] = Effect.EXACT

    def after_setup(self, program: Any) -> None:
        is_switched = False
        for module in model_of(program).modules():
            for settings in (getattr(module, "config", None), getattr(module, "generation_config", None)):
                for name in _SWITCHES:
                    if getattr(settings, name, None) is True:
                        setattr(settings, name, False)
                        is_switched = True
        if not is_switched:
            raise NotApplicableError
