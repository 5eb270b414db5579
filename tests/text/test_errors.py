"""The exception tree: what the page of its docstring says, and what it offers."""

from __future__ import annotations

import inspect
import re

from kb import errors

CLASSES = {
    name: one
    for name, one in vars(errors).items()
    if inspect.isclass(one) and issubclass(one, errors.KbError)
}


def test_every_error_is_offered_and_stands_in_the_tree_with_its_code() -> None:
    assert sorted(errors.__all__) == sorted(CLASSES)
    tree = dict(re.findall(r"([A-Za-z]+) +([A-Z_]{5,})", errors.__doc__ or ""))
    assert tree == {name: one.code for name, one in CLASSES.items() if name != "NotFoundError"}
