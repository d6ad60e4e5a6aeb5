"""Calls of an event loop: many out, deadlines, cancellation, errors, regions, several loops."""

import asyncio
import threading
import unittest

import dunlin
from support import BOUND, DIVIDE, ECHO, HELD, HOLD, RUST, connect


class Asyncio(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.client = await dunlin.connect_async(RUST, connect_timeout=BOUND, deadline=BOUND)

    async def asyncTearDown(self):
        self.client.close()

    async def held(self):
        return int.from_bytes(await self.client.call_async(HELD), "little")

    async def until_held(self, number):
        async with asyncio.timeout(BOUND):
            while await self.held() != number:
                await asyncio.sleep(0.005)

    async def test_many_are_out(self):
        calls = [self.client.call_async(ECHO, b"%d" % n * (n % 50)) for n in range(500)]
        answers = await asyncio.gather(*calls)
        self.assertEqual(answers, [b"%d" % n * (n % 50) for n in range(500)])
        long = bytearray(b"long") * 100_000
        self.assertEqual(await self.client.call_async(ECHO, long), long)

    async def test_the_payload_is_taken_at_once(self):
        payload = bytearray(b"before")
        call = self.client.call_async(ECHO, payload)
        payload[:] = b"after!"
        self.assertEqual(await call, b"before")

    async def test_errors(self):
        with self.assertRaises(dunlin.HandlerError) as caught:
            await self.client.call_async(DIVIDE, bytes([1, 0]))
        self.assertEqual(caught.exception.code, 1)
        with self.assertRaises(dunlin.DeadlineExceeded):
            await self.client.call_async(HOLD, timeout=0.05)
        with self.assertRaises(TypeError):
            self.client.call_async(ECHO, 5)
        few = connect(RUST, max_outstanding=4)
        calls = [few.call_async(HOLD, timeout=1) for _ in range(5)]
        with self.assertRaisesRegex(dunlin.TooManyOutstanding, "max_outstanding") as caught:
            await calls[4]
        self.assertTrue(caught.exception.is_retryable)
        few.close()
        for call in calls[:4]:
            with self.assertRaises(dunlin.CallError):
                await call

    async def test_cancelling_a_task_cancels_its_call(self):
        await self.until_held(0)

        async def hold():
            await self.client.call_async(HOLD, timeout=600)

        task = asyncio.create_task(hold())
        await self.until_held(1)
        task.cancel()
        with self.assertRaises(asyncio.CancelledError):
            await task
        # The handler at the server is stopped.
        await self.until_held(0)
        with self.assertRaises(TimeoutError):
            async with asyncio.timeout(0.05):
                await self.client.call_async(HOLD, timeout=600)
        await self.until_held(0)

    async def test_regions(self):
        region = await asyncio.to_thread(self.client.attach, "table")
        await asyncio.gather(*[region.write_async(512 + 8 * n, b"%8d" % n) for n in range(100)])
        read = await asyncio.gather(*[region.read_async(512 + 8 * n, 8) for n in range(100)])
        self.assertEqual(read, [b"%8d" % n for n in range(100)])
        with self.assertRaises(dunlin.RegionError):
            await region.read_async(4090, 10)

    async def test_several_loops_share_a_client(self):
        wrong = []

        def loop(mine):
            async def main():
                calls = [self.client.call_async(ECHO, b"%d %d" % (mine, n)) for n in range(100)]
                return await asyncio.gather(*calls)

            if asyncio.run(main()) != [b"%d %d" % (mine, n) for n in range(100)]:
                wrong.append(mine)

        threads = [threading.Thread(target=loop, args=(mine,)) for mine in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            await asyncio.to_thread(thread.join)
        self.assertEqual(wrong, [])

    async def test_closing_ends_what_is_out(self):
        client = await dunlin.connect_async(RUST, connect_timeout=BOUND, deadline=BOUND)
        call = client.call_async(HOLD, timeout=600)
        self.assertEqual(await client.call_async(ECHO, b"x"), b"x")
        client.close()
        with self.assertRaises(dunlin.CallError):
            async with asyncio.timeout(BOUND):
                await call


if __name__ == "__main__":
    unittest.main()
