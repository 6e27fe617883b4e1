"""Test that an interrupted annotation job can be resumed, and writes every text once, in complete files."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import resource
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from archives import read_output, write_jsonl
from command_line import run_tener
from waiting import wait_until

from spacy_tener.annotate import local, output, records
from spacy_tener.annotate.local import annotate_locally
from spacy_tener.annotate.records import read_parts
from spacy_tener.errors import UserError

pytestmark = pytest.mark.integration

TEXTS = [f"王小明去了上海{n}次。" * (1 + n % 4) for n in range(300)]


@pytest.fixture
def archive(tmp_path):
    return write_jsonl(tmp_path / "in.jsonl", TEXTS)


def parts(folder):
    return {path.name: path.read_bytes() for path in folder.glob("part-*")}


def temporary_files(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".") and path.name != ".lock"]


def start_fork(command):
    process = multiprocessing.get_context("fork").Process(target=command)
    process.start()
    return process


def kill_after(seconds, command):
    """Run a command in a fork, kill it after some time, and return whether it was still running."""
    process = start_fork(command)
    process.join(seconds)
    process.kill()
    process.join()
    return process.exitcode == -signal.SIGKILL


def expect_error(message, job):
    """Return a function for a fork that runs a job. If the job raises the expected error, the exit status is 29."""

    def run():
        with pytest.raises(UserError, match=message):
            annotate_locally(job, lambda *_: None)
        os._exit(29)

    return run


def children_of(pid):
    """Return the IDs of the worker processes that a process has spawned."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"spawn_main" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def process_exists(pid):
    return os.path.exists(f"/proc/{pid}")


def test_output_parts_contain_records_once_and_in_order(tmp_path, archive, run) -> None:
    sizes = []
    total = run(
        [archive], tmp_path / "out", part_size=64, watch=lambda part, counts, is_old: sizes.append(counts.texts)
    )
    assert sizes == [64, 64, 64, 64, 44]
    assert (total.texts, total.errors, total.characters) == (300, 0, sum(map(len, TEXTS)))
    rows = read_output(tmp_path / "out")
    assert [(row["key"], row["text"]) for row in rows] == list(enumerate(TEXTS))
    assert total.entities == sum(len(row["entities"]) for row in rows)


def test_job_resumes_after_kill_at_random_time(tmp_path, archive, run, make_job) -> None:
    start = time.perf_counter()
    run([archive], tmp_path / "uninterrupted", part_size=20)
    seconds = time.perf_counter() - start
    complete, rng, killed = parts(tmp_path / "uninterrupted"), random.Random(1), 0
    assert len(complete) == 15
    out = tmp_path / "out"
    job = make_job([archive], out, part_size=20)
    for _ in range(3):
        killed += kill_after(rng.uniform(0.1, 0.5) * seconds, lambda: annotate_locally(job, lambda *_: None))
        if out.exists():
            assert parts(out).items() <= complete.items()
    assert killed
    are_old = []
    total = annotate_locally(job, lambda part, counts, is_old: are_old.append(is_old))
    assert parts(out) == complete
    assert temporary_files(out) == []
    assert total.texts == len(TEXTS)
    annotate_locally(job, lambda part, counts, is_old: are_old.append(is_old))
    assert are_old[-15:] == [True] * 15


def fork_and_pause(command, condition):
    """Run a command in a fork, and pause it when the condition is met. Return the process and its workers."""
    process = start_fork(command)
    wait_until(condition, 900)
    os.kill(process.pid, signal.SIGSTOP)
    return process, children_of(process.pid)


@pytest.mark.usefixtures("without_torch")
def test_job_stops_and_resumes_after_any_process_is_killed(tmp_path, run, make_job, ruler) -> None:
    archive, out = write_jsonl(tmp_path / "in.jsonl", TEXTS * 2), tmp_path / "out"
    run([archive], tmp_path / "uninterrupted", part_size=10, model=ruler)
    complete = parts(tmp_path / "uninterrupted")
    job = make_job([archive], out, part_size=10, processes=2, model=ruler)
    job_with_error = expect_error("A process was killed.*fewer --processes", job)
    broken, children = fork_and_pause(job_with_error, lambda: len(parts(out)) > 2)
    os.kill(children[0], signal.SIGKILL)
    os.kill(broken.pid, signal.SIGCONT)
    broken.join()
    assert broken.exitcode == 29
    before = len(parts(out))
    assert 2 < before < len(complete)

    killed, children = fork_and_pause(lambda: annotate_locally(job, lambda *_: None), lambda: len(parts(out)) > before)
    killed.kill()
    killed.join()
    wait_until(lambda: not any(map(process_exists, children)), 60)
    assert children  # On a busy machine, the second worker may start later.
    assert parts(out).items() < complete.items()

    words = ["annotate", ruler, archive, "-o", out, "-f", "jsonl", "--part-size", 10, "--processes", 1]
    assert "600 texts, 1,500 entities, 0 errors" in run_tener(*words).text
    assert parts(out) == complete
    assert temporary_files(out) == []


@pytest.mark.slow
def test_multiprocess_job_resumes_after_twenty_kills(tmp_path, run, make_job, saved) -> None:
    archive, out, rng = write_jsonl(tmp_path / "in.jsonl", TEXTS * 30), tmp_path / "out", random.Random(2)
    run([archive], tmp_path / "uninterrupted", part_size=5)
    complete = parts(tmp_path / "uninterrupted")
    job = make_job([archive], out, part_size=5, processes=2, model=saved["tener"])
    for _ in range(20):
        process, before = start_fork(lambda: annotate_locally(job, lambda *_: None)), len(parts(out))
        assert before < len(complete)
        wait_until(lambda before=before: len(parts(out)) > before, 900)
        time.sleep(rng.uniform(0, 0.3))
        process.kill()
        process.join()
        assert parts(out).items() <= complete.items()
    annotate_locally(job, lambda *_: None)
    assert parts(out) == complete


@pytest.mark.usefixtures("without_torch")
def test_error_terminates_only_worker_processes(tmp_path, archive, make_job, ruler) -> None:
    job = make_job([archive], tmp_path / "out", part_size=10, processes=2, model=ruler)
    bystander = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    bystander.start()
    children_before = children_of(os.getpid())

    def stop(*_):
        raise KeyboardInterrupt

    try:
        with pytest.raises(KeyboardInterrupt):
            annotate_locally(job, stop)
        assert children_of(os.getpid()) == children_before
        assert bystander.is_alive()
    finally:
        bystander.kill()
        bystander.join()


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_full_disk_raises_error_and_leaves_finished_parts(tmp_path, make_job, ruler, processes) -> None:
    archive, out, pad = tmp_path / "in.jsonl", tmp_path / "out", "x" * 100_000
    rows = [{"text": "去上海", "pad": pad if key == 65 else ""} for key in range(80)]
    archive.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    job = make_job([archive], out, part_size=10, processes=processes, model=ruler)

    def run_on_small_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))  # Worker processes inherit the limit.
        expect_error(r"part-00006\.jsonl: cannot be written: File too large", job)()

    process = start_fork(run_on_small_disk)
    process.join()
    assert process.exitcode == 29
    before = set(parts(out))
    assert before
    assert "part-00006.jsonl" not in before
    numbers = []
    annotate_locally(replace(job, processes=1), lambda part, _, is_old: numbers.extend([part.number] * is_old))
    assert {*numbers} <= {int(name[5:10]) for name in before}
    assert [row["pad"] for row in read_output(out)] == [row["pad"] for row in rows]
    assert temporary_files(out) == []


def test_worker_processes_keep_user_thread_count(tmp_path, archive, make_job, monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    before = dict(os.environ)
    with local._processes(make_job([archive], tmp_path / "out", processes=3)):
        assert os.environ["OMP_NUM_THREADS"] == "5"
    assert dict(os.environ) == before


def test_gpu_job_prefetches_two_parts_per_thread(tmp_path, archive, run, make_job, monkeypatch) -> None:
    run([archive], tmp_path / "uninterrupted", part_size=10)
    job, read, ahead = make_job([archive], tmp_path / "out", part_size=10), [], []
    job.annotator.gpu_id = 0
    monkeypatch.setattr(local, "use_gpu", lambda gpu_id: None)
    monkeypatch.setattr(output, "read_parts", lambda *args: (read.append(part) or part for part in read_parts(*args)))
    annotate_locally(job, lambda *_: ahead.append(len(read) - len(ahead)))
    assert max(ahead) == 4
    assert parts(tmp_path / "out") == parts(tmp_path / "uninterrupted")


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_input_files_are_opened_once(tmp_path, archive, run, monkeypatch, format) -> None:
    opened: list[str] = []

    def counted(path, mode):
        opened.append(path)
        return open(path, mode)

    monkeypatch.setattr(records, "open", counted, raising=False)
    second = write_jsonl(tmp_path / "second.jsonl", TEXTS)
    total = run([archive, second], tmp_path / "out", format, part_size=100)
    assert total.texts == 2 * len(TEXTS)
    assert opened == [str(archive), str(second)]


def test_changed_inputs_or_settings_raise_error_on_resume(tmp_path, archive, run, make_job) -> None:
    run([archive], tmp_path / "out", part_size=100)
    before = parts(tmp_path / "out")
    with pytest.raises(UserError, match="or settings: probability: was false, is true; part_size: was 100, is 50"):
        run([archive], tmp_path / "out", part_size=50, probability=True)
    more_texts = write_jsonl(tmp_path / "other.jsonl", TEXTS)
    with pytest.raises(UserError, match=r"inputs: .*other\.jsonl changed"):
        run([archive, more_texts], tmp_path / "out", part_size=100)
    archive.write_text(archive.read_text().replace("100次", "999次"))  # The size of the file does not change.
    with pytest.raises(UserError, match=r"inputs: .*in\.jsonl changed"):
        run([archive], tmp_path / "out", part_size=100)
    assert parts(tmp_path / "out") == before
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(UserError, match=r"contains files \(thesis\.txt\)"):
        run([archive], tmp_path / "mine")
    with pytest.raises(UserError, match="not a directory"):
        run([archive], archive)


def test_changed_code_raises_error_on_resume(tmp_path, archive, make_job) -> None:
    job = make_job([archive], tmp_path / "out")
    job.annotator.code = tmp_path / "own.py"
    for content, error in (("a = 1", contextlib.nullcontext()), ("a = 2", pytest.raises(UserError, match="code: "))):
        job.annotator.code.write_text(content)
        with error:
            annotate_locally(job, lambda *_: None)


def test_invalid_columns_raise_error_before_annotation(tmp_path, archive, run) -> None:
    with pytest.raises(
        UserError, match=r"no column 'body'\. Their columns are: key, text\. Choose the column with --text"
    ):
        run([archive], tmp_path / "out", text="body")
    archive.write_text('{"text": "x", "text_xentities": 1}\n')
    with pytest.raises(UserError, match="already have columns named text_x"):
        run([archive], tmp_path / "other", prefix="text_x")


def test_missing_column_raises_error_despite_damaged_rows(tmp_path, run) -> None:
    table = tmp_path / "in.csv"
    table.write_text("id,body\n1,王小明\n2,in,three\n", encoding="utf8")
    with pytest.raises(UserError, match=r"no column 'text'\. Their columns are: id, body\."):
        run([table], tmp_path / "out")
    table.write_text("id,body\n2,in,three\n", encoding="utf8")
    run([table], tmp_path / "out", text="body")
    (row,) = read_output(tmp_path / "out")
    assert "the row has 3 fields, and the header 2" in row["error"]


def test_parts_missing_from_manifest_or_disk_are_rewritten(tmp_path, archive, run) -> None:
    out = tmp_path / "out"
    run([archive], out, part_size=100)
    before = parts(out)
    manifest = json.loads((out / "_manifest.json").read_text())
    del manifest["parts"]["part-00001.jsonl"]
    (out / "_manifest.json").write_text(json.dumps(manifest))
    (out / "part-00000.jsonl").unlink()
    are_old = []
    run([archive], out, part_size=100, watch=lambda part, counts, is_old: are_old.append(is_old))
    assert are_old == [False, False, True]
    assert parts(out) == before


def test_output_directory_inside_input_is_resumed(tmp_path, archive, ruler) -> None:
    out = tmp_path / "annotated" / "out"
    words = ["annotate", ruler, tmp_path, "-o", out, "-f", "jsonl", "--part-size", 100, "--processes", 1]
    for _ in range(2):
        assert "300 texts" in run_tener(*words).text
    assert [row["key"] for row in read_output(out)] == list(range(300))
