r"""Compare lexicons: the number of matches in a corpus, how many of these words have embeddings, and the speed.

    python research/benchmarks/lexicons.py jieba=RUNS/weibo/flat/1/model-best \
        joined=RUNS/weibo/flat+lexicon-joined/1/model-best --corpus weibo --data DATA

The arguments are pipelines with a lexicon that were trained on the same corpus. Matches are counted on the test set,
with the model's maximum number of words per character. Scores of such runs can be collected with `runs.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import _report
import spacy
from spacy.language import Language
from spacy.tokens import Doc
from spacy.training import Corpus
from speed import measure_pipe

from spacy_tener.embedders.lexicon_embed import WORD, LexiconVocabulary
from spacy_tener.features.tokens import TokenBatch

NOTE = (
    "Test part, {texts} texts, {chars} characters. Words with a row: found words that the model tells apart, since "
    "training showed them or they had a vector; the others share one row. Entities that are words: gold entities whose "
    "characters are exactly one word of the lexicon. Speed: `nlp.pipe` from raw text, batches of {batch_size}, one "
    "thread, the pipelines take turns within each of {rounds} rounds; medians, the range in brackets, and the ratio to "
    "the first row: above 1 is faster."
)
HEADER = ("lexicon", "words", "found per 100 characters", "of these with a row, %", "entities that are words, %")
HEADER_SPEED = ("chars/s", "ratio")


def main() -> None:
    args = _report.parse_pipelines(_report.pipelines_parser(__doc__), "lexicons")
    pipelines = {name: spacy.load(path) for name, path in _report.named_paths(args.pipelines).items()}
    examples = list(Corpus(args.data / args.corpus / "test.spacy")(next(iter(pipelines.values()))))
    docs = [example.reference for example in examples]
    texts = [doc.text for doc in docs]
    speed = measure_pipe(pipelines, texts, args.batch_size, args.rounds)
    first = next(iter(pipelines))
    rows = [[name, *cells(nlp, docs), *speed.cells(name, first)] for name, nlp in pipelines.items()]
    note = NOTE.format(**vars(args), texts=len(texts), chars=sum(map(len, texts)))
    _report.write(args.out, f"Lexicons: {args.corpus}", note, _report.table([*HEADER, *HEADER_SPEED], rows))


def cells(nlp: Language, docs: Sequence[Doc]) -> list[str]:
    vocabulary = vocabulary_of(nlp)
    fresh = [nlp.make_doc(doc.text) for doc in docs]
    match = vocabulary.match(TokenBatch.of(fresh))
    with_row = (vocabulary.tables[WORD].rows(vocabulary.keys(match.words)[WORD]) > 0).mean()
    entities = [entity.text for doc in docs for entity in doc.ents]
    words = sum(entity in vocabulary.lexicon for entity in entities) / len(entities)
    density = len(match.words) / sum(map(len, fresh))
    return [f"{len(vocabulary.lexicon):,}", *(f"{100 * share:.1f}" for share in (density, with_row, words))]


def vocabulary_of(nlp: Language) -> LexiconVocabulary:
    component: Any = nlp.get_pipe("tener_ner")
    found = (node.attrs.get("vocabulary") for node in component.model.walk())
    return next(vocabulary for vocabulary in found if isinstance(vocabulary, LexiconVocabulary))


if __name__ == "__main__":
    main()
