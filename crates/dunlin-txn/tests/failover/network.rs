//! Who sends and receives: machines by number, then clients, then the membership.
pub(crate) type Node = u64;

pub(crate) const MEMBERSHIP: Node = 1000;

pub(crate) fn client_node(client: u64) -> Node {
    100 + client
}
