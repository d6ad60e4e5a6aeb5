//! The numbers of a poller's clients: their limit, and which of them are free.

/// The client numbers of a poller.
#[derive(Debug)]
pub(in crate::server) struct Places {
    taken: Vec<bool>,
    clients: usize,
    limit: usize,
}

impl Places {
    pub(in crate::server) fn new(limit: usize) -> Self {
        Self {
            taken: Vec::new(),
            clients: 0,
            limit,
        }
    }

    /// Maximum number of clients.
    pub(in crate::server) fn limit(&self) -> usize {
        self.limit
    }

    /// Number of clients at present.
    pub(in crate::server) fn clients(&self) -> usize {
        self.clients
    }

    /// Takes the lowest free number, and says whether it was never used before.
    pub(in crate::server) fn take(&mut self) -> Option<(u32, bool)> {
        if let Some(number) = self.taken.iter().position(|taken| !taken) {
            self.taken[number] = true;
            self.clients += 1;
            return Some((number as u32, false));
        }
        (self.taken.len() < self.limit).then(|| {
            self.taken.push(true);
            self.clients += 1;
            (self.taken.len() as u32 - 1, true)
        })
    }

    /// Frees the number of a client that has left.
    pub(in crate::server) fn give_back(&mut self, number: u32) {
        self.taken[number as usize] = false;
        self.clients -= 1;
    }

    /// Undoes the taking of a number that was never used before, if the client could not be made.
    pub(in crate::server) fn undo(&mut self) {
        self.taken.pop();
        self.clients -= 1;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_few_and_come_back() {
        let mut places = Places::new(3);
        assert_eq!(places.take(), Some((0, true)));
        assert_eq!(places.take(), Some((1, true)));
        places.undo();
        assert_eq!(places.take(), Some((1, true)));
        assert_eq!(places.take(), Some((2, true)));
        assert_eq!(places.take(), None);
        places.give_back(1);
        assert_eq!(places.take(), Some((1, false)));
        assert_eq!(places.take(), None);
        assert_eq!(places.limit(), 3);
    }
}
