"""Objects of which more has to be known than the next declared key: how many keys, and which of the needs are met.

A need for a value under some undeclared key is met by a key after which no other key of the kind comes: a reader
keeps the last of equal keys, so nothing that follows can take the value back. So that key is written last of its kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import NamedTuple

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
    if plan.others and plan.low > plan.num_required:
        plan = _with_one_more(plan)
    members = list(plan.members)
    if len(members) > MAX_ANY_ORDER:
        members = [member for member in members if member.is_required or len(member.pairs) > 1]
        if len(members) > MAX_ANY_ORDER or plan.is_counted:
            return None
    num_counts = 1 if plan.high is None or not plan.others else plan.high + 1
    if len(plan.witnessed) > 1 or (num_counts << (len(members) + plan.num_needs)) > _MAX_COUNTED:
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


class _Written(NamedTuple):
    """What has to be known of the keys of an object that were written.

    Attributes:
        used: the members among them, by number.
        missing: the needs still to be met.
        locked: the need that was met by the value of an undeclared key, so that no key of its kind may follow.
        num_keys: how many there are, where a greatest number may be passed.
    """

    used: Met
    missing: Met
    locked: int | None = None
    num_keys: int = 0


_Way = tuple[ir.Expr, _Written]


class _AnyOrder:
    """The objects of one plan by the keys written that are told apart, and the needs still to be met."""

    def __init__(self, rules: Rules, plan: Plan, members: list[Member], repeatable: list[tuple[ir.Expr, Met]]) -> None:
        self._rules = rules
        self._plan = plan
        self._members = members
        self._required = frozenset(i for i, member in enumerate(members) if member.is_required)
        self._repeatable = repeatable
        self._start = _Written(frozenset(), frozenset(range(plan.num_needs)))
        self._made: dict[_Written, ir.Expr] = {}

    def objects(self) -> list[ir.Expr]:
        """Return all of them, as ways to begin one."""
        options = [self._plan.nothing] if self._may_end(self._start) else []
        return options + [self._plan.opened(pair, self._after(then)) for pair, then in self._ways(self._start)]

    def after_others(self) -> ir.Expr:
        """Return what follows where other keys of the object, which are not told apart here, come first."""
        return self._after(self._start)

    def _may_end(self, here: _Written) -> bool:
        return self._required <= here.used and len(here.used) >= self._plan.low and not here.missing

    def _ways(self, here: _Written) -> Iterator[_Way]:
        """Yield the keys that may follow, with their values, and what is known then."""
        high = self._plan.high
        if high is not None and here.num_keys >= high:
            return
        here = here._replace(num_keys=0 if high is None else here.num_keys + 1)
        fresh = [(i, pair) for i, member in enumerate(self._members) if i not in here.used for pair in member.pairs]
        for i, (pair, met) in fresh:
            yield pair, here._replace(used=here.used | {i}, missing=here.missing - met)
        for pair, met in self._repeatable:
            yield pair, here._replace(missing=here.missing - met)
        yield from self._others(here)

    def _others(self, here: _Written) -> Iterator[_Way]:
        for other in self._plan.others:
            if here.locked is None or here.locked not in other.inside:
                missing = here.missing - other.met
                yield other.pair, here._replace(missing=missing)
                for need, pair in other.witnesses:
                    if need in here.missing:
                        yield pair, here._replace(missing=missing - {need}, locked=need)

    def _body(self, here: _Written) -> ir.Expr:
        plan = self._plan
        ways = list(self._ways(here))
        loops = [plan.after_comma(pair) for pair, then in ways if then == here]
        options = [plan.closing] if self._may_end(here) else []
        options += [plan.after_comma(pair, self._after(then)) for pair, then in ways if then != here]
        return join(ir.Repeat(choose(loops), 0, None), choose(options)) if loops else choose(options)

    def _after(self, here: _Written) -> ir.Expr:
        if here not in self._made:
            self._made[here] = self._rules.rule(partial(self._body, here))
        return self._made[here]
