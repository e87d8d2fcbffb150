"""libcst transformers, each run on the slice of a file that holds one site.

A slice is an expression, an import, or a statement with the comments above it. Every function takes the
slice's text and gives the new text; the caller splices it into the bytes, so all else stays as it is. Only
this module imports libcst, and only when something is edited.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any, TypeVar, cast

import libcst as cst

from patcher.errors import RecipeError, Unrecognised

_Edit = TypeVar("_Edit", bound=Callable[..., str])


def _any_newline(edit: _Edit) -> _Edit:
    """Lets an edit see ``\\n`` only, and gives the slice its own line ending back.

    Raises Unrecognised for a slice that mixes them: its untouched lines could not all be kept.
    """

    @functools.wraps(edit)
    def wrapped(text: str, *args: Any, **kwargs: Any) -> str:
        kinds = set(re.findall("\r\n|\r|\n", text))
        if len(kinds) > 1:
            raise Unrecognised("the lines to edit end in different ways", hint="give the file one kind of line ending")
        kind = kinds.pop() if kinds else "\n"
        return edit(text.replace(kind, "\n"), *args, **kwargs).replace("\n", kind)

    return cast(_Edit, wrapped)


def _parse_expression(text: str) -> cst.BaseExpression:
    """Parse an expression that may span lines (it stood inside parentheses), without those parentheses."""
    expression = _bare(cst.parse_expression(f"({text})"))
    if _code(expression) != text:
        raise Unrecognised("the expression does not survive a parse unchanged", hint="please report this file")
    return expression


def _parse_module(text: str) -> cst.Module:
    module = cst.parse_module(text)
    if module.code != text:
        raise Unrecognised("the statement does not survive a parse unchanged", hint="please report this file")
    return module


def _bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """The node without the parentheses that it owns."""
    if getattr(node, "lpar", None):
        bare: cst.BaseExpression = node.with_changes(lpar=[], rpar=[])
        return bare
    return node


def _code(node: cst.CSTNode) -> str:
    return cst.Module([]).code_for_node(node)


class _ReplaceExpression(cst.CSTTransformer):
    """Replaces the ``ordinal``-th expression (in source order) that reads ``text``."""

    def __init__(self, text: str, ordinal: int) -> None:
        super().__init__()
        self.text = re.sub("\r\n|\r", "\n", text)
        self.remaining = ordinal
        self.found: cst.BaseExpression | None = None

    def replacement(self, node: cst.BaseExpression) -> cst.BaseExpression:
        raise NotImplementedError

    def on_visit(self, node: cst.CSTNode) -> bool:
        if self.found is None and isinstance(node, cst.BaseExpression) and _code(_bare(node)) == self.text:
            if self.remaining == 0:
                self.found = node
            self.remaining -= 1
        return self.found is None

    def on_leave(self, original_node: Any, updated_node: Any) -> Any:
        if original_node is self.found:
            assert isinstance(updated_node, cst.BaseExpression)
            return self.replacement(updated_node)
        return updated_node


class WidenCondition(_ReplaceExpression):
    """``P`` becomes ``(P or T)``; a parenthesised ``(A or B)`` becomes ``(A or B or T)``."""

    def __init__(self, text: str, ordinal: int, target: str) -> None:
        super().__init__(text, ordinal)
        self.target = _operand(target)

    def replacement(self, node: cst.BaseExpression) -> cst.BaseExpression:
        is_or_chain = isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or)
        return _joined(node, cst.Or(), self.target, keep=is_or_chain)


class NarrowCondition(_ReplaceExpression):
    """``P`` becomes ``(P and not T)``."""

    def __init__(self, text: str, ordinal: int, target: str) -> None:
        super().__init__(text, ordinal)
        self.target = _operand(target)

    def replacement(self, node: cst.BaseExpression) -> cst.BaseExpression:
        refusal = cst.UnaryOperation(operator=cst.Not(), expression=self.target)
        return _joined(node, cst.And(), refusal, keep=False)


class SubstituteExpression(_ReplaceExpression):
    """``P`` becomes ``T``."""

    def __init__(self, text: str, ordinal: int, target: str) -> None:
        super().__init__(text, ordinal)
        self.target = _operand(target)

    def replacement(self, node: cst.BaseExpression) -> cst.BaseExpression:
        return self.target


def _operand(text: str) -> cst.BaseExpression:
    """An expression that can stand in any boolean expression."""
    node = cst.parse_expression(text)
    return _parenthesised(node) if isinstance(node, cst.BooleanOperation | cst.IfExp) else node


def _parenthesised(node: cst.BaseExpression) -> cst.BaseExpression:
    wrapped: cst.BaseExpression = node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])
    return wrapped


def _joined(
    node: cst.BaseExpression, op: cst.BaseBooleanOp, right: cst.BaseExpression, *, keep: bool
) -> cst.BaseExpression:
    """``node op right`` in parentheses; ``keep`` reuses the node's own ones (an or-chain takes one more)."""
    if keep:
        lpar, rpar = getattr(node, "lpar", ()), getattr(node, "rpar", ())
        joined = cst.BooleanOperation(_bare(node), op, right, lpar=lpar, rpar=rpar)
        return joined if lpar else _parenthesised(joined)
    if isinstance(node, cst.BooleanOperation | cst.IfExp) and not node.lpar:
        node = _parenthesised(node)
    return _parenthesised(cst.BooleanOperation(node, op, right))


@_any_newline
def rewrite_expression(text: str, transformer: _ReplaceExpression) -> str:
    """Run a transformer on an expression's text. Raises Unrecognised when it finds nothing to replace."""
    tree = _parse_expression(text)
    changed = tree.visit(transformer)
    if transformer.found is None:
        raise Unrecognised(f"'{transformer.text}' is not in the expression where the recipe expects it")
    assert isinstance(changed, cst.BaseExpression)
    return _code(_bare(changed))  # a whole expression stands where it needs no parentheses of its own


class ImportName(cst.CSTTransformer):
    """Adds ``name`` behind ``sibling`` in a ``from … import`` statement."""

    def __init__(self, sibling: str, name: str) -> None:
        super().__init__()
        self.sibling = sibling
        self.name = name

    def leave_ImportFrom(self, original_node: cst.ImportFrom, updated_node: cst.ImportFrom) -> cst.ImportFrom:
        assert not isinstance(updated_node.names, cst.ImportStar)
        aliases = list(updated_node.names)
        place = [_code(alias.name) for alias in aliases].index(self.sibling)
        sibling = aliases[place]
        between = _separator(aliases[0], updated_node) if place == len(aliases) - 1 else _plain_comma(sibling.comma)
        added = cst.ImportAlias(cst.Name(self.name), comma=between)
        if place == len(aliases) - 1:
            sibling, added = sibling.with_changes(comma=between), added.with_changes(comma=sibling.comma)
        return updated_node.with_changes(names=[*aliases[:place], sibling, added, *aliases[place + 1 :]])


def _separator(first: cst.ImportAlias, node: cst.ImportFrom) -> cst.Comma:
    """The comma between two names of this import, as it is laid out."""
    assert not isinstance(node.names, cst.ImportStar)
    if len(node.names) > 1:
        return _plain_comma(first.comma)
    if node.lpar and isinstance(node.lpar.whitespace_after, cst.ParenthesizedWhitespace):
        return cst.Comma(whitespace_after=_without_comment(node.lpar.whitespace_after))
    return cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))


def _plain_comma(comma: cst.Comma | cst.MaybeSentinel) -> cst.Comma:
    assert isinstance(comma, cst.Comma)
    after = comma.whitespace_after
    return comma.with_changes(
        whitespace_after=_without_comment(after) if isinstance(after, cst.ParenthesizedWhitespace) else after
    )


def _without_comment(space: cst.ParenthesizedWhitespace) -> cst.ParenthesizedWhitespace:
    first = space.first_line.with_changes(whitespace=cst.SimpleWhitespace(""), comment=None)
    return space.with_changes(first_line=first, empty_lines=[])


@_any_newline
def add_import(text: str, sibling: str, name: str) -> str:
    """The import statement ``text`` with ``name`` behind ``sibling``."""
    return _parse_module(text).visit(ImportName(sibling, name)).code


class DefineAlias(cst.CSTTransformer):
    """Adds an assignment ``alias = value`` on the line behind an assignment."""

    def __init__(self, alias: str, value: str, comment: str) -> None:
        super().__init__()
        self.alias = alias
        self.value = value
        self.comment = comment

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        assignment = cst.Assign([cst.AssignTarget(cst.Name(self.alias))], cst.parse_expression(self.value))
        trailing = cst.TrailingWhitespace(cst.SimpleWhitespace("  "), cst.Comment(f"# {self.comment}"))
        line = cst.SimpleStatementLine([assignment], trailing_whitespace=trailing)
        return updated_node.with_changes(body=[*updated_node.body, line])


@_any_newline
def define_alias(text: str, alias: str, value: str, comment: str) -> str:
    """``text`` (whole lines of one module-level assignment) with ``alias = value`` on the next line."""
    return _parse_module(text).visit(DefineAlias(alias, value, comment)).code


class _Indent(cst.CSTTransformer):
    """Gives every block one fixed step of indentation, whatever the slice around it looks like."""

    def __init__(self, indent: str) -> None:
        super().__init__()
        self.indent = indent

    def leave_IndentedBlock(
        self, original_node: cst.IndentedBlock, updated_node: cst.IndentedBlock
    ) -> cst.IndentedBlock:
        return updated_node.with_changes(indent=self.indent)


class InsertStatement(cst.CSTTransformer):
    """Puts a statement at an end of the block under the stand-in parent ``if _:``."""

    def __init__(self, statement: str, comment: str, indent: str, behind: bool) -> None:
        super().__init__()
        self.statement = statement
        self.comment = comment
        self.indent = indent
        self.behind = behind
        self.done = False

    def visit_If(self, node: cst.If) -> bool:
        return False  # only the stand-in parent is of interest

    def leave_If(self, original_node: cst.If, updated_node: cst.If) -> cst.If:
        self.done = True
        block = updated_node.body
        assert isinstance(block, cst.IndentedBlock)
        added = cst.parse_statement(self.statement).visit(_Indent(self.indent))
        assert isinstance(added, cst.BaseCompoundStatement)
        lines = [cst.EmptyLine(comment=cst.Comment(f"# {self.comment}"))]
        added = added.with_changes(leading_lines=lines)
        body = [*block.body, added] if self.behind else [added, *block.body]
        return updated_node.with_changes(body=block.with_changes(body=body))


_PARENT = "if _:"


@_any_newline
def insert_statement(text: str, statement: str, comment: str, indent: str, *, behind: bool = False) -> str:
    """Whole indented lines ``text`` with ``statement`` (written unindented) before or ``behind`` them.

    ``indent`` is one level of the file's indentation.
    """
    head = f"{_PARENT}\n"
    transformer = InsertStatement(statement, comment, indent, behind)
    code = _parse_module(head + text).visit(transformer).code
    if not transformer.done or not code.startswith(head):
        raise RecipeError("the statement could not be inserted")
    return code[len(head) :]


@_any_newline
def extend_literal(text: str, element: str) -> str:
    """The literal ``text`` (a list, tuple, set or dict, not empty) with ``element`` behind its last one.

    ``element`` is written as it would be in the literal: ``x`` or ``*x``, for a dict ``key: value`` or ``**x``.
    """
    literal = cst.parse_expression(text)
    if _code(literal) != text:
        raise Unrecognised("the literal does not survive a parse unchanged", hint="please report this file")
    assert isinstance(literal, cst.Dict | cst.List | cst.Tuple | cst.Set)
    holder = cst.parse_expression(f"{{{element}}}" if isinstance(literal, cst.Dict) else f"[{element}]")
    assert isinstance(holder, cst.Dict | cst.List)
    *rest, last = literal.elements
    between = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    if isinstance(first := literal.elements[0].comma, cst.Comma) and not first.whitespace_after.empty:
        between = _plain_comma(first)
    added = holder.elements[0].with_changes(comma=last.comma)
    return _code(literal.with_changes(elements=[*rest, last.with_changes(comma=between), added]))
