"""Start of the process: the installed command `rebal` runs `main`.

This module is imported first and imports almost nothing. From then on Ctrl-C ends the process with
one line, also during the import of other modules, and the three standard streams are open.
"""

from __future__ import annotations

import gc
import os
import signal
import sys

TYPE_CHECKING = False  # typing itself takes milliseconds, in which Ctrl-C would be a traceback
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import CodeType, FrameType
    from typing import Any, Final, NoReturn

_STOPPED: Final = 130


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line and end the process with its exit code."""
    # A short process that builds much and drops little: searching it for cycles costs a tenth.
    gc.set_threshold(100_000)
    interrupt = _Interrupt()
    try:
        # A process that was started to ignore Ctrl-C (nohup, a job in the background) ignores it.
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, interrupt)
            sys.unraisablehook = interrupt.unraisable
        _open_standard_streams()
        from rebal.cli import app

        interrupt.catcher = app.run.__code__
        app.main(args)
    except KeyboardInterrupt:
        interrupt.stop()


class _Interrupt:
    """The handler of Ctrl-C (SIGINT).

    While the function with the code `catcher` runs, it raises KeyboardInterrupt, which that
    function catches after files and terminals are cleaned up. Otherwise, and during an import, it
    ends the process at once: there an exception would show as a traceback, or be lost.
    """

    def __init__(self) -> None:
        self.catcher: CodeType | None = None
        self._process = os.getpid()

    def __call__(self, _: int, frame: FrameType | None) -> None:
        caught = False
        while frame is not None:
            if frame.f_code.co_filename.startswith("<frozen importlib"):
                self.stop()
            caught |= frame.f_code is self.catcher
            frame = frame.f_back
        if not caught:
            self.stop()
        raise KeyboardInterrupt

    def unraisable(self, problem: Any) -> None:
        """End the process if Python dropped a KeyboardInterrupt, such as one raised in `__del__`.

        Python calls this for each exception that it cannot raise; others are reported as usual.
        """
        if issubclass(problem.exc_type, KeyboardInterrupt):
            self.stop()
        sys.__unraisablehook__(problem)

    def stop(self) -> NoReturn:
        """Print `rebal: stopped.` and end the process at once with exit code 130.

        A forked child prints nothing: its parent does.
        """
        if os.getpid() == self._process:
            try:  # noqa: SIM105 - contextlib would be one more import
                os.write(2, b"rebal: stopped.\n")
            except OSError:
                pass
        os._exit(_STOPPED)


def _open_standard_streams() -> None:
    """Open each standard stream that the caller closed (`>&-`): no file may get its descriptor.

    A closed stdout is opened for reading only, so a write to it fails and is reported. What is
    written to a closed stderr is dropped.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


if __name__ == "__main__":  # spark-submit runs a file
    main()
