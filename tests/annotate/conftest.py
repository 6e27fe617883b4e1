"""Fixtures: pipelines for annotation, and annotation jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import spacy
from small_corpora import rule_pipeline

from spacy_tener.annotate import AnnotateSettings, Annotator
from spacy_tener.annotate.local import annotate_locally
from spacy_tener.annotate.output import AnnotationJob
from spacy_tener.annotate.records import ReadOptions, find_sources


@pytest.fixture(scope="session")
def nlp(saved: dict[str, Path]) -> spacy.Language:
    return spacy.load(saved["tener"])


@pytest.fixture(scope="session")
def ruler(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Save a rule-based pipeline, which worker processes load faster than a trained pipeline."""
    rule_pipeline(GPE="上海").to_disk(path := tmp_path_factory.mktemp("ruler") / "model")
    return path


@pytest.fixture
def make_job(saved: dict[str, Path], nlp: spacy.Language) -> Callable[..., AnnotationJob]:
    """Return a function that creates an annotation job. The job uses a loaded pipeline, unless you pass `model`."""

    def make(
        inputs: Iterable[Any], output: Any, format: str = "jsonl", processes: int = 1, model: Any = None, **options: Any
    ) -> AnnotationJob:
        settings = {name: options.pop(name) for name in list(options) if hasattr(AnnotateSettings(), name)}
        annotator = Annotator(model or saved["tener"], AnnotateSettings(**settings))
        if model is None:
            annotator.use(nlp)
        sources, _ = find_sources([str(path) for path in inputs])
        return AnnotationJob(annotator, sources, output, ReadOptions(**options), format, processes)

    return make


@pytest.fixture
def run(make_job: Callable[..., AnnotationJob]) -> Callable[..., Any]:
    """Return a function that runs an annotation job and returns its counts."""

    def annotated(inputs: Iterable[Any], output: Any, *args: Any, watch: Any = None, **options: Any) -> Any:
        return annotate_locally(make_job(inputs, output, *args, **options), watch or (lambda *_: None))

    return annotated
