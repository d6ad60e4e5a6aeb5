"""Unary methods of typed services: the wire format of docs/services.md, for messages that encode themselves.

Messages are instances of generated protobuf classes, or of any class with SerializeToString() and FromString(); without
a class they are bytes.
"""

from __future__ import annotations

import enum
import inspect
import struct
import threading
import time

from ._errors import DeadlineExceeded, DunlinError, Execution, HandlerError, UnknownHandler

DIRECTORY = 1024
FIRST_METHOD = 1032
_QUESTION = b"DLN\x01" + struct.pack("<HHQ", 1, 1, 0)
_HAS_HEADER = 1
_DEADLINE, _METADATA = 1, 2
_MESSAGE, _MESSAGE_WITH_HEADER, _STATUS, _OTHER_METHOD = 0, 1, 2, 3
_UNARY = 0
# Seconds for which a method that the server lacks is not asked for again: a restarted server may have it.
_DIRECTORY_AGE = 1


class Code(enum.IntEnum):
    """The result of a call: gRPC's codes."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class Status(DunlinError):
    """What a typed method returns instead of a response: gRPC's code, a message, details (bytes for programs).

    Errors of the transport are raised unchanged (ConnectionLost, DeadlineExceeded, ...)."""

    def __init__(self, code, message="", details=b""):
        super().__init__(code, message)
        self.code = Code(code)
        self.message = message
        self.details = details

    def __str__(self):
        return f"{self.code.name}: {self.message}"


def _varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _counted(data):
    return _varint(len(data)) + data


class _Reader:
    """Reads bytes received from a peer, in order; raises ValueError if they are truncated."""

    def __init__(self, data):
        self.rest = memoryview(data)

    def bytes(self, length):
        if length > len(self.rest):
            raise ValueError("truncated")
        taken, self.rest = self.rest[:length], self.rest[length:]
        return taken

    def byte(self):
        return self.bytes(1)[0]

    def number(self):
        value = 0
        for shift in range(0, 70, 7):
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise ValueError("a number of more than 64 bits")

    def counted(self):
        return self.bytes(self.number())

    def words(self):
        return str(self.counted(), "utf-8", "replace")


def _path(path):
    """Converts a path to its form on the wire."""
    path = path if path.startswith("/") else "/" + path
    if path.count("/") != 2 or path.endswith("/") or path.startswith("//"):
        raise ValueError(f"invalid method {path!r}: write package.Service/Method")
    return path


def check(path):
    """The check of a method's name, which is sent with each request: FNV-1a, folded to 24 bits."""
    value = 0x811C9DC5
    for byte in path.encode():
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return (value ^ value >> 24) << 8 & 0xFFFFFFFF


def _read_directory(answer):
    """Decodes a directory: numbers and kinds of methods by path."""
    try:
        reader = _Reader(answer)
        form = reader.byte()
        version, oldest, newest = struct.unpack("<HHH", reader.bytes(6))
        if form != 1 or version != 1:
            raise _status(
                Code.FAILED_PRECONDITION,
                f"the server supports versions {oldest} to {newest} of typed services, but this client supports 1: "
                "update the older side",
                Execution.NOT_EXECUTED,
            )
        reader.bytes(8)
        methods = {}
        while reader.rest:
            entry = _Reader(reader.counted())
            path = entry.words()
            (number,) = struct.unpack("<H", entry.bytes(2))
            methods[path] = (number, entry.byte())
        return methods
    except ValueError as error:
        raise _status(Code.INTERNAL, f"malformed directory from the server: {error}") from None


def _status(code, message, execution=Execution.EXECUTED, details=b""):
    status = Status(code, message, details)
    status.execution = execution
    return status


class Directory:
    """Numbers of a server's methods, requested once, and again for a method that it did not have."""

    def __init__(self, client):
        self._client = client
        self._methods = None
        self._since = 0
        self._lock = threading.Lock()

    def number(self, path, end):
        if not self._lock.acquire(timeout=min(end.left(), threading.TIMEOUT_MAX)):
            raise end.passed()
        try:
            if self._may_have_changed(path):
                try:
                    answer = self._client.call(DIRECTORY, _QUESTION, timeout=end.left())
                except UnknownHandler:
                    raise _nothing_typed() from None
                self._learn(answer)
            return self._find(path)
        finally:
            self._lock.release()

    async def number_async(self, path, end):
        if self._may_have_changed(path):
            try:
                answer = await self._client.call_async(DIRECTORY, _QUESTION, timeout=end.left())
            except UnknownHandler:
                raise _nothing_typed() from None
            self._learn(answer)
        return self._find(path)

    def _may_have_changed(self, path):
        """Whether the directory must be requested again to find a method."""
        methods = self._methods
        if methods is None:
            return True
        _, kind = methods.get(path, (None, None))
        return kind != _UNARY and time.monotonic() - self._since >= _DIRECTORY_AGE

    def _learn(self, answer):
        self._methods, self._since = _read_directory(answer), time.monotonic()

    def _find(self, path):
        methods = self._methods or {}
        number, kind = methods.get(path, (None, _UNARY))
        if number is None:
            words = f"the server has no method {path}"
        elif kind != _UNARY:
            words = f"{path} is a method with streams, which Python does not have: call it from Rust"
        else:
            return number
        raise _status(Code.UNIMPLEMENTED, words, Execution.NOT_EXECUTED)

    def forget(self):
        """Discards the numbers, because the server's have changed."""
        self._methods = None


def _nothing_typed():
    return _status(
        Code.UNIMPLEMENTED, "the server has no typed services (no handler 1024)", Execution.NOT_EXECUTED
    )


class _End:
    """The deadline of a call of a method, including any request of the directory that precedes it."""

    def __init__(self, client, timeout):
        if timeout is not None and not timeout > 0:
            raise ValueError(f"timeout is {timeout}: it must be a number of seconds above zero")
        self._within = client.deadline if timeout is None else timeout
        self._at = time.monotonic() + self._within

    def left(self):
        """Remaining seconds, above zero."""
        left = self._at - time.monotonic()
        if left <= 0:
            raise self.passed()
        return left

    def passed(self):
        return DeadlineExceeded(f"deadline exceeded: no response within {self._within} s; the method was not executed")


class _OtherMethod(Exception):
    """The number belongs to another method: the server was restarted. The call was not executed."""


class Method:
    """A unary method of a typed service, made by Client.method(): call it, or await its call_async().

    request, response: generated protobuf classes; without them requests and responses are bytes.
    """

    def __init__(self, client, directory, path, request=None, response=None):
        self.path = _path(path)
        self._client = client
        self._directory = directory
        self._request = request
        self._response = response
        self._check = check(self.path)

    def __repr__(self):
        return f"<dunlin.Method {self.path}>"

    def _encode(self, request):
        """The message of a request."""
        if self._request is None:
            return request
        if not isinstance(request, self._request):
            kind, wanted = type(request).__name__, self._request.__name__
            raise TypeError(f"{self.path} takes a {wanted}, not {kind}")
        return request.SerializeToString()

    def _payload(self, message, timeout):
        """The payload to send, with a header if there is a timeout."""
        if timeout is None:
            return struct.pack("<I", self._check) + message
        micros = _varint(int(timeout * 1e6))
        header = bytes([_DEADLINE]) + _counted(micros)
        return struct.pack("<I", self._check | _HAS_HEADER) + _counted(header) + message

    def _decode(self, answer):
        kind = answer[0] if answer else None
        if kind == _MESSAGE:
            message = answer[1:]
        elif kind == _OTHER_METHOD:
            raise _OtherMethod
        else:
            message = self._decode_rest(answer, kind)
        if self._response is None:
            return message
        try:
            return self._response.FromString(message)
        except Exception as error:
            raise _status(Code.INTERNAL, f"invalid response of {self.path}: {error}") from error

    def _decode_rest(self, answer, kind):
        """Decodes an answer that is not a bare message."""
        try:
            reader = _Reader(answer[1:])
            if kind == _MESSAGE_WITH_HEADER:
                reader.counted()
                return bytes(reader.rest)
            if kind == _STATUS:
                number, message, details = reader.byte(), reader.words(), bytes(reader.counted())
                code = Code(number) if number in Code._value2member_map_ else Code.UNKNOWN
                raise _status(code, message, Execution.EXECUTED, details)
        except ValueError:
            pass
        raise _status(Code.INTERNAL, f"malformed response of {self.path}")

    def __call__(self, request, *, timeout=None):
        """Calls the method and waits for its response, at most for `timeout` seconds (by default the client's
        deadline). Raises Status if the server refuses."""
        message = self._encode(request)
        end = _End(self._client, timeout)
        for _ in range(2):
            number = self._directory.number(self.path, end)
            left = end.left()
            payload = self._payload(message, timeout and left)
            try:
                return self._decode(self._client.call(number, payload, timeout=left))
            except (_OtherMethod, UnknownHandler):
                self._directory.forget()
        raise self._changes()

    async def call_async(self, request, *, timeout=None):
        """Like calling it, for an event loop."""
        message = self._encode(request)
        end = _End(self._client, timeout)
        for _ in range(2):
            number = await self._directory.number_async(self.path, end)
            left = end.left()
            payload = self._payload(message, timeout and left)
            try:
                return self._decode(await self._client.call_async(number, payload, timeout=left))
            except (_OtherMethod, UnknownHandler):
                self._directory.forget()
        raise self._changes()

    def _changes(self):
        return _status(
            Code.UNAVAILABLE,
            f"the server's method numbers have changed: {self.path} was not executed",
            Execution.NOT_EXECUTED,
        )


class Typed:
    """Methods of a server in Python: its directory, and the headers of their messages."""

    def __init__(self):
        self._entries = []
        self._paths = set()

    def __len__(self):
        return len(self._entries)

    def add(self, path, number, request, function):
        """Adds a method; returns the handler that runs it."""
        path = _path(path)
        if path in self._paths:
            raise ValueError(f"the method {path} was added twice")
        self._paths.add(path)
        entry = _counted(path.encode()) + struct.pack("<HB", number, _UNARY)
        self._entries.append(_counted(entry))
        served = _Served(path, request, function)
        return served.run_async if inspect.iscoroutinefunction(function) else served

    def answer(self, question):
        """Answers with the directory."""
        asked = question.payload
        if len(asked) < 16 or asked[:4] != _QUESTION[:4]:
            raise HandlerError(0, "invalid request to the directory of typed services")
        oldest, newest, _ = struct.unpack("<HHQ", asked[4:16])
        version = 1 if oldest <= 1 <= newest else 0
        entries = b"".join(self._entries) if version else b""
        return b"\x01" + struct.pack("<HHHQ", version, 1, 1, 0) + entries


class _Served:
    """A method of a server: the handler around its function."""

    def __init__(self, path, request, function):
        self._check = check(path)
        self._request = request
        self._function = function

    def __call__(self, request):
        try:
            return self._encode(self._function(self._decode(request.payload)))
        except _OtherMethod:
            return bytes([_OTHER_METHOD])
        except Status as status:
            return _refusal(status)

    async def run_async(self, request):
        try:
            return self._encode(await self._function(self._decode(request.payload)))
        except _OtherMethod:
            return bytes([_OTHER_METHOD])
        except Status as status:
            return _refusal(status)

    def _decode(self, payload):
        """The message of a request."""
        if len(payload) < 4:
            raise Status(Code.INVALID_ARGUMENT, "malformed request")
        (word,) = struct.unpack_from("<I", payload)
        if word & 0xFFFFFF00 != self._check:
            raise _OtherMethod
        message = payload[4:]
        try:
            if word & 0xFF == _HAS_HEADER:
                reader = _Reader(message)
                reader.counted()
                message = bytes(reader.rest)
            elif word & 0xFF:
                raise ValueError("unknown flag of a later version")
            return message if self._request is None else self._request.FromString(message)
        except Exception as error:
            raise Status(Code.INVALID_ARGUMENT, f"invalid request: {error}") from None

    def _encode(self, response):
        message = response.SerializeToString() if hasattr(response, "SerializeToString") else response
        return bytes([_MESSAGE]) + message


def _refusal(status):
    """Encodes a status without metadata as an answer. An end without a message is always an error."""
    if status.code == Code.OK:
        status = Status(Code.INTERNAL, "the handler returned an error with the code OK")
    message = str(status.message).encode("utf-8", "replace")
    return bytes([_STATUS, status.code]) + _counted(message) + _counted(status.details)
