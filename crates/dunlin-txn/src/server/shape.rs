//! The shape of a table and of its region, and addresses in it: what a machine and its clients agree on.
//!
//! Each table stands in a region of its own: the table of `dunlin-store`, and behind it headers for keys that are not
//! there. An address is the number of the region and an offset in it. A value takes its place behind its length, so
//! that values may be shorter than the place.

use dunlin_store::{Layout, StoreError};

use crate::types::{Address, Value};

/// Headers of absent keys for each table: inserts and deletes of others disturb one in so many reads of absent keys.
pub(super) const ABSENCE_HEADERS: usize = 4096;
/// Bytes before a value that say how long it is.
pub(super) const LENGTH_BYTES: usize = 4;
/// Bits of an address that are an offset.
const OFFSET_BITS: u32 = 48;

/// The shape of a table: what a table and its clients agree on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// The number by which keys name it.
    pub id: u16,
    /// The name by which people do.
    pub name: String,
    /// Keys that it has room for, about.
    pub rows: u64,
    /// The longest value in bytes.
    pub value_bytes: usize,
}

impl TableSpec {
    /// A table of this number and name for about so many keys, with values of so many bytes at most.
    pub fn new(id: u16, name: &str, rows: u64, value_bytes: usize) -> TableSpec {
        TableSpec {
            id,
            name: name.to_owned(),
            rows,
            value_bytes,
        }
    }

    /// Where everything stands.
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

    /// Bytes of the region that it needs.
    pub(crate) fn region_bytes(layout: &Layout) -> usize {
        absence_offset(layout) + 8 * ABSENCE_HEADERS
    }
}

pub(super) fn absence_offset(layout: &Layout) -> usize {
    layout.bytes().next_multiple_of(8)
}

/// The address of an offset in the region of this number.
pub(super) fn address_of(region: usize, offset: usize) -> Address {
    Address((region as u64) << OFFSET_BITS | offset as u64)
}

/// What stands at an address: the number of a region, and the offset in it.
pub(crate) fn place_of(address: Address) -> (usize, u64) {
    let offset = address.0 & ((1 << OFFSET_BITS) - 1);
    ((address.0 >> OFFSET_BITS) as usize, offset)
}

/// What is written at the address of an item for this value.
pub(crate) fn encode_value(value: &[u8], out: &mut Vec<u8>) {
    out.clear();
    // A value that a coordinator writes fits into its place, which is shorter than 4 GiB.
    out.extend((value.len() as u32).to_le_bytes());
    out.extend(value);
}

/// The value in a place. Who may write the region can write any length there.
pub(super) fn decode_value(place: &[u8]) -> Value {
    let (length, bytes) = place.split_at(LENGTH_BYTES.min(place.len()));
    let length = <[u8; LENGTH_BYTES]>::try_from(length).map_or(0, u32::from_le_bytes);
    Value::from(&bytes[..bytes.len().min(length as usize)])
}
