//! What a receive accepts, and what it reports: source, tag and length.

/// The ranks from which a receive or probe accepts messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Any rank, this one included (`MPI_ANY_SOURCE`).
    Any,
    /// This rank only.
    Rank(usize),
}

/// The tags that a receive or probe accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// Any tag (`MPI_ANY_TAG`).
    Any,
    /// This tag only.
    Is(u32),
}

/// What is known of a message (`MPI_Status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// The rank that sent it.
    pub source: usize,
    /// Its tag.
    pub tag: u32,
    /// Its length in bytes.
    pub bytes: usize,
}

impl From<usize> for Source {
    fn from(rank: usize) -> Self {
        Self::Rank(rank)
    }
}

impl From<u32> for Tag {
    fn from(tag: u32) -> Self {
        Self::Is(tag)
    }
}

impl Source {
    pub(crate) fn accepts(self, rank: usize) -> bool {
        match self {
            Self::Any => true,
            Self::Rank(wanted) => wanted == rank,
        }
    }
}

impl Tag {
    pub(crate) fn accepts(self, tag: u32) -> bool {
        match self {
            Self::Any => true,
            Self::Is(wanted) => wanted == tag,
        }
    }
}
