//! How a rank leaves the job: it says so to each other one behind everything that it has sent, and closes the rings.

use std::time::{Duration, Instant};

use dunlin_verbs::thread;

use crate::error::MpiError;
use crate::outbound::put_with;
use crate::target::Lent;
use crate::waiting::Wait;
use crate::wire::{Context, Header, Kind, NO_CAUSE};
use crate::world::World;

/// Time that a rank which leaves waits for the others to take what it has sent.
const LEAVING: Duration = Duration::from_secs(1);
/// The sleep between two polls meanwhile.
const SLEEP: Duration = Duration::from_micros(50);

impl World {
    /// Leaves the job together with all others: waits until all ranks have called it, and until what this one has sent
    /// is in the rings (`MPI_Finalize`). Messages that nobody has received are thrown away.
    ///
    /// # Errors
    /// When a rank has left without calling it or was lost.
    pub fn finalize(mut self) -> Result<(), MpiError> {
        self.is_leaving = true;
        // Nobody will receive what this rank has sent to itself.
        self.peers[self.rank].outbound.clear();
        let mut wait = Wait::new(None);
        while self.peers.iter().any(|peer| !peer.outbound.is_empty()) {
            if self.progress(&mut Lent::default()) {
                wait.found();
            } else {
                self.rest(&mut wait, &mut Lent::default())?;
            }
        }
        self.barrier()
    }

    /// Tells the ranks that are there that this one leaves, behind all that it has sent.
    fn say_goodbye(&mut self, deadline: Instant) {
        let cause = match self.failure {
            Some(MpiError::RankLost { rank, .. }) => rank as u32,
            _ => NO_CAUSE,
        };
        let goodbye = Header {
            kind: Kind::Goodbye,
            context: Context::User,
            tag: cause,
            length: 0,
        };
        let mut said = vec![false; self.peers.len()];
        loop {
            self.progress(&mut Lent::default());
            let mut is_done = true;
            for (peer, said) in self.peers.iter_mut().zip(&mut said) {
                let Some(link) = &mut peer.link else {
                    continue;
                };
                if !*said && peer.outbound.is_empty() {
                    // A rank that is gone needs no goodbye.
                    let put = put_with(link.as_mut(), goodbye, 0, &mut |_| ());
                    *said = put.is_err() || put == Ok(true) && link.close().is_ok();
                }
                is_done &= *said && link.is_closed();
            }
            if is_done || Instant::now() >= deadline {
                return;
            }
            thread::sleep(SLEEP);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // After a loss, what is under way may never be taken.
        let patience = if self.failure.is_some() {
            LEAVING / 4
        } else {
            LEAVING
        };
        self.say_goodbye(Instant::now() + patience);
    }
}
