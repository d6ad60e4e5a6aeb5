//! A protocol determines how a transaction validates, logs and commits. All of them execute by RPC, which reads and
//! locks.

/// How the read set is validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Validate {
    /// The primaries compare versions.
    Rpc,
    /// One-sided READs of the headers, which the coordinator compares.
    Read,
}

/// Where the changes are logged before any primary makes them visible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Log {
    /// At the coordinator's log replicas (FaSST).
    Coordinator,
    /// At the backups, which apply them at once: their copy is the log (FLOCK §8.5.1).
    Backups,
    /// At the primaries of the write set (ScaleRPC §4.2).
    Primaries,
}

/// When backups get the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backups {
    /// Together with the log.
    WithLog,
    /// After they are logged, and before the primaries get them (FaSST).
    AfterLog,
}

/// How the primaries get the changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    /// They install them and unlock.
    Rpc,
    /// One-sided WRITEs of the items, then of the headers with the lock zeroed (ScaleRPC §4.2).
    Write,
}

/// A combination of the four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// Its name.
    pub name: &'static str,
    /// How it validates.
    pub validate: Validate,
    /// Where it logs.
    pub log: Log,
    /// When its backups follow.
    pub backups: Backups,
    /// How it commits.
    pub commit: Commit,
}

impl Protocol {
    /// FaSST: RPC only, and a log of the coordinator.
    pub const FASST: Protocol = Protocol {
        name: "fasst",
        validate: Validate::Rpc,
        log: Log::Coordinator,
        backups: Backups::AfterLog,
        commit: Commit::Rpc,
    };

    /// FLOCKTX: validation by READ, and backups that serve as the log.
    pub const FLOCKTX: Protocol = Protocol {
        name: "flocktx",
        validate: Validate::Read,
        log: Log::Backups,
        backups: Backups::WithLog,
        commit: Commit::Rpc,
    };

    /// ScaleTX: validation by READ, commit by WRITE.
    pub const SCALETX: Protocol = Protocol {
        name: "scaletx",
        validate: Validate::Read,
        log: Log::Primaries,
        backups: Backups::WithLog,
        commit: Commit::Write,
    };

    /// ScaleTX-O: ScaleTX with RPCs for its one-sided operations.
    pub const SCALETX_O: Protocol = Protocol {
        name: "scaletx-o",
        validate: Validate::Rpc,
        commit: Commit::Rpc,
        ..Protocol::SCALETX
    };

    /// Our own, where the machines' memory can be read: FLOCKTX. Its backups serve as the log, so a change crosses the
    /// network twice less often than with FaSST, and validation does not use the machines' processors.
    pub const AUTO_ONE_SIDED: Protocol = Protocol {
        name: "auto",
        ..Protocol::FLOCKTX
    };

    /// Our own over messages only: FLOCKTX with validation by RPC.
    pub const AUTO_MESSAGES: Protocol = Protocol {
        name: "auto",
        validate: Validate::Rpc,
        ..Protocol::FLOCKTX
    };

    /// The protocols of the papers.
    pub const ALL: [Protocol; 4] = [
        Protocol::FASST,
        Protocol::FLOCKTX,
        Protocol::SCALETX,
        Protocol::SCALETX_O,
    ];

    /// Returns the protocol of this name.
    pub fn named(name: &str) -> Option<Protocol> {
        Protocol::ALL
            .into_iter()
            .find(|protocol| protocol.name == name)
    }
}
