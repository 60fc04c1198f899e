"""What became of every keyword of a schema document: the lowering, watched, run again without what it refused.

A refusal is noted, and the next run goes on without the keyword that is to blame, until nothing new is found. What
no run came to is told as such. Left out: what is refused only together with something that was refused before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from structgen.config import Limits
from structgen.errors import LimitError, StructgenError, UnsatisfiableError, UnsupportedSchemaError, shown
from structgen.findings import Explanation, Finding, FindingStatus
from structgen.grammar.json_schema import lower_schema
from structgen.grammar.json_schema.blame import nothing_fits
from structgen.grammar.json_schema.dialects import Dialect, status_of
from structgen.grammar.json_schema.document import (
    JsonValue,
    Schema,
    SchemaSource,
    child,
    held,
    nested_too_deeply,
    read_schema,
)
from structgen.grammar.json_schema.emit import PropertyOrder
from structgen.grammar.json_schema.formats import find_format
from structgen.grammar.json_schema.keywords import ADDRESSES, own_words
from structgen.grammar.json_schema.resources import REFERENCES, Document
from structgen.grammar.json_schema.terms import NOTHING, InexactError, Term
from structgen.grammar.json_schema.watch import Place, Trouble, WatchedEmitter, WatchedSolver
from structgen.grammar.time_limit import time_limit

MAX_ROUNDS = 64
"""How often the lowering is run again without what it refused before."""
MAX_CONTRADICTIONS = 32
"""Places without a value that are looked into for the keywords that contradict each other."""
_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas", "dependencies")
_NEGATING = ("not", "if", "oneOf")
# What ECMA-262 takes and Python does not, or the other way round, is left out: white space, what is no digit or word
# character, edges of words. Both agree on a class that holds everything.
_ANYTHING = re.compile(r"\[(?:\\s\\S|\\S\\s|\\d\\D|\\D\\d|\\w\\W|\\W\\w)\]")
_DISPUTED = re.compile(r"(?<!\\)(?:\\\\)*(?:\\[DWsSbB]|\[\^(?:[^\\\]]|\\[^dws])*\\[dws])")
_REFUSALS = (UnsupportedSchemaError, LimitError, InexactError)
_NEVER_WRITTEN = "so it is never written"
_KEPT_ORDER = "too many keys are required, counted or decided on to come in any order: they keep the declared one"

Verdict = tuple[FindingStatus, str]


def explain_schema(
    schema: SchemaSource, *, closed: bool = False, property_order: PropertyOrder = "declared"
) -> tuple[Finding, ...]:
    """Return what becomes of every keyword of every subschema, in the order of the document.

    Args:
        schema: the schema as data, or as JSON text.
        closed: as in `lower_schema`.
        property_order: likewise.

    Raises:
        GrammarSyntaxError: the text is no JSON.
        UnsupportedSchemaError: it is JSON, but no schema.
        LimitError: the schema is nested too deeply, or needs too many rules.
    """
    root, _ = read_schema(schema)
    try:
        survey = _Survey(root, closed=closed, property_order=property_order)
        return tuple(survey.findings())
    except RecursionError:
        raise nested_too_deeply() from None


def explain_json(schema: SchemaSource, *, property_order: PropertyOrder = "declared") -> Explanation:
    """Return what becomes of a schema, and the error that lowering it raises, if any; reading it may raise one too."""
    error: StructgenError | None = None
    with time_limit(Limits().compile_seconds):
        findings = explain_schema(schema, property_order=property_order)
        try:
            lower_schema(schema, property_order=property_order)
        except StructgenError as found:
            error = found
    return Explanation(name="JSON", findings=findings, error=error)


class _Survey:
    """All runs over one document, and what they found."""

    def __init__(self, root: Schema, *, closed: bool, property_order: PropertyOrder) -> None:
        self._root = root
        self._closed = closed
        self._order = property_order
        self._refused: dict[Place, str] = {}
        self._started: dict[str, None] = {}
        self._verdicts: dict[Place, Verdict] = {}
        try:
            self._document = Document(root)
        except UnsupportedSchemaError as error:
            # The dialect. What follows is read as the newest one, so that the rest is looked at too.
            self._refused[error.pointer, error.keyword] = error.reason
            kept = root if isinstance(root, dict) else {}
            self._document = Document({name: kept[name] for name in kept if name != error.keyword})
        self._run()

    def _run(self) -> None:
        """Run until nothing new is refused; then look where nothing fits."""
        aside: frozenset[Place] = frozenset()
        for _ in range(MAX_ROUNDS):
            solver = WatchedSolver(self._document, aside, closed=self._closed)
            emitter = WatchedEmitter(solver, self._order)
            emitter.survey("spaced")
            self._started |= solver.started
            self._refused |= solver.refused
            more = {place for trouble in emitter.troubles for place in self._blame(trouble, aside)}
            if not more - aside:
                break
            aside |= more
        for pointer in emitter.ordered_at:
            name = "properties" if "properties" in self._schema(pointer) else ""
            self._verdicts[pointer, name] = "narrower", _KEPT_ORDER
        if not self._refused:
            self._look_for_empty(emitter)

    def _blame(self, trouble: Trouble, aside: frozenset[Place]) -> list[Place]:
        """Note what a trouble refuses; return the keywords to go on without."""
        places = self._places(trouble, aside)
        for place in places or [(trouble.pointer, trouble.keyword)]:
            self._refused.setdefault(place, trouble.reason)
        # Below a negation the complement is what failed; without the keyword below it would admit nothing at all.
        over = [
            (trouble.innermost, name)
            for name in _NEGATING
            if name in self._schema(trouble.innermost)
            and (trouble.innermost, name) not in aside
            and (trouble.pointer + "/").startswith(child(trouble.innermost, name) + "/")
        ]
        for place in over:
            self._refused.setdefault(place, f"needs what is refused at {trouble.pointer}: {trouble.keyword!r}")
        return over or places

    def _places(self, trouble: Trouble, aside: frozenset[Place]) -> list[Place]:
        """Return where the keyword of a trouble stands: the first of several guesses that is not yet set aside."""
        keyword = trouble.keyword
        starts = [trouble.pointer, *(term.pointer for term in sorted(trouble.combined) if not term.never)]
        guesses: list[list[Place]] = [
            [(trouble.pointer, keyword)],
            [(trouble.innermost, keyword)],
            [(pointer, keyword) for pointer in self._in_place(starts)],
        ]
        for guess in guesses:
            found = [(at, name) for at, name in guess if name in self._schema(at) and (at, name) not in aside]
            if found:
                return found
        at = trouble.innermost or trouble.pointer
        return [(at, name) for name in self._culprit(at, aside)]

    def _culprit(self, pointer: str, aside: frozenset[Place]) -> list[str]:
        """Return the keyword without which a subschema can be read, none if no single one is to blame."""
        for name in self._schema(pointer):
            solver = WatchedSolver(self._document, aside | {(pointer, name)}, closed=self._closed)
            try:
                solver.values(frozenset({Term(pointer)}))
            except _REFUSALS:
                continue
            return [name]
        return []

    def _in_place(self, starts: list[str]) -> Iterator[str]:
        """Yield subschemas that look at the same value as the first ones, those included."""
        seen = set[str]()
        waiting = list(reversed(starts))
        while waiting:
            pointer = waiting.pop()
            if pointer in seen:
                continue
            seen.add(pointer)
            yield pointer
            schema = self._schema(pointer)
            for name in (*REFERENCES, *_IN_PLACE):
                if name in REFERENCES and name in schema:
                    waiting += self._target(pointer, name, schema[name])
                elif name in schema:
                    waiting += [at for at, _ in held(pointer, name, schema[name])]

    def _target(self, pointer: str, keyword: str, reference: JsonValue) -> list[str]:
        try:
            return [self._document.resolve(pointer, keyword, reference)]
        except UnsupportedSchemaError:
            return []

    def _schema(self, pointer: str) -> Mapping[str, JsonValue]:
        """Return the subschema at a pointer, empty where none with keywords stands."""
        if pointer == "#":
            return self._root if isinstance(self._root, dict) else {}
        try:
            found = self._document.value(pointer) if pointer else None
        except UnsupportedSchemaError:
            return {}
        return found if isinstance(found, dict) else {}

    def _look_for_empty(self, emitter: WatchedEmitter) -> None:
        try:
            emitter.grammar("", made_of="")
        except UnsatisfiableError as error:
            found = nothing_fits(emitter.solver, error.pointer)
            reason = str(found).removeprefix(f"{found.pointer}: ")
            self._contradiction(found.pointer, "unsatisfiable", "no value fits", reason)
            return
        # A place is empty if every combination that it is part of is.
        together: dict[str, set[Term]] = {}
        alive = {term.pointer for terms, is_empty in emitter.is_empty.items() if not is_empty for term in terms}
        for terms, is_empty in emitter.is_empty.items():
            if is_empty and terms != NOTHING:
                for term in terms:
                    is_schema = not (term.negated or term.value or term.options or term.doubtful)
                    if is_schema and term.pointer not in alive:
                        together.setdefault(term.pointer, set()).update(terms - {term})
        for number, (pointer, others) in enumerate(together.items()):
            if others:
                where = ", ".join(sorted({term.pointer for term in others}))
                self._verdicts[pointer, ""] = "empty", f"no value fits this and {where}, {_NEVER_WRITTEN}"
            elif number < MAX_CONTRADICTIONS:
                words = f"no value fits, {_NEVER_WRITTEN}"
                self._contradiction(pointer, "empty", words, words)

    def _contradiction(self, pointer: str, status: FindingStatus, words: str, otherwise: str) -> None:
        """Name the fewest keywords of a subschema that leave no value; the subschema itself if they are not seen."""
        names = [name for name in self._schema(pointer) if self._asserts(pointer, name)]
        kept = list(names)
        if not self._leaves_nothing(pointer, names, kept):
            self._verdicts[pointer, ""] = status, otherwise
            return
        for name in names:
            fewer = [other for other in kept if other != name]
            if self._leaves_nothing(pointer, names, fewer):
                kept = fewer
        for name in kept:
            others = " and ".join(repr(other) for other in kept if other != name)
            self._verdicts[pointer, name] = status, words + (f": contradicts {others}" if others else "")

    def _asserts(self, pointer: str, name: str) -> bool:
        status, _ = status_of(name, self._schema(pointer), self._dialect(pointer))
        return status == "exact" and name not in ADDRESSES

    def _dialect(self, pointer: str) -> Dialect:
        """Return the dialect of a subschema, the newest where it names one that is not read."""
        try:
            return self._document.dialect(pointer)
        except UnsupportedSchemaError:
            return Dialect.DRAFT_2020_12

    def _leaves_nothing(self, pointer: str, names: list[str], kept: list[str]) -> bool:
        """Return whether no value fits a subschema of which only some keywords are kept."""
        aside = frozenset((pointer, name) for name in names if name not in kept)
        solver = WatchedSolver(self._document, aside, closed=self._closed)
        try:
            return bool(kept) and solver.is_empty(frozenset({Term(pointer)}))
        except _REFUSALS:
            return False

    def findings(self) -> Iterator[Finding]:
        """Yield one finding for each keyword, and those about subschemas as a whole before their keywords."""
        told = set[Place]()
        for pointer, schema in self._subschemas():
            for name in ("", *schema):
                place = pointer, name
                if place not in told and (name or place in self._verdicts):
                    told.add(place)
                    yield Finding(pointer, name, *self._verdict(place, schema.get(name)))
        for place in (*self._refused, *self._verdicts):
            if place not in told:
                told.add(place)
                yield Finding(*place, *self._verdict(place, None))

    def _subschemas(self) -> Iterator[tuple[str, Mapping[str, JsonValue]]]:
        """Yield the subschemas: those in places that hold one, then those that a reference made one."""
        seen = set[str]()
        for start in ("#", *self._started):
            waiting: list[tuple[str, JsonValue]] = [(start, dict(self._schema(start)))]
            while waiting:
                pointer, schema = waiting.pop()
                if pointer in seen or not isinstance(schema, dict):
                    continue
                seen.add(pointer)
                yield pointer, schema
                inside = [part for name, value in schema.items() for part in held(pointer, name, value)]
                waiting += reversed(inside)

    def _verdict(self, place: Place, value: JsonValue) -> Verdict:
        pointer, name = place
        if place in self._refused:
            return "refused", self._refused[place]
        if place in self._verdicts:
            return self._verdicts[place]
        if pointer not in self._started:
            return "unreached", "not looked at: other parts are refused" if self._refused else "no text depends on it"
        status, note = status_of(name, self._schema(pointer), self._dialect(pointer))
        if status == "exact" and (verdict := _less_than_exact(name, value)):
            return verdict
        return status, note or own_words(name, value)


def _less_than_exact(name: str, value: JsonValue) -> Verdict | None:
    """Return what became of a keyword whose value makes it less than exact, None where it does not."""
    if name == "format" and isinstance(value, str):
        row = find_format(value)
        if row is None:
            return "annotation", f"the format {shown(value)} is not known, so it is not asserted; use pattern"
        return None if row.exact else ("narrower", f"written: {row.note}")
    patterns = [value] if name == "pattern" else []
    if name == "patternProperties" and isinstance(value, dict):
        patterns += value
    if any(_DISPUTED.search(_ANYTHING.sub("", str(pattern))) for pattern in patterns):
        differing = "ECMA-262 and Python read a class or an edge in it differently; only what fits both is written"
        return "narrower", differing
    return None
