"""A server in Python, as a process that is killed or interrupted: prints its address, and what it says at its end."""

import sys
import threading

import dunlin

server = dunlin.Server(sys.argv[1])
held = 0


@server.handler(1)
def echo(request):
    return request.payload


@server.handler(2)
def divide(request):
    a, b = request.payload
    if b == 0:
        raise dunlin.HandlerError(1, "division by zero")
    return bytes([a // b])


@server.handler(3)
async def hold(request):
    global held
    held += 1
    await asyncio.Event().wait()


@server.handler(4)
def how_many(request):
    return held.to_bytes(8, "little")


@server.handler(6)
def fails(request):
    raise ValueError("not this")


@server.method("test.Echo/Say")
def say(message):
    if message == b"refuse":
        raise dunlin.Status(dunlin.Code.NOT_FOUND, "no such bird", b"details")
    return message[::-1]


server.region("table", 4096, writable=True, atomic=True)

import asyncio

loop = asyncio.new_event_loop()
threading.Thread(target=loop.run_forever, daemon=True).start()
server._loop = loop
server.start()
print(server.address, flush=True)
try:
    server.serve_forever()
except KeyboardInterrupt:
    print("stopped", flush=True)
