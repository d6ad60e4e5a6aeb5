//! What a rank knows of another one: the link to it, whether it is still there, and the messages under way.

use crate::error::{Loss, MpiError};
use crate::inbound::Inbound;
use crate::link::Link;
use crate::outbound::Outbound;

/// Whether a rank is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// It takes part in the job.
    Here,
    /// It has left the job.
    Left,
    /// It is gone without having left.
    Lost(Loss),
}

/// A rank. This process has one for itself, too, whose outbound messages are the inbound ones.
#[derive(Debug)]
pub(crate) struct Peer {
    /// None for this rank itself, for one that is gone, and before it is connected.
    pub(crate) link: Option<Box<dyn Link>>,
    /// The device of the link.
    pub(crate) device: Option<String>,
    pub(crate) presence: Presence,
    /// Why it takes no more messages, while one that it has sent and for which there is no room is still in its ring.
    pub(crate) write_loss: Option<Loss>,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
}

impl Peer {
    pub(crate) fn new() -> Self {
        Self {
            link: None,
            device: None,
            presence: Presence::Here,
            write_loss: None,
            inbound: Inbound::default(),
            outbound: Outbound::new(),
        }
    }

    /// The error of a send to this rank, if it takes no more.
    pub(crate) fn cannot_take(&self, rank: usize) -> Option<MpiError> {
        let lost = self.write_loss;
        let lost = lost.map(|loss| MpiError::RankLost { rank, loss });
        self.absence(rank).or(lost)
    }

    /// The error of a call that needs this rank, if it is gone.
    pub(crate) fn absence(&self, rank: usize) -> Option<MpiError> {
        match self.presence {
            Presence::Here => None,
            Presence::Left => Some(MpiError::RankLeft { rank }),
            Presence::Lost(loss) => Some(MpiError::RankLost { rank, loss }),
        }
    }
}
