//! Sleep and wake-ups of one end of a ring, by means of [`dunlin_link::SleepWord`]: an end that has announced its sleep
//! is woken by the next event that it may be waiting for. How long it polls before it sleeps is described in
//! [`crate::stream`].

use std::os::fd::BorrowedFd;
use std::time::Duration;

use dunlin_link::SleepWord;
use dunlin_verbs::{
    CompletionChannel, CompletionQueue, Device, Notify, Payload, Region, RemoteAddress, SendFlags,
    SendRequest,
};

use super::{Link, Polled, RingLink};
use crate::error::RingError;

/// State that one end needs to sleep, and to wake the other.
#[derive(Debug)]
pub(crate) struct Sleeping<D: Device> {
    channel: D::CompletionChannel,
    /// Memory in which the peer announces its sleep.
    inlet: D::Region,
    word: SleepWord,
}

/// An end of a ring that can sleep and be woken by its peer.
pub(crate) trait Sleeps {
    /// Announces a sleep; returns `true` once the peer knows of it and the event is armed.
    fn prepare_sleep(&mut self) -> Result<bool, RingError>;
    /// The event to sleep on, if this ring has one.
    fn event(&self) -> Option<Box<dyn Event>>;
    /// Probes whether the peer is alive.
    fn probe(&mut self) -> Result<(), RingError>;
}

/// An event on which a thread can sleep for several streams.
pub(crate) trait Event: Send + Sync {
    /// A descriptor that is readable when the event is raised.
    fn descriptor(&self) -> BorrowedFd<'_>;
    /// Consumes the event, if it was raised.
    fn take(&self);
}

impl<C: CompletionChannel> Event for C {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.as_fd()
    }

    fn take(&self) {
        // An event that is not consumed costs one more poll.
        let _ = self.wait(Duration::ZERO);
    }
}

impl<D: Device> Sleeping<D> {
    pub(crate) fn new(
        channel: D::CompletionChannel,
        inlet: D::Region,
        at: usize,
        peer: RemoteAddress,
    ) -> Self {
        Self {
            channel,
            inlet,
            word: SleepWord::new(at, peer),
        }
    }

    #[inline(always)]
    pub(super) fn unanswered(&self) -> Option<u64> {
        self.word.unanswered(self.inlet.memory())
    }
}

impl<D: Device> Link<D> {
    /// The event that a wake-up raises, if this end can sleep.
    pub(crate) fn event(&self) -> Option<Box<dyn Event>> {
        let sleeping = self.sleeping.as_ref()?;
        Some(Box::new(sleeping.channel.clone()))
    }

    #[cold]
    pub(super) fn wake(&mut self, number: u64, name: u64) -> Result<(), RingError> {
        let entries = self.has_entries(1);
        let Some(sleeping) = self.sleeping.as_mut().filter(|_| entries) else {
            // The next notification wakes it; besides, its sleep is bounded.
            return Ok(());
        };
        sleeping.word.answer(number);
        let write = sleeping.word.wake_up();
        let request = SendRequest::new(name, write, Payload::Inline(&[]), SendFlags::SOLICITED);
        self.post(&mut [request], false)
    }

    /// Announces that this end is going to sleep, if that has not been done. Returns `true` once the peer is known to
    /// have received the announcement and the event is armed: the caller may sleep after one more poll that finds
    /// nothing.
    pub(crate) fn prepare_sleep(&mut self, name: u64) -> Result<(bool, Polled), RingError> {
        let entries = self.has_entries(1);
        let Some(sleeping) = &mut self.sleeping else {
            return Ok((false, Polled::default()));
        };
        if !sleeping.word.is_unanswered() && entries {
            let (write, number) = sleeping.word.announce();
            let payload = Payload::Inline(&number);
            let request = SendRequest::new(name, write, payload, SendFlags::empty());
            self.post(&mut [request], true)?;
            let posted = self.sends.last();
            if let Some(sleeping) = &mut self.sleeping {
                sleeping.word.announced(posted);
            }
        }
        let mut polled = self.poll()?;
        if !self.is_sleep_heard() {
            return Ok((false, polled));
        }
        let armed = self.completions.request_notify(Notify::Next);
        // Completions that arrived before the event was armed raise none.
        let more = self.poll()?;
        polled.completed = more.completed.or(polled.completed);
        polled.received += more.received;
        let ready = armed.is_ok() && polled.received == 0 && self.is_sleep_heard();
        Ok((ready, polled))
    }

    fn is_sleep_heard(&self) -> bool {
        let sleeping = self.sleeping.as_ref();
        sleeping.is_some_and(|sleeping| sleeping.word.is_heard(&self.sends))
    }

    /// Records wake-ups, whichever direction polled for them: the sleep has been answered, and the next one must be
    /// announced again.
    #[cold]
    pub(crate) fn woken(&mut self, count: usize) {
        if let Some(sleeping) = &mut self.sleeping {
            sleeping.word.woken();
        }
        self.expect_immediates(count);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use rustix::event::{poll, PollFd, PollFlags, Timespec};

    use super::*;
    use crate::{
        stream_config, Consumer, Producer, Received, SendError, UnconnectedConsumer,
        UnconnectedProducer,
    };
    use dunlin_shm::{ShmConfig, ShmDevice};

    fn ring() -> (Producer<ShmDevice>, Consumer<ShmDevice>) {
        let device = || ShmDevice::open(ShmConfig::default()).unwrap();
        let config = stream_config();
        let producer = UnconnectedProducer::waking(&device(), &config).unwrap();
        let consumer = UnconnectedConsumer::waking(&device(), &config).unwrap();
        let (to_consumer, to_producer) = (producer.offer(), consumer.offer());
        (
            producer.connect(&to_producer).unwrap(),
            consumer.connect(&to_consumer).unwrap(),
        )
    }

    fn until(mut done: impl FnMut() -> bool) {
        let start = std::time::Instant::now();
        while !done() {
            assert!(start.elapsed() < Duration::from_secs(20), "it hangs");
            std::thread::yield_now();
        }
    }

    /// Whether the event is raised within a bound that serves to end the test.
    fn rings(event: &dyn Event, seconds: i64) -> bool {
        let mut descriptors = [PollFd::from_borrowed_fd(event.descriptor(), PollFlags::IN)];
        let limit = Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        };
        let woken = poll(&mut descriptors, Some(&limit)).unwrap() > 0;
        event.take();
        woken
    }

    #[test]
    fn a_message_wakes_the_consumer_and_a_push_the_producer() {
        let (mut producer, mut consumer) = ring();
        // Three sleeps, each of which is announced again.
        for number in 0..3u8 {
            let event = consumer.event().unwrap();
            // A device may raise a spurious event, for example when a peer attaches.
            until(|| consumer.prepare_sleep().unwrap() && !rings(&*event, 0));
            producer.try_send(&[number; 8]).unwrap();
            assert!(rings(&*event, 20));
            let read = consumer.receive(|message| message.array::<1>(0)).unwrap();
            assert_eq!(read, Received::Message([number]));
        }
        while producer.try_send(&[7; 200]) != Err(SendError::Full) {}
        let event = producer.event().unwrap();
        until(|| producer.prepare_sleep().unwrap() && !rings(&*event, 0));
        while consumer.receive(|_| ()).unwrap() == Received::Message(()) {}
        assert!(rings(&*event, 20));
        producer.try_send(&[7; 200]).unwrap();

        // The end of the ring and the loss of the peer also wake.
        while consumer.receive(|_| ()).unwrap() == Received::Message(()) {}
        let event = consumer.event().unwrap();
        until(|| consumer.prepare_sleep().unwrap() && !rings(&*event, 0));
        producer.close().unwrap();
        assert!(rings(&*event, 20));
        let mut found = Received::Empty;
        until(|| {
            found = consumer.receive(|_| ()).unwrap();
            found != Received::Empty
        });
        assert_eq!(found, Received::End);
        let (mut producer, consumer) = ring();
        let event = producer.event().unwrap();
        until(|| producer.prepare_sleep().unwrap() && !rings(&*event, 0));
        drop(consumer);
        assert!(rings(&*event, 20));
        until(|| producer.poll().is_err());
    }
}
