"""The settings of an editor: `initializationOptions`, and the section `memlint` of its settings."""

from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from memlint.base.errors import UsageError


class Options(BaseModel):
    """The options of the language server, in camel case where a client writes them."""

    model_config = ConfigDict(extra="ignore", frozen=True, alias_generator=to_camel, populate_by_name=True)

    gpu: str | None = None
    batch: Annotated[int, Field(ge=1)] | None = None
    dtype: str | None = None
    mode: str | None = None
    optimizer: str | None = None
    trace_on_save: bool = True
    """True to run the models of a file when it is saved."""
    trace_on_open: bool = False
    """True to run them when it is opened, too."""
    bytes_beside_lines: bool = True
    """True to show the bytes of lines as inlay hints."""

    @classmethod
    def of(cls, content: Any) -> Self:
        """Read them from what a client sends, which may have them under `memlint`. Raises UsageError."""
        inner = content.get("memlint", content) if isinstance(content, dict) else {}
        try:
            return cls.model_validate(inner or {})
        except ValidationError as error:
            raise _refused(error) from error

    def changed(self, content: dict[str, Any]) -> Self:
        """The same with those in `content` in place of its own. Raises UsageError."""
        try:
            return type(self).model_validate(self.model_dump(by_alias=True) | content)
        except ValidationError as error:
            raise _refused(error) from error

    @property
    def settings(self) -> dict[str, object]:
        """Those that the command line has too, as it would give them."""
        names = ("gpu", "batch", "dtype", "mode", "optimizer")
        return {name: value for name in names if (value := getattr(self, name)) is not None}


def _refused(error: ValidationError) -> UsageError:
    first = error.errors()[0]
    return UsageError(f"the setting memlint.{first['loc'][0]}: {first['msg']}", "See docs/editors.md.")
