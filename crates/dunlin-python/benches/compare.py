#!/usr/bin/env python3
"""Calls a second of a Python client, with Dunlin and with grpcio, in turns of one run.

    python3 compare.py [--seconds 2] [--turns 3] [--bytes 64] [--echo dunlin://127.0.0.1:7400]

Both have a server in Python, in a process of its own, whose handler answers with the request. --echo adds Dunlin's own
echo server (`dunlin serve echo`), whose handler 1 is in Rust: then the client alone is Python. What is missing, grpcio
or --echo, is said and left out. Figures are calls a second: the median of the turns, and their range.
"""

import argparse
import asyncio
import statistics
import subprocess
import sys
import threading
import time

OUT = 64
METHOD = "/bench.Echo/Call"


def serve(kind):
    """The server process: prints its address, and ends when its input does."""
    if kind == "dunlin":
        import dunlin

        server = dunlin.Server("dunlin://127.0.0.1:0")
        server.handle(1, lambda request: request.payload)
        with server:
            print(server.address, flush=True)
            sys.stdin.read()
        return
    from concurrent import futures

    import grpc

    server = grpc.server(futures.ThreadPoolExecutor(4))
    handler = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler("bench.Echo", {"Call": handler})]
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(f"127.0.0.1:{port}", flush=True)
    sys.stdin.read()
    server.stop(0)


class Process:
    def __init__(self, kind):
        command = [sys.executable, __file__, "--serve", kind]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def rate(call, seconds):
    """Of a loop whose rounds say how many calls they were."""
    count, began = 0, time.perf_counter()
    until = began + seconds
    while time.perf_counter() < until:
        count += call()
    return count / (time.perf_counter() - began)


async def rate_async(call, seconds):
    """Of as many tasks as calls are to be out."""
    count = 0
    began = time.perf_counter()
    until = began + seconds

    async def caller():
        nonlocal count
        while time.perf_counter() < until:
            await call()
            count += 1

    await asyncio.gather(*[caller() for _ in range(OUT)])
    return count / (time.perf_counter() - began)


def sixteen(call):
    """Sixteen calls between two looks at the clock."""

    def round():
        for _ in range(16):
            call()
        return 16

    return round


def dunlin_rows(name, address, payload):
    import dunlin

    client = dunlin.connect(address)

    def pipeline(seconds):
        with client.pipeline(OUT) as pipeline:
            for _ in range(OUT):
                pipeline.submit(1, payload)

            def round():
                answers = pipeline.wait()
                for _, answer in answers:
                    if len(answer) != len(payload):
                        raise answer
                    pipeline.submit(1, payload)
                return len(answers)

            return rate(round, seconds)

    def threads(seconds):
        """The sync call beside the main thread."""
        result = []
        work = lambda: result.append(rate(sixteen(lambda: client.call(1, payload)), seconds))
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return result[0]

    def in_executor(seconds):
        """What a program would write without call_async: a thread for each call, which tells the loop."""

        async def main():
            loop = asyncio.get_running_loop()
            return await rate_async(lambda: loop.run_in_executor(None, client.call, 1, payload), seconds)

        return asyncio.run(main())

    return {
        f"{name}: sync, main thread": lambda s: rate(sixteen(lambda: client.call(1, payload)), s),
        f"{name}: sync, another thread": threads,
        f"{name}: asyncio, {OUT} out": lambda s: asyncio.run(
            rate_async(lambda: client.call_async(1, payload), s)
        ),
        f"{name}: call in run_in_executor, {OUT} out": in_executor,
        f"{name}: pipeline, {OUT} out": pipeline,
    }


def grpc_rows(address, payload):
    import grpc

    channel = grpc.insecure_channel(address)
    call = channel.unary_unary(METHOD)
    call(payload)

    def futures(seconds):
        """As many out as the pipeline has, by futures of the sync interface."""
        out = [call.future(payload) for _ in range(OUT)]

        def round():
            for place, future in enumerate(out):
                future.result()
                out[place] = call.future(payload)
            return OUT

        result = rate(round, seconds)
        for future in out:
            future.result()
        return result

    def aio(seconds):
        async def main():
            async with grpc.aio.insecure_channel(address) as channel:
                call = channel.unary_unary(METHOD)
                return await rate_async(lambda: call(payload), seconds)

        return asyncio.run(main())

    return {
        "grpcio: sync": lambda s: rate(sixteen(lambda: call(payload)), s),
        f"grpcio: asyncio, {OUT} out": aio,
        f"grpcio: futures, {OUT} out": futures,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--serve")
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--bytes", type=int, default=64)
    parser.add_argument("--echo")
    options = parser.parse_args()
    if options.serve:
        return serve(options.serve)
    payload = bytes(options.bytes)
    processes = [Process("dunlin")]
    rows = dunlin_rows("dunlin, handler in Python", processes[0].address, payload)
    if options.echo:
        rows.update(dunlin_rows("dunlin, handler in Rust", options.echo, payload))
    else:
        print("skipped: a handler in Rust: give --echo")
    try:
        import grpc  # noqa: F401

        processes.append(Process("grpcio"))
        rows.update(grpc_rows(processes[1].address, payload))
    except ImportError as error:
        print(f"skipped: grpcio: {error}")
    results = {name: [] for name in rows}
    for _ in range(options.turns):
        for name, measure in rows.items():
            results[name].append(measure(options.seconds))
    for name, rates in results.items():
        median, low, high = statistics.median(rates), min(rates), max(rates)
        print(f"{name:50} {median:10,.0f}/s  ({low:,.0f} to {high:,.0f})")
    for process in processes:
        process.end()


main()
