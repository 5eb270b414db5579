"""`python -m kb`, and what the installed command runs."""

import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` finds modules in the working folder first: a project's own `yaml.py` would be run.
    _here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    try:
        if sys.path[0] == os.getcwd() != _here:
            del sys.path[0]
    except OSError:  # a folder that was removed holds nothing
        pass

import atexit
import gc
import signal
import threading
from typing import NoReturn


def main() -> NoReturn:
    """Load the command line and run it."""
    # Ctrl-C while modules are loaded ends the process as the shell expects, without a traceback.
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    # What is loaded stays: looking for garbage in it takes a twentieth of the time. `kb.cli.main`
    # lets it be looked for again.
    gc.disable()
    # numpy's threads compute no product here that is worth waking them, and wait by spinning:
    # 25 ms of the processor at each start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from kb.cli.main import main as run

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        run()
    except SystemExit as ended:
        _leave(ended)


def _leave(ended: SystemExit) -> NoReturn:
    """End the process without taking its modules apart, which takes 30 to 60 ms of the processor.

    Where other threads go on, or a profiler waits for the end, it ends as usual.
    """
    if threading.active_count() > 1 or sys.getprofile() or not isinstance(ended.code, int):
        raise ended
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(ended.code)


if __name__ == "__main__":
    main()
