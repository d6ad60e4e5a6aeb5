"""Typed methods: a client in Python with servers in Rust and in Python, by classes such as protobuf generates."""

import asyncio
import contextlib
import struct
import threading
import unittest
import unittest.mock

import dunlin
from dunlin import _typed
from support import BOUND, RUST, connect, until


class Words:
    """As a generated class is, to those who use it."""

    def __init__(self, text=""):
        self.text = text

    def SerializeToString(self):
        return self.text.encode()

    @classmethod
    def FromString(cls, data):
        return cls(data.decode())


class WithRust(unittest.TestCase):
    def setUp(self):
        self.client = connect(RUST)
        self.addCleanup(self.client.close)

    def test_a_method_takes_and_gives_messages(self):
        say = self.client.method("test.Echo/Say", Words, Words)
        self.assertEqual(say(Words("hello")).text, "hello")
        self.assertEqual(say(Words("x" * 100_000), timeout=0.9).text, "x" * 100_000)

        async def main():
            calls = [say.call_async(Words(str(n)), timeout=5) for n in range(20)]
            return [answer.text for answer in await asyncio.gather(*calls)]

        self.assertEqual(asyncio.run(main()), [str(n) for n in range(20)])
        raw = self.client.method("/test.Echo/Say")
        self.assertEqual(raw(b"bytes"), b"bytes")
        with self.assertRaisesRegex(TypeError, "takes a Words, not bytes"):
            say(b"bytes")

    def test_a_refusal_is_a_status(self):
        say = self.client.method("test.Echo/Say")
        with self.assertRaises(dunlin.Status) as caught:
            say(b"refuse")
        status = caught.exception
        self.assertEqual(status.code, dunlin.Code.NOT_FOUND)
        self.assertEqual((status.message, status.details), ("no such bird", b"details"))
        self.assertEqual(status.execution, dunlin.Execution.EXECUTED)
        for path, words in (("test.Echo/Sing", "no method /test.Echo/Sing"), ("test.Echo/Flow", "streams")):
            with self.assertRaisesRegex(dunlin.Status, words) as caught:
                self.client.method(path)(b"")
            self.assertEqual(caught.exception.code, dunlin.Code.UNIMPLEMENTED)
            self.assertEqual(caught.exception.execution, dunlin.Execution.NOT_EXECUTED)
        with self.assertRaisesRegex(ValueError, "Service/Method"):
            self.client.method("Say")


class WithPython(unittest.TestCase):
    def test_a_service_in_python(self):
        server = dunlin.Server("dunlin://127.0.0.1:0")

        @server.method("test.Echo/Say", Words)
        def say(words):
            if words.text == "refuse":
                raise dunlin.Status(dunlin.Code.ABORTED, "not now", b"\x01")
            if words.text == "well":
                raise dunlin.Status(dunlin.Code.OK)
            return Words(words.text.upper())

        @server.method("test.Echo/Other")
        def other(message):
            return message

        with self.assertRaisesRegex(ValueError, "added twice"):
            server.method("test.Echo/Say")(other)
        with server, connect(server.address) as client:
            say = client.method("test.Echo/Say", Words, Words)
            self.assertEqual(say(Words("hello")).text, "HELLO")
            self.assertEqual(say(Words("hello"), timeout=5).text, "HELLO")
            with self.assertRaisesRegex(dunlin.Status, "ABORTED: not now") as caught:
                say(Words("refuse"))
            self.assertEqual(caught.exception.details, b"\x01")
            with self.assertRaisesRegex(dunlin.Status, "INTERNAL: .* error with the code OK"):
                say(Words("well"))
            other = client.method("test.Echo/Other", response=Words)
            with self.assertRaisesRegex(dunlin.Status, "INTERNAL: invalid response of") as caught:
                other(b"\xff")
            self.assertEqual(caught.exception.execution, dunlin.Execution.EXECUTED)
            self.assertEqual(client.method("test.Echo/Other")(b"raw"), b"raw")
            with self.assertRaisesRegex(dunlin.Status, "invalid request"):
                client.method("test.Echo/Say")(b"\xff")

    def start(self, address, *names):
        """A server of methods that say their names."""
        server = dunlin.Server(address)
        for name in names:
            server.method(f"test.Echo/{name}")(lambda message, name=name: name.encode())
        server.start()
        self.addCleanup(server.stop)
        return server

    def test_a_server_with_other_numbers_is_asked_again(self):
        first = self.start("dunlin://127.0.0.1:0", "A", "B")
        address = first.address
        client = connect(address)
        b = client.method("test.Echo/B")
        self.assertEqual(b(b""), b"B")
        first.stop()
        self.start(address, "B", "A")
        # The connection may have to be made anew first.
        try:
            answer = b(b"")
        except dunlin.ConnectionLost:
            answer = b(b"")
        self.assertEqual(answer, b"B")
        client.close()

    def test_a_method_that_a_server_has_since_its_restart_is_found(self):
        for is_async in (False, True):
            with self.subTest(is_async=is_async):
                first = self.start("dunlin://127.0.0.1:0", "A")
                address = first.address
                client = connect(address)
                a, b = (client.method(f"test.Echo/{name}") for name in "AB")
                self.assertEqual(a(b""), b"A")
                with self.assertRaisesRegex(dunlin.Status, "no method"):
                    b(b"")
                first.stop()
                self.start(address, "A", "B")

                async def call():
                    return await b.call_async(b"")

                def is_there():
                    try:
                        return (asyncio.run(call()) if is_async else b(b"")) == b"B"
                    except dunlin.ConnectionLost:
                        return False
                    except dunlin.Status as status:
                        self.assertEqual(status.code, dunlin.Code.UNIMPLEMENTED)
                        return False

                until(is_there, "the new method is there")
                client.close()

    def test_a_server_without_services_says_so(self):
        server = dunlin.Server("dunlin://127.0.0.1:0")
        server.handle(1, len)
        with server, connect(server.address) as client:
            with self.assertRaisesRegex(dunlin.Status, "no typed services"):
                client.method("test.Echo/Say")(b"")

    def test_the_check_of_a_name_is_as_in_rust(self):
        self.assertEqual(_typed.check("/helloworld.Greeter/SayHello"), 0xA5AC4600)


class _Slow:
    """A client whose calls take 0.4 s each of a clock of its own, to a server whose numbers are always others."""

    deadline = 10

    def __init__(self):
        self.now = 0
        self.timeouts = []

    def call(self, number, payload, timeout):
        self.timeouts.append(round(timeout, 3))
        self.now += 0.4
        if number != _typed.DIRECTORY:
            return bytes([_typed._OTHER_METHOD])
        entry = _typed._counted(b"/a.B/C") + b"\x08\x04" + bytes([_typed._UNARY])
        return b"\x01" + struct.pack("<HHHQ", 1, 1, 1, 0) + _typed._counted(entry)

    async def call_async(self, number, payload, timeout):
        return self.call(number, payload, timeout)


class Timeouts(unittest.TestCase):
    def test_one_timeout_is_for_all_that_a_call_has_to_ask(self):
        for is_async in (False, True):
            with self.subTest(is_async=is_async):
                client = _Slow()
                method = _typed.Method(client, _typed.Directory(client), "a.B/C")
                with unittest.mock.patch.object(_typed.time, "monotonic", lambda: client.now):
                    with self.assertRaisesRegex(dunlin.DeadlineExceeded, "within 1 s"):
                        if is_async:
                            # A loop of its own would look at that clock.
                            method.call_async(b"", timeout=1).send(None)
                        else:
                            method(b"", timeout=1)
                self.assertEqual(client.timeouts, [1, 0.6, 0.2])

    def test_who_waits_for_anothers_question_has_a_timeout_too(self):
        go = threading.Event()

        class Stuck(_Slow):
            def call(self, number, payload, timeout):
                asking.set()
                go.wait(BOUND)
                return super().call(number, payload, timeout)

        asking = threading.Event()
        client = Stuck()
        method = _typed.Method(client, _typed.Directory(client), "a.B/C")

        def ask():
            with contextlib.suppress(dunlin.DunlinError):
                method(b"", timeout=BOUND)

        first = threading.Thread(target=ask)
        first.start()
        asking.wait(BOUND)
        try:
            with self.assertRaises(dunlin.DeadlineExceeded):
                method(b"", timeout=0.05)
        finally:
            go.set()
            first.join()

    def test_a_timeout_is_above_zero(self):
        with connect(RUST) as client:
            for timeout in (0, -1, float("nan")):
                with self.assertRaisesRegex(ValueError, "above zero"):
                    client.method("test.Echo/Say")(b"", timeout=timeout)


class Malformed(unittest.TestCase):
    """What a peer writes is read without harm."""

    def test_directories_and_answers(self):
        method = _typed.Method(None, None, "a.B/C")
        for data in (b"", b"\x01", b"\x01\x00", bytes(14), b"\x01" + b"\xff" * 40):
            with self.subTest(directory=data):
                with self.assertRaises(dunlin.Status):
                    _typed._read_directory(data)
        for data in (b"", b"\x01", b"\x01\x05a", b"\x02", b"\x02\x05\xff", b"\x09", b"\x01" + b"\xff" * 20):
            with self.subTest(answer=data):
                with self.assertRaises(dunlin.Status) as caught:
                    method._decode(data)
                self.assertEqual(caught.exception.code, dunlin.Code.INTERNAL)


if __name__ == "__main__":
    unittest.main()
