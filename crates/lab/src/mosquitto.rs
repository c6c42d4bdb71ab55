//! Mosquitto, the MQTT broker that most put before an engine: installed by the system's packages.

use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use crate::experiment::LabError;
use crate::limits::{POLL, READY_MAX};
use crate::process::Measured;
use crate::store::free_address;
use crate::tools::need;

/// A running broker.
pub struct Mosquitto {
    /// Its process.
    pub process: Measured,
    /// Where it listens.
    pub address: String,
}

impl Mosquitto {
    /// Starts one that keeps nothing, on a free port.
    pub fn start(folder: &Path) -> Result<Mosquitto, LabError> {
        need("mosquitto", "-h", "mosquitto")?;
        let address = free_address()?;
        let file = folder.join("mosquitto.conf");
        let text = format!(
            "listener {} 127.0.0.1\nallow_anonymous true\npersistence false\nlog_dest none\n",
            address.port()
        );
        std::fs::write(&file, text)
            .map_err(LabError::system("cannot write Mosquitto's configuration"))?;
        let mut command = Command::new("mosquitto");
        command.arg("-c").arg(&file);
        let mut process = Measured::start("mosquitto", &mut command, folder)?;
        let deadline = Instant::now() + READY_MAX;
        while TcpStream::connect(address).is_err() {
            process.still_runs()?;
            if Instant::now() > deadline {
                return Err(LabError::Failed(format!(
                    "Mosquitto was not ready within {READY_MAX:?}"
                )));
            }
            std::thread::sleep(POLL);
        }
        Ok(Mosquitto {
            process,
            address: address.to_string(),
        })
    }
}
