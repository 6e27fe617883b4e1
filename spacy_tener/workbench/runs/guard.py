"""Run a module as `python -m` does. When standard input is closed, kill the process group.

`processes.Processes` holds the other end of standard input, which the system closes even if that process is killed. So
no training outlives the command that began it.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading
from functools import partial


def end_with_parent() -> None:
    while os.read(0, 1024):
        pass
    if sys.platform != "win32" and os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def write_logs_by_line() -> None:
    """Make spaCy's logger flush each line for readers of the log. By default it buffers some thirty lines.

    Only in this process, which runs spaCy and nothing else: PYTHONUNBUFFERED does not reach files, and a logger of our
    own would stand in the config of every trained pipeline.
    """
    from spacy.training import loggers

    vars(loggers)["open"] = partial(open, buffering=1)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    del sys.argv[0]
    if sys.argv[0] == "spacy":
        write_logs_by_line()
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
