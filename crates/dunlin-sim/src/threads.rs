//! The threads of hosts, by numbers that do not depend on other hosts.

use std::ops::{Index, IndexMut};

use crate::cores::Thread;

/// Number of bits of a thread's number that count the threads of its host; the host's number is above them.
const INDEX_BITS: u32 = 17;
/// Maximum number of threads that a host may have had. One less than fit: the number that is left is never used.
pub(crate) const THREADS_MAX: usize = (1 << INDEX_BITS) - 1;
/// The panic message when a host has had too many threads.
pub(crate) const TOO_MANY_THREADS: &str = "a host has had 131,071 threads, which is all";

/// The host of a thread.
pub(crate) fn host_of(number: u32) -> u16 {
    (number >> INDEX_BITS) as u16
}

/// Index of a thread among those of its host, in the order in which they began.
pub(crate) fn index_of(number: u32) -> usize {
    number as usize & THREADS_MAX
}

/// Running threads, and places of those that have ended.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    by_host: Vec<Vec<Thread>>,
}

impl Threads {
    pub(crate) fn new(hosts: usize) -> Self {
        Self {
            by_host: std::iter::repeat_with(Vec::new).take(hosts).collect(),
        }
    }

    /// The number of the next thread of a host; `None` when it has had [`THREADS_MAX`].
    pub(crate) fn next(&self, host: u16) -> Option<u32> {
        let count = self.by_host[usize::from(host)].len();
        (count < THREADS_MAX).then_some(u32::from(host) << INDEX_BITS | count as u32)
    }

    /// Adds a thread, whose number is the next of its host.
    pub(crate) fn push(&mut self, thread: Thread) {
        self.by_host[usize::from(thread.host)].push(thread);
    }

    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut Thread> {
        let host = self.by_host.get_mut(usize::from(host_of(number)))?;
        host.get_mut(index_of(number))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Thread> {
        self.by_host.iter_mut().flatten()
    }
}

impl Index<u32> for Threads {
    type Output = Thread;
    #[inline]
    fn index(&self, number: u32) -> &Thread {
        &self.by_host[usize::from(host_of(number))][index_of(number)]
    }
}

impl IndexMut<u32> for Threads {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut Thread {
        &mut self.by_host[usize::from(host_of(number))][index_of(number)]
    }
}

#[cfg(test)]
mod tests {
    use crate::{Cluster, HostParameters, Next, NicParameters, SwitchParameters};

    /// Alone, several at the same time, and next to some that go on.
    #[test]
    fn a_core_keeps_no_thread_that_has_ended() {
        let mut host = HostParameters::epyc_7452();
        host.time_slice = 10_000_000;
        let (nic, switch) = (NicParameters::connectx_5(), SwitchParameters::z9264f());
        let cluster = Cluster::star(1, 1, &host, &nic, &switch);
        let host = cluster.hosts()[0];
        let on = |core: usize| cluster.inner().world(0).cores[core].threads.len();
        for round in 0..20 {
            for core in [1, 2, 2] {
                cluster.spawn(host, core, |_now: u64| Next::Done);
            }
            cluster.run_for(100_000);
            assert!(on(1) <= 1 && on(2) <= 2, "{round}: {} {}", on(1), on(2));
        }
        for _ in 0..20 {
            cluster.spawn(host, 3, |now_ns: u64| Next::PollUntil(now_ns + 1_000));
            cluster.spawn(host, 3, |_now: u64| Next::Done);
            cluster.run_for(1_000_000);
        }
        assert!(on(3) <= 21, "{}", on(3));
    }
}
