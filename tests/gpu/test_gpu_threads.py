"""Bulk annotation and the web service on a GPU, whose worker threads have to select the device."""

from __future__ import annotations

import asyncio
import threading

import pytest
import spacy
from archives import read_output, write_jsonl
from thinc.api import use_ops

from spacy_tener.annotate.annotator import Annotator
from spacy_tener.annotate.answers import AnnotateSettings
from spacy_tener.annotate.local import annotate_locally
from spacy_tener.annotate.output import AnnotationJob
from spacy_tener.annotate.records import ReadOptions, find_sources
from spacy_tener.nn.shim import TorchShim
from spacy_tener.serve.schema import Limits, Options
from spacy_tener.serve.service import Service

pytestmark = pytest.mark.integration

TEXTS = ["王小明在北京", "今天天气很好", "李四去了上海 工作", "", "中国银行" * 9] * 6


@pytest.fixture
def pipe_threads(monkeypatch):
    """The names of the threads that called `nlp.pipe`. Concurrent calls fail."""
    found, lock, read = [], threading.Lock(), spacy.Language.pipe

    def pipe(nlp, texts, **options):
        assert lock.acquire(blocking=False), "two threads called nlp.pipe at once"
        try:
            found.append(threading.current_thread().name)
            return iter(list(read(nlp, texts, **options)))
        finally:
            lock.release()

    monkeypatch.setattr(spacy.Language, "pipe", pipe)
    return found


def annotated(saved, source, gpu_id):
    output = source.with_name(f"jsonl{gpu_id}")
    annotator = Annotator(saved["tener"], AnnotateSettings(probability=True), gpu_id=gpu_id)
    sources, _ = find_sources([str(source)])
    numbers = []
    job = AnnotationJob(annotator, sources, output, ReadOptions(part_size=4), "jsonl")
    annotate_locally(job, lambda part, stats, before: numbers.append(part.number))
    found = read_output(output)
    for row in found:
        for entity in row["entities"]:
            entity["probability"] = pytest.approx(entity["probability"], abs=1e-5)
    return sorted(numbers), found, annotator


def test_archive_annotation_equals_cpu(saved, tmp_path, device, pipe_threads):
    source = write_jsonl(tmp_path / "texts.jsonl", TEXTS)
    parts, found, annotator = annotated(saved, source, 0)
    shims = [shim for node in annotator.nlp.get_pipe("tener_ner").model.walk() for shim in node.shims]
    assert {shim.device for shim in shims if isinstance(shim, TorchShim)} == {device}
    assert set(pipe_threads).isdisjoint({threading.main_thread().name})
    with use_ops("numpy"):
        assert (parts, found) == annotated(saved, source, -1)[:2]
    assert any(row["entities"] for row in found)
    # A second call finds the finished output and skips all texts.
    before = len(pipe_threads)
    assert annotated(saved, source, 0)[:2] == (parts, found)
    assert len(pipe_threads) == before


async def send_requests(service, texts):
    service.start()
    try:
        return await asyncio.gather(*(service.entities([text], Options(model=name)) for text in texts for name in "ab"))
    finally:
        await service.close()


def test_service_batches_requests_in_single_thread(saved, device, pipe_threads):
    service = Service({name: spacy.load(saved["tener"]) for name in "ab"}, Limits(), gpu_id=0)
    found = asyncio.run(send_requests(service, TEXTS))
    assert len(set(pipe_threads)) == 1
    assert len(pipe_threads) < len(TEXTS)
    with use_ops("numpy"):
        nlp = spacy.load(saved["tener"])
        wanted = [[(ent.start_char, ent.end_char, ent.label_) for ent in nlp(text).ents] for text in TEXTS]
    offsets = [[(entity.start, entity.end, entity.label) for entity in entities] for [entities] in found]
    assert offsets == [entities for entities in wanted for _ in "ab"]
