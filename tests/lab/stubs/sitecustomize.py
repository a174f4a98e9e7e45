"""Let test servers start with little processor time. Python reads this file by itself: the folder is on PYTHONPATH.

A start imports some thousand modules in each of three processes, 38 s of processor time in all, and nothing of them is
garbage: with Python's own threshold (700 new objects) a fifth of a start more goes into looking for some.

With LAB_START_METHOD=fork the scheduler and the detokenizer are forked from the main process, which has imported what
they need: 14 s instead of 38. Process tree, parents and signals stay as SGLang has them with "spawn", its own method.
"""

import gc
import multiprocessing
import os
import signal

gc.set_threshold(100_000, 20, 100)


def _forget_handlers() -> None:
    """A process that is spawned has none of its parent's."""
    for number in (signal.SIGCHLD, signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


if os.environ.get("LAB_START_METHOD") == "fork":
    _set_start_method = multiprocessing.set_start_method

    def _fork_instead(method: str | None, force: bool = False) -> None:
        _set_start_method("fork" if method == "spawn" else method, force)

    multiprocessing.set_start_method = _fork_instead
    os.register_at_fork(after_in_child=_forget_handlers)
