//! MeasureThroughput: a sink that counts what it gets and says how fast it came.

use std::time::Duration;

use base::UnixMillis;

use super::{
    Dynamic, Input, Next, Processor, ProcessorError, ProcessorKind, PropertyKind, RelationshipKind,
    Settings, Shape,
};
use crate::engine::Context;
use crate::flowfile::FlowFile;
use crate::session::ProcessSession;

/// The processor's definition.
pub(super) const KIND: ProcessorKind = ProcessorKind {
    name: "MeasureThroughput",
    description: "Counts FlowFiles and their bytes and writes the rates to the log, as the \
                  processor of MiNiFi's tuning article does. Content is not read unless asked for.",
    properties: &[
        PropertyKind::new("Reporting Interval", "Time between two lines in the log.")
            .default("1 sec")
            .shape(Shape::Duration),
        PropertyKind::new(
            "Batch Size",
            "FlowFiles taken in one commit; 0 means any number.",
        )
        .default("0")
        .shape(Shape::Integer(0)),
        PropertyKind::new(
            "Read Content",
            "Whether each content is read to its end, so that reading is measured too.",
        )
        .default("false")
        .shape(Shape::Flag),
    ],
    dynamic: Dynamic::None,
    relationships: &[RelationshipKind {
        name: "success",
        description: "All FlowFiles.",
    }],
    writes: &[],
    input: Input::Required,
    make: |settings| MeasureThroughput::new(settings).map(|made| Box::new(made) as _),
};

struct MeasureThroughput {
    interval: Duration,
    batch: usize,
    reads: bool,
    all: Counted,
    /// Since the last line.
    recent: Counted,
    since: Option<UnixMillis>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    flow_files: u64,
    bytes: u64,
}

impl MeasureThroughput {
    fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Ok(MeasureThroughput {
            interval: settings.duration("Reporting Interval")?,
            batch: match settings.integer("Batch Size")? {
                0 => usize::MAX,
                count => count,
            },
            reads: settings.flag("Read Content")?,
            all: Counted::default(),
            recent: Counted::default(),
            since: None,
        })
    }

    fn report(&mut self, context: &Context, now: UnixMillis) {
        let Some(since) = self.since else {
            return;
        };
        let elapsed = now.since(since);
        if elapsed < self.interval || elapsed.is_zero() {
            return;
        }
        let seconds = elapsed.as_secs_f64();
        tracing::info!(
            processor = context.name(),
            flow_files = self.all.flow_files,
            bytes = self.all.bytes,
            flow_files_per_second = (self.recent.flow_files as f64 / seconds).round(),
            megabytes_per_second = (self.recent.bytes as f64 / seconds / 1e4).round() / 100.0,
            "throughput"
        );
        self.recent = Counted::default();
        self.since = Some(now);
    }

    fn read(session: &ProcessSession<'_>, flow_file: &FlowFile) -> Result<(), ProcessorError> {
        let mut reader = session.reader(flow_file);
        loop {
            let piece = reader.piece().map_err(super::files::content_failed)?;
            if piece.is_empty() {
                return Ok(());
            }
            reader.consume(piece.len());
        }
    }
}

impl Processor for MeasureThroughput {
    fn trigger(
        &mut self,
        context: &Context,
        session: &mut ProcessSession<'_>,
    ) -> Result<Next, ProcessorError> {
        let now = session.now();
        self.since.get_or_insert(now);
        let flow_files = session.take(self.batch, u64::MAX);
        if self.reads {
            for flow_file in &flow_files {
                Self::read(session, flow_file)?;
            }
        }
        let taken = Counted {
            flow_files: flow_files.len() as u64,
            bytes: flow_files.iter().map(FlowFile::size).sum(),
        };
        session.transfer_all(flow_files, 0);
        session.commit()?;
        for counted in [&mut self.all, &mut self.recent] {
            counted.flow_files += taken.flow_files;
            counted.bytes += taken.bytes;
        }
        self.report(context, now);
        // A line about silence too, but only one.
        Ok(if self.recent == Counted::default() {
            Next::Scheduled
        } else {
            Next::ScheduledOr(self.interval)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::processors::Next;
    use crate::testing::{Logged, Rig};

    #[test]
    fn rates_are_written_once_an_interval() {
        let mut rig = Rig::new("MeasureThroughput", &[("Read Content", "true")]);
        let logged = Logged::default();
        logged.during(|| {
            for _ in 0..4 {
                rig.put(&[], vec![0; 500_000]);
            }
            assert!(matches!(rig.trigger(), Ok(Next::ScheduledOr(_))));
            assert!(logged.text().is_empty(), "it is too early");
            rig.advance(Duration::from_secs(2));
            assert_eq!(rig.trigger(), Ok(Next::Scheduled));
        });
        let line = logged.text();
        for part in [
            "flow_files=4",
            "bytes=2000000",
            "flow_files_per_second=2",
            "megabytes_per_second=1",
        ] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert_eq!(rig.counts(), [("success", 4)]);
    }
}
