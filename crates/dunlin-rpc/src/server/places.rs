//! The numbers of a poller's clients: how many there may be, and which are free.

/// The numbers.
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

    /// Most clients at once.
    pub(in crate::server) fn limit(&self) -> usize {
        self.limit
    }

    /// Clients now.
    pub(in crate::server) fn clients(&self) -> usize {
        self.clients
    }

    /// The lowest free number, and whether nobody had it before.
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

    /// A client has left.
    pub(in crate::server) fn give_back(&mut self, number: u32) {
        self.taken[number as usize] = false;
        self.clients -= 1;
    }

    /// The number was new, and there is no client for it after all.
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
