//! Fields whose values are an enum's.

use std::marker::PhantomData;

use super::field::{Int32, Kind, Take};
use super::wire::{Malformed, Reader, Wire, Writer};

/// Values of an enum `E`, encoded as those of [`Int32`]. An absent one has the first value of `E`, which is zero only
/// in proto3.
#[derive(Clone, Copy, Debug)]
pub struct Enumeration<E>(PhantomData<E>);

fn first<E: Default + Into<i32>>() -> i32 {
    E::default().into()
}

impl<E: Default + Into<i32>> Kind<i32> for Enumeration<E> {
    const WIRE: Wire = Wire::Varint;

    #[inline]
    fn length(value: &i32) -> usize {
        Int32::length(value)
    }

    #[inline]
    fn put(value: &i32, to: &mut Writer<'_>) {
        Int32::put(value, to);
    }

    #[inline]
    fn is_default(value: &i32) -> bool {
        *value == first::<E>()
    }

    #[inline]
    fn clear(value: &mut i32) {
        *value = first::<E>();
    }
}

impl<'a, E: Default + Into<i32>> Take<'a, i32> for Enumeration<E> {
    #[inline]
    fn take(place: &mut i32, from: &mut Reader<'a>) -> Result<(), Malformed> {
        Int32::take(place, from)
    }
}
