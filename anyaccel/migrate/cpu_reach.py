"""What of a program a CPU does not reach, or goes on after: branches for CUDA, and ``try`` statements that take every error."""

from __future__ import annotations

import ast
import re

__all__ = ["answers_in", "finds_cuda", "is_about_cuda", "swallows"]

_EXITS = re.compile(r"\b(exit|_exit|quit|abort)\(")


def is_about_cuda(test: ast.expr, answers: set[str]) -> bool:
    """Return whether a test names CUDA, or is one of the comparisons that :func:`answers_in` found."""
    text = ast.unparse(test)
    return "cuda" in text or text in answers


def answers_in(tree: ast.Module) -> set[str]:
    """Return the comparisons that are true only with CUDA: ``device == 'gpu'`` after a choice of ``"gpu"`` by CUDA."""
    found: set[str] = set()
    for each in ast.walk(tree):
        choice = each.value if isinstance(each, ast.Assign) else None
        if isinstance(each, ast.Assign) and isinstance(choice, ast.IfExp) and isinstance(choice.body, ast.Constant):
            asked = ast.unparse(choice.test)
            if "cuda" in asked and "not " not in asked:
                found |= {f"{ast.unparse(target)} == {choice.body.value!r}" for target in each.targets}
    return found


def finds_cuda(both: ast.BoolOp) -> bool:
    """Return whether the last operand of ``a and torch.cuda.is_available() and b`` is evaluated only where CUDA is."""
    asked = "".join(ast.unparse(each) for each in both.values[:-1])
    return isinstance(both.op, ast.And) and "cuda" in asked and "not " not in asked


def swallows(node: ast.Try) -> bool:
    """Return whether a ``try`` goes on after every error."""
    for handler in node.handlers:
        is_broad = handler.type is None or ast.unparse(handler.type) in ("Exception", "BaseException")
        is_raised = any(isinstance(each, ast.Raise) for each in ast.walk(handler))
        if is_broad and not is_raised and not any(_EXITS.search(ast.unparse(each)) for each in handler.body):
            return True
    return False
