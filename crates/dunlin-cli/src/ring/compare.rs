//! Measures several designs in turns, so that disturbances of the machine affect all of them.

use std::time::{Duration, Instant};

use dunlin_verbs::Device;

use super::pairs::Pairs;
use super::report::{Comparison, Measured, RingReport};
use super::Plan;
use crate::affinity;
use crate::against::{conclude, Look};
use crate::commands::Failure;
use crate::interrupt;
use crate::limits::ring;
use crate::limits::survey::median;
use crate::peer::Peer;
use crate::report::Tally;

/// Length of the slices of each design.
const SLICE: Duration = Duration::from_millis(100);
/// Length of the slices of the raw limit's ring that is not read.
const UNREAD_SLICE: Duration = Duration::from_millis(25);
/// Minimum number of rounds.
const ROUNDS: usize = 3;

/// Measures all plans in turns, repeatedly, for about `duration` in all. A round of a comparison that Ctrl-C cut short
/// is left out.
///
/// # Errors
/// When a ring cannot be created or fails, or no round was complete.
pub fn compare<D: Device>(
    device: &D,
    plans: &[Plan],
    duration: Duration,
    against: bool,
    mut progress: impl FnMut(f64),
) -> Result<Comparison, Failure> {
    for config in plans
        .iter()
        .filter_map(|plan| plan.config(device.attributes()))
    {
        config.check().map_err(Failure::usage)?;
    }
    // Processes first, because they inherit this thread's affinity.
    let peers = plans
        .iter()
        .map(|plan| (0..plan.pairs).map(|_| Peer::start()).collect())
        .collect::<Result<Vec<Vec<_>>, _>>()?;
    let mut actives = plans
        .iter()
        .zip(peers)
        .map(|(plan, peers)| Pairs::start(device, plan, peers))
        .collect::<Result<Vec<_>, _>>()?;
    let start = Instant::now();
    let mut slices: Vec<Vec<Tally>> = vec![Vec::new(); plans.len()];
    let mut beside: Vec<Vec<(Tally, Look, Look)>> = vec![Vec::new(); plans.len()];
    let mut unread: Vec<Vec<f64>> = vec![Vec::new(); plans.len()];
    let compares = plans.len() > 1 || against;
    let mut rounds = 0;
    while rounds == 0 || (rounds < ROUNDS || start.elapsed() < duration) && !interrupt::came() {
        let mut round = Vec::new();
        for active in &mut actives {
            let look = |plan: &Plan| {
                against
                    .then(|| Look::one_way(plan.size, plan.together()))
                    .transpose()
            };
            let before = look(active.plan())?;
            let slice = active.slice(SLICE)?;
            let after = look(active.plan())?;
            let bare = before.zip(after).map(|(before, after)| {
                let unread = ring::one_way(active.plan().together(), UNREAD_SLICE);
                (before, after, unread)
            });
            round.push((slice, bare));
        }
        if compares && interrupt::came() {
            break;
        }
        for (index, (slice, bare)) in round.into_iter().enumerate() {
            if let Some((before, after, rate)) = bare {
                beside[index].push((slice.clone(), before, after));
                unread[index].push(rate);
            }
            slices[index].push(slice);
        }
        rounds += 1;
        progress((start.elapsed().as_secs_f64() / duration.as_secs_f64()).min(1.0));
    }
    for active in actives {
        active.stop()?;
    }
    affinity::release();
    if rounds == 0 {
        return Err(Failure::interrupted());
    }
    let over_first = |index: usize| {
        let mut ratios: Vec<f64> = slices[index]
            .iter()
            .zip(&slices[0])
            .map(|(slice, first)| slice.rate_per_s() / first.rate_per_s())
            .collect();
        ratios.sort_by(f64::total_cmp);
        (index > 0).then(|| median(&ratios))
    };
    let over: Vec<_> = (0..plans.len()).map(over_first).collect();
    let designs = plans
        .iter()
        .zip(slices)
        .zip(beside)
        .zip(over)
        .zip(unread)
        .map(|((((plan, slices), beside), over), mut unread)| {
            unread.sort_by(f64::total_cmp);
            let measured = Measured {
                slices,
                against: (!beside.is_empty()).then(|| conclude(&beside)),
                unread_limit_per_s: (!unread.is_empty()).then(|| median(&unread)),
            };
            RingReport::new(plan, measured, over)
        })
        .collect();
    Ok(Comparison { designs })
}
