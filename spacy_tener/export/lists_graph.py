"""Add the component `entity_lists` to an ONNX graph.

The graph finds the words of an entity list and resolves overlapping matches, as the component does. It avoids loops
over single words, which are slow in ONNX: all characters advance through a trie at once, and overlaps are resolved in
all groups of overlapping matches at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import numpy as np

from ..features.characters import code_points
from ..features.keys import simplify_codes
from ..features.word_lists import SOUND_MARKS, WordList, edge_classes
from ..nn.graph import Graph, Value
from ..tagging import TagLayout
from ..types import IntArray

NO_WORD = -1
# A function that adds penalties to the penalties of a padded batch of units.
Fix = Callable[[Value, Value], Value]
# Upper limit of the characters that are simplified. Higher Unicode planes contain no letters.
_CODE_POINTS = 0x40000
_LETTER_CLASS, _DIGIT_CLASS, _POINT_CLASS = 1, 2, 3
# Score that is added to the emissions of forbidden tags.
_FORBIDDEN = -1e4


def write_listed(
    graph: Graph, codes: Value, lengths: Value, words: WordList, labels: Sequence[str]
) -> tuple[Value, Value]:
    """Add ONNX nodes that tag the words of an entity list. Each character must be a token.

    `EntityLists.set_annotations` implements the same rules for a Doc.

    codes (Value): The concatenated texts as code points. *Shape:* (characters,)
    lengths (Value): Text lengths in characters. *Shape:* (texts,)
    words (WordList): The entity list. Words without a label are blocked, which means that they are never entities.
    labels (Sequence[str]): The entity types of the exported file.
    RETURNS (Tuple[Value, Value]): The tag of each character: `NO_WORD` outside list words, O in blocked words. A mask
        of blocked words that lie within a list entity. *Shape:* (characters,) each
    """
    entries = {form: (index, words.listed[index].tag) for form, index in words.forms.items()}
    ranked = sorted(entries, key=lambda form: (-len(form), entries[form][0]))
    sizes, layout = np.array([len(form) for form in ranked]), TagLayout(len(labels))
    # Each word's BIOES tags for the first, inner and last characters. *Shape:* (words, 3)
    parts = [layout.begin.start, layout.inside.start, layout.end.start]
    tags = [
        np.add(parts, labels.index(entries[form][1])) if entries[form][1] else [layout.outside] * 3 for form in ranked
    ]
    firsts, ranks = _find(graph, codes, lengths, ranked, graph.value(sizes))
    return _select(graph, firsts, ranks, graph.size(codes), sizes, np.array(tags), layout.outside)


def _find(graph: Graph, codes: Value, lengths: Value, ranked: Sequence[str], sizes: Value) -> tuple[Value, Value]:
    """Add ONNX nodes that find the words of an entity list, including overlapping words, like `find_list_words`.

    ranked (Sequence[str]): All forms of the words, longest first. The index of a form is its rank.
    sizes (Value): Word lengths in characters. *Shape:* (words,)
    RETURNS (tuple[Value, Value]): The first character and the rank of each match. *Shape:* (matches,) each
    """
    starts, size = graph.starts(lengths), graph.size(codes)
    stops = (starts + lengths)[graph.sequence_index(starts, size)]
    number_of = {character: number for number, character in enumerate(sorted(set(chain.from_iterable(ranked))), 1)}
    # A trie, as in `WordTrie`. `nodes` maps a pair of a node and a character to the next node. The root is node 0.
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
        """Follow one edge of the trie from all positions at once, and add complete words to the matches."""
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
    """Add ONNX nodes that compute a mask of the characters at which no match may begin or end.

    A match must not begin or end within a Latin word or a number: 'AI' does not match in 'MAIL'. *Shape:* (characters,)
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

    # A decimal point and its neighbours belong to the same number, so '50' does not match in '3.50'.
    is_after_point = graph.Equal(earlier, _DIGIT_CLASS) & graph.Equal(previous, _POINT_CLASS)
    in_number = is_after_point & graph.Equal(current, _DIGIT_CLASS)
    before_point = graph.Concat(in_number[1:], np.array([False]), axis=0)
    first_mark, second_mark = (graph.Equal(codes, mark) for mark in SOUND_MARKS)
    return (is_letter(previous) & is_letter(current)) | in_number | before_point | first_mark | second_mark


def _select(
    graph: Graph, firsts: Value, ranks: Value, size: Value, sizes: IntArray, tags_of: IntArray, outside: int
) -> tuple[Value, Value]:
    """Add ONNX nodes that resolve overlapping matches. Words with a smaller rank take precedence.

    Matches are divided into groups that do not overlap with each other. Each iteration of the loop processes the match
    with the smallest remaining rank in each group. A match is discarded if it overlaps with a match that was selected
    before.

    firsts, ranks (Value): First character and rank per match. *Shape:* (matches,) each
    size (Value): Number of characters in all texts.
    sizes (IntArray): Word lengths in characters. *Shape:* (words,)
    tags_of (IntArray): Each word's tags for the first, inner and last characters. *Shape:* (words, 3)
    outside (int): The tag O.
    RETURNS (tuple[Value, Value]): The tag of each character, and a mask of blocked words that lie within a list entity.
        *Shape:* (characters,) each
    """
    size_of = graph.value(sizes)
    opened = graph.count_indices(firsts, size)
    n_covering = graph.CumSum(opened - graph.count_indices(firsts + size_of[ranks], size), 0)
    # A group begins at a character where a match begins and no previous match continues.
    groups = graph.CumSum(((opened > 0) & graph.Equal(n_covering, opened)).to(np.int64), 0)[firsts]
    # Sort by group, then by rank. If ranks are equal, the first match in the text comes first.
    _, order = graph.add("TopK", groups * len(tags_of) + ranks, graph.shape(graph.size(ranks)), outputs=2, largest=0)
    firsts, ranks, groups = firsts[order], ranks[order], groups[order]
    heads = graph.where_true(~graph.Equal(groups, graph.shift_right(groups, 0)))
    stops = graph.Concat(heads[1:], graph.shape(graph.size(groups)), axis=0)
    # Remove characters without a match, since each iteration of the loop copies the tags of all characters.
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
        # A blocked word that overlaps a list entity does not change the entity, but no nested entity may contain it.
        is_gap = ~is_free & graph.Equal(graph.ReduceMax(new, axes=[1], keepdims=0), outside)

        def mark(values: Value, selected: Value, marks: Value) -> Value:
            rows = graph.where_true(selected)
            pairs = (graph.Reshape(part[rows], [-1]) for part in (positions, marks))
            return graph.ScatterElements(values, *pairs, axis=0)

        tags, gaps = mark(tags, is_free, new), mark(gaps, is_gap, in_entity.to(np.int64))
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


def fix_tags(graph: Graph, listed: ListedTags) -> Fix:
    """Return a function that adds penalties for tags that contradict the entity list.

    Penalties are added to the emission scores: 0 for allowed tags, and a large negative number for forbidden tags. The
    returned function takes the unit indices of a padded batch and the penalties of the tags. It returns the new
    penalties. *Shape:* (windows, longest, 1, tags)

    `pipeline.masks.allowed_tags` implements the same rules for Docs.
    """

    def fix(slots: Value, penalties: Value) -> Value:
        return graph.Max(graph.Unsqueeze(listed.keep(slots, penalties), [2]), _FORBIDDEN)

    return fix


def fix_nested_tags(graph: Graph, listed: ListedTags, own_penalties: Value, best: Value, depth: int) -> Fix:
    """Return a function like that of `fix_tags`, for a model of nested entities. *Shape:* (windows, longest, depth,
    tags)

    `pipeline.masks.allowed_nested_tags` implements the same rules for Docs, and explains them.

    own_penalties (Value): The penalty that the rules of the model give to the tag of each unit in a list entity.
        *Shape:* (units,)
    best (Value): The best tags at each depth if the list is ignored. *Shape:* (units, depth)
    """
    layout, tags = listed.model, np.arange(listed.model.n_tags)
    # Penalties if nothing is forbidden, and if no entity may continue from the previous unit.
    continues = np.zeros((2, layout.n_tags))
    continues[1, layout.continuers] = -np.inf
    # Penalties in an entity around a list entity: I is allowed in all cases, B if the second bit is set, E if the
    # third one is set.
    around = np.full((4, layout.n_tags), -np.inf)
    around[:, layout.inside] = around[[1, 3], layout.begin] = around[[2, 3], layout.end] = 0.0
    starts, ends = listed.boundaries()
    is_single = graph.Equal(starts, ends)
    # The number of tags up to each unit that the model cannot predict.
    is_invalid = listed.is_entity & ((own_penalties < 0.0) | listed.is_gap)
    n_invalid = graph.CumSum(is_invalid.to(np.int64), 0)
    is_invalid = n_invalid[ends] - n_invalid[starts] + is_invalid[starts].to(np.int64) > 0
    is_cut_after = graph.Concat(listed.continues[1:], np.array([False]), axis=0)[: graph.size(listed.tags)]
    levels: list[tuple[Value, Value, Value]] = []
    for level in range(depth):
        found_starts, found_ends, is_found = find_boundaries(graph, graph.Gather(best, level, axis=1), layout)
        is_same = graph.Equal(found_starts, starts) & graph.Equal(found_ends, ends)
        is_around = is_found & ~(found_ends < ends) & ~is_same
        is_around = is_around & ~listed.continues[found_starts] & ~is_cut_after[found_ends]
        if level == 0:
            is_around = is_around & ~is_invalid
        # Copy the result from the first unit of a list entity to its other units.
        is_around = listed.is_entity & is_around[starts]
        ends_together = graph.Equal(found_ends, ends)[starts]
        can_begin = listed.is_first & (~ends_together | is_single)
        can_end = listed.is_last & (ends_together | is_single)
        has_none_around = listed.is_fixed & ~is_around
        is_edge = ~listed.continues & (has_none_around | graph.shift_right(has_none_around, False))
        levels.append((is_around, can_begin.to(np.int64) + can_end.to(np.int64) * 2, is_edge.to(np.int64)))
    only_outside = graph.value(np.where(tags == layout.outside, 0.0, -np.inf))

    def fix(slots: Value, penalties: Value) -> Value:
        depths, free = [], listed.exclude_blocked(slots, penalties)
        for level, (is_around, case, is_edge) in enumerate(levels):
            own = listed.own_penalties(slots) if level == 0 else only_outside
            others = listed.keep(slots, penalties) if level == 0 else free
            allowed = graph.Max(free + graph.value(around)[case[slots]], own)
            allowed = graph.Where(graph.Unsqueeze(is_around[slots], [2]), allowed, others)
            depths.append(graph.Unsqueeze(allowed + graph.value(continues)[is_edge[slots]], [2]))
        # A path is also scored at depths where its tags are forbidden. An infinite penalty would then result in NaN.
        return graph.Max(graph.Concat(*depths, axis=2), _FORBIDDEN)

    return fix


def find_boundaries(graph: Graph, tags: Value, layout: TagLayout) -> tuple[Value, Value, Value]:
    """Find the entity that contains each unit. Return its first and last unit, and whether there is an entity.

    *Shape:* (units,) each

    tags (Value): Valid tag sequences, concatenated. *Shape:* (units,)
    """
    is_single = (tags > layout.single.start - 1) & (tags < layout.single.stop)
    is_first = ((tags > NO_WORD) & (tags < layout.begin.stop)) | is_single
    is_last = ((tags > layout.end.start - 1) & (tags < layout.end.stop)) | is_single
    # Units before the first entity have the index -1. It selects the 0 at the end.
    index = graph.CumSum(is_first.to(np.int64), 0) - 1
    first, last = (graph.Concat(graph.where_true(mask), [0], axis=0)[index] for mask in (is_first, is_last))
    return first, last, (tags > NO_WORD) & ~graph.Equal(tags, layout.outside)


class ListedTags:
    """The tags of the units in words of an entity list, as values of a graph.

    tags (Value): The tag of each unit in a word of the list, otherwise `NO_WORD`. *Shape:* (units,)
    is_gap (Value): Mask of blocked words that lie within a list entity. *Shape:* (units,)
    model, file (TagLayout): The tags of the model and of the exported file. The file may have more labels than the
        model.
    """

    def __init__(self, graph: Graph, tags: Value, is_gap: Value, model: TagLayout, file: TagLayout) -> None:
        self._graph, self._file = graph, file
        self.tags, self.is_gap, self.model = tags, is_gap, model
        # Map the file's tags to the model's tags. Labels that the model does not have become O. The last element is for
        # units outside list words, whose tags are not restricted.
        known, all_tags = np.full(file.n_tags + 1, model.outside), np.arange(model.n_tags)
        known[model.within(file)], known[NO_WORD] = all_tags, model.n_tags
        rows = np.vstack([np.eye(model.n_tags, dtype=bool), np.ones_like(all_tags, dtype=bool)])
        self.own_tags = graph.value(known)[tags]
        self._own_penalties = graph.value(np.where(rows, 0.0, -np.inf))
        self.is_fixed = tags > NO_WORD
        is_blocked = graph.Equal(tags, file.outside)
        self.is_entity = self.is_fixed & ~is_blocked
        self.continues = tags > file.end.start - 1
        self.is_first = self.is_entity & ~self.continues
        is_single = (tags > file.single.start - 1) & (tags < file.single.stop)
        self.is_last = ((tags > file.end.start - 1) & (tags < file.end.stop)) | is_single
        self._is_excluded = (is_gap | is_blocked).to(np.int64)
        self._excluded = graph.value(np.where([[True] * model.n_tags, all_tags == model.outside], 0.0, -np.inf))

    def boundaries(self) -> tuple[Value, Value]:
        """Return the first and the last unit of the list entity that contains each unit. *Shape:* (units,) each"""
        first, last, _ = find_boundaries(self._graph, self.tags, self._file)
        return first, last

    def own_penalties(self, slots: Value) -> Value:
        """Return penalties that allow only the tags of list words. *Shape:* (windows, longest, tags)"""
        return self._own_penalties[self.own_tags[slots]]

    def keep(self, slots: Value, penalties: Value) -> Value:
        """Replace the penalties of units in list words. *Shape:* (windows, longest, tags)"""
        graph = self._graph
        return graph.Where(graph.Unsqueeze(self.is_fixed[slots], [2]), self.own_penalties(slots), penalties)

    def exclude_blocked(self, slots: Value, penalties: Value) -> Value:
        """Allow only O for units in blocked words. *Shape:* (windows, longest, tags)"""
        return penalties + self._excluded[self._is_excluded[slots]]
