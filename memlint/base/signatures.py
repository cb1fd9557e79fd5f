"""What functions and classes of the program say of themselves, although names in their annotations may not be there.

Python looks them up only when somebody asks from 3.14 on, and those imported for type checkers alone fail then.
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
