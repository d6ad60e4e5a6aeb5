//! The element types of collectives, and the operations of reductions.
//!
//! Elements travel as little-endian bytes. Converting them takes one copy at each side, which unsafe code could save.

/// A fixed-size value that collectives can carry.
pub trait Element: Copy + Send + 'static {
    /// Length of a value in bytes.
    const BYTES: usize;
    /// The value that fills buffers before the messages arrive.
    const ZERO: Self;
    /// Writes the value to `bytes`, which are [`Element::BYTES`] long, in little endian.
    fn write(self, bytes: &mut [u8]);
    /// Reads a value from `bytes`, which are [`Element::BYTES`] long, in little endian.
    fn read(bytes: &[u8]) -> Self;
}

/// An element with the operations of [`Op`].
pub trait Number: Element {
    /// The sum; that of integers wraps around.
    #[must_use]
    fn sum(self, other: Self) -> Self;
    /// The lesser value; of a float and NaN the float.
    #[must_use]
    fn least(self, other: Self) -> Self;
    /// The greater value; of a float and NaN the float.
    #[must_use]
    fn greatest(self, other: Self) -> Self;
}

/// The operation of a reduction (`MPI_Op`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// The sum (`MPI_SUM`); that of integers wraps around.
    Sum,
    /// The minimum (`MPI_MIN`).
    Min,
    /// The maximum (`MPI_MAX`).
    Max,
}

impl Op {
    /// Applies the operation to two values.
    pub fn apply<T: Number>(self, one: T, other: T) -> T {
        match self {
            Self::Sum => one.sum(other),
            Self::Min => one.least(other),
            Self::Max => one.greatest(other),
        }
    }
}

macro_rules! elements {
    ($zero:literal: $($type:ident)*) => {$(
        impl Element for $type {
            const BYTES: usize = size_of::<Self>();
            const ZERO: Self = $zero;

            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            fn read(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<Self>()];
                value.copy_from_slice(bytes);
                Self::from_le_bytes(value)
            }
        }
    )*};
}

elements!(0: u8 i8 u16 i16 u32 i32 u64 i64);
elements!(0.0: f32 f64);

macro_rules! numbers {
    ($sum:ident: $($type:ident)*) => {$(
        impl Number for $type {
            fn sum(self, other: Self) -> Self {
                $sum!(self, other)
            }

            fn least(self, other: Self) -> Self {
                self.min(other)
            }

            fn greatest(self, other: Self) -> Self {
                self.max(other)
            }
        }
    )*};
}

macro_rules! wrapping {
    ($one:expr, $other:expr) => {
        $one.wrapping_add($other)
    };
}

macro_rules! plain {
    ($one:expr, $other:expr) => {
        $one + $other
    };
}

numbers!(wrapping: u8 i8 u16 i16 u32 i32 u64 i64);
numbers!(plain: f32 f64);

/// Writes elements to `bytes` as messages carry them, in place of what is there.
pub fn write_elements<T: Element>(elements: &[T], bytes: &mut Vec<u8>) {
    bytes.resize(elements.len() * T::BYTES, 0);
    let places = bytes.chunks_exact_mut(T::BYTES);
    places
        .zip(elements)
        .for_each(|(place, one)| one.write(place));
}

/// Reads elements from the bytes of a message; as many as both have.
pub fn read_elements<T: Element>(bytes: &[u8], elements: &mut [T]) {
    let values = bytes.chunks_exact(T::BYTES).map(T::read);
    elements
        .iter_mut()
        .zip(values)
        .for_each(|(one, value)| *one = value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_back() {
        let (mut bytes, mut back) = (vec![9; 100], [0.0; 3]);
        write_elements(&[1.5, f64::NEG_INFINITY, -0.0], &mut bytes);
        assert_eq!(bytes.len(), 24);
        read_elements(&bytes, &mut back);
        assert_eq!(
            back.map(f64::to_bits),
            [1.5, f64::NEG_INFINITY, -0.0].map(f64::to_bits)
        );
    }

    #[test]
    fn operations_are_what_they_say() {
        assert_eq!(Op::Sum.apply(i32::MAX, 1), i32::MIN);
        assert_eq!((Op::Min.apply(3_u64, 4), Op::Max.apply(3_i64, 4)), (3, 4));
        assert_eq!(Op::Max.apply(f32::NAN, 2.0), 2.0);
    }
}
