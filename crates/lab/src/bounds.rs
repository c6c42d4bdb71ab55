//! Bounds that the machine sets for what is under test: memory, a small file system, a slower disk.

use std::os::unix::fs::MetadataExt;
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

/// A control group of the lab and all that it starts, held to a rate at one disk; left again at the end.
///
/// Held is what passes the page cache and what a process syncs; what the kernel writes behind a process that
/// does not wait for it only with version 2 of control groups, where that counts memory too.
pub struct DiskRate {
    group: PathBuf,
    /// Where the lab was before.
    left: PathBuf,
}

impl DiskRate {
    /// Holds reading and writing, each, to so many bytes a second at the disk under `folder`.
    ///
    /// Errors: the folder is on no disk that can be held, or this process may make no such group.
    pub fn hold(folder: &Path, bytes_per_s: u64) -> Result<DiskRate, LabError> {
        let disk = disk_under(folder)?;
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let v2 = Path::new("/sys/fs/cgroup");
        let controllers = std::fs::read_to_string(v2.join("cgroup.controllers"));
        let has_v2 = controllers.is_ok_and(|all| all.split_whitespace().any(|one| one == "io"));
        let (root, controller, limits) = if has_v2 {
            let limit = format!("{disk} rbps={bytes_per_s} wbps={bytes_per_s}");
            (v2.to_owned(), "", vec![("io.max", limit)])
        } else {
            let limit = format!("{disk} {bytes_per_s}");
            let limits = vec![
                ("blkio.throttle.read_bps_device", limit.clone()),
                ("blkio.throttle.write_bps_device", limit),
            ];
            (v2.join("blkio"), "blkio", limits)
        };
        let cannot = |what: &Path| {
            let text = format!(
                "a disk is held to a rate by a control group, as root: {}",
                what.display()
            );
            LabError::system(text)
        };
        // Where nothing of the kind is mounted, any file could be written just as well.
        let mounted = root.join(PROCESSES);
        std::fs::metadata(&mounted).map_err(cannot(&mounted))?;
        // A group's limits are there once its parent hands them on.
        let handed_on = root.join("cgroup.subtree_control");
        if has_v2 {
            std::fs::write(&handed_on, "+io").map_err(cannot(&handed_on))?;
            // What the kernel writes behind a process counts as its own where memory does, too.
            let _ = std::fs::write(&handed_on, "+memory");
        }
        let group = root.join(format!("thalweg-lab-disk-{}", std::process::id()));
        std::fs::create_dir_all(&group).map_err(cannot(&group))?;
        let left = root.join(group_of(&own, controller).trim_start_matches('/'));
        // From here on dropping it takes the group away.
        let held = DiskRate { group, left };
        for (file, limit) in limits {
            let file = held.group.join(file);
            std::fs::write(&file, limit).map_err(cannot(&file))?;
        }
        let entry = held.group.join(PROCESSES);
        std::fs::write(&entry, std::process::id().to_string()).map_err(cannot(&entry))?;
        Ok(held)
    }
}

impl Drop for DiskRate {
    fn drop(&mut self) {
        // What cannot be left stays as long as the lab does, and its empty folder bounds nothing.
        let _ = std::fs::write(self.left.join(PROCESSES), std::process::id().to_string());
        let _ = std::fs::remove_dir(&self.group);
    }
}

/// The disk that a folder's file system lies on, as `major:minor`.
fn disk_under(folder: &Path) -> Result<String, LabError> {
    let device = std::fs::metadata(folder)
        .map_err(LabError::system(format!(
            "cannot look at {}",
            folder.display()
        )))?
        .dev();
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let known = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let known = match std::fs::canonicalize(&known) {
        Ok(partition) if partition.join("partition").is_file() => partition.join(".."),
        Ok(disk) => disk,
        Err(_) => {
            return Err(LabError::Usage(format!(
                "{} is on no disk of the kernel's that could be held to a rate; name a folder on one with \
                 --results",
                folder.display()
            )));
        }
    };
    let number = std::fs::read_to_string(known.join("dev")).map_err(LabError::system(format!(
        "cannot look at {}",
        known.display()
    )))?;
    Ok(number.trim().to_owned())
}

/// The group that `/proc/self/cgroup` names for a controller; the empty one is version 2's.
fn group_of<'a>(own: &'a str, controller: &str) -> &'a str {
    own.lines()
        .filter_map(|line| line.split_once(':')?.1.split_once(':'))
        .find(|(controllers, _)| controllers.split(',').any(|one| one == controller))
        .map_or("/", |(_, group)| group)
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

const PROCESSES: &str = "cgroup.procs";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_group_is_found_by_its_controller() {
        let own = "7:blkio:/jobs/1\n3:cpu,cpuacct:/\n0::/init.scope\n";
        assert_eq!(group_of(own, "blkio"), "/jobs/1");
        assert_eq!(group_of(own, "cpuacct"), "/");
        assert_eq!(group_of(own, ""), "/init.scope");
        assert_eq!(group_of("", "blkio"), "/");
    }

    #[test]
    fn what_is_on_no_disk_cannot_be_held_to_a_rate() {
        let refused = disk_under(Path::new("/proc"));
        assert!(matches!(refused, Err(LabError::Usage(why)) if why.contains("--results")));
    }
}
