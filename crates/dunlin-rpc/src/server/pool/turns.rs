//! Whose turn it is (ScaleRPC §3.2 to §3.4): the clients of the group that is served, those whose requests are being fetched for the next
//! slice, and the zones of the two pools, which are swapped when a slice ends.

use std::time::{Duration, Instant};

use dunlin_verbs::Device;

use super::poller::Members;
use crate::admission::grouping::groups::Rules;
use crate::admission::grouping::{Groups, Load};
use crate::channel::ChannelError;
use crate::server::connection::Context;

/// The next group is warmed up in the last part of a slice, which is longer by what the READs take beyond it.
const WARM_UP_PART: u32 = 20;
/// How long the end of a slice is put off for requests that are being fetched: longer than a READ takes on any network, so that none is
/// fetched in vain for ever, and much less than a client that died is waited for.
const PATIENCE: Duration = Duration::from_millis(10);

/// A client has to be ended.
pub(super) type Failed = (u32, ChannelError);

/// The turns of a poller's clients.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) groups: Groups,
    /// Free zones of each pool, of which `processing` is the one that is served.
    free: [Vec<u16>; 2],
    places: usize,
    processing: usize,
    /// The group that is served, and that whose requests are fetched.
    current: usize,
    next: Option<usize>,
    /// Groups after the current one that were looked at for requests.
    looked: usize,
    /// Clients whose turn it is, and those that come next.
    pub(super) active: Vec<u32>,
    pub(super) warming: Vec<u32>,
    began: Instant,
    slice: Duration,
    /// Since when the slice should be over.
    due_since: Option<Instant>,
    list: Vec<u32>,
}

impl Turns {
    pub(super) fn new(rules: Rules, now: Instant) -> Self {
        let places = rules.most();
        let groups = Groups::new(rules);
        let mut turns = Self {
            free: [Vec::new(), Vec::new()],
            places,
            processing: 0,
            current: 0,
            next: None,
            looked: 0,
            active: Vec::new(),
            warming: Vec::new(),
            began: now,
            slice: Duration::from_nanos(groups.slice_ns(0)),
            due_since: None,
            list: Vec::new(),
            groups,
        };
        turns.refill(0);
        turns.refill(1);
        turns
    }

    /// All zones of a pool are free.
    fn refill(&mut self, pool: usize) {
        let first = pool * self.places;
        self.free[pool].clear();
        let zones = (first..first + self.places).rev();
        self.free[pool].extend(zones.map(|place| place as u16));
    }

    /// A client is gone.
    pub(super) fn leave(&mut self, client: u32, place: Option<u16>) {
        self.groups.logout(client);
        self.warming.retain(|&other| other != client);
        if self.warming.is_empty() {
            self.next = None;
        }
        self.end_early(client, place);
    }

    /// A client's turn has ended before the slice; its zone is free.
    pub(super) fn end_early(&mut self, client: u32, place: Option<u16>) {
        self.active.retain(|&other| other != client);
        self.give_back(place);
    }

    fn give_back(&mut self, place: Option<u16>) {
        if let Some(place) = place {
            self.free[usize::from(place) / self.places].push(place);
        }
    }

    /// Whether nobody's turn depends on the time.
    #[inline]
    pub(super) fn are_one_group(&self) -> bool {
        self.groups.len() == 1 && self.warming.is_empty()
    }

    /// Fetches the requests of clients of the group that is served, whose turn begins at once; says how many clients that were. Who finds
    /// no zone, because others kept theirs when the groups were put in order, is warmed up for the next slice.
    pub(super) fn fetch_late<D: Device>(
        &mut self,
        members: &mut Members<D>,
        failed: &mut Vec<Failed>,
    ) -> usize {
        let before = self.active.len();
        let all_fetched = self.fetch_from(self.current, self.processing, members, failed);
        for at in before..self.active.len() {
            if let Some(Some(client)) = members.get_mut(self.active[at] as usize) {
                client.channel.begin_turn();
            }
        }
        if !all_fetched && self.next.is_none() {
            self.fetch_from(self.current, 1 - self.processing, members, failed);
            self.next = (!self.warming.is_empty()).then_some(self.current);
        }
        self.active.len() - before
    }

    /// Whether the next group is to be warmed up: soon before the slice ends, so that a NIC whose cache holds the connections of little more than
    /// one group still has what it loaded for the READs when the answers go; at once when it is nobody's turn.
    #[inline]
    pub(super) fn is_near_end(&self, now: Instant) -> bool {
        let lead = self.slice / WARM_UP_PART;
        now.saturating_duration_since(self.began) + lead >= self.slice || self.active.is_empty()
    }

    /// Fetches the requests of the next group that has any; says of how many clients.
    pub(super) fn warm_up<D: Device>(
        &mut self,
        members: &mut Members<D>,
        failed: &mut Vec<Failed>,
    ) -> usize {
        let groups = self.groups.len();
        if groups == 1 {
            return 0;
        }
        let candidate = self.next.unwrap_or_else(|| {
            self.looked = self.looked % (groups - 1) + 1;
            (self.current + self.looked) % groups
        });
        let before = self.warming.len();
        self.fetch_from(candidate, 1 - self.processing, members, failed);
        let warmed = self.warming.len() - before;
        if warmed > 0 {
            self.next = Some(candidate);
        }
        warmed
    }

    /// Fetches the requests of a group's clients into a pool; `false`: not all who have some found a zone.
    fn fetch_from<D: Device>(
        &mut self,
        group: usize,
        pool: usize,
        members: &mut Members<D>,
        failed: &mut Vec<Failed>,
    ) -> bool {
        let list = match pool == self.processing {
            true => &mut self.active,
            false => &mut self.warming,
        };
        let mut all = true;
        for &number in self.groups.members(group) {
            let Some(Some(client)) = members.get_mut(number as usize) else {
                continue;
            };
            let warmed = client.channel.wants_turn().and_then(|wants| {
                match self.free[pool].last().filter(|_| wants) {
                    None => {
                        all &= !wants;
                        Ok(false)
                    }
                    Some(&place) => client.channel.warm_up(place).map(|()| true),
                }
            });
            match warmed {
                Ok(false) => {}
                Ok(true) => {
                    self.free[pool].pop();
                    list.push(number);
                }
                Err(error) => failed.push((number, error)),
            }
        }
        all
    }

    /// Whether the slice should end now: it is over, or it is nobody's turn, and others wait.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        !self.warming.is_empty()
            && (now.saturating_duration_since(self.began) >= self.slice || self.active.is_empty())
    }

    /// Ends the slice and begins the next (ScaleRPC §3.3's context switch), unless requests are still on their way. `true`: it did. Clients
    /// that have long requests under way are added to `lingering`.
    pub(super) fn switch<D: Device>(
        &mut self,
        now: Instant,
        members: &mut Members<D>,
        context: &Context,
        lingering: &mut Vec<u32>,
        failed: &mut Vec<Failed>,
    ) -> bool {
        let due_since = *self.due_since.get_or_insert(now);
        let patient = now.saturating_duration_since(due_since) < PATIENCE;
        self.list.clear();
        for &number in self.active.iter().chain(&self.warming) {
            let Some(Some(client)) = members.get_mut(number as usize) else {
                continue;
            };
            match client.channel.is_warm() {
                Ok(true) => {}
                Ok(false) if patient => return false,
                Ok(false) => self.list.push(number),
                Err(error) => failed.push((number, error)),
            }
        }
        self.due_since = None;
        context.counters.switched();
        let turn_ns = now.saturating_duration_since(self.began).as_nanos() as u64;
        for number in self.active.drain(..) {
            let Some(Some(client)) = members.get_mut(number as usize) else {
                continue;
            };
            // Each working thread processes and clears the suspended requests (§3.3).
            client.channel.end_soon();
            let ended = client.poll(context).and_then(|_| client.channel.end_turn());
            match ended {
                Ok(load) => {
                    context.counters.turn_ended(load.late, load.words);
                    let load = Load {
                        requests: load.requests,
                        bytes: load.bytes,
                        turn_ns,
                    };
                    self.groups.record(number, &load);
                    if client.is_fetching() && !lingering.contains(&number) {
                        lingering.push(number);
                    }
                }
                Err(error) => failed.push((number, error)),
            }
        }
        self.refill(self.processing);
        self.processing = 1 - self.processing;
        for number in std::mem::take(&mut self.warming) {
            let Some(Some(client)) = members.get_mut(number as usize) else {
                continue;
            };
            if self.list.contains(&number) {
                let place = client.channel.place();
                client.channel.give_up_warm_up();
                self.give_back(place);
                continue;
            }
            client.channel.begin_turn();
            self.active.push(number);
        }
        self.next_group();
        self.began = now;
        true
    }

    /// The group whose requests were fetched is served now.
    fn next_group(&mut self) {
        let next = self.next.take().unwrap_or(self.current);
        // Groups are put in order between two rounds.
        let round_ends = next <= self.current;
        self.current = next.min(self.groups.len() - 1);
        self.looked = 0;
        if round_ends && self.groups.put_in_order() {
            let first = self.active.first();
            let of = first.and_then(|&client| self.groups.of(client));
            self.current = of.unwrap_or(0);
        }
        self.slice = Duration::from_nanos(self.groups.slice_ns(self.current));
    }
}
