"""A server: python3 server.py [dunlin://127.0.0.1:7400]; Ctrl-C stops it."""

import sys

import dunlin

ECHO, DIVIDE = 1, 2

server = dunlin.Server(sys.argv[1] if len(sys.argv) > 1 else "dunlin://127.0.0.1:7400")


@server.handler(ECHO)
def echo(request):
    return request.payload


@server.handler(DIVIDE)
def divide(request):
    a, b = request.payload
    if b == 0:
        raise dunlin.HandlerError(1, "division by zero")
    return bytes([a // b])


# Clients count in it without asking anybody.
server.region("table", 4096, writable=True, atomic=True)

with server:
    print(f"listening on {server.address}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        hits = int.from_bytes(server.region_read("table", 0, 8), sys.byteorder)
        print(f"stopped: {hits} hits")
