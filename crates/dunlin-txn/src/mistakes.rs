//! Deliberate mistakes of the protocol, to show that the checker finds them. Without the feature `mistakes` there are
//! none, and the checks for them compile to nothing.

/// A deliberate mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// A transaction commits without validating what it read.
    ValidationLeftOut,
    /// Validation compares versions but ignores locks.
    LockIgnoredAtValidation,
    /// Validation checks locks but does not compare versions.
    VersionIgnoredAtValidation,
    /// A change keeps the version of its header.
    VersionNotRaised,
    /// The write set is read but not locked.
    LockLeftOut,
    /// A lock held by another transaction is granted a second time.
    LockTaken,
    /// A participant unlocks when it logs, before it installs.
    UnlockedAtLog,
    /// A transaction is reported as committed when the first machine has logged it.
    ReportedEarly,
    /// Only some of the primaries get the changes; the others just unlock.
    PartOfCommitLost,
    /// Duplicate or late requests are executed again.
    LateRequestExecuted,
    /// A failed one-sided WRITE is repeated, although it may have been executed.
    WriteRepeated,
    /// One-sided commit releases the lock first and then writes the item.
    HeaderBeforeItem,
    /// A machine answers coordinators of past epochs.
    OldEpochServed,
    /// A machine reports what was decided but continues to serve.
    SealLeftOut,
    /// Transactions decided before an epoch are not executed in it.
    DecidedForgotten,
    /// A transaction counts as decided only if all machines have its record, not if one has.
    RecordWantedEverywhere,
    /// Decided transactions are executed again where they have been executed already.
    InstalledTwice,
    /// Locks survive the end of an epoch.
    LocksKept,
    /// An epoch serves when one machine has installed, instead of all.
    ServedEarly,
    /// A record has only the keys of its own machine.
    RecordsOfParts,
    /// A coordinator whose epoch ended after it had logged treats the transaction as aborted.
    OutcomeAssumed,
    /// A machine serves without a lease.
    LeaseIgnored,
    /// A new machine is whole before it has copied anything.
    CopyLeftOut,
    /// A machine that has a lease is left out.
    AbsenceNotAwaited,
    /// A machine answers before its action is on its disk.
    AnsweredBeforeDisk,
    /// A machine that was left out by the others treats the data on its disk as complete.
    BehindTakenForWhole,
}

/// The enabled mistake, if any. Normally there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Mistakes {
    #[cfg(feature = "mistakes")]
    made: Option<Mistake>,
}

impl Mistakes {
    /// No mistake.
    pub const NONE: Mistakes = Mistakes {
        #[cfg(feature = "mistakes")]
        made: None,
    };

    /// This mistake.
    #[cfg(feature = "mistakes")]
    pub fn of(mistake: Mistake) -> Mistakes {
        Mistakes {
            made: Some(mistake),
        }
    }

    #[cfg(feature = "mistakes")]
    pub(crate) fn has(self, mistake: Mistake) -> bool {
        self.made == Some(mistake)
    }

    #[cfg(not(feature = "mistakes"))]
    pub(crate) fn has(self, _mistake: Mistake) -> bool {
        false
    }
}
