//! A machine's description of itself for clients.

use crate::membership::Configuration;
use crate::server::shape::TableSpec;
use crate::wire::{Reader, WireError};

const FORMAT: u32 = 2;
/// Minimum length of a table's description: number, rows, bytes of values, length of the name.
const TABLE_LEAST: usize = 2 + 8 + 4 + 2;

/// A machine's description of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Catalogue {
    /// A random number of this life of the process, with which its memory is lost.
    pub(crate) incarnation: u64,
    pub(crate) machine: u16,
    pub(crate) machines: u16,
    pub(crate) replicas: u16,
    pub(crate) tables: Vec<TableSpec>,
    /// Whether machines are replaced when they fail.
    pub(crate) replicated: bool,
    /// The configuration that this machine serves.
    pub(crate) configuration: Option<Configuration>,
}

/// The name of a table's region. A region of another incarnation has another name.
pub(crate) fn region_name(incarnation: u64, table: u16) -> String {
    format!("store-{incarnation:016x}-{table}")
}

impl Catalogue {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&FORMAT.to_le_bytes());
        out.extend_from_slice(&self.incarnation.to_le_bytes());
        for number in [self.machine, self.machines, self.replicas] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.extend((self.tables.len() as u32).to_le_bytes());
        for table in &self.tables {
            out.extend_from_slice(&table.id.to_le_bytes());
            out.extend_from_slice(&table.rows.to_le_bytes());
            out.extend_from_slice(&(table.value_bytes as u32).to_le_bytes());
            // Names are informative only; one that is longer than its length field allows is truncated.
            let name = &table.name.as_bytes()[..table.name.len().min(usize::from(u16::MAX))];
            out.extend((name.len() as u16).to_le_bytes());
            out.extend(name);
        }
        out.push(u8::from(self.replicated));
        out.push(u8::from(self.configuration.is_some()));
        if let Some(configuration) = &self.configuration {
            out.extend(configuration.encode());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Catalogue, WireError> {
        let mut from = Reader::new(bytes);
        match from.u32()? {
            FORMAT => {}
            other => return Err(WireError::Kind(other as u8)),
        }
        let incarnation = from.u64()?;
        let (machine, machines, replicas) = (from.u16()?, from.u16()?, from.u16()?);
        let tables = from.list(TABLE_LEAST, |from| {
            let (id, rows, value_bytes) = (from.u16()?, from.u64()?, from.u32()? as usize);
            let length = usize::from(from.u16()?);
            let name = String::from_utf8_lossy(from.bytes(length)?).into_owned();
            Ok(TableSpec {
                id,
                name,
                rows,
                value_bytes,
            })
        })?;
        let replicated = from.flag()?;
        let configuration = match from.flag()? {
            true => Some(Configuration::decode(from.rest())?),
            false => {
                from.end()?;
                None
            }
        };
        Ok(Catalogue {
            incarnation,
            machine,
            machines,
            replicas,
            tables,
            replicated,
            configuration,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::membership::{Epoch, Member, Role};
    use crate::types::MachineId;

    #[test]
    fn a_catalogue_round_trips_and_cut_ones_are_refused() {
        let catalogue = Catalogue {
            incarnation: u64::MAX,
            machine: 2,
            machines: 3,
            replicas: 2,
            tables: vec![
                TableSpec::new(0, "savings", 1000, 8),
                TableSpec::new(7, "", 1, 1),
            ],
            replicated: true,
            configuration: Some(Configuration {
                database: 5,
                epoch: Epoch(7),
                base: Epoch(4),
                serving: true,
                manager: MachineId(2),
                replicas: 2,
                members: vec![Member {
                    incarnation: 9,
                    address: "dunlin://a:1".to_owned(),
                    role: Role::Learner,
                }],
            }),
        };
        let bytes = catalogue.encode();
        assert_eq!(Catalogue::decode(&bytes), Ok(catalogue));
        for length in 0..bytes.len() {
            assert!(Catalogue::decode(&bytes[..length]).is_err());
        }
    }
}
