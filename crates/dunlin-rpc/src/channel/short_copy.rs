//! Copying short payloads, as most are.

/// Copies with overlapping moves of fixed sizes if there are few bytes: a call of `memcpy` costs more than the copy.
///
/// # Panics
/// When the lengths differ.
#[inline(always)]
pub(crate) fn copy(target: &mut [u8], source: &[u8]) {
    #[inline(always)]
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
