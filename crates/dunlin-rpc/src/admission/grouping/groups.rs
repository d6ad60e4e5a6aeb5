//! The assignment of clients to groups (ScaleRPC §3.2).
//!
//! Clients log in to the smallest group below the default size and log out at any time. Groups are rearranged lazily,
//! between two rounds: when one is out of the legal range, from half to one and a half of the default size, or when
//! more than a quarter of all clients are in a group for other classes than their own. Then clients of similar classes
//! are put together: they are sorted by class, and the sequence is cut into groups that are as full as possible, each
//! for the classes in it. The remainder of a class is in a group with the next.

use super::priority::{self, Class, Load};

/// The settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// Default number of clients in a group.
    pub(crate) clients: usize,
    /// Default time for which a group is served.
    pub(crate) slice_ns: u64,
    /// Whether size and slice follow the priorities of clients. If not, this is the paper's static mode.
    pub(crate) by_priority: bool,
    /// Whether the next group is warmed up while the turns before it end.
    pub(crate) warm_up_beside: bool,
}

impl Rules {
    /// Maximum number of clients in a group.
    pub(crate) fn most(&self) -> usize {
        self.clients + self.clients / 2
    }

    /// Minimum number, if there are several groups.
    fn fewest(&self) -> usize {
        self.clients.div_ceil(2)
    }
}

/// A group.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Group {
    members: Vec<u32>,
    /// Highest and lowest class for which it was made.
    classes: (Class, Class),
    slice_ns: u64,
}

/// All groups.
#[derive(Debug)]
pub(crate) struct Groups {
    rules: Rules,
    groups: Vec<Group>,
    /// By client.
    classes: Vec<Class>,
}

impl Groups {
    /// One empty group.
    pub(crate) fn new(rules: Rules) -> Self {
        let mut groups = Self {
            rules,
            groups: Vec::new(),
            classes: Vec::new(),
        };
        groups.open();
        groups
    }

    /// A rotation of this many groups, whose numbers clients are told.
    pub(crate) fn rotation(rules: Rules, groups: usize) -> Self {
        let mut rotation = Self::new(rules);
        (1..groups).for_each(|_| {
            rotation.open();
        });
        rotation
    }

    fn open(&mut self) -> usize {
        self.groups.push(Group {
            members: Vec::new(),
            classes: (priority::UNKNOWN, priority::UNKNOWN),
            slice_ns: self.rules.slice_ns,
        });
        self.groups.len() - 1
    }

    /// Number of groups, at least one.
    pub(crate) fn len(&self) -> usize {
        self.groups.len()
    }

    /// The clients of a group.
    pub(crate) fn members(&self, group: usize) -> &[u32] {
        &self.groups[group].members
    }

    /// The time for which a group is served.
    pub(crate) fn slice_ns(&self, group: usize) -> u64 {
        self.groups[group].slice_ns
    }

    /// The group of a client.
    pub(crate) fn of(&self, client: u32) -> Option<usize> {
        let has = |group: &Group| group.members.contains(&client);
        self.groups.iter().position(has)
    }

    /// Adds a client to the group with this number.
    ///
    /// # Panics
    /// If there is none.
    pub(crate) fn login_to(&mut self, client: u32, group: usize) {
        self.know(client);
        self.groups[group].members.push(client);
    }

    fn know(&mut self, client: u32) {
        let index = client as usize;
        if self.classes.len() <= index {
            self.classes.resize(index + 1, priority::UNKNOWN);
        }
        self.classes[index] = priority::UNKNOWN;
    }

    /// Adds a client. Groups keep their numbers.
    pub(crate) fn login(&mut self, client: u32) {
        self.know(client);
        let all = self.groups.iter().enumerate();
        let open = all.filter(|(_, group)| group.members.len() < self.rules.clients);
        let smallest = open.min_by_key(|(_, group)| group.members.len());
        let index = match smallest {
            Some((index, _)) => index,
            None => self.open(),
        };
        self.groups[index].members.push(client);
    }

    /// Removes a client. Groups keep their numbers, also empty ones.
    pub(crate) fn logout(&mut self, client: u32) {
        for group in &mut self.groups {
            group.members.retain(|&member| member != client);
        }
    }

    /// Records what a client did in its turn. Its class changes by one step at a time, since one turn is little
    /// evidence.
    pub(crate) fn record(&mut self, client: u32, load: &Load) {
        if !self.rules.by_priority {
            return;
        }
        if let Some(known) = self.classes.get_mut(client as usize) {
            let seen = priority::class(load);
            *known = match seen.cmp(known) {
                std::cmp::Ordering::Less => *known - 1,
                std::cmp::Ordering::Equal => *known,
                std::cmp::Ordering::Greater => *known + 1,
            };
        }
    }

    /// Rearranges the groups if necessary. Returns `true` if numbers and members have changed.
    pub(crate) fn put_in_order(&mut self) -> bool {
        if !self.is_out_of_order() {
            return false;
        }
        let before = std::mem::take(&mut self.groups);
        let clients = before.iter().flat_map(|group| &group.members);
        let clients = clients.map(|&client| (client, self.classes[client as usize]));
        self.groups = arrange(clients.collect(), &self.rules);
        if self.groups.is_empty() {
            self.open();
        }
        self.groups != before
    }

    fn is_out_of_order(&self) -> bool {
        let several = self.groups.len() > 1;
        let illegal = |group: &Group| {
            let clients = group.members.len();
            clients > self.rules.most() || (several && clients < self.rules.fewest())
        };
        if self.groups.iter().any(illegal) {
            return true;
        }
        let misplaced = |group: &Group| {
            let (highest, lowest) = group.classes;
            let others = group.members.iter().filter(|&&client| {
                let class = self.classes[client as usize];
                class > highest || class < lowest
            });
            others.count()
        };
        let misplaced: usize = self.groups.iter().map(misplaced).sum();
        let all: usize = self.groups.iter().map(|group| group.members.len()).sum();
        misplaced * 4 > all
    }
}

/// Makes the groups for these clients, given with their classes, by descending class.
fn arrange(mut clients: Vec<(u32, Class)>, rules: &Rules) -> Vec<Group> {
    clients.sort_by_key(|&(client, class)| (std::cmp::Reverse(class), client));
    let Some(&(_, middle)) = clients.get(clients.len() / 2) else {
        return Vec::new();
    };
    // The fraction of a group that a client of this class fills.
    let part = |class| 1.0 / priority::size(class, middle, rules.clients) as f64;
    let mut left: f64 = clients.iter().map(|&(_, class)| part(class)).sum();
    let mut groups: Vec<Group> = Vec::new();
    let mut rest = clients.as_slice();
    while !rest.is_empty() {
        // As many groups as get full, and no more than have enough clients.
        let count = ((left + 1e-9).round() as usize).min(rest.len() / rules.fewest());
        let count = count.max(rest.len().div_ceil(rules.most())).max(1);
        let mut members = 0;
        let mut filled = 0.0;
        while members < rest.len().min(rules.most())
            && (count == 1 || members < rules.fewest() || filled < left / count as f64 - 1e-9)
        {
            filled += part(rest[members].1);
            members += 1;
        }
        left -= filled;
        let (now, later) = rest.split_at(members);
        rest = later;
        groups.push(Group {
            members: now.iter().map(|&(client, _)| client).collect(),
            classes: (now[0].1, now[members - 1].1),
            slice_ns: priority::slice_ns(now[members / 2].1, middle, rules.slice_ns),
        });
    }
    groups
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: Rules = Rules {
        clients: 40,
        slice_ns: 100_000,
        by_priority: true,
        warm_up_beside: false,
    };

    fn sizes(groups: &Groups) -> Vec<usize> {
        let all = 0..groups.len();
        all.map(|group| groups.members(group).len()).collect()
    }

    fn busy(requests: u64, size: u64) -> Load {
        Load {
            requests,
            bytes: requests * size,
            turn_ns: 100_000,
        }
    }

    fn with(clients: u32, rules: Rules) -> Groups {
        let mut groups = Groups::new(rules);
        (0..clients).for_each(|client| groups.login(client));
        groups
    }

    /// ScaleRPC §3.6: 400 equal clients, in groups of 40.
    #[test]
    fn four_hundred_alike_are_ten_groups() {
        let mut groups = with(400, RULES);
        assert_eq!(sizes(&groups), [40; 10]);
        assert!(!groups.put_in_order(), "all are legal");
        groups.login(400);
        (0..30).for_each(|client| groups.logout(client));
        (60..101).for_each(|client| groups.logout(client));
        assert!(groups.put_in_order(), "one is too small");
        assert_eq!(sizes(&groups), [42, 42, 41, 41, 41, 41, 41, 41]);
        assert!((0..8).all(|group| groups.slice_ns(group) == 100_000));
    }

    /// §3.2: a group is split or merged when its size is not within [1/2, 3/2] of the default.
    #[test]
    fn groups_split_and_merge_lazily() {
        let mut groups = with(41, RULES);
        assert_eq!(sizes(&groups), [40, 1]);
        assert!(groups.put_in_order());
        assert_eq!(sizes(&groups), [41], "merged");
        (41..61).for_each(|client| groups.login(client));
        assert_eq!(sizes(&groups), [41, 20]);
        assert!(!groups.put_in_order(), "half of the default is legal");
        groups.logout(60);
        assert!(groups.put_in_order());
        assert_eq!(sizes(&groups), [30, 30], "as even as may be");
        (0..62).for_each(|client| groups.logout(client));
        assert!(!groups.put_in_order() || sizes(&groups) == [0]);
        assert_eq!(groups.len(), 1);
    }

    /// §3.2: clients of one class come together; the group with higher priority has fewer clients and a longer slice.
    #[test]
    fn the_busy_are_served_longer_in_smaller_groups() {
        let mut groups = with(120, RULES);
        for _ in 0..10 {
            for client in 0..120 {
                let load = if client % 6 == 0 {
                    busy(100, 32)
                } else {
                    busy(1, 32)
                };
                groups.record(client, &load);
            }
        }
        assert!(!groups.put_in_order(), "a sixth of them is not a quarter");
        for _ in 0..10 {
            for client in 0..120 {
                let load = if client % 3 == 0 {
                    busy(100, 32)
                } else {
                    busy(1, 32)
                };
                groups.record(client, &load);
            }
        }
        assert!(groups.put_in_order());
        assert_eq!(sizes(&groups), [20, 20, 40, 40]);
        assert!(groups.members(0).iter().all(|client| client % 3 == 0));
        let slices = [0, 1, 2, 3].map(|group| groups.slice_ns(group));
        assert_eq!(slices, [200_000, 200_000, 100_000, 100_000]);
        assert_eq!(groups.of(3), Some(0));
        assert!(!groups.put_in_order());
    }

    #[test]
    fn the_few_of_a_class_join_the_next() {
        let mut groups = with(50, RULES);
        for _ in 0..10 {
            (0..20).for_each(|client| groups.record(client, &busy(100, 32)));
            (20..25).for_each(|client| groups.record(client, &busy(100, 4096)));
            (25..50).for_each(|client| groups.record(client, &Load::default()));
        }
        assert!(groups.put_in_order());
        assert_eq!(sizes(&groups), [20, 30]);
        assert_eq!(groups.members(0)[..3], [0, 1, 2]);
        assert_eq!(groups.members(1)[..5], [20, 21, 22, 23, 24]);
    }

    #[test]
    fn static_mode_knows_no_priorities() {
        let fixed = Rules {
            by_priority: false,
            ..RULES
        };
        let mut groups = with(80, fixed);
        for _ in 0..10 {
            (0..40).for_each(|client| groups.record(client, &busy(100, 32)));
        }
        assert!(!groups.put_in_order());
        assert!((0..groups.len()).all(|group| groups.slice_ns(group) == 100_000));
    }

    proptest! {
        /// Whatever clients do, each is in exactly one group, and no group is larger than the number of zones.
        #[test]
        fn everybody_is_somewhere(actions in prop::collection::vec((0u32..300, 0u8..4, 0u64..200, 0u64..5000), 1..600), clients in 1usize..50) {
            let rules = Rules { clients, ..RULES };
            let mut groups = Groups::new(rules);
            let mut present = std::collections::BTreeSet::new();
            for (client, action, requests, size) in actions {
                match action {
                    0 if !present.contains(&client) => {
                        groups.login(client);
                        present.insert(client);
                    }
                    1 => {
                        groups.logout(client);
                        present.remove(&client);
                    }
                    2 => groups.record(client, &busy(requests, size)),
                    _ => {
                        groups.put_in_order();
                    }
                }
                let mut members: Vec<u32> = (0..groups.len()).flat_map(|group| groups.members(group).to_vec()).collect();
                members.sort_unstable();
                prop_assert_eq!(&members, &present.iter().copied().collect::<Vec<_>>());
                prop_assert!(groups.len() >= 1);
                prop_assert!(sizes(&groups).iter().all(|&size| size <= rules.most()));
            }
        }
    }
}
