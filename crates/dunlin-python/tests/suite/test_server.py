"""Servers in Python: threads and async handlers, exceptions, regions, stopping."""

import asyncio
import logging
import os
import select
import threading
import unittest
import unittest.mock

import dunlin
from dunlin import _server
from support import BOUND, connect

logging.getLogger("dunlin").setLevel(logging.CRITICAL)


def serving(**settings):
    return dunlin.Server("dunlin://127.0.0.1:0", **settings)


class Servers(unittest.TestCase):
    def test_handlers_get_a_request_and_give_bytes(self):
        server = serving()
        seen = []

        @server.handler(1)
        def handler(request):
            seen.append((request.handler, len(request), request.is_cancelled, request.remaining))
            return bytearray(request.payload) * 2

        server.handle(2, lambda request: None)
        server.handle(3, lambda request: memoryview(bytes(1 << 20)))
        with server, connect(server.address) as client:
            self.assertEqual(client.call(1, b"ab", timeout=0.9), b"abab")
            self.assertEqual(client.call(2, b"ab"), b"")
            self.assertEqual(client.call(3), bytes(1 << 20))
            self.assertEqual(server.connections, 1)
        number, length, is_cancelled, remaining = seen[0]
        self.assertEqual((number, length, is_cancelled), (1, 2, False))
        self.assertGreater(remaining, 0)

    def test_exceptions_go_to_the_caller(self):
        server = serving()

        @server.handler(1)
        def refuses(request):
            raise dunlin.HandlerError(7, "no such bird")

        @server.handler(2)
        def fails(request):
            raise KeyError("nest")

        server.handle(3, lambda request: 5)
        server.handle(4, lambda request: exit())

        @server.handler(5)
        def far(request):
            raise dunlin.HandlerError(-1, "below zero")

        with server, connect(server.address) as client:
            for number, code, words in (
                (1, 7, "no such bird"),
                (2, 0, "KeyError: 'nest'"),
                (3, 0, "a handler's answer must be bytes-like"),
                (4, 0, "SystemExit"),
                (5, 0, "code -1"),
            ):
                with self.subTest(number=number):
                    with self.assertRaisesRegex(dunlin.HandlerError, words) as caught:
                        client.call(number)
                    self.assertEqual(caught.exception.code, code)
            with self.assertRaisesRegex(dunlin.HandlerError, "no such bird"):
                client.call(1)

    def test_a_handler_whose_error_cannot_be_said_leaves_its_thread_to_others(self):
        class Mute(Exception):
            def __str__(self):
                raise ValueError("no words")

        class Stubborn(Exception):
            def __str__(self):
                raise SystemExit

        class Bare(dunlin.HandlerError):
            def __init__(self):
                pass

        errors = [
            (dunlin.HandlerError(4, "half of \ud800"), 4, "half of \\?"),
            (dunlin.HandlerError(5, ValueError("inner")), 5, "inner"),
            (dunlin.HandlerError("six", "words"), 0, "words .its code six is none"),
            (dunlin.HandlerError(1 << 32, Mute()), 0, "a Mute that cannot be said .its code 4294967296"),
            (Bare(), 0, "cannot be passed on"),
            (ValueError("\udfff"), 0, "ValueError: \\?"),
            (Mute(), 0, "Mute: a Mute that cannot be said"),
            (Stubborn(), 0, "cannot be passed on"),
        ]
        server = serving(workers=1)
        server.handle(1, lambda request: request.payload)

        @server.handler(2)
        def fails(request):
            raise errors[request.payload[0]][0]

        @server.method("test.Birds/Say")
        def say(message):
            raise dunlin.Status(dunlin.Code.NOT_FOUND, "no \ud800")

        with server, connect(server.address) as client:
            for number, (_, code, words) in enumerate(errors):
                with self.subTest(number=number):
                    with self.assertRaisesRegex(dunlin.HandlerError, words) as caught:
                        client.call(2, bytes([number]))
                    self.assertEqual(caught.exception.code, code)
                    self.assertEqual(client.call(1, b"next"), b"next")
            with self.assertRaisesRegex(dunlin.Status, "NOT_FOUND: no \\?"):
                client.method("test.Birds/Say")(b"")

    def test_wrong_uses_are_named(self):
        server = serving()
        server.handle(1, len)
        with self.assertRaisesRegex(RuntimeError, "start it first"):
            server.address
        server.handle(1, len)
        with self.assertRaisesRegex(ValueError, "registered twice"):
            server.start()
        with self.assertRaisesRegex(RuntimeError, "started only once"):
            server.start()
        server = serving()
        with server:
            with self.assertRaisesRegex(RuntimeError, "before the server is started"):
                server.handle(2, len)
        with self.assertRaisesRegex(ValueError, "workers is 0"):
            serving(workers=0)
        with self.assertRaisesRegex(ValueError, "http"):
            dunlin.Server("http://127.0.0.1:80")
        server = serving()

        @server.handler(1)
        async def handler(request):
            return b""

        with self.assertRaisesRegex(RuntimeError, "need an event loop"):
            server.start()

    def test_regions_are_granted(self):
        server = serving()
        server.region("table", 64, writable=True, atomic=True)
        with server, connect(server.address) as client:
            region = client.attach("table")
            region.write(0, b"client")
            self.assertEqual(server.region_read("table", 0, 6), b"client")
            server.region_write("table", 8, b"server")
            self.assertEqual(region.read(8, 6), b"server")
            with self.assertRaisesRegex(ValueError, "exceed the region"):
                server.region_read("table", 60, 5)
            with self.assertRaisesRegex(KeyError, "chair"):
                server.region_read("chair", 0, 1)

    def test_a_forked_process_is_told_that_regions_are_its_parents(self):
        server = serving()
        server.region("table", 8)
        with server:
            child = os.fork()
            if child == 0:
                told = 0
                for use in (
                    lambda: server.region_read("table", 0, 1),
                    lambda: server.region_write("table", 0, b"c"),
                ):
                    try:
                        use()
                    except dunlin.Forked:
                        told += 1
                os._exit(told)
            _, status = os.waitpid(child, 0)
            self.assertEqual(os.waitstatus_to_exitcode(status), 2)
            self.assertEqual(server.region_read("table", 0, 1), bytes(1))

    def test_stopping_answers_what_was_taken(self):
        server = serving()
        taken, go = threading.Event(), threading.Event()

        @server.handler(1)
        def slow(request):
            taken.set()
            go.wait()
            return b"late"

        server.start()
        client = connect(server.address)
        answers = []
        caller = threading.Thread(target=lambda: answers.append(client.call(1)))
        caller.start()
        taken.wait()
        with self.assertRaisesRegex(TimeoutError, "wait again"):
            server.stop(timeout=0.05)
        stopped = []
        again = threading.Thread(target=lambda: stopped.append(server.stop()))
        again.start()
        again.join(0.2)
        self.assertTrue(again.is_alive(), f"who waits again waits for the handler, too: {stopped}")
        go.set()
        again.join()
        self.assertEqual(stopped, [True])
        caller.join()
        self.assertEqual(answers, [b"late"])
        self.assertTrue(server.stop(), "once more is no harm")
        client.close()

    def test_who_waits_again_is_told_what_was_not_answered(self):
        go, inside = threading.Event(), []

        class Undrained(dunlin.Server):
            """One of whose handlers does not return within the ten seconds."""

            def _stop(self):
                go.wait()
                # As a handler of signals does on the thread that stops the server.
                inside.append(self.stop())
                super()._stop()
                return False

        server = Undrained("dunlin://127.0.0.1:0")
        server.start()
        for _ in range(2):
            with self.assertRaisesRegex(TimeoutError, "wait again"):
                server.stop(timeout=0.05)
        go.set()
        self.assertFalse(server.stop())
        self.assertFalse(server.stop())
        self.assertEqual(inside, [False])

    def test_threads_that_stop_a_server_together_end_it_once(self):
        both, seen = threading.Barrier(2), []

        class Together(threading.Thread):
            """No thread that ends the server is known before there are two."""

            def start(self):
                super().start()
                if self.name == "dunlin-stop":
                    both.wait(BOUND)

        class Counted(dunlin.Server):
            def _stop(self):
                seen.append("begins")
                drained = super()._stop()
                seen.append("ends")
                return drained

        server = Counted("dunlin://127.0.0.1:0")
        server.start()
        told = []
        with unittest.mock.patch.object(_server.threading, "Thread", Together):
            threads = [threading.Thread(target=lambda: told.append(server.stop())) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual((told, seen), ([True, True], ["begins", "ends"]))

    def test_handlers_call_other_servers(self):
        inner = serving()
        inner.handle(1, lambda request: request.payload + b" inner")
        with inner, connect(inner.address) as client:
            outer = serving()
            outer.handle(1, lambda request: client.call(1, request.payload) + b" outer")
            with outer, connect(outer.address) as caller:
                self.assertEqual(caller.call(1, b"a"), b"a inner outer")


class AsyncHandlers(unittest.IsolatedAsyncioTestCase):
    async def test_they_run_on_the_loop_side_by_side(self):
        server = serving()
        loop = asyncio.get_running_loop()
        arrived = 0
        all_here = asyncio.Event()

        @server.handler(1)
        async def together(request):
            nonlocal arrived
            arrived += 1
            if arrived == 50:
                all_here.set()
            await all_here.wait()
            self.assertIs(asyncio.get_running_loop(), loop)
            return request.payload

        @server.handler(2)
        async def fails(request):
            raise ValueError("no")

        @server.handler(3)
        async def refuses(request):
            raise dunlin.HandlerError(9, "nine")

        async with server:
            async with await asyncio.to_thread(connect, server.address) as client:
                calls = [client.call_async(1, b"%d" % n) for n in range(50)]
                self.assertEqual(await asyncio.gather(*calls), [b"%d" % n for n in range(50)])
                with self.assertRaisesRegex(dunlin.HandlerError, "ValueError: no"):
                    await client.call_async(2)
                with self.assertRaises(dunlin.HandlerError) as caught:
                    await client.call_async(3)
                self.assertEqual(caught.exception.code, 9)
        self.assertTrue(await server.stop_async())

    async def test_a_forked_process_takes_no_request_of_its_parent(self):
        server = serving()

        @server.handler(1)
        async def echo(request):
            return request.payload

        async with server:
            async with await asyncio.to_thread(connect, server.address) as client:
                calling = asyncio.create_task(asyncio.to_thread(client.call, 1, b"x"))
                await asyncio.sleep(0)
                # The loop does nothing here: the request waits for it.
                ready, _, _ = select.select([server._for_loop.fileno()], [], [], BOUND)
                self.assertTrue(ready)
                child = os.fork()
                if child == 0:
                    os._exit(7 if server._for_loop.take() == [] else 1)
                _, status = os.waitpid(child, 0)
                self.assertEqual(os.waitstatus_to_exitcode(status), 7)
                self.assertEqual(await calling, b"x")

    async def test_the_loop_of_its_handlers_does_not_wait_for_a_server(self):
        server = serving()

        @server.handler(1)
        async def handler(request):
            return b""

        server.start()
        with self.assertRaisesRegex(RuntimeError, "await server.stop_async"):
            server.stop()
        self.assertTrue(await server.stop_async())


if __name__ == "__main__":
    unittest.main()
