"""Create lattices for tests, from given words or at random."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from spacy_tener.embedders.lattice import Lattice

Words = list[tuple[int, int]]


def lattice_of(*sentences: tuple[int, Words]) -> Lattice:
    """Create a lattice from the length of each sentence, and the first and last character of its words."""
    words = [word for _, of_sentence in sentences for word in of_sentence]
    lengths, counts = [length for length, _ in sentences], [len(of_sentence) for _, of_sentence in sentences]
    heads, tails = [head for head, _ in words], [tail for _, tail in words]
    return Lattice(*(np.array(numbers, dtype=np.int64) for numbers in (lengths, counts, heads, tails)))


def random_sentence(length: int, rng: np.random.Generator, density: float = 0.31) -> tuple[int, Words]:
    """Return a random sentence with about as many words per character as a dictionary matches, most of them two
    characters long."""
    found = set()
    for _ in range(round(density * length)):
        size = min(int(rng.choice([2, 3, 4, 5, 7], p=[0.65, 0.2, 0.1, 0.03, 0.02])), length)
        head = int(rng.integers(0, length - size + 1))
        found.add((head, head + size - 1))
    return length, sorted(found)


def random_lattice(lengths: list[int], seed: int = 0, density: float = 0.31) -> Lattice:
    rng = np.random.default_rng(seed)
    return lattice_of(*(random_sentence(length, rng, density) for length in lengths))


def sentences_of(lattice: Lattice) -> list[np.ndarray]:
    """Return the first and last character of the characters and words of each sentence. *Shape:* (characters + words,
    2)"""
    ends = np.cumsum(lattice.counts)
    spans = []
    for length, begin, end in zip(lattice.lengths, ends - lattice.counts, ends, strict=True):
        characters = np.stack([np.arange(length)] * 2, axis=1)
        words = np.stack([lattice.heads[begin:end], lattice.tails[begin:end]], axis=1)
        spans.append(np.concatenate([characters, words]))
    return spans


@st.composite
def any_sentence(draw: st.DrawFn) -> tuple[int, Words]:
    """Sentences with arbitrary words in arbitrary order: single characters, the whole sentence, duplicates."""
    length = draw(st.integers(0, 14))
    word = st.tuples(st.integers(0, max(length - 1, 0)), st.integers(0, max(length - 1, 0))).map(sorted).map(tuple)
    return length, draw(st.lists(word, max_size=8 if length else 0))


any_lattice = st.lists(any_sentence(), max_size=4).map(lambda sentences: lattice_of(*sentences))
