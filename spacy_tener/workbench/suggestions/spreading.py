"""Unlike texts out of many: each next one is uncertain, and unlike those that were taken before it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Profiles = NDArray[np.float32]
WIDTH = 1024
"""Length of a profile."""
ORDERS = (2, 3)
"""How many neighbouring characters are counted together."""
_PRIMES = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)


def profiles(texts: Sequence[str]) -> Profiles:
    """What characters stand beside each other in each text, as vectors of length one.

    Counts of pairs and triples, by a hash of theirs, under the root: so a string that is repeated counts less.
    The same on every machine. *Shape* [n, WIDTH]
    """
    counted = np.empty((len(texts), WIDTH), dtype=np.float32)
    for row, text in zip(counted, texts, strict=True):
        row[:] = np.sqrt(np.bincount(_buckets(text), minlength=WIDTH))
    norms = np.linalg.norm(counted, axis=1, keepdims=True)
    counted /= np.maximum(norms, 1e-9)
    return counted


def _buckets(text: str) -> NDArray[np.int64]:
    """The place in a profile of each n-gram, with a blank at both ends, so that the shortest text has some."""
    codes = np.frombuffer(f" {text.casefold()} ".encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    codes = codes.astype(np.uint64)
    hashed = [
        sum((codes[place : codes.size - n + 1 + place] * _PRIMES[place] for place in range(n)), start=np.uint64(n))
        for n in ORDERS
        if codes.size >= n
    ]
    mixed = np.concatenate(hashed)
    mixed ^= mixed >> np.uint64(29)
    places: NDArray[np.int64] = ((mixed * _PRIMES[0]) >> np.uint64(54)).astype(np.int64)
    return places


def spread(weights: Sequence[float], vectors: Profiles, n: int, known: Profiles | None = None) -> list[int]:
    """Choose n of some texts, in order: greedily the one whose weight times its distance to all chosen so far is most.

    weights: How much each is wanted, 0 or more.
    vectors: Their profiles.
    known: Those of texts that count as chosen before.
    RETURNS: Their indices; the first of equals.
    """
    wanted = np.asarray(weights, dtype=np.float64)
    nearest = np.zeros(len(wanted))
    for part in range(0, 0 if known is None else len(known), WIDTH):
        assert known is not None
        np.maximum(nearest, (vectors @ known[part : part + WIDTH].T).max(axis=1), out=nearest)
    chosen: list[int] = []
    free = np.ones(len(wanted), dtype=bool)
    for _ in range(min(n, len(wanted))):
        gain = np.where(free, wanted * np.maximum(1.0 - nearest, 0.0), -1.0)
        best = int(gain.argmax())
        chosen.append(best)
        free[best] = False
        np.maximum(nearest, vectors @ vectors[best], out=nearest)
    return chosen
