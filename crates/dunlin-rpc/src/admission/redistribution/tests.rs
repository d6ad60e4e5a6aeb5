//! Active lanes are distributed by what their senders send, and spread over the pollers.

use super::*;
use std::sync::atomic::AtomicUsize;

#[test]
fn the_dormant_keep_one_lane_and_the_busy_get_the_rest() {
    static WAKES: AtomicUsize = AtomicUsize::new(0);
    let wake = || {
        WAKES.fetch_add(1, Ordering::Relaxed);
    };
    let spawn: Spawn = Box::new(|name, run| Running::start(name.to_owned(), run));
    let admission = Admission::new(8, (32, 32), (None, Datagrams::Never), spawn, Box::new(wake));
    // No thread: the test drives the intervals.
    admission.ending.store(true, Ordering::Release);
    let busy: Vec<_> = (0..6).map(|number| admission.join(1, number, 0)).collect();
    let quiet: Vec<_> = (0..6).map(|number| admission.join(2, number, 1)).collect();
    let shares = |lanes: &[Arc<LaneShare>]| active(lanes);
    assert_eq!((shares(&busy), shares(&quiet)), (6, 2));
    busy[5].utilisation.store(10, Ordering::Relaxed);
    admission.redistribute();
    assert_eq!((shares(&busy), shares(&quiet)), (6, 1));
    quiet[3].utilisation.store(30, Ordering::Relaxed);
    busy[5].utilisation.store(10, Ordering::Relaxed);
    admission.redistribute();
    assert_eq!((shares(&busy), shares(&quiet)), (2, 6));
    assert!(busy[5].is_active(), "the lane that is used stays");
    assert!(WAKES.load(Ordering::Relaxed) > 0);
    // The lanes that are left are never all inactive.
    for lane in &busy {
        if lane.is_active() {
            admission.leave(lane);
        }
    }
    let report = admission.report();
    assert_ne!(report[0].sender, 1, "nobody learns by which name it joins");
    assert_eq!(report[0].sender, admission.report()[0].sender);
    assert_eq!(report[0].lanes.iter().filter(|lane| lane.active).count(), 1);
    for lane in &quiet {
        admission.leave(lane);
    }
    assert_eq!(admission.report().len(), 1);
}

/// A new lane at the poller where a server would put it, which counts the connections of its pollers.
fn placed(
    admission: &Arc<Admission>,
    sender: u64,
    number: u64,
    connections: &mut [usize],
) -> Arc<LaneShare> {
    let against = admission.against(sender, connections.len());
    let poller = (0..against.len()).min_by_key(|&i| (against[i], connections[i]));
    let poller = poller.expect("there are pollers");
    connections[poller] += 1;
    admission.join(sender, number, poller)
}

/// There are more lanes than may be active. Senders that connect late begin with one active lane, and get as many as
/// the others when lanes are redistributed: then all pollers must have equally many active lanes.
#[test]
fn lanes_of_those_who_come_late_are_spread_over_the_pollers_too() {
    const POLLERS: usize = 32;
    for own in [8u64, 32] {
        let spawn: Spawn = Box::new(|name, run| Running::start(name.to_owned(), run));
        let datagrams = (None, Datagrams::Never);
        let admission = Admission::new(113, (32, 32), datagrams, spawn, Box::new(|| {}));
        admission.ending.store(true, Ordering::Release);
        let mut connections = [0; POLLERS];
        let mut lanes = Vec::new();
        for sender in 0..23 {
            for number in 0..own {
                lanes.push(placed(&admission, sender, number, &mut connections));
            }
        }
        // In the first round the active ones are used equally, later not.
        for round in 0..4u64 {
            for (i, lane) in lanes.iter().enumerate() {
                let used = u64::from(lane.is_active()) * (100 + round * (i as u64 % 7));
                lane.utilisation.store(used, Ordering::Relaxed);
            }
            admission.redistribute();
            let crowd = admission.lock().active_by_poller(POLLERS);
            assert_eq!(crowd.iter().sum::<usize>(), 113);
            assert!(
                crowd.iter().all(|count| (3..=4).contains(count)),
                "{own}, {round}: {crowd:?}"
            );
        }
    }
}

#[test]
fn lanes_that_work_are_spread_over_the_pollers() {
    const POLLERS: usize = 4;
    let spawn: Spawn = Box::new(|name, run| Running::start(name.to_owned(), run));
    let admission = Admission::new(
        8,
        (32, 32),
        (None, Datagrams::Never),
        spawn,
        Box::new(|| {}),
    );
    admission.ending.store(true, Ordering::Release);
    // Four clients come one after the other, each with all its lanes at once, of which two are active.
    let mut connections = [0; POLLERS];
    let mut lanes = Vec::new();
    for sender in 0..4 {
        for number in 0..8 {
            lanes.push(placed(&admission, sender, number, &mut connections));
        }
        admission.redistribute();
    }
    let busy = |sender: usize, amount| {
        for lane in &lanes[8 * sender..][..8] {
            lane.utilisation.store(amount, Ordering::Relaxed);
        }
    };
    (0..4).for_each(|sender| busy(sender, 1));
    admission.redistribute();
    let crowd = || admission.lock().active_by_poller(POLLERS);
    assert_eq!(crowd(), [2; POLLERS]);
    // Only one sends: it has all but three of the eight, and they are still spread.
    busy(2, 1);
    admission.redistribute();
    let crowd = crowd();
    assert_eq!(crowd.iter().sum::<usize>(), 8);
    assert!(crowd.iter().all(|&count| count >= 1), "{crowd:?}");
}
