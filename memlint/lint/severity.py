"""How much a finding matters, and what its bytes come from."""

from enum import StrEnum


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"
    NOTE = "note"


class Confidence(StrEnum):
    """The source of the bytes of a finding."""

    EXACT_RETRACE = "exact-retrace"
    """The changed program was traced."""
    EXACT_LIFETIME = "exact-lifetime"
    """The lifetimes of Buffers were edited and the peak computed again."""
    MODELLED = "modelled"
    """Buffers were given the sizes that a formula says."""
    ANALYTIC = "analytic"
    """A closed formula, without any simulation."""
    HEURISTIC = "heuristic"
    """A pattern in the source; no bytes were computed."""
