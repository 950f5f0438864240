#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use super::*;

const MIB: u64 = 1 << 20;

/// What a v1 cgroup without a limit says, with pages of 4 KiB.
const V1_UNLIMITED: u64 = 9_223_372_036_854_771_712;

/// Files as a process would read them.
fn files(files: &[(&str, &str)]) -> impl Fn(&Path) -> Option<String> + use<> {
    let files: BTreeMap<PathBuf, String> = files
        .iter()
        .map(|(path, text)| (PathBuf::from(path), (*text).to_owned()))
        .collect();
    move |path| files.get(path).cloned()
}

fn limits(read: &dyn Fn(&Path) -> Option<String>) -> Vec<(String, u64)> {
    Cgroup::detect(read)
        .into_iter()
        .map(|cgroup| (cgroup.dir.display().to_string(), cgroup.limit))
        .collect()
}

const V2_MOUNTS: &str = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
25 22 0:23 / /sys rw,nosuid,nodev,noexec,relatime shared:7 - sysfs sysfs rw
30 25 0:26 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";

/// Scenario: a service of systemd in a slice of its own on a v2 host: the slice has `memory.max`, the service
/// `memory.high`, each with the other at `max`; the top has neither file.
/// Guarantees: both count, innermost first, and the smaller one is there to be taken.
#[test]
fn every_ancestor_of_a_service_counts() {
    let read = files(&[
        ("/proc/self/cgroup", "0::/edge.slice/sluice.service\n"),
        ("/proc/self/mountinfo", V2_MOUNTS),
        ("/sys/fs/cgroup/edge.slice/memory.max", "536870912\n"),
        ("/sys/fs/cgroup/edge.slice/memory.high", "max\n"),
        ("/sys/fs/cgroup/edge.slice/sluice.service/memory.max", "max\n"),
        (
            "/sys/fs/cgroup/edge.slice/sluice.service/memory.high",
            "805306368\n",
        ),
    ]);
    assert_eq!(
        limits(&read),
        [
            ("/sys/fs/cgroup/edge.slice/sluice.service".to_owned(), 768 * MIB),
            ("/sys/fs/cgroup/edge.slice".to_owned(), 512 * MIB)
        ]
    );
}

/// Scenario: a container on v2 with a cgroup namespace: the path is `/`, the mount is the container's own cgroup.
/// Guarantees: its limit is found at the mount point.
#[test]
fn a_container_sees_its_own_limit_at_the_mount_point() {
    let read = files(&[
        ("/proc/self/cgroup", "0::/\n"),
        (
            "/proc/self/mountinfo",
            "1201 1190 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n",
        ),
        ("/sys/fs/cgroup/memory.max", "268435456\n"),
        ("/sys/fs/cgroup/memory.high", "max\n"),
    ]);
    assert_eq!(limits(&read), [("/sys/fs/cgroup".to_owned(), 256 * MIB)]);
}

/// Scenario: Docker on v1 without a cgroup namespace: the path is the host's, and the mount shows that part of it. The
/// limit is one of the pod above, which only `hierarchical_memory_limit` tells.
/// Guarantees: the path is taken relative to the mount's root; what cannot be seen is told by the kernel.
#[test]
fn a_v1_container_is_found_below_the_root_of_its_mount() {
    let unlimited = V1_UNLIMITED.to_string();
    let read = files(&[
        (
            "/proc/self/cgroup",
            "12:memory:/kubepods/burstable/pod1/c0ffee\n11:cpu,cpuacct:/kubepods/burstable/pod1/c0ffee\n\
             1:name=systemd:/kubepods/burstable/pod1/c0ffee\n0::/system.slice/containerd.service\n",
        ),
        (
            "/proc/self/mountinfo",
            "700 690 0:41 /kubepods/burstable/pod1/c0ffee /sys/fs/cgroup/cpu,cpuacct ro,relatime master:17 - cgroup cgroup rw,cpu,cpuacct\n\
             701 690 0:42 /kubepods/burstable/pod1/c0ffee /sys/fs/cgroup/memory ro,relatime master:18 - cgroup cgroup rw,memory\n",
        ),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", &unlimited),
        (
            "/sys/fs/cgroup/memory/memory.stat",
            "cache 2600960\nrss 1437696\nhierarchical_memory_limit 402653184\ntotal_rss 1437696\n",
        ),
    ]);
    assert_eq!(limits(&read), [("/sys/fs/cgroup/memory".to_owned(), 384 * MIB)]);
}

/// Scenario: a hybrid host: v2 is mounted at `unified` without a memory controller, memory is v1, with a limit on the
/// parent of our cgroup and one on ours that is larger.
/// Guarantees: v2 says nothing, and both of v1 count.
#[test]
fn a_hybrid_host_is_limited_by_v1() {
    let unlimited = V1_UNLIMITED.to_string();
    let read = files(&[
        (
            "/proc/self/cgroup",
            "9:name=systemd:/\n4:memory:/box/f58702997cda\n3:cpuset:/\n0::/user.slice\n",
        ),
        (
            "/proc/self/mountinfo",
            "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n\
             32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n",
        ),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", &unlimited),
        ("/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "134217728\n"),
        (
            "/sys/fs/cgroup/memory/box/f58702997cda/memory.limit_in_bytes",
            "268435456\n",
        ),
        ("/sys/fs/cgroup/unified/cgroup.controllers", "hugetlb\n"),
    ]);
    assert_eq!(
        limits(&read),
        [
            ("/sys/fs/cgroup/memory/box/f58702997cda".to_owned(), 256 * MIB),
            ("/sys/fs/cgroup/memory/box".to_owned(), 128 * MIB)
        ]
    );
}

/// Scenario: no limit anywhere, in v1's and in v2's words; no /proc at all; a process outside of its namespace's root;
/// lines cut short.
/// Guarantees: no limit is made up, nothing panics, and of what is outside only the mount point is believed.
#[test]
fn where_there_is_no_limit_none_is_made_up() {
    let none: Vec<(String, u64)> = Vec::new();
    let unlimited = V1_UNLIMITED.to_string();
    let v1 = files(&[
        ("/proc/self/cgroup", "4:memory:/\n"),
        (
            "/proc/self/mountinfo",
            "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
        ),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", &unlimited),
    ]);
    assert_eq!(limits(&v1), none);
    let v2 = files(&[
        ("/proc/self/cgroup", "0::/user.slice/session-4.scope\n"),
        ("/proc/self/mountinfo", V2_MOUNTS),
        ("/sys/fs/cgroup/user.slice/memory.max", "max\n"),
        ("/sys/fs/cgroup/user.slice/memory.high", "max\n"),
    ]);
    assert_eq!(limits(&v2), none);
    assert_eq!(limits(&files(&[])), none);
    let outside = files(&[
        ("/proc/self/cgroup", "0::/../neighbour\n"),
        ("/proc/self/mountinfo", V2_MOUNTS),
        ("/sys/fs/cgroup/memory.max", "1048576\n"),
        ("/sys/fs/cgroup/../neighbour/memory.max", "4096\n"),
    ]);
    assert_eq!(limits(&outside), [("/sys/fs/cgroup".to_owned(), MIB)]);
    for broken in ["", "\n", "0:", "x", "35 31 - cgroup2", "- cgroup2 a b", " - "] {
        let read = files(&[("/proc/self/cgroup", broken), ("/proc/self/mountinfo", broken)]);
        assert_eq!(limits(&read), none);
    }
}

/// Scenario: a mount point with a space and a backslash in its name; the same hierarchy mounted twice, once showing only
/// a part that we are not in.
/// Guarantees: escapes are undone, and the mount we are in is taken.
#[test]
fn the_mount_we_are_in_is_taken() {
    let read = files(&[
        ("/proc/self/cgroup", "0::/a/b\n"),
        (
            "/proc/self/mountinfo",
            "30 25 0:26 /other /mnt/other rw - cgroup2 cgroup2 rw\n\
             31 25 0:26 / /mnt/odd\\040na\\134me rw - cgroup2 cgroup2 rw\n\
             32 25 0:26 /a/b /mnt/part rw - cgroup2 cgroup2 rw\n",
        ),
        ("/mnt/other/memory.max", "1\n"),
        ("/mnt/part/memory.max", "2097152\n"),
        ("/mnt/odd na\\me/a/b/memory.max", "2097152\n"),
        ("/mnt/odd na\\me/a/memory.max", "1048576\n"),
    ]);
    assert_eq!(
        limits(&read),
        [
            ("/mnt/odd na\\me/a/b".to_owned(), 2 * MIB),
            ("/mnt/odd na\\me/a".to_owned(), MIB)
        ]
    );
    assert_eq!(unescape("a\\x\\04"), "a\\x\\04");
}

/// Scenario: memory.stat of a v2 and of a v1 cgroup, shortened.
/// Guarantees: file pages and slabs are what the kernel can take back; sockets are told where they are charged; of v1
/// the figures with descendants count.
#[test]
fn what_the_kernel_can_take_back_is_told_apart() {
    let v2 = "anon 104857600\nfile 73400320\nkernel 9437184\nsock 6291456\nfile_dirty 4096\ninactive_anon 104857600\n\
              active_anon 0\ninactive_file 52428800\nactive_file 20971520\nslab_reclaimable 1048576\nworkingset_refault_file 7\n";
    assert_eq!(
        usage(200 * MIB, v2, Hierarchy::V2),
        Usage {
            current: 200 * MIB,
            reclaimable: 71 * MIB,
            sockets: 6 * MIB
        }
    );
    let v1 = "cache 1\nrss 1\ninactive_file 5\nactive_file 6\ntotal_rss 1\ntotal_inactive_file 1048576\ntotal_active_file 2097152\n";
    assert_eq!(usage(9, v1, Hierarchy::V1).reclaimable, 3 * MIB);
    assert_eq!(
        usage(9, "", Hierarchy::V2),
        Usage {
            current: 9,
            ..Usage::default()
        }
    );
}
