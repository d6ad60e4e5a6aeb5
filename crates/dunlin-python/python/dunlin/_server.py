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

# Seconds that a signal waits for its handler at most.
_BETWEEN_SIGNALS = 0.1

_log = logging.getLogger("dunlin")

# A server runs until it is stopped, whether anybody holds it or not; threads that run handlers must have left them
# before the interpreter goes. In a forked process there are none.
_running: set[Server] = set()
os.register_at_fork(after_in_child=_running.clear)


@atexit.register
def _stop_all():
    for server in list(_running):
        try:
            # Since Python 3.12 no thread begins any more here.
            server._end()
        except Exception:
            _log.exception("a server could not be stopped at the end of the program")


def _is_async(handler):
    """Whether it is called on the event loop."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(
        getattr(handler, "__call__", None)
    )


class Server(_dunlin.Server):
    """A server: it is made, given handlers and regions, started, and stopped, once each.

    device: serves over this device alone; all that this host has unless it is given.
    secret: bytes that clients must prove to know.
    workers: threads that run handlers which are plain functions, 4 by default.
    pollers, max_connections, max_message_bytes, spin: as in Rust (docs/calls.md).
    loop: the event loop for handlers that are `async def`; that which runs when the server is started.

    `with server:` starts it, unless that has been done, and stops it at the end; so does `async with server:`.
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
        # Held while the server ends, by the thread that ends it: others wait for that.
        self._ending = threading.Lock()
        self._ended_by = None
        self._drained = False

    def __new__(cls, address, *, workers=4, loop=None, **settings):
        return super().__new__(cls, address, **settings)

    def handle(self, number, handler):
        """Adds a handler: a function of a Request whose result (bytes-like, or None) is the answer.

        A plain function runs on one of the server's threads, an `async def` on the event loop. HandlerError goes to the
        caller with its code; any other exception with code 0, and with its traceback to the log "dunlin".
        """
        self._handle(number, self._for_loop if _is_async(handler) else self._for_threads)
        self._handlers[number] = handler

    @property
    def _has_async(self):
        return any(map(_is_async, self._handlers.values()))

    def handler(self, number):
        """As handle(), as a decorator."""

        def add(handler):
            self.handle(number, handler)
            return handler

        return add

    def method(self, path, request=None):
        """Adds a unary method of a typed service, as a decorator: "helloworld.Greeter/SayHello" and the class of its
        requests. The function gets a request, and returns a response; raise Status to refuse. Clients in Rust, C++ and
        Python that know the service call it."""

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
        """Does something on the event loop, whichever thread this is."""
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
        """Stops the server: it takes no new clients and no new requests, and answers what it has taken, within ten
        seconds. True: everything was answered and read. Raises TimeoutError when `timeout` seconds were not enough; it
        goes on stopping then, and can be waited for again.

        Where handlers run on an event loop, that thread must not wait here: `await server.stop_async()`.
        """
        if not self._started:
            return True
        if self._ended_by == threading.get_ident():
            # A signal's handler, while this thread ends the server: it cannot wait for that.
            return self._drained
        stopping = self._stopping
        if stopping is None:
            # Another thread may have come here, too: who is second in _end() waits for the first.
            stopping = threading.Thread(target=self._end, name="dunlin-stop", daemon=True)
            try:
                stopping.start()
            except RuntimeError:
                # Since Python 3.12 no thread begins any more at the end of a program.
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
            raise TimeoutError(f"the server has not stopped within {timeout} s, and goes on: wait again")
        return self._drained

    def _end(self):
        """Ends the server, once; returns when it has ended, whoever does it."""
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
                # One whose handler does not return is left behind.
                thread.join(1)
            _running.discard(self)

    async def stop_async(self):
        """As stop(), without blocking the event loop."""
        return await asyncio.to_thread(self.stop)

    def serve_forever(self):
        """Starts the server unless that has been done, and serves until Ctrl-C or an exception of a signal's handler,
        which is raised when the server has stopped."""
        for_ever = threading.Event()
        with self:
            # A signal that comes when the main thread is about to sleep does not wake it.
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
                # Its caller has been told; the thread is for others' requests, too.
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
    """Tells the caller, whatever the error is made of."""
    code, message = 0, "the handler failed with an error that cannot be passed on"
    try:
        code, message = _told(request, error)
    except Exception:
        pass
    finally:
        try:
            request._fail(code, message)
        except RuntimeError:
            # It was answered, and that is what its caller has.
            pass


def _told(request, error):
    """What the caller of a handler that failed is told: a number and words that can travel."""
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
    """As text that is UTF-8."""
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:
        return f"a {type(value).__name__} that cannot be said"
