"""Who closes what, when. A C object is closed once, after everything made from it, whether by close(), by the garbage
collector or at the end of the program, and never while the engine is at work in its cache: a collector may run in the
middle of an observer's call, or on another thread while a step has let the interpreter go.
"""
import collections
import contextlib
import threading
import weakref

from ._native import Code, Error


class Gate:
    """Lets one call at a time into a cache and what was made from it, and closes what died meanwhile when it is over."""

    def __init__(self):
        self._lock = threading.Lock()
        self._inside = None  # the thread at work
        self._dead = collections.deque()
        self._failures = []  # what observers raised during the call at work
        self._kept = {}  # by pointer: the callback the engine may call for it until it is closed

    @contextlib.contextmanager
    def enter(self):
        if self._inside == threading.get_ident():
            raise Error(Code.BAD_ARGUMENT, "an observer may not call into the cache it is called from")
        failures = []
        try:
            with self._lock:
                self._inside = threading.get_ident()
                try:
                    yield
                finally:
                    self._inside = None
                    failures, self._failures = self._failures, failures
        finally:
            self.bury()
            if failures:
                raise failures[0]

    def failed(self, error):
        self._failures.append(error)

    @property
    def failing(self):
        return bool(self._failures)

    def keep(self, pointer, callback):
        self._kept[pointer] = callback

    def close(self, destroy, pointer):
        self._dead.append((destroy, pointer))
        self.bury()

    def bury(self):
        # Where a call is at work nothing is done now: it looks again after it has let go of the lock.
        while self._dead and self._lock.acquire(blocking=False):
            try:
                while self._dead:
                    destroy, pointer = self._dead.popleft()
                    destroy(pointer)
                    self._kept.pop(pointer, None)
            finally:
                self._lock.release()


def _close(gate, destroy, pointer, parent):
    """`parent` is only held: as long as this is pending, nothing that the pointer needs is closed."""
    gate.close(destroy, pointer)


class Life:
    """The life of one C object, which ends before its parent's: by close(), or when nobody refers to it any more."""

    def __init__(self, gate, destroy, pointer, parent=None):
        self.gate = gate
        self.parent = parent
        self._held = pointer
        self._children = weakref.WeakSet()
        if parent is not None:
            parent._children.add(self)
        self._finalizer = weakref.finalize(self, _close, gate, destroy, pointer, parent)

    @property
    def over(self):
        return not self._finalizer.alive

    @property
    def pointer(self):
        if self.over:
            raise Error(Code.BAD_ARGUMENT, "this object is closed, or what it was made from")
        return self._held

    def close(self):
        if self.over:
            return
        with self.gate.enter():
            pass  # another thread's call has ended; from inside an observer this raises
        for child in list(self._children):
            child.close()
        self._finalizer()


class Handle:
    """What the public classes with a C object behind them have in common; each sets self._life."""

    @property
    def closed(self):
        return self._life.over

    @property
    def _pointer(self):
        return self._life.pointer

    @property
    def _gate(self):
        return self._life.gate

    def close(self):
        """Closes it and everything made from it. Once closed it can only be closed again."""
        self._life.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
