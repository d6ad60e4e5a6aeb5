"""What can go wrong, as classes. Arguments that are wrong in themselves are Python's own TypeError and ValueError."""

from __future__ import annotations

import enum


class Execution(enum.Enum):
    """Whether the server executed a call that has ended with an error."""

    NOT_EXECUTED = "not_executed"
    """It did not, and will not."""
    EXECUTED = "executed"
    """It did: the answer is lost, refused, or an error."""
    UNKNOWN = "unknown"
    """Nobody knows."""


class DunlinError(Exception):
    """Something was not done.

    execution: whether the server executed the call.
    is_retryable: whether the same call may well succeed when it is made again, and does no harm.
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
    """A call did not bring an answer."""


class DeadlineExceeded(CallError, TimeoutError):
    """No answer within the deadline. The server may have executed the call."""


class Expired(DeadlineExceeded):
    """The server took the call after its deadline."""


class ConnectionLost(CallError, ConnectionError):
    """The connection failed while the call was out. The server may have executed the call."""


class NotConnected(CallError, ConnectionError):
    """There is no connection and none could be made. The call was not sent."""


class PacketLost(CallError, ConnectionError):
    """A packet of the call was lost (presets over datagrams)."""


class Unsupported(CallError):
    """The preset cannot do this."""


class OwnServer(CallError):
    """A handler on a polling thread called its own server."""


class NotFound(CallError):
    """The server has nothing of this name or number."""


class UnknownHandler(NotFound):
    """The server has no such handler."""


class UnknownRegion(NotFound):
    """The server grants no region of this name."""


class TooLong(CallError):
    """The request or the answer is longer than one side takes, or than `into` has room for."""


class TooManyOutstanding(CallError):
    """More asynchronous calls than the client may have out (max_outstanding)."""


class NoMemory(CallError):
    """There is no memory for a long message."""


class Overloaded(CallError):
    """The server has reached a limit."""


class ShuttingDown(CallError):
    """The server is shutting down and did not execute the call."""


class HandlerError(CallError):
    """The handler refused: raised in a handler it goes to the caller, as what it is.

    code: a number for programs, from 0 to 2**32 - 1; message: words for people, of which 1000 bytes travel.
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
    """An operation that its region does not allow: out of bounds, not granted, an atomic that is not aligned."""


class Closed(CallError):
    """The client is closed."""


class Forked(CallError):
    """The client was made, or the server was started, before a fork(): connections and regions are the parent's."""


class Unreadable(CallError):
    """The answer is not what this version reads."""


def make(name: str, message: str, execution: str, is_retryable: bool, code: int) -> DunlinError:
    """What the extension module makes an exception by."""
    kind = globals()[name]
    error = HandlerError(code, message) if kind is HandlerError else kind(message)
    error.execution = Execution(execution)
    error.is_retryable = is_retryable
    return error
