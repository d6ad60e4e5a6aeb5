"""Calls that wait, from the main thread and from others; buffers without and with copies; errors."""

import array
import ctypes
import os
import threading
import time
import unittest

import dunlin
from support import DIVIDE, ECHO, HELD, HOLD, LONG, RUST, connect


def in_thread(work):
    """Does something on a thread that is not the main one."""
    result = []

    def run():
        try:
            result.append((work(), None))
        except BaseException as error:
            result.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    return value


class Calls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = connect(RUST)

    @classmethod
    def tearDownClass(cls):
        cls.client.close()

    def everywhere(self, work):
        with self.subTest(thread="main"):
            work()
        with self.subTest(thread="another"):
            in_thread(work)

    def test_any_buffer_is_a_payload(self):
        long = bytes(range(256)) * 4096

        def work():
            for data in (b"", b"hello", long):
                for kind in (bytes, bytearray, memoryview):
                    self.assertEqual(self.client.call(ECHO, kind(data)), data)
            numbers = array.array("d", [1.5, 2.5, 3.5])
            self.assertEqual(self.client.call(ECHO, numbers), numbers.tobytes())
            many = array.array("i", range(100_000))
            self.assertEqual(self.client.call(ECHO, many), many.tobytes())
            self.assertEqual(self.client.call(ECHO, array.array("d")), b"")
            self.assertEqual(self.client.call(ECHO, (ctypes.c_uint8 * 3)(1, 2, 3)), b"\1\2\3")
            self.assertEqual(self.client.call(ECHO), b"")

        self.everywhere(work)

    def test_an_answer_goes_into_a_buffer_of_the_caller(self):
        def work():
            room = bytearray(b"........")
            self.assertEqual(self.client.call(ECHO, b"hello", into=room), 5)
            self.assertEqual(room, b"hello...")
            numbers = array.array("d", [0.0, 0.0])
            self.assertEqual(self.client.call(ECHO, array.array("d", [1.0, 2.0]), into=numbers), 16)
            self.assertEqual(list(numbers), [1.0, 2.0])
            self.assertEqual(self.client.call(ECHO, b"", into=bytearray()), 0)
            long = bytearray(1 << 20)
            length = len(long).to_bytes(8, "little")
            self.assertEqual(self.client.call(LONG, length, into=long), len(long))
            self.assertEqual(long, b"\x07" * len(long))
            with self.assertRaises(dunlin.TooLong) as caught:
                self.client.call(ECHO, b"hello", into=bytearray(4))
            self.assertIn("5 bytes", str(caught.exception))
            self.assertEqual(caught.exception.execution, dunlin.Execution.EXECUTED)
            # The buffer is free again: it can be resized.
            room.extend(b"more")

        self.everywhere(work)

    def test_numpy_arrays_are_buffers(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("no numpy here")

        def work():
            sent = numpy.arange(10_000, dtype=numpy.float32).reshape(100, 100)
            got = numpy.zeros_like(sent)
            self.assertEqual(self.client.call(ECHO, sent, into=got), sent.nbytes)
            self.assertTrue((sent == got).all())
            with self.assertRaisesRegex(BufferError, "contiguous"):
                self.client.call(ECHO, sent[:, ::2])
            records = numpy.zeros(3, dtype=[("key", ">u4"), ("value", "f8")])
            self.assertEqual(self.client.call(ECHO, records), records.tobytes())

        self.everywhere(work)

    def test_errors_say_what_a_caller_needs(self):
        def work():
            with self.assertRaises(dunlin.HandlerError) as caught:
                self.client.call(DIVIDE, bytes([8, 0]))
            error = caught.exception
            self.assertEqual((error.code, error.message), (1, "division by zero"))
            self.assertEqual(error.execution, dunlin.Execution.EXECUTED)
            self.assertFalse(error.is_retryable)
            with self.assertRaises(dunlin.NotFound) as caught:
                self.client.call(999, b"")
            self.assertIsInstance(caught.exception, dunlin.UnknownHandler)
            self.assertEqual(str(caught.exception), "the server has no handler 999")
            self.assertEqual(caught.exception.execution, dunlin.Execution.NOT_EXECUTED)
            with self.assertRaises(dunlin.TooLong) as caught:
                self.client.call(ECHO, bytes(self.client.max_message_bytes() + 1))
            self.assertIn("max_message_bytes", str(caught.exception))

        self.everywhere(work)

    def test_a_deadline_ends_a_call(self):
        def work():
            with self.assertRaises(TimeoutError) as caught:
                self.client.call(HOLD, b"", timeout=0.05)
            self.assertIsInstance(caught.exception, dunlin.DeadlineExceeded)
            # The server may have said so first.
            self.assertRegex(str(caught.exception), "no response within 50ms|the deadline had expired at the server")

        self.everywhere(work)
        self.assertEqual(len(self.client.call(HELD)), 8, "the connection goes on")

    def test_wrong_arguments_are_named(self):
        for arguments, settings, kind, words in (
            ((ECHO, 7), {}, TypeError, "payload must be bytes-like .* not int"),
            ((ECHO, "text"), {}, TypeError, "not str"),
            ((ECHO, b""), {"timeout": 0}, ValueError, "timeout is 0"),
            ((ECHO, b""), {"timeout": -1}, ValueError, "above zero"),
            ((ECHO, b""), {"timeout": float("nan")}, ValueError, "timeout is NaN"),
            ((ECHO, b""), {"into": b"const"}, TypeError, "into must be writable"),
            ((ECHO, b""), {"into": 5}, TypeError, "into must be bytes-like"),
            ((ECHO, memoryview(b"a.b.c.")[::2]), {}, BufferError, "payload must be contiguous"),
            ((ECHO, b""), {"into": memoryview(bytearray(8))[::2]}, BufferError, "into must be contiguous"),
            ((70_000, b""), {}, OverflowError, ""),
            (("one", b""), {}, TypeError, ""),
        ):
            with self.subTest(arguments=arguments, settings=settings):
                with self.assertRaisesRegex(kind, words):
                    self.client.call(*arguments, **settings)
        for settings, words in (
            ({"preset": "flocks"}, "preset"),
            ({"deadline": 0}, "deadline is 0"),
            ({"secret": b""}, "secret"),
            ({"max_outstanding": 0}, "outstanding"),
        ):
            with self.subTest(settings=settings):
                with self.assertRaisesRegex(ValueError, words):
                    connect(RUST, **settings)
        with self.assertRaisesRegex(ValueError, "http"):
            connect("http://127.0.0.1:80")
        with self.assertRaisesRegex(dunlin.NoDevice, "warp"):
            connect(RUST, device="warp")

    def test_where_nobody_listens_there_is_no_connection(self):
        with self.assertRaises(dunlin.ConnectError) as caught:
            connect("dunlin://127.0.0.1:1", connect_timeout=5)
        self.assertIsInstance(caught.exception, ConnectionError)

    def test_a_closed_client_says_so(self):
        with connect(RUST, preset="plain") as client:
            self.assertEqual((client.preset, client.device), ("plain", "shm"))
            self.assertEqual(client.call(ECHO, b"x"), b"x")
        with self.assertRaises(dunlin.Closed):
            client.call(ECHO, b"x")

    def test_a_forked_process_is_told_so(self):
        child = os.fork()
        if child == 0:
            try:
                self.client.call(ECHO, b"x")
            except dunlin.Forked:
                os._exit(7)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 7)
        self.assertEqual(self.client.call(ECHO, b"x"), b"x")

    def test_threads_call_at_once(self):
        wrong = []

        def work(mine):
            for number in range(200):
                payload = b"%d %d" % (mine, number)
                if self.client.call(ECHO, payload) != payload:
                    wrong.append(payload)

        threads = [threading.Thread(target=work, args=(mine,)) for mine in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_regions_are_read_and_written(self):
        region = self.client.attach("table")
        self.assertEqual((region.name, len(region)), ("table", 4096))

        def work():
            region.write(64, b"a row")
            self.assertEqual(region.read(64, 5), b"a row")
            room = bytearray(8)
            self.assertEqual(region.read(64, 5, into=room), 5)
            self.assertEqual(room, b"a row\0\0\0")
            before = region.fetch_add(0, 5)
            self.assertEqual(region.compare_swap(0, before + 5, 7), before + 5)
            self.assertEqual(region.fetch_add(0, 0), 7)
            with self.assertRaisesRegex(dunlin.RegionError, "multiple of 8"):
                region.fetch_add(4, 1)
            with self.assertRaisesRegex(dunlin.RegionError, "exceed the region"):
                region.read(4090, 10)

        self.everywhere(work)
        with self.assertRaisesRegex(dunlin.NotFound, "no region 'chair'"):
            self.client.attach("chair")


class Pipelines(unittest.TestCase):
    def setUp(self):
        self.client = connect(RUST)
        self.addCleanup(self.client.close)

    def test_answers_come_with_their_tags(self):
        with self.client.pipeline(32) as pipeline:
            sent = {}
            for number in range(500):
                payload = b"%d" % number * (number % 40)
                sent[pipeline.submit(ECHO, payload)] = payload
            tag = pipeline.submit(DIVIDE, bytes([1, 0]), tag=10_000)
            with self.assertRaises(ValueError):
                pipeline.submit(ECHO, b"", tag=2**63)  # tags of maps begin there
            got = dict(pipeline)
            error = got.pop(tag)
            self.assertIsInstance(error, dunlin.HandlerError)
            self.assertEqual(got, sent)
            self.assertEqual(pipeline.outstanding, 0)
            self.assertEqual(pipeline.wait(), [])

    def test_map_keeps_the_order_and_raises(self):
        payloads = [b"%d" % number for number in range(300)]
        with self.client.pipeline(16) as pipeline:
            self.assertEqual(list(pipeline.map(ECHO, payloads)), payloads)
            answers = pipeline.map(DIVIDE, [bytes([6, 2]), bytes([6, 0])])
            self.assertEqual(next(answers), b"\3")
            with self.assertRaises(dunlin.HandlerError):
                next(answers)

    def test_maps_and_others_share_a_pipeline(self):
        numbers = [b"%d" % number for number in range(20)]
        with self.client.pipeline(4) as pipeline:
            tag = pipeline.submit(ECHO, b"mine", tag=10_000)
            products = [
                (one, other)
                for one in pipeline.map(ECHO, numbers)
                for other in pipeline.map(ECHO, numbers[:6])
            ]
            self.assertEqual(products, [(one, other) for one in numbers for other in numbers[:6]])
            pairs = list(zip(pipeline.map(ECHO, numbers), pipeline.map(ECHO, numbers[::-1])))
            self.assertEqual(pairs, list(zip(numbers, numbers[::-1])))
            self.assertEqual(pipeline.outstanding, 1)
            self.assertEqual(pipeline.wait(), [(tag, b"mine")])

    def test_nothing_is_left_of_a_map_that_is_not_asked_any_more(self):
        numbers = [b"%d" % number for number in range(64)]
        with self.client.pipeline(16) as pipeline:
            for _ in range(20):
                self.assertEqual(next(pipeline.map(ECHO, numbers)), numbers[0])
                with self.assertRaises(dunlin.HandlerError):
                    list(pipeline.map(DIVIDE, [bytes([6, 0])] * 16))
            self.assertEqual(list(pipeline.map(ECHO, numbers)), numbers)
            while pipeline.outstanding:
                self.assertEqual(pipeline.wait(), [])

    def test_tags_of_submit_and_of_maps_do_not_meet(self):
        payloads = [b"%d" % number for number in range(64)]
        with self.client.pipeline(16) as pipeline:
            for tag, answer in enumerate(pipeline.map(ECHO, payloads)):
                self.assertEqual(answer, payloads[tag])
                pipeline.submit(ECHO, b"another", tag=tag)
            got = dict(pipeline)
            self.assertEqual(got, {tag: b"another" for tag in range(64)})

    def test_a_map_whose_answers_were_taken_says_so(self):
        with self.client.pipeline(4) as pipeline:
            answers = pipeline.map(ECHO, [b"a", b"b", b"c"])
            self.assertEqual(next(answers), b"a")
            while pipeline.outstanding:
                pipeline.wait()
            with self.assertRaisesRegex(RuntimeError, "taken elsewhere"):
                next(answers)

    def test_long_requests_and_answers(self):
        payloads = [bytearray(bytes([n])) * 300_000 for n in range(8)]
        with self.client.pipeline(4) as pipeline:
            self.assertEqual(list(pipeline.map(ECHO, payloads)), payloads)

    def test_a_deadline_ends_the_wait(self):
        with connect(RUST, deadline=0.1) as client, client.pipeline(4) as pipeline:
            tag = pipeline.submit(HOLD, b"")
            try:
                answers = pipeline.wait()
            except dunlin.DeadlineExceeded:
                return
            # The server has said so first.
            self.assertEqual([(of, type(error)) for of, error in answers], [(tag, dunlin.Expired)])

    def test_a_deadline_ends_a_submit_that_waits_for_room(self):
        with connect(RUST, deadline=2, max_outstanding=8) as client, client.pipeline(8) as pipeline:
            echoes = [pipeline.submit(ECHO, b"%d" % number) for number in range(40)]
            with self.assertRaises(dunlin.DeadlineExceeded):
                for _ in range(40):
                    pipeline.submit(HOLD, b"")
            # What had come before is not lost by that.
            answers = dict(pipeline.poll())
            for tag in echoes[:16]:
                self.assertEqual(answers[tag], b"%d" % tag)

    def test_one_thread_at_a_time(self):
        with connect(RUST, deadline=2) as client:
            waiting = client.pipeline(4)
            waiting.submit(HOLD, b"")
            seen = []

            def wait():
                while "ended" not in seen:
                    try:
                        waiting.wait()
                        seen.append("ended")
                    except dunlin.DeadlineExceeded:
                        seen.append("ended")
                    except RuntimeError:
                        # The other had it.
                        continue

            thread = threading.Thread(target=wait)
            thread.start()
            while thread.is_alive() and "busy" not in seen:
                try:
                    waiting.poll()
                except RuntimeError as error:
                    self.assertIn("another thread", str(error))
                    seen.append("busy")
                time.sleep(0.001)
            thread.join()
            self.assertEqual(seen, ["busy", "ended"])


if __name__ == "__main__":
    unittest.main()
