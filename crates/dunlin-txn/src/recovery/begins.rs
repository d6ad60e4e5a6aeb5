//! The initial state of a life of a machine that has a log: a function of the log and of the current configuration.

use crate::log::Entry;
use crate::membership::{Configuration, Role};
use crate::types::MachineId;

/// The initial state of a life of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begins {
    /// The initial contents of the database.
    First,
    /// The contents of its log, in place of the life that is still a member, if one ever was.
    Continues(Option<u64>),
    /// Nothing: it copies.
    Empty,
}

/// Why a machine cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CannotBegin {
    /// There is a log of a database, but no configuration.
    #[error("the log belongs to a database that is not in the membership")]
    NoDatabase,
    /// The configuration belongs to another database.
    #[error("the log belongs to a different database than the membership")]
    OtherDatabase,
}

impl Begins {
    /// Determines the initial state of a machine that has found this in its log.
    ///
    /// # Errors
    /// When log and configuration do not belong together.
    pub fn of(
        log: &[Entry],
        machine: MachineId,
        configuration: Option<&Configuration>,
    ) -> Result<Begins, CannotBegin> {
        let (mut lives, mut was_loaded) = (Vec::new(), false);
        for entry in log {
            if let Entry::Life {
                incarnation,
                loaded,
                ..
            } = entry
            {
                lives.push(*incarnation);
                was_loaded = *loaded;
            }
        }
        let database = database_of(log);
        let Some(of) = configuration else {
            return match (lives.is_empty(), was_loaded && database == 0) {
                (true, _) => Ok(Begins::First),
                // It has never served: the database has not begun yet.
                (false, true) => Ok(Begins::Continues(None)),
                (false, false) => Err(CannotBegin::NoDatabase),
            };
        };
        if database != 0 && database != of.database {
            return Err(CannotBegin::OtherDatabase);
        }
        let member = of.member(machine);
        let member = member.filter(|member| member.role == Role::Whole);
        let before = member.filter(|member| lives.contains(&member.incarnation));
        // Otherwise it has been left out by the others, and its data is out of date.
        Ok(before.map_or(Begins::Empty, |before| {
            Begins::Continues(Some(before.incarnation))
        }))
    }
}

/// The number of the database to which a log is known to belong, or 0.
pub(crate) fn database_of(log: &[Entry]) -> u64 {
    let known = log.iter().map(|entry| match entry {
        Entry::Life { database, .. } | Entry::Serve { database, .. } => *database,
        _ => 0,
    });
    known.max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Epoch, Member};
    use std::slice;

    fn life(incarnation: u64, loaded: bool, database: u64) -> Entry {
        Entry::Life {
            incarnation,
            loaded,
            database,
        }
    }

    fn of(incarnation: u64, role: Role) -> Configuration {
        let member = Member {
            incarnation,
            address: String::new(),
            role,
        };
        Configuration {
            database: 5,
            epoch: Epoch(3),
            base: Epoch(2),
            serving: true,
            manager: MachineId(0),
            replicas: 1,
            members: vec![member],
        }
    }

    #[test]
    fn a_life_goes_on_only_in_the_place_of_a_whole_member() {
        let begins = |log: &[Entry], of: Option<&Configuration>| Begins::of(log, MachineId(0), of);
        let (loaded, known) = (life(1, true, 0), life(2, true, 5));
        let serve = Entry::Serve {
            epoch: Epoch(1),
            database: 5,
        };
        assert_eq!(begins(&[], None), Ok(Begins::First));
        assert_eq!(
            begins(slice::from_ref(&loaded), None),
            Ok(Begins::Continues(None))
        );
        let no = Err(CannotBegin::NoDatabase);
        assert_eq!(begins(slice::from_ref(&known), None), no);
        assert_eq!(begins(&[loaded.clone(), serve.clone()], None), no);
        assert_eq!(begins(&[life(1, false, 0)], None), no);

        let both = [loaded, serve, known];
        for incarnation in [1, 2] {
            let goes_on = Ok(Begins::Continues(Some(incarnation)));
            assert_eq!(begins(&both, Some(&of(incarnation, Role::Whole))), goes_on);
            for role in [Role::Out, Role::Learner] {
                let of = of(incarnation, role);
                assert_eq!(begins(&both, Some(&of)), Ok(Begins::Empty));
            }
        }
        assert_eq!(begins(&both, Some(&of(3, Role::Whole))), Ok(Begins::Empty));
        assert_eq!(begins(&[], Some(&of(3, Role::Out))), Ok(Begins::Empty));
        let mut other = of(1, Role::Whole);
        other.database = 6;
        assert_eq!(begins(&both, Some(&other)), Err(CannotBegin::OtherDatabase));
    }
}
