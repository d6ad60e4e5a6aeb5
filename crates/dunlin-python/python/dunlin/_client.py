"""Clients: calls that wait, calls of an event loop, pipelines, regions, typed methods."""

from __future__ import annotations

import asyncio
import weakref
from collections import deque

from . import _dunlin
from ._errors import DunlinError
from ._typed import Directory, Method


def connect(address, **settings):
    """Connects to the server at an address such as "dunlin://127.0.0.1:7400".

    preset: the composition to use, such as "flock"; "auto" unless it is given.
    device: uses this device or fails, such as "shm".
    secret: bytes that both sides prove to know.
    deadline: seconds that a call may take, 10 by default.
    connect_timeout: seconds that making a connection may take, 5 by default.
    max_message_bytes, max_outstanding: limits, 16 MiB and 1024 by default.
    spin: seconds that a thread polls before it sleeps, 50e-6 by default; math.inf: it never sleeps.
    """
    return Client(address, **settings)


async def connect_async(address, **settings):
    """As connect(), without blocking the event loop."""
    return await asyncio.to_thread(Client, address, **settings)


class Client(_dunlin.Client):
    """A connection to a server, made by connect().

    Any thread and any number of event loops may use it. A connection that is lost is made anew by the next call, within
    that call's deadline. Used as a context manager it is closed at the end.
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
        """Closes the connections of all threads: calls that are out fail."""
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
        """Begins a call, and returns a future of its answer (bytes) for the running event loop.

        The payload is taken now: it may be changed when this returns. Cancelling the future, or the task that awaits
        it, gives the call up; the server may have executed it.
        """
        answers = self._answers()
        return answers.begin(answers.native.call, handler, payload, timeout)

    def pipeline(self, window=64):
        """A connection of its own for one loop that keeps about `window` calls out: see Pipeline."""
        return Pipeline(self, window)

    def attach(self, name):
        """Memory of the server, to be read and written past its processor: see Region."""
        return Region(self, name)

    def method(self, path, request=None, response=None):
        """A unary method of a typed service, such as "helloworld.Greeter/SayHello": see Method."""
        return Method(self, self._directory, path, request, response)


class _Call(asyncio.Future):
    """An answer to come, which gives its call up when it is cancelled."""

    _number = None
    _answers = None

    def cancel(self, msg=None):
        cancelled = super().cancel(msg)
        if cancelled and self._answers is not None:
            self._answers.cancel(self._number)
        return cancelled


class _Answers:
    """What one event loop has out by a client."""

    def __init__(self, client, loop):
        self.native = _dunlin.Completions(client)
        self._fd = self.native.fileno()
        self._calls = {}
        self._closed = False
        # Neither holds the other for ever.
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
        """The client is closed. The loop is left when what was out has ended, which it does by the client's end."""
        loop = self._loop()
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._leave_if_over)

    def _leave_if_over(self):
        self._closed = True
        if not self._calls:
            self._loop().remove_reader(self._fd)


class Pipeline(_dunlin.Pipeline):
    """A connection for one loop that keeps many calls out: the most calls a second from one thread.

    It does not reconnect: when its connection is lost, each call that is out ends with an error, and the pipeline is of
    no more use. One thread at a time may use it. Deadlines are the client's.
    """

    def __init__(self, client, window=64):
        self._window = window

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __iter__(self):
        """Answers until nothing is out: tags with bytes, or with exceptions."""
        while self.outstanding:
            yield from self.wait()

    def map(self, handler, payloads):
        """Calls a handler with each of the payloads, with so many calls out as the pipeline has, and yields the answers
        in the order of the payloads. The first error is raised. What else the pipeline has out, for other maps or by
        submit(), is left to who asks for it; wait() and poll() take a map's answers, too, and it raises RuntimeError
        then. Of a map that is not asked to its end the answers that are left are thrown away."""
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
            # Nobody asks for these any more.
            self._forget(list(waited))


class Region(_dunlin.Region):
    """A region of a server's memory, made by Client.attach().

    Operations that are out at the same time happen in no particular order, and one of more than 8 bytes is not atomic
    against others. Atomics are atomic among themselves.
    """

    def __init__(self, client, name):
        self._client = client

    def __repr__(self):
        return f"<dunlin.Region {self.name!r} of {len(self)} bytes>"

    def read_async(self, offset, length, *, timeout=None):
        """As read(), as a future for the running event loop."""
        answers = self._client._answers()
        return answers.begin(answers.native.read, self, offset, length, timeout)

    def write_async(self, offset, data, *, timeout=None):
        """As write(), as a future for the running event loop, of no bytes. The data are taken now."""
        answers = self._client._answers()
        return answers.begin(answers.native.write, self, offset, data, timeout)
