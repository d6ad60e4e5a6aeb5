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
//! Where nearly every message carries one thread's requests there is nothing to combine, and a message that is written
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
/// Looks until the clients' schedulers have run, which they do each 10 ms.
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
const ALONE: f64 = 1.25;

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

    /// Looks at a load until it is tried. What brings little is not judged by what threads do that have not been spread
    /// evenly over the queue pairs yet.
    const fn first(self) -> u32 {
        match self {
            Self::Fuller | Self::Fewer | Self::Sooner => 0,
            Self::More | Self::Rejoined | Self::Datagrams => SCHEDULED,
        }
    }

    /// Looks that say nothing after a step, because clients do not do what they are asked yet, and those that judge it:
    /// threads that change their queue pair end their calls first, and are spread evenly when their scheduler has run
    /// ([`crate::sharing::assignment`]), until when they are a tenth faster or slower by chance.
    const fn looks(self, way: Way) -> (u32, usize) {
        match (self, way) {
            (Self::Fuller | Self::Sooner, _) => (0, 1),
            // A thread's first datagram has to wait for a queue pair.
            (Self::Datagrams, Way::Further) => (LOOKS as u32, LOOKS),
            // Who comes back to the rings is not where it would be.
            (Self::Fewer | Self::More | Self::Rejoined | Self::Datagrams, _) => (SCHEDULED, LOOKS),
        }
    }
}

/// Where an attempt goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Further,
    Back,
}

impl Way {
    const fn reversed(self) -> Self {
        match self {
            Self::Further => Self::Back,
            Self::Back => Self::Further,
        }
    }
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
            Some(Attempt { means, way, .. }) if self.seen < means.looks(way).1 => return false,
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
        let rate = self.rate(means.looks(way).1);
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
            self.step(means, from, way.reversed());
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
        let by_datagrams = self.sends_datagrams();
        for means in Means::ALL {
            let (step, looks) = (self.steps[means as usize], means.looks(Way::Further).1);
            let has_reason = match means {
                Means::Fuller => part > FULL,
                // Those that are left have fewer messages under way, which is no sign of room.
                Means::Fewer => part > FULL * FEWER[step],
                Means::Sooner => part <= FULL && self.degree >= MANY,
                // A message that carries many already has little to gain from more senders.
                Means::Rejoined => part > BUSY && self.degree < MANY,
                Means::Datagrams => {
                    self.datagrams == Datagrams::WhenTheyPay
                        && part > BUSY
                        && came.threads < ALONE
                        && came.requests > 0
                }
                Means::More => part > BUSY && part <= FULL && came.has_spare,
            };
            let is_meant = !by_datagrams || means == Means::Datagrams;
            if self.seen < looks || self.attempt.is_some() || !is_meant {
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
            self.step(means, to, way);
        }
    }

    fn step(&mut self, means: Means, to: usize, way: Way) {
        self.steps[means as usize] = to;
        self.settling = means.looks(way).0;
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SECOND: Duration = Duration::from_secs(1);
    /// Messages a second that the device takes, and as many requests as fill it.
    const TAKES: u64 = 1_200_000;
    const MUCH: u64 = 500_000;

    /// A load that answers to what is asked for at once, but for a look after queue pairs have changed.
    struct Load {
        attempts: Attempts,
        /// By steps of fuller messages, and of fewer queue pairs.
        rates: [[u64; 3]; 3],
        /// Percent of it by steps of the others, in their order.
        percent: [[u64; 2]; 4],
        messages: u64,
        unsettled: u64,
        /// Threads of a message, and whether there are more queue pairs.
        threads: f64,
        has_spare: bool,
    }

    /// Of the others in `percent`.
    const OTHERS: [Means; 4] = [
        Means::Sooner,
        Means::More,
        Means::Rejoined,
        Means::Datagrams,
    ];
    const SOONER: usize = 0;
    const MORE: usize = 1;
    const REJOINED: usize = 2;
    const DATAGRAMS: usize = 3;

    impl Load {
        /// One that fills the NIC.
        fn new(rates: [[u64; 3]; 3], unsettled: u64) -> Self {
            Self {
                attempts: Attempts::new(Some(TAKES), Datagrams::WhenTheyPay),
                rates,
                percent: [[100; 2]; 4],
                messages: MUCH,
                unsettled,
                threads: 2.0,
                has_spare: false,
            }
        }

        fn rate(&self) -> u64 {
            let step = |means: Means| self.attempts.steps[means as usize];
            let rate = self.rates[step(Means::Fuller)][step(Means::Fewer)];
            let others = OTHERS.iter().zip(&self.percent);
            others.fold(rate, |rate, (&means, by)| rate * by[step(means)] / 100)
        }

        fn came(&self, requests: u64) -> Came {
            Came {
                messages: self.messages,
                requests,
                threads: self.threads,
                has_spare: self.has_spare,
            }
        }

        /// How far each is, with the first two apart.
        fn steps(&self) -> ([usize; 2], [usize; 4]) {
            let step = |means: Means| self.attempts.steps[means as usize];
            ([Means::Fuller, Means::Fewer].map(step), OTHERS.map(step))
        }

        fn look(&mut self) -> bool {
            let rate = match self.attempts.settling {
                0 => self.rate(),
                _ => self.unsettled,
            };
            let asked = |attempts: &Attempts| {
                let together = attempts.answered_together() < usize::MAX;
                (attempts.standing(true), attempts.active(100), together)
            };
            let before = asked(&self.attempts);
            let came = self.came(rate);
            let news = self.attempts.see(came, SECOND);
            assert_eq!(news, before != asked(&self.attempts));
            news
        }

        fn looks(&mut self, count: usize) -> &mut Self {
            for _ in 0..count {
                self.look();
            }
            self
        }

        /// To the end of an attempt that is under way.
        fn settle(&mut self) {
            while self.attempts.attempt.is_some() {
                self.look();
            }
        }
    }

    #[test]
    fn what_pays_stands() {
        let mut load = Load::new([[100, 110, 130], [105, 120, 140], [106, 120, 143]], 7);
        // Fuller messages first; half of what is out brings no 2 % more than a quarter.
        load.look();
        assert_eq!(load.attempts.standing(true).together(), Some(4));
        load.look();
        assert_eq!(load.attempts.standing(true).together(), Some(2));
        // With fewer queue pairs half does bring more, and is found when its rest is over.
        load.looks(80).settle();
        assert_eq!(load.steps(), ([2, 2], [0; 4]));
        assert!(!load.attempts.standing(false).contains(Standing::ACTIVE));
        assert_eq!(load.attempts.active(36), 22);
    }

    #[test]
    fn threads_rejoin_where_that_pays() {
        let mut load = Load::new([[100; 3]; 3], 100);
        load.percent[REJOINED] = [100, 105];
        // Nobody's NIC is in the way.
        load.messages = TAKES / 8;
        load.looks(100).settle();
        assert_eq!(load.steps(), ([0; 2], [0; 4]));
        load.messages += 1;
        load.look();
        assert!(load.attempts.standing(true).contains(Standing::REJOINED));
        load.looks(300).settle();
        assert_eq!(load.steps(), ([0; 2], [0, 0, 1, 0]));
        load.percent[REJOINED] = [100, 101];
        load.looks(2048).settle();
        assert!(!load.attempts.standing(true).contains(Standing::REJOINED));
        // Messages that carry many already.
        let many = 6 * load.messages;
        let mut load = Load {
            messages: load.messages,
            ..Load::new([[many; 3]; 3], many)
        };
        load.percent[REJOINED] = [100, 105];
        for _ in 0..300 {
            load.look();
            assert!(!load.attempts.standing(true).contains(Standing::REJOINED));
        }
    }

    #[test]
    fn answers_leave_sooner_where_that_pays() {
        let messages = TAKES / 10;
        let mut load = Load::new([[9 * messages; 3]; 3], 9 * messages);
        load.percent[SOONER] = [100, 104];
        load.messages = messages;
        assert_eq!(load.attempts.answered_together(), usize::MAX);
        load.look();
        // Nine requests in two messages.
        assert_eq!(load.attempts.answered_together(), 5);
        load.looks(200).settle();
        assert_eq!(load.steps(), ([0; 2], [1, 0, 0, 0]));
        // A NIC that is full has no message to spare.
        load.messages = MUCH;
        load.percent[SOONER] = [100, 90];
        load.looks(2048).settle();
        assert_eq!(load.attempts.answered_together(), usize::MAX);
        let mut few = Load::new([[5 * messages; 3]; 3], 5 * messages);
        few.messages = messages;
        assert!(!few.look());
    }

    #[test]
    fn threads_that_are_alone_send_datagrams_where_that_pays() {
        let mut load = Load::new([[100; 3]; 3], 100);
        load.percent[DATAGRAMS] = [100, 110];
        load.messages = TAKES / 4;
        // There is something to combine.
        load.threads = ALONE;
        for _ in 0..200 {
            load.look();
            assert!(!load.attempts.sends_datagrams());
        }
        load.threads = 1.0;
        load.looks(100).settle();
        assert!(load.attempts.standing(true).contains(Standing::DATAGRAMS));
        assert_eq!(load.steps(), ([0; 2], [0, 0, 0, 1]));
        // Nothing else is tried meanwhile, and they go when rings carry as much.
        load.messages = MUCH;
        load.looks(500).settle();
        assert_eq!(load.steps(), ([0; 2], [0, 0, 0, 1]));
        load.percent[DATAGRAMS] = [100, 101];
        load.looks(500).settle();
        assert!(!load.attempts.sends_datagrams());
        // A network that drops packets.
        load.attempts = Attempts::new(Some(TAKES), Datagrams::Never);
        load.percent[DATAGRAMS] = [100, 200];
        for _ in 0..200 {
            load.look();
            assert!(!load.attempts.sends_datagrams());
        }
    }

    #[test]
    fn more_queue_pairs_are_active_where_that_pays() {
        let mut load = Load::new([[100; 3]; 3], 100);
        load.percent[MORE] = [100, 104];
        load.messages = TAKES / 4;
        load.looks(200).settle();
        assert_eq!(load.attempts.active(36), 36);
        load.has_spare = true;
        load.looks(100).settle();
        assert_eq!(load.attempts.active(36), 45);
        // There are no others then, and that is no reason to go back.
        load.has_spare = false;
        load.looks(500).settle();
        assert_eq!(load.steps(), ([0; 2], [0, 1, 0, 0]));
        load.percent[MORE] = [100, 90];
        load.looks(500).settle();
        assert_eq!(load.attempts.active(36), 36);
    }

    #[test]
    fn what_does_not_pay_is_taken_back_and_tried_seldom() {
        let mut load = Load::new([[100, 101, 90], [101, 90, 80], [90, 80, 70]], 200);
        let mut tried = [const { Vec::new() }; Means::ALL.len()];
        for second in 0..1000 {
            let before = load.attempts.steps;
            load.look();
            for (tried, (was, is)) in tried
                .iter_mut()
                .zip(before.into_iter().zip(load.attempts.steps))
            {
                if is > was {
                    tried.push(second);
                }
            }
            assert!(load.attempts.steps.iter().sum::<usize>() <= 1);
        }
        let [fuller, fewer, sooner, more, rejoined, datagrams] = tried;
        for looks in [fuller, fewer, rejoined] {
            let gaps: Vec<i32> = looks.windows(2).map(|pair| pair[1] - pair[0]).collect();
            // Others' attempts come between them.
            assert!((3..=8).contains(&gaps.len()), "{looks:?}");
            assert!(gaps[gaps.len() - 1] >= 2 * gaps[0], "{looks:?}");
        }
        // Not of a NIC that is full.
        assert_eq!([sooner, more, datagrams].concat(), [0; 0]);
    }

    #[test]
    fn a_step_goes_when_its_load_has_gone() {
        let mut load = Load::new([[100, 150, 160]; 3], 7);
        load.looks(100).settle();
        assert_eq!(load.steps(), ([0, 2], [0; 4]));
        // As many come with all queue pairs: found by doubt.
        load.rates = [[150; 3]; 3];
        load.looks(400).settle();
        assert_eq!(load.steps(), ([0; 2], [0; 4]));
        // Nobody sends, and that is seen soon.
        load.rates = [[100, 150, 160]; 3];
        load.looks(2048).settle();
        assert_eq!(load.steps(), ([0, 2], [0; 4]));
        for _ in 0..50 {
            load.attempts.see(Came::default(), SECOND);
        }
        assert_eq!(load.steps(), ([0; 2], [0; 4]));
    }

    #[test]
    fn where_there_is_room_nothing_is_tried() {
        let mut load = Load::new([[100, 200, 300], [200; 3], [300; 3]], 100);
        load.messages = TAKES / 3;
        load.looks(100).settle();
        assert_eq!(load.steps(), ([0; 2], [0; 4]));
        load.messages += 1;
        let is_tried = (0..50).any(|_| {
            load.look();
            load.attempts.steps[Means::Fuller as usize] > 0
        });
        assert!(is_tried);
    }

    #[test]
    fn a_device_of_which_nothing_is_known_is_never_full() {
        let much = Came {
            messages: u64::MAX,
            requests: u64::MAX,
            threads: 1.0,
            has_spare: true,
        };
        let mut attempts = Attempts::new(None, Datagrams::WhenTheyPay);
        assert!(!attempts.see(much, SECOND));
        assert_eq!(attempts.standing(true), Standing::ACTIVE);
        assert_eq!((attempts.active(36), attempts.active(1)), (36, 1));
        // An interval of no length says nothing that could be wrong.
        let mut attempts = Attempts::new(Some(1000), Datagrams::WhenTheyPay);
        assert!(!attempts.see(much, Duration::ZERO));
        assert_eq!(attempts.standing(true), Standing::ACTIVE);
    }

    proptest! {
        /// Whatever each step brings: those that stand bring 2 % each, and the time goes to attempts no more.
        #[test]
        fn no_load_is_worse_off(
            rates in prop::array::uniform3(prop::array::uniform3(1_000u64..2_000)),
            others in prop::array::uniform4(80u64..130),
            is_alone in any::<bool>(),
            has_spare in any::<bool>(),
            unsettled in 0u64..4_000,
        ) {
            const EXACT: u64 = 100_000_000;
            let rates = rates.map(|row| row.map(|rate| EXACT * rate));
            let mut load = Load::new(rates, EXACT * unsettled);
            for (percent, with) in load.percent.iter_mut().zip(others) {
                percent[1] = with;
            }
            (load.threads, load.has_spare) = (if is_alone { 1.0 } else { 2.0 }, has_spare);
            let mut trying = 0;
            for look in 0..8_000 {
                load.look();
                if load.attempts.attempt.is_none() {
                    let steps: usize = load.attempts.steps.iter().sum();
                    let least = rates[0][0] as f64 * GAIN.powi(steps as i32);
                    prop_assert!(load.rate() as f64 >= 0.9999 * least, "{:?}", load.attempts.steps);
                } else if look >= 4_000 {
                    trying += 1;
                }
            }
            // Six kinds, two ways, three times at most, of twelve looks or of one.
            prop_assert!(trying <= 200, "{trying} of 4000 looks");
        }

        /// Whatever comes, it goes by steps that there are, and one at a time.
        #[test]
        fn steps_are_steps(
            looks in prop::collection::vec((0u64..TAKES, 0u64..10_000_000, 0u64..3), 0..300),
        ) {
            let mut attempts = Attempts::new(Some(TAKES), Datagrams::WhenTheyPay);
            for (messages, requests, seconds) in looks {
                let before = attempts.steps;
                let came = Came {
                    messages,
                    requests,
                    threads: 1.0,
                    has_spare: requests % 2 == 0,
                };
                let news = attempts.see(came, Duration::from_secs(seconds));
                let moved: usize = before.iter().zip(attempts.steps).map(|(&a, b)| a.abs_diff(b)).sum();
                prop_assert_eq!(news, moved > 0);
                prop_assert!(moved <= 1);
                for means in Means::ALL {
                    prop_assert!(attempts.steps[means as usize] < means.steps());
                }
            }
        }
    }
}
