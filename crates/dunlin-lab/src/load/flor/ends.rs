//! Client and server threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Duration;

use dunlin_flor::connection::Counters;
use dunlin_flor::logical::{Landing, LinkEvent, Source};
use dunlin_sim::{SimDevice, SimRegion};
use dunlin_verbs::{thread, Access, Device, Work};

use super::plan::{Domain, Flor, Link};
use super::run::Shared;

/// Longest rest of a thread that polls.
const REST: Duration = Duration::from_micros(100);

pub(super) fn now_ns() -> u64 {
    let now = thread::simulated_now().unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Rests until there is something to do for one of these connections.
pub(super) fn rest<'a>(links: impl Iterator<Item = &'a Link>) {
    let now = now_ns();
    let next = links.filter_map(|link| link.next_deadline(now)).min();
    let left = next.map(|next| Duration::from_nanos(next.saturating_sub(now).max(1_000)));
    thread::idle(left.unwrap_or(REST).min(REST), false);
}

/// A connection of a client.
pub(super) struct Asking {
    pub(super) link: Link,
    request: Source<SimRegion>,
    /// Start times of outstanding requests.
    out: VecDeque<u64>,
    counted: Counters,
    /// Number of requests answered, over all connections with the same ends.
    answered: Arc<AtomicU64>,
}

pub(super) fn ask(plan: &Flor, after_ns: u64, links: Vec<(Link, Arc<AtomicU64>)>, shared: &Shared) {
    if after_ns > 0 {
        thread::sleep(Duration::from_nanos(after_ns));
    }
    let asking = |(link, answered)| Asking::new(plan, link, answered);
    let mut all: Vec<Asking> = links.into_iter().map(asking).collect();
    while !shared.stopping.load(Ordering::Relaxed) {
        let mut found = false;
        for asking in &mut all {
            found |= asking.step(plan, shared);
        }
        if !found {
            rest(all.iter().map(|asking| &asking.link));
        }
    }
    shared.running.fetch_sub(1, Ordering::Relaxed);
}

impl Asking {
    pub(super) fn new(plan: &Flor, link: Link, answered: Arc<AtomicU64>) -> Self {
        Self {
            request: Source {
                region: link.allocate(plan.bytes as usize).expect("memory"),
                offset: 0,
                bytes: plan.bytes,
            },
            link,
            out: VecDeque::new(),
            counted: Counters::default(),
            answered,
        }
    }

    pub(super) fn step(&mut self, plan: &Flor, shared: &Shared) -> bool {
        while self.out.len() < plan.depth {
            let (now, request) = (now_ns(), self.request.clone());
            let taken = match plan.one_landing {
                true => self.link.submit_tagged(now, request, 1),
                false => self.link.submit(now, request),
            };
            if taken.is_err() {
                break;
            }
            self.out.push_back(now);
        }
        let mut found = false;
        // A failure of the device shows as a connection without progress.
        while let Ok(Some(event)) = self.link.poll(now_ns()) {
            found = true;
            match event {
                LinkEvent::Message(_) => self.count(shared),
                LinkEvent::Landed { landing, .. } => {
                    self.link.release(landing);
                    self.count(shared);
                }
                LinkEvent::Finished(_, Err(_)) | LinkEvent::Lost => {
                    shared.failed.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        let counters = self.link.connection().counters();
        let posted = counters.posted - self.counted.posted;
        if posted > 0 {
            SimDevice::charge(Work::Compute(posted * plan.chunk_ns));
            found = true;
        }
        let repeated = counters.repeated - self.counted.repeated;
        let switches = counters.switches - self.counted.switches;
        shared.posted.fetch_add(posted, Ordering::Relaxed);
        shared.repeated.fetch_add(repeated, Ordering::Relaxed);
        shared.switches.fetch_add(switches, Ordering::Relaxed);
        self.counted = counters;
        found
    }

    /// Counts an answer. Which request it belongs to does not matter: only the sum of the times is kept.
    fn count(&mut self, shared: &Shared) {
        if let Some(asked_ns) = self.out.pop_front() {
            let waited_ns = now_ns() - asked_ns;
            shared.waited_ns.fetch_add(waited_ns, Ordering::Relaxed);
        }
        shared.calls.fetch_add(1, Ordering::Relaxed);
        self.answered.fetch_add(1, Ordering::Relaxed);
    }
}

pub(super) fn answer(
    plan: &Flor,
    device: &SimDevice,
    domain: &Domain,
    mut links: Vec<Link>,
    shared: &Shared,
) {
    let memory = |bytes: u32, access| {
        let memory = device.allocate_region(domain, bytes as usize, access);
        memory.expect("memory")
    };
    let one = |_: &Link| memory(plan.answer_bytes, Access::LOCAL_WRITE);
    let answers: Vec<_> = links.iter().map(one).collect();
    let written = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let landing = plan.one_landing.then(|| memory(plan.bytes, written));
    while !shared.stopping.load(Ordering::Relaxed) {
        let mut found = false;
        for (link, region) in links.iter_mut().zip(&answers) {
            while let Ok(Some(event)) = link.poll(now_ns()) {
                found = true;
                match (event, &landing) {
                    (LinkEvent::Message(_), _) => {}
                    (LinkEvent::Landed { landing, .. }, _) => link.release(landing),
                    (
                        LinkEvent::Announced {
                            message,
                            bytes,
                            tag,
                        },
                        Some(region),
                    ) => {
                        let landing = Landing::lent(region.clone(), 0, bytes as usize);
                        link.grant(message, tag, landing);
                        continue;
                    }
                    _ => continue,
                }
                let answer = Source {
                    region: region.clone(),
                    offset: 0,
                    bytes: plan.answer_bytes,
                };
                if link.submit(now_ns(), answer).is_err() {
                    shared.failed.fetch_add(1, Ordering::Relaxed);
                }
            }
            if link.flush(now_ns()).is_err() {
                shared.failed.fetch_add(1, Ordering::Relaxed);
            }
        }
        if !found {
            rest(links.iter());
        }
    }
    shared.running.fetch_sub(1, Ordering::Relaxed);
}
