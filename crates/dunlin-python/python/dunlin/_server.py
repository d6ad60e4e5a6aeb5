"""Servers: handlers in Python by number, on threads or on an event loop."""

from __future__ import annotations

import asyncio
import atexit
import inspect
import logging
import operator
import os
import threading

from . import _dunlin
from ._errors import HandlerError
from ._typed import DIRECTORY, FIRST_METHOD, Typed

# Maximum delay of a signal's handler, in seconds.
_BETWEEN_SIGNALS = 0.1

_log = logging.getLogger("dunlin")

# A server runs until it is stopped, whether or not there is a reference to it; threads that run handlers must have left
# them before the interpreter ends. A forked process has no running servers.
_running: set[Server] = set()
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _stop_all():
    for server in list(_running):
        try:
            # Since Python 3.12 no new thread can be started here.
            server._end()
        except Exception:
            _log.exception("a server could not be stopped at the end of the program")


def _is_async(handler):
    """Whether the handler runs on the event loop."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)
    )


class Server(_dunlin.Server):
    """A server: it is created, given handlers and regions, started, and stopped, once each.

    device: the only device to serve; by default all that this host has.
    secret: bytes that clients must prove to know.
    workers: number of threads that run handlers that are plain functions, 4 by default.
    pollers, max_connections, max_message_bytes, spin: as in Rust (docs/calls.md).
    loop: the event loop for handlers that are `async def`; by default the one that runs when the server is started.

    `with server:` starts it if it has not been started, and stops it at the end; so does `async with server:`.
    """

    def __init__(self, address, *, workers=4, loop=None, **settings):
        if workers < 1:
            raise ValueError(f"workers is {workers}: it must be at least 1")
        self._workers = workers
        self._loop = loop
        self._handlers = {}
        self._typed = Typed()
        self._threads = []
        self._for_threads = _dunlin.Inbox()
        self._for_loop = _dunlin.Inbox()
        self._tasks = set()
        self._started = self._stopping = None
        # Held by the thread that ends the server, for which others wait.
        self._ending = threading.Lock()
        self._ended_by = None
        self._drained = False

    def __new__(cls, address, *, workers=4, loop=None, **settings):
        return super().__new__(cls, address, **settings)

    def handle(self, number, handler):
        """Adds a handler: a function that takes a Request and returns the answer (bytes-like, or None).

        A plain function runs on one of the server's threads, an `async def` on the event loop. A HandlerError is sent
        to the caller with its code; any other exception with code 0, and its traceback is logged to "dunlin".
        """
        self._handle(number, self._for_loop if _is_async(handler) else self._for_threads)
        self._handlers[number] = handler

    @property
    def _has_async(self):
        return any(map(_is_async, self._handlers.values()))

    def handler(self, number):
        """Like handle(), as a decorator."""

        def add(handler):
            self.handle(number, handler)
            return handler

        return add

    def method(self, path, request=None):
        """Adds a unary method of a typed service, as a decorator: its path, such as "helloworld.Greeter/SayHello", and
        the class of its requests. The function takes a request and returns a response, or raises Status to refuse it.
        It can be called by clients in Rust, C++ and Python that know the service."""

        def add(function):
            if not self._typed:
                self.handle(DIRECTORY, self._typed.answer)
            number = FIRST_METHOD + len(self._typed)
            self.handle(number, self._typed.add(path, number, request, function))
            return function

        return add

    def start(self):
        """Binds the port and starts the server's threads."""
        if self._has_async and self._loop is None:
            try:
                self._loop = asyncio.get_running_loop()
            except RuntimeError:
                raise RuntimeError(
                    "handlers that are `async def` need an event loop: start the server in one, or give it `loop`"
                ) from None
        self._start()
        self._started = True
        _running.add(self)
        for number in range(self._workers):
            arguments = (self._for_threads, self._handlers)
            thread = threading.Thread(
                target=_work, args=arguments, name=f"dunlin-handler-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()
        if self._has_async:
            self._on_loop(self._loop.add_reader, self._for_loop.fileno(), self._take)

    def _is_on_loop(self):
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    def _on_loop(self, function, *arguments):
        """Runs a function on the event loop, from any thread."""
        if self._is_on_loop():
            function(*arguments)
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(function, *arguments)

    def _take(self):
        for request in self._for_loop.take():
            task = self._loop.create_task(_run_async(self._handlers[request.handler], request))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def stop(self, timeout=None):
        """Stops the server: it accepts no new clients and no new requests, and answers those that it has accepted,
        within ten seconds. Returns True if everything was answered and read. Raises TimeoutError if `timeout` seconds
        were not enough; the server then continues to stop, and can be waited for again.

        If handlers run on an event loop, its thread must not wait here: use `await server.stop_async()`.
        """
        if not self._started:
            return True
        if self._ended_by == threading.get_ident():
            # Called by a signal's handler while this thread ends the server: it cannot wait for itself.
            return self._drained
        stopping = self._stopping
        if stopping is None:
            # Another thread may get here, too: the second one in _end() waits for the first.
            stopping = threading.Thread(target=self._end, name="dunlin-stop", daemon=True)
            try:
                stopping.start()
            except RuntimeError:
                # Since Python 3.12 no new thread can be started at the end of a program.
                self._end()
                return self._drained
            self._stopping = stopping
        if self._has_async and self._is_on_loop():
            raise RuntimeError(
                "the server is being stopped, but its `async def` handlers need this event loop to end: "
                "use `async with` or `await server.stop_async()`"
            )
        stopping.join(timeout)
        if stopping.is_alive():
            raise TimeoutError(f"the server has not stopped within {timeout} s and is still stopping: wait again")
        return self._drained

    def _end(self):
        """Ends the server, once; returns when it has ended, even if another thread ends it."""
        with self._ending:
            if self._ended_by is not None:
                return
            self._ended_by = threading.get_ident()
            self._drained = self._stop()
            self._for_threads.close()
            self._for_loop.close()
            if self._has_async:
                self._on_loop(self._loop.remove_reader, self._for_loop.fileno())
            for thread in self._threads:
                # A thread whose handler does not return is left behind.
                thread.join(1)
            _running.discard(self)

    async def stop_async(self):
        """Like stop(), without blocking the event loop."""
        return await asyncio.to_thread(self.stop)

    def serve_forever(self):
        """Starts the server if it has not been started, and serves until Ctrl-C or an exception in a signal's handler,
        which is raised after the server has stopped."""
        for_ever = threading.Event()
        with self:
            # A signal that arrives when the main thread is about to sleep does not wake it.
            while not for_ever.wait(_BETWEEN_SIGNALS):
                pass

    def __enter__(self):
        if not self._started:
            self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    async def __aenter__(self):
        return self.__enter__()

    async def __aexit__(self, *_):
        await self.stop_async()


def _work(inbox, handlers):
    """Runs handlers until the inbox is closed."""
    while (request := inbox.next()) is not None:
        try:
            request._reply(handlers[request.handler](request))
        except BaseException as error:
            try:
                _refuse(request, error)
            except BaseException:
                # The caller has been told; the thread must go on to serve other requests.
                pass


async def _run_async(handler, request):
    try:
        request._reply(await handler(request))
    except asyncio.CancelledError:
        request._fail(0, "the handler was cancelled")
        raise
    except BaseException as error:
        _refuse(request, error)
        if not isinstance(error, Exception):
            raise


def _refuse(request, error):
    """Reports an error to the caller, even if it cannot be converted to text."""
    code, message = 0, "the handler failed with an error that cannot be passed on"
    try:
        code, message = _told(request, error)
    except Exception:
        pass
    finally:
        try:
            request._fail(code, message)
        except RuntimeError:
            # The request was already answered, and the caller has that answer.
            pass


def _told(request, error):
    """Returns what the caller of a failed handler receives: a code, and a message that can be sent."""
    if not isinstance(error, HandlerError):
        _log.error("handler %d failed", request.handler, exc_info=error)
        return 0, f"{type(error).__name__}: {_words(error)}"
    message = _words(error.message)
    try:
        code = operator.index(error.code)
    except Exception:
        code = -1
    if not 0 <= code < 1 << 32:
        return 0, f"{message} (its code {_words(error.code)} is none: 0 to 2**32 - 1)"
    return code, message


def _words(value):
    """Converts to text that is valid UTF-8."""
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:
        return f"a {type(value).__name__} that cannot be said"
