//! Conversion of the library's completion statuses to those of the verbs layer.

use dunlin_verbs::CompletionStatus as S;

use crate::sys::types::Number;

/// Converts a status; those without a counterpart become [`S::General`].
pub(crate) fn status(number: Number) -> S {
    match number {
        0 => S::Success,
        1 => S::LocalLength,
        2 | 3 => S::LocalQueuePairOperation,
        // Local protection; local access of an RDMA request by the peer.
        4 | 8 => S::LocalProtection,
        5 => S::Flushed,
        // Invalid request; invalid READ request.
        9 | 15 => S::RemoteInvalidRequest,
        10 => S::RemoteAccess,
        11 => S::RemoteOperation,
        12 | 20 => S::RetryExceeded,
        13 => S::ReceiverNotReadyRetryExceeded,
        _ => S::General,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        assert_eq!(status(0), S::Success);
        assert_eq!(status(5), S::Flushed);
        assert_eq!(status(13), S::ReceiverNotReadyRetryExceeded);
        assert_eq!(status(99), S::General);
    }
}
