//! What a server asks of its clients while its NIC is at its limit, and what it does itself while it is not, by
//! attempts. Pure.
//!
//! A NIC at its limit queues messages, and a message that waits there could have waited at its sender for others to go
//! with it. The server sees all senders, so it says when that is so, and asks for one of two things: that threads that
//! keep many calls out send them in *fuller* messages ([`crate::sharing::thread_port`]), and that clients share *fewer*
//! active queue pairs ([`super::redistribution`]).
//!
//! A NIC with room to spare can send more messages than come. So the answers to a message of many requests may go in
//! two: the first *sooner*, while the handlers of the others run. And threads that have one call out each and were
//! answered by the same message can go on together ([`crate::sharing::engine`]), if the first waits a moment for the
//! others: that spares messages of their own NIC, of which the server knows nothing. And *more* queue pairs than are
//! enough to fill the NIC keep threads from waiting for each other.
//!
//! Where most messages carry one thread's requests there is little to combine, and a message that is written
//! into a ring costs some NICs more than a datagram, which is not acknowledged and has no connection. So threads can
//! send *datagrams* instead ([`crate::client`]), and while they do nothing else is asked of them.
//!
//! What a device takes is said of small messages, and not exactly, and what a step of any of the six brings depends on
//! the load: so each is an attempt, one at a time. A step that does not bring more requests than came before it is
//! taken back, and one that stands is doubted now and then: it goes when as many come without it. Attempts that fail
//! come later each time.

use std::time::Duration;

use super::Standing;
use crate::config::Datagrams;

/// A step is worth an attempt from this part of what the device takes: all of it is never reached, because credits and
/// grants are messages too, and messages that carry more are longer.
const FULL: f64 = 2.0 / 3.0;
/// A step has paid when so many times the requests came with it.
const GAIN: f64 = 1.02;
/// Looks after an attempt that failed until the next of its kind, at first and at most: each failure doubles them.
const RESTS: (u32, u32) = (8, 1024);
/// Looks that say nothing after a step was taken back, until all have heard it and are at their old pace.
const RETURN: u32 = 1;
/// Looks after a step that paid until it is doubted; twice as many until it is again, and so on.
const DOUBT: u32 = 32;
/// A load that has become so many times what it was, or the other way around, is another: what failed with the old one
/// may pay.
const OTHER: f64 = 2.0;
/// Looks until the schedulers of clients that have just connected have run.
const SCHEDULED: u32 = 10;
/// Most looks that a mean is taken of.
const LOOKS: usize = 2;

/// Fuller messages, step by step: what clients are told.
const FULLER: [Standing; 3] = [
    Standing::empty(),
    Standing::SATURATED,
    Standing::SATURATED.union(Standing::STILL_SATURATED),
];
/// Fewer active queue pairs, step by step: what part of all.
const FEWER: [f64; 3] = [1.0, 0.8, 0.6];
/// More of them, step by step, where there are others.
const MORE: [f64; 2] = [1.0, 1.25];
/// Sooner answers, step by step: in how many messages those to a message go.
const SOONER: [f64; 2] = [1.0, 2.0];
/// Requests of a message, in the mean, from which on its answers may go sooner, and below which those who were answered
/// together may send together: a message that carries fewer is not worth two.
const MANY: f64 = 6.0;
/// Threads that were answered together send together, step by step: what clients are told.
const REJOINED: [Standing; 2] = [Standing::empty(), Standing::REJOINED];
/// From this part of what the device takes on that is worth an attempt: below, nobody's NIC is in the way.
const BUSY: f64 = 0.25;
/// Threads whose requests a message carries, in the mean, up to which datagrams are worth an attempt: each thread sends
/// its own, and so many are more.
const ALONE: f64 = 2.0;

/// What is asked for, or done.
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

    /// Looks at a load until it is tried: what brings little is not judged while threads connect and have not been
    /// spread evenly over the queue pairs yet, which their schedulers do each 10 ms.
    const fn first(self) -> u32 {
        match self {
            Self::Fuller | Self::Fewer | Self::Sooner => 0,
            Self::More | Self::Rejoined | Self::Datagrams => SCHEDULED,
        }
    }

    /// Looks that say nothing after a step, because clients do not do what they are asked yet, and those that judge it:
    /// threads that change their queue pair end their calls first, and go to one that was activated when their handle
    /// has looked ([`crate::sharing::dispatcher`]). A thread's first datagram has to wait for a queue pair.
    const fn looks(self) -> (u32, usize) {
        match self {
            Self::Fuller | Self::Sooner => (0, 1),
            Self::Fewer | Self::More | Self::Rejoined | Self::Datagrams => (LOOKS as u32, LOOKS),
        }
    }
}

/// Where an attempt goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Further,
    Back,
}

/// Looks until the next attempt, and after the next that fails.
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

/// A step that is not decided yet.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    means: Means,
    way: Way,
    from: usize,
    /// As many requests came a second before it.
    before: f64,
}

/// What has come in an interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Came {
    pub(super) messages: u64,
    pub(super) requests: u64,
    /// Threads whose requests a message carried, in the mean.
    pub(super) threads: f64,
    /// Whether there are queue pairs that are not active.
    pub(super) has_spare: bool,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempts {
    /// Messages that the device takes a second, in and out. None: it is never at its limit.
    takes: Option<u64>,
    /// When clients are asked for datagrams.
    datagrams: Datagrams,
    /// By [`Means`].
    steps: [usize; Means::ALL.len()],
    /// By [`Means`] and [`Way`].
    rests: [[Rest; 2]; Means::ALL.len()],
    attempt: Option<Attempt>,
    /// Looks that say nothing yet.
    settling: u32,
    /// The last rates of requests since then, the latest first, and how many.
    rates: [f64; LOOKS],
    seen: usize,
    /// The rate at the last decision.
    known: f64,
    /// Requests of a message in the last interval.
    degree: f64,
}

impl Default for Attempts {
    fn default() -> Self {
        Self::new(None, Datagrams::Never)
    }
}

impl Attempts {
    /// Before anything has been tried.
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

    /// How far each of the means is, for people.
    pub(super) fn steps(&self) -> impl std::fmt::Debug + use<> {
        Means::ALL.map(|means| (means, self.steps[means as usize]))
    }

    /// Whether the device says what it takes.
    pub(super) fn is_known(&self) -> bool {
        self.takes.is_some()
    }

    /// This came in an interval; says whether clients are to be asked for something else.
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

    /// The mean of the last looks, so many of them.
    fn rate(&self, looks: usize) -> f64 {
        self.rates[..looks].iter().sum::<f64>() / looks as f64
    }

    /// An attempt has been seen.
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
            // It had paid before, and does no more.
            (Way::Back, true) => further.failed(),
            (Way::Back, false) => back.failed(),
        }
        if !stands {
            self.step(means, from);
            self.settling = self.settling.max(RETURN);
        }
    }

    /// What failed and what paid is of the load at that time.
    fn forget_another_load(&mut self) {
        let rate = self.rate(self.seen);
        if rate * OTHER < self.known || rate > OTHER * self.known {
            self.known = rate;
            self.rests = Self::rested();
        }
    }

    /// Makes an attempt, if one is worth it where messages are this part of what the device takes.
    fn begin(&mut self, part: f64, came: Came) {
        let to_try: &[Means] = match self.sends_datagrams() {
            true => &[Means::Datagrams],
            false => &Means::ALL,
        };
        for &means in to_try {
            let (step, looks) = (self.steps[means as usize], means.looks().1);
            let has_reason = match means {
                Means::Fuller => part > FULL,
                // Those that are left have fewer messages under way, which is no sign of room.
                Means::Fewer => part > FULL * FEWER[step] && self.steps[Means::More as usize] == 0,
                Means::Sooner => part <= FULL && self.degree >= MANY,
                // A message that carries many already has little to gain from more senders.
                Means::Rejoined => part > BUSY && self.degree < MANY,
                Means::Datagrams => {
                    self.datagrams == Datagrams::WhenTheyPay
                        && part > BUSY
                        && came.threads < ALONE
                        && came.requests > 0
                }
                // With fewer, more are what there was before.
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

    /// What a lane is told that is active, or not.
    pub(super) fn standing(&self, active: bool) -> Standing {
        let mut standing = FULLER[self.steps[Means::Fuller as usize]];
        standing |= REJOINED[self.steps[Means::Rejoined as usize]];
        standing.set(Standing::DATAGRAMS, self.sends_datagrams());
        standing.set(Standing::ACTIVE, active);
        standing
    }

    /// Whether clients are asked for datagrams.
    pub(super) fn sends_datagrams(&self) -> bool {
        self.datagrams == Datagrams::Always || self.steps[Means::Datagrams as usize] > 0
    }

    /// How many messages answer one.
    fn answers(&self) -> f64 {
        SOONER[self.steps[Means::Sooner as usize]]
    }

    /// How many requests of a message are answered together at most.
    pub(super) fn answered_together(&self) -> usize {
        match self.steps[Means::Sooner as usize] {
            0 => usize::MAX,
            _ => ((self.degree / self.answers()).ceil() as usize).max(1),
        }
    }

    /// How many queue pairs are active of `most`.
    pub(super) fn active(&self, most: usize) -> usize {
        let part =
            FEWER[self.steps[Means::Fewer as usize]] * MORE[self.steps[Means::More as usize]];
        ((most as f64 * part).round() as usize).max(1)
    }
}

#[cfg(test)]
mod tests;
