"""Tests of the conversion of corpora to .spacy files for project.yml."""

from __future__ import annotations

from pathlib import Path

import pytest
import spacy
from spacy.tokens import Doc, DocBin

from research import convert_corpus
from research.convert_corpus import CORPORA

ROOT = Path(__file__).resolve().parents[2]
CHARACTERS = "王 B-PER\n明 E-PER\n来 O\n\n" * 10
CONLL_2012 = """#begin document (nw/a/00/a_0001); part 000
nw/a/00/a_0001  0  0  Eli  NNP  (TOP(S(NP*  -  -  -  -  (PERSON*  -
nw/a/00/a_0001  0  1  Broad  NNP  *))  -  -  -  -  *)  -

#end document
"""
UNER = """# text = Eli Broad spoke.
1\tEli\tB-PER\t-\tann
2\tBroad\tI-PER\t-\tann
3\tspoke\tB-OTH\t-\t-
4\t.\tO\t-\t-

"""
CONTENTS = {
    "weibo": "王0\tB-PER.NAM\n明1\tI-PER.NAM\n来0\tO\n\n",
    "sample_en": "Eli B-PER\nBroad I-PER\nspoke O\n\n",
    "wnut17": "Eli\tB-person\nBroad\tI-person\nspoke\tO\n\n",
    "conll2003": "-DOCSTART- -X- O O\n\nEli NNP I-NP I-PER\nBroad NNP I-NP I-PER\nspoke VBD I-VP O\n\n",
    "ontonotes5": CONLL_2012,
    "multilingual": UNER,
    "names": UNER,
}
# The corpora with one file per language, which have the same config.
MULTILINGUAL = ("multilingual", "names")


def put(corpus: str, text: str) -> None:
    """Write the files of a corpus to their locations in assets/."""
    for place in CORPORA[corpus].parts.values():
        name = "en.iob2" if corpus in MULTILINGUAL else "annotations/nw/a.gold_conll"
        path = place if place.suffix else place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")


def read(corpus: str, part: str) -> list[Doc]:
    vocab = spacy.blank(CORPORA[corpus].lang).vocab
    return list(DocBin().from_disk(Path("project", "corpus", corpus, f"{part}.spacy")).get_docs(vocab))


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_corpus_at_its_place_is_converted(corpus: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(convert_corpus, "derive_corpora", lambda: None)
    put(corpus, CONTENTS.get(corpus, CHARACTERS))
    convert_corpus.main([corpus])
    found = {doc.ents[0].text for part in ("train", "dev", "test") for doc in read(corpus, part)}
    assert found == {"王明" if CORPORA[corpus].lang == "zh" else "Eli Broad"}


def test_the_last_tenth_is_held_out_and_converting_again_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    put("msra", "".join(f"{letter} O\n{letter} S-PER\n\n" for letter in "一二三四五六七八九十" * 2))
    for _ in range(2):
        convert_corpus.main(["msra"])
        train, dev = read("msra", "train"), read("msra", "dev")
        assert [doc.text for doc in (*train, *dev)] == [f"{letter}{letter}" for letter in "一二三四五六七八九十" * 2]
        assert [(doc.text, [token.ent_iob for token in doc]) for doc in dev] == [("九九", [2, 3]), ("十十", [2, 3])]
    assert "The last 2 of 20 Docs" in capsys.readouterr().out


def test_missing_files_are_named_with_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    put("conll2003", CONTENTS["conll2003"])
    CORPORA["conll2003"].parts["dev"].unlink()
    for corpus, missing, fix in (
        ("conll2003", "assets/conll2003/eng.testa", "licensed: put your copy there. assets/README.md"),
        (
            "resume",
            "assets/resume/train.char.bmes, assets/resume/dev",
            "Run `python research/fetch_corpus.py resume` to",
        ),
    ):
        with pytest.raises(SystemExit) as stop:
            convert_corpus.main([corpus])
        printed = " ".join(capsys.readouterr().out.split())
        assert (stop.value.code, f"Missing: {missing}" in printed, fix in printed) == (1, True, True)
        assert "eng.train" not in printed


@pytest.mark.parametrize("corpus", [name for name, corpus in CORPORA.items() if corpus.licensed])
def test_the_readme_of_assets_says_where_licensed_files_belong(corpus: str) -> None:
    readme = (ROOT / "assets" / "README.md").read_text(encoding="utf8")
    for place in CORPORA[corpus].parts.values():
        assert f"`{place.name}" in readme or f"`{place.relative_to('assets').as_posix()}" in readme


@pytest.mark.parametrize("corpus", CORPORA)
def test_a_corpus_has_the_language_of_its_config(corpus: str) -> None:
    name = "multilingual" if corpus in MULTILINGUAL else corpus
    config = (ROOT / "configs" / f"{name}.cfg").read_text(encoding="utf8")
    assert f'\nlang = "{CORPORA[corpus].lang}"\n' in config


def test_the_languages_of_a_part_are_joined_and_each_has_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put("multilingual", UNER)
    for part in ("train", "test", "pud"):
        path = Path("assets", "uner", part, "zh.iob2")
        path.parent.mkdir(exist_ok=True)
        path.write_text("# text = 王明来\n1\t王明\tB-PER\t-\t-\n2\t来\tO\t-\t-\n\n", encoding="utf8")
    convert_corpus.main(["multilingual"])
    assert [len(read("multilingual", part)) for part in ("train", "dev", "test")] == [2, 1, 2]
    names = ["en", "zh", "zh-pud"]
    assert sorted(path.stem for path in Path("project/corpus/multilingual/languages").iterdir()) == names
    texts = [read("multilingual", f"languages/{name}")[0].text for name in names]
    assert texts == ["Eli Broad spoke.", "王明来", "王明来"]
    assert {ent.label_ for doc in read("multilingual", "train") for ent in doc.ents} == {"PER"}


def test_names_are_balanced_and_no_training_sentence_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put("names", UNER)

    def derive() -> None:
        texts = {"train": ["Ja", "Nein", "Eva", "Otto", "Ida"], "dev": ["Ja"], "test": ["Nein"]}
        for part, words in texts.items():
            path = Path("assets", "names", part, "de.iob2")
            path.parent.mkdir(parents=True)
            path.write_text("".join(f"# text = {word}.\n1\t{word}\tB-PER\n2\t.\tO\n\n" for word in words))
        # These sentences replace those of Universal NER in the same language.
        Path("assets", "names", "train", "en.iob2").write_text("# text = Ann spoke\n1\tAnn\tB-PER\n2\tspoke\tO\n\n")

    monkeypatch.setattr(convert_corpus, "derive_corpora", derive)
    monkeypatch.setattr(convert_corpus, "MAX_SENTENCES", 2)
    convert_corpus.main(["names"])
    train = [doc.text for doc in read("names", "train")]
    assert len(train) == 3
    assert {"Ann spoke"} < set(train) < {"Ann spoke", "Eva.", "Otto.", "Ida."}
    for folder, text in (("languages-dev", "Ja."), ("languages", "Nein.")):
        assert sorted(path.stem for path in Path("project/corpus/names", folder).iterdir()) == ["de", "en"]
        assert [doc.text for doc in read("names", f"{folder}/de")] == [text]
    assert [doc.text for doc in read("names", "dev")] == ["Eli Broad spoke.", "Ja."]


def test_missing_files_of_names_are_downloaded_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        convert_corpus.main(["names"])
    assert "Run `python research/fetch_corpus.py names` to" in " ".join(capsys.readouterr().out.split())
