//! The state of a call without a response: the client asks, the server reports it (FaSST §4.3 detects lost packets by a
//! timer, and ends there).
//!
//! A question is a list of calls, an answer a list of calls with their states. A server that reports *unknown*
//! guarantees that it will not execute the call later, even if its request arrives after all.

/// The state of a call at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Fate {
    /// Its request did not arrive, or was refused before it reached a handler, and will not be executed.
    Unknown = 1,
    /// It is being executed, or its response is queued behind others.
    Working = 2,
    /// Its response was sent.
    Answered = 3,
}

/// Size of a call in a question, in bytes.
pub(crate) const ASKED_BYTES: usize = 8;
/// Size of a call in an answer, in bytes.
pub(crate) const TOLD_BYTES: usize = 9;

/// The calls of a question; incomplete trailing bytes are ignored.
pub(crate) fn asked(payload: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let calls = payload.chunks_exact(ASKED_BYTES);
    calls.map(|call| u64::from_le_bytes(std::array::from_fn(|i| call[i])))
}

/// Adds a call to an answer.
pub(crate) fn tell(answer: &mut Vec<u8>, call: u64, fate: Fate) {
    answer.extend_from_slice(&call.to_le_bytes());
    answer.push(fate as u8);
}

/// The calls of an answer and their states; invalid entries are left out.
pub(crate) fn told(payload: &[u8]) -> impl Iterator<Item = (u64, Fate)> + '_ {
    payload.chunks_exact(TOLD_BYTES).filter_map(|entry| {
        let fate = match entry[8] {
            1 => Fate::Unknown,
            2 => Fate::Working,
            3 => Fate::Answered,
            _ => return None,
        };
        let call = u64::from_le_bytes(std::array::from_fn(|i| entry[i]));
        Some((call, fate))
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn fates_round_trip_and_any_bytes_are_read(
            calls in prop::collection::vec((any::<u64>(), 1u8..=3), 0..60), noise in prop::collection::vec(any::<u8>(), 0..100)
        ) {
            let mut bytes = Vec::new();
            let mut inside = Vec::new();
            for (call, fate) in calls {
                let fate = [Fate::Unknown, Fate::Working, Fate::Answered][usize::from(fate) - 1];
                tell(&mut bytes, call, fate);
                inside.push((call, fate));
            }
            prop_assert_eq!(told(&bytes).collect::<Vec<_>>(), inside);
            prop_assert!(told(&noise).count() <= noise.len() / TOLD_BYTES);
            prop_assert_eq!(asked(&noise).count(), noise.len() / ASKED_BYTES);
        }
    }
}
