"""A server that is killed while calls are out, and one that comes back; a process that is interrupted while it waits."""

import asyncio
import tempfile
import threading
import unittest

import dunlin
from support import BOUND, ECHO, HELD, HOLD, RUST, Process, ServerProcess, connect, until

LOST = (dunlin.ConnectionLost, dunlin.NotConnected)


def held(client):
    return int.from_bytes(client.call(HELD), "little")


class Killed(unittest.TestCase):
    def test_a_call_that_waits_ends(self):
        with ServerProcess() as server, connect(server.address) as client:
            ended = []

            def call():
                try:
                    ended.append(client.call(HOLD, timeout=600))
                except dunlin.DunlinError as error:
                    ended.append(error)

            caller = threading.Thread(target=call)
            caller.start()
            until(lambda: held(client) == 1, "the call is at the server")

            def kill():
                until(lambda: held(client) == 2, "the second is there, too")
                server.kill()

            killer = threading.Thread(target=kill)
            killer.start()
            # That of the main thread.
            with self.assertRaises(dunlin.ConnectionLost) as caught:
                client.call(HOLD, timeout=600)
            self.assertEqual(caught.exception.execution, dunlin.Execution.UNKNOWN)
            caller.join(BOUND)
            self.assertIsInstance(ended[0], dunlin.ConnectionLost)
            killer.join()
            with self.assertRaises(LOST):
                client.call(ECHO, b"", timeout=BOUND)

    def test_calls_of_a_loop_end(self):
        async def main(server, client):
            calls = [client.call_async(HOLD, timeout=600) for _ in range(10)]
            async with asyncio.timeout(BOUND):
                while int.from_bytes(await client.call_async(HELD), "little") != 10:
                    await asyncio.sleep(0.005)
                server.kill()
                return await asyncio.gather(*calls, return_exceptions=True)

        with ServerProcess() as server, connect(server.address) as client:
            for error in asyncio.run(main(server, client)):
                self.assertIsInstance(error, dunlin.ConnectionLost)

    def test_calls_of_a_pipeline_end(self):
        with ServerProcess() as server, connect(server.address, deadline=600) as client:
            with client.pipeline(16) as pipeline:
                tags = {pipeline.submit(HOLD) for _ in range(10)}
                pipeline.poll()
                until(lambda: held(client) == 10, "the calls are at the server")
                server.kill()
                answers = dict(pipeline)
                self.assertEqual(set(answers), tags)
                for error in answers.values():
                    self.assertIsInstance(error, dunlin.ConnectionLost)
                with self.assertRaises(dunlin.CallError):
                    pipeline.submit(ECHO)
                    pipeline.wait()

    def test_a_server_that_comes_back_is_found(self):
        with ServerProcess() as first:
            client = connect(first.address)
            self.assertEqual(client.call(ECHO, b"one"), b"one")
            first.kill()
            with self.assertRaises(LOST):
                client.call(ECHO, b"", timeout=BOUND)
            with ServerProcess(first.address):
                self.assertEqual(client.call(ECHO, b"two"), b"two")
            client.close()


INTERRUPTED = """
import sys, asyncio, dunlin
{setup}
try:
    print("ready", flush=True)
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(0)
print("went on", flush=True)
"""


class Interrupted(unittest.TestCase):
    """Ctrl-C ends what waits, long before its deadline."""

    def interrupted(self, setup, wait, is_there):
        with Process("-c", INTERRUPTED.format(setup=setup, wait=wait)) as program:
            self.assertEqual(program.line(), "ready")
            until(is_there, "the program waits")
            program.interrupt()
            self.assertEqual(program.line(), "interrupted")
            self.assertEqual(program.ended(), 0)

    def test_of_the_main_thread(self):
        setup = f"client = dunlin.connect({RUST!r}, deadline=600)"
        pipeline = f"{setup}; pipeline = client.pipeline(4); pipeline.submit({HOLD})"  # `wait` sends it
        with connect(RUST) as client:
            for setup, wait in (
                (setup, f"client.call({HOLD})"),
                (setup, f"client.call({HOLD}, bytearray(100_000))"),
                (pipeline, "pipeline.wait()"),
                (setup, f"asyncio.run(asyncio.wait_for(client.call_async({HOLD}), 600))"),
            ):
                with self.subTest(wait=wait):
                    until(lambda: held(client) == 0, "nothing is held")
                    if "wait_for" in wait:
                        setup += f"\nasync def main():\n    await client.call_async({HOLD})"
                        wait = "asyncio.run(main())"
                    self.interrupted(setup, wait, lambda: held(client) == 1)

    def test_a_server_that_serves_for_ever_stops(self):
        with ServerProcess() as server:
            with connect(server.address) as client:
                self.assertEqual(client.call(ECHO, b"x"), b"x")
            server.interrupt()
            self.assertEqual(server.line(), "stopped")
            self.assertEqual(server.ended(), 0)

    def test_a_program_that_forgets_its_server_ends(self):
        program = (
            "import dunlin\n"
            "server = dunlin.Server('dunlin://127.0.0.1:0')\n"
            "server.handle(1, len)\n"
            "server.start()\n"
            "client = dunlin.connect(server.address)\n"
            "print('over', flush=True)\n"
        )
        with Process("-c", program) as process:
            self.assertEqual(process.line(), "over")
            self.assertEqual(process.ended(), 0)

    def test_a_program_that_ends_answers_what_its_server_has_taken(self):
        # By itself, or by what the program does at its end.
        for end in ["print('ending', flush=True)", "print('ending', flush=True), server.stop()"]:
            with self.subTest(end):
                self.ends_with(end)

    def ends_with(self, end):
        program = (
            "import atexit, sys, threading, dunlin\n"
            "server = dunlin.Server('dunlin://127.0.0.1:0')\n"
            "taken = threading.Event()\n"
            "def handler(request):\n"
            "    taken.set()\n"
            "    sys.stdin.readline()\n"
            "    return request.payload\n"
            "server.handle(1, handler)\n"
            "server.start()\n"
            "print(server.address, flush=True)\n"
            "taken.wait()\n"
            # As it is since Python 3.12, whatever this one is.
            "def start(thread):\n"
            "    raise RuntimeError('no new thread at the end')\n"
            "threading.Thread.start = start\n"
            # Comes before what dunlin does at the end.
            f"atexit.register(lambda: ({end}))\n"
        )
        with tempfile.TemporaryFile("w+") as errors, Process("-c", program, stderr=errors) as process:
            with connect(process.line()) as client:
                answers = []
                caller = threading.Thread(target=lambda: answers.append(client.call(1, b"x")))
                caller.start()
                self.assertEqual(process.line(), "ending")
                process.process.stdin.write("go on\n")
                process.process.stdin.flush()
                caller.join(BOUND)
                self.assertEqual(answers, [b"x"])
                self.assertEqual(process.ended(), 0)
            errors.seek(0)
            self.assertEqual(errors.read(), "")


if __name__ == "__main__":
    unittest.main()
