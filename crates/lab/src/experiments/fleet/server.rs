//! The fleet under test with its database and, where it forwards, its broker; and what they use.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::database::{Database, Kind, Used, run, used};
use crate::experiment::{LabError, Setting};
use crate::http::{Call, Link};
use crate::kafka::Kafka;
use crate::limits::{ANSWER_MAX, LOAD_MAX, POLL};
use crate::load::{Produce, Sending, Tool};
use crate::process::Measured;
use crate::store::{Store, free_address};
use crate::tools::need;

/// Where the fleet keeps its registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeps {
    /// In a file of its own.
    Sqlite,
    /// In PostgreSQL.
    Postgres,
    /// In MariaDB.
    MariaDb,
}

/// Where heartbeats and acknowledges are forwarded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwards {
    /// Nowhere.
    No,
    /// Nowhere, while Apache Kafka beside takes as much from others: what that takes from the
    /// processors' caches is not forwarding.
    BesideKafka,
    /// To topics of the store in the same process.
    Embedded,
    /// To topics of Apache Kafka.
    Kafka,
}

impl Forwards {
    /// Whether a broker runs beside.
    pub fn has_broker(self) -> bool {
        matches!(self, Forwards::Kafka | Forwards::BesideKafka)
    }
}

/// How the server is set up.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Its database.
    pub keeps: Keeps,
    /// Where it forwards to.
    pub forwards: Forwards,
    /// Whether it speaks TLS and asks for certificates.
    pub is_tls: bool,
}

/// A running fleet.
pub struct Server {
    process: Measured,
    database: Option<Database>,
    broker: Option<Store>,
    /// Who feeds the broker in the fleet's place.
    feeder: Option<Measured>,
    /// Where agents and operators call.
    pub address: SocketAddr,
    data: PathBuf,
    /// Resident memory before any agent called.
    pub bytes_at_rest: u64,
}

/// What server and database have used.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cost {
    /// The server's processor time.
    pub server_cpu: Duration,
    /// The database's, where it is a process of its own.
    pub database_cpu: Duration,
    /// That of the broker beside, which is not the fleet's.
    pub broker_cpu: Duration,
    /// Bytes that both wrote to the disk.
    pub bytes_written: u64,
}

impl Server {
    /// Starts what `plan` names, and waits until the fleet answers.
    pub fn start(setting: &Setting, plan: &Plan, name: &str) -> Result<Server, LabError> {
        let folder = setting.folder();
        let database = match plan.keeps {
            Keeps::Sqlite => None,
            Keeps::Postgres => Some(Database::start(Kind::Postgres, folder)?),
            Keeps::MariaDb => Some(Database::start(Kind::MariaDb, folder)?),
        };
        let broker = match plan.forwards.has_broker() {
            true => Some(Kafka::fetch(folder)?.start(folder)?),
            false => None,
        };
        let feeder = match (plan.forwards, &broker) {
            (Forwards::BesideKafka, Some(broker)) => Some(feed(broker, folder)?),
            _ => None,
        };
        let address = free_address()?;
        let data = setting.path(name);
        let mut command = Command::new(&setting.thalweg);
        command
            .args(["up", "--role", roles(plan.forwards), "--data"])
            .arg(&data);
        let mut sets = vec![
            format!("fleet.listen={address}"),
            "fleet.heartbeat_interval=60s".to_owned(),
        ];
        sets.extend(
            database
                .iter()
                .map(|it| format!("fleet.database={}", it.url)),
        );
        if matches!(plan.forwards, Forwards::Embedded | Forwards::Kafka) {
            sets.push("streams.listen=127.0.0.1:0".to_owned());
            sets.push("fleet.forward.heartbeats=fleet-heartbeats".to_owned());
            sets.push("fleet.forward.acknowledges=fleet-acknowledges".to_owned());
        }
        if let (Forwards::Kafka, Some(broker)) = (plan.forwards, &broker) {
            sets.push(format!(
                "streams.kafka.bootstrap_servers={}",
                broker.address
            ));
        }
        if plan.is_tls {
            certificates(folder)?;
            let path = |name: &str| folder.join(name).display().to_string();
            sets.push(format!("fleet.tls.certificate={}", path("server.pem")));
            sets.push(format!("fleet.tls.key={}", path("server.key")));
            sets.push(format!("fleet.tls.client_ca={}", path("ca.pem")));
            sets.push("fleet.tls.client_auth=required".to_owned());
            // One certificate for the whole crowd.
            sets.push("fleet.certificate_binding=off".to_owned());
        }
        for set in sets {
            command.arg("--set").arg(set);
        }
        let mut process = Measured::start("fleet", &mut command, folder)?;
        let began = Instant::now();
        while !data.join("endpoints.json").is_file() {
            process.still_runs()?;
            if began.elapsed() > ANSWER_MAX {
                return Err(LabError::Failed(format!(
                    "the fleet was not ready within {ANSWER_MAX:?}"
                )));
            }
            std::thread::sleep(POLL);
        }
        let bytes_at_rest = process.usage()?.resident_bytes;
        Ok(Server {
            process,
            database,
            broker,
            feeder,
            address,
            data,
            bytes_at_rest,
        })
    }

    /// What was used so far.
    pub fn cost(&self) -> Cost {
        let server = used(self.process.id());
        let database = self
            .database
            .as_ref()
            .map_or(Used::default(), Database::used);
        let broker = self.broker.as_ref().map(|broker| broker.process.id());
        Cost {
            server_cpu: server.cpu,
            database_cpu: database.cpu,
            broker_cpu: broker.map(used).unwrap_or_default().cpu,
            bytes_written: server.bytes_written + database.bytes_written,
        }
    }

    /// Waits until server and database rest: until what arriving agents left to write is written.
    pub fn rests(&self) {
        let began = Instant::now();
        let mut before = self.cost();
        while began.elapsed() < REST_MAX {
            std::thread::sleep(REST_LOOK);
            let now = self.cost();
            let used = now.since(before);
            if used.server_cpu + used.database_cpu < REST_LOOK / 10 {
                return;
            }
            before = now;
        }
    }

    /// Resident memory of the server now.
    pub fn resident_bytes(&self) -> Result<u64, LabError> {
        Ok(self.process.usage()?.resident_bytes)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Publishes a flow to a class; its id. Only without TLS, as all that is not for agents here.
    pub async fn publish(&self, class: &str) -> Result<String, LabError> {
        let path = format!("/api/v1/classes/{class}/flows");
        let call = Call::new("POST", &path, "application/yaml", FLOW.as_bytes());
        let body = Link::open(self.address).await?.ask_whole(&call).await?;
        let answer: Value = serde_json::from_slice(&body).unwrap_or_default();
        let id = answer["flow_id"].as_str().map(str::to_owned);
        id.ok_or_else(|| LabError::Failed(format!("a flow was not published: {answer}")))
    }

    /// A counter or gauge of the metrics, all its series together; only without TLS.
    pub async fn metric(&self, name: &str) -> Result<f64, LabError> {
        let call = Call::new("GET", "/metrics", "text/plain", b"");
        let body = Link::open(self.address).await?.ask_whole(&call).await?;
        let text = String::from_utf8_lossy(&body);
        let series = text.lines().filter(|line| {
            let rest = line.strip_prefix(name).unwrap_or("");
            rest.starts_with(' ') || rest.starts_with('{')
        });
        Ok(series
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum())
    }

    /// Ends everything and throws away what it kept; what waits to be written is nobody's any more.
    pub fn end(self) -> Result<(), LabError> {
        self.process.kill();
        drop(self.database);
        if let Some(feeder) = self.feeder {
            feeder.kill();
        }
        if let Some(broker) = self.broker {
            let data = broker.data.clone();
            broker.process.kill();
            clear(&data)?;
        }
        clear(&self.data)
    }
}

impl Cost {
    /// What was used since `before`.
    pub fn since(self, before: Cost) -> Cost {
        Cost {
            server_cpu: self.server_cpu.saturating_sub(before.server_cpu),
            database_cpu: self.database_cpu.saturating_sub(before.database_cpu),
            broker_cpu: self.broker_cpu.saturating_sub(before.broker_cpu),
            bytes_written: self.bytes_written.saturating_sub(before.bytes_written),
        }
    }
}

/// Has a tool send to a broker what the fleet would: first at once what arriving agents send, then
/// what they send in their minutes.
fn feed(broker: &Store, folder: &Path) -> Result<Measured, LabError> {
    let tool = Tool::compile(folder)?;
    let arriving = Produce {
        address: &broker.address,
        topic: "fed-heartbeats",
        sending: Sending::Batches,
        bytes: BEAT_BYTES,
        acks: "all",
        producers: 1,
        length: LOAD_MAX,
        bytes_max: FED_BEFORE * BEAT_BYTES as u64,
    };
    tool.produce(&arriving, folder)?;
    let beating = Produce {
        sending: Sending::Lazy(FED_RATE),
        length: FED_LENGTH,
        bytes_max: 0,
        ..arriving
    };
    tool.start(&beating, folder)
}

fn roles(forwards: Forwards) -> &'static str {
    match forwards {
        Forwards::No | Forwards::BesideKafka | Forwards::Kafka => "fleet",
        Forwards::Embedded => "streams,fleet",
    }
}

/// An authority, a certificate of the server and one of the agents, all of P-256.
fn certificates(folder: &Path) -> Result<(), LabError> {
    need("openssl", "version", "openssl")?;
    let openssl = |arguments: &str| {
        let mut command = Command::new("openssl");
        command.current_dir(folder).args(arguments.split(' '));
        run(&mut command).map(|_| ())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(&format!(
        "req -x509 {key} -keyout ca.key -out ca.pem -days 2 -subj /CN=lab"
    ))?;
    for name in ["server", "agent"] {
        openssl(&format!(
            "req {key} -keyout {name}.key -out {name}.csr -subj /CN={name} -addext \
             subjectAltName=DNS:localhost,IP:127.0.0.1"
        ))?;
        openssl(&format!(
            "x509 -req -in {name}.csr -out {name}.pem -CA ca.pem -CAkey ca.key -CAcreateserial \
             -days 2 -copy_extensions copy"
        ))?;
    }
    Ok(())
}

fn clear(data: &Path) -> Result<(), LabError> {
    std::fs::remove_dir_all(data).map_err(LabError::system("cannot clear a server's data"))
}

/// How often it is looked whether server and database rest, and for how long.
const REST_LOOK: Duration = Duration::from_secs(2);
const REST_MAX: Duration = Duration::from_secs(180);

/// What a tool sends in a fleet's place: heartbeats of the mean size, those of 100,000 agents that
/// call twice and then once a minute, until it is ended.
const BEAT_BYTES: usize = 1_850;
const FED_BEFORE: u64 = 200_000;
const FED_RATE: u32 = 1_667;
const FED_LENGTH: Duration = Duration::from_secs(900);

/// A flow that fits any agent.
const FLOW: &str = "MiNiFi Config Version: 3\nProcessors: []\n";
