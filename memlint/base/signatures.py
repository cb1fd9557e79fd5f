"""Signatures of the program's functions and classes, read even if names in their annotations do not exist.

From Python 3.14 on, annotations are evaluated only when they are read, and names that are imported for type checkers
alone fail then.
"""

import inspect
import sys
from functools import partial

if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotations

    annotations_of = partial(get_annotations, format=Format.FORWARDREF)
    signature_of = partial(inspect.signature, annotation_format=Format.FORWARDREF)
else:
    annotations_of = inspect.get_annotations
    signature_of = inspect.signature
