//! A PostgreSQL or a MariaDB of the machine's own packages, started for an experiment on loopback,
//! with the settings that they come with: what they commit is on the disk.
//!
//! Its folder lies where temporary files do (`TMPDIR`), not with the results: PostgreSQL runs as a
//! user of its own where the lab runs as root.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::experiment::LabError;
use crate::limits::{ANSWER_MAX, POLL};
use crate::process::{Measured, usage_of};
use crate::store::free_address;
use crate::tools::need;

/// Which database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB, which speaks MySQL's protocol.
    MariaDb,
}

/// A running database server with one empty database.
pub struct Database {
    process: Option<Measured>,
    /// Where the fleet finds it.
    pub url: String,
    folder: PathBuf,
}

impl Database {
    /// Makes a database and starts its server; its log goes to `folder`.
    pub fn start(kind: Kind, folder: &Path) -> Result<Database, LabError> {
        let port = free_address()?.port();
        let own = std::env::temp_dir().join(format!("thalweg-lab-{}-{port}", std::process::id()));
        std::fs::create_dir(&own)
            .map_err(LabError::system(format!("cannot make {}", own.display())))?;
        let (scheme, name, ready) = match kind {
            Kind::Postgres => (
                "postgres",
                "postgres",
                "database system is ready to accept connections",
            ),
            Kind::MariaDb => ("mysql", "fleet", "ready for connections"),
        };
        let mut database = Database {
            process: None,
            url: format!("{scheme}://fleet:{PASSWORD}@127.0.0.1:{port}/{name}"),
            folder: own,
        };
        let mut command = match kind {
            Kind::Postgres => database.postgres(port)?,
            Kind::MariaDb => database.mariadb(port)?,
        };
        let mut process = Measured::start(scheme, &mut command, folder)?;
        let began = Instant::now();
        while !process.log().contains(ready) {
            process.still_runs()?;
            if began.elapsed() > ANSWER_MAX {
                return Err(LabError::Failed(format!(
                    "{scheme} was not ready within {ANSWER_MAX:?}"
                )));
            }
            std::thread::sleep(POLL);
        }
        database.process = Some(process);
        Ok(database)
    }

    /// Sets up a PostgreSQL for large imports, as `docs/imports.md` advises, and has it make the files of
    /// its log, as one has them that has been in use: a new one makes each when it comes to it, and every
    /// commit waits meanwhile.
    pub fn fill_log(&self) -> Result<(), LabError> {
        let fill = format!(
            "SELECT count(pg_logical_emit_message(false, 'lab', repeat('x', {LOG_MESSAGE}))) \
             FROM generate_series(1, {LOG_MESSAGES})"
        );
        need("psql", "--version", "postgresql-client")?;
        let mut psql = Command::new("psql");
        psql.args([self.url.as_str(), "-q"]);
        let reload = "SELECT pg_reload_conf()";
        for statement in [LOG_MIN, LOG_MAX, reload, &fill, "CHECKPOINT"] {
            psql.args(["-c", statement]);
        }
        run(&mut psql).map(drop)
    }

    /// What the server and the processes that it started have used.
    pub fn used(&self) -> Used {
        self.process
            .as_ref()
            .map(|process| used(process.id()))
            .unwrap_or_default()
    }

    fn postgres(&self, port: u16) -> Result<Command, LabError> {
        let data = self.folder.join("data");
        let password = self.folder.join("password");
        std::fs::write(&password, PASSWORD).map_err(LabError::system("cannot write a password"))?;
        if rustix::process::geteuid().is_root() {
            run(Command::new("chown")
                .args(["-R", "postgres"])
                .arg(&self.folder))?;
        }
        let mut init = as_postgres("initdb")?;
        init.arg("-D")
            .arg(&data)
            .args(["-U", "fleet", "-A", "scram-sha-256"]);
        init.args(["-E", "UTF8", "--locale=C.UTF-8", "--pwfile"])
            .arg(&password);
        // One sync for all that it makes, where it would do one for each of a thousand files.
        run(init.arg("--no-sync").current_dir(&self.folder))?;
        rustix::fs::sync();
        let mut server = as_postgres("postgres")?;
        server.arg("-D").arg(&data).arg("-k").arg(&data);
        server.args(["-h", "127.0.0.1", "-p", &port.to_string()]);
        server.current_dir(&self.folder);
        Ok(server)
    }

    fn mariadb(&self, port: u16) -> Result<Command, LabError> {
        need("mariadbd", "--version", "mariadb-server")?;
        let user = String::from_utf8_lossy(&run(Command::new("id").arg("-un"))?)
            .trim()
            .to_owned();
        let data = format!("--datadir={}", self.folder.join("data").display());
        let user = format!("--user={user}");
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", &data, &user, "--skip-test-db"]);
        run(install.arg("--auth-root-authentication-method=normal"))?;
        let init = self.folder.join("init.sql");
        let account = "fleet@'127.0.0.1'";
        let text = format!(
            "CREATE DATABASE fleet;\nCREATE USER {account} IDENTIFIED BY '{PASSWORD}';\n\
             GRANT ALL ON *.* TO {account};\n"
        );
        std::fs::write(&init, text).map_err(LabError::system("cannot write MariaDB's user"))?;
        let mut server = Command::new("mariadbd");
        server.args(["--no-defaults", &data, &user, "--bind-address=127.0.0.1"]);
        server.arg(format!("--port={port}"));
        server.arg(format!("--socket={}", self.folder.join("s").display()));
        server.arg(format!("--pid-file={}", self.folder.join("pid").display()));
        server.arg(format!("--init-file={}", init.display()));
        Ok(server)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Its processes end with it; what they kept is thrown away.
        if let Some(process) = self.process.take() {
            process.kill();
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// What processes have used since they began.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// User and system time.
    pub cpu: Duration,
    /// Bytes that they had written to the disk.
    pub bytes_written: u64,
    /// Resident memory now, shared pages counted for each.
    pub resident_bytes: u64,
}

/// What a process and all that descend from it have used; of those that ended, nothing is known.
pub fn used(id: u32) -> Used {
    let mut total = Used::default();
    let mut waiting = vec![id];
    let children = children();
    while let Some(id) = waiting.pop() {
        // A process may end meanwhile.
        if let Ok(usage) = usage_of(id) {
            total.cpu += usage.cpu;
            total.resident_bytes += usage.resident_bytes;
        }
        total.bytes_written += bytes_written(id);
        waiting.extend(children.get(&id).into_iter().flatten());
    }
    total
}

fn children() -> HashMap<u32, Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return children;
    };
    for entry in entries.flatten() {
        let Some(id) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        if let Some(parent) = rest
            .split_whitespace()
            .nth(1)
            .and_then(|id| id.parse().ok())
        {
            children.entry(parent).or_default().push(id);
        }
    }
    children
}

fn bytes_written(id: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{id}/io")).unwrap_or_default();
    text.lines()
        .find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok())
        .unwrap_or(0)
}

/// A command of PostgreSQL's, which refuses to run as root.
fn as_postgres(program: &str) -> Result<Command, LabError> {
    let folders = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten();
    let found = folders.map(|folder| folder.path().join("bin").join(program));
    let path = found.filter(|path| path.is_file()).max();
    let path = path.unwrap_or_else(|| PathBuf::from(program));
    need(&path.display().to_string(), "--version", "postgresql")?;
    if !rustix::process::geteuid().is_root() {
        return Ok(Command::new(path));
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    // The kernel forgets who is tied to whom when the user changes.
    command.arg("--pdeathsig=KILL").arg(path);
    Ok(command)
}

/// Runs a command that must succeed; what it printed.
pub fn run(command: &mut Command) -> Result<Vec<u8>, LabError> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .map_err(LabError::system(format!("cannot run {program}")))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(LabError::Failed(format!(
            "{program} failed ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        ))),
    }
}

/// Bytes of a message in PostgreSQL's log, and messages until it has more than a run writes.
const LOG_MESSAGE: usize = 4 << 20;
const LOG_MESSAGES: usize = 400;
const LOG_MIN: &str = "ALTER SYSTEM SET min_wal_size = '2GB'";
const LOG_MAX: &str = "ALTER SYSTEM SET max_wal_size = '8GB'";
const PASSWORD: &str = "not-a-secret";
