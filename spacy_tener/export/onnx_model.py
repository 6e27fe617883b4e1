"""A trained pipeline as one ONNX file, from the code points of texts to entities and their probabilities."""

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
from ..architectures.tagger import crf_scorer
from ..crf.transitions import Transitions
from ..errors import RemedyError, check_package, install
from ..features.word_lists import WordList
from ..nn.graph import Graph, Value
from ..onnx.lac_tagger import BREAKS, FORBIDDEN, LacTagger
from ..pipeline.finding import components_before, describe_component, entity_lists, find_crf_pipe
from ..pipeline.lac import Lac
from ..pipeline.tener_ner import TenerNER
from ..pipeline.units import TEXT
from ..tagging import TagLayout
from ..types import IntArray
from .code_points import joined_letters, read_kinds, read_units, sentence_ends, word_neighbours
from .crf_graph import write_forward_backward, write_probabilities, write_viterbi
from .layers import WAY_OUT, LayerWriter, prepare_encoder
from .lists_graph import NO_WORD, fix_tags, write_listed
from .window_batches import WindowBatch, Windows, compute_in_batches, cut_at_sentences, cut_evenly

if TYPE_CHECKING:
    from onnx import ModelProto

Exportable = TenerNER | Lac
METADATA_KEY = "tener"
FORMAT = 1
"""Version of the inputs, outputs and metadata. A reader refuses a larger one."""
_LIBRARIES = "onnx", "onnxruntime"
_FIRST_UNKNOWN = "2"
"""The first version of onnx that may have other functions."""


def export_model(nlp: Language, name: str | None = None, *, half: bool = False) -> ModelProto:
    """Return a component of a pipeline as an ONNX file; docs/elsewhere.md describes its inputs and outputs.

    name (Optional[str]): The component's name; None for the only one that can be exported.
    half (bool): Store rows of tables in float16.
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
    """Write a `tener_ner`. Returns the tags of each path, and the probability of the entity that ends at a character.

    *Shape:* (depth, characters) each

    codes (Value): Code points of all texts, joined. *Shape:* (characters,)
    lengths (Value): Characters of each text. *Shape:* (texts,)
    """
    settings, labels, depth = pipe.settings, pipe.label_index, pipe.depth
    units = read_units(graph, codes, lengths, settings.view)
    starts = graph.starts(units.lengths)
    texts = starts, starts + units.lengths
    size, sentences = settings.reading_window, settings.reading_sentences
    is_end = sentence_ends(graph, units)
    windows = cut_at_sentences(graph, *texts, is_end, size=size, overlap=settings.context, sentences=sentences)
    write = LayerWriter(graph, codes, units, nlp, half=half).prepare(pipe.model)
    n_units = graph.size(units.firsts)
    emissions = compute_in_batches(graph, windows, n_units, depth * labels.layout.n_tags, write)
    weights = [weight.astype(np.float64) for weight in crf_scorer(pipe.model).weights]
    transitions, scaled = Transitions.of(*weights), Transitions.of(*(weight / pipe.temperature for weight in weights))
    neighbours = word_neighbours(graph, units)
    of_kinds, of_neighbours = (
        graph.value(np.where(possible, 0.0, -np.inf)) for possible in (labels.possible, labels.whole_words)
    )

    words, all_labels = listed_words(nlp, pipe), file_labels(nlp, pipe)
    layout, fixed, fix = TagLayout(len(all_labels)), None, None
    if words.entries:
        fixed, is_gap = (part[units.firsts] for part in write_listed(graph, codes, lengths, words, all_labels))
        fix = fix_tags(graph, fixed, is_gap, labels.layout, layout, depth)

    def decode(batch: WindowBatch) -> Value:
        """Write the tags of each path, and a and b of each path by each depth's probabilities."""
        penalties = of_kinds[units.kinds[batch.slots]] + of_neighbours[neighbours[batch.slots]]
        penalties = fix(batch.slots, penalties) if fix else graph.Unsqueeze(penalties, [2])
        scores = graph.Reshape(emissions[batch.slots].to(np.float64), [0, 0, depth, -1])
        # A sequence for each depth: those of all texts at the first depth come first.
        scores = graph.Transpose(scores + penalties, perm=[1, 2, 0, 3])
        scores = graph.Reshape(scores, [0, -1, labels.layout.n_tags])
        lengths = graph.Concat(*[batch.lengths] * depth, axis=0)
        tags = write_viterbi(graph, scores, lengths, transitions.start, transitions.end, transitions.table)
        paths = graph.Transpose(graph.Reshape(tags, [0, depth, -1]), perm=[0, 2, 1])
        paths_by_depth = graph.Concat(*[paths] * depth, axis=1)
        columns = [graph.Transpose(paths.to(np.float64), perm=[1, 0, 2])]
        for values in write_forward_backward(graph, scores / pipe.temperature, paths_by_depth, lengths, scaled):
            values = graph.Transpose(graph.Reshape(values, [0, depth, -1, depth]), perm=[2, 0, 3, 1])
            columns.append(graph.Reshape(values, [0, 0, -1]))
        return graph.Concat(*columns, axis=2)

    sizes = [depth, depth**2, depth**2]
    columns = compute_in_batches(graph, Windows(*texts, *texts), n_units, sum(sizes), decode, np.float64)
    tags, a, b = graph.add("Split", columns, sizes, axis=1, outputs=3)
    tags = graph.Transpose(tags.to(np.int64))
    probabilities = write_probabilities(graph, tags, a, b, labels.layout, depth)
    if fixed:  # The first path has the words of the list, which are certain.
        tags, is_fixed = graph.value(labels.layout.within(layout))[tags], fixed > NO_WORD
        outer = graph.Where(is_fixed, fixed, tags[:1]), graph.Where(is_fixed, 1.0, probabilities[:1])
        tags, probabilities = (
            graph.Concat(part, inner[1:], axis=0) for part, inner in zip(outer, (tags, probabilities), strict=True)
        )
    tags, probabilities = (graph.Gather(part, units.owners, axis=1) for part in (tags, probabilities))
    return graph.Where(units.is_first, tags, graph.value(_inner_tags(layout))[tags]), probabilities


def _inner_tags(layout: TagLayout) -> IntArray:
    """Return the tag of a character behind the first one of a unit, by the unit's tag. *Shape:* (tags,)"""
    tags = np.full(layout.n_tags, layout.outside, dtype=np.int64)
    tags[layout.begin] = tags[layout.inside] = range(layout.inside.start, layout.inside.stop)
    return tags


def describe(nlp: Language, pipe: Exportable) -> dict[str, Any]:
    """Return what the file says of itself, as JSON values. No path of this machine is in it."""
    labels, pipeline = file_labels(nlp, pipe), describe_component(nlp, pipe.name, pipe.settings.view)
    content = pipe.model.to_bytes() if isinstance(pipe, TenerNER) else pipe.to_bytes()
    entries = listed_words(nlp, pipe).entries
    if entries:
        content += json.dumps([(word, entry.tag) for word, entry in entries.items()]).encode()
    return {
        "format": FORMAT,
        "tags": TagLayout(len(labels)).names(labels),
        "labels": list(labels),
        # Listed words are certain: labels that they alone have need no threshold.
        "thresholds": dict(zip(pipe.labels, pipe.settings.thresholds(pipe.labels), strict=True)),
        "probabilities": isinstance(pipe, TenerNER),
        "depth": pipe.depth if isinstance(pipe, TenerNER) else 1,
        "pipeline": {**pipeline, "name": Path(pipeline["name"]).name},
        "spacy_tener": __version__,
        "digest": f"sha256:{sha256(content).hexdigest()}",
        **{name: str(nlp.meta.get(name) or "") for name in ("license", "author", "url")},
        **{name: nlp.meta.get(name, []) for name in ("encoders", "sources")},
    }


def listed_words(nlp: Language, pipe: object) -> WordList:
    """Return the words that are entities in all texts, or none, of the `entity_lists` before a component."""
    lists = entity_lists(nlp)
    found = [lists[name].lists.lists.get("") for name in components_before(nlp, pipe) if name in lists]
    return next((words for words in found if words and words.entries), WordList())


def file_labels(nlp: Language, pipe: Exportable) -> tuple[str, ...]:
    """Return a component's labels, and behind them those that listed words have beside these."""
    listed = {entry.tag for entry in listed_words(nlp, pipe).entries.values() if entry.tag}
    return (*pipe.labels, *sorted(listed.difference(pipe.labels)))


def find_tagger(nlp: Language, name: str | None = None) -> Exportable:
    """Return the component to export; raise if there is none, more than one, or one that reads more than characters.

    name (Optional[str]): The component's name; None for the only one.
    """
    found = {name: pipe for name, pipe in nlp.pipeline if isinstance(pipe, Exportable)}
    if name is None and found:
        name, *others = found
        if others:
            remedy = f"Choose one by --component: {', '.join(found)}."
            raise RemedyError(f"The pipeline has {len(found)} components to export", remedy)
    pipe = found[name] if name is not None and name in found else find_crf_pipe(nlp, name)
    bounds = {"doc.ents"}
    if isinstance(pipe, TenerNER):
        _check_reading(nlp, pipe)
        bounds |= {"doc.sents", "token.is_sent_start"}
    _check_lists(nlp, pipe)
    for other in components_before(nlp, pipe):
        if other in entity_lists(nlp):
            continue
        assigned = bounds & set(nlp.get_pipe_meta(other).assigns)
        if assigned:
            what = "entities" if "doc.ents" in assigned else "sentences"
            raise RemedyError(
                f"'{pipe.name}' keeps to the {what} of '{other}', which cannot be exported",
                f"Remove that component, by nlp.remove_pipe('{other}'), and save the pipeline.",
            )
    return pipe


def _check_lists(nlp: Language, pipe: Exportable) -> None:
    """Raise if a list has words of all texts that a file cannot hold. None asks for the words of a list by its name."""
    lists = {name: found.lists.lists.get("", WordList()).entries for name, found in entity_lists(nlp).items()}
    full = [name for name, entries in lists.items() if entries]
    for name in full:
        if isinstance(pipe, Lac):
            reason, remedy = f"a file of '{pipe.name}' cannot hold", "Empty it"
        elif not _reads_characters(nlp):
            reason, remedy = "a file finds only where each character is a token", "Empty it"
        elif name != full[0] or name not in components_before(nlp, pipe):
            reason, remedy = f"a file finds only in one list before '{pipe.name}'", "Move them there. Or empty it"
        else:
            continue
        remedy += f", by nlp.get_pipe('{name}').clear(), and save the pipeline."
        raise RemedyError(f"'{name}' has words, which {reason}", remedy)
    if isinstance(pipe, Lac) and any(words.entries for words in pipe.words.lists.lists.values()):
        raise RemedyError(
            f"'{pipe.name}' has lists of words, which cannot be exported",
            f"Empty them, by nlp.get_pipe('{pipe.name}').lexicon.clear(), and save the pipeline.",
        )


def _check_reading(nlp: Language, pipe: TenerNER) -> None:
    """Raise if a component is not trained, or reads words."""
    if not pipe.labels:
        raise RemedyError(f"'{pipe.name}' has no labels", "Train it first.")
    if pipe.settings.view == "tokens" and not _reads_characters(nlp):
        raise RemedyError(f"'{pipe.name}' reads words of spaCy's tokenizer, which cannot be exported", WAY_OUT)


def _reads_characters(nlp: Language) -> bool:
    """Return whether each character is a token."""
    return isinstance(nlp.tokenizer, ChineseTokenizer) and nlp.tokenizer.segmenter == Segmenter.char


def check_libraries() -> None:
    """Raise if a package that an export needs is missing, or newer than this one knows."""
    for package in _LIBRARIES:
        check_package(package, "To export a pipeline takes", f"Install it by `{install(*_LIBRARIES)}`.")
    import onnx

    if Version(onnx.__version__) >= Version(_FIRST_UNKNOWN):
        raise RemedyError(
            f"onnx {onnx.__version__} is newer than this package knows",
            f"Install an older one by `pip install 'onnx<{_FIRST_UNKNOWN}'`.",
        )


def write_lac(graph: Graph, codes: Value, lengths: Value, tagger: LacTagger, labels: Sequence[str]) -> Value:
    """Write a `lac`, as `LacTagger.divide` and `trim_words` compute it. Returns the tag of each character.

    *Shape:* (characters,)

    codes (Value): Code points of all texts, joined. *Shape:* (characters,)
    lengths (Value): Characters of each text. *Shape:* (texts,)
    """
    size = graph.size(codes)
    is_break = graph.lookup(codes, dict.fromkeys(BREAKS.tolist(), 1), 0) > 0
    opens = (graph.marks(graph.starts(lengths), size) > 0) | graph.shifted(is_break, False)
    begins = graph.where_true(opens)
    stops = graph.Concat(begins, graph.shape(size), axis=0)[1:]
    ends = stops - is_break[stops - 1].to(np.int64)
    # No word begins within a Latin word. A text may begin behind one of another text.
    joined = joined_letters(graph, codes) & ~opens
    tags = _tags_of_lines(graph, codes, Windows(begins, ends, begins, ends), joined.to(np.int64), tagger)
    # A word begins where LAC says so, and at the edges of lines. It has the label of its first character.
    is_first = opens | is_break | graph.Equal(graph.Mod(tags, 2), 0)
    words = graph.CumSum(is_first.to(np.int64), 0) - 1
    n_labels = len(labels)
    label_of_tag = [labels.index(label) if label in labels else n_labels for label in tagger.labels for _ in "BI"]
    found = graph.Where(is_break, n_labels, graph.value(np.array(label_of_tag))[tags])
    found = found[graph.where_true(is_first)][words]
    # Its edges are characters of text.
    inner = graph.where_true(graph.Equal(read_kinds(graph, codes), TEXT))
    owners = words[inner]
    neighbours = graph.shifted(owners, -1), graph.Concat(owners[1:], [-1], axis=0)
    first, last = (
        graph.marks(inner[graph.where_true(~graph.Equal(owners, neighbour))], size) for neighbour in neighbours
    )
    is_within = graph.CumSum(first, 0) - graph.CumSum(last, 0) + last > 0
    tag_of = _tags_by_position(TagLayout(n_labels))
    tags = graph.value(tag_of.ravel())[(first + last * 2) * (n_labels + 1) + found]
    return graph.Where(is_within, tags, tag_of[0, -1])


def _tags_of_lines(graph: Graph, codes: Value, lines: Windows, joined: Value, tagger: LacTagger) -> Value:
    """Return LAC's tag of each character, B or I of a label. *Shape:* (characters,)

    joined (Value): 1 where no word begins. *Shape:* (characters,)
    """
    encoder, transitions = tagger.encoder, tagger.transitions.astype(np.float64)
    n_tags, size = len(transitions), graph.size(codes)
    write_encoder = prepare_encoder(graph, encoder, codes)
    windows = cut_evenly(graph, lines.begins, lines.ends, size=encoder.window, overlap=encoder.overlap)
    scores = compute_in_batches(
        graph, windows, size, n_tags, lambda batch: graph.slice(write_encoder(batch), 0, n_tags, axis=2)
    )

    begins_word = np.arange(n_tags) % 2 == 0
    penalties = graph.value(np.outer([0, 1], np.where(begins_word, FORBIDDEN, 0)).astype(np.float32))

    def decode(batch: WindowBatch) -> Value:
        steps = (scores[batch.slots] + penalties[joined[batch.slots]]).to(np.float64)
        steps = graph.Transpose(steps, perm=[1, 0, 2])
        tags = write_viterbi(graph, steps, batch.lengths, np.zeros(n_tags), np.zeros(n_tags), transitions)
        return graph.Unsqueeze(graph.Transpose(tags), [2])

    columns = compute_in_batches(graph, lines, size, 1, decode, np.int64)
    return graph.Squeeze(columns, [1])


def _tags_by_position(layout: TagLayout) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Return tags by position (inside, first, last, both) and label; O for no label. *Shape:* (4, labels + 1)"""
    blocks = (layout.inside, layout.begin, layout.end, layout.single)
    return np.array([[*range(block.start, block.stop), layout.outside] for block in blocks])
