//! The same kills where the statement takes its messages from MQTT itself and is durable.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{LAST_TIME, PACED, Site};
use crate::experiment::{LabError, Measure, Outcome, Setting};
use crate::experiments::fusion::Api;
use crate::limits::{POLL, STALL_MAX};
use crate::mqtt::{Pace, Publishers};
use crate::process::Up;

pub(super) fn measures() -> Vec<Measure> {
    vec![
        Measure::new("durable: recovery at most", "s").at_most(2.0),
        Measure::new("durable: kills", "count"),
        Measure::new("durable: acknowledged between kills", "messages"),
        Measure::new("durable: acknowledged and not counted", "messages").at_most(0.0),
        Measure::new("durable: counts off by", "messages").at_most(0.0),
        Measure::new("durable: sums off by", "units").at_most(0.0),
    ]
}

/// Kills the server of a durable statement while messages of QoS 1 come to it.
pub(super) fn run(setting: &Setting, kills: u64, outcome: &mut Outcome) -> Result<(), LabError> {
    let folder = setting.path("durable");
    std::fs::create_dir_all(&folder).map_err(LabError::system("cannot make a folder"))?;
    let up = Up::start(&setting.thalweg, &folder)?;
    let mut api = Api::open(&up)?;
    let form = json!({"name": "keyed", "text": DURABLE, "policies": {"input": "durable"}});
    api.call("POST", "/api/v1/statements", Some(&form))?;
    let mut site = Site {
        up,
        api,
        counted: 0,
        sum: 0,
    };
    let (mut most, mut acknowledged, mut lost) = (Duration::ZERO, 0, 0);
    for kill in 0..kills {
        let address = site.up.address("mqtt")?.to_owned();
        let publishers = Publishers::start_acknowledged(&address, "keys", 1, Pace::Rate(PACED))?;
        let answers = publishers.acknowledged();
        std::thread::sleep(Duration::from_millis(1_000 + kill * 373 % 2_000));
        let (next, began) = site.restarted(setting, &folder)?;
        // It was cut off by the kill.
        let _ = publishers.stop();
        site = next;
        let answered = answers.load(Ordering::Relaxed);
        let wanted = site.counted + answered;
        site.api.until("keyed", "received_total", wanted)?;
        most = most.max(began.elapsed());
        site.rest()?;
        acknowledged += answered;
        lost += answered.saturating_sub(site.round()?);
    }
    outcome.add("durable: recovery at most", most.as_secs_f64());
    outcome.add("durable: kills", kills as f64);
    outcome.add("durable: acknowledged between kills", acknowledged as f64);
    outcome.add("durable: acknowledged and not counted", lost as f64);
    // Who looks at the rows has to look before they come.
    site.api.call("GET", ROWS, None)?;
    let last = json!({"id": "last", "seq": 0, "ts": LAST_TIME}).to_string();
    let message = json!({"topic": "keys/last", "text": last, "qos": 1});
    site.api
        .call("POST", "/api/v1/mqtt/publish", Some(&message))?;
    site.api.until("keyed", "emitted_total", 1)?;
    let rows = site.api.call("GET", &format!("{ROWS}&after=0"), None)?;
    let row = &rows["rows"][0];
    let value = |name: &str| -> Result<u64, LabError> {
        let value = row[name].as_u64();
        value.ok_or_else(|| LabError::Failed(format!("the window's row is not there: {rows}")))
    };
    let off = value("n")?.abs_diff(site.counted);
    outcome.add("durable: counts off by", off as f64);
    let off = value("s")?.abs_diff(site.sum);
    outcome.add("durable: sums off by", off as f64);
    site.up.process.stop()
}

impl Site {
    /// Waits until the statement's count stands: it has been given what its input held.
    fn rest(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + STALL_MAX;
        let (mut last, mut since) = (0, Instant::now());
        while since.elapsed() < POLL * 50 {
            let now = self.api.count("keyed", "received_total")?;
            if now != last {
                (last, since) = (now, Instant::now());
            }
            if Instant::now() > deadline {
                return Err(LabError::Failed("the statement does not rest".to_owned()));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}

const DURABLE: &str = "INSERT INTO mqtt.\"totals\" SELECT count(*) AS n, sum(seq) AS s \
    FROM TUMBLE(mqtt.\"keys/+\", ts, INTERVAL '366 days')";
const ROWS: &str = "/api/v1/statements/keyed/rows?wait_ms=0";
