"""Learn from an exception what a program asks of the data that memlint made up.

The exception says what was asked; the expression that raised it, taken from the position of the instruction, and the
values of its names say of which part of which file.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress

from memlint.base.frames import chain
from memlint.script.asked_forms.arguments import of_type, of_validation
from memlint.script.asked_forms.arrays import (
    of_fewer_dimensions,
    of_pair,
    of_rank,
    of_real_array,
    of_whole_array,
)
from memlint.script.asked_forms.attributes import of_attribute
from memlint.script.asked_forms.files import (
    of_file,
    of_file_names,
    of_folder,
    of_json,
    of_listed_images,
    of_numbered_files,
    of_paths,
    of_pickle,
)
from memlint.script.asked_forms.keys import of_columns, of_key
from memlint.script.asked_forms.kinds import of_list, of_merged, of_message, of_number, of_numbers
from memlint.script.asked_forms.pieces import of_counted_pieces, of_index, of_unpacking
from memlint.script.asked_forms.sizes import (
    of_length,
    of_odd_sides,
    of_rate,
    of_record,
    of_reshaped,
    of_rows,
    of_sides,
    of_small_images,
)
from memlint.script.failures import Failure
from memlint.script.forms import forms


def learned(error: BaseException) -> bool:
    """Change the forms as the program that failed asks; returns True if that gives some which were not tried.

    Where it has raised an error of its own in place of another one, that is asked, too.
    """
    before = pickle.dumps(forms.asked)
    for each in chain(error):
        if (at := Failure.of(each)) is None:
            continue
        for kind, learn in _LEARN:
            if isinstance(each, kind):
                with suppress(Exception):  # of objects of the script's, which may be anything
                    if learn(at):
                        break
        if pickle.dumps(forms.asked) != before:
            return not forms.were_tried
    return False


_LEARN: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], Callable[[Failure], bool]], ...] = (
    (FileNotFoundError, of_file),
    (IsADirectoryError, of_folder),
    (Exception, of_pickle),
    (Exception, of_length),
    ((TypeError, AttributeError), of_whole_array),
    ((IndexError, ValueError), of_rank),
    ((RuntimeError, ValueError), of_pair),
    ((RuntimeError, TypeError), of_real_array),
    ((RuntimeError, ValueError, AssertionError), of_fewer_dimensions),
    (ValueError, of_numbered_files),
    ((IndexError, TypeError, AssertionError, AttributeError), of_record),
    (ValueError, of_reshaped),
    ((ValueError, IndexError), of_rows),
    ((AttributeError, TypeError), of_file_names),
    (TypeError, of_paths),
    (Exception, of_listed_images),
    (Exception, of_small_images),
    (RuntimeError, of_odd_sides),
    ((RuntimeError, ValueError), of_sides),
    (Exception, of_rate),
    (KeyError, of_key),
    (IndexError, of_index),
    (ValueError, of_merged),
    (ValueError, of_columns),
    (AttributeError, of_attribute),
    (ValueError, of_json),
    (ValueError, of_validation),
    (Exception, of_message),
    (ValueError, of_unpacking),
    (AssertionError, of_counted_pieces),
    (ValueError, of_list),
    (TypeError, of_number),
    (TypeError, of_type),
    (ValueError, of_numbers),
)
