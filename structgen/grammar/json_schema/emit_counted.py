"""Objects of which more has to be known than the next declared key: how many keys, and which of the needs are met.

A need for a value under some undeclared key is met by a key after which no other key of the kind comes: a reader
keeps the last of equal keys, so nothing that follows can take the value back. So that key is written last of its kind.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from structgen.errors import LimitError
from structgen.grammar import ir
from structgen.grammar.json_schema.layout import choose, join
from structgen.grammar.json_schema.members import Member, Met, Plan
from structgen.grammar.json_schema.rules import Rules
from structgen.grammar.json_schema.terms import InexactError

MAX_ANY_ORDER = 8
MAX_FREE = 4
"""Most keys that no `properties` keyword names, for which any order among themselves is written."""
_MAX_COUNTED = 4096

_Before = dict[tuple[int, Met], ir.Expr]
"""The texts up to some member: by the number of keys written, as far as it matters, and the needs still to be met."""


def counted(rules: Rules, plan: Plan) -> ir.Expr:
    """Return the objects in declared order."""
    if plan.others and plan.low > plan.num_required + 1:
        raise _equal_keys()
    if len(plan.witnessed) > 1:
        raise _several_values()
    top = len(plan.members) if plan.is_counted else 1
    before: _Before = {(0, frozenset(range(plan.num_needs))): ir.Literal(b"")}
    for member in plan.members:
        before = _after_member(rules, plan, member, before, top)
        if len(before) * len(plan.members) > _MAX_COUNTED:
            size = len(before) * len(plan.members)
            raise LimitError("too many properties are counted or decided on together; require some", "cases", size)
    tail = _Tail(rules, plan)
    options = []
    for (count, missing), text in before.items():
        low, high = max(plan.low - count, 0), None if plan.high is None else plan.high - count
        options += tail.first(missing, low, high) if count == 0 else [join(text, tail.after(missing, None, low, high))]
    return choose(options)


def _equal_keys() -> InexactError:
    return InexactError(
        "minProperties", "would need several undeclared keys, which could be equal; declare or require the keys"
    )


def _several_values() -> InexactError:
    return InexactError(
        "additionalProperties",
        "cannot be negated here, where several undeclared keys would need certain values; declare the keys, or give "
        "the branches a required property with different constants",
    )


def _after_member(rules: Rules, plan: Plan, member: Member, before: _Before, top: int) -> _Before:
    found: dict[tuple[int, Met], list[ir.Expr]] = {}
    for (count, missing), text in before.items():
        if not member.is_required:
            found.setdefault((count, missing), []).append(text)
        if plan.high is None or count < plan.high:
            for pair, met in member.pairs:
                longer = join(text, plan.after_comma(pair)) if count else plan.opened(pair)
                found.setdefault((min(count + 1, top), missing - met), []).append(longer)
    return {key: texts[0] if len(texts) == 1 else rules.rule(partial(choose, texts)) for key, texts in found.items()}


class _Tail:
    """What follows the declared keys of one object."""

    def __init__(self, rules: Rules, plan: Plan) -> None:
        self._rules = rules
        self._plan = plan
        self._made: dict[tuple[Met, int | None, int, int | None], ir.Expr] = {}

    def first(self, missing: Met, low: int, high: int | None) -> list[ir.Expr]:
        """Return the objects without declared keys."""
        plan = self._plan
        options = [plan.nothing] if low == 0 and not missing else []
        if high != 0:
            options += [plan.opened(pair, then) for pair, then in self._ways(missing, None, low, high)]
        return options

    def after(self, missing: Met, locked: int | None, low: int, high: int | None) -> ir.Expr:
        """Return the ends of objects, after at least one key.

        Args:
            missing: the needs still to be met.
            locked: the need that was met by a value, so that none of its keys may follow.
            low: least number of keys to come.
            high: greatest number of keys to come, None for no bound.
        """
        if not missing:
            return join(self._plan.more(low, high, without=locked), self._plan.closing)
        key = missing, locked, low, high
        if key not in self._made:
            self._made[key] = self._rules.rule(partial(self._body, *key))
        return self._made[key]

    def _body(self, missing: Met, locked: int | None, low: int, high: int | None) -> ir.Expr:
        here = None if high == 0 else self._made[missing, locked, low, high]
        ways = [(self._plan.after_comma(p), then) for p, then in self._ways(missing, locked, low, high)] if here else []
        loops = [pair for pair, then in ways if then == here]
        exits: list[ir.Expr] = [join(pair, then) for pair, then in ways if then != here]
        return join(ir.Repeat(choose(loops), 0, None), choose(exits)) if loops else choose(exits)

    def _ways(self, missing: Met, locked: int | None, low: int, high: int | None) -> list[tuple[ir.Expr, ir.Expr]]:
        """Return the next key with its value, and the end after it."""
        low, high = max(low - 1, 0), None if high is None else high - 1
        found = []
        for other in self._plan.others:
            if locked is not None and locked in other.inside:
                continue
            found.append((other.pair, self.after(missing - other.met, locked, low, high)))
            for need, pair in other.witnesses:
                if need in missing:
                    found.append((pair, self.after(missing - other.met - {need}, need, low, high)))
        return found


def any_order(rules: Rules, plan: Plan) -> ir.Expr | None:
    """Return the objects whose declared keys come in any order, None where there would be too many rules.

    There is one rule per set of keys written. Of many keys only those are told apart that must be there, or decide
    something. The others may then be written again, as undeclared ones may: a reader keeps the last of equal keys, and
    each of them is as the schema says.
    """
    if plan.others and plan.is_counted:
        plan = _with_one_more(plan)
    if plan.witnessed:
        raise InexactError(
            "additionalProperties",
            "cannot be negated in any order: an undeclared key with a certain value has to come last; declare the key, "
            "or use the declared order",
        )
    members = list(plan.members)
    if len(members) > MAX_ANY_ORDER:
        members = [member for member in members if member.is_required or len(member.pairs) > 1]
        if len(members) > MAX_ANY_ORDER or plan.is_counted:
            return None
    told_apart = {id(member) for member in members}
    repeatable = [member.pairs[0] for member in plan.members if id(member) not in told_apart]
    return choose(_AnyOrder(rules, plan, members, repeatable).objects())


def free_order(rules: Rules, plan: Plan, free: list[Member]) -> tuple[list[ir.Expr], ir.Expr]:
    """Return the objects of some members and of other keys in any order, and what they are after at least one key."""
    orders = _AnyOrder(rules, replace(plan, low=0), free, [])
    return orders.objects(), orders.after_others()


def _with_one_more(plan: Plan) -> Plan:
    """Return the plan with its least count as a need: one key more than the required ones, which differs from them."""
    if plan.high is not None:
        raise InexactError("maxProperties", "cannot be counted in any order beside open keys; use the declared order")
    if plan.low > plan.num_required + 1:
        raise _equal_keys()
    more = frozenset({plan.num_needs})
    return replace(
        plan,
        members=tuple(
            member if member.is_required else replace(member, pairs=tuple((p, met | more) for p, met in member.pairs))
            for member in plan.members
        ),
        others=tuple(replace(other, met=other.met | more) for other in plan.others),
        num_needs=plan.num_needs + 1,
        low=0,
    )


class _AnyOrder:
    """The objects of one plan by the keys written that are told apart, and the needs still to be met."""

    def __init__(self, rules: Rules, plan: Plan, members: list[Member], repeatable: list[tuple[ir.Expr, Met]]) -> None:
        self._rules = rules
        self._plan = plan
        self._members = members
        self._required = frozenset(i for i, member in enumerate(members) if member.is_required)
        self._high = len(members) if plan.high is None else plan.high
        self._repeatable = repeatable + [(other.pair, other.met) for other in plan.others]
        self._made: dict[tuple[Met, Met], ir.Expr] = {}

    def objects(self) -> list[ir.Expr]:
        """Return all of them, as ways to begin one."""
        start = frozenset[int](), frozenset(range(self._plan.num_needs))
        options = [self._plan.nothing] if self._may_end(*start) else []
        ways = [*self._loops(*start), *self._ways(*start)]
        return options + [self._plan.opened(pair, self._after(*then)) for pair, *then in ways]

    def after_others(self) -> ir.Expr:
        """Return what follows where other keys of the object, which are not told apart here, come first."""
        return self._after(frozenset(), frozenset(range(self._plan.num_needs)))

    def _may_end(self, used: Met, missing: Met) -> bool:
        return self._required <= used and len(used) >= self._plan.low and not missing

    def _loops(self, used: Met, missing: Met) -> list[tuple[ir.Expr, Met, Met]]:
        return [(pair, used, missing) for pair, met in self._repeatable if not met & missing]

    def _ways(self, used: Met, missing: Met) -> list[tuple[ir.Expr, Met, Met]]:
        fresh = [i for i in range(len(self._members)) if i not in used and len(used) < self._high]
        found = [(pair, used | {i}, missing - met) for i in fresh for pair, met in self._members[i].pairs]
        return found + [(pair, used, missing - met) for pair, met in self._repeatable if met & missing]

    def _body(self, used: Met, missing: Met) -> ir.Expr:
        plan = self._plan
        loops = [plan.after_comma(pair) for pair, *_ in self._loops(used, missing)]
        options = [plan.closing] if self._may_end(used, missing) else []
        options += [plan.after_comma(pair, self._after(*then)) for pair, *then in self._ways(used, missing)]
        return join(ir.Repeat(choose(loops), 0, None), choose(options)) if loops else choose(options)

    def _after(self, used: Met, missing: Met) -> ir.Expr:
        if (used, missing) not in self._made:
            self._made[used, missing] = self._rules.rule(partial(self._body, used, missing))
        return self._made[used, missing]
