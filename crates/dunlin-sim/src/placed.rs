//! Tables that hold some of the entries of a whole cluster, by their numbers in it.

use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// Place of what stands in another table.
const ELSEWHERE: u32 = u32::MAX;

/// The hosts or switches of one part of a cluster.
#[derive(Debug)]
pub(crate) struct Placed<T> {
    here: Vec<T>,
    /// By number: the place here.
    places: Arc<[u32]>,
}

impl<T> Placed<T> {
    /// Divides `all`; `part_of` says by number to which of so many parts each belongs.
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

    /// The entries here, with their numbers.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut T)> {
        let places = self.places.iter().enumerate();
        let numbers = places.filter(|(_, &place)| place != ELSEWHERE);
        // They stand in the order of their numbers.
        numbers.map(|(number, _)| number).zip(&mut self.here)
    }
}

/// Panics for what stands in another table: nothing that happens to one host or switch touches another's state.
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
