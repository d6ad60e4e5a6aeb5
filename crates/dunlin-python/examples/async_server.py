"""Handlers that wait, on an event loop: python3 async_server.py shows a client and a server in one program."""

import asyncio

import dunlin

SLEEP = 1


async def main():
    server = dunlin.Server("dunlin://127.0.0.1:0")

    @server.handler(SLEEP)
    async def sleep(request):
        await asyncio.sleep(float(request.payload))
        return b"slept " + request.payload

    async with server, await dunlin.connect_async(server.address) as client:
        # A hundred sleep at the same time.
        calls = [client.call_async(SLEEP, b"0.1") for _ in range(100)]
        print(len(await asyncio.gather(*calls)), "have slept")


asyncio.run(main())
