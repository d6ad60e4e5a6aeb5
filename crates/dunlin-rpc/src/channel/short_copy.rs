//! Copying what is short, as most messages are.

/// Copies with moves of fixed sizes that overlap, where the bytes are few: a call of `memcpy` costs more than they do.
///
/// # Panics
/// When the lengths differ.
#[inline]
pub(crate) fn copy(target: &mut [u8], source: &[u8]) {
    #[inline]
    fn both_ends<const N: usize>(target: &mut [u8], source: &[u8]) {
        let last = source.len() - N;
        target[..N].copy_from_slice(&source[..N]);
        target[last..last + N].copy_from_slice(&source[last..]);
    }
    assert_eq!(target.len(), source.len());
    match source.len() {
        65..=128 => both_ends::<64>(target, source),
        33..=64 => both_ends::<32>(target, source),
        16..=32 => both_ends::<16>(target, source),
        8..16 => both_ends::<8>(target, source),
        _ => target.copy_from_slice(source),
    }
}
