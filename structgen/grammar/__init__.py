"""Grammars: byte and code point automata, the IR, the front ends, and the token automaton over a vocabulary."""
