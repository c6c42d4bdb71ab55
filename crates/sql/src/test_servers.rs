//! A real PostgreSQL and a real MariaDB for tests, from Debian's packages.
//!
//! Each is started on loopback and a free port when the first test needs it, and shared by all
//! tests of the process, which take a database of their own; a test that kills one has it for
//! itself. A shell holds it by a pipe whose other end is this process: however the tests end, the
//! pipe closes, and the shell stops the server and removes its folder.

#![allow(
    clippy::unwrap_used,
    reason = "tests stop at the first thing that is wrong"
)]

use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::dialect::Dialect;

/// The PostgreSQL that tests share.
pub fn postgres() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(Dialect::Postgres))
}

/// The MariaDB that tests share.
pub fn mariadb() -> &'static Server {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(|| Server::start(Dialect::MySql))
}

/// A running database server.
#[derive(Debug)]
pub struct Server {
    dialect: Dialect,
    port: u16,
    folder: PathBuf,
    databases: AtomicU32,
    /// Holds the pipe.
    shell: Child,
}

impl Server {
    /// Starts a server with an empty folder.
    pub fn start(dialect: Dialect) -> Server {
        let folder = tempfile::tempdir().unwrap().keep();
        let port = TcpListener::bind("127.0.0.1:0")
            .and_then(|listener| listener.local_addr())
            .unwrap()
            .port();
        let mut server = Server {
            dialect,
            port,
            shell: run(dialect, &folder, port),
            folder,
            databases: AtomicU32::new(0),
        };
        server.listens();
        server
    }

    /// The address of a new, empty database.
    pub async fn new_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("t{}_{number}", std::process::id());
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        match self.dialect {
            Dialect::Postgres => {
                let mut link = sqlx::PgConnection::connect(&self.address("postgres"))
                    .await
                    .unwrap();
                link.execute(create).await.unwrap();
            }
            _ => {
                let mut link = sqlx::MySqlConnection::connect(&self.address("mysql"))
                    .await
                    .unwrap();
                link.execute(create).await.unwrap();
            }
        }
        self.address(&name)
    }

    /// Ends the server as `kill -9` does.
    pub fn kill(&mut self) {
        std::fs::write(self.folder.join("keep"), "").unwrap();
        drop(self.shell.stdin.take());
        self.shell.wait().unwrap();
        std::fs::remove_file(self.folder.join("keep")).unwrap();
    }

    /// Starts it again where it was.
    pub fn start_again(&mut self) {
        self.shell = run(self.dialect, &self.folder, self.port);
        self.listens();
    }

    fn address(&self, name: &str) -> String {
        let scheme = self.dialect.as_str();
        format!("{scheme}://fleet:{PASSWORD}@127.0.0.1:{}/{name}", self.port)
    }

    fn listens(&mut self) {
        let until = Instant::now() + Duration::from_secs(60);
        while !(TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.answers()) {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            if let Some(status) = self.shell.try_wait().unwrap() {
                panic!("the database ended with {status}:\n{}", log());
            }
            assert!(Instant::now() < until, "the database is not up:\n{}", log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether it takes connections; before that it listens only.
    fn answers(&self) -> bool {
        let log = std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let ready = match self.dialect {
            Dialect::Postgres => "database system is ready to accept connections",
            _ => "ready for connections",
        };
        log.contains(ready)
    }
}

fn run(dialect: Dialect, folder: &Path, port: u16) -> Child {
    let script = match dialect {
        Dialect::Postgres => POSTGRES,
        _ => MARIADB,
    };
    Command::new("sh")
        .args(["-c", &[script, HOLD].concat()])
        .env("PORT", port.to_string())
        .env("PASSWORD", PASSWORD)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

const PASSWORD: &str = "not-a-secret";

/// PostgreSQL does not run as root. Its commits do not wait for the disk: what dies is the process.
const POSTGRES: &str = r#"
PATH="$PATH:$(echo /usr/lib/postgresql/*/bin | tr ' ' ':')"
as=
if [ "$(id -u)" -eq 0 ]; then as="runuser -u postgres --"; chown postgres . ; fi
: >log; chmod 666 log
if ! [ -d data ]; then
    printf %s "$PASSWORD" >password; chmod 644 password
    $as initdb -D data -U fleet -A scram-sha-256 --pwfile=password -E UTF8 --locale=C.UTF-8 \
        >>log 2>&1 || exit 1
fi
$as postgres -D "$PWD/data" -p "$PORT" -h 127.0.0.1 -k "$PWD/data" -c fsync=off \
    -c max_connections=200 >>log 2>&1 &
server=$!
dies() { kill -9 $(head -n 1 data/postmaster.pid) $(pgrep -P "$(head -n 1 data/postmaster.pid)"); }
"#;

const MARIADB: &str = r#"
PATH="$PATH:/usr/sbin"
: >log
if ! [ -d data ]; then
    mariadb-install-db --no-defaults --datadir="$PWD/data" --user="$(id -un)" \
        --auth-root-authentication-method=normal --skip-test-db >>log 2>&1 || exit 1
    printf "CREATE USER fleet@'127.0.0.1' IDENTIFIED BY '%s';\nGRANT ALL ON *.* TO fleet@'127.0.0.1';\n" \
        "$PASSWORD" >init.sql
else
    : >init.sql
fi
: >log
mariadbd --no-defaults --datadir="$PWD/data" --user="$(id -un)" --port="$PORT" \
    --bind-address=127.0.0.1 --socket="$PWD/s" --pid-file="$PWD/pid" --skip-name-resolve \
    --init-file="$PWD/init.sql" --innodb-flush-log-at-trx-commit=2 --max-connections=200 \
    --innodb-buffer-pool-size=64M >>log 2>&1 &
server=$!
dies() { kill -9 $server; }
"#;

/// Ends the server when standard input ends.
const HOLD: &str = r#"
(while kill -0 $server 2>/dev/null; do sleep 1; done; kill $$ 2>/dev/null) &
cat >/dev/null
dies
while kill -0 $server 2>/dev/null; do sleep 0.05; done
[ -e keep ] || { cd / && rm -rf "$OLDPWD"; }
"#;
