//! Child processes: on which cores they run, what they use, and how they end.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long a process may take until it listens.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const READY_POLL: Duration = Duration::from_micros(500);

/// How long a process may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const STOP_POLL: Duration = Duration::from_millis(20);

/// Joins the cgroup whose directory is `$0`, then becomes the command: nothing of it runs outside.
const JOIN_AND_EXEC: &str = r#"echo $$ > "$0/cgroup.procs" && exec "$@""#;

/// The cores this process may use.
pub(crate) fn usable_cores() -> Result<Vec<usize>, String> {
    let set =
        sched_getaffinity(None).map_err(|error| format!("cannot read which cores may be used: {error}"))?;
    Ok((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).collect())
}

/// Where control groups of version 2 can be made, if they can.
#[derive(Clone, Debug)]
pub(crate) struct Cgroups(PathBuf);

impl Cgroups {
    /// Looks for a writable one below the rig's own.
    pub(crate) fn find() -> Result<Cgroups, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        let root = mounts
            .lines()
            .find(|line| line.contains(" - cgroup2 "))
            .and_then(|line| line.split(' ').nth(4))
            .ok_or("no cgroup v2 is mounted")?;
        let own = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = own
            .lines()
            .find_map(|line| line.strip_prefix("0::/"))
            .unwrap_or_default();
        let groups = Cgroups(Path::new(root).join(own));
        let probe = groups.make()?;
        match probe.cpu() {
            Some(_) => Ok(groups),
            None => Err(format!("{} has no cpu.stat", probe.0.display())),
        }
    }

    fn make(&self) -> Result<Cgroup, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "sluice-rig-{}-{}",
            std::process::id(),
            NUMBER.fetch_add(1, Relaxed)
        );
        let path = self.0.join(name);
        fs::create_dir(&path).map_err(|error| format!("cannot make {}: {error}", path.display()))?;
        Ok(Cgroup(path))
    }
}

/// One control group; removed when dropped, if nothing runs in it.
#[derive(Debug)]
struct Cgroup(PathBuf);

impl Cgroup {
    fn cpu(&self) -> Option<Duration> {
        let stat = fs::read_to_string(self.0.join("cpu.stat")).ok()?;
        let usage = stat.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        Some(Duration::from_micros(usage.trim().parse().ok()?))
    }

    fn memory_peak(&self) -> Option<u64> {
        let peak = fs::read_to_string(self.0.join("memory.peak")).ok()?;
        peak.trim().parse().ok()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // What is left in it keeps it; there is nothing to be done about that here.
        let _ = fs::remove_dir(&self.0);
    }
}

/// A child process with all it has started.
#[derive(Debug)]
pub(crate) struct Process {
    name: String,
    child: Child,
    started: Instant,
    log: PathBuf,
    cgroup: Option<Cgroup>,
}

impl Process {
    /// Starts a command on these cores, with its output in `log`. In a control group of its own if there are
    /// any.
    pub(crate) fn start(
        name: &str,
        command: &[String],
        environment: &[(&str, String)],
        cores: &[usize],
        cgroups: Option<&Cgroups>,
        log: &Path,
    ) -> Result<Process, String> {
        let wrong =
            |error: &dyn std::fmt::Display| format!("cannot start {name} ({}): {error}", command.join(" "));
        let cgroup = cgroups.and_then(|groups| groups.make().ok());
        let (program, arguments) = command.split_first().ok_or_else(|| wrong(&"no command"))?;
        let mut prepared = match &cgroup {
            Some(cgroup) => {
                let mut shell = Command::new("/bin/sh");
                shell.arg("-c").arg(JOIN_AND_EXEC).arg(&cgroup.0).arg(program);
                shell
            }
            None => Command::new(program),
        };
        let output = File::create(log).map_err(|error| wrong(&error))?;
        let errors = output.try_clone().map_err(|error| wrong(&error))?;
        prepared
            .args(arguments)
            .envs(environment.iter().map(|(key, value)| (key, value)))
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(errors);
        let started = Instant::now();
        let child = on_cores(cores, || prepared.spawn()).map_err(|error| wrong(&error))?;
        Ok(Process {
            name: name.into(),
            child,
            started,
            log: log.into(),
            cgroup,
        })
    }

    /// Waits until something listens on the port; returns how long that took from the start.
    pub(crate) fn await_port(&mut self, port: u16) -> Result<Duration, String> {
        loop {
            if listens(port) {
                return Ok(self.started.elapsed());
            }
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!(
                    "{} ended with {status}: {}",
                    self.name,
                    self.last_words()
                ));
            }
            if self.started.elapsed() > READY_TIMEOUT {
                return Err(format!(
                    "{} does not listen on port {port} after {} s: {}",
                    self.name,
                    READY_TIMEOUT.as_secs(),
                    self.last_words()
                ));
            }
            std::thread::sleep(READY_POLL);
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is still there.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The end of its log.
    pub(crate) fn last_words(&self) -> String {
        const LINES: usize = 3;
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().rev().take(LINES).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" / ")
    }

    /// CPU time used so far, by it and all it has started.
    pub(crate) fn cpu(&self) -> Duration {
        let from_group = self.cgroup.as_ref().and_then(Cgroup::cpu);
        from_group.unwrap_or_else(|| tree(self.child.id()).into_iter().map(cpu_of).sum())
    }

    /// Largest resident set so far, in bytes, summed over its processes.
    pub(crate) fn peak_rss(&self) -> u64 {
        tree(self.child.id())
            .into_iter()
            .map(|id| status_bytes(id, "VmHWM:"))
            .sum()
    }

    /// Resident set now, in bytes.
    pub(crate) fn rss(&self) -> u64 {
        tree(self.child.id())
            .into_iter()
            .map(|id| status_bytes(id, "VmRSS:"))
            .sum()
    }

    /// Largest memory of the control group, with page cache and sockets, if the kernel tells.
    pub(crate) fn cgroup_peak(&self) -> Option<u64> {
        self.cgroup.as_ref()?.memory_peak()
    }

    /// Waits until it ends by itself.
    pub(crate) fn wait(mut self) -> Result<(), String> {
        let status = self
            .child
            .wait()
            .map_err(|error| format!("{}: {error}", self.name))?;
        if status.success() {
            return Ok(());
        }
        Err(format!(
            "{} ended with {status}: {}",
            self.name,
            self.last_words()
        ))
    }

    fn stop(&mut self) {
        let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        if !self.is_alive() || kill_process(pid, Signal::TERM).is_err() {
            return;
        }
        let until = Instant::now() + STOP_TIMEOUT;
        while Instant::now() < until {
            if !self.is_alive() {
                return;
            }
            std::thread::sleep(STOP_POLL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Whether something listens on a port of this machine.
pub(crate) fn listens(port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], port)), Duration::from_secs(1)).is_ok()
}

/// Starts something on a thread that is confined to these cores: a child inherits that, without a moment
/// elsewhere.
fn on_cores<T: Send>(cores: &[usize], start: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            sched_setaffinity(None, &set)?;
            start()
        });
        thread
            .join()
            .map_err(|_| io::Error::other("the starting thread panicked"))?
    })
}

/// A process and all its descendants.
fn tree(root: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for id in entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()) {
        if let Some(parent) = stat_fields(id).and_then(|fields| fields.get(1)?.parse().ok()) {
            children.entry(parent).or_default().push(id);
        }
    }
    let mut all = vec![root];
    let mut at = 0;
    while let Some(id) = all.get(at) {
        all.extend(children.remove(id).unwrap_or_default());
        at += 1;
    }
    all
}

/// Fields of /proc/ID/stat from the state on: what precedes it may contain spaces (proc(5)).
fn stat_fields(id: u32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split(' ').map(String::from).collect())
}

/// CPU time of a process: of its threads to the nanosecond where all of them are still there, else by the
/// clock tick.
fn cpu_of(id: u32) -> Duration {
    let ticks = || {
        let fields = stat_fields(id)?;
        // utime and stime, and those of children that have been waited for: fields 14 to 17 of proc(5).
        let ticks = (11..15)
            .filter_map(|at| fields.get(at)?.parse::<u64>().ok())
            .sum::<u64>();
        Some(Duration::from_secs_f64(
            ticks as f64 / rustix::param::clock_ticks_per_second() as f64,
        ))
    };
    let by_tick = ticks().unwrap_or_default();
    // Threads that have ended are missing from the sum of threads.
    by_tick.max(threads_cpu(id))
}

fn threads_cpu(id: u32) -> Duration {
    let tasks = fs::read_dir(format!("/proc/{id}/task"))
        .into_iter()
        .flatten()
        .flatten();
    let nanos = tasks.filter_map(|task| {
        let stat = fs::read_to_string(task.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(nanos.sum())
}

fn status_bytes(id: u32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(script: &str, cgroups: Option<&Cgroups>) -> (Process, PathBuf) {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let log = std::env::temp_dir().join(format!("sluice-rig-process-{}-{number}", std::process::id()));
        let command = ["/bin/sh", "-c", script].map(String::from);
        let core = usable_cores().unwrap()[..1].to_vec();
        let process = Process::start(
            "test",
            &command,
            &[("WORD", "spoken".into())],
            &core,
            cgroups,
            &log,
        );
        (process.unwrap(), log)
    }

    /// Scenario: a shell whose child spins, with and, where this machine has them, in control groups.
    /// Guarantees: the child's CPU time counts; it runs on the core it was given; dropping ends it.
    #[test]
    fn descendants_are_measured_and_pinned() {
        let cgroups = Cgroups::find().ok();
        for cgroups in [None, cgroups.as_ref()] {
            // Bounded by itself: what spins must not outlive a test that fails or is killed.
            let (mut process, log) = start(
                "timeout 30 sh -c 'while :; do :; done' & grep Cpus_allowed_list /proc/self/status; wait",
                cgroups,
            );
            let until = Instant::now() + Duration::from_secs(20);
            while process.cpu() < Duration::from_millis(200) {
                assert!(Instant::now() < until, "no CPU time is seen: {:?}", process.cpu());
                std::thread::yield_now();
            }
            assert!(process.is_alive());
            assert!(process.rss() > 0 && process.peak_rss() >= process.rss());
            let core = usable_cores().unwrap()[0];
            assert!(
                process.last_words().ends_with(&format!("\t{core}")),
                "{}",
                process.last_words()
            );
            let ids = tree(process.child.id());
            assert!(ids.len() >= 2, "{ids:?}");
            // The shell ends by the signal; its child is an orphan of the test, not of the rig.
            for id in ids.iter().skip(1) {
                let pid = Pid::from_raw(i32::try_from(*id).unwrap()).unwrap();
                let _ = kill_process(pid, Signal::KILL);
            }
            drop(process);
            fs::remove_file(log).unwrap();
        }
    }

    /// Scenario: a process that ends at once with an error.
    /// Guarantees: waiting for its port ends, and the error has the exit status and what it said last.
    #[test]
    fn last_words_are_told() {
        let (mut process, log) = start("echo first; echo $WORD; exit 3", None);
        // No port of this machine is 0, so nothing listens there.
        let error = process.await_port(0).unwrap_err();
        assert!(
            error.contains("exit status: 3") && error.contains("first / spoken"),
            "{error}"
        );
        fs::remove_file(log).unwrap();
    }
}
