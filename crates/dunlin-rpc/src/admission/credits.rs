//! Credits: the number of requests that a lane may send before its server has granted more (FLOCK §5.1).
//!
//! Both sides count totals since the lane began, modulo 2^32, so a repeated grant counts once. Pure values.

/// Credits of a lane at the start, and of each renewal (FLOCK's C); with `auto` the minimum of a renewal.
pub(crate) const CREDITS: u32 = 32;
/// Maximum of a renewal for senders that want few queue pairs (`auto`), each of which is shared by many threads.
pub(crate) const CREDITS_OF_FEW: u32 = 4 * CREDITS;
/// Approximate number of messages that a renewal should last for: each renewal costs the server a WRITE. The server
/// grants no less than at the start and no more than the preset allows.
const MESSAGES_OF_RENEWAL: u32 = CREDITS / 2;
/// Credits at the start and of each renewal if queue pairs are in software and no NIC needs protection: enough for four
/// threads with 64 calls each, so that the ring's room is the bound, instead of a wait that protects nothing.
pub(crate) const CREDITS_OF_MEMORY: u32 = 8 * CREDITS;
/// Maximum number of credits that a client accepts: many times what any honest server grants.
const MOST_LEFT: u32 = 1 << 16;
/// Highest coalescing degree that is counted separately; higher ones are counted as this.
const MOST_DEGREE: u32 = most_degree(CREDITS_OF_FEW);

/// Highest coalescing degree that an honest client reports: a message carries no more requests than a lane can hold
/// credits.
const fn most_degree(credits: u32) -> u32 {
    credits + credits / 2
}

fn check_degree(degree: u32, most: u32) -> Result<(), InvalidReport> {
    match (1..=most).contains(&degree) {
        true => Ok(()),
        false => Err(InvalidReport("an impossible coalescing degree")),
    }
}

/// The client's side of a lane's credits, and the coalescing degrees that it will report with the next renewal.
#[derive(Debug)]
pub(crate) struct CreditBalance {
    granted: u32,
    used: u32,
    renewal: u32,
    asked: bool,
    degrees: Degrees,
    /// Sum of the threads of the messages that `degrees` counts.
    threads: u32,
    one_sided: OneSidedReport,
}

/// What a client reports about its messages since it last asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coalescing {
    /// Requests per message: the lower median.
    pub(crate) degree: u32,
    /// Threads per message: the mean, in eighths ([`ONE_THREAD`]).
    pub(crate) threads: u32,
}

impl CreditBalance {
    /// Starts with `credits`, renewed by the same number until a grant has another.
    pub(crate) fn new(credits: u32) -> Self {
        Self {
            granted: credits,
            used: 0,
            renewal: credits,
            asked: false,
            degrees: Degrees::default(),
            threads: 0,
            one_sided: OneSidedReport::default(),
        }
    }

    /// Counts one-sided operations that were posted together (FLOCK §6). They cost no credits, because the server's
    /// processor does nothing for them, but count in the utilisation. Returns the median degree to be reported now, if
    /// as many as half a renewal were posted since the last report and the server has taken that one.
    pub(crate) fn operate(&mut self, operations: u32) -> Option<u32> {
        let this = &mut self.one_sided;
        this.degrees.add(operations);
        this.operations += operations;
        if this.out || this.operations < self.renewal / 2 {
            return None;
        }
        this.out = true;
        this.operations = 0;
        Some(this.degrees.take_median())
    }

    /// Records the number of reports that the server has taken, modulo 256.
    pub(crate) fn reports_taken(&mut self, count: u8) {
        if count != self.one_sided.taken {
            self.one_sided.taken = count;
            self.one_sided.out = false;
        }
    }

    /// Whether the server has yet to take a report.
    pub(crate) fn has_reported(&self) -> bool {
        self.one_sided.out
    }

    /// Number of requests that may be sent now.
    #[inline]
    pub(crate) fn left(&self) -> u32 {
        self.granted.wrapping_sub(self.used)
    }

    /// Counts a message with this many requests of this many threads.
    #[inline]
    pub(crate) fn spend(&mut self, requests: u32, threads: u32) {
        debug_assert!(requests <= self.left());
        self.used = self.used.wrapping_add(requests);
        self.degrees.add(requests);
        self.threads = self.threads.saturating_add(threads);
    }

    /// Returns what to report when asking for more, once half of the credits are spent and no request for more is
    /// outstanding.
    #[inline]
    pub(crate) fn ask(&mut self) -> Option<Coalescing> {
        if self.asked || self.left() > self.renewal / 2 {
            return None;
        }
        self.asked = true;
        let messages = self.degrees.messages.max(1);
        let threads = std::mem::take(&mut self.threads);
        Some(Coalescing {
            degree: self.degrees.take_median(),
            threads: threads.saturating_mul(ONE_THREAD) / messages,
        })
    }

    /// Whether a request for more is outstanding.
    #[inline]
    pub(crate) fn has_asked(&self) -> bool {
        self.asked
    }

    /// Takes the server's total. Only growth counts, and impossible totals are ignored: they can only slow down this
    /// client. However often a server grants, a client has no more than [`MOST_LEFT`].
    #[inline]
    pub(crate) fn granted(&mut self, total: u32) {
        let more = total.wrapping_sub(self.granted);
        if more != 0 && more <= MOST_LEFT && total.wrapping_sub(self.used) <= MOST_LEFT {
            self.granted = total;
            self.renewal = more;
            self.asked = false;
        }
    }
}

/// What a client reports about its one-sided operations.
#[derive(Debug, Default)]
struct OneSidedReport {
    degrees: Degrees,
    operations: u32,
    /// Whether a report is outstanding, and the number that the server had taken before.
    out: bool,
    taken: u8,
}

/// Degrees since the last renewal: there are few, and their median is determined once per renewal.
#[derive(Debug)]
struct Degrees {
    counts: [u16; MOST_DEGREE as usize + 1],
    messages: u32,
}

impl Default for Degrees {
    fn default() -> Self {
        Self {
            counts: [0; MOST_DEGREE as usize + 1],
            messages: 0,
        }
    }
}

impl Degrees {
    #[inline]
    fn add(&mut self, degree: u32) {
        let place = &mut self.counts[degree.min(MOST_DEGREE) as usize];
        *place = place.saturating_add(1);
        self.messages += 1;
    }

    /// Returns the lower median, at least one, and starts over.
    fn take_median(&mut self) -> u32 {
        let middle = self.messages.div_ceil(2);
        let mut seen = 0;
        let mut median = 1;
        for (degree, &count) in self.counts.iter().enumerate() {
            seen += u32::from(count);
            if seen >= middle && count > 0 {
                median = degree as u32;
                break;
            }
        }
        *self = Self::default();
        median.max(1)
    }
}

/// The server's side of a lane's credits.
#[derive(Debug)]
pub(crate) struct Ledger {
    granted: u32,
    taken: u32,
    /// Minimum and maximum of a renewal, and the last one.
    bounds: (u32, u32),
    renewal: u32,
    pending: Option<Renewal>,
    /// Number of reports of one-sided operations taken, modulo 256.
    reports: u8,
}

/// One thread, in the unit of the mean number of threads per message.
pub(crate) const ONE_THREAD: u32 = 8;

/// A client's request for credits, with its report about its messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Renewal {
    /// As in [`Coalescing`].
    pub(crate) degree: u32,
    pub(crate) threads: u32,
    pub(crate) credits: u32,
}

impl Renewal {
    /// Widths of the degree, in the low bits of the word, and of the threads; the credits use the rest.
    const DEGREE_BITS: u32 = 9;
    const THREADS_BITS: u32 = 7;
    const CREDITS_SHIFT: u32 = Self::DEGREE_BITS + Self::THREADS_BITS;
    /// Width of the word: the two bits above give the kind of word.
    const BITS: u32 = 30;
    const DEGREE_MOST: u32 = (1 << Self::DEGREE_BITS) - 1;
    const THREADS_MOST: u32 = (1 << Self::THREADS_BITS) - 1;
    const CREDITS_MOST: u32 = (1 << (Self::BITS - Self::CREDITS_SHIFT)) - 1;

    /// The request of a lane that `threads` threads share, with this report about its messages.
    pub(crate) fn wanted(said: Coalescing, threads: u32) -> Self {
        let messages = said.degree.max(threads);
        Self {
            degree: said.degree,
            threads: said.threads,
            credits: messages.saturating_mul(MESSAGES_OF_RENEWAL),
        }
    }

    /// Encodes it into a word of 30 bits; credits and threads saturate.
    pub(crate) fn encode(self) -> u32 {
        self.degree.min(Self::DEGREE_MOST)
            | self.threads.min(Self::THREADS_MOST) << Self::DEGREE_BITS
            | self.credits.min(Self::CREDITS_MOST) << Self::CREDITS_SHIFT
    }

    /// Decodes any word that a peer has sent.
    pub(crate) fn decode(word: u32) -> Self {
        Self {
            degree: word & Self::DEGREE_MOST,
            threads: word >> Self::DEGREE_BITS & Self::THREADS_MOST,
            credits: word >> Self::CREDITS_SHIFT & Self::CREDITS_MOST,
        }
    }
}

// The degree of an honest client fits.
const _: () = assert!(most_degree(CREDITS_OF_MEMORY) <= Renewal::DEGREE_MOST);

/// A client sent more than it was granted, or an invalid request for credits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InvalidReport(pub(crate) &'static str);

impl Ledger {
    /// Starts with `least` credits; each renewal is at least as many and at most `most`.
    pub(crate) fn new((least, most): (u32, u32)) -> Self {
        Self {
            granted: least,
            taken: 0,
            bounds: (least, most.max(least)),
            renewal: least,
            pending: None,
            reports: 0,
        }
    }

    /// Credits granted since the lane began.
    pub(crate) fn total(&self) -> u32 {
        self.granted
    }

    /// Number of requests taken since the lane began.
    pub(crate) fn taken(&self) -> u32 {
        self.taken
    }

    /// Credits that the client has left, as far as this side knows.
    pub(crate) fn left(&self) -> u32 {
        self.granted.wrapping_sub(self.taken)
    }

    /// Counts a request that was taken.
    ///
    /// # Errors
    /// If it had no credit.
    #[inline]
    pub(crate) fn take(&mut self) -> Result<(), InvalidReport> {
        if self.left() == 0 {
            return Err(InvalidReport("a request without credits"));
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(())
    }

    /// Whether an honest client has asked for more by now, or is about to.
    #[inline]
    pub(crate) fn is_due(&self) -> bool {
        self.left() <= self.renewal / 2
    }

    /// Whether the client has sent requests after the message with which it asked.
    #[inline]
    pub(crate) fn is_overdue(&self) -> bool {
        self.left() < self.renewal / 2
    }

    /// Takes a client's request for more, with its median degree.
    ///
    /// # Errors
    /// If the degree is impossible.
    pub(crate) fn asked(&mut self, renewal: Renewal) -> Result<(), InvalidReport> {
        check_degree(renewal.degree, most_degree(self.bounds.1))?;
        self.pending = Some(renewal);
        Ok(())
    }

    /// Takes a client's report of its median degree of one-sided operations. They cost no credits, so the degree is
    /// limited only by what is counted separately.
    ///
    /// # Errors
    /// If the degree is impossible.
    pub(crate) fn reported(&mut self, degree: u32) -> Result<(), InvalidReport> {
        check_degree(degree, MOST_DEGREE)?;
        self.reports = self.reports.wrapping_add(1);
        Ok(())
    }

    /// Number of reports taken, modulo 256.
    pub(crate) fn reports(&self) -> u8 {
        self.reports
    }

    /// Whether a request for more is waiting.
    #[inline]
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Grants what was asked for, within the bounds, once half of the credits have been *taken*: a client that asks
    /// early waits, so no client holds more than one and a half times the maximum of a renewal. Returns the degree that
    /// came with the request, and what was granted.
    pub(crate) fn grant(&mut self) -> Option<Renewal> {
        if !self.is_due() {
            return None;
        }
        let asked = self.pending.take()?;
        let (least, most) = self.bounds;
        self.renewal = asked.credits.clamp(least, most);
        self.granted = self.granted.wrapping_add(self.renewal);
        Some(Renewal {
            credits: self.renewal,
            ..asked
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flock() -> Ledger {
        Ledger::new((CREDITS, CREDITS))
    }

    fn wish(degree: u32, credits: u32) -> Renewal {
        Renewal {
            degree,
            threads: ONE_THREAD,
            credits,
        }
    }

    fn said(degree: u32, threads: u32) -> Coalescing {
        Coalescing { degree, threads }
    }

    /// One-sided operations cost no credits: those of many threads may be posted together.
    #[test]
    fn a_report_of_any_number_of_operations_is_taken() {
        for operations in [16, 48, 49, 64, 192, 512] {
            let (mut balance, mut ledger) = (CreditBalance::new(CREDITS), flock());
            let degree = balance.operate(operations).unwrap();
            ledger.reported(degree).unwrap();
        }
        let mut ledger = flock();
        assert!(ledger.reported(0).is_err() && ledger.reported(MOST_DEGREE + 1).is_err());
    }

    #[test]
    fn a_renewal_is_what_is_asked_for_within_the_bounds() {
        let (mut balance, mut ledger) = (CreditBalance::new(32), Ledger::new((32, 128)));
        for (asked, granted) in [(96, 96), (1, 32), (5000, 128), (0, 32)] {
            while balance.ask().is_none() {
                balance.spend(1, 1);
                ledger.take().unwrap();
            }
            ledger.asked(wish(1, asked)).unwrap();
            assert_eq!(ledger.grant(), Some(wish(1, granted)));
            balance.granted(ledger.total());
            assert_eq!(balance.left(), ledger.left());
        }
        // FLOCK's C stays fixed.
        let mut ledger = flock();
        (0..CREDITS / 2).for_each(|_| ledger.take().unwrap());
        ledger.asked(wish(1, 128)).unwrap();
        assert_eq!(ledger.grant(), Some(wish(1, CREDITS)));
    }

    #[test]
    fn a_wish_crosses_in_one_word() {
        for renewal in [wish(1, 0), wish(384, 256), wish(511, 16_383)] {
            for threads in [0, 1, 127] {
                let renewal = Renewal { threads, ..renewal };
                assert_eq!(Renewal::decode(renewal.encode()), renewal);
            }
        }
        assert_eq!(Renewal::decode(wish(7, u32::MAX).encode()), wish(7, 16_383));
    }

    /// FLOCK §5.1: 32 credits at the start; after 16 the client asks for more, and meanwhile uses the other 16.
    #[test]
    fn renewal_at_half() {
        let (mut balance, mut ledger) = (CreditBalance::new(CREDITS), flock());
        for _ in 0..15 {
            balance.spend(1, 1);
            assert_eq!(balance.ask(), None);
            ledger.take().unwrap();
        }
        balance.spend(1, 1);
        assert_eq!(balance.ask(), Some(said(1, ONE_THREAD)));
        assert_eq!(balance.ask(), None, "one request for more at a time");
        ledger.asked(wish(1, 0)).unwrap();
        assert_eq!(ledger.grant(), None, "only 15 were taken");
        ledger.take().unwrap();
        assert_eq!(ledger.grant(), Some(wish(1, CREDITS)));
        assert_eq!((ledger.total(), ledger.left()), (64, 48));
        balance.granted(ledger.total());
        assert_eq!(balance.left(), 48);
    }

    #[test]
    fn the_median_is_of_messages_since_the_last_renewal() {
        let mut balance = CreditBalance::new(CREDITS);
        for degree in [1, 5, 5, 2, 6] {
            balance.spend(degree, 1);
        }
        assert_eq!(balance.ask(), Some(said(5, ONE_THREAD)));
        balance.granted(64);
        // For the threads it is the mean.
        for (degree, threads) in [(2, 1), (9, 3), (3, 1), (3, 2), (20, 3)] {
            balance.spend(degree, threads);
        }
        assert_eq!(balance.ask(), Some(said(3, 2 * ONE_THREAD)));
    }

    #[test]
    fn a_server_that_grants_without_end_leaves_a_bounded_number() {
        let mut balance = CreditBalance::new(CREDITS);
        for total in (0..u32::MAX).step_by(1 << 15) {
            balance.granted(total);
            assert!(balance.left() <= MOST_LEFT);
        }
    }

    #[test]
    fn lies_are_told_apart() {
        let mut ledger = Ledger::new((2, 2));
        ledger.take().unwrap();
        ledger.take().unwrap();
        assert!(ledger.take().is_err());
        assert!(ledger.asked(wish(u32::MAX, 0)).is_err());
        assert!(ledger.asked(wish(4_000_000_000, 0)).is_err());
        assert!(ledger.asked(wish(0, 0)).is_err());
        assert!(ledger.asked(wish(4, 0)).is_err());
        assert!(ledger.asked(wish(3, 0)).is_ok());
    }

    proptest! {
        /// Credits are conserved, also across the wrap of the counts, in any order of sending, taking and granting;
        /// both sides agree when everything has arrived, and an honest client never causes an error.
        #[test]
        fn credits_are_conserved(steps in prop::collection::vec((0u8..4, 1u32..20), 1..2000), start: u32) {
            let (mut balance, mut ledger) =
                (CreditBalance::new(CREDITS), Ledger::new((CREDITS, CREDITS_OF_FEW)));
            balance.granted = start.wrapping_add(CREDITS);
            balance.used = start;
            ledger.granted = balance.granted;
            ledger.taken = start;
            let (mut in_ring, mut asked, mut told) = (0u32, None, balance.granted);
            for (step, count) in steps {
                match step {
                    0 => {
                        let count = count.min(balance.left());
                        if count > 0 {
                            balance.spend(count, 1);
                            in_ring += count;
                        }
                        if let Some(said) = balance.ask() {
                            prop_assert!(asked.replace(said.degree).is_none());
                        }
                    }
                    1 => for _ in 0..count.min(in_ring) {
                        prop_assert!(ledger.take().is_ok());
                        in_ring -= 1;
                    },
                    2 => {
                        if let Some(degree) = asked.take() {
                            prop_assert!(ledger.asked(wish(degree, count * MESSAGES_OF_RENEWAL)).is_ok());
                        }
                        if ledger.grant().is_some() {
                            told = ledger.total();
                        }
                    }
                    _ => balance.granted(told),
                }
                prop_assert!(ledger.left() <= CREDITS_OF_FEW + CREDITS_OF_FEW / 2);
                prop_assert_eq!(ledger.left(), told.wrapping_sub(ledger.taken));
                prop_assert_eq!(balance.used, ledger.taken.wrapping_add(in_ring));
            }
        }
    }
}
