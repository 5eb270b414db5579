"""`python -m kb`, and what the installed command runs."""

import signal


def main() -> None:
    """Load the command line and run it."""
    # Ctrl-C while modules are loaded ends the process as the shell expects, without a traceback.
    is_usual = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_usual:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from kb.cli.main import main as run

    if is_usual:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    run()


if __name__ == "__main__":
    main()
