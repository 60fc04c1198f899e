"""Object shapes -> expressions: declared keys in order (or in any order), other keys after them, counts.

Keys that are only required, or only match a pattern, have no declared order: few of them come in any, among other keys.

What has too many keys to be written in any order is written in declared order, which holds the same values.
Other keys may repeat each other: the last one wins in a reader, and each of them satisfies the same
condition, so the verdict is the same. Where a count would make it differ, the schema is refused.
"""

from __future__ import annotations

from functools import partial

from structgen.grammar import ir
from structgen.grammar.json_schema.emit_counted import MAX_FREE, any_order, counted, free_order
from structgen.grammar.json_schema.layout import Layout, choose, join, optional
from structgen.grammar.json_schema.members import Plan, make_plan
from structgen.grammar.json_schema.objects import ObjectShape
from structgen.grammar.json_schema.rules import Outline, Rules
from structgen.grammar.json_schema.terms import NOTHING

_MAX_KEY_CHARACTERS = 5_000
"""Most characters of the names of one open object whose rule is made later: so many can make no automaton too large."""


def outline_object(shape: ObjectShape) -> Outline | None:
    """Return what is known of the objects of a shape, in declared order, before a rule is made.

    None where their keys are counted, decided on together or told apart by patterns, or make a large automaton.
    """
    if shape.needs or shape.high is not None or shape.low > len(shape.required):
        return None
    if any(region.keys is not None for region in shape.regions):
        return None
    if shape.regions and sum(len(name) for name, _ in shape.properties) > _MAX_KEY_CHARACTERS:
        return None
    members = tuple(terms for _, terms in shape.properties if terms != NOTHING)
    needed = tuple(terms for name, terms in shape.properties if name in shape.required)
    return Outline((*members, *(region.value for region in shape.regions)), needed)


def object_rule(rules: Rules, shape: ObjectShape, layout: Layout) -> ir.Expr:
    """Return the expression for the objects of a shape."""
    plan = make_plan(rules, shape, layout)
    if rules.any_order and plan.members and (len(plan.members) > 1 or plan.others):
        found = any_order(rules, plan)
        if found is not None:
            return found
        rules.keep_order()
    if plan.is_counted or plan.num_needs:
        return counted(rules, plan)
    return _declared_order(rules, plan)


def _declared_order(rules: Rules, plan: Plan) -> ir.Expr:
    """Return the objects without counts: a left-recursive chain up to the first required key, then a flat run."""
    free = [member for member in plan.members if not member.is_given]
    if len(free) > MAX_FREE or (len(free) < 2 and not plan.others):
        free = []
    members = [member for member in plan.members if member.is_given] if free else list(plan.members)
    begun, ended = free_order(rules, plan, free) if free else _others(plan)
    first = next((i for i, member in enumerate(members) if member.is_required), len(members))
    started: ir.Expr | None = None
    for member in members[:first]:
        options = [plan.opened(member.pair)]
        if started is not None:
            options.append(join(started, optional(plan.after_comma(member.pair))))
        started = rules.rule(partial(choose, options))
    if first == len(members):
        return choose(begun if started is None else [*begun, join(started, ended)])
    head = [plan.opened(members[first].pair)]
    if started is not None:
        head.append(join(started, plan.after_comma(members[first].pair)))
    parts = [choose(head)]
    for member in members[first + 1 :]:
        step = plan.after_comma(member.pair)
        parts.append(step if member.is_required else optional(step))
    return join(*parts, ended)


def _others(plan: Plan) -> tuple[list[ir.Expr], ir.Expr]:
    """Return the objects of other keys alone, and what follows after at least one declared key."""
    begun = [plan.nothing]
    other = plan.any_other()
    if other is not None:
        begun.append(plan.opened(ir.Repeat(other, 1, None, plan.after_comma()), plan.closing))
    return begun, join(plan.more(0, None), plan.closing)
