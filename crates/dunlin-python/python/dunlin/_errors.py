"""Exceptions. Invalid arguments raise Python's own TypeError and ValueError."""

from __future__ import annotations

import enum


class Execution(enum.Enum):
    """Whether the server executed a call that has ended with an error."""

    NOT_EXECUTED = "not_executed"
    """It was not executed, and will not be."""
    EXECUTED = "executed"
    """It was executed: the answer was lost, refused, or is an error."""
    UNKNOWN = "unknown"
    """It is not known."""


class DunlinError(Exception):
    """The base class of Dunlin's errors.

    execution: whether the server executed the call.
    is_retryable: whether repeating the same call is safe and may succeed.
    """

    execution: Execution = Execution.NOT_EXECUTED
    is_retryable: bool = False


class ConnectError(DunlinError, ConnectionError):
    """No connection could be made."""


class NoDevice(ConnectError):
    """There is no such device on this machine."""


class ServeError(DunlinError):
    """The server could not be started."""


class CallError(DunlinError):
    """A call ended without an answer."""


class DeadlineExceeded(CallError, TimeoutError):
    """There was no answer within the deadline. The server may have executed the call."""


class Expired(DeadlineExceeded):
    """The call's deadline had passed at the server."""


class ConnectionLost(CallError, ConnectionError):
    """The connection failed while the call was outstanding. The server may have executed the call."""


class NotConnected(CallError, ConnectionError):
    """There is no connection and none could be made. The call was not sent."""


class PacketLost(CallError, ConnectionError):
    """A packet of the call was lost (presets over datagrams)."""


class Unsupported(CallError):
    """The preset does not support this."""


class OwnServer(CallError):
    """A handler on a polling thread called its own server."""


class NotFound(CallError):
    """The server has nothing of this name or number."""


class UnknownHandler(NotFound):
    """The server has no such handler."""


class UnknownRegion(NotFound):
    """The server grants no region of this name."""


class TooLong(CallError):
    """The request or the answer is longer than one side accepts, or than the buffer `into`."""


class TooManyOutstanding(CallError):
    """The client's limit of outstanding asynchronous calls is reached (max_outstanding)."""


class NoMemory(CallError):
    """There is no memory for a long message."""


class Overloaded(CallError):
    """The server has reached a limit."""


class ShuttingDown(CallError):
    """The server is shutting down and did not execute the call."""


class HandlerError(CallError):
    """The handler refused the call. If a handler raises it, the caller gets it with the same code and message.

    code: a number for programs, from 0 to 2**32 - 1; message: text for people, of which 1000 bytes are sent.
    """

    execution = Execution.EXECUTED

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return f"handler error {self.code}: {self.message}"


class HandlerPanicked(CallError):
    """The handler panicked (handlers in Rust)."""


class RegionError(CallError):
    """The region does not allow the operation: out of bounds, not granted, or an atomic that is not aligned."""


class Closed(CallError):
    """The client is closed."""


class Forked(CallError):
    """The client was created, or the server started, before a fork(): connections and regions belong to the parent."""


class Unreadable(CallError):
    """This version cannot read the answer."""


def make(name: str, message: str, execution: str, is_retryable: bool, code: int) -> DunlinError:
    """Creates an exception, for the extension module."""
    kind = globals()[name]
    error = HandlerError(code, message) if kind is HandlerError else kind(message)
    error.execution = Execution(execution)
    error.is_retryable = is_retryable
    return error
