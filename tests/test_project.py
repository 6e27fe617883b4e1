"""project.yml: its steps fit together, finished ones are skipped, and the sample's need no network."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hold_out
import make_project
import pytest
import spacy
import srsly
import typer
from spacy.cli._util import app
from spacy.tokens import DocBin
from typer.testing import CliRunner
from weasel.cli import run as weasel
from weasel.util.config import load_project_config, substitute_project_variables

import spacy_tener.cli
from spacy_tener.workbench.composing.compose import compose
from spacy_tener.workbench.report.card_sources import CORPORA

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "project.yml").read_text(encoding="utf8")
PROJECT = srsly.read_yaml(ROOT / "project.yml")
FILLED = substitute_project_variables(srsly.read_yaml(ROOT / "project.yml"))
COMMANDS = {command["name"]: command for command in FILLED["commands"]}
LICENSED = ("msra", "ontonotes4", "ontonotes5", "conll2003")
# What must be there before a workflow: trainings, or a user's own text.
BEFORE = {"package": ["all"]}
BROUGHT = {"vectors": {"assets/raw"}}
STEPS = [(name, step) for name, steps in PROJECT["workflows"].items() for step in steps]


def has(there: set[str], path: str) -> bool:
    """Whether a file is there, or something below a directory."""
    return path in there or any(each.startswith(f"{path}/") for each in there)


def test_spacy_accepts_it_and_makes_its_directories(tmp_path: Path) -> None:
    (tmp_path / "project.yml").write_text(TEXT, encoding="utf8")
    assert load_project_config(tmp_path)["commands"] == FILLED["commands"]
    assert {path.name for path in tmp_path.iterdir()} == {"project.yml", *PROJECT["directories"]}


def test_workflows_have_the_steps_of_all_commands() -> None:
    assert {step for steps in PROJECT["workflows"].values() for step in steps} == set(COMMANDS)


def test_there_is_a_workflow_for_each_corpus_and_each_purpose() -> None:
    purposes = {"all", "vectors", "grid", "ablations", "sweeps", "package"}
    assert set(PROJECT["workflows"]) == ({*CORPORA, *purposes} - {"sample"})


@pytest.mark.parametrize("workflow", PROJECT["workflows"])
def test_every_dependency_is_in_the_repository_an_asset_or_made_before(workflow: str) -> None:
    there = {asset["dest"] for asset in PROJECT["assets"]} | BROUGHT.get(workflow, set())
    for step in (step for name in [*BEFORE.get(workflow, []), workflow] for step in PROJECT["workflows"][name]):
        for path in COMMANDS[step].get("deps", []):
            assert has(there, path) or (ROOT / path).exists(), f"{step} needs {path}"
        there.update(COMMANDS[step]["outputs"])


@pytest.mark.parametrize("workflow", ["all", "sample_en"])
def test_the_sample_workflows_need_no_download(workflow: str) -> None:
    assets = {asset["dest"] for asset in PROJECT["assets"]}
    assert not assets & {path for step in PROJECT["workflows"][workflow] for path in COMMANDS[step]["deps"]}


def test_finished_steps_can_be_skipped() -> None:
    assert all(command["outputs"] and not command.get("no_skip") for command in COMMANDS.values())


def test_what_is_made_lies_in_directories_that_are_made_first() -> None:
    made = {
        path.split("/")[0] for name, command in COMMANDS.items() if "check" not in name for path in command["outputs"]
    }
    assert made - {"vectors"} == set(PROJECT["directories"])


# The commands of the corpora


def test_the_commands_of_the_corpora_are_those_that_the_script_makes() -> None:
    assert make_project.with_commands(TEXT) == TEXT, "run scripts/make_project.py"


def test_the_script_leaves_what_is_written_by_hand() -> None:
    emptied = re.sub(rf"(?s)({make_project.BEGIN}\n).*?({make_project.END})", r"\1\2", TEXT)
    assert len(emptied) < len(TEXT) / 2
    assert make_project.with_commands(emptied) == TEXT
    with pytest.raises(ValueError, match="no place for the commands"):
        make_project.with_commands(TEXT.replace(make_project.END, ""))


def test_every_corpus_has_a_config_and_known_terms() -> None:
    names = {corpus.name for corpus in make_project.CORPORA}
    assert names == set(CORPORA) == {path.stem for path in (ROOT / "configs").glob("*.cfg")}
    assert {corpus.name for corpus in make_project.CORPORA if corpus.licensed} == set(LICENSED)


@pytest.mark.parametrize("corpus", make_project.CORPORA, ids=lambda corpus: corpus.name)
def test_a_corpus_is_read_as_its_config_says(corpus: make_project.Corpus) -> None:
    config = (ROOT / "configs" / f"{corpus.name}.cfg").read_text(encoding="utf8")
    assert f'\nlang = "{corpus.lang}"\n' in config
    assert config.count("\ngold_preproc = true\n") == (2 if corpus.own_tokens else 0)
    (draw,) = COMMANDS[f"draw-{corpus.name}"]["script"]
    assert ("--gold-preproc" in draw) == corpus.own_tokens
    assert all(f"--lang {corpus.lang}" in line for line in convert_lines(corpus.name))


def convert_lines(corpus: str) -> list[str]:
    return [line for line in COMMANDS[f"convert-{corpus}"]["script"] if "tener convert" in line]


def test_the_dev_part_of_msra_is_held_out_of_train() -> None:
    *converted, divided = COMMANDS["convert-msra"]["script"]
    assert [shlex.split(line)[6] for line in converted] == ["corpus/msra/all.spacy", "corpus/msra/test.spacy"]
    assert divided.endswith("hold_out.py corpus/msra/all.spacy corpus/msra/train.spacy corpus/msra/dev.spacy")


CHARACTERS = "王 B-PER\n明 E-PER\n来 O\n\n" * 10
CONLL_2012 = """#begin document (nw/a/00/a_0001); part 000
nw/a/00/a_0001  0  0  Eli  NNP  (TOP(S(NP*  -  -  -  -  (PERSON*  -
nw/a/00/a_0001  0  1  Broad  NNP  *))  -  -  -  -  *)  -

#end document
"""
CONTENTS = {
    "weibo": "王0\tB-PER.NAM\n明1\tI-PER.NAM\n来0\tO\n\n",
    "sample_en": "Eli B-PER\nBroad I-PER\nspoke O\n\n",
    "wnut17": "Eli\tB-person\nBroad\tI-person\nspoke\tO\n\n",
    "conll2003": "-DOCSTART- -X- O O\n\nEli NNP I-NP I-PER\nBroad NNP I-NP I-PER\nspoke VBD I-VP O\n\n",
    "ontonotes5": CONLL_2012,
}


@pytest.mark.parametrize("corpus", make_project.CORPORA, ids=lambda corpus: corpus.name)
def test_a_corpus_at_its_place_is_converted(
    corpus: make_project.Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in corpus.assets:
        file = Path(path) if Path(path).suffix else Path(path) / "annotations" / "nw" / "a.gold_conll"
        make(file, CONTENTS.get(corpus.name, CHARACTERS))
    for line in COMMANDS[f"convert-{corpus.name}"]["script"]:
        words = shlex.split(line)
        if words[1] == "scripts/hold_out.py":
            hold_out.main(words[2:])
        else:
            result = CliRunner().invoke(app, words[3:])
            assert result.exit_code == 0, result.output
    for path in COMMANDS[f"convert-{corpus.name}"]["outputs"]:
        docs = list(DocBin().from_disk(path).get_docs(spacy.blank(corpus.lang).vocab))
        names = {doc.ents[0].text for doc in docs}
        assert names == {"王明" if corpus.lang == "zh" else "Eli Broad"}


# What the commands call


def lines() -> Iterator[tuple[str, list[str]]]:
    for name, command in COMMANDS.items():
        for line in command["script"]:
            yield name, shlex.split(line)


OURS = [(name, words[4:]) for name, words in lines() if words[:4] == ["python", "-m", "spacy", "tener"]]


@pytest.mark.parametrize(("name", "words"), OURS, ids=lambda value: value if isinstance(value, str) else value[0])
def test_every_option_exists(name: str, words: list[str]) -> None:
    group: Any = typer.main.get_command(spacy_tener.cli.tener_cli)
    command = group.commands[words[0]]
    assert command.make_context(words[0], list(words[1:])).params


def test_every_script_exists() -> None:
    scripts = {words[1] for _, words in lines() if words[1] != "-m"}
    assert len(scripts) == 3
    assert all((ROOT / script).is_file() for script in scripts)


@pytest.mark.parametrize(
    "names", ["systems", "ablations_zh", "ablations_en", "sweep_k", "sweep_alpha", "baseline", "system"]
)
def test_every_system_is_an_overlay(names: str) -> None:
    overlays = {name for system in PROJECT["vars"][names].split(",") for name in system.split("+")} - {"tener"}
    assert all((ROOT / "configs" / "models" / f"{name}.cfg").is_file() for name in overlays)


def test_every_ablation_is_made_and_every_point_of_the_sweeps() -> None:
    names = ("ablations_zh", "ablations_en", "sweep_k", "sweep_alpha")
    made = {system.split("+")[-1] for name in names for system in PROJECT["vars"][name].split(",")}
    models = (ROOT / "configs" / "models").glob("*.cfg")
    assert made == {path.stem for path in models if re.match(r"(flat-atssa|mect|grn)(-|$)", path.stem)}


@pytest.mark.parametrize(("names", "setting"), [("sweep_k", "k"), ("sweep_alpha", "alpha")])
def test_a_sweep_goes_through_values_in_their_order(names: str, setting: str) -> None:
    configs, values = ROOT / "configs", []
    for system in PROJECT["vars"][names].split(","):
        overlays = [configs / "models" / f"{name}.cfg" for name in system.split("+")]
        tok2vec = compose(configs / "resume.cfg", overlays).config["components"]["tener_ner"]["model"]["tok2vec"]
        values.append(tok2vec[setting])
    assert values == sorted(set(values))
    assert len(values) == 6


def test_one_variable_says_whether_there_is_a_gpu() -> None:
    on_gpu = substitute_project_variables(srsly.read_yaml(ROOT / "project.yml"), {"vars.gpu": 0})
    called = [line for command in on_gpu["commands"] for line in command["script"] if "--gpu-id" in line]
    assert len(called) == len(CORPORA) + 5
    assert all("--gpu-id 0" in line for line in called)


# Running


class StoppedError(Exception):
    """What a command that fails raises here; the real ones end the process."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The project in a place of its own, whose commands only make their outputs. It lists what ran in `ran`."""
    for path in {path for command in COMMANDS.values() for path in command.get("deps", [])}:
        if (ROOT / path).is_dir():
            (tmp_path / path).mkdir(parents=True, exist_ok=True)
        elif (ROOT / path).is_file():
            make(tmp_path / path, "given")
    for path in {asset["dest"] for asset in PROJECT["assets"]}.union(*BROUGHT.values()):
        make(tmp_path / path, "given")

    def pretend(script: Sequence[str], **_: Any) -> None:
        (command,) = [command for command in COMMANDS.values() if command["script"] == script]
        if (tmp_path / "broken").exists() and command["name"] == (tmp_path / "broken").read_text(encoding="utf8"):
            raise StoppedError
        with (tmp_path / "ran").open("a", encoding="utf8") as ran:
            ran.write(f"{command['name']}\n")
        for path in command["outputs"]:
            make(tmp_path / path, "made")

    monkeypatch.setattr(weasel, "run_commands", pretend)
    # Reading project.yml anew for each step takes longer than everything else here.
    monkeypatch.setattr(weasel, "load_project_config", lambda *_, **__: FILLED)
    return tmp_path


def make(path: Path, text: str) -> None:
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf8")


def ran(project: Path) -> list[str]:
    """What ran since this was last asked."""
    path = project / "ran"
    names = path.read_text(encoding="utf8").split() if path.exists() else []
    path.unlink(missing_ok=True)
    return names


@pytest.mark.parametrize("workflow", [name for name in PROJECT["workflows"] if name not in BEFORE])
def test_a_second_run_does_nothing_and_says_so(workflow: str, project: Path, capsys: pytest.CaptureFixture) -> None:
    steps = PROJECT["workflows"][workflow]
    weasel.project_run(project, workflow)
    assert ran(project) == steps
    capsys.readouterr()
    weasel.project_run(project, workflow)
    assert ran(project) == []
    printed = capsys.readouterr().out
    assert all(f"Skipping '{step}': nothing changed" in printed for step in steps)


def test_an_interrupted_workflow_goes_on_with_the_step_that_stopped(project: Path) -> None:
    (project / "broken").write_text("train-weibo", encoding="utf8")
    with pytest.raises(StoppedError):
        weasel.project_run(project, "weibo")
    assert ran(project) == ["convert-weibo"]
    (project / "broken").unlink()
    weasel.project_run(project, "weibo")
    assert ran(project) == ["train-weibo", "draw-weibo"]


def test_a_changed_config_trains_again_and_new_data_converts_again(project: Path) -> None:
    weasel.project_run(project, "weibo")
    ran(project)
    (project / "configs" / "weibo.cfg").write_text("other", encoding="utf8")
    weasel.project_run(project, "weibo")
    assert ran(project) == ["train-weibo"]
    (project / "assets" / "weibo" / "weiboNER_2nd_conll.dev").write_text("other", encoding="utf8")
    weasel.project_run(project, "weibo")
    assert ran(project) == ["convert-weibo"]


def test_one_corpus_does_not_undo_another(project: Path) -> None:
    for workflow in ("weibo", "resume", "all"):
        weasel.project_run(project, workflow)
    ran(project)
    for workflow in ("weibo", "resume", "all"):
        weasel.project_run(project, workflow)
    assert ran(project) == []


# Assets


@pytest.mark.parametrize("corpus", LICENSED)
def test_licensed_files_are_looked_for_again_when_one_of_them_is_gone(corpus: str, project: Path) -> None:
    weasel.project_run(project, corpus)
    assert ran(project)[0] == f"check-{corpus}"
    (project / COMMANDS[f"check-{corpus}"]["outputs"][-1]).unlink()
    weasel.project_run(project, f"check-{corpus}")
    assert ran(project) == [f"check-{corpus}"]


@pytest.mark.parametrize("corpus", LICENSED)
def test_licensed_files_say_what_they_are_and_have_no_address(corpus: str) -> None:
    assets = {asset["dest"]: asset for asset in PROJECT["assets"]}
    readme = (ROOT / "assets" / "README.md").read_text(encoding="utf8")
    for path in COMMANDS[f"check-{corpus}"]["outputs"]:
        assert "url" not in assets[path]
        assert len(assets[path]["description"]) > 40
        assert f"`{path.split('/')[-1]}" in readme or f"`{path.removeprefix('assets/')}" in readme


PUBLIC = [asset for asset in PROJECT["assets"] if "url" in asset]


def test_public_files_have_checksums() -> None:
    assert len(PUBLIC) == 9
    assert all(re.fullmatch(r"[0-9a-f]{32}", asset["checksum"]) for asset in PUBLIC)


@pytest.mark.corpora
@pytest.mark.parametrize("asset", PUBLIC, ids=lambda asset: Path(asset["dest"]).name)
def test_assets_have_the_checksums_of_the_project(asset: dict[str, str]) -> None:
    data = (ROOT / asset["dest"]).read_bytes()
    assert hashlib.md5(data, usedforsecurity=False).hexdigest() == asset["checksum"]
