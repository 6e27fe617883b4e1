"""Write the commands of each corpus into project.yml: convert it, train and score a system on it, draw the entities.

spaCy's projects have variables, but no command that runs once for each corpus, and they remember a finished command by
its name. So there is a command of its own for each corpus and step. They stand between two comments in project.yml;
everything else there is written by hand. A test makes them again and compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "project.yml"
BEGIN = "  # Made by scripts/make_project.py, from here"
END = "  # to here."
PARTS = ("train", "dev", "test")


@dataclass(frozen=True)
class Corpus:
    """One corpus.

    name: As its config's, and its directories'.
    inputs: The files or directories of its parts, under assets/.
    licensed: Whether users bring it themselves.
    own_tokens: Whether the tokens of the corpus are kept, as its config does by gold_preproc.
    """

    name: str
    title: str
    lang: str
    inputs: Sequence[str]
    licensed: bool = False
    own_tokens: bool = False

    @property
    def assets(self) -> list[str]:
        return [f"assets/{path}" for path in self.inputs]

    @property
    def has_dev(self) -> bool:
        return len(self.inputs) == len(PARTS)

    def data(self, part: str) -> str:
        return f"corpus/{self.name}/{part}.spacy"

    @property
    def run(self) -> str:
        """Where one training of it lies: its place as `spacy tener table` wants it."""
        return f"training/{self.name}/${{vars.system}}/${{vars.seed}}"


@dataclass(frozen=True)
class Command:
    """One command of a spaCy project."""

    name: str
    help: str
    script: Sequence[str]
    outputs: Sequence[str]
    deps: Sequence[str] = field(default=())


def _bmes(folder: str, *parts: str) -> list[str]:
    return [f"{folder}/{part}.char.bmes" for part in parts]


CORPORA = (
    Corpus("sample", "the Chinese sample", "zh", [f"sample/zh/{part}.bmes" for part in PARTS]),
    Corpus("sample_en", "the English sample", "en", [f"sample/en/{part}.iob2" for part in PARTS]),
    Corpus("weibo", "Weibo NER", "zh", [f"weibo/weiboNER_2nd_conll.{part}" for part in PARTS]),
    Corpus("resume", "Resume NER", "zh", _bmes("resume", *PARTS)),
    Corpus("msra", "MSRA", "zh", _bmes("msra", "train", "test"), licensed=True),
    Corpus("ontonotes4", "OntoNotes 4", "zh", _bmes("ontonotes4", *PARTS), licensed=True),
    Corpus("ontonotes5", "OntoNotes 5", "en", [f"ontonotes5/{part}" for part in PARTS], licensed=True, own_tokens=True),
    Corpus(
        "conll2003",
        "CoNLL-2003",
        "en",
        ["conll2003/eng.train", "conll2003/eng.testa", "conll2003/eng.testb"],
        licensed=True,
        own_tokens=True,
    ),
    Corpus(
        "wnut17",
        "WNUT 2017",
        "en",
        ["wnut17/wnut17train.conll", "wnut17/emerging.dev.conll", "wnut17/emerging.test.annotated"],
    ),
)


def main() -> None:
    text = PROJECT.read_text(encoding="utf8")
    PROJECT.write_text(with_commands(text), encoding="utf8")


def with_commands(text: str) -> str:
    """A project.yml with the commands of all corpora in their place."""
    before, begin, rest = text.partition(f"{BEGIN}\n")
    _, end, after = rest.partition(f"{END}\n")
    if not begin or not end:
        raise ValueError(f"{PROJECT.name} has no place for the commands: the comments '{BEGIN}' and '{END}'")
    blocks = [block(command) for corpus in CORPORA for command in commands(corpus)]
    return before + begin + "\n".join(blocks) + end + after


def commands(corpus: Corpus) -> Iterator[Command]:
    if corpus.licensed:
        yield check(corpus)
    yield convert(corpus)
    yield train(corpus)
    yield draw(corpus)


def check(corpus: Corpus) -> Command:
    """Its outputs are the user's files: it runs again where one of them is new, changed or gone."""
    return Command(
        f"check-{corpus.name}",
        f"See whether {corpus.title} is at its place; if not, say what is missing and where it comes from",
        [f"python scripts/check_assets.py {corpus.name}"],
        outputs=corpus.assets,
    )


def convert(corpus: Corpus) -> Command:
    parts = PARTS if corpus.has_dev else ("all", "test")
    script = [_convert_part(corpus, path, part) for path, part in zip(corpus.assets, parts, strict=True)]
    if not corpus.has_dev:
        divided = " ".join(corpus.data(part) for part in ("all", "train", "dev"))
        script.append(f"python scripts/hold_out.py {divided}")
    return Command(
        f"convert-{corpus.name}",
        f"Convert {corpus.title} to .spacy",
        script,
        deps=corpus.assets,
        outputs=[corpus.data(part) for part in PARTS],
    )


def _convert_part(corpus: Corpus, path: str, part: str) -> str:
    join = "" if Path(path).suffix else " --join"
    return f"python -m spacy tener convert {path} {corpus.data(part)} --lang {corpus.lang}{join}"


def train(corpus: Corpus) -> Command:
    return Command(
        f"train-{corpus.name}",
        f"Train vars.system on {corpus.title} and score it on test; an interrupted training goes on where it stopped",
        [
            f"python -m spacy tener grid training --corpora {corpus.name} --systems ${{vars.system}} "
            "--seeds ${vars.seed} --data corpus --configs configs --gpu-id ${vars.gpu}"
        ],
        deps=[f"configs/{corpus.name}.cfg", "configs/models", *map(corpus.data, PARTS)],
        outputs=[f"{corpus.run}/model-best", f"{corpus.run}/metrics.json"],
    )


def draw(corpus: Corpus) -> Command:
    page = f"pages/{corpus.name}-${{vars.system}}.html"
    tokens = " --gold-preproc" if corpus.own_tokens else ""
    model, data = f"{corpus.run}/model-best", corpus.data("test")
    return Command(
        f"draw-{corpus.name}",
        f"Draw the entities of {corpus.title} beside those found, errors marked, in an HTML page",
        [f"python scripts/visualize.py {model} {data} {page}{tokens}"],
        deps=[model, data, "scripts/visualize.py"],
        outputs=[page],
    )


def block(command: Command) -> str:
    """A command in YAML. JSON's strings are YAML's, too."""
    lines = [f"  - name: {_quoted(command.name)}", f"    help: {_quoted(command.help)}"]
    for key in ("script", "deps", "outputs"):
        lines += _list(key, getattr(command, key))
    return "\n".join(lines) + "\n"


def _list(key: str, values: Iterable[str]) -> Iterator[str]:
    lines = [f"      - {_quoted(value)}" for value in values]
    if lines:
        yield f"    {key}:"
        yield from lines


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


if __name__ == "__main__":
    main()
