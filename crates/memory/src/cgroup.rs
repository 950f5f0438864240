//! Which cgroups limit this process, and what is charged to them.
//!
//! A process is in one cgroup of each hierarchy, and every ancestor of it limits it too: a systemd slice, a pod around
//! its containers. `/proc/self/cgroup` has the path, `/proc/self/mountinfo` where that hierarchy is mounted and which
//! part of it; from there one walks up to the mount point. Three set-ups exist: v2 alone, v1 alone, and hybrid, where
//! v2 is mounted beside v1 and usually has no memory controller: both are looked at, and whoever has a limit counts.
//!
//! What lies above a container's mount cannot be seen. v1 tells of it (`hierarchical_memory_limit`), v2 does not.

use std::path::{Component, Path, PathBuf};

/// A limit from here on is none: v1 says "unlimited" as the largest multiple of the page size in an `i64`.
const UNLIMITED: u64 = 1 << 60;

/// The generation of cgroups that a limit is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// The memory controller's own hierarchy.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A cgroup that limits this process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cgroup {
    /// Its directory.
    pub dir: PathBuf,
    /// Which files it has.
    pub hierarchy: Hierarchy,
    /// The least of its limits, in bytes: `memory.max` and `memory.high`, or `memory.limit_in_bytes`.
    pub limit: u64,
}

/// What is charged to a cgroup, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Everything.
    pub current: u64,
    /// What the kernel takes back when it needs room: clean and dirty file pages, reclaimable slabs.
    pub reclaimable: u64,
    /// Buffers of sockets. v1 charges them apart, and not to the limit.
    pub sockets: u64,
}

impl Cgroup {
    /// All that limit this process, the innermost first.
    pub(crate) fn detect(read: &dyn Fn(&Path) -> Option<String>) -> Vec<Cgroup> {
        let (Some(membership), Some(mounts)) = (
            read(Path::new("/proc/self/cgroup")),
            read(Path::new("/proc/self/mountinfo")),
        ) else {
            return Vec::new();
        };
        let limited = |dir: PathBuf, hierarchy| {
            let limit = limit(&dir, hierarchy, read)?;
            Some(Cgroup {
                dir,
                hierarchy,
                limit,
            })
        };
        [Hierarchy::V2, Hierarchy::V1]
            .into_iter()
            .flat_map(|hierarchy| {
                let levels = levels(&membership, &mounts, hierarchy);
                levels.into_iter().filter_map(move |dir| limited(dir, hierarchy))
            })
            .collect()
    }

    /// What is charged to it now.
    pub(crate) fn usage(&self, read: &dyn Fn(&Path) -> Option<String>) -> Option<Usage> {
        let name = match self.hierarchy {
            Hierarchy::V1 => "memory.usage_in_bytes",
            Hierarchy::V2 => "memory.current",
        };
        let current = read(&self.dir.join(name))?.trim().parse().ok()?;
        let stat = read(&self.dir.join("memory.stat")).unwrap_or_default();
        Some(usage(current, &stat, self.hierarchy))
    }

    /// The file with its pressure stall information; v1 has none.
    pub(crate) fn pressure_file(&self) -> Option<PathBuf> {
        (self.hierarchy == Hierarchy::V2).then(|| self.dir.join("memory.pressure"))
    }
}

/// The figures of `memory.stat`. v1 counts a cgroup alone and, as `total_*`, with its descendants.
fn usage(current: u64, stat: &str, hierarchy: Hierarchy) -> Usage {
    let reclaimable: &[&str] = match hierarchy {
        Hierarchy::V1 => &["total_inactive_file", "total_active_file"],
        Hierarchy::V2 => &["inactive_file", "active_file", "slab_reclaimable"],
    };
    let mut usage = Usage {
        current,
        ..Usage::default()
    };
    for (key, value) in figures(stat) {
        if reclaimable.contains(&key) {
            usage.reclaimable = usage.reclaimable.saturating_add(value);
        } else if key == "sock" {
            usage.sockets = value;
        }
    }
    usage
}

fn figures(stat: &str) -> impl Iterator<Item = (&str, u64)> {
    stat.lines().filter_map(|line| {
        let (key, value) = line.split_once(' ')?;
        Some((key, value.trim().parse().ok()?))
    })
}

fn limit(dir: &Path, hierarchy: Hierarchy, read: &dyn Fn(&Path) -> Option<String>) -> Option<u64> {
    // "max" is no number, and no limit.
    let number = |name: &str| read(&dir.join(name))?.trim().parse::<u64>().ok();
    let limits = match hierarchy {
        Hierarchy::V2 => [number("memory.max"), number("memory.high")],
        Hierarchy::V1 => {
            let stat = read(&dir.join("memory.stat")).unwrap_or_default();
            let above = figures(&stat).find(|(key, _)| *key == "hierarchical_memory_limit");
            [number("memory.limit_in_bytes"), above.map(|(_, limit)| limit)]
        }
    };
    limits
        .into_iter()
        .flatten()
        .min()
        .filter(|limit| *limit < UNLIMITED)
}

/// The directories of the process's cgroup and of its ancestors, innermost first, as far as they are mounted.
fn levels(membership: &str, mounts: &str, hierarchy: Hierarchy) -> Vec<PathBuf> {
    let Some(path) = member_path(membership, hierarchy) else {
        return Vec::new();
    };
    // Of several mounts, the one that shows the most of the way up.
    let mount = mounts
        .lines()
        .filter_map(|line| Mount::parse(line, hierarchy))
        .max_by_key(|mount| mount.below(&path).map(|below| below.components().count()));
    let Some(mount) = mount else { return Vec::new() };
    // The process is outside of what is mounted (another cgroup namespace): only the mount's own top is known.
    let below = mount.below(&path).unwrap_or_default();
    let inside = below.ancestors().filter(|part| !part.as_os_str().is_empty());
    let mut levels: Vec<PathBuf> = inside.map(|part| mount.point.join(part)).collect();
    levels.push(mount.point);
    levels
}

/// The path of this process's cgroup: a line `ID:CONTROLLERS:PATH`, without controllers for v2 (cgroups(7)).
fn member_path(membership: &str, hierarchy: Hierarchy) -> Option<PathBuf> {
    membership.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let matches = match hierarchy {
            Hierarchy::V1 => controllers.split(',').any(|name| name == "memory"),
            Hierarchy::V2 => id == "0" && controllers.is_empty(),
        };
        matches.then(|| PathBuf::from(path))
    })
}

/// A mount of a cgroup hierarchy.
struct Mount {
    /// The cgroup that is at the mount point.
    root: PathBuf,
    point: PathBuf,
}

impl Mount {
    /// A line of mountinfo (proc_pid_mountinfo(5)): `ID PARENT DEVICE ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS`.
    fn parse(line: &str, hierarchy: Hierarchy) -> Option<Self> {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut file_system = file_system.split(' ');
        let (kind, options) = (file_system.next()?, file_system.nth(1).unwrap_or_default());
        let matches = match hierarchy {
            Hierarchy::V1 => kind == "cgroup" && options.split(',').any(|option| option == "memory"),
            Hierarchy::V2 => kind == "cgroup2",
        };
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        matches.then(|| Mount {
            root: unescape(root).into(),
            point: unescape(point).into(),
        })
    }

    /// Where the cgroup at `path` is below the mount point.
    fn below(&self, path: &Path) -> Option<PathBuf> {
        let below = path.strip_prefix(&self.root).ok()?;
        // `/../sibling`: outside of the namespace's root, and so of the mount.
        let inside = below
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        inside.then(|| below.to_owned())
    }
}

/// Undoes mountinfo's octal escapes of blanks and backslashes: `\040` is a space.
fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let code = rest
            .get(at + 1..at + 4)
            .and_then(|code| u8::from_str_radix(code, 8).ok());
        match code {
            Some(code) => {
                out.push(char::from(code));
                rest = &rest[at + 4..];
            }
            None => {
                out.push('\\');
                rest = &rest[at + 1..];
            }
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests;
