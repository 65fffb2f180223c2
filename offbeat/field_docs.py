"""The docstrings of a class's fields: the string that stands under each, which Python itself does not keep."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from textwrap import dedent


def field_docs(cls: type) -> dict[str, str]:
    """What stands right under the fields of a class, not of its bases, by name; a field without it is left out.

    Raises ``OSError`` where the source of the class is not at hand.
    """
    (definition,) = ast.parse(dedent(inspect.getsource(cls))).body
    assert isinstance(definition, ast.ClassDef)
    docs = {}
    for field, below in pairwise(definition.body):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                docs[name] = inspect.cleandoc(text)
    return docs
