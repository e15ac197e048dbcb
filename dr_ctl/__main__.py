"""`dr-ctl`, and `python -m dr_ctl`: a signal that comes while modules load waits for who ends the command in words."""

import signal


def main() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    from dr_ctl.cli import app  # noqa: PLC0415 - the signals are held back by now

    app.main()


if __name__ == "__main__":
    main()
