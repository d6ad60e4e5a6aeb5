"""Everything a client does, against server.py: python3 client.py [dunlin://127.0.0.1:7400]."""

import asyncio
import sys

import dunlin

ECHO, DIVIDE = 1, 2
address = sys.argv[1] if len(sys.argv) > 1 else "dunlin://127.0.0.1:7400"

with dunlin.connect(address, deadline=5) as client:
    print(f"over {client.device}, by the preset {client.preset}")
    print(client.call(ECHO, b"hello"))
    try:
        client.call(DIVIDE, bytes([8, 0]))
    except dunlin.HandlerError as error:
        print(f"refused: {error.message} (code {error.code})")

    # An answer in a buffer that is there already.
    room = bytearray(1 << 20)
    length = client.call(ECHO, bytes(1 << 20), into=room)
    print(f"{length} bytes in a buffer")

    # Many calls out, from one thread.
    with client.pipeline(64) as pipeline:
        answers = list(pipeline.map(ECHO, (b"%d" % number for number in range(1000))))
    print(f"{len(answers)} answers, the last is {answers[-1]}")

    # Memory of the server.
    table = client.attach("table")
    print(f"hit {table.fetch_add(0, 1) + 1}")

    async def main():
        calls = [client.call_async(ECHO, b"%d" % number) for number in range(100)]
        answers = await asyncio.gather(*calls)
        print(f"{len(answers)} answers of a loop")

    asyncio.run(main())
