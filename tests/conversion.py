"""Convert corpora as `spacy tener convert` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from spacy_tener.corpora.convert import ConversionReport, convert_jobs, plan_jobs
from spacy_tener.corpora.reader import CorpusOptions


def convert(
    inputs: Sequence[str | Path],
    output: str | Path,
    *,
    options: CorpusOptions | None = None,
    lang: str | None = None,
) -> list[ConversionReport]:
    jobs, _ = plan_jobs(inputs, output)
    return list(convert_jobs(jobs, options=options or CorpusOptions(), lang=lang))
