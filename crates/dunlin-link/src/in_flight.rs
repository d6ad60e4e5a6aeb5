//! Requests by number, values that the device works on, and the proof that it no longer does.

/// The number of a request among all that were posted to its queue. The default comes before them all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

impl Ticket {
    #[inline]
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// How many requests had been posted with it.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// What a request names that was posted: a buffer that it reads or writes. [`SendQueue::finish`] gives it back.
///
/// [`SendQueue::finish`]: crate::SendQueue::finish
#[derive(Debug)]
#[must_use = "the device works on it until its request has finished"]
pub struct InFlight<T> {
    queue: u64,
    ticket: Ticket,
    value: T,
}

impl<T> InFlight<T> {
    pub(crate) fn new(queue: u64, ticket: Ticket, value: T) -> Self {
        Self {
            queue,
            ticket,
            value,
        }
    }

    /// The request that it waits for.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The value, to look at: what the device writes in it is not there yet.
    pub fn value(&self) -> &T {
        &self.value
    }

    pub(crate) fn queue(&self) -> u64 {
        self.queue
    }
}

/// A value whose request has finished successfully. Only [`SendQueue`](crate::SendQueue) makes one, of a completion, so
/// it proves that the device is done with the value.
#[derive(Debug)]
pub struct Completed<T>(T);

impl<T> Completed<T> {
    pub(crate) fn new(held: InFlight<T>) -> Self {
        Self(held.value)
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<A, B> Completed<(A, B)> {
    /// The second part with its proof, and the first, which may be a name for it, without.
    pub fn split(self) -> (A, Completed<B>) {
        let Self((name, value)) = self;
        (name, Completed(value))
    }
}
