//! What a server asks of its clients while its NIC is at its limit, and what it does itself while it is not, decided by
//! trial. Pure.
//!
//! A NIC at its limit queues messages, and a message that waits there could have waited at its sender for other
//! requests to go with it. The server sees all senders, so it detects this, and asks for one of two things: that
//! threads with many outstanding calls send them in *fuller* messages ([`crate::sharing::thread_port`]), and that
//! clients share *fewer* active queue pairs ([`super::redistribution`]).
//!
//! The server's pollers can be the bottleneck, too, which shows in passes that all find work. Each message costs them
//! time, so the same two are tried then, and what saves messages below.
//!
//! A NIC with spare capacity can send more messages than arrive. So the answers to a message of many requests may go in
//! two messages: the first *sooner*, while the handlers of the others run. Threads with one outstanding call each that
//! were answered by the same message can send together again ([`crate::sharing::engine`]), if the first waits a moment
//! for the others: that saves messages of their own NIC, whose load the server does not know. And *more* queue pairs
//! than are needed to fill the NIC keep threads from waiting for each other.
//!
//! If most messages carry one thread's requests, there is little to combine, and a message that is written into a ring
//! costs some NICs more than a datagram, which is not acknowledged and has no connection. So threads can send
//! *datagrams* instead ([`crate::client`]); while they do, nothing else is asked of them.
//!
//! A device's message rate is given for small messages, and only approximately, and the gain of a step of any of the
//! six depends on the load: so each step is an attempt, one at a time. A step that does not increase the rate of
//! requests is taken back, and one that stands is tested now and then: it is dropped if the rate is as high without it.
//! Failed attempts are repeated at growing intervals.

use std::time::Duration;

use super::Standing;
use crate::config::Datagrams;

/// A step is worth an attempt from this fraction of the device's message rate: the full rate is never reached, because
/// credits and grants are messages too, and messages that carry more are longer.
const FULL: f64 = 2.0 / 3.0;
/// A step has paid off if the rate of requests grew by this factor.
const GAIN: f64 = 1.02;
/// Number of measurements after a failed attempt until the next of its kind, at first and at most: each failure doubles
/// it.
const RESTS: (u32, u32) = (8, 1024);
/// Measurements to be ignored after a step was taken back, until all clients know and are back at their old rate.
const RETURN: u32 = 1;
/// Number of measurements after a step that paid off until it is tested; twice as many until the next test, and so on.
const DOUBT: u32 = 32;
/// A load that has grown or shrunk by this factor counts as a different load: what failed with the old one may pay off.
const OTHER: f64 = 2.0;
/// Number of measurements until the schedulers of newly connected clients have run.
const SCHEDULED: u32 = 10;
/// Maximum number of measurements that are averaged.
const LOOKS: usize = 2;

/// Steps of fuller messages: what clients are told.
const FULLER: [Standing; 3] = [
    Standing::empty(),
    Standing::SATURATED,
    Standing::SATURATED.union(Standing::STILL_SATURATED),
];
/// Steps of fewer active queue pairs: the fraction of all.
const FEWER: [f64; 3] = [1.0, 0.8, 0.6];
/// Steps of more active queue pairs, if there are others.
const MORE: [f64; 2] = [1.0, 1.25];
/// Steps of sooner answers: the number of messages in which those to one message are sent.
const SOONER: [f64; 2] = [1.0, 2.0];
/// Mean number of requests per message from which answers may be sent sooner, and below which threads answered together
/// may send together: a message that carries fewer is not worth splitting.
const MANY: f64 = 6.0;
/// Steps of sending together after being answered together: what clients are told.
const REJOINED: [Standing; 2] = [Standing::empty(), Standing::REJOINED];
/// Fraction of the device's message rate from which that is worth an attempt: below, no NIC is the bottleneck.
const BUSY: f64 = 0.25;
/// Mean number of threads per message up to which datagrams are worth an attempt: each thread sends its own datagrams,
/// so there are this many times as many.
const ALONE: f64 = 2.0;

/// The means: what clients are asked for, or the server does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Fuller,
    Fewer,
    Sooner,
    More,
    Rejoined,
    Datagrams,
}

impl Means {
    const ALL: [Self; 6] = [
        Self::Fuller,
        Self::Fewer,
        Self::Sooner,
        Self::More,
        Self::Rejoined,
        Self::Datagrams,
    ];

    const fn steps(self) -> usize {
        match self {
            Self::Fuller => FULLER.len(),
            Self::Fewer => FEWER.len(),
            Self::Sooner => SOONER.len(),
            Self::Rejoined => REJOINED.len(),
            Self::Datagrams => 2,
            Self::More => MORE.len(),
        }
    }

    /// Number of measurements of a load until this is tried: a small gain cannot be judged while threads connect and
    /// have not been spread evenly over the queue pairs yet, which their schedulers do every 10 ms.
    const fn first(self) -> u32 {
        match self {
            Self::Fuller | Self::Fewer | Self::Sooner => 0,
            Self::More | Self::Rejoined | Self::Datagrams => SCHEDULED,
        }
    }

    /// Number of measurements to be ignored after a step, because clients do not do what they are asked yet, and number
    /// of those that judge it: threads that change their queue pair end their calls first, and move to an activated one
    /// once their handle has noticed it ([`crate::sharing::dispatcher`]). A thread's first datagram must wait for a
    /// queue pair.
    const fn looks(self) -> (u32, usize) {
        match self {
            Self::Fuller | Self::Sooner => (0, 1),
            Self::Fewer | Self::More | Self::Rejoined | Self::Datagrams => (LOOKS as u32, LOOKS),
        }
    }
}

/// The direction of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Further,
    Back,
}

/// Measurements until the next attempt, and until the one after that if it fails.
#[derive(Clone, Copy, Debug)]
struct Rest {
    left: u32,
    next: u32,
}

impl Rest {
    fn new(left: u32, next: u32) -> Self {
        Self { left, next }
    }

    fn failed(&mut self) {
        self.left = self.next;
        self.next = (2 * self.next).min(RESTS.1);
    }
}

/// A step that is not judged yet.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    means: Means,
    way: Way,
    from: usize,
    /// The requests per second before it.
    before: f64,
}

/// What has arrived in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Came {
    pub(super) messages: u64,
    pub(super) requests: u64,
    /// Mean number of threads whose requests a message carried.
    pub(super) threads: f64,
    /// Whether there are queue pairs that are not active.
    pub(super) has_spare: bool,
    /// Whether nearly all passes of the polling threads found work.
    pub(super) pollers_are_busy: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempts {
    /// The device's message rate per second, in and out. `None` if it is never at its limit.
    takes: Option<u64>,
    /// When clients are asked to use datagrams.
    datagrams: Datagrams,
    /// By [`Means`].
    steps: [usize; Means::ALL.len()],
    /// By [`Means`] and [`Way`].
    rests: [[Rest; 2]; Means::ALL.len()],
    attempt: Option<Attempt>,
    /// Measurements still to be ignored.
    settling: u32,
    /// The last rates of requests since then, the latest first, and their number.
    rates: [f64; LOOKS],
    seen: usize,
    /// The rate at the last decision.
    known: f64,
    /// Requests per message in the last interval.
    degree: f64,
}

impl Default for Attempts {
    fn default() -> Self {
        Self::new(None, Datagrams::Never)
    }
}

impl Attempts {
    /// The state before anything has been tried.
    fn rested() -> [[Rest; 2]; Means::ALL.len()] {
        Means::ALL.map(|means| [Rest::new(means.first(), RESTS.0), Rest::new(0, 2 * DOUBT)])
    }

    pub(super) fn new(takes: Option<u64>, datagrams: Datagrams) -> Self {
        Self {
            takes,
            datagrams,
            steps: [0; Means::ALL.len()],
            rests: Self::rested(),
            attempt: None,
            settling: 0,
            rates: [0.0; LOOKS],
            seen: 0,
            known: 0.0,
            degree: 0.0,
        }
    }

    /// The step of each of the means, for people.
    pub(super) fn steps(&self) -> impl std::fmt::Debug + use<> {
        Means::ALL.map(|means| (means, self.steps[means as usize]))
    }

    /// Whether the device's message rate is known.
    pub(super) fn is_known(&self) -> bool {
        self.takes.is_some()
    }

    /// Records what arrived in an interval; returns whether clients are to be asked for something else.
    pub(super) fn see(&mut self, came: Came, interval: Duration) -> bool {
        let Came {
            messages, requests, ..
        } = came;
        let Some(takes) = self.takes.filter(|_| !interval.is_zero()) else {
            return false;
        };
        let steps = self.steps;
        self.degree = requests as f64 / messages.max(1) as f64;
        let seconds = interval.as_secs_f64();
        for rest in self.rests.as_flattened_mut() {
            rest.left = rest.left.saturating_sub(1);
        }
        if self.settling > 0 {
            self.settling -= 1;
            return false;
        }
        self.rates.rotate_right(1);
        self.rates[0] = requests as f64 / seconds;
        self.seen = (self.seen + 1).min(LOOKS);
        match self.attempt {
            Some(Attempt { means, .. }) if self.seen < means.looks().1 => return false,
            Some(attempt) => self.decide(attempt),
            None => self.forget_another_load(),
        }
        let each = 1.0 + self.answers();
        let part = each * messages as f64 / (takes as f64 * seconds);
        self.begin(part, came);
        self.steps != steps
    }

    /// The mean of this many last measurements.
    fn rate(&self, looks: usize) -> f64 {
        self.rates[..looks].iter().sum::<f64>() / looks as f64
    }

    /// Judges an attempt.
    fn decide(&mut self, attempt: Attempt) {
        let Attempt {
            means,
            way,
            from,
            before,
        } = attempt;
        self.attempt = None;
        let rate = self.rate(means.looks().1);
        let stands = match way {
            Way::Further => rate >= GAIN * before,
            Way::Back => GAIN * rate >= before,
        };
        let [further, back] = &mut self.rests[means as usize];
        self.known = if stands { rate } else { before };
        match (way, stands) {
            (Way::Further, true) => back.left = DOUBT,
            (Way::Further, false) => further.failed(),
            // It had paid off before, and no longer does.
            (Way::Back, true) => further.failed(),
            (Way::Back, false) => back.failed(),
        }
        if !stands {
            self.step(means, from);
            self.settling = self.settling.max(RETURN);
        }
    }

    /// Forgets what failed and what paid off if the load is a different one.
    fn forget_another_load(&mut self) {
        let rate = self.rate(self.seen);
        if rate * OTHER < self.known || rate > OTHER * self.known {
            self.known = rate;
            self.rests = Self::rested();
        }
    }

    /// Makes an attempt, if one is worthwhile when messages are this fraction of the device's message rate.
    fn begin(&mut self, part: f64, came: Came) {
        let busy = came.pollers_are_busy;
        let to_try: &[Means] = match self.sends_datagrams() {
            true => &[Means::Datagrams],
            false => &Means::ALL,
        };
        for &means in to_try {
            let (step, looks) = (self.steps[means as usize], means.looks().1);
            let has_reason = match means {
                Means::Fuller => part > FULL || (busy && self.degree < MANY),
                // The remaining ones have fewer messages in flight, which does not mean that there is capacity.
                Means::Fewer => {
                    (part > FULL * FEWER[step] || busy) && self.steps[Means::More as usize] == 0
                }
                // The requests of one thread that are answered apart stay apart, so halves must be many.
                Means::Sooner => {
                    let many = if came.threads < ALONE {
                        2.0 * MANY
                    } else {
                        MANY
                    };
                    part <= FULL && !busy && self.degree >= many
                }
                // A message that already carries many requests gains little from more senders.
                Means::Rejoined => (part > BUSY || busy) && self.degree < MANY,
                Means::Datagrams => {
                    self.datagrams == Datagrams::WhenTheyPay
                        && (part > BUSY || busy)
                        && came.threads < ALONE
                        && came.requests > 0
                }
                // After a step to fewer, more would only be the state before it.
                Means::More => {
                    part > BUSY
                        && part <= FULL
                        && came.has_spare
                        && self.steps[Means::Fewer as usize] == 0
                }
            };
            if self.seen < looks || self.attempt.is_some() {
                continue;
            }
            let is_rested = |way: Way| self.rests[means as usize][way as usize].left == 0;
            let (way, to) = if step > 0 && is_rested(Way::Back) {
                (Way::Back, step - 1)
            } else if has_reason && step + 1 < means.steps() && is_rested(Way::Further) {
                (Way::Further, step + 1)
            } else {
                continue;
            };
            self.attempt = Some(Attempt {
                means,
                way,
                from: step,
                before: self.rate(looks),
            });
            self.step(means, to);
        }
    }

    fn step(&mut self, means: Means, to: usize) {
        self.steps[means as usize] = to;
        self.settling = means.looks().0;
        self.seen = 0;
    }

    /// What a lane is told, active or not.
    pub(super) fn standing(&self, active: bool) -> Standing {
        let mut standing = FULLER[self.steps[Means::Fuller as usize]];
        standing |= REJOINED[self.steps[Means::Rejoined as usize]];
        standing.set(Standing::DATAGRAMS, self.sends_datagrams());
        standing.set(Standing::ACTIVE, active);
        standing
    }

    /// Whether clients are asked to use datagrams.
    pub(super) fn sends_datagrams(&self) -> bool {
        self.datagrams == Datagrams::Always || self.steps[Means::Datagrams as usize] > 0
    }

    /// Number of messages that answer one.
    fn answers(&self) -> f64 {
        SOONER[self.steps[Means::Sooner as usize]]
    }

    /// Maximum number of requests of a message that are answered together.
    pub(super) fn answered_together(&self) -> usize {
        match self.steps[Means::Sooner as usize] {
            0 => usize::MAX,
            _ => ((self.degree / self.answers()).ceil() as usize).max(1),
        }
    }

    /// Number of active queue pairs out of `most`.
    pub(super) fn active(&self, most: usize) -> usize {
        let part =
            FEWER[self.steps[Means::Fewer as usize]] * MORE[self.steps[Means::More as usize]];
        ((most as f64 * part).round() as usize).max(1)
    }
}

#[cfg(test)]
mod tests;
