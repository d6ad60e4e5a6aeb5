//! Tables that hold some of the entries of a whole cluster, indexed by their numbers in it.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// Place of an entry of another table.
const ELSEWHERE: u32 = u32::MAX;

/// The hosts or switches of one part of a cluster.
#[derive(Debug)]
pub(crate) struct Placed<T> {
    here: Vec<T>,
    /// Place in this table, by number.
    places: Arc<[u32]>,
}

impl<T> Placed<T> {
    /// Divides `all`; `part_of` gives the part of each entry, by number.
    pub(crate) fn divide(all: Vec<T>, part_of: &[u16], parts: usize) -> Vec<Self> {
        let mut here: Vec<Vec<T>> = std::iter::repeat_with(Vec::new).take(parts).collect();
        let mut places = vec![vec![ELSEWHERE; all.len()]; parts];
        for (number, (entry, &part)) in all.into_iter().zip(part_of).enumerate() {
            let part = usize::from(part);
            places[part][number] = here[part].len() as u32;
            here[part].push(entry);
        }
        let tables = here.into_iter().zip(places);
        tables
            .map(|(here, places)| Self {
                here,
                places: places.into(),
            })
            .collect()
    }

    /// The entries of this table, with their numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let places = self.places.iter().enumerate();
        let numbers = places.filter(|(_, &place)| place != ELSEWHERE);
        // They are in the order of their numbers.
        numbers.map(|(number, _)| number).zip(&mut self.here)
    }
}

/// Panics for an entry of another table: nothing that happens to one host or switch touches another's state.
impl<T> Index<usize> for Placed<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: usize) -> &T {
        &self.here[self.places[number] as usize]
    }
}

impl<T> IndexMut<usize> for Placed<T> {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut T {
        &mut self.here[self.places[number] as usize]
    }
}
