//! The shared secret and the proofs that a side knows it.
//!
//! A proof is HMAC-SHA256, keyed by the secret, over a label of the sender's role and a hash of every frame so far,
//! including the one that carries the proof. The first two frames contain a fresh nonce of each side, so a proof is not
//! valid a second time, in another role, or for other contents.

use std::fmt;

use hmac_sha256::{Hash as Sha256, HMAC};
use zeroize::Zeroizing;

/// Length of a proof in bytes.
pub const PROOF_BYTES: usize = 32;

/// Proves that a side knows the secret and that nobody modified what was sent.
pub type Proof = [u8; PROOF_BYTES];

/// A secret that only the two sides know. It is never sent or shown, and is erased when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

/// Why some bytes are not a valid [`Secret`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// It is empty.
    #[error("the secret is empty; use at least one byte, preferably 32 random ones")]
    Empty,
    /// It is too long.
    #[error(
        "the secret has {bytes} bytes, more than the limit of {}",
        Secret::MAX_BYTES
    )]
    TooLong {
        /// Its length.
        bytes: usize,
    },
}

impl Secret {
    /// Maximum length of a secret in bytes.
    pub const MAX_BYTES: usize = 1024;

    /// Creates a secret of 1 to 1024 bytes. An eavesdropper on the network can test guesses, so they should be random.
    ///
    /// # Errors
    /// When it is empty or too long.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, SecretError> {
        let bytes = Zeroizing::new(bytes.into());
        match bytes.len() {
            0 => Err(SecretError::Empty),
            1..=Self::MAX_BYTES => Ok(Self(bytes)),
            bytes => Err(SecretError::TooLong { bytes }),
        }
    }

    fn code(&self, role: Role, transcript: &Transcript) -> HMAC {
        let mut code = HMAC::new(&*self.0);
        code.update(role.label());
        code.update(transcript.0.finalize());
        code
    }

    pub(crate) fn prove(&self, role: Role, transcript: &Transcript) -> Proof {
        self.code(role, transcript).finalize()
    }

    /// Whether this is the proof; takes the same time for every wrong one.
    pub(crate) fn verifies(&self, role: Role, transcript: &Transcript, proof: &Proof) -> bool {
        self.code(role, transcript).finalize_verify(proof)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The sender of a proof, and the frame.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    ServerHello,
    ClientOpen,
    ServerReply,
}

impl Role {
    /// No label is a prefix of another.
    fn label(self) -> &'static [u8] {
        match self {
            Self::ServerHello => b"dunlin bootstrap 1: server hello\0",
            Self::ClientOpen => b"dunlin bootstrap 1: client open\0",
            Self::ServerReply => b"dunlin bootstrap 1: server reply\0",
        }
    }
}

/// A hash of everything that both sides have sent, in order.
#[derive(Clone)]
pub(crate) struct Transcript(Sha256);

impl fmt::Debug for Transcript {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Transcript(..)")
    }
}

impl Transcript {
    pub(crate) fn new() -> Self {
        Self(Sha256::new())
    }

    /// Adds the contents of a frame, without its proof.
    pub(crate) fn add(&mut self, words: &[u8]) {
        self.0.update((words.len() as u64).to_le_bytes());
        self.0.update(words);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_one_secret_role_and_transcript() {
        let secret = Secret::new("correct horse").unwrap();
        let mut transcript = Transcript::new();
        transcript.add(b"hello");
        transcript.add(b"world");
        let proof = secret.prove(Role::ClientOpen, &transcript);
        assert!(secret.verifies(Role::ClientOpen, &transcript, &proof));
        assert!(!secret.verifies(Role::ServerReply, &transcript, &proof));

        let other = Secret::new("battery staple").unwrap();
        assert!(!other.verifies(Role::ClientOpen, &transcript, &proof));

        let mut shifted = Transcript::new();
        shifted.add(b"hellow");
        shifted.add(b"orld");
        assert!(!secret.verifies(Role::ClientOpen, &shifted, &proof));

        let mut changed = proof;
        changed[31] ^= 1;
        assert!(!secret.verifies(Role::ClientOpen, &transcript, &changed));
    }

    /// The results of Python's `hmac` and `hashlib` for the same contents, for a key shorter than a block and for a
    /// longer one.
    #[test]
    fn a_proof_is_hmac_sha256_of_label_and_transcript() {
        let mut transcript = Transcript::new();
        transcript.add(b"hello");
        transcript.add(b"world");
        for (secret, expected) in [
            (
                &b"correct horse"[..],
                "0174c31547fe1b4a47c5816330cf65743e7c6c118821e51888553f1cf81e2407",
            ),
            (
                &[b'k'; 100],
                "636386aa346f966817c171001620f809277e678c7f291a37d4e49917f20e14c7",
            ),
        ] {
            let secret = Secret::new(secret).unwrap();
            let proof = secret.prove(Role::ClientOpen, &transcript);
            let hex: String = proof.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, expected);
        }
    }

    #[test]
    fn a_secret_is_not_shown_and_not_empty() {
        assert_eq!(
            format!("{:?}", Secret::new("hunter2").unwrap()),
            "Secret(..)"
        );
        assert_eq!(Secret::new("").unwrap_err(), SecretError::Empty);
        let long = Secret::new([1; 1025]).unwrap_err();
        assert_eq!(long, SecretError::TooLong { bytes: 1025 });
    }
}
