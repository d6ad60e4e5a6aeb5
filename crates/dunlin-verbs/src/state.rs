//! The state machine of a queue pair (InfiniBand Architecture Specification, vol. 1, §10.3).

use crate::queue_pair::Transport;

/// The state of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum QueuePairState {
    /// New or reset: accepts no work.
    Reset = 0,
    /// Accepts RECEIVEs.
    Init = 1,
    /// Knows its peer and answers its requests.
    ReadyToReceive = 2,
    /// Also sends.
    ReadyToSend = 3,
    /// Finishes posted requests and starts no new ones.
    SendQueueDrained = 4,
    /// UC and UD: the send queue failed; receiving continues.
    SendQueueError = 5,
    /// Everything posted is flushed.
    Error = 6,
}

impl QueuePairState {
    /// Whether the transition from `self` to `to` is allowed for `transport`.
    pub fn may_move(self, to: Self, transport: Transport) -> bool {
        use QueuePairState::{
            Error, Init, ReadyToReceive, ReadyToSend, Reset, SendQueueDrained, SendQueueError,
        };
        match (self, to) {
            (_, Reset | Error)
            | (Reset | Init, Init)
            | (Init, ReadyToReceive)
            | (ReadyToReceive | ReadyToSend | SendQueueDrained, ReadyToSend)
            | (ReadyToSend, SendQueueDrained) => true,
            (SendQueueError, ReadyToSend) => transport != Transport::ReliableConnection,
            _ => false,
        }
    }

    /// Whether RECEIVEs may be posted.
    pub fn takes_receives(self) -> bool {
        self != Self::Reset
    }

    /// Whether sends may be posted; in an error state they are accepted and flushed.
    pub fn takes_sends(self) -> bool {
        matches!(
            self,
            Self::ReadyToSend | Self::SendQueueDrained | Self::SendQueueError | Self::Error
        )
    }

    /// The state with this number, for states kept in atomics.
    pub fn from_number(number: u32) -> Option<Self> {
        Some(match number {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::ReadyToReceive,
            3 => Self::ReadyToSend,
            4 => Self::SendQueueDrained,
            5 => Self::SendQueueError,
            6 => Self::Error,
            _ => return None,
        })
    }
}

impl std::fmt::Display for QueuePairState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Reset => "reset",
            Self::Init => "init",
            Self::ReadyToReceive => "ready to receive",
            Self::ReadyToSend => "ready to send",
            Self::SendQueueDrained => "send queue drained",
            Self::SendQueueError => "send queue error",
            Self::Error => "error",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::QueuePairState as S;
    use crate::queue_pair::Transport;

    const ALL: [S; 7] = [
        S::Reset,
        S::Init,
        S::ReadyToReceive,
        S::ReadyToSend,
        S::SendQueueDrained,
        S::SendQueueError,
        S::Error,
    ];

    #[test]
    fn numbers_round_trip() {
        for state in ALL {
            assert_eq!(S::from_number(state as u32), Some(state));
        }
        assert_eq!(S::from_number(7), None);
    }

    #[test]
    fn connecting_goes_step_by_step() {
        let rc = Transport::ReliableConnection;
        assert!(S::Reset.may_move(S::Init, rc));
        assert!(!S::Reset.may_move(S::ReadyToReceive, rc));
        assert!(!S::Reset.may_move(S::ReadyToSend, rc));
        assert!(S::Init.may_move(S::ReadyToReceive, rc));
        assert!(!S::Init.may_move(S::ReadyToSend, rc));
        assert!(S::ReadyToReceive.may_move(S::ReadyToSend, rc));
        for state in ALL {
            assert!(state.may_move(S::Error, rc) && state.may_move(S::Reset, rc));
            assert!(!S::Error.may_move(state, rc) || matches!(state, S::Error | S::Reset));
        }
        assert!(!S::SendQueueError.may_move(S::ReadyToSend, rc));
        assert!(S::SendQueueError.may_move(S::ReadyToSend, Transport::UnreliableDatagram));
    }
}
