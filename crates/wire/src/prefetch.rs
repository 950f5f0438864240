//! Memory that is asked for before it is read.

/// Bytes that memory gives at once.
const LINE: usize = 64;

/// Asks for bytes that are read soon. It waits for nothing, and is no more than a hint: a processor for which it is not known how to
/// ask is not asked.
#[inline]
pub fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(LINE) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: the instruction changes nothing but caches, whatever the address; this one is that of a byte that can be read.
        #[allow(unsafe_code, reason = "a tenth of what Parquet takes is waiting for a request's bytes")]
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast());
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = (bytes, LINE);
}
