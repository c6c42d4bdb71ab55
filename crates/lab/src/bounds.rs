//! Bounds that the machine sets for a process under test: memory, and a small file system.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::experiment::LabError;

/// A bound on memory that a process starts under.
pub enum Memory {
    /// A control group of its own, taken away again at the end.
    Group {
        /// The group's folder.
        folder: PathBuf,
        /// What it is called in reports.
        name: &'static str,
    },
    /// A limit of the process's own data, where no control group can be made.
    Limit {
        /// Bytes of data.
        bytes: u64,
    },
}

impl Memory {
    /// Bounds memory to so many bytes by the best means that there are.
    pub fn bound(bytes: u64) -> Memory {
        let group = |root: &str, mark: &str, file: &str, name: &'static str| {
            // Where nothing of the kind is mounted, any file could be written just as well.
            Path::new(root).join(mark).is_file().then_some(())?;
            let folder = Path::new(root).join(format!("thalweg-lab-{}", std::process::id()));
            std::fs::create_dir_all(&folder).ok()?;
            if std::fs::write(folder.join(file), bytes.to_string()).is_err() {
                let _ = std::fs::remove_dir(&folder);
                return None;
            }
            Some(Memory::Group { folder, name })
        };
        let (v2, v1) = ("/sys/fs/cgroup", "/sys/fs/cgroup/memory");
        group(
            v2,
            "cgroup.controllers",
            "memory.max",
            "a control group (v2)",
        )
        .or_else(|| {
            group(
                v1,
                "cgroup.procs",
                "memory.limit_in_bytes",
                "a control group (v1)",
            )
        })
        .unwrap_or(Memory::Limit { bytes })
    }

    /// What it is, for reports.
    pub fn name(&self) -> &'static str {
        match self {
            Memory::Group { name, .. } => name,
            Memory::Limit { .. } => "a limit of the process's data (RLIMIT_DATA): no control group",
        }
    }

    /// The same command under the bound.
    pub fn wrap(&self, command: &Command) -> Command {
        let enter = match self {
            Memory::Group { folder, .. } => {
                format!("echo $$ > '{}/cgroup.procs'", folder.display())
            }
            Memory::Limit { bytes } => format!("ulimit -d {}", bytes / 1_024),
        };
        let mut wrapped = Command::new("sh");
        wrapped
            .args(["-c", &format!("{enter} && exec \"$@\""), "sh"])
            .arg(command.get_program())
            .args(command.get_args());
        wrapped
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Memory::Group { folder, .. } = self {
            // Only an empty group can be taken away; its processes have ended by now.
            let _ = std::fs::remove_dir(folder);
        }
    }
}

/// A small file system of its own, unmounted at the end.
pub struct SmallDisk {
    /// Where it is mounted.
    pub folder: PathBuf,
    /// What it is, for reports.
    pub name: &'static str,
}

impl SmallDisk {
    /// Mounts a file system of so many bytes and inodes under `folder`.
    ///
    /// Errors: nothing can be mounted here; the text says what was tried.
    pub fn mount(folder: &Path, bytes: u64, inodes: u64) -> Result<SmallDisk, LabError> {
        let mounted = folder.join("small-disk");
        std::fs::create_dir_all(&mounted).map_err(LabError::system("cannot make a folder"))?;
        let image = folder.join("small-disk.img");
        let ext4 = || -> Result<(), String> {
            let file = std::fs::File::create(&image).map_err(|error| error.to_string())?;
            file.set_len(bytes).map_err(|error| error.to_string())?;
            run(Command::new("mkfs.ext4")
                .args(["-q", "-N", &inodes.to_string()])
                .arg(&image))?;
            run(Command::new("mount")
                .args(["-o", "loop"])
                .arg(&image)
                .arg(&mounted))
        };
        let tmpfs = || {
            let options = format!("size={bytes},nr_inodes={inodes}");
            run(Command::new("mount")
                .args(["-t", "tmpfs", "-o", &options, "none"])
                .arg(&mounted))
        };
        let name = match ext4() {
            Ok(()) => "ext4 on a loop device",
            Err(no_loop) => match tmpfs() {
                Ok(()) => "tmpfs, which counts as memory",
                Err(no_tmpfs) => {
                    return Err(LabError::Usage(format!(
                        "no small file system can be mounted: {no_loop}; {no_tmpfs}"
                    )));
                }
            },
        };
        Ok(SmallDisk {
            folder: mounted,
            name,
        })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // What is left mounted would keep the run's folder from being cleared, which then says so.
        let _ = run(Command::new("umount").arg(&self.folder));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().display().to_string();
    match command.output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(format!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
