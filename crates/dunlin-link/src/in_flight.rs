//! Tickets of requests, values in use by the device, and the proof that the device no longer uses them.

/// The number of a request among all that were posted to its queue. The default comes before all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

impl Ticket {
    #[inline]
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// The number of requests posted up to and including this one.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// A value that a posted request names, such as a buffer that it reads or writes. [`SendQueue::finish`] returns it.
///
/// [`SendQueue::finish`]: crate::SendQueue::finish
#[derive(Debug)]
#[must_use = "the device uses it until its request has completed"]
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

    /// The request that must finish first.
    pub fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// The value, for inspection only: data that the device writes into it may not have arrived.
    pub fn value(&self) -> &T {
        &self.value
    }

    pub(crate) fn queue(&self) -> u64 {
        self.queue
    }
}

/// A value whose request has finished successfully. Only [`SendQueue`](crate::SendQueue) can create one, from a
/// completion, so it proves that the device no longer uses the value.
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
    /// Splits a pair: the second part keeps its proof, the first, which may be a name for it, does not need one.
    pub fn split(self) -> (A, Completed<B>) {
        let Self((name, value)) = self;
        (name, Completed(value))
    }
}
