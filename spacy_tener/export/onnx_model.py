"""Export a trained pipeline to a single ONNX file, for the command `export`.

    model = export_model(nlp)              # a ModelProto
    Path("ner.onnx").write_bytes(model.SerializeToString())

The input of the graph is the code points of texts, and the output is tags and probabilities:

    codes, lengths ── units ── windows ── embedder, encoder, tagger ── CRF ── tags, probabilities
                        └────────── entity list (forbidden tags) ──────┘

Units are tokens, or characters if the component is configured with `view = "characters"`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from packaging.version import Version
from spacy.lang.zh import ChineseTokenizer, Segmenter
from spacy.language import Language

from ..about import __version__
from ..architectures.tagger import crf_predictor
from ..crf.transitions import Transitions
from ..errors import UserError, check_package, install
from ..features.word_lists import WordList
from ..nn.graph import Graph, Value
from ..onnx.lac_tagger import BREAKS, FORBIDDEN, LacTagger
from ..pipeline.finding import components_before, describe_component, entity_lists, find_crf_pipe
from ..pipeline.lac import Lac
from ..pipeline.tener_ner import TenerNER
from ..pipeline.units import TEXT
from ..requirements import source_of
from ..tagging import TagLayout
from ..types import IntArray
from .code_points import joined_letters, read_unit_types, read_units, sentence_ends, word_neighbours
from .crf_graph import write_forward_backward, write_probabilities, write_viterbi
from .layers import DISTIL_FIX, LayerWriter, prepare_encoder
from .lists_graph import NO_WORD, ListedTags, fix_nested_tags, fix_tags, write_listed
from .window_batches import WindowBatch, Windows, compute_in_batches, cut_at_sentences, cut_evenly

if TYPE_CHECKING:
    from onnx import ModelProto

Exportable = TenerNER | Lac
METADATA_KEY = "tener"
# Version of the file format. Readers raise an error for files with a later version.
FORMAT = 1
_LIBRARIES = "onnx", "onnxruntime"
# First major version of the package onnx for which the export is not tested.
_FIRST_UNTESTED = "2"


def export_model(nlp: Language, name: str | None = None, *, half: bool = False) -> ModelProto:
    """Convert a component of a pipeline to an ONNX model.

    The inputs and outputs of the model are described in docs/browser-and-node.md.

    name (Optional[str]): Name of the component. Required if several components can be exported.
    half (bool): Whether to store embedding tables in float16.
    RETURNS (ModelProto): The model.
    """
    check_libraries()
    pipe = find_tagger(nlp, name)
    graph = Graph()
    codes = graph.input("codes", np.int32, "characters").to(np.int64)
    lengths = graph.input("lengths", np.int32, "texts").to(np.int64)
    about = json.dumps(describe(nlp, pipe), ensure_ascii=False)
    if isinstance(pipe, Lac):
        tags = graph.Unsqueeze(write_lac(graph, codes, lengths, pipe.tagger, pipe.labels), [0])
        probabilities = graph.full(np.float64(0), 1, graph.size(codes))
    else:
        tags, probabilities = write_tagger(graph, codes, lengths, nlp, pipe, half=half)
    outputs: dict[str, tuple[Value, Any, Sequence[Any]]] = {
        "tags": (tags.to(np.int32), np.int32, ["depth", "characters"]),
        "probabilities": (probabilities, np.float64, ["depth", "characters"]),
        "about": (graph.value(np.array([about], dtype=object)), str, [1]),
    }
    model = graph.model(outputs)
    model.metadata_props.add(key=METADATA_KEY, value=about)
    return model


def write_tagger(
    graph: Graph, codes: Value, lengths: Value, nlp: Language, pipe: TenerNER, *, half: bool
) -> tuple[Value, Value]:
    """Add a `tener_ner` component to an ONNX graph. Return the tags and entity probabilities at each nesting depth.

    The probability of an entity is stored at its last character. *Shape:* (depth, characters) each

    codes (Value): The concatenated texts as code points. *Shape:* (characters,)
    lengths (Value): Text lengths in characters. *Shape:* (texts,)
    """
    settings, labels, depth = pipe.settings, pipe.label_index, pipe.depth
    units = read_units(graph, codes, lengths, settings.view)
    starts = graph.starts(units.lengths)
    texts = starts, starts + units.lengths
    size, sentences = settings.prediction_window, settings.prediction_sentences
    is_end = sentence_ends(graph, units)
    windows = cut_at_sentences(graph, *texts, is_end, size=size, overlap=settings.context, sentences=sentences)
    write = LayerWriter(graph, codes, units, nlp, half=half).prepare(pipe.model)
    n_units = graph.size(units.starts)
    emissions = compute_in_batches(graph, windows, n_units, depth * labels.layout.n_tags, write)
    weights = [weight.astype(np.float64) for weight in crf_predictor(pipe.model).weights]
    # Viterbi uses the original transition scores, and probabilities are calibrated by the temperature.
    transitions, scaled = Transitions.of(*weights), Transitions.of(*(weight / pipe.temperature for weight in weights))
    neighbours = word_neighbours(graph, units)
    type_penalties, neighbour_penalties = (
        graph.value(np.where(possible, 0.0, -np.inf))
        for possible in (labels.tags_by_unit_type, labels.tags_by_neighbours)
    )

    def allow(slots: Value) -> Value:
        """Return the penalties of tags that the rules about words and white space forbid."""
        return type_penalties[units.unit_types[slots]] + neighbour_penalties[neighbours[slots]]

    def score(batch: WindowBatch, penalties: Value) -> tuple[Value, Value]:
        """Return the scores of the CRF's sequences, and their lengths. *Shape:* (longest, sequences, tags)

        Each nesting depth of a text is a separate sequence of the CRF. The sequences at depth 0 come first.

        penalties (Value): *Shape:* (windows, longest, depth or 1, tags)
        """
        scores = graph.Reshape(emissions[batch.indices].to(np.float64), [0, 0, depth, -1])
        scores = graph.Transpose(scores + penalties, perm=[1, 2, 0, 3])
        lengths = graph.Concat(*[batch.lengths] * depth, axis=0)
        return graph.Reshape(scores, [0, -1, labels.layout.n_tags]), lengths

    def find_best(scores: Value, lengths: Value) -> Value:
        """Return the best tags. *Shape:* (windows, longest, depth)"""
        tags = write_viterbi(graph, scores, lengths, transitions.start, transitions.end, transitions.table)
        return graph.Transpose(graph.Reshape(tags, [0, depth, -1]), perm=[0, 2, 1])

    whole_texts = Windows(*texts, *texts)
    words, all_labels = listed_words(nlp, pipe), file_labels(nlp, pipe)
    layout, fixed, fix = TagLayout(len(all_labels)), None, None
    if words.entries:
        fixed, is_gap = (part[units.starts] for part in write_listed(graph, codes, lengths, words, all_labels))
        listed = ListedTags(graph, fixed, is_gap, labels.layout, layout)
        fix = fix_tags(graph, listed)
        if depth > 1:

            def decode_without_list(batch: WindowBatch) -> Value:
                penalties = listed.exclude_blocked(batch.indices, allow(batch.indices))
                paths = find_best(*score(batch, graph.Unsqueeze(penalties, [2])))
                return graph.Transpose(paths.to(np.float64), perm=[1, 0, 2])

            best = compute_in_batches(graph, whole_texts, n_units, depth, decode_without_list, np.float64)
            own_tags = graph.Unsqueeze(graph.Min(listed.own_tags, labels.layout.n_tags - 1), [1])
            all_units = graph.Range(0, n_units, 1)
            own = graph.Squeeze(graph.GatherElements(allow(all_units), own_tags, axis=1), [1])
            fix = fix_nested_tags(graph, listed, own, best.to(np.int64), depth)

    def decode(batch: WindowBatch) -> Value:
        """Add the CRF for a batch of texts. Return the best tags, and the terms a and b of `crf_graph.py`."""
        penalties = allow(batch.indices)
        penalties = fix(batch.indices, penalties) if fix else graph.Unsqueeze(penalties, [2])
        scores, lengths = score(batch, penalties)
        paths = find_best(scores, lengths)
        paths_by_depth = graph.Concat(*[paths] * depth, axis=1)
        columns = [graph.Transpose(paths.to(np.float64), perm=[1, 0, 2])]
        for values in write_forward_backward(graph, scores / pipe.temperature, paths_by_depth, lengths, scaled):
            values = graph.Transpose(graph.Reshape(values, [0, depth, -1, depth]), perm=[2, 0, 3, 1])
            columns.append(graph.Reshape(values, [0, 0, -1]))
        return graph.Concat(*columns, axis=2)

    sizes = [depth, depth**2, depth**2]
    columns = compute_in_batches(graph, whole_texts, n_units, sum(sizes), decode, np.float64)
    tags, a, b = graph.add("Split", columns, sizes, axis=1, outputs=3)
    tags = graph.Transpose(tags.to(np.int64))
    probabilities = write_probabilities(graph, tags, a, b, labels.layout, depth)
    if fixed:
        # Entities in the list have the probability 1. At depth 0 of a nested model, there may be an entity around them.
        # Therefore, they get a tag sequence of their own.
        tags, is_fixed = graph.value(labels.layout.within(layout))[tags], graph.Unsqueeze(fixed > NO_WORD, [0])
        fixed = graph.Unsqueeze(fixed, [0])
        if depth == 1:
            tags, probabilities = graph.Where(is_fixed, fixed, tags), graph.Where(is_fixed, 1.0, probabilities)
        else:
            tags = graph.Concat(tags, graph.Where(is_fixed, fixed, layout.outside), axis=0)
            probabilities = graph.Concat(probabilities, is_fixed.to(np.float64), axis=0)
    tags, probabilities = (graph.Gather(part, units.unit_of_character, axis=1) for part in (tags, probabilities))
    return graph.Where(units.is_first, tags, graph.value(_inner_tags(layout))[tags]), probabilities


def _inner_tags(layout: TagLayout) -> IntArray:
    """Return the tags of the other characters in a unit, given the tag of its first character. *Shape:* (tags,)

    A unit is a token or character. Only white space tokens have several characters.
    """
    tags = np.full(layout.n_tags, layout.outside, dtype=np.int64)
    tags[layout.begin] = tags[layout.inside] = range(layout.inside.start, layout.inside.stop)
    return tags


def describe(nlp: Language, pipe: Exportable) -> dict[str, Any]:
    """Return the metadata of an exported file as JSON types, without local paths."""
    labels, pipeline = file_labels(nlp, pipe), describe_component(nlp, pipe.name, pipe.settings.view)
    content = pipe.model.to_bytes() if isinstance(pipe, TenerNER) else pipe.to_bytes()
    entries, encoders = listed_words(nlp, pipe).entries, nlp.meta.get("encoders", [])
    if entries:
        content += json.dumps([(word, entry.tag) for word, entry in entries.items()]).encode()
    return {
        "format": FORMAT,
        "tags": TagLayout(len(labels)).names(labels),
        "labels": list(labels),
        # Labels that occur in the entity list only have no threshold, since their entities have the probability 1.
        "thresholds": dict(zip(pipe.labels, pipe.settings.thresholds(pipe.labels), strict=True)),
        "probabilities": isinstance(pipe, TenerNER),
        # The number of tag sequences. If entities can be nested, entities of the list have one of their own.
        "depth": pipe.depth + (pipe.depth > 1 and bool(entries)) if isinstance(pipe, TenerNER) else 1,
        "pipeline": {**pipeline, "name": Path(pipeline["name"]).name},
        "spacy_tener": __version__,
        "digest": f"sha256:{sha256(content).hexdigest()}",
        **{name: str(nlp.meta.get(name) or "") for name in ("license", "author", "url")},
        "encoders": encoders,
        "sources": [source for source in nlp.meta.get("sources") or [] if source not in map(source_of, encoders)],
    }


def listed_words(nlp: Language, pipe: object) -> WordList:
    """Return the entity list that is exported with a component: the unnamed list of the first `entity_lists` before it.

    The unnamed list applies to all texts. Named lists, which apply to selected Docs only, are not exported.
    """
    lists = entity_lists(nlp)
    found = [lists[name].lists.lists.get("") for name in components_before(nlp, pipe) if name in lists]
    return next((words for words in found if words and words.entries), WordList())


def file_labels(nlp: Language, pipe: Exportable) -> tuple[str, ...]:
    """Return the labels of an exported file: the labels of the component, and additional labels in the entity list."""
    listed = {entry.tag for entry in listed_words(nlp, pipe).entries.values() if entry.tag}
    return (*pipe.labels, *sorted(listed.difference(pipe.labels)))


def find_tagger(nlp: Language, name: str | None = None) -> Exportable:
    """Return the component to export.

    Raise an error if the pipeline has no such component, or if the component requires input that cannot be exported.
    Examples are word tokens and the entities that another component sets.

    name (Optional[str]): Name of the component. Required if several components can be exported.
    """
    found = {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, Exportable)}
    if name is None and found:
        name, *others = found
        if others:
            fix = f"Choose a component with --component: {', '.join(found)}."
            raise UserError(f"The pipeline has {len(found)} components to export", fix)
    pipe = found[name] if name is not None and name in found else find_crf_pipe(nlp, name)
    bounds = {"doc.ents"}
    if isinstance(pipe, TenerNER):
        _check_input(nlp, pipe)
        bounds |= {"doc.sents", "token.is_sent_start"}
    _check_lists(nlp, pipe)
    for other in components_before(nlp, pipe):
        if other in entity_lists(nlp):
            continue
        assigned = bounds & set(nlp.get_pipe_meta(other).assigns)
        if assigned:
            annotation = "entities" if "doc.ents" in assigned else "sentences"
            raise UserError(
                f"'{pipe.name}' depends on the {annotation} of '{other}', which cannot be exported",
                f"Remove this component with nlp.remove_pipe('{other}'), and save the pipeline.",
            )
    return pipe


def _check_lists(nlp: Language, pipe: Exportable) -> None:
    """Raise an error if the pipeline has an entity list or a lexicon that cannot be exported.

    Named lists are ignored, because they only apply to Docs that opt in.
    """
    lists = {name: found.lists.lists.get("", WordList()).entries for name, found in entity_lists(nlp).items()}
    full = [name for name, entries in lists.items() if entries]
    for name in full:
        removed = f"the words with nlp.get_pipe('{name}').clear(), and save the pipeline."
        fix = f"Remove {removed}"
        if isinstance(pipe, Lac):
            reason = f"cannot be exported with the LAC component '{pipe.name}'"
        elif not _has_character_tokens(nlp):
            reason = "can only be exported if the tokenizer splits texts into characters"
        elif name != full[0] or name not in components_before(nlp, pipe):
            reason = (
                "cannot be exported, because the export supports only one entity list with words, and this list must "
                f"come before '{pipe.name}' in the pipeline"
            )
            # The first list with words has passed this check, unless it is this list.
            other = f"the entity list '{full[0]}'" if name != full[0] else f"an entity list before '{pipe.name}'"
            fix = f"Move the words to {other}, or remove {removed}"
        else:
            continue
        raise UserError(f"The words in the entity list '{name}' {reason}", fix)
    if isinstance(pipe, Lac) and any(words.entries for words in pipe.words.lists.lists.values()):
        raise UserError(
            f"'{pipe.name}' has a lexicon, which cannot be exported",
            f"Empty the lexicon with nlp.get_pipe('{pipe.name}').lexicon.clear(), and save the pipeline.",
        )


def _check_input(nlp: Language, pipe: TenerNER) -> None:
    """Raise an error if a component has no labels, or if it tags the tokens of a word tokenizer."""
    if not pipe.labels:
        raise UserError(f"'{pipe.name}' has no labels", "Train the component first.")
    if pipe.settings.view == "tokens" and not _has_character_tokens(nlp):
        raise UserError(f"'{pipe.name}' uses words as tokens, and the tokenizer cannot be exported", DISTIL_FIX)


def _has_character_tokens(nlp: Language) -> bool:
    """Return whether the pipeline's tokenizer splits texts into characters."""
    return isinstance(nlp.tokenizer, ChineseTokenizer) and nlp.tokenizer.segmenter == Segmenter.char


def check_libraries() -> None:
    """Raise an error if a required package is missing, or if its version is not supported."""
    for package in _LIBRARIES:
        check_package(package, "Exporting a pipeline requires", f"Install it with `{install(*_LIBRARIES)}`.")
    import onnx

    if Version(onnx.__version__) >= Version(_FIRST_UNTESTED):
        raise UserError(
            f"onnx {onnx.__version__} is not supported",
            f"Install an older version with `pip install 'onnx<{_FIRST_UNTESTED}'`.",
        )


def write_lac(graph: Graph, codes: Value, lengths: Value, tagger: LacTagger, labels: Sequence[str]) -> Value:
    """Add a `lac` component to an ONNX graph. Return the tag of each character. *Shape:* (characters,)

    The nodes segment lines as `LacTagger` does, and remove white space from words as `pipeline.lac.trim_words` does.

    codes (Value): The concatenated texts as code points. *Shape:* (characters,)
    lengths (Value): Text lengths in characters. *Shape:* (texts,)
    labels (Sequence[str]): The component's labels, a selection of LAC's labels.
    """
    size = graph.size(codes)
    is_break = graph.lookup(codes, dict.fromkeys(BREAKS.tolist(), 1), 0) > 0
    opens = (graph.count_indices(graph.starts(lengths), size) > 0) | graph.shift_right(is_break, False)
    begins = graph.where_true(opens)
    stops = graph.Concat(begins, graph.shape(size), axis=0)[1:]
    ends = stops - is_break[stops - 1].to(np.int64)
    # A letter after another letter continues a Latin word, unless it starts a new line or a new text.
    joined = joined_letters(graph, codes) & ~opens
    tags = _tags_of_lines(graph, codes, Windows(begins, ends, begins, ends), joined.to(np.int64), tagger)
    # Words begin at LAC's B tags and at line boundaries. The label of a word is the label of its first character.
    is_first = opens | is_break | graph.Equal(graph.Mod(tags, 2), 0)
    words = graph.CumSum(is_first.to(np.int64), 0) - 1
    n_labels = len(labels)
    label_of_tag = [labels.index(label) if label in labels else n_labels for label in tagger.labels for _ in "BI"]
    found = graph.Where(is_break, n_labels, graph.value(np.array(label_of_tag))[tags])
    found = found[graph.where_true(is_first)][words]
    # Entities begin and end with characters of type `TEXT`, so white space is removed from both ends of a word.
    inner = graph.where_true(graph.Equal(read_unit_types(graph, codes), TEXT))
    word_of_inner = words[inner]
    neighbours = graph.shift_right(word_of_inner, -1), graph.Concat(word_of_inner[1:], [-1], axis=0)
    first, last = (
        graph.count_indices(inner[graph.where_true(~graph.Equal(word_of_inner, neighbour))], size)
        for neighbour in neighbours
    )
    is_within = graph.CumSum(first, 0) - graph.CumSum(last, 0) + last > 0
    tag_of = _tags_by_position(TagLayout(n_labels))
    tags = graph.value(tag_of.ravel())[(first + last * 2) * (n_labels + 1) + found]
    return graph.Where(is_within, tags, tag_of[0, -1])


def _tags_of_lines(graph: Graph, codes: Value, lines: Windows, joined: Value, tagger: LacTagger) -> Value:
    """Add LAC's encoder and CRF to an ONNX graph. Return the tag of each character. *Shape:* (characters,)

    The tags are LAC's tags, which are B or I of a label.

    lines (Windows): The start and end of each line.
    joined (Value): 1 for characters that continue a Latin word, otherwise 0. *Shape:* (characters,)
    """
    encoder, transitions = tagger.encoder, tagger.transitions.astype(np.float64)
    n_tags, size = len(transitions), graph.size(codes)
    write_encoder = prepare_encoder(graph, encoder, codes)
    windows = cut_evenly(graph, lines.starts, lines.ends, size=encoder.window, overlap=encoder.overlap)
    scores = compute_in_batches(
        graph, windows, size, n_tags, lambda batch: graph.slice(write_encoder(batch), 0, n_tags, axis=2)
    )

    begins_word = np.arange(n_tags) % 2 == 0
    penalties = graph.value(np.outer([0, 1], np.where(begins_word, FORBIDDEN, 0)).astype(np.float32))

    def decode(batch: WindowBatch) -> Value:
        steps = (scores[batch.indices] + penalties[joined[batch.indices]]).to(np.float64)
        steps = graph.Transpose(steps, perm=[1, 0, 2])
        tags = write_viterbi(graph, steps, batch.lengths, np.zeros(n_tags), np.zeros(n_tags), transitions)
        return graph.Unsqueeze(graph.Transpose(tags), [2])

    columns = compute_in_batches(graph, lines, size, 1, decode, np.int64)
    return graph.Squeeze(columns, [1])


def _tags_by_position(layout: TagLayout) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return a lookup table of the BIOES tags for each position in a word and each label.

    The rows are the positions: inside, first, last and single character. The last column contains the tag O.

    *Shape:* (4, labels + 1)
    """
    blocks = (layout.inside, layout.begin, layout.end, layout.single)
    return np.array([[*range(block.start, block.stop), layout.outside] for block in blocks])
