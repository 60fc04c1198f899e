"""A schema document and what its references mean: identifiers, anchors and JSON pointers, as in RFC 3986 and 6901.

A document may hold several resources: each subschema with an identifier is one, and what references inside it mean
begins there. Left out: other documents, the meta-schemas too; references to them are refused by name. So are dynamic
references whose target depends on the path by which they are reached.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import unquote, urljoin

from structgen.errors import UnsupportedSchemaError, shown
from structgen.grammar.json_schema.dialects import Dialect, dialect_of, has_keyword, in_force
from structgen.grammar.json_schema.document import JsonValue, Schema, child, held, unescape
from structgen.grammar.json_schema.keywords import HOLDS

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
"""The keywords that apply another subschema to the same value."""

_NAMING = frozenset(("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor"))
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


class Resource(NamedTuple):
    """A part of a document with an identifier of its own.

    Attributes:
        pointer: its root.
        uri: its identifier, "" for a document without one.
        dialect: how it is read; None if its `$schema` names no dialect that is known here.
    """

    pointer: str
    uri: str
    dialect: Dialect | None


class Document:
    """One schema document, addressed by JSON pointers in URI fragment form (``#/properties/a``)."""

    def __init__(self, root: Schema) -> None:
        """Read the dialect, and find every identifier and anchor.

        Raises:
            UnsupportedSchemaError: the document is of no dialect that is read here.
        """
        self.root = root
        # "" is where a pointer that does not begin with "#" ends up.
        self._known: dict[str, JsonValue] = {"#": root, "": root}
        # The subschemas, each with the resource that it is part of.
        self._resources: dict[str, Resource] = {}
        # Two places may claim one name; that is told where the name is used.
        self._by_uri: dict[str, list[Resource]] = {}
        self._anchors: dict[tuple[Resource, str], list[str]] = {}
        self._dynamic: dict[str, list[str]] = {}
        self._recursive: list[str] = []
        self._find_names()

    def _find_names(self) -> None:
        schema = self.root if isinstance(self.root, dict) else {}
        named = schema.get("$schema", "https://json-schema.org/schema")
        dialect = dialect_of(named)
        if dialect is None:
            raise _unknown_dialect("#", named)
        waiting: list[tuple[str, JsonValue, Resource]] = [("#", schema, Resource("#", "", dialect))]
        while waiting:
            pointer, value, outer = waiting.pop()
            if isinstance(value, dict):
                resource = outer
                if pointer == "#" or not _NAMING.isdisjoint(value):
                    resource = self._resource(pointer, value, outer)
                    self._note_anchors(pointer, value, resource)
                self._resources[pointer] = resource
                known = resource.dialect or Dialect.DRAFT_2020_12
                for name, inside in value.items():
                    if name in HOLDS and has_keyword(known, name):
                        waiting += [(at, inner, resource) for at, inner in held(pointer, name, inside)]

    def _resource(self, pointer: str, schema: Mapping[str, JsonValue], outer: Resource) -> Resource:
        """Return the resource that a subschema is part of, which may begin with it."""
        dialect = dialect_of(schema["$schema"]) if "$schema" in schema else outer.dialect
        identifier = schema.get((dialect or Dialect.DRAFT_2020_12).identifier)
        if pointer == "#" and identifier is None:
            identifier = schema.get("id", schema.get("$id"))
        if dialect is not None and dialect.ref_hides and "$ref" in schema:
            identifier = None
        uri = identifier.partition("#")[0] if isinstance(identifier, str) else ""
        if not uri and pointer != "#":
            return outer
        found = Resource(pointer, _join(outer.uri, uri), dialect)
        self._by_uri.setdefault(found.uri, []).append(found)
        return found

    def _note_anchors(self, pointer: str, schema: Mapping[str, JsonValue], resource: Resource) -> None:
        dialect = resource.dialect or Dialect.DRAFT_2020_12
        read = in_force(schema, dialect)
        names = [read.get("$anchor"), read.get("$dynamicAnchor")]
        if dialect.ref_hides:
            names = [str(read.get(dialect.identifier, "")).partition("#")[2] or None]
        for name in names:
            if isinstance(name, str):
                self._anchors.setdefault((resource, name), []).append(pointer)
        dynamic = read.get("$dynamicAnchor")
        if isinstance(dynamic, str):
            self._dynamic.setdefault(dynamic, []).append(pointer)
        if read.get("$recursiveAnchor") is True and pointer == resource.pointer:
            self._recursive.append(pointer)

    def dialect(self, pointer: str) -> Dialect:
        """Return the dialect that the subschema at a pointer is read in.

        Raises:
            UnsupportedSchemaError: it is part of a resource whose dialect is not read here.
        """
        resource = self._resource_of(pointer)
        if resource.dialect is None:
            raise _unknown_dialect(resource.pointer, self.value(child(resource.pointer, "$schema")))
        return resource.dialect

    def keywords(self, pointer: str) -> Mapping[str, JsonValue]:
        """Return the keywords that are in force in a subschema; none in a boolean."""
        schema = self.schema(pointer)
        return {} if isinstance(schema, bool) else in_force(schema, self.dialect(pointer))

    def schema(self, pointer: str) -> Schema:
        """Return the subschema at a pointer."""
        found = self.value(pointer)
        if not isinstance(found, bool | dict):
            parent, _, keyword = pointer.rpartition("/")
            raise UnsupportedSchemaError(parent or "#", unescape(keyword), "must hold a schema: an object or a boolean")
        return found

    def value(self, pointer: str) -> JsonValue:
        """Return whatever stands at a pointer.

        Raises:
            UnsupportedSchemaError: there is nothing.
        """
        known = self._known
        if pointer in known:
            return known[pointer]
        # Subschemas are asked for from the outside in, so nearly always something close above is known.
        inside: list[str] = []
        above = pointer
        while above not in known:
            inside.append(above)
            above = above.rpartition("/")[0]
        at = known[above]
        for place in reversed(inside):
            key = unescape(place.rpartition("/")[2])
            if isinstance(at, dict) and key in at:
                at = at[key]
            elif isinstance(at, list) and _INDEX.fullmatch(key) and int(key) < len(at):
                at = at[int(key)]
            else:
                raise UnsupportedSchemaError(pointer, "$ref", "points to nothing in this document")
            known[place] = at
        return at

    def targets(self, pointer: str) -> Iterator[str]:
        """Yield the pointers of the subschemas that the references at a pointer mean.

        Raises:
            UnsupportedSchemaError: a reference means nothing in this document, or one thing here and another there.
        """
        read = self.keywords(pointer)
        for keyword in REFERENCES:
            if keyword in read:
                yield self.resolve(pointer, keyword, read[keyword])

    def resolve(self, pointer: str, keyword: str, reference: JsonValue) -> str:
        """Return the pointer of the subschema that a reference means.

        Args:
            pointer: where it stands.
            keyword: one of REFERENCES.
            reference: its value.

        Raises:
            UnsupportedSchemaError: it means nothing in this document, or one thing here and another there.
        """
        if not isinstance(reference, str):
            raise UnsupportedSchemaError(pointer, keyword, "must be a string")
        self._refuse_unseen_identifier(pointer)
        uri, _, fragment = reference.partition("#")
        fragment = unquote(fragment)
        resource = self._resource_of(pointer)
        try:
            if uri:
                resource = self._named(_join(resource.uri, uri))
            target = self._inside(resource, fragment, may_be_of_root=not uri)
            if keyword == "$dynamicRef":
                target = self._outermost(target, self._dynamic.get(fragment, []))
            elif keyword == "$recursiveRef":
                target = self._outermost(target, self._recursive)
        except _UnresolvedError as error:
            raise UnsupportedSchemaError(pointer, keyword, f"{error} ({shown(reference)}); {error.advice}") from None
        return target

    def _resource_of(self, pointer: str) -> Resource:
        """Return the resource that a place is part of."""
        while pointer not in self._resources and pointer != "#":
            pointer = pointer.rpartition("/")[0]
        return self._resources[pointer]

    def _refuse_unseen_identifier(self, pointer: str) -> None:
        """Refuse a reference below an identifier that stands where the standard knows no subschema."""
        while pointer not in self._resources:
            at = self.value(pointer)
            name = (self._resource_of(pointer).dialect or Dialect.DRAFT_2020_12).identifier
            if isinstance(at, dict) and isinstance(at.get(name), str):
                raise UnsupportedSchemaError(
                    pointer, name, "stands where the standard knows no subschema; move this part into $defs"
                )
            pointer = pointer.rpartition("/")[0]

    def _named(self, uri: str) -> Resource:
        """Return the resource with an identifier."""
        found = self._by_uri.get(uri, [])
        if not found:
            raise _UnresolvedError("points out of the document", "put the target into $defs")
        if len(found) > 1:
            raise _UnresolvedError("names two schemas", "give them different identifiers")
        return found[0]

    def _inside(self, resource: Resource, fragment: str, *, may_be_of_root: bool) -> str:
        """Return what a fragment means in a resource: all of it, a JSON pointer, or an anchor.

        On request a pointer to nothing is followed from the root, which is what many an author of an identifier meant.
        """
        if not fragment:
            return resource.pointer
        if not fragment.startswith("/"):
            named = self._anchors.get((resource, fragment), [])
            if len(named) != 1:
                what = "names two anchors" if named else "names an anchor that is not there"
                raise _UnresolvedError(what, "write a JSON pointer such as '#/$defs/name'")
            return named[0]
        keys = [part.replace("~1", "/").replace("~0", "~") for part in fragment.split("/")[1:]]
        nothing: UnsupportedSchemaError | None = None
        for pointer in (resource.pointer, "#") if may_be_of_root else (resource.pointer,):
            target = child(pointer, *keys)
            try:
                self.value(target)
            except UnsupportedSchemaError as error:
                nothing = error
            else:
                return target
        raise _UnresolvedError("points to nothing in this document", "correct it") from nothing

    def _outermost(self, target: str, candidates: list[str]) -> str:
        """Return what a dynamic reference means that would mean a target if it were none.

        The outermost candidate on the path of evaluation counts. Every path begins in the root resource.
        """
        if target not in candidates or len(candidates) == 1:
            return target
        of_root = [candidate for candidate in candidates if self._resource_of(candidate).pointer == "#"]
        if len(of_root) != 1:
            raise _UnresolvedError("depends on the path of evaluation", "use $ref")
        return of_root[0]


class _UnresolvedError(Exception):
    """A reference without a target; who knows where it stands says so.

    Attributes:
        advice: what to do.
    """

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(reason)
        self.advice = advice


def _unknown_dialect(pointer: str, named: JsonValue) -> UnsupportedSchemaError:
    reason = f"names a dialect that is not read here: {shown(named)}; draft 4 to 2020-12 are"
    return UnsupportedSchemaError(pointer, "$schema", reason)


def _join(base: str, reference: str) -> str:
    """Return the URI that a reference without fragment means relative to a base, as in RFC 3986."""
    if not reference:
        return base
    if _SCHEME.match(reference):
        return reference
    found = _SCHEME.match(base)
    if found is None:
        return urljoin(base, reference)
    scheme, rest = found.group(), base[found.end() :]
    # Such as a URN: nothing is relative to it. Of other schemes, the standard library joins only those that it knows.
    return scheme + urljoin("http:" + rest, reference).removeprefix("http:") if rest.startswith("/") else reference
