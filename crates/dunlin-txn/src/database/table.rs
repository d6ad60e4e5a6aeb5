//! Typed tables.

use std::fmt;
use std::marker::PhantomData;

use crate::database::DatabaseError;
use crate::types::{Key, KeyTooLong, Value};

/// A table with keys and values of these types. Returned by [`crate::Database::table`].
pub struct Table<K, V> {
    id: u16,
    name: String,
    value_bytes: Option<usize>,
    types: PhantomData<fn(K) -> V>,
}

impl<K, V> Clone for Table<K, V> {
    fn clone(&self) -> Self {
        Self {
            id: self.id,
            name: self.name.clone(),
            value_bytes: self.value_bytes,
            types: PhantomData,
        }
    }
}

impl<K, V> fmt::Debug for Table<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("value_bytes", &self.value_bytes)
            .finish()
    }
}

impl<K: TableKey, V: TableValue> Table<K, V> {
    pub(super) fn new(id: u16, name: &str, value_bytes: Option<usize>) -> Self {
        Self {
            id,
            name: name.to_owned(),
            value_bytes,
            types: PhantomData,
        }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number that identifies the table in keys.
    pub fn number(&self) -> u16 {
        self.id
    }

    /// Maximum length of a value in bytes, if the machines state it.
    pub fn value_bytes(&self) -> Option<usize> {
        self.value_bytes
    }

    pub(super) fn key(&self, key: &K) -> Result<Key, DatabaseError> {
        Ok(key.key(self.id)?)
    }

    pub(super) fn encode(&self, value: &V) -> Result<Value, DatabaseError> {
        let mut out = Vec::new();
        value.encode(&mut out);
        match self.value_bytes {
            Some(limit) if out.len() > limit => Err(DatabaseError::ValueTooLong {
                table: self.name.clone(),
                bytes: out.len(),
                limit,
            }),
            _ => Ok(out.into()),
        }
    }

    pub(super) fn decode(&self, key: &Key, value: &[u8]) -> Result<V, DatabaseError> {
        V::decode(value).ok_or_else(|| DatabaseError::Unreadable {
            table: self.name.clone(),
            key: key.clone(),
        })
    }
}

/// The key type of a table. The tables of `dunlin serve store` accept numbers, and other keys of 8 bytes.
pub trait TableKey {
    /// Makes the key in the table with this number.
    ///
    /// # Errors
    /// When it is longer than allowed.
    fn key(&self, table: u16) -> Result<Key, KeyTooLong>;
}

/// The value type of a table.
pub trait TableValue: Sized {
    /// Appends the value's encoding.
    fn encode(&self, out: &mut Vec<u8>);
    /// Decodes a value; `None` if the bytes are not a valid encoding.
    fn decode(bytes: &[u8]) -> Option<Self>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl TableValue for $number {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(bytes: &[u8]) -> Option<Self> {
                Some(Self::from_le_bytes(bytes.try_into().ok()?))
            }
        }
    )*};
}

numbers!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64);

macro_rules! keys {
    ($($number:ty),*) => {$(
        impl TableKey for $number {
            fn key(&self, table: u16) -> Result<Key, KeyTooLong> {
                Ok(Key::number(table, u64::from(*self)))
            }
        }
    )*};
}

keys!(u8, u16, u32, u64);

impl TableKey for [u8] {
    fn key(&self, table: u16) -> Result<Key, KeyTooLong> {
        Key::new(table, self)
    }
}

impl TableKey for Vec<u8> {
    fn key(&self, table: u16) -> Result<Key, KeyTooLong> {
        Key::new(table, self)
    }
}

impl TableKey for String {
    fn key(&self, table: u16) -> Result<Key, KeyTooLong> {
        Key::new(table, self.as_bytes())
    }
}

impl TableValue for Vec<u8> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        Some(bytes.to_vec())
    }
}

impl TableValue for String {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.as_bytes());
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        String::from_utf8(bytes.to_vec()).ok()
    }
}

impl<const N: usize> TableValue for [u8; N] {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self);
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok()
    }
}
