//! PostgreSQL, used as suits it best: each transaction is one call of a prepared statement, SERIALIZABLE; transactions
//! of more than one statement are functions on the server, so none needs a second round trip. There are as many
//! connections as transactions at once. The few messages of its protocol that are needed are implemented here: a crate
//! for it brings 27.

mod server;
mod wire;

use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use dunlin::txn::workload::{SmallBankTransaction, TatpTransaction};
use rustix::event::{poll, PollFd, PollFlags};

use super::{ends, forwarding, row, typed, Drawn, Draws, Engine, Outcome};
use crate::commands::Failure;
pub use server::{load, start};
use wire::{Connection, Ended};

/// Time limit for a transaction.
const PATIENCE: Duration = Duration::from_secs(10);

/// Statements to prepare for SmallBank, by their number.
const SMALLBANK: [&str; 6] = [
    "SELECT amalgamate($1, $2)",
    "SELECT savings.balance, checking.balance FROM savings JOIN checking USING (id) WHERE id = $1",
    "UPDATE checking SET balance = balance + $2 WHERE id = $1",
    "SELECT send_payment($1, $2, $3)",
    "UPDATE savings SET balance = balance + $2 WHERE id = $1",
    "SELECT write_check($1, $2)",
];

/// Statements to prepare for TATP.
const TATP: [&str; 7] = [
    "SELECT data FROM subscriber WHERE id = $1",
    "SELECT data FROM access_info WHERE id = $1",
    "SELECT facility.data, forwarding.data FROM special_facility facility LEFT JOIN call_forwarding forwarding \
     ON forwarding.id BETWEEN $2 AND $3 WHERE facility.id = $1",
    "SELECT update_subscriber($1, $2, $3, $4)",
    "SELECT update_location($1, $2)",
    "SELECT insert_forwarding($1, $2, $3, $4)",
    "SELECT delete_forwarding($1, $2)",
];

/// Connections, each with one transaction at a time.
#[derive(Debug)]
pub struct Connections {
    all: Vec<Connection>,
    idle: Vec<usize>,
    /// The busy ones, with the start of their transaction; the longest waiting first.
    busy: VecDeque<(usize, u64)>,
}

impl Connections {
    /// Opens this many connections, with all statements prepared that the load needs.
    ///
    /// # Errors
    /// When PostgreSQL refuses one.
    pub fn open(socket: &Path, count: usize, draws: &Draws) -> Result<Self, Failure> {
        let statements: &[&str] = match draws {
            Draws::SmallBank(_) => &SMALLBANK,
            Draws::Tatp(_) => &TATP,
        };
        let open = |_| {
            let mut connection = Connection::open(socket, PATIENCE)?;
            for (number, statement) in statements.iter().enumerate() {
                connection.prepare(number, statement)?;
            }
            Ok(connection)
        };
        Ok(Self {
            all: (0..count).map(open).collect::<Result<_, Failure>>()?,
            idle: (0..count).collect(),
            busy: VecDeque::new(),
        })
    }
}

impl Engine for Connections {
    fn submit(&mut self, transaction: &Drawn, began: u64) -> Result<(), Failure> {
        let idle = self.idle.pop();
        let number = idle.ok_or_else(|| Failure::new("more transactions than connections"))?;
        let connection = &mut self.all[number];
        match *transaction {
            Drawn::SmallBank(one) => smallbank(connection, one)?,
            Drawn::Tatp(one) => tatp(connection, one)?,
        }
        self.busy.push_back((number, began));
        Ok(())
    }

    fn outstanding(&self) -> usize {
        self.busy.len()
    }

    fn wait(&mut self, take: &mut dyn FnMut(u64, Outcome)) -> Result<(), Failure> {
        let places = self.busy.iter().map(|(number, _)| &self.all[*number]);
        let mut places: Vec<PollFd<'_>> = places
            .map(|connection| PollFd::new(connection.stream(), PollFlags::IN))
            .collect();
        let patience = PATIENCE.try_into().map_err(Failure::new)?;
        let ready = poll(&mut places, Some(&patience))
            .map_err(|error| Failure::new(format!("cannot wait for PostgreSQL: {error}")))?;
        if ready == 0 && !places.is_empty() {
            return Err(Failure::new(format!(
                "timed out: no response from PostgreSQL for {} s",
                PATIENCE.as_secs()
            )));
        }
        let readable: Vec<bool> = places
            .iter()
            .map(|place| !place.revents().is_empty())
            .collect();
        for is_readable in readable {
            let Some((number, began)) = self.busy.pop_front() else {
                break;
            };
            match is_readable
                .then(|| self.all[number].ended())
                .transpose()?
                .flatten()
            {
                Some(ended) => {
                    self.idle.push(number);
                    take(began, outcome(ended));
                }
                None => self.busy.push_back((number, began)),
            }
        }
        Ok(())
    }
}

fn outcome(ended: Ended) -> Outcome {
    match ended {
        Ended::Done { refused: false } => Outcome::Committed,
        Ended::Done { refused: true } => Outcome::Declined,
        // Serialization failure, deadlock, and two who insert one row.
        Ended::Failed { code, .. } if ["40001", "40P01", "23505"].contains(&&*code) => {
            Outcome::Aborted
        }
        Ended::Failed { words, .. } => Outcome::Failed(words),
    }
}

fn smallbank(to: &mut Connection, transaction: SmallBankTransaction) -> Result<(), Failure> {
    let number = |number: u64| number.to_string();
    match transaction {
        SmallBankTransaction::Amalgamate { from, to: other } => {
            to.execute(0, &[number(from), number(other)])
        }
        SmallBankTransaction::Balance(of) => to.execute(1, &[number(of)]),
        SmallBankTransaction::DepositChecking(of, amount) => {
            to.execute(2, &[number(of), amount.to_string()])
        }
        SmallBankTransaction::SendPayment {
            from,
            to: other,
            amount,
        } => to.execute(3, &[number(from), number(other), amount.to_string()]),
        SmallBankTransaction::TransactSavings(of, amount) => {
            to.execute(4, &[number(of), amount.to_string()])
        }
        SmallBankTransaction::WriteCheck(of, amount) => {
            to.execute(5, &[number(of), amount.to_string()])
        }
    }
}

fn tatp(to: &mut Connection, transaction: TatpTransaction) -> Result<(), Failure> {
    let number = |number: u64| number.to_string();
    match transaction {
        TatpTransaction::GetSubscriber(s) => to.execute(0, &[number(s)]),
        TatpTransaction::GetAccess(s, kind) => to.execute(1, &[number(typed(s, kind))]),
        TatpTransaction::GetDestination(s, kind, start) => {
            let (first, last) = (forwarding(s, kind, 0), forwarding(s, kind, start));
            to.execute(2, &[number(typed(s, kind)), number(first), number(last)])
        }
        TatpTransaction::UpdateSubscriber {
            subscriber,
            facility,
            bit,
            data,
        } => {
            let rows = [bytes(&row::<40>(bit)), bytes(&row::<8>(data))];
            let [bit, data] = rows;
            to.execute(
                3,
                &[
                    number(subscriber),
                    number(typed(subscriber, facility)),
                    bit,
                    data,
                ],
            )
        }
        TatpTransaction::UpdateLocation(s, location) => {
            to.execute(4, &[number(s), bytes(&row::<40>(location))])
        }
        TatpTransaction::InsertForwarding(s, kind, start) => {
            let place = number(forwarding(s, kind, start));
            let row = bytes(&row::<16>(ends(start)));
            to.execute(5, &[number(s), number(typed(s, kind)), place, row])
        }
        TatpTransaction::DeleteForwarding(s, kind, start) => {
            to.execute(6, &[number(s), number(forwarding(s, kind, start))])
        }
    }
}

/// Bytes as PostgreSQL reads them.
fn bytes(bytes: &[u8]) -> String {
    let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
    format!("\\x{}", digits.collect::<String>())
}
