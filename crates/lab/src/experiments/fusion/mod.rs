//! Statements over MQTT under load.

pub mod burst;
pub mod keys;
pub mod layers;
pub mod statements;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::experiment::{LabError, runtime};
use crate::http::{Call, Link};
use crate::limits::{POLL, READY_MAX, STALL_MAX};
use crate::process::Up;

/// The management API, one call after another.
pub struct Api {
    runtime: tokio::runtime::Runtime,
    address: SocketAddr,
    link: Link,
    used: Instant,
}

impl Api {
    fn open(up: &Up) -> Result<Api, LabError> {
        let runtime = runtime()?;
        let address = address(up)?;
        let link = runtime.block_on(Link::open(address))?;
        Ok(Api {
            runtime,
            address,
            link,
            used: Instant::now(),
        })
    }

    fn call(&mut self, method: &str, path: &str, body: Option<&Value>) -> Result<Value, LabError> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let call = Call::new(method, path, "application/json", body.as_bytes());
        // The server closes what rests for long, as a connection does during a long flood.
        if self.used.elapsed() > LINK_AGE_MAX {
            self.link = self.runtime.block_on(Link::open(self.address))?;
        }
        let answer = self.runtime.block_on(self.link.ask_whole(&call))?;
        self.used = Instant::now();
        Ok(serde_json::from_slice(&answer).unwrap_or(Value::Null))
    }

    fn add(&mut self, name: &str, text: &str) -> Result<(), LabError> {
        let body = json!({"name": name, "text": text});
        self.call("POST", "/api/v1/statements", Some(&body))
            .map(|_| ())
    }

    fn remove(&mut self, name: &str) -> Result<(), LabError> {
        let path = format!("/api/v1/statements/{name}");
        self.call("DELETE", &path, None).map(|_| ())
    }

    /// A count of a statement's books.
    fn count(&mut self, name: &str, count: &str) -> Result<u64, LabError> {
        let statement = self.call("GET", &format!("/api/v1/statements/{name}"), None)?;
        let value = statement[count].as_u64();
        value.ok_or_else(|| LabError::Failed(format!("statement {name} has no {count}")))
    }

    /// Makes a bridge to the broker at an address, for one filter, and waits until it is connected.
    fn bridge(
        &mut self,
        name: &str,
        address: &str,
        (filter, direction): (&str, &str),
    ) -> Result<(), LabError> {
        let body = json!({
            "name": name,
            "address": format!("mqtt://{address}"),
            "topics": [{"filter": filter, "direction": direction, "qos": 1}],
        });
        self.call("POST", "/api/v1/mqtt/bridges", Some(&body))?;
        wait_for(READY_MAX, &format!("bridge {name}"), || {
            let bridges = self.call("GET", "/api/v1/mqtt/bridges", None)?;
            let all = bridges["bridges"].as_array().map_or(&[][..], Vec::as_slice);
            let mut named = all.iter().filter(|bridge| bridge["config"]["name"] == name);
            Ok(named
                .any(|bridge| bridge["connected"] == true)
                .then_some(()))
        })
    }

    /// Waits until a count stands at `wanted`; answers where it stands when it no longer moves.
    fn until(&mut self, name: &str, count: &str, wanted: u64) -> Result<u64, LabError> {
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            let now = self.count(name, count)?;
            if now >= wanted {
                return Ok(now);
            }
            if now != last {
                (last, moved) = (now, Instant::now());
            } else if moved.elapsed() > STALL_MAX / 4 {
                return Ok(now);
            }
            std::thread::sleep(POLL);
        }
    }
}

/// Asks again and again until there is an answer.
fn wait_for<T>(
    limit: Duration,
    what: &str,
    mut ask: impl FnMut() -> Result<Option<T>, LabError>,
) -> Result<T, LabError> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(answer) = ask()? {
            return Ok(answer);
        }
        if Instant::now() > deadline {
            return Err(LabError::Failed(format!(
                "{what} was not there in {limit:?}"
            )));
        }
        std::thread::sleep(POLL);
    }
}

fn address(up: &Up) -> Result<SocketAddr, LabError> {
    let address = up.address("fleet")?;
    let wrong = |_| LabError::Failed(format!("'{address}' is no address"));
    address.parse().map_err(wrong)
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// How long a connection may rest before another one takes its place.
const LINK_AGE_MAX: Duration = Duration::from_secs(30);

/// Publishers of every load, as in the published test.
const PUBLISHERS: usize = 10;
