"""Walk an automaton beside the mask oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from oracle import masks
from structgen.config import Limits
from structgen.errors import UnsatisfiableError, VocabularyError
from structgen.grammar.build import build_automaton
from structgen.grammar.ir import Grammar
from structgen.grammar.scan import VocabularyScans
from structgen.grammar.spelling import Spelling
from structgen.grammar.token_automaton import TokenAutomaton
from structgen.vocabulary import Vocabulary


def automaton_of(grammar: Grammar, vocabulary: Vocabulary) -> TokenAutomaton:
    """Return the automaton, nothing of it cached."""
    return build_automaton(grammar, VocabularyScans(vocabulary), Spelling(vocabulary), limits=Limits(), digest="test")


def tokens_of(mask: np.ndarray, vocabulary: Vocabulary) -> set[int]:
    """Return the ids whose bits are set."""
    return {i for i in range(vocabulary.size) if int(mask[i >> 5]) >> (i & 31) & 1}


def check_walk(grammar: Grammar, vocabulary: Vocabulary, data: st.DataObject, *, num_tokens: int) -> None:
    """Assert at every state of a drawn walk that the mask is what the oracle finds."""
    (stop,) = vocabulary.stop_ids
    try:
        state = automaton_of(grammar, vocabulary).start()
    except (UnsatisfiableError, VocabularyError):
        assert not masks.legal_tokens(grammar, vocabulary, b"")
        assert not masks.may_end(grammar, b"")
        return
    text = b""
    for _ in range(num_tokens):
        expected = masks.legal_tokens(grammar, vocabulary, text)
        ends = masks.may_end(grammar, text)

        assert tokens_of(state.mask(), vocabulary) == expected | ({stop} if ends else set()), text
        assert state.is_accepting == ends
        if not expected:
            assert ends
            return
        token = data.draw(st.sampled_from(sorted(expected)))
        state.advance(token)
        text += vocabulary.token_bytes(token)
