//! Windows over a million keys: what their checkpoints cost, and kill -9 in the middle.

mod durable;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::experiment::{Experiment, LabError, Measure, Outcome, Setting};
use crate::experiments::fusion::{Api, mib};
use crate::limits::{POLL, STALL_MAX};
use crate::mqtt::{FIRST_NUMBER, Pace, Publishers};
use crate::process::Up;
use crate::stats;

/// `thalweg lab run fusion-keys`.
pub const EXPERIMENT: Experiment = Experiment {
    name: "fusion-keys",
    about: "windows over a million keys: memory, cost of checkpoints, exact totals over kill -9",
    method: "One thalweg up on embedded defaults. A publisher's messages become records of a topic by a \
        rule, and a statement counts and sums them by 1,000,003 keys in one window; each message is of \
        another key than those of the five seconds before. Checkpoints' cost: the server's CPU time per \
        message at 200,000 a second with a checkpoint each second, over that without any (an interval \
        of an hour) in a process of its own, by turns. Kills: kill -9 after one to three seconds at that rate, of \
        QoS 1 if the machine takes it; recovery is from the start of the next process until the \
        statement has read all that its topic holds. A hundred kills, 5 in the short form. After each, \
        the statement must have counted every message that was acknowledged. Then a last message \
        closes the window, and the rows' counts and sums must be those that a fresh statement finds in \
        the topic, whose numbers must have no gap. The same kills then for a durable statement that takes its \
        messages from MQTT itself: its one row must be what the publishers' numbers come to without a gap or a \
        double.",
    peer: None,
    measures,
    run,
};

fn measures() -> Vec<Measure> {
    let mut measures = vec![
        Measure::new("CPU per message, without checkpoints", "µs"),
        Measure::new("CPU per message, a checkpoint a second", "µs"),
        Measure::new("cost of checkpoints", "%").at_most(10.0),
        Measure::new("state", "MiB"),
        Measure::new("resident memory", "MiB"),
        Measure::new("recovery p50", "s"),
        Measure::new("recovery at most", "s").at_most(2.0),
        Measure::new("kills", "count"),
        Measure::new("acknowledged between kills", "messages"),
        Measure::new("acknowledged and not counted", "messages").at_most(0.0),
        Measure::new("records", "count").detail(),
        Measure::new("numbers off by", "units").at_most(0.0),
        Measure::new("counts off by", "records").at_most(0.0),
        Measure::new("sums off by", "units").at_most(0.0),
    ];
    measures.extend(durable::measures());
    measures
}

fn run(setting: &Setting) -> Result<Outcome, LabError> {
    let (kills, paced) = match setting.quick {
        true => (5, Duration::from_secs(8)),
        false => (100, Duration::from_secs(60)),
    };
    let mut outcome = Outcome::default();
    let without = setting.path("without");
    std::fs::create_dir_all(&without).map_err(LabError::system("cannot make a folder"))?;
    let mut bare = Site::start(setting, &without, &["fusion.checkpoint_interval=1h"])?;
    let mut site = Site::start(setting, setting.folder(), &[])?;
    bare.fill()?;
    site.fill()?;
    let (mut base, mut kept) = (0.0, 0.0);
    for _ in 0..TURNS {
        base += bare.cost(paced / TURNS)? / f64::from(TURNS);
        kept += site.cost(paced / TURNS)? / f64::from(TURNS);
    }
    bare.up.process.stop()?;
    outcome.add("CPU per message, without checkpoints", base);
    outcome.add("CPU per message, a checkpoint a second", kept);
    outcome.add("cost of checkpoints", (kept / base - 1.0) * 100.0);
    let state = site.api.count("keyed", "state_bytes")?;
    outcome.add("state", mib(state));
    outcome.add(
        "resident memory",
        mib(site.up.process.usage()?.resident_bytes),
    );
    let (mut recoveries, mut acknowledged, mut lost) = (Vec::new(), 0, 0);
    for kill in 0..kills {
        let address = site.up.address("mqtt")?.to_owned();
        let publishers = Publishers::start_acknowledged(&address, "keys", 1, Pace::Rate(PACED))?;
        let answers = publishers.acknowledged();
        // At another place between two checkpoints each time.
        std::thread::sleep(Duration::from_millis(1_000 + kill * 373 % 2_000));
        let (next, took) = site.killed(setting)?;
        // It was cut off by the kill.
        let _ = publishers.stop();
        recoveries.push(took.as_secs_f64());
        site = next;
        let (answered, counted) = (answers.load(Ordering::Relaxed), site.round()?);
        acknowledged += answered;
        lost += answered.saturating_sub(counted);
    }
    outcome.add("acknowledged between kills", acknowledged as f64);
    outcome.add("acknowledged and not counted", lost as f64);
    let sorted = stats::sorted(&recoveries);
    let quantile = |q: f64| stats::quantile(&sorted, q).unwrap_or(f64::NAN);
    outcome.add("recovery p50", quantile(0.5));
    outcome.add("recovery at most", quantile(1.0));
    outcome.add("kills", kills as f64);
    site.check(&mut outcome)?;
    site.up.process.stop()?;
    durable::run(setting, kills, &mut outcome)?;
    Ok(outcome)
}

/// A server with the statement.
struct Site {
    up: Up,
    api: Api,
    /// Messages that the statement has counted.
    counted: u64,
    /// What their numbers come to, if each round's have no gap.
    sum: u64,
}

impl Site {
    fn start(setting: &Setting, folder: &Path, set: &[&str]) -> Result<Site, LabError> {
        let up = Up::start_with(&setting.thalweg, folder, set)?;
        let mut api = Api::open(&up)?;
        let rule = json!({"name": "keys", "from": "mqtt:keys/+", "to": "kafka:keyed", "key": ""});
        api.call("POST", "/api/v1/mqtt/rules", Some(&rule))?;
        api.add("keyed", KEYED)?;
        Ok(Site {
            up,
            api,
            counted: 0,
            sum: 0,
        })
    }

    /// How many messages the statement has counted since the last round; a publisher's numbers
    /// begin anew with each.
    fn round(&mut self) -> Result<u64, LabError> {
        let counted = self.api.count("keyed", "received_total")?;
        let own = counted - self.counted;
        self.counted = counted;
        self.sum += own * FIRST_NUMBER + own * own.saturating_sub(1) / 2;
        Ok(own)
    }

    fn publish(&self, pace: Pace) -> Result<Publishers, LabError> {
        Publishers::start(self.up.address("mqtt")?, "keys", 1, pace)
    }

    /// Has a message of each key come.
    fn fill(&mut self) -> Result<(), LabError> {
        let publishers = self.publish(Pace::Rate(FILLING))?;
        let began = Instant::now();
        while self.api.count("keyed", "received_total")? < KEYS + KEYS / 10 {
            if began.elapsed() > FILL_MAX {
                return Err(LabError::Failed(
                    "the keys were not there in time".to_owned(),
                ));
            }
            std::thread::sleep(POLL);
        }
        self.counted(publishers.stop()?)
    }

    /// CPU time of the server per message when all keys are there, microseconds.
    fn cost(&mut self, length: Duration) -> Result<f64, LabError> {
        let before = self.up.process.usage()?;
        let publishers = self.publish(Pace::Rate(PACED))?;
        std::thread::sleep(length);
        let sent = publishers.stop()?;
        self.counted(sent)?;
        let cpu = self.up.process.usage()?.cpu.saturating_sub(before.cpu);
        Ok(cpu.as_secs_f64() * 1e6 / sent as f64)
    }

    /// Waits until the statement has counted what a publisher has sent, the last of it perhaps still
    /// on its way, and ends the round.
    fn counted(&mut self, sent: u64) -> Result<(), LabError> {
        let wanted = self.counted + sent;
        self.api.until("keyed", "received_total", wanted)?;
        self.round().map(|_| ())
    }

    /// Waits until the statement has read all records that there are.
    fn caught_up(&mut self) -> Result<(), LabError> {
        let deadline = Instant::now() + STALL_MAX;
        loop {
            let statement = self.api.call("GET", "/api/v1/statements/keyed", None)?;
            if statement["status"] == "running" && statement["lag_records"] == 0 {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(LabError::Failed(format!(
                    "the statement did not catch up: {statement}"
                )));
            }
            std::thread::sleep(POLL / 4);
        }
    }

    /// Kills the server and starts it again; how long it took until the statement had caught up.
    fn killed(self, setting: &Setting) -> Result<(Site, Duration), LabError> {
        let (mut site, began) = self.restarted(setting, setting.folder())?;
        site.caught_up()?;
        Ok((site, began.elapsed()))
    }

    /// Kills the server and starts it again, and when it began.
    fn restarted(self, setting: &Setting, folder: &Path) -> Result<(Site, Instant), LabError> {
        self.up.process.kill();
        // What the last run left says nothing of this one's ports.
        let _ = std::fs::remove_file(folder.join("up").join("endpoints.json"));
        let began = Instant::now();
        let up = Up::start(&setting.thalweg, folder)?;
        let api = Api::open(&up)?;
        Ok((Site { up, api, ..self }, began))
    }

    /// Closes the window, and compares its rows with the records.
    fn check(&mut self, outcome: &mut Outcome) -> Result<(), LabError> {
        let last = json!({"id": "last", "seq": 0, "ts": LAST_TIME}).to_string();
        let message = json!({"topic": "keys/last", "text": last, "qos": 1});
        self.api
            .call("POST", "/api/v1/mqtt/publish", Some(&message))?;
        self.api.until("keyed", "emitted_total", KEYS)?;
        for (name, text) in [
            ("table", TABLE),
            ("of-rows", OF_ROWS),
            ("of-records", OF_RECORDS),
        ] {
            let form = json!({
                "name": name, "text": text, "language": "epl", "start": "earliest",
            });
            self.api.call("POST", "/api/v1/statements", Some(&form))?;
        }
        let (mut seen, mut moved) = (Value::Null, Instant::now());
        while moved.elapsed() < STALL_MAX / 4 {
            std::thread::sleep(POLL * 10);
            let query = json!({"text": "select what, n, s from Sums"});
            let path = "/api/v1/statements/query";
            let now = self.api.call("POST", path, Some(&query))?;
            if now != seen {
                (seen, moved) = (now, Instant::now());
            }
        }
        let value = |what: &str, name: &str| -> Result<i64, LabError> {
            let rows = seen["rows"].as_array().map_or(&[][..], Vec::as_slice);
            let row = rows.iter().find(|row| row["what"] == what);
            let value = row.and_then(|row| row[name].as_i64());
            value.ok_or_else(|| LabError::Failed(format!("no sum of {what}: {seen}")))
        };
        let records = value("records", "n")?;
        outcome.add("records", records as f64);
        let off = value("records", "s")?.abs_diff(i64::try_from(self.sum).unwrap_or(i64::MAX));
        outcome.add("numbers off by", off as f64);
        // The last message's own window stays open.
        let off = (records - 1).abs_diff(value("rows", "n")?);
        outcome.add("counts off by", off as f64);
        let off = value("records", "s")?.abs_diff(value("rows", "s")?);
        outcome.add("sums off by", off as f64);
        Ok(())
    }
}

/// Of two numbers that follow each other, the keys lie far apart; a number comes again after as many
/// messages as there are keys. The messages' times are microseconds, so the window is of nine hours.
const KEYED: &str = "INSERT INTO kafka.totals SELECT seq * 7919 % 1000003 AS k, count(*) AS n, \
    sum(seq) AS s FROM TUMBLE(kafka.keyed, ts, INTERVAL '366 days') GROUP BY seq * 7919 % 1000003";
const TABLE: &str = "create table Sums (what string primary key, n long, s long)";
const OF_ROWS: &str = "on kafka.totals as e merge Sums as t where t.what = 'rows' \
    when matched then update set n = t.n + e.n, s = t.s + e.s \
    when not matched then insert select 'rows' as what, e.n as n, e.s as s";
const OF_RECORDS: &str = "on kafka.keyed as e merge Sums as t where t.what = 'records' \
    when matched then update set n = t.n + 1, s = t.s + e.seq \
    when not matched then insert select 'records' as what, 1 as n, e.seq as s";
const KEYS: u64 = 1_000_003;
/// The load of each measurement, messages a second.
const PACED: u64 = 200_000;
/// The rate at which the keys first come.
const FILLING: u64 = 400_000;
/// How long that may take.
const FILL_MAX: Duration = Duration::from_secs(60);
/// How often what checkpoints cost is measured with and without them.
const TURNS: u32 = 3;
/// Behind every window of a message.
const LAST_TIME: u64 = 4_000_000_000_000_000;
