"""Every exception of the package; imports nothing.

StructgenError
├── DeclareError                    what was declared cannot be used, whatever the vocabulary
│   ├── UnsupportedTypeError        a Python type that has no grammar
│   ├── UnsupportedSchemaError      a schema keyword that cannot be exact (pointer, keyword)
│   └── GrammarSyntaxError          unreadable regex, Lark grammar or JSON (line, column)
├── CompileError                    the declaration is sound, the automaton cannot be built
│   ├── UnsatisfiableError          no text fits (pointer)
│   ├── LimitError                  a stated limit was passed (limit, size)
│   └── VocabularyError             the tokenizer cannot be read, or cannot spell the grammar
├── DecodeError                     something went wrong while text was made
│   ├── TokenRejectedError          advance() with an illegal token (token_id)
│   ├── BudgetError                 max_tokens is under the finishing cost (max_tokens, needed)
│   ├── NoLegalTokenError           every legal token has probability zero (state)
│   └── OutputError                 a text that fits was refused by the type's own validator (text)
├── BatchError                      some rows of a batch failed, the others are done (row)
├── OptionError                     an option is misspelt, out of range or contradicts another
└── ConfirmationRequired            a destructive tool was invoked without a confirmation
"""

from __future__ import annotations

# Characters of a text that a message shows, and of a wrong value.
_LONGEST_TEXT = 300
_LONGEST_VALUE = 100


def shown(value: object) -> str:
    """Return how a message writes a wrong value: its repr, cut where it is long, whatever that repr does."""
    try:
        text = repr(value)
    except Exception:  # code of a user, or an integer that Python does not write
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]} ... ({len(text)} characters)"


class StructgenError(Exception):
    """The base of every error that this package raises on purpose."""


class DeclareError(StructgenError):
    """What was declared cannot be used, whatever the vocabulary."""


class UnsupportedTypeError(DeclareError):
    """A Python type that has no grammar."""


class UnsupportedSchemaError(DeclareError):
    """A JSON Schema keyword that cannot be honoured exactly.

    Attributes:
        pointer: JSON pointer of the subschema (RFC 6901, URI fragment form such as ``#/properties/a``).
        keyword: the keyword that is refused.
    """

    def __init__(self, pointer: str, keyword: str, reason: str) -> None:
        """Build the message from where it is, what it is and what to do."""
        super().__init__(f"{pointer}: {keyword!r} {reason}")
        self.pointer = pointer
        self.keyword = keyword
        self.reason = reason


class GrammarSyntaxError(DeclareError):
    """A regular expression, Lark grammar or JSON text that cannot be read.

    Attributes:
        line: 1-based line of the fault, None if unknown.
        column: 1-based column of the fault, None if unknown.
    """

    def __init__(self, message: str, line: int | None = None, column: int | None = None) -> None:
        """Append the position, where there is one, to the message."""
        where = "" if line is None else f" (line {line}" + ("" if column is None else f", column {column}") + ")"
        super().__init__(message + where)
        self.line = line
        self.column = column


class CompileError(StructgenError):
    """The declaration is sound, but its automaton cannot be built."""


class UnsatisfiableError(CompileError):
    """No text at all fits the declaration.

    Attributes:
        pointer: JSON pointer of the part that nothing satisfies, "" if it is the whole.
    """

    def __init__(self, message: str, pointer: str = "") -> None:
        """Keep the pointer beside the message."""
        super().__init__(f"{pointer}: {message}" if pointer else message)
        self.pointer = pointer


class LimitError(CompileError):
    """A stated limit was passed while compiling.

    Attributes:
        limit: name of the limit, as the option that raises it is called.
        size: the size that was reached.
    """

    def __init__(self, message: str, limit: str, size: float) -> None:
        """Keep the limit's name and the size that was reached."""
        super().__init__(f"{message} (limit {limit!r}, reached {size:g})")
        self.limit = limit
        self.size = size


class VocabularyError(CompileError):
    """The tokenizer cannot be read, or its tokens cannot spell the grammar."""


class DecodeError(StructgenError):
    """Something went wrong while text was being made."""


class TokenRejectedError(DecodeError):
    """An illegal token was given to advance(); the state is unchanged.

    Attributes:
        token_id: the token that was refused.
    """

    def __init__(self, token_id: int, message: str) -> None:
        """Keep the token id beside the message."""
        super().__init__(message)
        self.token_id = token_id


class BudgetError(DecodeError):
    """max_tokens is smaller than what is needed to finish from the start.

    Attributes:
        max_tokens: what was asked for.
        needed: a max_tokens that is enough, whatever the model prefers; some text may be shorter.
    """

    def __init__(self, max_tokens: int, needed: int) -> None:
        """Say both numbers and what to do."""
        super().__init__(
            f"max_tokens={max_tokens} is too few to promise a complete output: that needs {needed}; "
            f"pass max_tokens={needed} or more"
        )
        self.max_tokens = max_tokens
        self.needed = needed


class NoLegalTokenError(DecodeError):
    """Every legal token has probability zero (a bias of minus infinity, or logits that are not numbers).

    Attributes:
        state: description of the automaton state.
    """

    def __init__(self, state: str, cause: str) -> None:
        """Name the state and the cause."""
        super().__init__(f"no legal token can be drawn in state {state}: {cause}")
        self.state = state


class OutputError(DecodeError):
    """A text fits the grammar, but what makes the value of it refused it; the original error is the cause.

    Attributes:
        text: the text that the model wrote.
    """

    def __init__(self, text: str, reason: str) -> None:
        """Say who refused it and why, and show the text, cut where it is long."""
        beginning = text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + " ..."
        super().__init__(f"{reason}; the text is: {beginning}")
        self.text = text


class BatchError(StructgenError):
    """Some rows of a batch failed; every row was tried, and the first error is the cause.

    Attributes:
        row: index of the first row that failed.
        results: one entry per row, in order: what the row gave, or the error that it failed with.
    """

    def __init__(self, results: tuple[object, ...]) -> None:
        """Count the failures and say what the first one was."""
        failed = [row for row, result in enumerate(results) if isinstance(result, StructgenError)]
        self.row = failed[0]
        self.results = results
        first = self.results[self.row]
        count = f"{len(failed)} of {len(self.results)}"
        others = "what the other rows gave is in .results"
        if len(failed) == len(self.results):
            count = f"all {len(failed)}" if len(failed) > 1 else "1 of 1"
            others = "each row's error is in .results"
        super().__init__(f"{count} rows failed, first row {self.row}: {type(first).__name__}: {first}; {others}")


class OptionError(StructgenError):
    """An option is misspelt, out of range, or contradicts another."""


class ConfirmationRequired(StructgenError):
    """A destructive tool was invoked without a confirmation."""
