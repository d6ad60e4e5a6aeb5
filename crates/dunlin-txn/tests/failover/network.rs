//! Who sends and receives, and who reaches whom.
use std::collections::BTreeMap;

/// Machines by number, then clients, then the membership.
pub(crate) type Node = u64;

pub(crate) const MEMBERSHIP: Node = 1000;

pub(crate) fn client_node(client: u64) -> Node {
    100 + client
}

fn link(one: Node, other: Node) -> (Node, Node) {
    (one.min(other), one.max(other))
}

/// Links that carry nothing. Each cut is a machine's misfortune, and several may be of one link.
#[derive(Default)]
pub(crate) struct Links {
    cut: BTreeMap<(Node, Node), u32>,
    hurt: BTreeMap<Node, u32>,
}

/// A machine, with those that are on its side and do not reach the others either.
#[derive(Clone)]
pub(crate) struct Cut {
    pub(crate) machine: Node,
    pub(crate) with: Vec<Node>,
    pub(crate) from: Vec<Node>,
}

impl Cut {
    fn links(&self) -> impl Iterator<Item = (Node, Node)> + '_ {
        let side = self.with.iter().copied().chain([self.machine]);
        side.flat_map(|one| self.from.iter().map(move |other| link(one, *other)))
    }
}

impl Links {
    pub(crate) fn cut(&mut self, cut: &Cut) {
        *self.hurt.entry(cut.machine).or_default() += 1;
        for link in cut.links() {
            *self.cut.entry(link).or_default() += 1;
        }
    }

    pub(crate) fn heal(&mut self, cut: &Cut) {
        less(&mut self.hurt, cut.machine);
        cut.links().for_each(|link| less(&mut self.cut, link));
    }

    pub(crate) fn is_cut(&self, one: Node, other: Node) -> bool {
        self.cut.contains_key(&link(one, other))
    }

    /// Whether a machine does not reach all that it should.
    pub(crate) fn is_hurt(&self, machine: Node) -> bool {
        self.hurt.contains_key(&machine)
    }
}

fn less<K: Ord>(counts: &mut BTreeMap<K, u32>, of: K) {
    if let Some(count) = counts.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&of);
        }
    }
}
