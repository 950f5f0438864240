//! Programs in Python, with packages from PyPI.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A file of `tests/python`.
pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python").join(name)
}

/// A virtual environment with what `requirements`, a file of `tests/python`, lists, in the directory `base`: made once, kept for
/// later runs, made anew when the requirements change. Tests and test runs that need it at the same time wait.
pub fn python(base: &str, requirements: &str) -> PathBuf {
    let (base, requirements) = (Path::new(base), script(requirements));
    let name = requirements.file_stem().unwrap().to_string_lossy().into_owned();
    let wanted = std::fs::read_to_string(&requirements).unwrap();
    std::fs::create_dir_all(base).unwrap();
    let lock = File::create(base.join(format!("{name}.lock"))).unwrap();
    lock.lock().unwrap();
    let venv = base.join(name);
    let (python, made) = (venv.join("bin/python"), venv.join("requirements-installed.txt"));
    if std::fs::read_to_string(&made).is_ok_and(|installed| installed == wanted) {
        return python;
    }
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv));
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--requirement",
    ];
    run(Command::new(&python).args(pip).arg(&requirements));
    std::fs::write(made, wanted).unwrap();
    python
}

/// Runs a command that must succeed; what it said.
pub fn run(command: &mut Command) -> String {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?} failed\n{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A server that prints its port when it is ready, killed when dropped.
#[derive(Debug)]
pub struct PythonServer {
    child: Child,
    /// Where it listens, on 127.0.0.1.
    pub port: u16,
}

impl PythonServer {
    /// Starts it.
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        // Servers may say other things first.
        let port = loop {
            line.clear();
            let read = said.read_line(&mut line).unwrap();
            assert!(read > 0, "{command:?} ended");
            if let Ok(port) = line.trim().parse() {
                break port;
            }
        };
        // Kept open: a server that prints must not die of it.
        std::thread::spawn(move || said.lines().for_each(drop));
        Self { child, port }
    }
}

impl Drop for PythonServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
