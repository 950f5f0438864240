//! A control group that limits memory and CPU time, of version 2 or 1.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// The period of a CPU quota: the kernel's own default.
const CPU_PERIOD_MICROS: u64 = 100_000;

/// A group keeps its directory until the last process in it is gone.
const REMOVAL_TRIES: u32 = 50;
const REMOVAL_PAUSE: Duration = Duration::from_millis(20);

/// Becomes the command after it has joined the groups before `--`: nothing of it runs outside.
const JOIN_AND_EXEC: &str =
    r#"while [ "$1" != -- ]; do echo $$ > "$1/cgroup.procs" || exit 1; shift; done; shift; exec "$@""#;

/// Memory of processes, in bytes (proc_pid_status(5)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resident {
    /// Theirs: heaps and stacks.
    pub(crate) anonymous: u64,
    /// Pages of files, mostly of the executable: the kernel has them back when it needs them.
    pub(crate) file: u64,
}

impl Resident {
    /// All of it.
    pub(crate) fn bytes(self) -> u64 {
        self.anonymous + self.file
    }
}

fn status_bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// What a gateway may use.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) memory_bytes: u64,
    /// In cores.
    pub(crate) cpus: f64,
}

/// Removed when dropped.
#[derive(Debug)]
pub(crate) struct Group {
    memory: PathBuf,
    /// The same as `memory` in version 2.
    cpu: PathBuf,
    version: u8,
}

impl Group {
    /// Makes one without swap. Needs the right to make groups, as root mostly has it.
    pub(crate) fn make(name: &str, limits: Limits) -> Result<Group, String> {
        let quota = (limits.cpus * CPU_PERIOD_MICROS as f64) as u64;
        let bytes = limits.memory_bytes.to_string();
        let name = format!("sluice-siege-{}-{name}", std::process::id());
        let unified = mount_of(|line| line.contains(" - cgroup2 "))
            .filter(|root| controllers(root).iter().any(|name| name == "memory"));
        if let Some(root) = unified {
            let group = Group::directories(&root, &root, &name, 2)?;
            // The root's own children get a controller only if it is handed down.
            let _ = fs::write(root.join("cgroup.subtree_control"), "+memory +cpu");
            group.set(&group.memory, "memory.max", &bytes)?;
            let _ = group.set(&group.memory, "memory.swap.max", "0");
            group.set(&group.cpu, "cpu.max", &format!("{quota} {CPU_PERIOD_MICROS}"))?;
            return Ok(group);
        }
        let controller = |name: &str| {
            mount_of(|line| {
                let options = line.rsplit(' ').next().unwrap_or_default();
                line.contains(" - cgroup ") && options.split(',').any(|option| option == name)
            })
            .ok_or_else(|| {
                format!("no control group of {name} can be had: neither version 2 nor 1 is mounted with it")
            })
        };
        let group = Group::directories(&controller("memory")?, &controller("cpu")?, &name, 1)?;
        group.set(&group.memory, "memory.limit_in_bytes", &bytes)?;
        // Only where the kernel accounts for swap.
        let _ = group.set(&group.memory, "memory.memsw.limit_in_bytes", &bytes);
        group.set(&group.cpu, "cpu.cfs_period_us", &CPU_PERIOD_MICROS.to_string())?;
        group.set(&group.cpu, "cpu.cfs_quota_us", &quota.to_string())?;
        Ok(group)
    }

    fn directories(memory: &Path, cpu: &Path, name: &str, version: u8) -> Result<Group, String> {
        let group = Group {
            memory: memory.join(name),
            cpu: cpu.join(name),
            version,
        };
        for directory in [&group.memory, &group.cpu] {
            match fs::create_dir(directory) {
                Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(format!(
                        "cannot make {}: {error}; are you root?",
                        directory.display()
                    ));
                }
                _ => {}
            }
        }
        Ok(group)
    }

    fn set(&self, directory: &Path, file: &str, value: &str) -> Result<(), String> {
        let path = directory.join(file);
        fs::write(&path, value)
            .map_err(|error| format!("cannot write {value} to {}: {error}", path.display()))
    }

    /// The command line that runs `command` in this group.
    pub(crate) fn inside(&self, command: &[String]) -> Vec<String> {
        let mut line: Vec<String> = ["/bin/sh", "-c", JOIN_AND_EXEC, "siege"].map(String::from).into();
        line.push(self.memory.display().to_string());
        if self.cpu != self.memory {
            line.push(self.cpu.display().to_string());
        }
        line.push("--".into());
        line.extend_from_slice(command);
        line
    }

    /// Most memory that was charged at any time, page cache and kernel buffers included.
    pub(crate) fn memory_peak(&self) -> Option<u64> {
        let file = if self.version == 2 {
            "memory.peak"
        } else {
            "memory.max_usage_in_bytes"
        };
        fs::read_to_string(self.memory.join(file))
            .ok()?
            .trim()
            .parse()
            .ok()
    }

    /// What its processes have resident.
    pub(crate) fn resident(&self) -> Resident {
        let mut all = Resident::default();
        for process in self.processes() {
            let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
            all.anonymous += status_bytes(&status, "RssAnon:");
            all.file += status_bytes(&status, "RssFile:");
        }
        all
    }

    /// Ends its processes at once.
    pub(crate) fn kill(&self) {
        for process in self.processes() {
            if let Some(process) = Pid::from_raw(process) {
                // One that is gone is what is wanted.
                let _ = kill_process(process, Signal::KILL);
            }
        }
    }

    fn processes(&self) -> Vec<i32> {
        let text = fs::read_to_string(self.memory.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Processes the kernel has killed for memory.
    pub(crate) fn oom_kills(&self) -> u64 {
        let file = if self.version == 2 {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        let text = fs::read_to_string(self.memory.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for directory in [&self.memory, &self.cpu] {
            for _ in 0..REMOVAL_TRIES {
                if fs::remove_dir(directory).is_ok() || !directory.exists() {
                    break;
                }
                std::thread::sleep(REMOVAL_PAUSE);
            }
        }
    }
}

/// Where the first mount that `is` the wanted one is, by a line of mountinfo (proc_pid_mountinfo(5)).
fn mount_of(is: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts.lines().find(|line| is(line))?;
    line.split(' ').nth(4).map(PathBuf::from)
}

fn controllers(root: &Path) -> Vec<String> {
    let text = fs::read_to_string(root.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(String::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scenario: a process's status as the kernel writes it; one that is gone.
    /// Guarantees: kilobytes are read as bytes; what is not there is nothing.
    #[test]
    fn memory_is_read_in_bytes() {
        let status =
            "VmRSS:\t   12288 kB\nRssAnon:\t    4096 kB\nRssFile:\t    8192 kB\nRssShmem:\t       0 kB\n";
        assert_eq!(status_bytes(status, "RssAnon:"), 4 << 20);
        assert_eq!(status_bytes(status, "RssFile:"), 8 << 20);
        assert_eq!(status_bytes("", "RssAnon:"), 0);
    }
}
