//! A file system of its own, of a few MiB: for disks that are full.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A file system in memory; unmounted when dropped.
#[derive(Debug)]
pub struct Volume {
    directory: TempDir,
}

impl Volume {
    /// Mounts one with room for so many MiB.
    ///
    /// # Errors
    /// Why it cannot be mounted: mostly because only root may.
    pub fn mount(mib: u32) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let volume = Self { directory };
        let options = format!("size={mib}m");
        let mut mount = Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", &options, "sluice-test"])
            .arg(volume.path());
        let output = mount.output().map_err(|error| format!("mount: {error}"))?;
        match output.status.success() {
            true => Ok(volume),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Nothing can be written to it from now on.
    ///
    /// # Errors
    /// Why it cannot be mounted so.
    pub fn set_read_only(&self) -> Result<(), String> {
        let mut mount = Command::new("mount");
        mount.args(["-o", "remount,ro"]).arg(self.path());
        let output = mount.output().map_err(|error| format!("mount: {error}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }

    /// Takes all room that is left; gives it back when the file is removed.
    ///
    /// # Errors
    /// None of a full disk.
    pub fn fill(&self) -> std::io::Result<PathBuf> {
        let path = self.path().join("filler");
        let mut file = std::fs::File::create(&path)?;
        let mut bytes = vec![1; 64 << 10];
        while !bytes.is_empty() {
            match file.write(&bytes) {
                Ok(_) => {}
                // What does not fit may fit in part.
                Err(error) if error.kind() == std::io::ErrorKind::StorageFull => {
                    bytes.truncate(bytes.len() / 2)
                }
                Err(error) => return Err(error),
            }
        }
        Ok(path)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A gateway that was killed a moment ago may still hold it: it goes when the last file is closed.
        let _ = Command::new("umount").arg("--lazy").arg(self.path()).status();
    }
}
