"""Each option of each command changes the result of a command that ends well without it, or is refused where it cannot.

The options are those that the commands themselves name: a new one fails here until it has a row.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import small_encoders
import typer
from command_line import Ran, run_tener
from fastapi import FastAPI
from made_trainings import make_config, tener
from small_corpora import Entities, annotated, save_corpus, save_docs
from small_systems import TEXTS, trained
from tiny_transformer import save_tiny_transformer

from spacy_tener.annotate.local import annotate_locally
from spacy_tener.cli import COMMANDS, tener_cli
from spacy_tener.workbench.overlays import fill
from spacy_tener.workbench.training import Processes

GROUP: Any = typer.main.get_command(tener_cli)
PRINTED = "printed"
GPU = "GPU 7 cannot be used"


class Row(NamedTuple):
    """An option that changes something.

    words: The option as it is written, with its value.
    base: The command line that it is added to; the command's own by default.
    result: Where the change shows: a pattern of files, or what is printed.
    codes: The exit status without it and with it.
    says: What is printed with it.
    """

    words: str
    base: str = ""
    result: str = PRINTED
    codes: tuple[int, int] = (0, 0)
    says: str = ""


def on_gpu(words: str = "--gpu-id 7", base: str = "") -> Row:
    return Row(words, base, codes=(0, 1), says=GPU)


IMPORTED = Row("--code code.py", says="the code is imported")
BASES = {
    "convert": "convert two.txt -o out",
    "debug-data": "debug-data my.cfg",
    "suggest": "suggest model text.txt -o out.jsonl -n 4",
    "review": "review my.cfg gold.spacy -o out --folds 2",
    "silver": "silver model text.txt -o out",
    "config": "config weibo",
    "vectors": "vectors encoder.onnx -o out.vec --words words.txt --width 4",
    "evaluate": "evaluate model doubtful.spacy",
    "explain": "explain model text.txt -n 3",
    "calibrate": "calibrate model doubtful.spacy -o out",
    "trim": "trim model text.txt -o out",
    "extend": "extend model new.spacy -o out",
    "export": "export model -o out.onnx",
    "annotate": "annotate model text.txt -o out -f jsonl --processes 1",
    "serve": "serve model --port 0",
}
REVIEWED = "review model gold.spacy -o out"
ROWS = {
    "convert": {
        "output": Row("--output other", result="other/*"),
        "format": Row("--from columns", "convert weibo.txt -o out", result="*.spacy"),
        "lang": Row("--lang en", result="*.spacy"),
        "scheme": Row("--scheme BIO"),
        "overlap": Row("--overlap longest", "convert overlap.jsonl -o out", codes=(1, 0)),
        "texts": Row("--texts title,body", "convert studio.json -o out", result="*.spacy"),
        "encoding": Row("--encoding gb18030", "convert gb18030.txt -o out", codes=(1, 0)),
        "token_column": Row("--token-column 2", "convert three.txt -o out", result="*.spacy"),
        "tag_column": Row("--tag-column 2", "convert three.txt -o out", result="*.spacy"),
        "tag_names": Row("--tag-names O,B-PER", "convert tokens.jsonl -o out", codes=(1, 0)),
        "force": Row("--force", "convert two.txt -o gold.spacy", codes=(1, 0)),
    },
    "debug-data": {
        # It ends with 1, as the corpus is tiny.
        "code": Row("--code code.py", codes=(1, 1), says="the code is imported"),
        "ignore_warnings": Row("--ignore-warnings", codes=(1, 1)),
        "verbose": Row("--verbose", codes=(1, 1)),
        "no_format": Row("--no-format", codes=(1, 1)),
    },
    "suggest": {
        "output": Row("--output other.jsonl", result="other*"),
        "limit": Row("-n 2", result="out.jsonl"),
        "format": Row("--format prodigy", result="out.jsonl"),
        "labels": Row("--labels PER", "suggest model text.txt -o out.html", result="out.html"),
        "known": Row("--known known.txt", result="out.jsonl"),
        "force": Row("--force", "suggest model text.txt -o known.txt --format doccano -n 4", codes=(1, 0)),
        "gpu_id": on_gpu(),
        "code": IMPORTED,
    },
    "review": {
        "output": Row("--output other", result="other/*"),
        "force": Row("--force", "review gold.spacy -o doubtful.spacy --apply decisions.json", codes=(1, 0)),
        "apply": Row("--apply decisions.json", "review gold.spacy -o out.spacy", result="out.spacy", codes=(2, 0)),
        "dev": Row("--dev doubtful.spacy", result="trained.txt"),
        "folds": Row("--folds 3", result="trained.txt"),
        "settings": Row("--set training.max_steps=9", result="trained.txt"),
        "limit": Row("--limit 1", "review model doubtful.spacy -o out", result="out/review.html"),
        "gpu_id": on_gpu(base=REVIEWED),
        "code": Row("--code code.py", REVIEWED, says="the code is imported"),
        "jobs": Row("--jobs 2", result="at_once.txt"),
    },
    "silver": {
        "output": Row("--output other", result="other/*"),
        "sure": Row("--sure 1", result="*.spacy"),
        "outside": Row("--outside 1", result="*.spacy"),
        "limit": Row("--limit 2", result="*.spacy"),
        "part_size": Row("--part-size 3", result="*.spacy"),
        "gpu_id": on_gpu(),
        "code": IMPORTED,
    },
    "config": {
        "settings": Row("--set training.max_steps=9", says="max_steps = 9"),
        "output": Row("--output out.cfg", result="out.cfg"),
        "force": Row("--force", "config weibo -o known.txt", codes=(1, 0)),
    },
    "vectors": {
        "output": Row("--output other.vec", "vectors encoder.onnx --words words.txt --width 4", "*.vec", (2, 0)),
        "words": Row("--words words.txt", "vectors encoder.onnx text.txt -o out.vec --width 1", codes=(0, 2)),
        "max_words": Row("--max-words 9", result="out.vec"),
        "lang": Row("--lang zh", "vectors encoder.onnx text.txt -o out.vec --width 1", result="out.vec"),
        "layers": Row("--layers 2", "vectors bert -o out.vec --words words.txt --width 4 --layers 1", result="out.vec"),
        "outputs": Row("--outputs inner", result="out.vec"),
        "width": Row("--width 3", result="out.vec"),
        "force": Row("--force", "vectors encoder.onnx -o known.txt --words words.txt --width 4", codes=(1, 0)),
    },
    "evaluate": {
        "output": Row("--output scores.txt", result="scores.txt"),
        "page": Row("--page page.html", result="page.html"),
        "explained": Row("--explain 1", "evaluate model doubtful.spacy --page p.html", result="p*.html"),
        "force": Row("--force", "evaluate model doubtful.spacy -o scores.json", codes=(1, 0)),
        "gold_preproc": Row("--gold-preproc", "evaluate model words.spacy"),
        "gpu_id": on_gpu(),
        "code": IMPORTED,
    },
    "explain": {
        "output": Row("--output out.html", result="out.html"),
        "limit": Row("--limit 1"),
        "component": Row("--component ner2", codes=(0, 1)),
        "force": Row("--force", "explain model text.txt -n 3 -o scores.json", codes=(1, 0)),
        "evidence": Row("--no-evidence"),
        "gpu_id": on_gpu(),
        "code": IMPORTED,
    },
    "calibrate": {
        "output": Row("--output other", result="other/*"),
        "force": Row("--force", "calibrate model doubtful.spacy -o mine", codes=(1, 0)),
        "test": Row("--test gold.spacy"),
        "precision": Row("--precision 0.2", result="out/tener_ner/cfg"),
        "confidence": Row(
            "--confidence 0.5",
            "calibrate model doubtful.spacy -o out --precision 0.5",
            codes=(1, 0),
        ),
        "component": Row("--component ner2", codes=(0, 1)),
        "gpu_id": on_gpu(),
        "code": IMPORTED,
    },
    "trim": {
        "output": Row("--output other", result="other/meta.json"),
        "min_count": Row("--min-count 2", result="out/tener_ner/*"),
        "force": Row("--force", "trim model text.txt -o mine", codes=(1, 0)),
        "half": Row("--half", result="out/tener_ner/*"),
        # Its conversion of transformers is tried beside them; this pipeline has none.
        "onnx": Row("--onnx int8", codes=(0, 1)),
        "component": Row("--component ner2", codes=(0, 1)),
        "code": IMPORTED,
    },
    "extend": {
        "output": Row("--output other", "extend model new.spacy", "other/config.cfg", (2, 0)),
        "old": Row("--with gold.spacy", result="out/train.spacy"),
        "dev": Row("--dev gold.spacy", result="out/dev.spacy"),
        "labels": Row("--labels VERB", "extend model new.spacy -o out --rename PER=NAME", "out/config.cfg"),
        "rename": Row("--rename PER=NAME", result="out/config.cfg"),
        "steps": Row("--steps 7", result="trained.txt"),
        "component": Row("--component ner2", codes=(0, 1)),
        "settings": Row("--set training.dropout=0.2", result="out/config.cfg"),
        "gpu_id": on_gpu(),
        "code": IMPORTED,
    },
    "export": {
        "output": Row("--output other.onnx", result="other.onnx"),
        "page": Row("--page page --wasm ort", result="page/index.html"),
        "wasm": Row("--wasm ort", "export model --page page", codes=(1, 0)),
        "texts": Row("--texts text.txt", says="text.txt"),
        "half": Row("--half", result="out.onnx"),
        "component": Row("--component ner2", codes=(0, 1)),
        "force": Row("--force", "export model -o key.txt", codes=(1, 0)),
        "code": IMPORTED,
    },
    "annotate": {
        "output": Row("--output other", result="other/part*"),
        "format": Row("--format parquet", result="out/part*"),
        "text": Row("--text content", "annotate model rows.jsonl -o out -f jsonl --processes 1", result="out/part*"),
        "probability": Row("--probability", result="out/part*"),
        "prefix": Row("--prefix x_", result="out/part*"),
        "encoding": Row(
            "--encoding gb18030", "annotate model gb18030.txt -o out -f jsonl --processes 1", "out/part*", codes=(1, 0)
        ),
        "whole_files": Row("--whole-files", result="out/part*"),
        "part_size": Row("--part-size 3", result="out/part*"),
        "processes": Row("--processes 2", result="processes.txt"),
        "gpu_id": on_gpu(),
        "code": IMPORTED,
    },
    "serve": {
        "host": Row("--host localhost", "serve model --port 0 --host 127.0.0.9"),
        "port": Row("--port 20517"),
        "max_characters": Row("--max-characters 3"),
        "max_body": Row("--max-body 9"),
        "timeout": Row("--timeout 9"),
        "api_key_file": Row("--api-key-file key.txt"),
        "allow_origin": Row("--allow-origin https://a.example"),
        "gpu_id": on_gpu(),
        "code": IMPORTED,
    },
}
NOWHERE = [
    ("config --set training.max_steps=9 --output out.cfg --force", "--set, --output, --force"),
    ("config weibo --force", "--force"),
    ("vectors encoder.onnx -o out.vec --words words.txt --layers 2 --width 4", "--layers"),
    ("vectors bert -o out.vec --words words.txt --outputs inner --width 4", "--outputs"),
    ("vectors encoder.onnx -o out.vec --words words.txt --lang zh --width 4", "--lang"),
    ("review model gold.spacy -o out --force", "--force"),
    ("trim model text.txt -o out --onnx int8 --min-count 2 --half", "--min-count, --half"),
    ("explain model 王小明去了上海 --limit 3", "--limit"),
    ("export model -o out.onnx --wasm ort", "--wasm"),
    ("annotate model rows.jsonl -o out -f jsonl --whole-files", "--whole-files"),
    ("annotate model gold.spacy -o out -f jsonl --encoding gb18030", "--encoding"),
]
"""Command lines with options that do nothing there, and are refused."""


def doubtful(texts: Sequence[tuple[str, Entities]]) -> Iterator[tuple[str, Entities]]:
    """Yield texts, a third of whose entities have another label."""
    wrong = {"ORG": "PER", "PER": "ORG", "GPE": "ORG"}
    for n, (text, entities) in enumerate(texts):
        yield text, [(a, z, label if (n + i) % 3 else wrong[label]) for i, (a, z, label) in enumerate(entities)]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every file that a row names."""
    folder = tmp_path_factory.mktemp("options")
    (folder / "model").symlink_to(trained("tener"))
    save_corpus(folder / "gold.spacy", TEXTS * 2)
    verbs = [
        (f"{text}{number}", [(2, 4, "VERB"), (0, 1, "NAME")]) for number in range(10) for text in ("他说了", "王说好")
    ]
    save_corpus(folder / "new.spacy", verbs)
    save_corpus(folder / "doubtful.spacy", [*doubtful(TEXTS * 5)])
    words = annotated("王小明去了上海", [(0, 3, "PER"), (5, 7, "GPE")], words=["王小明", "去", "了", "上海"])
    save_docs(folder / "words.spacy", words)
    fill(make_config(folder, tener(), max_steps=1)).to_disk(folder / "my.cfg")
    small_encoders.save(folder, small_encoders.mean_encoder())
    save_tiny_transformer(folder / "bert")
    for part in ("train", "dev"):
        shutil.copy(folder / "gold.spacy", folder / f"{part}.spacy")
    region = {"from_name": "label", "to_name": "title", "type": "labels"}
    values = [{"start": 0, "end": end, "labels": ["PER"]} for end in (2, 3)]
    annotations = [{"id": n, "result": [{**region, "value": value}]} for n, value in enumerate(values)]
    decision = {"gold": [[0, 1, "GPE"]], "entities": [[0, 1, "ORG"]]}
    records: dict[str, list[Any]] = {
        "overlap.jsonl": [{"text": "北京大学", "label": [[0, 2, "LOC"], [0, 4, "ORG"]]}],
        "decisions.json": [[{"text": TEXTS[3][0], "doc": 3, "corpus": "gold.spacy", "decisions": [decision]}]],
        "tokens.jsonl": [{"tokens": ["王"], "ner_tags": [1]}],
        "rows.jsonl": [{"text": "王小明去了上海", "content": "北京大学在北京", "id": "d"}],
        "scores.json": [{"ents_p": 0.5, "ents_r": 0.5, "ents_f": 0.5, "ents_per_type": {}}],
        "studio.json": [[{"data": {"title": "王小明说", "body": "北京很大"}, "annotations": annotations}]],
    }
    texts = {
        "text.txt": "\n".join([*(text for text, _ in TEXTS), "A8a9京"]),
        "known.txt": "A8a9京",
        "key.txt": "secret",
        "code.py": "print('the code is imported')\n",
        "words.txt": "\n".join(small_encoders.CHARACTERS[:20]),
        "ort/ort.wasm.bundle.min.mjs": "// ONNX Runtime Web v1.0.0\nconst a = 1; export{a as b};",
        "ort/ort-wasm-simd-threaded.wasm": "",
        "two.txt": "王 I-PER\n小 I-PER\n\n京 I-GPE\n",
        "weibo.txt": "王0 I-PER\n小1 I-PER\n",
        "three.txt": "王 O I-PER\n小 I-PER O\n",
        **{name: "\n".join(json.dumps(record) for record in file) for name, file in records.items()},
    }
    (folder / "ort").mkdir()
    for name, content in texts.items():
        (folder / name).write_text(content + "\n", encoding="utf8")
    (folder / "gb18030.txt").write_bytes("王 O\n海 B-PER\n".encode("gb18030"))
    return folder


WITHOUT: dict[str, tuple[Outcome, Outcome]] = {}
"""Command lines -> what two runs of each made."""


class Outcome(NamedTuple):
    """What a command printed and wrote."""

    code: int
    printed: str
    files: dict[str, bytes]

    def seen(self, result: str) -> object:
        """Return what a row compares."""
        if result == PRINTED:
            return self.printed
        return {name: content for name, content in self.files.items() if Path(name).match(result)}


@pytest.fixture
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trainings that copy a pipeline, and a service, a cluster and processes that say how they were started."""
    running, lock, two = [0, 0], threading.Lock(), threading.Barrier(2)

    def run(self: Processes, arguments: Sequence[str], log: Path) -> int:
        config, output = Path(arguments[1]), Path(arguments[3])
        with lock:
            running[0] += 1
            running[1] = max(running)
        if self._echo is None:  # several at once, of which nothing is echoed: two must run before either ends
            two.wait(timeout=60)
        shutil.copytree(trained("tener"), output / "model-best")
        meta = json.loads((output / "model-best/meta.json").read_text(encoding="utf8"))
        meta["performance"] = scores = {"ents_f": 50.0}
        row = {"step": 1, "score": 0.5, "scores": scores}
        (output / "training.jsonl").write_text(json.dumps(row) + "\n", encoding="utf8")
        (output / "model-best/meta.json").write_text(json.dumps(meta), encoding="utf8")
        steps = [line for line in config.read_text(encoding="utf8").splitlines() if re.match("max_steps|dev = ", line)]
        with lock, Path("trained.txt").open("a", encoding="utf8") as file:
            running[0] -= 1
            print(output.name if running[1] == 1 else "", *steps, file=file)
            Path("at_once.txt").write_text(str(running[1]), encoding="utf8")
        return 0

    async def ask(app: FastAPI) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://a") as client:
            return await client.post("/v1/entities", headers={"Origin": "https://a.example"})

    def serve(app: FastAPI, sock: Any, started: Callable[[], None]) -> None:
        answer = asyncio.run(ask(app))
        origin = answer.headers.get("access-control-allow-origin")
        host, port = sock.getsockname()
        print(host, port if port < 32768 else "any", answer.status_code, origin, app.state.service.limits)

    def locally(job: Any, progress: Any) -> Any:
        Path("processes.txt").write_text(str(job.processes), encoding="utf8")
        return annotate_locally(replace(job, processes=1), progress)

    monkeypatch.setattr(Processes, "run", run)
    monkeypatch.setattr("spacy_tener.serve.serve", serve)
    monkeypatch.setattr("spacy_tener.cli.annotate.annotate_locally", locally)
    monkeypatch.setattr("spacy_tener.workbench.pipelines.FEW", 2)
    monkeypatch.delenv("WASABI_LOG_FRIENDLY")


@pytest.fixture
def outcome(shared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stubs: None) -> Callable[[str], Outcome]:
    """Run a command in a new directory with all files."""
    folders: list[Path] = []

    def run(words: str) -> Outcome:
        folder = tmp_path / str(len(folders))
        folders.append(folder)
        shutil.copytree(shared, folder, symlinks=True)
        if "mine" in words.split():
            shutil.copytree(shared / "model", folder / "mine")
        monkeypatch.chdir(folder)
        before = {path for path in folder.rglob("*") if "mine" not in path.parts}
        ran: Ran = run_tener(*words.split())
        files = {
            str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file() and path not in before
        }
        measured = r"[\d,.]+ (characters/s|tokens per second|s\b)|(?<=\d )\d+\.\d$"
        printed = re.sub(measured, "...", ran.text.replace(str(folder), ""))
        return Outcome(ran.code, printed, files)

    return run


def test_the_table_has_each_option_of_each_command() -> None:
    options = {
        command: {
            option.name for option in GROUP.get_command(None, command).params if option.param_type_name == "option"
        }
        for command in COMMANDS
    }
    assert {command: set(rows) for command, rows in ROWS.items()} == options


@pytest.mark.parametrize(
    ("command", "row"),
    [
        pytest.param(command, row, id=f"{command}-{name}")
        for command, rows in ROWS.items()
        for name, row in rows.items()
    ],
)
def test_an_option_changes_the_result(outcome: Callable[[str], Outcome], command: str, row: Row) -> None:
    base = row.base or BASES[command]
    if base not in WITHOUT:
        WITHOUT[base] = outcome(base), outcome(base)
    without, again = WITHOUT[base]
    with_it = outcome(f"{base} {row.words}")
    assert (without.code, with_it.code) == row.codes, (without.printed, with_it.printed)
    assert without.seen(row.result) == again.seen(row.result)
    assert without.seen(row.result) != with_it.seen(row.result), with_it.printed
    assert row.says in with_it.printed
    assert not row.says or row.says not in without.printed


@pytest.mark.parametrize(("words", "options"), NOWHERE)
def test_an_option_that_would_do_nothing_is_refused(
    outcome: Callable[[str], Outcome], words: str, options: str
) -> None:
    refused = outcome(words)
    assert (refused.code, refused.files) == (2, {}), refused.printed
    assert options in refused.printed
