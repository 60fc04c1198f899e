"""A recogniser that reads a grammar byte by byte: which bytes may follow, may the text end, can it still end.

It works on ir.Grammar alone, top down: what is being read is a lexeme or a literal somewhere in its middle, with a
linked list of what is still to come. All readings of the text so far are one state. No parser tables, no saturated
counters, no tries: nothing of what mask rows are made of. Left recursion is not for it (there is recognise.py).
"""

from __future__ import annotations

from structgen.grammar.ir import Choice, Expr, Grammar, Lexeme, Literal, Reference, Repeat, Sequence
from structgen.vocabulary import Vocabulary

Thread = tuple[int, int, int, int]
"""(expression, DFA state or place in the literal, length so far, what is still to come)."""

Entry = tuple[int, int, int]
"""(expression, how many of its items are complete, what comes after it)."""

DEAD = -1
END = 0
_MAX_UNREAD = 100_000


class Stepper:
    """The states of one grammar, numbered as they are met; state 0 is that before any text."""

    def __init__(self, grammar: Grammar) -> None:
        self.rules = grammar.rules
        self.exprs: list[Expr] = []
        self.expr_number: dict[int, int] = {}
        self.to_come: list[Entry] = [(-1, 0, -1)]
        self.to_come_number: dict[Entry, int] = {}
        self.begun: dict[int, tuple[tuple[Thread, ...], bool]] = {}
        self.states: list[tuple[tuple[Thread, ...], bool]] = []
        self.state_number: dict[tuple[tuple[Thread, ...], bool], int] = {}
        self.steps: dict[int, int] = {}
        self.good = set[tuple[int, int, int]]()
        self.bad = set[tuple[int, int, int]]()
        self.tables: dict[int, tuple[list[list[int]], list[list[bool]]]] = {}
        self.productive_rules = self._productive_rules()
        self.state(*self.begin(self.push(Reference(grammar.start), END)))

    # ------------------------------------------------------------------ what is still to come

    def push(self, expr: Expr, after: int, done: int = 0) -> int:
        """Return the list that has an expression first, of which `done` items are complete, and `after` behind it."""
        number = self.expr_number.get(id(expr))
        if number is None:
            number = self.expr_number[id(expr)] = len(self.exprs)
            self.exprs.append(expr)  # held, so that its id stays its own
        entry = (number, done, after)
        known = self.to_come_number.get(entry)
        if known is None:
            known = self.to_come_number[entry] = len(self.to_come)
            self.to_come.append(entry)
        return known

    def begin(self, first: int) -> tuple[tuple[Thread, ...], bool]:
        """Return what may be read when a list begins, and whether it may be over at once."""
        known = self.begun.get(first)
        if known is None:
            threads, ends, seen, todo = set[Thread](), False, {first}, [first]
            while todo:
                here = todo.pop()
                if here == END:
                    ends = True
                    continue
                number, done, after = self.to_come[here]
                expr = self.exprs[number]
                if isinstance(expr, Lexeme) or (isinstance(expr, Literal) and expr.text):
                    if self.thread_can_end((number, 0, 0, after)):
                        threads.add((number, 0, 0, after))
                    if isinstance(expr, Literal) or not (expr.dfa.accepting[0] and expr.min_length == 0):
                        continue
                more = [after] if isinstance(expr, Lexeme | Literal) else self.unfolded(expr, done, after)
                fresh = [one for one in more if one not in seen]
                seen.update(fresh)
                todo += fresh
                assert len(seen) < _MAX_UNREAD, "left recursion"
            known = self.begun[first] = tuple(sorted(threads)), ends
        return known

    def unfolded(self, expr: Expr, done: int, after: int) -> list[int]:
        """Return the lists that an expression at the head of a list stands for."""
        match expr:
            case Sequence(items=items):
                for item in reversed(items):
                    after = self.push(item, after)
                return [after]
            case Choice(options=options):
                return [self.push(option, after) for option in options]
            case Reference(name=name):
                return [self.push(self.rules[name], after)]
            case Repeat(item=item, minimum=low, maximum=high, separator=separator):
                found = [after] if done >= low else []
                if high is None or done < high:
                    # Without a maximum all counts from the minimum on are alike, but for the first: no separator.
                    count = done + 1 if high is not None or done < max(low, 1) else done
                    rest = self.push(item, self.push(expr, after, count))
                    found.append(rest if separator is None or done == 0 else self.push(separator, rest))
                return found
        raise AssertionError(f"no such expression: {expr!r}")

    # ------------------------------------------------------------------ states

    def state(self, threads: tuple[Thread, ...], ends: bool) -> int:
        """Return the number of a state."""
        value = (threads, ends)
        number = self.state_number.get(value)
        if number is None:
            number = self.state_number[value] = len(self.states)
            self.states.append(value)
        return number

    def may_end(self, state: int) -> bool:
        """Return whether the text so far is complete."""
        return self.states[state][1]

    def step(self, state: int, byte: int) -> int:
        """Return the state after one more byte, DEAD if no text goes on like this."""
        key = state << 8 | byte
        known = self.steps.get(key)
        if known is None:
            known = self.steps[key] = self._step(state, byte)
        return known

    def _step(self, state: int, byte: int) -> int:
        threads, ends = set[Thread](), False
        for number, place, length, after in self.states[state][0]:
            expr = self.exprs[number]
            if isinstance(expr, Literal):
                if expr.text[place] != byte:
                    continue
                place, is_whole = place + 1, place + 1 == len(expr.text)
                goes_on = not is_whole
            else:
                assert isinstance(expr, Lexeme)
                delta, ticks = self.table(number)
                length += ticks[place][byte]
                place = delta[place][byte]
                if place < 0 or not self.lexeme_can_end(number, place, length):
                    continue
                is_whole = bool(expr.dfa.accepting[place]) and length >= expr.min_length
                goes_on = True
            if goes_on:
                threads.add((number, place, length, after))
            if is_whole:
                fresh, is_over = self.begin(after)
                threads.update(fresh)
                ends = ends or is_over
        return self.state(tuple(sorted(threads)), ends) if threads or ends else DEAD

    def table(self, number: int) -> tuple[list[list[int]], list[list[bool]]]:
        """Return the tables of a lexeme's DFA as lists, which are quicker to look into one by one."""
        if number not in self.tables:
            expr = self.exprs[number]
            assert isinstance(expr, Lexeme)
            self.tables[number] = expr.dfa.delta.tolist(), expr.dfa.tick_bytes.tolist()
        return self.tables[number]

    # ------------------------------------------------------------------ what can still end

    def thread_can_end(self, thread: Thread) -> bool:
        """Return whether some text goes on from here to the end."""
        number, place, length, after = thread
        if isinstance(self.exprs[number], Lexeme) and not self.lexeme_can_end(number, place, length):
            return False
        while after != END:
            number, _, after = self.to_come[after]
            if not self.is_productive(self.exprs[number], self.productive_rules):
                return False
        return True

    def lexeme_can_end(self, number: int, place: int, length: int) -> bool:
        """Return whether a word of a lexeme within its bounds begins with what was read."""
        expr = self.exprs[number]
        assert isinstance(expr, Lexeme)
        delta, ticks = self.table(number)
        cap = expr.min_length if expr.max_length is None else expr.max_length + 1
        start = (number, place, min(length, cap))
        came_from: dict[tuple[int, int, int], tuple[int, int, int] | None] = {start: None}
        todo = [start]
        for one in todo:
            _, here, count = one
            if one in self.bad or (expr.max_length is not None and count > expr.max_length):
                continue
            if one in self.good or (expr.dfa.accepting[here] and count >= expr.min_length):
                back: tuple[int, int, int] | None = one
                while back is not None:
                    self.good.add(back)
                    back = came_from[back]
                return True
            edges = {(there, ticks[here][byte]) for byte, there in enumerate(delta[here]) if there >= 0}
            for there, tick in edges:
                after = (number, there, min(count + tick, cap))
                if after not in came_from:
                    came_from[after] = one
                    todo.append(after)
        self.bad.update(came_from)
        return False

    def _productive_rules(self) -> set[str]:
        """Return the rules that some text belongs to."""
        found = set[str]()
        while True:
            more = {name for name, body in self.rules.items() if self.is_productive(body, found)}
            if more == found:
                return found
            found = more

    def is_productive(self, expr: Expr, rules: set[str]) -> bool:
        """Return whether some text belongs to an expression."""
        match expr:
            case Literal():
                return True
            case Lexeme():
                self.push(expr, END)
                return self.lexeme_can_end(self.expr_number[id(expr)], 0, 0)
            case Sequence(items=items):
                return all(self.is_productive(item, rules) for item in items)
            case Choice(options=options):
                return any(self.is_productive(option, rules) for option in options)
            case Repeat(item=item, minimum=low, separator=separator):
                parts = [item] if low else []
                parts += [separator] if separator is not None and low > 1 else []
                return all(self.is_productive(part, rules) for part in parts)
            case Reference(name=name):
                return name in rules


def accepts(stepper: Stepper, text: bytes) -> bool:
    """Return whether a text belongs to the grammar."""
    state = 0
    for byte in text:
        state = stepper.step(state, byte)
        if state == DEAD:
            return False
    return stepper.may_end(state)


class Tokens:
    """The tokens of a vocabulary in the order of their bytes, so that what two share is read once."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        spelled = [(vocabulary.token_bytes(token_id), token_id) for token_id in range(vocabulary.size)]
        self.spelled = sorted((text, token_id) for text, token_id in spelled if text)
        # Whatever may still be read can be spelled, so a token is legal exactly where its bytes may be read.
        utf8 = {byte for byte in range(0xF5) if byte not in (0xC0, 0xC1)}
        assert {text[0] for text, _ in self.spelled if len(text) == 1} >= utf8
        self.shared = [0]
        for (one, _), (two, _) in zip(self.spelled, self.spelled[1:], strict=False):
            self.shared.append(next((i for i, (a, b) in enumerate(zip(one, two, strict=False)) if a != b), len(one)))

    def legal(self, stepper: Stepper, state: int) -> set[int]:
        """Return the ids of the tokens whose bytes may be read next, one by one."""
        found = set[int]()
        path = [state]  # the states along the bytes of the token before
        steps = stepper.steps
        for (text, token_id), shared in zip(self.spelled, self.shared, strict=True):
            if shared >= len(path):
                continue  # the token before ended at the same dead byte, or before it
            del path[shared + 1 :]
            here = path[-1]
            for byte in text[shared:]:
                known = steps.get(here << 8 | byte)
                here = stepper.step(here, byte) if known is None else known
                if here == DEAD:
                    break
                path.append(here)
            else:
                found.add(token_id)
        return found
