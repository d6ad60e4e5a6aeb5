"""Clients: blocking calls, calls of an event loop, pipelines, regions, typed methods."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque

from . import _dunlin
from ._errors import DunlinError
from ._typed import Directory, Method


def connect(address, **settings):
    """Connects to the server at an address such as "dunlin://127.0.0.1:7400".

    preset: the preset to use, such as "flock"; "auto" by default.
    device: the only device to use, such as "shm".
    secret: bytes that both sides prove to know.
    deadline: maximum duration of a call in seconds, 10 by default.
    connect_timeout: maximum time for making a connection in seconds, 5 by default.
    max_message_bytes, max_outstanding: limits, 16 MiB and 1024 by default.
    spin: seconds that a thread polls before it sleeps, 50e-6 by default; math.inf: it never sleeps.
    """
    return Client(address, **settings)


async def connect_async(address, **settings):
    """Like connect(), without blocking the event loop."""
    return await asyncio.to_thread(Client, address, **settings)


class Client(_dunlin.Client):
    """A connection to a server, made by connect().

    Any thread and any number of event loops may use it. A lost connection is re-established by the next call, within
    that call's deadline. As a context manager it is closed at the end.
    """

    def __init__(self, address, **settings):
        self._loops = weakref.WeakKeyDictionary()
        self._directory = Directory(self)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        self.close()

    def __repr__(self):
        return f"<dunlin.Client preset={self.preset} device={self.device}>"

    def close(self):
        """Closes the connections of all threads: outstanding calls fail."""
        super().close()
        for answers in list(self._loops.values()):
            answers.close()
        self._loops.clear()

    def _answers(self):
        loop = asyncio.get_running_loop()
        answers = self._loops.get(loop)
        if answers is None:
            answers = self._loops[loop] = _Answers(self, loop)
        return answers

    def call_async(self, handler, payload=None, *, timeout=None):
        """Starts a call, and returns a future of its answer (bytes) for the running event loop.

        The payload is copied: it may be changed when this returns. Cancelling the future, or the task that awaits it,
        gives up the call; the server may have executed it.
        """
        answers = self._answers()
        return answers.begin(answers.native.call, handler, payload, timeout)

    def pipeline(self, window=64):
        """Creates a separate connection for one loop that keeps about `window` calls outstanding: see Pipeline."""
        return Pipeline(self, window)

    def attach(self, name):
        """Attaches memory of the server, to read and write it without involving its processor: see Region."""
        return Region(self, name)

    def method(self, path, request=None, response=None):
        """Returns a unary method of a typed service, such as "helloworld.Greeter/SayHello": see Method."""
        return Method(self, self._directory, path, request, response)


class _Call(asyncio.Future):
    """The future of an answer; cancelling it gives up the call."""

    _number = None
    _answers = None

    def cancel(self, msg=None):
        cancelled = super().cancel(msg)
        if cancelled and self._answers is not None:
            self._answers.cancel(self._number)
        return cancelled


class _Answers:
    """The outstanding calls of one event loop through a client."""

    def __init__(self, client, loop):
        self.native = _dunlin.Completions(client)
        self._fd = self.native.fileno()
        self._calls = {}
        self._closed = False
        # Neither keeps the other alive forever.
        self._loop = weakref.ref(loop)
        loop.add_reader(self._fd, self._take)

    def begin(self, start, *arguments):
        call = _Call(loop=self._loop())
        try:
            number = start(*arguments)
        except DunlinError as error:
            call.set_exception(error)
            return call
        call._number = number
        call._answers = self
        self._calls[number] = call
        return call

    def _take(self):
        calls = self._calls
        for number, answer, error in self.native.take():
            call = calls.pop(number, None)
            if call is None or call.done():
                continue
            if error is None:
                call.set_result(answer)
            else:
                call.set_exception(error)
        if self._closed:
            self._leave_if_over()

    def cancel(self, number):
        self._calls.pop(number, None)
        self.native.cancel(number)

    def close(self):
        """The client is closed. Leaves the loop when all calls have ended, which closing the client causes."""
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._leave_if_over)

    def _leave_if_over(self):
        self._closed = True
        if not self._calls:
            self._loop().remove_reader(self._fd)


class Pipeline(_dunlin.Pipeline):
    """A connection for one loop that keeps many calls outstanding: the highest call rate from one thread.

    It does not reconnect: when its connection is lost, each outstanding call ends with an error, and the pipeline
    cannot be used any more. Only one thread at a time may use it. Deadlines are the client's.
    """

    def __init__(self, client, window=64):
        self._window = window

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __iter__(self):
        """Yields answers until no call is outstanding: tags with bytes, or with exceptions."""
        while self.outstanding:
            yield from self.wait()

    def map(self, handler, payloads):
        """Calls a handler with each of the payloads, keeping up to `window` calls outstanding, and yields the answers
        in the order of the payloads. The first error is raised. Answers to other calls of the pipeline, from other maps
        or from submit(), are kept until they are asked for. wait() and poll() take the answers of a map, too; the map
        then raises RuntimeError. If a map is not iterated to its end, its remaining answers are discarded."""
        payloads = iter(payloads)
        waited = deque()
        over = False
        try:
            while True:
                while not over and len(waited) < self._window:
                    try:
                        payload = next(payloads)
                    except StopIteration:
                        over = True
                        break
                    waited.append(self._submit_of_map(handler, payload))
                if not waited:
                    return
                answer = self._wait_for(waited[0])
                waited.popleft()
                if isinstance(answer, DunlinError):
                    raise answer
                yield answer
        finally:
            # These answers are no longer wanted.
            self._forget(list(waited))


class Region(_dunlin.Region):
    """A region of a server's memory, made by Client.attach().

    Operations that are outstanding at the same time are not ordered, and one of more than 8 bytes is not atomic against
    others. Atomics are atomic among themselves.
    """

    def __init__(self, client, name):
        self._client = client

    def __repr__(self):
        return f"<dunlin.Region {self.name!r} of {len(self)} bytes>"

    def read_async(self, offset, length, *, timeout=None):
        """Like read(), but returns a future for the running event loop."""
        answers = self._client._answers()
        return answers.begin(answers.native.read, self, offset, length, timeout)

    def write_async(self, offset, data, *, timeout=None):
        """Like write(), but returns a future for the running event loop, whose result is empty. The data are copied."""
        answers = self._client._answers()
        return answers.begin(answers.native.write, self, offset, data, timeout)
