"""Tests of the corpora of names: files of each source, the mapping of labels, and the restored text."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import srsly

from research.names_corpora import (
    CORPORA,
    LABELS,
    SOURCES,
    derive_corpora,
    format_sentence,
    read_columns,
    read_klue,
    read_norne,
    read_ronec,
    read_stockmark,
    space_tokens,
)
from spacy_tener.corpora.annotation import Sentence
from spacy_tener.errors import UserError

ROOT = Path(__file__).parents[2]
GERMEVAL = """#\thttp://de.wikipedia.org/wiki/Muck\t[2009-10-18]\t
1\tMuck\tB-PER\tO
2\taus\tO\tO
3\tBerlin\tB-LOC\tO
4\tsah\tO\tO
5\tdeutsche\tB-LOCderiv\tO
6\tFilme\tO\tO
7\t.\tO\tO

#\thttp://de.wikipedia.org/wiki/Eins\t[2009-10-23]\t
#\thttp://de.wikipedia.org/wiki/Zwei\t[2009-10-23]\t
1\tFC\tB-ORG\tO
2\tBerlin\tI-ORG\tB-LOC

"""
TURKU = "-DOCSTART-\tO\n\n#\tO\nH&M:n\tB-ORG\nThe\tB-PRO\nGarden\tI-PRO\n\nHelsinki\tB-LOC\n"
WIKIGOLD = "# O\n2 O\nJapanese I-MISC\nMad I-ORG\nCapsule I-ORG\nPaul I-PER\n\n"
NERKOR = """# global.columns = FORM LEMMA UPOS XPOS FEATS CONLL:NER EMMORPH:LEMMA
A\ta\tDET\t[/Det]\tDefinite=Def\tO\ta
Global\tGlobal\tPROPN\t[/N]\tCase=Nom\tB-ORG\tGlobal
Voices-t\tVoices\tPROPN\t[/N]\tCase=Acc\tI-ORG\tVoices
.\t.\tPUNCT\t[Punct]\t_\tO\t.

"""
UNER = """# sent_id = 1
# text = "Eva," povedala.
1\t"\tO\t-\tann
2\tEva\tB-PER\t-\tann
3\t,\tO\t-\tann
4\t"\tO\t-\tann
5\tpovedala\tB-OTH\t-\tann
6\t.\tO\t-\tann

"""
NORNE = """# sent_id =  015697
# text = «Oslo» er i Norge.
1\t«\t$"\tPUNCT\t_\t_\t2\tpunct\t_\tSpaceAfter=No|name=O
2\tOslo\tOslo\tPROPN\t_\t_\t0\troot\t_\tSpaceAfter=No|name=B-GPE_ORG
3\t»\t$"\tPUNCT\t_\t_\t2\tpunct\t_\tname=O
4\ter\tvære\tAUX\t_\t_\t2\tcop\t_\tname=O
5\ti\ti\tADP\t_\t_\t6\tcase\t_\tname=O
6\tNorge\tNorge\tPROPN\t_\t_\t2\tnmod\t_\tname=B-GPE_LOC|SpaceAfter=No
7\t.\t$.\tPUNCT\t_\t_\t2\tpunct\t_\tname=O

"""
# The treebank of NorNE's training set has neither comments nor `SpaceAfter`.
TREEBANK = """1\tMette\tMette\tsubst\tsubst\tprop\t0\tFRAG\t_\tname=B-PER
2\tMarit\tMarit\tsubst\tsubst\tprop\t1\tFLAT\t_\tname=I-PER
3\t|\t$|\tclb\tclb\t<overskrift>\t1\tIP\t_\tname=O

"""
KLUE = """## 컬럼명 : CHAR\tNE_TAG
## klue-ner-v1_dev_00000-wikitree\t<서울:LC> 간 <박:PS>씨
서\tB-LC
울\tI-LC
 \tO
간\tO
 \tO
박\tB-PS
씨\tO

## klue-ner-v1_dev_00001-nsmc\t끝\x20
끝\tO
 \tO

"""
RONEC = [
    {
        "id": 1,
        "ner_tags": ["B-PERSON", "O", "B-FACILITY", "B-NUMERIC", "O"],
        "ner_ids": [1, 0, 7, 25, 0],
        "tokens": ["Ana", "la", "Arenă", "3", "."],
        "space_after": [True, True, True, False, False],
    }
]
STOCKMARK = [
    {
        "curid": "1",
        "text": "NHK は東京",
        "entities": [
            {"name": "NHK", "span": [0, 3], "type": "法人名"},
            {"name": "NHK は", "span": [0, 5], "type": "製品名"},
            {"name": "東京", "span": [5, 7], "type": "地名"},
        ],
    }
]


def names(sentences: list[Sentence]) -> list[tuple[str, list[str]]]:
    """Return the text of each sentence, and its entities with their labels."""
    found = []
    for sentence in sentences:
        text, *rows = format_sentence(sentence).rstrip("\n").split("\n")
        entities: list[str] = []
        for _, token, tag in (row.split("\t") for row in rows):
            if tag.startswith("B-"):
                entities.append(f"{tag[2:]} {token}")
            elif tag.startswith("I-"):
                entities[-1] += f" {token}"
        found.append((text.removeprefix("# text = "), entities))
    return found


def columns(token: int, tag: int) -> Callable[[Path], list[Sentence]]:
    return lambda path: read_columns(path, token, tag)


@pytest.mark.parametrize(
    ("content", "read", "expected"),
    [
        (
            GERMEVAL,
            columns(2, 3),
            [("Muck aus Berlin sah deutsche Filme.", ["PER Muck", "LOC Berlin"]), ("FC Berlin", ["ORG FC Berlin"])],
        ),
        (TURKU, columns(1, 2), [("# H&M:n The Garden", ["ORG H&M:n"]), ("Helsinki", ["LOC Helsinki"])]),
        (WIKIGOLD, columns(1, 2), [("# 2 Japanese Mad Capsule Paul", ["ORG Mad Capsule", "PER Paul"])]),
        (NERKOR, columns(1, 6), [("A Global Voices-t.", ["ORG Global Voices-t"])]),
        (UNER, columns(2, 3), [('"Eva," povedala.', ["PER Eva"])]),
        (NORNE, read_norne, [("«Oslo» er i Norge.", ["ORG Oslo", "LOC Norge"])]),
        (TREEBANK, read_norne, [("Mette Marit", ["PER Mette Marit"])]),
        (KLUE, read_klue, [("서울 간 박씨", ["LOC 서 울", "PER 박"])]),
        (json.dumps(RONEC), read_ronec, [("Ana la Arenă 3.", ["PER Ana", "LOC Arenă"])]),
        (json.dumps(STOCKMARK), read_stockmark, [("NHK は東京", ["LOC 東 京"])]),
    ],
    ids=["germeval", "turku", "wikigold", "nerkor", "uner", "norne", "treebank", "klue", "ronec", "stockmark"],
)
def test_source_has_entities_and_text(
    content: str, read: Callable[[Path], list[Sentence]], expected: list[tuple[str, list[str]]], tmp_path: Path
) -> None:
    path = tmp_path / "source.txt"
    path.write_text(content, encoding="utf8")
    assert names(read(path)) == expected


@pytest.mark.parametrize(
    ("content", "read", "reason"),
    [
        ("Eva\tB-PER\ta\n", columns(1, 3), "'a' is not a tag"),
        (NORNE.replace("name=B-GPE_LOC", "name=GPE_LOC"), read_norne, "'GPE_LOC' is not a tag"),
        ("1\tMette\tMette\tsubst\n", read_norne, "'subst' is not a tag"),
        (json.dumps([{**RONEC[0], "ner_tags": ["O"]}]), read_ronec, r"number of tags \(1\) differs"),
        (json.dumps([{**STOCKMARK[0], "text": "NHK"}]), read_stockmark, "outside of the text"),
    ],
)
def test_damaged_source_is_reported(
    content: str, read: Callable[[Path], list[Sentence]], reason: str, tmp_path: Path
) -> None:
    path = tmp_path / "source.txt"
    path.write_text(content, encoding="utf8")
    with pytest.raises(UserError, match=reason):
        read(path)


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        ("Er sagt : „ Ja “ .", "Er sagt: „Ja“."),
        ('Han sa ( igjen ) , at " det er bra " .', 'Han sa (igjen), at "det er bra".'),
        ("Sanoi ” kissa ” , ja » koira » …", "Sanoi ”kissa”, ja »koira»…"),
        ("» Ja « , sagt sie .", "»Ja«, sagt sie."),
        ("He did n't take Paul 's “ red ” car .", "He didn't take Paul's “red” car."),
        ('Det er bra , "', 'Det er bra,"'),
        ("[ 1 ] ?", "[1]?"),
    ],
)
def test_whitespace_is_restored(tokens: str, text: str) -> None:
    words = tokens.split()
    assert "".join(word + " " * space for word, space in zip(words, space_tokens(words), strict=True)) == text


def test_all_labels_are_mapped_to_three() -> None:
    assert set(LABELS.values()) == {"PER", "LOC", "ORG"}
    assert all(LABELS[label] == label for label in LABELS.values())


def test_every_file_is_an_asset_and_every_asset_is_used() -> None:
    assets = {asset["dest"]: asset["url"] for asset in srsly.read_yaml(ROOT / "project.yml")["assets"]}
    files = {place for place in assets if place.startswith("assets/names/")}
    patterns = {source.pattern for parts in CORPORA.values() for sources in parts.values() for source in sources}
    used = {pattern: {place for place in assets if Path(place).match(f"assets/{pattern}")} for pattern in patterns}
    assert all(used.values())
    assert files <= set().union(*used.values())
    repositories = {"/".join(assets[place].split("/")[3:5]) for place in files}
    listed = {source["url"].removeprefix("https://github.com/") for source in SOURCES}
    assert listed == {
        repository if not repository.startswith("UniversalNER") else "UniversalNER" for repository in repositories
    }


def test_missing_sources_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        derive_corpora()
    printed = " ".join(capsys.readouterr().out.split())
    assert "Missing: assets/names/source/de/NER-de-test.tsv" in printed
    assert "Run `python research/fetch_corpus.py names`" in printed
