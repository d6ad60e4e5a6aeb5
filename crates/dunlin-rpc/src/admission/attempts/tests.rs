//! Attempts against loads that react to what is asked for.

use super::*;
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
/// Message rate of the device per second, and a number of requests that fills it.
const TAKES: u64 = 1_200_000;
const MUCH: u64 = 500_000;

/// A load that reacts to what is asked for at once, except for some measurements after queue pairs have changed.
struct Load {
    attempts: Attempts,
    /// Rates by steps of fuller messages, and of fewer queue pairs.
    rates: [[u64; 3]; 3],
    /// Percentage of the rate by steps of the others, in their order.
    percent: [[u64; 2]; 4],
    messages: u64,
    unsettled: u64,
    /// Threads per message, and whether there are more queue pairs.
    threads: f64,
    has_spare: bool,
    pollers_are_busy: bool,
}

/// The others in `percent`.
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
    /// A load that fills the NIC.
    fn new(rates: [[u64; 3]; 3], unsettled: u64) -> Self {
        Self {
            attempts: Attempts::new(Some(TAKES), Datagrams::WhenTheyPay),
            rates,
            percent: [[100; 2]; 4],
            messages: MUCH,
            unsettled,
            threads: 2.0,
            has_spare: false,
            pollers_are_busy: false,
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
            pollers_are_busy: self.pollers_are_busy,
        }
    }

    /// The step of each, with the first two separate.
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

    /// Runs to the end of the current attempt.
    fn settle(&mut self) {
        while self.attempts.attempt.is_some() {
            self.look();
        }
    }
}

#[test]
fn what_pays_stands() {
    let mut load = Load::new([[100, 110, 130], [105, 120, 140], [106, 120, 143]], 7);
    // Fuller messages first; half of the outstanding calls do not bring 2 % more than a quarter.
    load.look();
    assert_eq!(load.attempts.standing(true).together(), Some(4));
    load.look();
    assert_eq!(load.attempts.standing(true).together(), Some(2));
    // With fewer queue pairs half does bring more, and is found when its waiting time is over.
    load.looks(80).settle();
    assert_eq!(load.steps(), ([2, 2], [0; 4]));
    assert!(!load.attempts.standing(false).contains(Standing::ACTIVE));
    assert_eq!(load.attempts.active(36), 22);
}

#[test]
fn threads_rejoin_where_that_pays() {
    let mut load = Load::new([[100; 3]; 3], 100);
    load.percent[REJOINED] = [100, 105];
    // No NIC is the bottleneck.
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
    // The requests of one thread, and pollers without time for more messages.
    let none = |change: fn(&mut Load)| {
        let mut load = Load::new([[9 * messages; 3]; 3], 9 * messages);
        (load.messages, load.percent[SOONER]) = (messages, [100, 104]);
        change(&mut load);
        for _ in 0..200 {
            load.look();
            assert_eq!(load.attempts.answered_together(), usize::MAX);
        }
    };
    none(|load| load.threads = 1.0);
    none(|load| load.pollers_are_busy = true);
}

/// Pollers, too, can be the bottleneck: whatever saves them messages is worth an attempt then.
#[test]
fn busy_pollers_are_a_reason_without_a_busy_nic() {
    let mut load = Load::new([[100, 103, 106], [106, 110, 113], [112, 116, 120]], 100);
    load.messages = TAKES / 1000;
    load.looks(500).settle();
    assert_eq!(load.steps(), ([0; 2], [0; 4]));
    load.pollers_are_busy = true;
    load.looks(500).settle();
    assert_eq!(load.steps(), ([2; 2], [0; 4]));
    load.percent[DATAGRAMS] = [100, 110];
    load.threads = 1.0;
    load.looks(2048).settle();
    assert!(load.attempts.sends_datagrams());
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
    // Nothing else is tried meanwhile, and datagrams are dropped when rings carry as much.
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
    // There are no others then, which is no reason to go back.
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
        // Attempts of other kinds come in between.
        assert!((3..=8).contains(&gaps.len()), "{looks:?}");
        assert!(gaps[gaps.len() - 1] >= 2 * gaps[0], "{looks:?}");
    }
    // Not for a NIC that is full.
    assert_eq!([sooner, more, datagrams].concat(), [0; 0]);
}

#[test]
fn a_step_goes_when_its_load_has_gone() {
    let mut load = Load::new([[100, 150, 160]; 3], 7);
    load.looks(100).settle();
    assert_eq!(load.steps(), ([0, 2], [0; 4]));
    // The rate is as high with all queue pairs: found by the test of the step.
    load.rates = [[150; 3]; 3];
    load.looks(400).settle();
    assert_eq!(load.steps(), ([0; 2], [0; 4]));
    // No client sends, and this is noticed soon.
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
        pollers_are_busy: true,
    };
    let mut attempts = Attempts::new(None, Datagrams::WhenTheyPay);
    assert!(!attempts.see(much, SECOND));
    assert_eq!(attempts.standing(true), Standing::ACTIVE);
    assert_eq!((attempts.active(36), attempts.active(1)), (36, 1));
    // An interval of no length causes no invalid rate.
    let mut attempts = Attempts::new(Some(1000), Datagrams::WhenTheyPay);
    assert!(!attempts.see(much, Duration::ZERO));
    assert_eq!(attempts.standing(true), Standing::ACTIVE);
}

proptest! {
    /// Whatever each step brings: those that stand bring 2 % each, and little time is spent on attempts.
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
        // Six kinds, two directions, at most four times, of four measurements or of one.
        prop_assert!(trying <= 200, "{trying} of 4000 looks");
    }

    /// Whatever arrives, only existing steps are taken, one at a time.
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
                pollers_are_busy: requests % 3 == 0,
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
