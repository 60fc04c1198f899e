"""Object shapes -> expressions: declared keys in order (or in any order), other keys after them, counts.

Other keys may repeat each other: the last one wins in a reader, and each of them satisfies the same
condition, so the verdict is the same. Where a count would make it differ, the schema is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache, partial

from structgen.grammar import ir, lexemes
from structgen.grammar.chardfa import CharDfa
from structgen.grammar.json_schema import strings
from structgen.grammar.json_schema.layout import Layout, choose, join, optional
from structgen.grammar.json_schema.objects import ObjectShape, Region
from structgen.grammar.json_schema.rules import Rules
from structgen.grammar.json_schema.terms import NOTHING, InexactError

MAX_ANY_ORDER = 8
_MAX_COUNTED = 4096
_MAX_LISTED_KEYS = 64


@dataclass(frozen=True, slots=True)
class _Member:
    """One declared property: its key and value as an expression, and whether it must be there."""

    pair: ir.Expr
    is_required: bool


@dataclass(frozen=True, slots=True)
class _Plan:
    """An object shape with everything below it made into expressions.

    Attributes:
        members: declared properties in order.
        other: any one other key with its value; None where other keys are forbidden.
        low: least number of keys.
        high: greatest number of keys, None where there is none or the members cannot pass it.
        layout: the layout of the object.
    """

    members: tuple[_Member, ...]
    other: ir.Expr | None
    low: int
    high: int | None
    layout: Layout

    @property
    def num_required(self) -> int:
        """Return how many members must be there."""
        return sum(member.is_required for member in self.members)

    def opened(self, *parts: ir.Expr) -> ir.Expr:
        """Return the parts after the opening brace."""
        return join(*self.layout.opening(b"{"), *parts)

    def after_comma(self, *parts: ir.Expr) -> ir.Expr:
        """Return the parts after a comma."""
        return join(*self.layout.comma, *parts)

    @property
    def closing(self) -> ir.Expr:
        """Return the end of an object that is not empty."""
        return join(*self.layout.closing(b"}"))

    @property
    def nothing(self) -> ir.Expr:
        """Return the empty object."""
        return join(*self.layout.empty(b"{}"))

    def others(self, low: int, high: int | None) -> ir.Expr:
        """Return other keys after at least one member."""
        if self.other is None or high == 0:
            return ir.Literal(b"")
        return ir.Repeat(self.after_comma(self.other), low, high)


def object_rule(rules: Rules, shape: ObjectShape, layout: Layout) -> ir.Expr:
    """Return the expression for the objects of a shape."""
    plan = _plan(rules, _with_listed_keys(shape), layout)
    if rules.any_order and plan.members and (len(plan.members) > 1 or plan.other is not None):
        return _any_order(rules, plan)
    if plan.low > plan.num_required or plan.high is not None:
        return _counted(rules, plan)
    return _declared_order(rules, plan)


def _plan(rules: Rules, shape: ObjectShape, layout: Layout) -> _Plan:
    inner = layout.inner
    members = []
    for name, terms in shape.properties:
        if terms != NOTHING:
            key = ir.Literal(strings.spell(name))
            pair = join(key, *layout.colon, rules.value(terms, inner))
            members.append(_Member(pair, name in shape.required))
    declared = tuple(name for name, _ in shape.properties)
    others = [_other(rules, region, declared, layout) for region in shape.regions]
    found = [pair for pair in others if pair is not None]
    high = shape.high if found or (shape.high is not None and shape.high < len(members)) else None
    return _Plan(tuple(members), choose(found) if found else None, shape.low, high, layout)


def _other(rules: Rules, region: Region, declared: tuple[str, ...], layout: Layout) -> ir.Expr | None:
    """Return any key of a region that is not declared, with its value."""
    key = _other_key(region.keys, declared)
    return None if key is None else join(key, *layout.colon, rules.value(region.value, layout.inner))


@lru_cache(maxsize=256)
def _other_key(keys: CharDfa | None, declared: tuple[str, ...]) -> ir.Lexeme | None:
    if keys is None and not declared:
        return replace(lexemes.json_string(), free_text=False, name="key")
    found = (keys or CharDfa.any_text()).difference(CharDfa.from_words(declared))
    # A key is structure, not prose: penalties leave it alone.
    return None if found.is_empty else replace(lexemes.json_string(found), free_text=False, name="key")


def _with_listed_keys(shape: ObjectShape) -> ObjectShape:
    """Declare the keys of regions that hold a few keys only, so that they are written once each."""
    properties = dict(shape.properties)
    regions = []
    for region in shape.regions:
        count = None if region.keys is None else region.keys.num_words
        if region.keys is None or count is None or count > _MAX_LISTED_KEYS:
            regions.append(region)
        else:
            for name in region.keys.words(_MAX_LISTED_KEYS):
                properties.setdefault(name, region.value)
    return ObjectShape(tuple(properties.items()), shape.required, tuple(regions), shape.low, shape.high)


def _declared_order(rules: Rules, plan: _Plan) -> ir.Expr:
    """Return the objects without counts: a left-recursive chain up to the first required key, then a flat run."""
    members = plan.members
    first = next((i for i, member in enumerate(members) if member.is_required), len(members))
    started: ir.Expr | None = None
    for member in members[:first]:
        options = [plan.opened(member.pair)]
        if started is not None:
            options.append(join(started, optional(plan.after_comma(member.pair))))
        started = rules.rule(partial(choose, options))
    if first == len(members):
        return _all_optional(plan, started)
    head = [plan.opened(members[first].pair)]
    if started is not None:
        head.append(join(started, plan.after_comma(members[first].pair)))
    parts = [choose(head)]
    for member in members[first + 1 :]:
        step = plan.after_comma(member.pair)
        parts.append(step if member.is_required else optional(step))
    return join(*parts, plan.others(0, None), plan.closing)


def _all_optional(plan: _Plan, started: ir.Expr | None) -> ir.Expr:
    options = [plan.nothing]
    if started is not None:
        options.append(join(started, plan.others(0, None), plan.closing))
    if plan.other is not None:
        options.append(plan.opened(ir.Repeat(plan.other, 1, None, plan.after_comma()), plan.closing))
    return choose(options)


def _counted(rules: Rules, plan: _Plan) -> ir.Expr:
    """Return the objects with counts: one rule per (members decided, keys written)."""
    size = len(plan.members)
    if plan.other is not None and plan.low > plan.num_required + 1:
        raise InexactError(
            "minProperties", "would need several undeclared keys, which could be equal; declare or require the keys"
        )
    top = size if plan.high is None else min(size, plan.high)
    if size * (top + 1) > _MAX_COUNTED:
        raise InexactError("maxProperties", "beside this many declared properties is too large; remove it")
    # prefix[count]: the text of exactly `count` keys among the members so far; None: impossible.
    prefix: list[ir.Expr | None] = [ir.Literal(b"")] + [None] * top
    for member in plan.members:
        prefix = [_count_step(rules, plan, member, prefix, count) for count in range(top + 1)]
    options = []
    for count, before in enumerate(prefix):
        if before is not None:
            options += _count_end(plan, before, count)
    return choose(options)


def _count_step(rules: Rules, plan: _Plan, member: _Member, prefix: list[ir.Expr | None], count: int) -> ir.Expr | None:
    options: list[ir.Expr] = []
    same = prefix[count]
    if same is not None and not member.is_required:
        options.append(same)
    fewer = prefix[count - 1] if count else None
    if fewer is not None:
        options.append(plan.opened(member.pair) if count == 1 else join(fewer, plan.after_comma(member.pair)))
    if len(options) < 2:
        return options[0] if options else None
    return rules.rule(lambda: choose(options))


def _count_end(plan: _Plan, before: ir.Expr, count: int) -> list[ir.Expr]:
    """Return how an object with so many declared keys ends."""
    low, high = max(plan.low - count, 0), None if plan.high is None else plan.high - count
    if plan.other is None or high == 0:
        if low > 0:
            return []
        return [join(before, plan.closing) if count else plan.nothing]
    if count:
        return [join(before, plan.others(low, high), plan.closing)]
    filled = plan.opened(ir.Repeat(plan.other, max(low, 1), high, plan.after_comma()), plan.closing)
    return [filled] if low else [plan.nothing, filled]


def _any_order(rules: Rules, plan: _Plan) -> ir.Expr:
    """Return the objects whose declared keys come in any order: one rule per set of keys written."""
    size = len(plan.members)
    if size > MAX_ANY_ORDER:
        raise InexactError("properties", f"in any order are supported up to {MAX_ANY_ORDER}; use the declared order")
    if plan.other is not None and (plan.low > plan.num_required or plan.high is not None):
        raise InexactError("minProperties", "cannot be counted in any order beside open keys; use the declared order")
    needed = frozenset(i for i, member in enumerate(plan.members) if member.is_required)
    high = size if plan.high is None else plan.high
    made: dict[frozenset[int], ir.Expr] = {}

    def may_end(used: frozenset[int]) -> bool:
        return needed <= used and len(used) >= plan.low

    def ways(used: frozenset[int]) -> list[tuple[ir.Expr, frozenset[int]]]:
        fresh = [i for i in range(size) if i not in used and len(used) < high]
        found = [(plan.members[i].pair, used | {i}) for i in fresh]
        return found if plan.other is None else [*found, (plan.other, used)]

    def body(used: frozenset[int]) -> ir.Expr:
        options = [plan.closing] if may_end(used) else []
        return choose(options + [plan.after_comma(pair, after(then)) for pair, then in ways(used)])

    def after(used: frozenset[int]) -> ir.Expr:
        if used not in made:
            made[used] = rules.rule(lambda: body(used))
        return made[used]

    options = [plan.nothing] if may_end(frozenset()) else []
    return choose(options + [plan.opened(pair, after(then)) for pair, then in ways(frozenset())])
