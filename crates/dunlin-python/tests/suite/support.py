"""What the tests share: the server in Rust that `tests/python.rs` has started, and processes."""

import os
import signal
import subprocess
import sys
import threading
import time

import dunlin

RUST = os.environ["DUNLIN_RUST_SERVER"]
"""Address of a server in Rust with the handlers below."""
ECHO, DIVIDE, HOLD, HELD, LONG = 1, 2, 3, 4, 5
"""HOLD never answers, HELD says how many calls are held, LONG answers with as many bytes as it is asked for."""

BOUND = 60
"""Seconds, far beyond what anything here takes."""
HERE = os.path.dirname(os.path.abspath(__file__))


def connect(address, **settings):
    """A client with bounds for a machine that is busy with others."""
    return dunlin.connect(address, **{"connect_timeout": BOUND, "deadline": BOUND, **settings})


def until(condition, what):
    """Waits for a condition."""
    end = time.monotonic() + BOUND
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"not within {BOUND} s: {what}")
        time.sleep(0.005)


class Process:
    """A program of Python's, with its lines."""

    def __init__(self, *arguments, stderr=None):
        # What a shell has put in the background ignores interrupts, and so would its children.
        before = signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            self.process = subprocess.Popen(
                [sys.executable, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=HERE,
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def line(self):
        line = []
        reader = threading.Thread(target=lambda: line.append(self.process.stdout.readline()), daemon=True)
        reader.start()
        reader.join(BOUND)
        if not line:
            raise AssertionError("the program says nothing")
        return line[0].strip()

    def interrupt(self):
        self.process.send_signal(signal.SIGINT)

    def ended(self):
        """Its exit code, when it has ended by itself."""
        return self.process.wait(BOUND)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.process.stdin.close()
        self.process.stdout.close()


class ServerProcess(Process):
    """serve.py, listening."""

    def __init__(self, address="dunlin://127.0.0.1:0"):
        super().__init__("serve.py", address)
        self.address = self.line()
