"""Dunlin: RPC over RDMA networks, and over shared memory or UDP where there is no RDMA.

>>> import dunlin
>>> server = dunlin.Server("dunlin://127.0.0.1:0")
>>> @server.handler(1)
... def echo(request):
...     return request.payload
>>> with server, dunlin.connect(server.address) as client:
...     client.call(1, b"hello")
b'hello'
"""

from ._client import Client, Pipeline, Region, connect, connect_async
from ._dunlin import Request
from ._errors import (
    CallError,
    Closed,
    ConnectError,
    ConnectionLost,
    DeadlineExceeded,
    DunlinError,
    Execution,
    Expired,
    Forked,
    HandlerError,
    HandlerPanicked,
    NoDevice,
    NoMemory,
    NotConnected,
    NotFound,
    Overloaded,
    OwnServer,
    PacketLost,
    RegionError,
    ServeError,
    ShuttingDown,
    TooLong,
    TooManyOutstanding,
    UnknownHandler,
    UnknownRegion,
    Unreadable,
    Unsupported,
)
from ._server import Server
from ._typed import Code, Method, Status

__all__ = [
    "CallError",
    "Client",
    "Closed",
    "Code",
    "ConnectError",
    "ConnectionLost",
    "DeadlineExceeded",
    "DunlinError",
    "Execution",
    "Expired",
    "Forked",
    "HandlerError",
    "HandlerPanicked",
    "Method",
    "NoDevice",
    "NoMemory",
    "NotConnected",
    "NotFound",
    "Overloaded",
    "OwnServer",
    "PacketLost",
    "Pipeline",
    "Region",
    "RegionError",
    "Request",
    "ServeError",
    "Server",
    "ShuttingDown",
    "Status",
    "TooLong",
    "TooManyOutstanding",
    "UnknownHandler",
    "UnknownRegion",
    "Unreadable",
    "Unsupported",
    "connect",
    "connect_async",
]
