"""The most memory a Python program of its own process held. Not ru_maxrss, which is at least what the process that started it
held: VmHWM, which begins anew with a program."""
import sys

_WATCH = """
import os, re, runpy, sys
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
try:
    runpy.run_path(sys.argv[0], run_name="__main__")
finally:
    with open("/proc/self/status") as file:
        print(re.search(r"VmHWM:\\s+(\\d+) kB", file.read())[1])
"""


def watched(program, *arguments):
    """A command that runs the program at a path, and then prints what `peak` reads."""
    return [sys.executable, "-c", _WATCH, str(program), *map(str, arguments)]


def peak(printed):
    """Bytes, from what such a command printed."""
    return int(printed.splitlines()[-1]) * 1024
