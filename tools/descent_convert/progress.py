"""What a person sees of the programs here: mistakes in the arguments, a bar while a file is written, the line it ends with, the
exit status."""

import argparse
import signal
import sys

from .errors import ConvertError

_SHOW_FROM = 64 << 20
_BAR = 30


class Parser(argparse.ArgumentParser):
    def error(self, message):
        note(self.prog, f"{message} (--help lists the options)")
        sys.exit(2)


def meter(total):
    """A function to be told of every n bytes of `total`: it draws a bar on a terminal when there is something to wait for;
    elsewhere nothing."""
    if total < _SHOW_FROM or not sys.stderr.isatty():
        return lambda n: None
    done = 0

    def more(n):
        nonlocal done
        done += n
        end = "\n" if done >= total else ""
        bar = "#" * (_BAR * done // total)
        print(f"\r[{bar:{_BAR}}] {100 * done // total:3d}% of {total / 1e6:.0f} MB", end=end, file=sys.stderr, flush=True)

    return more


def note(program, text):
    print(f"{program}: {text}", file=sys.stderr)


def _stop(number, frame):
    raise SystemExit(128 + number)


def run(program, work):
    """Prints the line work() returns, or what was wrong; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="backslashreplace")
    for stopped in (signal.SIGTERM, signal.SIGHUP):  # so that the unfinished file is removed
        if signal.getsignal(stopped) is not signal.SIG_IGN:  # as nohup leaves it
            signal.signal(stopped, _stop)
    try:
        print(work())
    except ConvertError as e:
        note(program, e)
    except OSError as e:
        note(program, f"{e.filename}: {e.strerror}" if e.filename else e.strerror or str(e))
    except MemoryError:
        note(program, "not enough memory")
    except KeyboardInterrupt:
        return 130
    else:
        return 0
    return 1
