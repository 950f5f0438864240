//! A file system of its own, of a few MiB: for disks that are full.

use std::path::Path;
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
