"""The process: `main` is what the installed command `rebal` runs.

It is imported before anything else, and imports next to nothing: from here on, Ctrl-C ends the
process with one line, also while modules are being imported, and the three standard streams are
open.
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
    """The handler of Ctrl-C.

    It raises KeyboardInterrupt where the function with the code `catcher` catches it, so that files
    and terminals are left as they should be. Elsewhere it ends the process: an exception raised in
    the middle of an import or of the interpreter's own end shows as a traceback, or is lost.
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
        """Stop where KeyboardInterrupt was raised in code that cannot raise, such as `__del__`."""
        if issubclass(problem.exc_type, KeyboardInterrupt):
            self.stop()
        sys.__unraisablehook__(problem)

    def stop(self) -> NoReturn:
        """End the process at once; a forked child leaves the message to its parent."""
        if os.getpid() == self._process:
            try:  # noqa: SIM105 - contextlib would be one more import
                os.write(2, b"rebal: stopped.\n")
            except OSError:
                pass
        os._exit(_STOPPED)


def _open_standard_streams() -> None:
    """Open each standard stream that the caller closed (`>&-`), so that no file takes its number.

    A closed stdout stays one that cannot be written: the command says so. Nobody reads a closed
    stderr, so what is written to it is dropped.
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
