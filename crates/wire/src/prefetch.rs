//! Memory that is asked for before it is read.

/// Bytes that memory gives at once.
const LINE: usize = 64;

/// Asks memory for bytes that are read soon. Where there is an instruction for it nothing waits for them; elsewhere a byte of each line
/// is read, so that they come together at least.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction changes nothing but caches, whatever the address, and this one is that of a byte of `bytes`.
        #[allow(
            unsafe_code,
            reason = "Parquet takes a twelfth less than with bytes that are read"
        )]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::hint::black_box(bytes.iter().step_by(LINE).fold(0, |all, byte| all | byte));
}
