//! Turns (ScaleRPC §3.2 to §3.4): the clients of the group that is served, those whose requests are being fetched for
//! the next slice, and the zones of the two pools, which are swapped when a slice ends.

use std::time::{Duration, Instant};

use dunlin_verbs::Device;

use super::poller::Members;
use crate::admission::grouping::groups::Rules;
use crate::admission::grouping::pace::Pace;
use crate::admission::grouping::{Groups, Load};
use crate::channel::ChannelError;
use crate::server::connection::Context;

/// The last part of a slice, in which its clients are told that it ends; and the part of a slice for which its end
/// waits for a client's next call: clients that call less often are not waited for.
const LAST_PART: u32 = 20;
const END_PART: u32 = 4;
/// Rounds of a rotation that a client may wait before its group gets the slot of another.
const MISSED_ROUNDS: i64 = 4;
/// How long a change of turns is delayed for requests that are being fetched: longer than a READ takes on any network,
/// so that no request is fetched in vain forever, and much less than the time after which a dead client is given up.
const PATIENCE: Duration = Duration::from_millis(10);

/// A client that must be ended, and why.
pub(super) type Failed = (u32, ChannelError);

/// The turns of a poller's clients.
#[derive(Debug)]
pub(super) struct Turns {
    pub(super) groups: Groups,
    /// Free zones of each pool; `processing` is the pool that is served.
    free: [Vec<u16>; 2],
    places: usize,
    processing: usize,
    /// The group that is served, and the next one, once the slice is over.
    current: usize,
    next: Option<usize>,
    /// Number of groups after the current one that were checked for requests.
    looked: usize,
    /// Clients whose turn it is, those whose turn ends with the next answer, and those that come next.
    pub(super) active: Vec<u32>,
    pub(super) ending: Vec<u32>,
    warming: Vec<u32>,
    /// When the slice began to end, and its length.
    ends_since: Instant,
    ended_ns: u64,
    /// Whether clients of the group that is served found no zone: they come next.
    crowded: bool,
    /// The pace by which servers change turns in step, if they do, and the slot in which the current group is served.
    pace: Option<Pace>,
    slot: i64,
    /// For each group, the slot since which one of its clients waits, if any.
    waits_since: Vec<Option<i64>>,
    /// The first client of each group: where the zones ran out the last time.
    firsts: Vec<usize>,
    began: Instant,
    slice: Duration,
    /// Whether the next group is warmed up while turns end, instead of after their end.
    warms_beside: bool,
    /// When the slice should have ended.
    due_since: Option<Instant>,
    list: Vec<u32>,
}

impl Turns {
    pub(super) fn new(rules: Rules, pace: Option<Pace>, now: Instant) -> Self {
        let places = rules.most();
        let slots = pace.as_ref().map_or(0, Pace::groups);
        let groups = match &pace {
            Some(pace) => Groups::rotation(rules, pace.groups()),
            None => Groups::new(rules),
        };
        let mut turns = Self {
            free: [Vec::new(), Vec::new()],
            places,
            processing: 0,
            current: 0,
            next: None,
            looked: 0,
            active: Vec::new(),
            ending: Vec::new(),
            warming: Vec::new(),
            ends_since: now,
            ended_ns: 0,
            crowded: false,
            waits_since: vec![None; slots],
            firsts: vec![0; slots],
            pace,
            slot: 0,
            began: now,
            slice: Duration::from_nanos(groups.slice_ns(0)),
            warms_beside: rules.warm_up_beside,
            due_since: None,
            list: Vec::new(),
            groups,
        };
        turns.refill(0);
        turns.refill(1);
        turns
    }

    /// Marks all zones of a pool as free.
    fn refill(&mut self, pool: usize) {
        let first = pool * self.places;
        self.free[pool].clear();
        let zones = (first..first + self.places).rev();
        self.free[pool].extend(zones.map(|place| place as u16));
    }

    /// Removes a client that is gone.
    pub(super) fn leave(&mut self, client: u32, place: Option<u16>) {
        self.groups.logout(client);
        self.warming.retain(|&other| other != client);
        self.end_early(client, place);
    }

    /// Ends a client's turn before the slice, and frees its zone.
    pub(super) fn end_early(&mut self, client: u32, place: Option<u16>) {
        self.active.retain(|&other| other != client);
        self.ending.retain(|&other| other != client);
        self.give_back(place);
    }

    fn give_back(&mut self, place: Option<u16>) {
        if let Some(place) = place {
            self.free[usize::from(place) / self.places].push(place);
        }
    }

    /// Whether no client's turn depends on the time.
    #[inline]
    pub(super) fn are_one_group(&self) -> bool {
        self.groups.len() == 1 && !self.are_changing() && !self.crowded
    }

    /// Whether a slice has ended and the next has not begun.
    #[inline]
    pub(super) fn are_changing(&self) -> bool {
        self.next.is_some()
    }

    /// Fetches the requests of clients of the group that is served, whose turn begins at once; returns the number of
    /// clients. A client that finds no zone, because others kept theirs when the groups were rearranged, is warmed up
    /// for the next slice.
    pub(super) fn fetch_late<D: Device>(
        &mut self,
        members: &mut Members<D>,
        failed: &mut Vec<Failed>,
    ) -> usize {
        if self.are_changing() {
            return 0;
        }
        let before = self.active.len();
        let all_fetched = self.fetch_from(self.current, self.processing, members, failed);
        for at in before..self.active.len() {
            if let Some(Some(client)) = members.get_mut(self.active[at] as usize) {
                client.channel.begin_turn();
            }
        }
        self.crowded |= !all_fetched;
        self.active.len() - before
    }

    /// Ends the slice when it is over and another group has requests; returns whether it did. Each of its clients gets
    /// one more answer, or the rest of a batch: so nothing that was sent is lost or must be sent again, and few clients
    /// must be told without an answer.
    #[inline]
    pub(super) fn end_slice<D: Device>(&mut self, now: Instant, members: &mut Members<D>) -> bool {
        if self.are_paced() {
            return self.end_slot(now, members);
        }
        let took = now.saturating_duration_since(self.began);
        let is_over = took + self.slice / LAST_PART >= self.slice || self.active.is_empty();
        if self.are_changing() || !is_over {
            return false;
        }
        let groups = self.groups.len();
        let candidate = if std::mem::take(&mut self.crowded) {
            self.current
        } else if groups > 1 {
            self.looked = self.looked % (groups - 1) + 1;
            (self.current + self.looked) % groups
        } else {
            return false;
        };
        if !self.is_wanted(candidate, members) {
            return false;
        }
        self.begin_end(candidate, now, members);
        true
    }

    /// As [`Turns::end_slice`], by the common clock, whether or not a client waits: one may at other servers.
    fn end_slot<D: Device>(&mut self, now: Instant, members: &mut Members<D>) -> bool {
        let Some(pace) = self.pace.as_ref().filter(|_| self.next.is_none()) else {
            return false;
        };
        let (slot, group) = pace.slot(now + self.slice / LAST_PART);
        // If the clock is set back a little, the turns that have begun go on.
        if slot == self.slot || slot + 1 == self.slot {
            return false;
        }
        for group in 0..self.groups.len() {
            let since = self.waits_since[group].unwrap_or(slot).min(slot);
            self.waits_since[group] = self.is_wanted(group, members).then_some(since);
        }
        let group = self.overdue(slot).unwrap_or(group);
        self.slot = slot;
        // If there is only one group, clients that found no zone get the next slot.
        if group == self.current && !std::mem::take(&mut self.crowded) {
            return false;
        }
        self.waits_since[group] = None;
        self.begin_end(group, now, members);
        // Slots without clients keep no poller awake.
        !self.ending.is_empty()
    }

    /// The group in which a client has waited for too long, because this poller runs too rarely or too late for its
    /// slots: changes of turns take longer than the slots, or the poller checks only in the slots of other groups.
    fn overdue(&self, slot: i64) -> Option<usize> {
        let most = MISSED_ROUNDS * self.waits_since.len() as i64;
        let all = self.waits_since.iter().enumerate();
        let waiting = all.filter_map(|(group, &since)| Some((since?, group)));
        let (since, group) = waiting.min()?;
        (slot - since > most).then_some(group)
    }

    /// Whether a client of a group waits for its turn.
    fn is_wanted<D: Device>(&self, group: usize, members: &Members<D>) -> bool {
        self.groups.members(group).iter().any(|&number| {
            let client = members.get(number as usize).and_then(Option::as_ref);
            client.is_some_and(|client| !matches!(client.channel.wants_turn(), Ok(false)))
        })
    }

    /// The time until the slot of a group in which a client waits; `None` if none does, or turns do not follow a clock.
    pub(super) fn until_wanted<D: Device>(
        &self,
        now: Instant,
        members: &Members<D>,
    ) -> Option<Duration> {
        let pace = self.pace.as_ref()?;
        let all = 0..self.groups.len();
        let wanted = all.filter(|&group| self.is_wanted(group, members));
        wanted.map(|group| pace.until(group, now)).min()
    }

    /// Whether turns follow a clock.
    pub(super) fn are_paced(&self) -> bool {
        self.pace.is_some()
    }

    /// Begins to end the turns of the group that is served, each with its client's next answer.
    fn begin_end<D: Device>(&mut self, next: usize, now: Instant, members: &mut Members<D>) {
        self.next = Some(next);
        let took = now.saturating_duration_since(self.began);
        (self.ends_since, self.ended_ns) = (now, took.as_nanos() as u64);
        std::mem::swap(&mut self.active, &mut self.ending);
        for &number in &self.ending {
            if let Some(Some(client)) = members.get_mut(number as usize) {
                client.channel.end_with_answer(u64::from(END_PART));
            }
        }
    }

    /// Fetches the requests of the next group; returns the number of clients. It waits until no client's turn is left,
    /// unless told to do so while turns end ([`crate::Grouping::warm_up_beside`]): until then answers use the
    /// connections of the last group, and a NIC whose cache holds little more than one group's would evict them.
    #[inline]
    pub(super) fn warm_up<D: Device>(
        &mut self,
        members: &mut Members<D>,
        failed: &mut Vec<Failed>,
    ) -> usize {
        let ended = self.ending.is_empty();
        let Some(next) = self.next.filter(|_| ended || self.warms_beside) else {
            return 0;
        };
        let before = self.warming.len();
        self.fetch_from(next, 1 - self.processing, members, failed);
        if ended && self.warming.is_empty() && !self.are_paced() {
            // The clients that waited have gone.
            self.next = None;
            self.refill(self.processing);
        }
        self.warming.len() - before
    }

    /// Fetches the requests of a group's clients into a pool. Returns `false` if not all clients with requests found a
    /// zone.
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
        let clients = self.groups.members(group);
        let mut first = self.firsts.get_mut(group);
        let begin = first
            .as_deref()
            .map_or(0, |first| first % clients.len().max(1));
        for at in (begin..clients.len()).chain(0..begin) {
            let number = clients[at];
            let Some(Some(client)) = members.get_mut(number as usize) else {
                continue;
            };
            let warmed = client.channel.wants_turn().and_then(|wants| {
                match self.free[pool].last().filter(|_| wants) {
                    None => {
                        if let (true, Some(first)) = (all && wants, &mut first) {
                            **first = at;
                        }
                        all &= !wants;
                        Ok(false)
                    }
                    Some(&place) => client.channel.warm_up(place),
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

    /// Begins the next slice (ScaleRPC §3.3's context switch), once its requests have been fetched. Returns `true` if
    /// it did and it is some client's turn.
    pub(super) fn switch<D: Device>(
        &mut self,
        now: Instant,
        members: &mut Members<D>,
        context: &Context,
        failed: &mut Vec<Failed>,
    ) -> bool {
        // With a common clock a group is served even if none of its clients has called yet.
        let on_time = self.are_paced() && self.next.is_some();
        if !self.ending.is_empty() || self.warming.is_empty() && !on_time {
            return false;
        }
        let due_since = *self.due_since.get_or_insert(now);
        let patient = now.saturating_duration_since(due_since) < PATIENCE;
        self.list.clear();
        for &number in &self.warming {
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
        self.crowded = false;
        if !self.warming.is_empty() {
            context.counters.switched();
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
        !self.active.is_empty()
    }

    /// Ends the turns of clients whose slice is over and that know it, or have not called for a part of a slice.
    /// Clients whose long requests are being fetched are added to `still_fetching`.
    #[inline]
    pub(super) fn end_turns<D: Device>(
        &mut self,
        now: Instant,
        members: &mut Members<D>,
        context: &Context,
        still_fetching: &mut Vec<u32>,
        failed: &mut Vec<Failed>,
    ) {
        if self.ending.is_empty() {
            return;
        }
        let ends_for = now.saturating_duration_since(self.ends_since);
        let all = ends_for >= self.slice / END_PART;
        let (groups, turn_ns) = (&mut self.groups, self.ended_ns);
        self.ending.retain(|&number| {
            let Some(Some(client)) = members.get_mut(number as usize) else {
                return false;
            };
            match client.channel.is_warm() {
                Ok(true) if all || client.channel.may_end() => {}
                Ok(false) if ends_for >= PATIENCE => {}
                // There was no answer yet, or a READ into the zone is not complete.
                Ok(_) => return true,
                Err(error) => {
                    failed.push((number, error));
                    return false;
                }
            }
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
                    groups.record(number, &load);
                    if client.is_fetching() && !still_fetching.contains(&number) {
                        still_fetching.push(number);
                    }
                }
                Err(error) => failed.push((number, error)),
            }
            false
        });
    }

    /// Makes the group whose requests were fetched the one that is served.
    fn next_group(&mut self) {
        let next = self.next.take().unwrap_or(self.current);
        // Groups are rearranged between two rounds.
        let round_ends = next <= self.current && !self.are_paced();
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
