//! Requests that have arrived and are not executed yet, by sequence number.

use dunlin_verbs::{Operation, Region};

use super::super::RUN_AHEAD;
use crate::logical::Landing;

/// A request of the peer.
#[derive(Debug)]
pub(super) struct Request<R: Region> {
    pub(super) operation: Operation,
    pub(super) solicited: bool,
    pub(super) wants_done: bool,
    pub(super) long: bool,
    pub(super) not_ready_retries: u8,
    pub(super) bytes: usize,
    /// The frame, followed by the payload.
    pub(super) message: Vec<u8>,
    pub(super) landing: Option<Landing<R>>,
}

/// Requests by number. There is a place for as many as a sender may run ahead.
#[derive(Debug)]
pub(super) struct Requests<R: Region> {
    pub(super) places: Vec<Option<Request<R>>>,
    pub(super) count: usize,
}

impl<R: Region> Requests<R> {
    pub(super) fn new() -> Self {
        Self {
            places: Vec::new(),
            count: 0,
        }
    }

    pub(super) fn place(sequence: u32) -> usize {
        (sequence % RUN_AHEAD) as usize
    }

    pub(super) fn get(&self, sequence: u32) -> Option<&Request<R>> {
        self.places.get(Self::place(sequence))?.as_ref()
    }

    pub(super) fn get_mut(&mut self, sequence: u32) -> Option<&mut Request<R>> {
        self.places.get_mut(Self::place(sequence))?.as_mut()
    }

    /// Inserts a request. Its place is free, since its number is less than [`RUN_AHEAD`] from all others.
    pub(super) fn insert(&mut self, sequence: u32, request: Request<R>) {
        if self.places.is_empty() {
            self.places.resize_with(RUN_AHEAD as usize, || None);
        }
        self.places[Self::place(sequence)] = Some(request);
        self.count += 1;
    }

    pub(super) fn remove(&mut self, sequence: u32) -> Option<Request<R>> {
        let request = self.places.get_mut(Self::place(sequence))?.take()?;
        self.count -= 1;
        Some(request)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn clear(&mut self) {
        self.places.clear();
        self.count = 0;
    }
}
