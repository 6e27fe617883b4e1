"""Self-training: rounds of real trainings, what they learn from, and going on after a stop."""

import json
import shutil

import pytest
from made_trainings import make_config, needs_code, sentences, tener, write_corpus
from spacy.cli._util import app
from thinc.api import Config
from typer.testing import CliRunner

import spacy_tener.cli  # noqa: F401  (adds the command to the group)
import spacy_tener.workbench.teaching.self_training as module
from spacy_tener.errors import RemedyError
from spacy_tener.workbench.runs.processes import Processes
from spacy_tener.workbench.runs.training import TrainingResult
from spacy_tener.workbench.teaching.self_training import Plan, Round, Told, config_of, self_train
from spacy_tener.workbench.teaching.silver import Sureness


@pytest.fixture
def corpus(tmp_path):
    write_corpus(tmp_path / "train.spacy", 8)
    write_corpus(tmp_path / "dev.spacy")
    make_config(tmp_path, tener()).to_disk(tmp_path / "config.cfg")
    (tmp_path / "raw.txt").write_text("\n".join(text for text, _ in sentences()), encoding="utf8")
    return tmp_path


def test_the_command_trains_annotates_and_trains_on_both(corpus):
    arguments = ["tener", "self-train", "config.cfg", "raw.txt", "-o", "out", "--seeds", "1", "--rounds", "1"]
    arguments = [str(corpus / each) if each in ("config.cfg", "raw.txt", "out") else each for each in arguments]
    result = CliRunner(env={"WASABI_LOG_FRIENDLY": "1"}).invoke(
        app, [*arguments, "--weight", "0.5", "--sure", "0.6", *needs_code(corpus)]
    )
    assert result.exit_code == 0, result.output
    assert "round 1: F1" in result.output
    read = Config().from_disk(corpus / "out/round-1/1/config.cfg", interpolate=False)["corpora"]["train"]
    assert read["readers"]["gold"]["path"] == "${paths.train}"
    assert read["weights"] == {"silver": 0.5}
    assert (corpus / "out/round-1/silver/part-00000.spacy").is_file()
    assert (corpus / "out/model-best/meta.json").is_file()


def test_silver_annotation_goes_on_unless_the_raw_text_has_changed(corpus, saved):
    plan = Plan(
        make_config(corpus, tener()), corpus / "out", [1], 1, lambda: ["北京"], [str(corpus / "raw.txt")], Sureness()
    )
    shutil.copytree(saved["tener"], corpus / "out/round-0/1/model-best")
    made = []
    told = Told(lambda *_: None, lambda _, made_before: made.append(made_before), lambda *_: None)
    for _ in range(2):
        module._annotate(plan, Round(0, {1: 0.5}), 1, told)
    assert made == [False, True]
    (corpus / "raw.txt").write_text("上海", encoding="utf8")
    with pytest.raises(RemedyError, match=r"raw\.txt has changed"):
        module._annotate(plan, Round(0, {1: 0.5}), 1, told)


def test_texts_that_come_only_once_are_refused(corpus):
    arguments = ["tener", "self-train", str(corpus / "config.cfg"), "-", "-o", str(corpus / "out")]
    result = CliRunner(env={"WASABI_LOG_FRIENDLY": "1"}).invoke(app, [*arguments, *needs_code(corpus)], input="北京\n")
    assert result.exit_code == 1
    assert "-: can be read only once" in result.output


@pytest.fixture
def plan(corpus, monkeypatch):
    """Makes plans whose trainings give these scores on dev, and notes what is trained and annotated."""
    happened = []

    def make(*scores, rounds=3):
        left = iter(scores)

        def train(processes, config, folder, **options):
            score = next(left)
            happened.append((folder.parent.name, folder.name))
            (folder / "model-best").mkdir(parents=True)
            (folder / "model-best" / "meta.json").write_text(json.dumps(score))
            (folder / "metrics-dev.json").write_text(json.dumps({"ents_f": score}))
            config.to_disk(folder / "config.cfg", interpolate=False)
            return TrainingResult(score)

        def annotate(plan, best, number, told):
            happened.append((f"round-{number}", f"by round {best.number}"))

        monkeypatch.setattr(module, "train", train)
        monkeypatch.setattr(module, "_annotate", annotate)
        config = make_config(corpus, tener())
        return Plan(config, corpus / "out", [1, 2], rounds, lambda: ["北京"], ["raw"], Sureness())

    return make, happened


def run(plan):
    return self_train(plan, Processes(), Told(lambda *_: None, lambda *_: None, lambda *_: None))


def test_it_ends_when_dev_stops_rising_and_keeps_the_best_model_of_the_best_round(plan, corpus):
    make, happened = plan
    best = run(make(0.5, 0.6, 0.7, 0.6, 0.6, 0.65))
    assert (best.number, best.best_seed) == (1, 1)
    assert json.loads((corpus / "out/model-best/meta.json").read_text()) == 0.7
    rounds = [each for each in happened if each[1].startswith("by")]
    assert rounds == [("round-1", "by round 0"), ("round-2", "by round 1")]


def test_the_same_call_goes_on_behind_what_is_finished(plan):
    make, happened = plan
    with pytest.raises(StopIteration):
        run(make(0.5, 0.6, 0.7))
    happened.clear()
    assert run(make(0.8, 0.7, 0.7)).number == 1
    assert [each for each in happened if not each[1].startswith("by")] == [
        *[("round-1", "2"), ("round-2", "1"), ("round-2", "2")]
    ]


def test_finished_trainings_of_another_config_are_not_taken_over(plan, corpus):
    make, _ = plan
    run(make(0.5, 0.6, 0.4, 0.4))
    changed = make(0.5, 0.6)
    changed.config["training"]["max_steps"] = 14
    with pytest.raises(RemedyError, match=r"was trained otherwise \(training.max_steps: was \d+, is 14\)"):
        run(changed)


def test_finished_trainings_on_other_data_are_not_taken_over(plan, corpus):
    make, _ = plan
    run(make(0.5, 0.6, 0.4, 0.4))
    train = corpus / "train.spacy"
    train.write_bytes(train.read_bytes() + b" ")
    with pytest.raises(RemedyError, match=r"was trained otherwise \((corpora.train.path|paths.train): was .*train"):
        run(make(0.5, 0.6))


def test_the_seed_and_the_readers_are_all_that_a_round_changes(plan):
    made = plan[0]()
    first, later = config_of(made, 0, 2), config_of(made, 1, 2)
    assert first["system"]["seed"] == first["training"]["seed"] == 2
    later["corpora"]["train"] = first["corpora"]["train"]
    assert later == first
