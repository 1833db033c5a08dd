"""A program on a pseudo-terminal: type at it, wait for what it writes, press Ctrl-C."""
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time


class Terminal:
    """stdin, stdout and stderr are one terminal, unless `stdout` or `stderr` says where they go instead.

    What the program writes gathers in `seen`; the terminal turns every \\n into \\r\\n.
    """

    def __init__(self, command, env, stdout=None, stderr=None, stdin=None):
        self.master, slave = pty.openpty()
        attributes = termios.tcgetattr(slave)
        attributes[3] &= ~termios.ECHO
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        self.seen = b""

        def own_terminal():
            os.setsid()
            import fcntl
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen(command, env=env, stdin=slave if stdin is None else stdin,
                                        stdout=slave if stdout is None else stdout,
                                        stderr=slave if stderr is None else stderr,
                                        preexec_fn=own_terminal, pass_fds=[slave])
        os.close(slave)

    def _read(self, seconds):
        """Reads what is there within `seconds`; False at the end of the output."""
        ready, _, _ = select.select([self.master], [], [], max(0, seconds))
        if not ready:
            return True
        try:
            block = os.read(self.master, 65536)
        except OSError:  # Linux says EIO when nobody holds the other end any more
            return False
        self.seen += block
        return bool(block)

    def expect(self, pattern, timeout=60):
        """Waits for the pattern; forgets everything up to its end and returns the match."""
        deadline = time.monotonic() + timeout
        more = True
        while True:
            found = re.search(pattern, self.seen)
            if found:
                self.seen = self.seen[found.end():]
                return found
            assert more, f"the output ended without {pattern!r}: {self.seen!r}"
            assert time.monotonic() < deadline, f"no {pattern!r} within {timeout} s: {self.seen!r}"
            more = self._read(deadline - time.monotonic())

    def send(self, text):
        os.write(self.master, text.encode())

    def interrupt(self):
        """Ctrl-C, as the terminal's driver sends it."""
        self.send("\x03")

    def finish(self, timeout=60):
        """Waits for the end and returns the exit code; `seen` holds the rest of the output."""
        deadline = time.monotonic() + timeout
        while self._read(deadline - time.monotonic()):
            assert time.monotonic() < deadline, f"still running after {timeout} s: {self.seen!r}"
        return self.process.wait(timeout)

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.master)
