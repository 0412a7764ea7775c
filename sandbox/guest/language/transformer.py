# ruff: noqa: N802, N815 - the names of ast.NodeVisitor
"""From a strict cell to code with its guards in place: RestrictedPython's walk, widened. Unknown syntax stays refused."""

import ast
from typing import Any, TypeVar

from RestrictedPython.transformer import RestrictingNodeTransformer

from sandbox.guest.language import names
from sandbox.guest.language.refusals import NotInThisSandbox

_Node = TypeVar("_Node", bound=ast.AST)
_INSTEAD = {
    "__class__": "use type(obj)",
    "__dict__": "use vars(obj)",
    "__traceback__": "use traceback.format_exc()",
    "__annotations__": "use dataclasses.fields(obj)",
    "__bases__": "use isinstance or issubclass",
}
_READ_AS_WRITTEN = frozenset({"plain", "private"})
_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class StrictTransformer(RestrictingNodeTransformer):
    """Items and iteration stay as they are: containers hold nothing that code could not reach. Attributes are guarded."""

    def __init__(self, filename: str) -> None:
        super().__init__()
        self._filename = filename
        self._classes: list[str] = []
        self._patterns: list[ast.Assign] = []
        self._pattern_count = 0

    def error(self, node: ast.AST, info: str) -> None:
        raise NotInThisSandbox(
            f"strict language policy: {info}", filename=self._filename, line=getattr(node, "lineno", 1)
        )

    def not_allowed(self, node: ast.AST) -> None:
        self.error(node, f"{type(node).__name__} is not allowed: write it with simpler statements")

    def _inside(self, node: _Node) -> _Node:
        inner: _Node = self.node_contents_visit(node)
        return inner

    # ---------------------------------------------------------------- names

    def check_name(self, node: ast.AST, name: str | None, allow_magic_methods: bool = False) -> None:
        allowed = names.may_be_function if allow_magic_methods else _may_be_stored
        if name is not None and not allowed(name):
            self.error(node, f"{name!r} cannot be defined: choose a name without underscores around it")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id == "super":
            self.error(node, "super may only be called: super().method(…)")
        if not names.may_be_variable(node.id, stored=not isinstance(node.ctx, ast.Load)):
            self.error(
                node, f"the name {node.id!r} is not available: choose one without underscores around it"
            )
        return node

    def visit_Global(self, node: ast.Global) -> ast.AST:
        for name in node.names:
            self.check_name(node, name)
        return node

    def visit_Nonlocal(self, node: ast.Nonlocal) -> ast.AST:
        for name in node.names:
            self.check_name(node, name)
        return node

    def check_import_names(self, node: ast.ImportFrom | ast.Import) -> ast.AST:
        if isinstance(node, ast.ImportFrom) and node.level:
            self.error(node, "there is no package around a cell: relative imports do not work")
        for alias in node.names:
            if alias.name == "*":
                self.error(node, "import the names you need instead of *")
            self.check_name(node, alias.asname or alias.name.partition(".")[0])
        return self._inside(node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.module == "__future__":
            return node
        return self.check_import_names(node)

    # ---------------------------------------------------------------- attributes and items

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        inner = self._inside(node)
        if not isinstance(node.ctx, ast.Load):
            return self._guard_write(inner)
        name = self._mangled(node.attr)
        kind = names.attribute_kind(name)
        if kind == "refused":
            instead = _INSTEAD.get(node.attr, "public names only")
            self.error(
                node, f"the attribute {node.attr!r} leads into the interpreter and cannot be read: {instead}"
            )
        if kind == "plain":
            return inner
        guard = "_getattr_" if kind == "guarded" else "_examine_"
        return self._call(guard, inner.value, ast.Constant(name), at=node)

    def _guard_write(self, node: ast.Attribute) -> ast.AST:
        if not names.may_be_written(node.attr):
            self.error(node, f"the attribute {node.attr!r} cannot be set")
        name = self._mangled(node.attr)
        private = [ast.Constant(name)] if names.attribute_kind(name) == "private" else []
        node.value = self._call("_write_", node.value, *private, at=node.value)
        return node

    def _mangled(self, name: str) -> str:
        """Do to a private name what the compiler does to it inside a class."""
        if self._classes and name.startswith("__") and not name.endswith("__"):
            return f"_{self._classes[-1].lstrip('_')}{name}"
        return name

    def _call(self, guard: str, *arguments: ast.expr, at: ast.AST) -> ast.Call:
        call = ast.Call(ast.Name(guard, ast.Load()), list(arguments), [])
        for node in (call, call.func, *arguments):
            if not hasattr(node, "lineno"):
                ast.copy_location(node, at)
        return call

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        return self._inside(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        """`obj.name += …` reads the attribute too. A private name that may be written may be read."""
        match node.target:
            case ast.Attribute(value=value, attr=attr) if names.attribute_kind(attr) not in _READ_AS_WRITTEN:
                if not names.may_be_written(attr):
                    self.error(node, f"the attribute {attr!r} cannot be set")
                guard = self._call("_augmented_", self.visit(value), ast.Constant(attr), at=node.target)
                node.target.value = guard
                node.value = self.visit(node.value)
                return node
        return self._inside(node)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        match node.targets:
            case [ast.Name(id="__match_args__")]:
                self._check_match_args(node)
                return node
        return self._inside(node)

    def _check_match_args(self, node: ast.Assign) -> None:
        """`case Point(x)` reads the attributes named here, without a guard."""
        if not isinstance(node.value, ast.Tuple | ast.List):
            self.error(node, "__match_args__ must be a tuple of names")
        for element in ast.iter_child_nodes(node.value):
            match element:
                case ast.Constant(value=str(name)):
                    self._check_pattern_attribute(node, name)
                case ast.expr():
                    self.error(node, "__match_args__ must be a tuple of names")

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if isinstance(node.target, ast.Name) and node.target.id.startswith("__"):
            self.error(node, f"the name {node.target.id!r} is not available here")
        return self._inside(node)

    def visit_TypeAlias(self, node: ast.AST) -> ast.AST:
        return self._inside(node)

    # ---------------------------------------------------------------- calls

    def visit_Call(self, node: ast.Call) -> ast.AST:
        match node.func:
            case ast.Name(id="super") if not node.args and not node.keywords:
                return node
            case ast.Name(id="super"):
                node.func.id = "_super_"
                node.args = [self.visit(argument) for argument in node.args]
                return node
        return self._inside(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.AST:
        return self._inside(node)

    # ---------------------------------------------------------------- statements

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._inside(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self._inside(node)

    def visit_With(self, node: ast.With) -> ast.AST:
        return self._inside(node)

    def visit_AsyncWith(self, node: ast.AsyncWith) -> ast.AST:
        return self._inside(node)

    def visit_Await(self, node: ast.Await) -> ast.AST:
        return self._inside(node)

    def visit_TryStar(self, node: ast.AST) -> ast.AST:
        return self._inside(node)

    def visit_Module(self, node: ast.Module) -> ast.AST:
        return self._inside(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.check_name(node, node.name, allow_magic_methods=bool(self._classes))
        return self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        self.check_name(node, node.name, allow_magic_methods=bool(self._classes))
        return self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._function(node)

    def _function(self, node: _Function) -> ast.AST:
        self.check_function_argument_names(node)
        return self._inside(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.check_name(node, node.name)
        if any(keyword.arg == "metaclass" for keyword in node.keywords):
            self.error(node, "metaclass= is not allowed: inherit from abc.ABC or enum.Enum instead")
        self._classes.append(node.name)
        inner = self._inside(node)
        self._classes.pop()
        return inner

    def visit_TypeVar(self, node: Any) -> ast.AST:
        self.check_name(node, node.name)
        parameter: ast.AST = self._inside(node)
        return parameter

    visit_ParamSpec = visit_TypeVarTuple = visit_TypeVar

    # ---------------------------------------------------------------- match

    def visit_Match(self, node: ast.Match) -> list[ast.stmt]:
        """Classes whose patterns read attributes by a name that is not seen here are looked at before they are used."""
        outer, self._patterns = self._patterns, []
        inner = self._inside(node)
        looked_at, self._patterns = self._patterns, outer
        return [*looked_at, inner]

    def _visit_pattern(self, node: ast.AST) -> ast.AST:
        return self._inside(node)

    visit_match_case = visit_MatchValue = visit_MatchSingleton = _visit_pattern
    visit_MatchSequence = visit_MatchOr = _visit_pattern

    def visit_MatchAs(self, node: ast.MatchAs) -> ast.AST:
        self.check_name(node, node.name)
        return self._inside(node)

    def visit_MatchStar(self, node: ast.MatchStar) -> ast.AST:
        self.check_name(node, node.name)
        return node

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        self.check_name(node, node.rest)
        return self._inside(node)

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        for attribute in node.kwd_attrs:
            self._check_pattern_attribute(node, attribute)
        inner = self._inside(node)
        guarded = [name for name in node.kwd_attrs if names.attribute_kind(name) != "plain"]
        if node.patterns or guarded or not isinstance(inner.cls, ast.Name | ast.Attribute):
            inner.cls = self._looked_at(inner.cls, len(node.patterns), guarded, at=node)
        return inner

    def _looked_at(self, kind: ast.expr, positions: int, keywords: list[str], *, at: ast.AST) -> ast.Name:
        """Put what the pattern compares with into a variable that cells cannot name: a pattern cannot hold a call."""
        self._pattern_count += 1
        name = f"_pattern_{self._pattern_count}_"
        said = [ast.Constant(positions), *map(ast.Constant, keywords)]
        target = ast.copy_location(ast.Name(name, ast.Store()), at)
        found = self._call("_pattern_", kind, *said, at=at)
        self._patterns.append(ast.copy_location(ast.Assign([target], found), at))
        return ast.copy_location(ast.Name(name, ast.Load()), at)

    def _check_pattern_attribute(self, node: ast.AST, attribute: str) -> None:
        if attribute.startswith("_") or names.attribute_kind(attribute) not in {"plain", "guarded"}:
            self.error(node, f"a pattern cannot look at the attribute {attribute!r}")


def _may_be_stored(name: str) -> bool:
    return names.may_be_variable(name, stored=True)
