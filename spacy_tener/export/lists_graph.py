"""Write the component `entity_lists` to an ONNX graph: find listed words in texts, and select among overlapping words.

The selection is the same as in Python, but without loops over words: all positions advance through the trie at once,
    and
one word of every group of overlapping words is decided at once.
"""

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
# End of the code points that may have a simplified form. Higher planes contain no letters.
_CODE_POINTS = 0x40000
_LETTER_CLASS, _DIGIT_CLASS, _POINT_CLASS = 1, 2, 3
# Penalty of a tag that is not allowed.
_FORBIDDEN = -1e4


def write_listed(
    graph: Graph, codes: Value, lengths: Value, words: WordList, labels: Sequence[str]
) -> tuple[Value, Value]:
    """Write `EntityLists.set_annotations` for texts whose tokens are characters.

    codes (Value): Code points of all texts, concatenated. *Shape:* (characters,)
    lengths (Value): Number of characters in each text. *Shape:* (texts,)
    words (WordList): The listed words. Words without a label are blocked.
    labels (Sequence[str]): The labels of the tags.
    RETURNS (Tuple[Value, Value]): The tag of each character: `NO_WORD` outside of listed words, and O in blocked words.
        And a mask of blocked words within listed entities. *Shape:* (characters,) each
    """
    # If several words have the same simplified form, the last entry is used.
    entries = {simplify(word): (index, entry.tag) for index, (word, entry) in enumerate(words.entries.items())}
    ranked = sorted(entries, key=lambda form: (-len(form), entries[form][0]))
    sizes, layout = np.array([len(form) for form in ranked]), TagLayout(len(labels))
    # The tags of the first, inner and last characters of each word. *Shape:* (words, 3)
    parts = [layout.begin.start, layout.inside.start, layout.end.start]
    tags = [
        np.add(parts, labels.index(entries[form][1])) if entries[form][1] else [layout.outside] * 3 for form in ranked
    ]
    firsts, ranks = _find(graph, codes, lengths, ranked, graph.value(sizes))
    return _select(graph, firsts, ranks, graph.size(codes), sizes, np.array(tags), layout.outside)


def _find(graph: Graph, codes: Value, lengths: Value, ranked: Sequence[str], sizes: Value) -> tuple[Value, Value]:
    """Write `find_list_words`. Return the first character of each match, and the rank of the matching word.

    *Shape:* (matches,) each

    ranked (Sequence[str]): Simplified forms of words, sorted by decreasing length and then by their order in the list.
    sizes (Value): Number of characters in each word. *Shape:* (words,)
    """
    starts, size = graph.starts(lengths), graph.size(codes)
    stops = (starts + lengths)[graph.sequence_index(starts, size)]
    number_of = {character: number for number, character in enumerate(sorted(set(chain.from_iterable(ranked))), 1)}
    # A trie like `WordTrie`: `nodes` maps a node and a character to the next node. Node 0 is the root.
    width, nodes, ends = len(number_of) + 1, dict[int, int](), dict[int, int]()
    for rank, form in enumerate(ranked):
        node = 0
        for character in form:
            node = nodes.setdefault(node * width + number_of[character], len(nodes) + 1)
        ends[node] = rank
    code_point_range = np.union1d(np.arange(_CODE_POINTS, dtype=np.uint32), code_points("".join(number_of)))
    form_of = dict(zip(code_point_range.tolist(), simplify_codes(code_point_range).tolist(), strict=True))
    number_of_form = {ord(character): number for character, number in number_of.items()}
    numbers = graph.lookup(
        codes, {code: number_of_form[form] for code, form in form_of.items() if form in number_of_form}, 0
    )

    def advance(step: Value, positions: Value, parents: Value, firsts: Value, ranks: Value) -> list[Value]:
        """Follow the next character from all positions at once, and collect the matches that end there."""
        found = graph.lookup(parents * width + numbers[positions + step], nodes, 0)
        alive = graph.where_true(found > 0)
        positions, found, step = positions[alive], found[alive], step + 1
        words = graph.lookup(found, ends, NO_WORD)
        is_end = graph.where_true(words > NO_WORD)
        firsts, ranks = graph.SequenceInsert(firsts, positions[is_end]), graph.SequenceInsert(ranks, words[is_end])
        continues = graph.where_true(positions + step < stops[positions])
        return [step, positions[continues], found[continues], firsts, ranks]

    nothing = graph.SequenceConstruct(graph.full(0, 0))
    *_, firsts, ranks = graph.loop(
        [graph.value(np.int64(0)), graph.Range(0, size, 1), graph.full(0, size), nothing, nothing],
        lambda step, positions, *_: graph.size(positions) > 0,
        advance,
    )
    firsts, ranks = (graph.ConcatFromSequence(parts, axis=0) for parts in (firsts, ranks))
    cuts = graph.Concat(_cuts_word(graph, codes, starts), np.array([False]), axis=0)
    is_whole = graph.where_true(~(cuts[firsts] | cuts[firsts + sizes[ranks]]))
    return firsts[is_whole], ranks[is_whole]


def _cuts_word(graph: Graph, codes: Value, starts: Value) -> Value:
    """Return a mask of characters at which no match may begin, because they are within a Latin word or a number.

    *Shape:* (characters,)
    """
    letters, digits, points = edge_classes()
    classes = np.where(digits, _DIGIT_CLASS, np.where(letters, _LETTER_CLASS, np.where(points, _POINT_CLASS, 0)))
    class_of = dict(enumerate(classes.tolist()))
    opens = graph.count_indices(starts, graph.size(codes)) > 0
    current = graph.lookup(codes, {code: number for code, number in class_of.items() if number}, 0)
    previous = graph.Where(opens, 0, graph.shift_right(current, 0))
    earlier = graph.Where(opens, 0, graph.shift_right(previous, 0))

    def is_letter(values: Value) -> Value:
        return graph.Equal(values, _LETTER_CLASS) | graph.Equal(values, _DIGIT_CLASS)

    # A point between two digits, as in 3.5, belongs to a number: no match begins before or after it.
    is_after_point = graph.Equal(earlier, _DIGIT_CLASS) & graph.Equal(previous, _POINT_CLASS)
    in_number = is_after_point & graph.Equal(current, _DIGIT_CLASS)
    before_point = graph.Concat(in_number[1:], np.array([False]), axis=0)
    return (is_letter(previous) & is_letter(current)) | in_number | before_point


def _select(
    graph: Graph, firsts: Value, ranks: Value, size: Value, sizes: IntArray, tags_of: IntArray, outside: int
) -> tuple[Value, Value]:
    """Select the matches that do not overlap with a selected match of a smaller rank.

    Matches that overlap, directly or through other matches, form a group. Each iteration of the loop decides the match
    with the smallest remaining rank in every group.

    firsts, ranks (Value): The first character and the rank of each match. *Shape:* (matches,) each
    size (Value): Number of characters in all texts.
    sizes (IntArray): Number of characters in each word. *Shape:* (words,)
    tags_of (IntArray): The tags of the first, inner and last characters of each word. *Shape:* (words, 3)
    outside (int): The tag O.
    """
    size_of = graph.value(sizes)
    opened = graph.count_indices(firsts, size)
    n_covering = graph.CumSum(opened - graph.count_indices(firsts + size_of[ranks], size), 0)
    groups = graph.CumSum(((opened > 0) & graph.Equal(n_covering, opened)).to(np.int64), 0)[firsts]
    # Sort by group, then by rank. Matches with the same rank keep the order of the text.
    _, order = graph.add("TopK", groups * len(tags_of) + ranks, graph.shape(graph.size(ranks)), outputs=2, largest=0)
    firsts, ranks, groups = firsts[order], ranks[order], groups[order]
    heads = graph.where_true(~graph.Equal(groups, graph.shift_right(groups, 0)))
    stops = graph.Concat(heads[1:], graph.shape(graph.size(groups)), axis=0)
    # The loop only processes characters that are covered by a match.
    covered = graph.where_true(n_covering > 0)
    covered_index = graph.CumSum((n_covering > 0).to(np.int64), 0) - 1
    steps = np.arange(sizes.max())

    def decide(at: Value, stops: Value, tags: Value, gaps: Value) -> list[Value]:
        words = ranks[at]
        lasts = graph.Unsqueeze(size_of[words] - 1, [1])
        inner = graph.Min(steps[None], lasts)
        positions = covered_index[graph.Unsqueeze(firsts[at], [1]) + inner]
        part = (inner > 0).to(np.int64) + graph.Equal(inner, lasts).to(np.int64)
        new = graph.value(tags_of.ravel())[graph.Unsqueeze(words * 3, [1]) + part]
        present = tags[positions]
        is_free = graph.ReduceMax(present, axes=[1], keepdims=0) < 0
        in_entity = (present > NO_WORD) & ~graph.Equal(present, outside)
        is_gap = graph.ReduceMin(in_entity.to(np.int64), axes=[1], keepdims=0) > 0
        is_gap = is_gap & graph.Equal(graph.ReduceMax(new, axes=[1], keepdims=0), outside)

        def mark(values: Value, selected: Value, marks: Value) -> Value:
            rows = graph.where_true(selected)
            pairs = (graph.Reshape(part[rows], [-1]) for part in (positions, marks))
            return graph.ScatterElements(values, *pairs, axis=0)

        tags, gaps = mark(tags, is_free, new), mark(gaps, is_gap, new * 0 + 1)
        at = at + 1
        continues = graph.where_true(at < stops)
        return [at[continues], stops[continues], tags, gaps]

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
    """Return a function that adds the penalties of listed words to the penalties of tags, like `masks.allowed_tags`.

    The function has two arguments: the units of a padded batch, and the penalties of their tags. It returns penalties
        for
    each nesting depth. *Shape:* (windows, longest, depth, tags)

    fixed (Value): The tag of each unit in a listed word, otherwise `NO_WORD`. *Shape:* (units,)
    is_gap (Value): A mask of units in blocked words within listed entities. *Shape:* (units,)
    model, file (TagLayout): The tags of the model, and the tags of the exported file, which may have more labels.
    depth (int): The maximum nesting depth.
    """
    # The tag of the model for each tag of the file. An unknown label becomes O. The last row means that any tag is
    # allowed.
    known, tags = np.full(file.n_tags + 1, model.outside), np.arange(model.n_tags)
    known[model.within(file)], known[NO_WORD] = tags, model.n_tags
    outer = np.where(np.vstack([np.eye(model.n_tags, dtype=bool), np.ones_like(tags, dtype=bool)]), 0.0, -np.inf)
    # Tags of nested entities: any tag, any tag that does not continue an entity, or only O.
    inner = np.zeros((3, model.n_tags))
    inner[1, model.continuers] = inner[2, tags != model.outside] = -np.inf
    is_fixed, is_outside = fixed > NO_WORD, graph.Equal(fixed, file.outside)
    is_edge = (fixed < file.end.start) & (is_fixed | graph.shift_right(is_fixed, False))
    kinds = graph.Where(is_gap | is_outside, 2, is_edge.to(np.int64))

    def fix(slots: Value, penalties: Value) -> Value:
        outer_penalties = graph.Where(graph.Unsqueeze(is_fixed[slots], [2]), 0.0, penalties)
        depths = [outer_penalties + graph.value(outer)[graph.value(known)[fixed[slots]]]]
        depths += [penalties + graph.value(inner)[kinds[slots]]] * (depth - 1)
        penalties = graph.Concat(*(graph.Unsqueeze(part, [2]) for part in depths), axis=2)
        # The probability of a path is computed with the scores of all depths, at which its tags may not be allowed.
        # Therefore penalties are finite: infinite scores would result in NaN.
        return graph.Max(penalties, _FORBIDDEN)

    return fix
