//! Finds a cycle of a directed graph: transactions without predecessors are removed until none are left.
use super::Edge;
use crate::types::TransactionId;
use std::collections::{BTreeMap, HashMap};

/// Returns the edges of a cycle, if there is one.
pub(super) fn find(edges: &[Edge]) -> Option<Vec<Edge>> {
    let mut incoming: HashMap<TransactionId, usize> = HashMap::new();
    let mut outgoing: HashMap<TransactionId, Vec<&Edge>> = HashMap::new();
    for edge in edges {
        incoming.entry(edge.from).or_default();
        *incoming.entry(edge.to).or_default() += 1;
        outgoing.entry(edge.from).or_default().push(edge);
    }
    let mut free: Vec<TransactionId> = incoming
        .iter()
        .filter(|(_, count)| **count == 0)
        .map(|(id, _)| *id)
        .collect();
    while let Some(id) = free.pop() {
        incoming.remove(&id);
        for edge in outgoing.get(&id).into_iter().flatten() {
            if let Some(count) = incoming.get_mut(&edge.to) {
                *count -= 1;
                if *count == 0 {
                    free.push(edge.to);
                }
            }
        }
    }
    // Every remaining transaction has a remaining predecessor, so going backwards must end in a cycle.
    let mut before: BTreeMap<TransactionId, &Edge> = BTreeMap::new();
    for edge in edges
        .iter()
        .filter(|edge| incoming.contains_key(&edge.from))
    {
        if incoming.contains_key(&edge.to) {
            before.entry(edge.to).or_insert(edge);
        }
    }
    let mut path: Vec<&Edge> = Vec::new();
    let mut at = *before.keys().next()?;
    while !path.iter().any(|edge| edge.to == at) {
        path.push(before[&at]);
        at = before[&at].from;
    }
    let start = path.iter().position(|edge| edge.to == at)?;
    Some(
        path[start..]
            .iter()
            .rev()
            .map(|edge| (*edge).clone())
            .collect(),
    )
}
