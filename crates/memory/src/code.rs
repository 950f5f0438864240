//! The executable's own pages: what a start and a load have run through stays resident, though the file has it all.
//!
//! The kernel takes such pages back when it needs them, but counts them as this process's until then: they are more than two thirds of what
//! an idle gateway has resident. Let go, what runs again comes back from the page cache, 64 KiB at a time, without a read from the disk.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::ops::Range;

/// Has the kernel take this process's mappings of its executable out of memory. Where it does not say which they are (no /proc, no
/// smaps), they stay.
#[allow(unsafe_code, reason = "madvise is called through rustix")]
pub(crate) fn let_go() {
    let Ok(smaps) = File::open("/proc/self/smaps") else {
        return;
    };
    for mapping in unchanged(BufReader::new(smaps), here()) {
        let start = std::ptr::with_exposed_provenance_mut(mapping.start);
        // SAFETY: nobody can write to the mapping, and all its pages are the file's, so whoever reads it finds the same as before. It is of the
        // file that this function is in, which nobody unmaps.
        let advised = unsafe { rustix::mm::madvise(start, mapping.len(), rustix::mm::Advice::LinuxDontNeed) };
        if let Err(error) = advised {
            tracing::debug!(%error, "the executable's pages stay resident");
        }
    }
}

/// An address in the executable's code.
fn here() -> usize {
    let_go as fn() as usize
}

/// The mappings of the file in which `address` is that cannot be written to and have no page that is not the file's, in memory or
/// swapped out: relocated tables (which are read-only afterwards) and a debugger's breakpoints are such pages, and would be lost.
fn unchanged(smaps: impl BufRead, address: usize) -> Vec<Range<usize>> {
    let mut own_file = None;
    // Emulators may have an smaps whose figures are all 0. What runs is resident: where that is said to be nothing, nothing is believed.
    let (mut is_here, mut is_told) = (false, false);
    let mut found = Vec::new();
    // The mapping whose figures follow: where it is, and of which file, if it cannot be written to.
    let mut current = None;
    let mut without_anonymous = None;
    for line in smaps.lines().map_while(Result::ok) {
        if let Some((range, is_fixed, file)) = mapping(&line) {
            is_here = range.contains(&address);
            if is_here {
                own_file = Some(file.clone());
            }
            current = is_fixed.then_some((range, file));
            without_anonymous = None;
        } else if is_here && line.starts_with("Rss:") {
            is_told = !line.split_whitespace().eq(["Rss:", "0", "kB"]);
        } else if line.split_whitespace().eq(["Anonymous:", "0", "kB"]) {
            without_anonymous = current.take();
        } else if line.split_whitespace().eq(["Swap:", "0", "kB"]) {
            found.extend(without_anonymous.take());
        }
    }
    found.retain(|(_, file)| is_told && Some(file) == own_file.as_ref());
    found.into_iter().map(|(range, _)| range).collect()
}

/// The first line of a mapping in smaps (proc_pid_maps(5)): where it is, whether it is private and not to be written to, and its device and inode.
fn mapping(line: &str) -> Option<(Range<usize>, bool, (String, u64))> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let address = |text| usize::from_str_radix(text, 16).ok();
    let range = address(start)?..address(end)?;
    let access = fields.next()?;
    let is_fixed = access.ends_with('p') && !access.contains('w');
    let device = fields.nth(1)?.to_owned();
    Some((range, is_fixed, (device, fields.next()?.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    /// Scenario: an executable with tables, code, code with a breakpoint, relocated tables, some of them swapped out, variables, and a part that is
    /// shared; memory without a file; a library. The address is in the code of either, and in none.
    /// Guarantees: only that file's mappings that nobody has changed or can change; none where the figures cannot be true.
    #[test]
    fn only_what_the_file_has_is_let_go() {
        let of = |range: &str, access: &str, inode: u64, [anonymous, swap]: [u64; 2]| {
            format!(
                "{range} {access} 00000000 08:01 {inode}  /opt/a file\nSize:    4096 kB\nRss:    4 kB\nAnonymous:    {anonymous} kB\n\
                 Swap:    {swap} kB\nSwapPss:    0 kB\nVmFlags: rd mr\n"
            )
        };
        let smaps = [
            of("1000-2000", "r--p", 7, [0, 0]),
            of("2000-5000", "r-xp", 7, [0, 0]),
            of("5000-6000", "r-xp", 7, [4, 0]),
            of("6000-7000", "r--p", 7, [840, 8]),
            of("7000-8000", "r--p", 7, [0, 848]),
            of("8000-9000", "rw-p", 7, [0, 0]),
            of("9000-a000", "r--s", 7, [0, 0]),
            of("a000-b000", "rw-p", 0, [0, 0]),
            of("c000-d000", "r-xp", 8, [0, 0]),
        ];
        let smaps = smaps.concat();
        assert_eq!(
            unchanged(smaps.as_bytes(), 0x2345),
            [0x1000..0x2000, 0x2000..0x5000]
        );
        let of_library = unchanged(smaps.as_bytes(), 0xc000);
        assert_eq!((of_library.len(), &of_library[0]), (1, &(0xc000..0xd000)));
        assert!(unchanged(smaps.as_bytes(), 0xf000).is_empty());
        let emulated = smaps.replace("Rss:    4 kB", "Rss:    0 kB");
        assert!(unchanged(emulated.as_bytes(), 0x2345).is_empty());
    }

    /// Scenario: this test has all of its own executable made resident, and lets it go.
    /// Guarantees: less of it is resident (what runs comes back), and everything goes on.
    #[test]
    #[allow(unsafe_code, reason = "madvise is called through rustix")]
    fn a_process_lets_itself_go() {
        let own = unchanged(BufReader::new(File::open("/proc/self/smaps").unwrap()), here());
        for mapping in &own {
            let start = std::ptr::with_exposed_provenance_mut(mapping.start);
            // SAFETY: it only reads ahead what is mapped.
            let advised =
                unsafe { rustix::mm::madvise(start, mapping.len(), rustix::mm::Advice::LinuxPopulateRead) };
            // Kernels before 5.14 cannot; then there is what this test has run through.
            assert!(matches!(advised, Ok(()) | Err(rustix::io::Errno::INVAL)));
        }
        let resident = || {
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let mut is_own = false;
            let mut kib = 0;
            for line in smaps.lines() {
                is_own = mapping(line).map_or(is_own, |(range, ..)| own.contains(&range));
                let rss = line.strip_prefix("Rss:").filter(|_| is_own);
                kib += rss.map_or(0, |rss| {
                    rss.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
                });
            }
            kib
        };
        let before = resident();
        let_go();
        let after = resident();
        assert!(after < before, "{after} of {before} KiB");
    }
}
