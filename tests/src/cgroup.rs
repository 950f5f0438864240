//! Cgroups with a memory limit, for gateways to run in.

use std::path::{Path, PathBuf};

/// A cgroup inside another one, each with a limit of its own; removed when dropped, if nothing runs in it any more.
#[derive(Debug)]
pub struct Cgroup {
    outer: PathBuf,
    inner: PathBuf,
    v2: bool,
}

impl Cgroup {
    /// Makes one, of whichever version has the memory controller here.
    ///
    /// # Errors
    /// Why it cannot be made: no controller, or not allowed.
    pub fn nested(outer_bytes: u64, inner_bytes: u64) -> Result<Self, String> {
        let name = format!("sluice-test-{}", std::process::id());
        let mounts = std::fs::read_to_string("/proc/mounts").map_err(|error| error.to_string())?;
        let mut reasons = vec!["no cgroup file system with a memory controller is mounted".to_owned()];
        for line in mounts.lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let [_, point, kind, options, ..] = fields[..] else {
                continue;
            };
            let v2 = kind == "cgroup2";
            let v1 = kind == "cgroup" && options.split(',').any(|option| option == "memory");
            if !v1 && !v2 {
                continue;
            }
            let outer = Path::new(point).join(&name);
            let made = Self {
                inner: outer.join("gateway"),
                outer,
                v2,
            };
            match made.set_up(Path::new(point), outer_bytes, inner_bytes) {
                Ok(()) => return Ok(made),
                Err(reason) => reasons.push(reason),
            }
        }
        Err(reasons.join("; "))
    }

    fn set_up(&self, top: &Path, outer_bytes: u64, inner_bytes: u64) -> Result<(), String> {
        let write = |path: PathBuf, text: &str| {
            std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
        };
        let make =
            |path: &Path| std::fs::create_dir(path).map_err(|error| format!("{}: {error}", path.display()));
        let limit = if self.v2 {
            "memory.max"
        } else {
            "memory.limit_in_bytes"
        };
        if self.v2 {
            write(top.join("cgroup.subtree_control"), "+memory")?;
        }
        make(&self.outer)?;
        if self.v2 {
            write(self.outer.join("cgroup.subtree_control"), "+memory")?;
        }
        make(&self.inner)?;
        write(self.outer.join(limit), &outer_bytes.to_string())?;
        write(self.inner.join(limit), &inner_bytes.to_string())
    }

    /// The file that processes get in by.
    pub(crate) fn members(&self) -> PathBuf {
        self.inner.join("cgroup.procs")
    }

    /// The most that was ever charged, in bytes; `None` where the kernel does not say (v2 before 5.19).
    pub fn peak(&self) -> Option<u64> {
        let name = if self.v2 {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        std::fs::read_to_string(self.outer.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A cgroup that is left behind has no members and holds nothing.
        let _ = std::fs::remove_dir(&self.inner);
        let _ = std::fs::remove_dir(&self.outer);
    }
}
