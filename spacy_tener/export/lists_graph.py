"""Listed words in a graph: found in texts, and chosen where they overlap, as the component `entity_lists` does it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from ..features.characters import code_points
from ..features.keys import simplify, simplify_codes
from ..features.word_lists import WordList, edge_classes
from ..nn.graph import Graph, Value
from ..tagging import TagLayout
from ..types import IntArray

NO_WORD = -1
_CODE_POINTS = 0x40000
"""Code points whose forms are tried: those of all planes with letters. Others have no other form."""
_LETTER_CLASS, _DIGIT_CLASS, _POINT_CLASS = 1, 2, 3
_FORBIDDEN = -1e4
"""The penalty of a tag that is not allowed."""


def write_listed(
    graph: Graph, codes: Value, lengths: Value, words: WordList, labels: Sequence[str]
) -> tuple[Value, Value]:
    """Write `EntityLists.set_annotations` for texts whose characters are tokens.

    codes (Value): Code points of all texts, joined. *Shape:* (characters,)
    lengths (Value): Characters of each text. *Shape:* (texts,)
    labels (Sequence[str]): Those of the tags.
    RETURNS (Tuple[Value, Value]): The tag of a word's character, `NO_WORD` in none: a word that is no entity is
        outside. And a mask of words that are no entities, within one of the list. *Shape:* (characters,) each
    """
    # Of words with one form, the last entry counts.
    entries = {simplify(word): (index, entry.tag) for index, (word, entry) in enumerate(words.entries.items())}
    ranked = sorted(entries, key=lambda form: (-len(form), entries[form][0]))
    sizes, layout = np.array([len(form) for form in ranked]), TagLayout(len(labels))
    # Of a word's first, inner and last characters. *Shape:* (words, 3)
    parts = [layout.begin.start, layout.inside.start, layout.end.start]
    tags = [
        np.add(parts, labels.index(entries[form][1])) if entries[form][1] else [layout.outside] * 3 for form in ranked
    ]
    firsts, ranks = _find(graph, codes, lengths, ranked, graph.value(sizes))
    return _choose(graph, firsts, ranks, graph.size(codes), sizes, np.array(tags), layout.outside)


def _find(graph: Graph, codes: Value, lengths: Value, ranked: Sequence[str], sizes: Value) -> tuple[Value, Value]:
    """Write `find_listed`. Returns the first character of each match, and its word's rank. *Shape:* (matches,) each

    ranked (Sequence[str]): The forms of words: the longest first, then in the list's order.
    sizes (Value): The characters of each word. *Shape:* (words,)
    """
    starts, size = graph.starts(lengths), graph.size(codes)
    stops = (starts + lengths)[graph.owners(starts, size)]
    number_of = {character: number for number, character in enumerate(sorted(set(chain.from_iterable(ranked))), 1)}
    # A trie, as `WordTrie`: the node behind each node and character. Node 0 is the root.
    width, nodes, ends = len(number_of) + 1, dict[int, int](), dict[int, int]()
    for rank, form in enumerate(ranked):
        node = 0
        for character in form:
            node = nodes.setdefault(node * width + number_of[character], len(nodes) + 1)
        ends[node] = rank
    every = np.union1d(np.arange(_CODE_POINTS, dtype=np.uint32), code_points("".join(number_of)))
    form_of = dict(zip(every.tolist(), simplify_codes(every).tolist(), strict=True))
    of_form = {ord(character): number for character, number in number_of.items()}
    numbers = graph.lookup(codes, {code: of_form[form] for code, form in form_of.items() if form in of_form}, 0)

    def advance(step: Value, places: Value, parents: Value, firsts: Value, ranks: Value) -> list[Value]:
        """Go one character further from all places at once."""
        found = graph.lookup(parents * width + numbers[places + step], nodes, 0)
        alive = graph.where_true(found > 0)
        places, found, step = places[alive], found[alive], step + 1
        words = graph.lookup(found, ends, NO_WORD)
        is_end = graph.where_true(words > NO_WORD)
        firsts, ranks = graph.SequenceInsert(firsts, places[is_end]), graph.SequenceInsert(ranks, words[is_end])
        goes_on = graph.where_true(places + step < stops[places])
        return [step, places[goes_on], found[goes_on], firsts, ranks]

    nothing = graph.SequenceConstruct(graph.full(0, 0))
    *_, firsts, ranks = graph.loop(
        [graph.value(np.int64(0)), graph.Range(0, size, 1), graph.full(0, size), nothing, nothing],
        lambda step, places, *_: graph.size(places) > 0,
        advance,
    )
    firsts, ranks = (graph.ConcatFromSequence(parts, axis=0) for parts in (firsts, ranks))
    cut = graph.Concat(_cuts_word(graph, codes, starts, form_of), np.array([False]), axis=0)
    is_whole = graph.where_true(~(cut[firsts] | cut[firsts + sizes[ranks]]))
    return firsts[is_whole], ranks[is_whole]


def _cuts_word(graph: Graph, codes: Value, starts: Value, form_of: dict[int, int]) -> Value:
    """Mark characters before which an edge would cut a word of letters, or a number. *Shape:* (characters,)"""
    letters, digits, points = edge_classes()
    classes = np.where(digits, _DIGIT_CLASS, np.where(letters, _LETTER_CLASS, np.where(points, _POINT_CLASS, 0)))
    class_of = {code: int(classes[min(form, classes.size - 1)]) for code, form in form_of.items()}
    opens = graph.marks(starts, graph.size(codes)) > 0
    here = graph.lookup(codes, {code: number for code, number in class_of.items() if number}, 0)
    before = graph.Where(opens, 0, graph.shifted(here, 0))
    earlier = graph.Where(opens, 0, graph.shifted(before, 0))

    def is_letter(values: Value) -> Value:
        return graph.Equal(values, _LETTER_CLASS) | graph.Equal(values, _DIGIT_CLASS)

    in_number = graph.Equal(earlier, _DIGIT_CLASS) & graph.Equal(before, _POINT_CLASS) & graph.Equal(here, _DIGIT_CLASS)
    before_point = graph.Concat(in_number[1:], np.array([False]), axis=0)
    return (is_letter(before) & is_letter(here)) | in_number | before_point


def _choose(
    graph: Graph, firsts: Value, ranks: Value, size: Value, sizes: IntArray, tags_of: IntArray, outside: int
) -> tuple[Value, Value]:
    """Choose the words that overlap with none of a smaller rank that was chosen.

    Words that overlap, by way of others too, are a group. Each turn decides one word of every group.

    sizes (IntArray): The characters of each word. *Shape:* (words,)
    tags_of (IntArray): The tags of each word's first, inner and last characters. *Shape:* (words, 3)
    """
    size_of = graph.value(sizes)
    opened = graph.marks(firsts, size)
    n_over = graph.CumSum(opened - graph.marks(firsts + size_of[ranks], size), 0)
    groups = graph.CumSum(((opened > 0) & graph.Equal(n_over, opened)).to(np.int64), 0)[firsts]
    # By group, then by rank. Words of one rank stay in the order of the text.
    _, order = graph.add("TopK", groups * len(tags_of) + ranks, graph.shape(graph.size(ranks)), outputs=2, largest=0)
    firsts, ranks, groups = firsts[order], ranks[order], groups[order]
    heads = graph.where_true(~graph.Equal(groups, graph.shifted(groups, 0)))
    stops = graph.Concat(heads[1:], graph.shape(graph.size(groups)), axis=0)
    # Only characters in words are kept through the turns.
    covered = graph.where_true(n_over > 0)
    slots = graph.CumSum((n_over > 0).to(np.int64), 0) - 1
    steps = np.arange(sizes.max())

    def decide(at: Value, stops: Value, tags: Value, gaps: Value) -> list[Value]:
        words = ranks[at]
        lasts = graph.Unsqueeze(size_of[words] - 1, [1])
        inner = graph.Min(steps[None], lasts)
        places = slots[graph.Unsqueeze(firsts[at], [1]) + inner]
        part = (inner > 0).to(np.int64) + graph.Equal(inner, lasts).to(np.int64)
        new = graph.value(tags_of.ravel())[graph.Unsqueeze(words * 3, [1]) + part]
        present = tags[places]
        is_free = graph.ReduceMax(present, axes=[1], keepdims=0) < 0
        in_entity = (present > NO_WORD) & ~graph.Equal(present, outside)
        is_gap = graph.ReduceMin(in_entity.to(np.int64), axes=[1], keepdims=0) > 0
        is_gap = is_gap & graph.Equal(graph.ReduceMax(new, axes=[1], keepdims=0), outside)

        def mark(values: Value, which: Value, marks: Value) -> Value:
            rows = graph.where_true(which)
            pairs = (graph.Reshape(part[rows], [-1]) for part in (places, marks))
            return graph.ScatterElements(values, *pairs, axis=0)

        tags, gaps = mark(tags, is_free, new), mark(gaps, is_gap, new * 0 + 1)
        at = at + 1
        goes_on = graph.where_true(at < stops)
        return [at[goes_on], stops[goes_on], tags, gaps]

    none = graph.full(NO_WORD, graph.size(covered)), graph.full(0, graph.size(covered))
    _, _, tags, gaps = graph.loop([heads, stops, *none], lambda at, *_: graph.size(at) > 0, decide)
    tags, gaps = (
        graph.ScatterElements(graph.full(number, size), covered, part, axis=0)
        for number, part in ((NO_WORD, tags), (0, gaps))
    )
    return tags, gaps > 0


def fix_tags(
    graph: Graph, fixed: Value, is_gap: Value, model: TagLayout, file: TagLayout, depth: int
) -> Callable[[Value, Value], Value]:
    """Return a function that adds what a list says to the penalties of tags, as `masks.allowed_tags` does. It takes
    units and their penalties, and returns penalties for each depth. *Shape:* (windows, longest, depth, tags)

    fixed (Value): The tag that the list gives to each unit, or `NO_WORD`. *Shape:* (units,)
    is_gap (Value): A mask of units that are no entities, within one of the list. *Shape:* (units,)
    """
    # The model's tag of each tag of the file: the model reads an unknown label as outside. Behind them stands any tag.
    known, tags = np.full(file.n_tags + 1, model.outside), np.arange(model.n_tags)
    known[model.within(file)], known[NO_WORD] = tags, model.n_tags
    outer = np.where(np.vstack([np.eye(model.n_tags, dtype=bool), np.ones_like(tags, dtype=bool)]), 0.0, -np.inf)
    # Within entities: any tag, one that does not go on with an entity, outside.
    inner = np.zeros((3, model.n_tags))
    inner[1, model.continuers] = inner[2, tags != model.outside] = -np.inf
    is_fixed, is_outside = fixed > NO_WORD, graph.Equal(fixed, file.outside)
    is_edge = (fixed < file.end.start) & (is_fixed | graph.shifted(is_fixed, False))
    kinds = graph.Where(is_gap | is_outside, 2, is_edge.to(np.int64))

    def fix(slots: Value, penalties: Value) -> Value:
        whole = graph.Where(graph.Unsqueeze(is_fixed[slots], [2]), 0.0, penalties)
        depths = [whole + graph.value(outer)[graph.value(known)[fixed[slots]]]]
        depths += [penalties + graph.value(inner)[kinds[slots]]] * (depth - 1)
        penalties = graph.Concat(*(graph.Unsqueeze(part, [2]) for part in depths), axis=2)
        # Each path is weighed by the scores of each depth, at which its tags may be forbidden: infinities would remain.
        return graph.Max(penalties, _FORBIDDEN)

    return fix
