//! Deliberate mistakes of the protocol, to show that the checker finds them. Without the feature `mistakes` there are
//! none, and the questions for them compile to nothing.

/// A way to do it wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mistake {
    /// A transaction commits without validating what it read.
    ValidationLeftOut,
    /// Validation compares versions and does not look at locks.
    LockIgnoredAtValidation,
    /// Validation looks at locks and does not compare versions.
    VersionIgnoredAtValidation,
    /// A change keeps the version of its header.
    VersionNotRaised,
    /// The write set is read and not locked.
    LockLeftOut,
    /// A lock that another transaction holds is given a second time.
    LockTaken,
    /// A participant unlocks when it logs, before it installs.
    UnlockedAtLog,
    /// A transaction is reported when the first machine has logged it.
    ReportedEarly,
    /// Only some of the primaries get the changes; the others unlock.
    PartOfCommitLost,
    /// Requests that come twice, or late, are executed again.
    LateRequestExecuted,
    /// A failed one-sided WRITE is repeated, though it may have been executed.
    WriteRepeated,
    /// One-sided commit releases the lock first and writes the item then.
    HeaderBeforeItem,
    /// A machine answers coordinators of epochs that are over.
    OldEpochServed,
    /// A machine says what was decided and goes on to serve.
    SealLeftOut,
    /// What was decided before an epoch is not executed in it.
    DecidedForgotten,
    /// A transaction counts as decided where all machines have its record, not where one has.
    RecordWantedEverywhere,
    /// What was decided is executed again where it was executed.
    InstalledTwice,
    /// Locks stay when an epoch ends.
    LocksKept,
    /// An epoch serves when one machine has installed, not when all have.
    ServedEarly,
    /// A record has the keys of its machine alone.
    RecordsOfParts,
    /// A coordinator whose epoch ended after it had logged takes the transaction for aborted.
    OutcomeAssumed,
    /// A machine serves without a lease.
    LeaseIgnored,
    /// A machine that comes is whole before it has copied anything.
    CopyLeftOut,
    /// A machine is left out that has a lease.
    AbsenceNotAwaited,
    /// A machine answers before what it did is on its disk.
    AnsweredBeforeDisk,
    /// A machine that the others have gone on without takes what it has on its disk for all that there is.
    BehindTakenForWhole,
}

/// The mistake that is switched in, if any. Ordinarily there is none.
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
