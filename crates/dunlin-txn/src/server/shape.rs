//! The layout of a table's region, and addresses in it: what a machine and its clients agree on.
//!
//! Each table has a region of its own: the table of `dunlin-store`, followed by headers for absent keys. An address is
//! the number of the region and an offset in it. A value is stored in its place after its length, so values may be
//! shorter than the place.

use dunlin_store::{Layout, StoreError};

use crate::types::{Address, Value};

/// Number of headers of absent keys in each table: an unrelated insert or delete disturbs one in this many reads of
/// absent keys.
pub(super) const ABSENCE_HEADERS: usize = 4096;
/// Length of the length field before a value, in bytes.
pub(super) const LENGTH_BYTES: usize = 4;
/// Number of bits of an address that are the offset.
const OFFSET_BITS: u32 = 48;

/// The description of a table, on which its machines and clients agree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// The number that identifies the table in keys.
    pub id: u16,
    /// The table's name.
    pub name: String,
    /// Approximate number of keys for which it has space.
    pub rows: u64,
    /// Maximum length of a value in bytes.
    pub value_bytes: usize,
}

impl TableSpec {
    /// Describes a table with this number and name for about this many keys, with values of at most `value_bytes`.
    pub fn new(id: u16, name: &str, rows: u64, value_bytes: usize) -> TableSpec {
        TableSpec {
            id,
            name: name.to_owned(),
            rows,
            value_bytes,
        }
    }

    /// The layout of the table.
    ///
    /// # Errors
    /// When the values are too long or there are too many rows.
    pub fn layout(&self) -> Result<Layout, StoreError> {
        // Two and a half to five keys for the seven places of a main bucket.
        let main = self.rows.max(1).div_ceil(5).next_power_of_two();
        Layout::new(
            main,
            main / 4 + 16,
            LENGTH_BYTES + self.value_bytes,
            u64::from(self.id),
        )
    }

    /// Length of the region that it needs, in bytes.
    pub(crate) fn region_bytes(layout: &Layout) -> usize {
        absence_offset(layout) + 8 * ABSENCE_HEADERS
    }
}

pub(super) fn absence_offset(layout: &Layout) -> usize {
    layout.bytes().next_multiple_of(8)
}

/// The address of an offset in the region with this number.
pub(super) fn address_of(region: usize, offset: usize) -> Address {
    Address((region as u64) << OFFSET_BITS | offset as u64)
}

/// Splits an address into the number of a region and the offset in it.
pub(crate) fn place_of(address: Address) -> (usize, u64) {
    let offset = address.0 & ((1 << OFFSET_BITS) - 1);
    ((address.0 >> OFFSET_BITS) as usize, offset)
}

/// Appends what is written at the address of an item for this value.
pub(crate) fn encode_value(value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    // A value that a coordinator writes fits into its place, which is shorter than 4 GiB.
    out.extend((value.len() as u32).to_le_bytes());
    out.extend(value);
}

/// Decodes the value in a place. A client that may write the region can store any length there.
pub(super) fn decode_value(place: &[u8]) -> Value {
    let (length, bytes) = place.split_at(LENGTH_BYTES.min(place.len()));
    let length = <[u8; LENGTH_BYTES]>::try_from(length).map_or(0, u32::from_le_bytes);
    Value::from(&bytes[..bytes.len().min(length as usize)])
}
