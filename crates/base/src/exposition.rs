//! Metrics as Prometheus reads them: text, a family at a time, each with its meaning.
//!
//! Source: Prometheus documentation, "Text-based format", version 0.0.4.

use std::fmt::Write;

use crate::histogram::HistogramReading;

/// Metrics written one after another.
#[derive(Debug, Default)]
pub struct Exposition {
    text: String,
}

/// What kind of metric a family is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only grows, but for a restart.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Values counted by bounds.
    Histogram,
    /// The sum and number of values.
    Summary,
}

/// One family of metrics, open for its values.
#[derive(Debug)]
pub struct Family<'e> {
    text: &'e mut String,
    name: &'e str,
}

impl Exposition {
    /// Begins a family; `help` is one line.
    pub fn family<'e>(&'e mut self, kind: MetricKind, name: &'e str, help: &str) -> Family<'e> {
        let kind = match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Summary => "summary",
        };
        push(
            &mut self.text,
            format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"),
        );
        Family {
            text: &mut self.text,
            name,
        }
    }

    /// A family of one counter.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(MetricKind::Counter, name, help)
            .value(&[], value as f64);
    }

    /// A family of one gauge.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(MetricKind::Gauge, name, help).value(&[], value);
    }

    /// A family of one histogram.
    pub fn histogram(&mut self, name: &str, help: &str, reading: &HistogramReading) {
        self.family(MetricKind::Histogram, name, help)
            .histogram(&[], reading);
    }

    /// What was written.
    pub fn into_text(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// A value of the family.
    pub fn value(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line("", labels, None, value);
    }

    /// A histogram of the family.
    pub fn histogram(&mut self, labels: &[(&str, &str)], reading: &HistogramReading) {
        for (bound, count) in &reading.cumulative {
            self.line("_bucket", labels, Some(*bound), *count as f64);
        }
        self.line("_bucket", labels, Some(f64::INFINITY), reading.count as f64);
        self.line("_sum", labels, None, reading.sum);
        self.line("_count", labels, None, reading.count as f64);
    }

    /// A summary of the family.
    pub fn summary(&mut self, labels: &[(&str, &str)], sum: f64, count: u64) {
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count as f64);
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], bound: Option<f64>, value: f64) {
        self.text.push_str(self.name);
        self.text.push_str(suffix);
        let mut between = '{';
        for (name, value) in labels {
            self.text.push(between);
            push(self.text, format_args!("{name}=\""));
            escape(self.text, value);
            self.text.push('"');
            between = ',';
        }
        match bound {
            Some(bound) if bound.is_finite() => {
                push(self.text, format_args!("{between}le=\"{bound}\"}}"));
            }
            Some(_) => push(self.text, format_args!("{between}le=\"+Inf\"}}")),
            None if between == ',' => self.text.push('}'),
            None => {}
        }
        push(self.text, format_args!(" {value}\n"));
    }
}

/// Writing into a string cannot fail.
fn push(text: &mut String, piece: std::fmt::Arguments<'_>) {
    let _ = text.write_fmt(piece);
}

fn escape(text: &mut String, value: &str) {
    for letter in value.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;

    #[test]
    fn families_are_written_as_prometheus_reads_them() {
        let mut out = Exposition::default();
        out.counter("reads_total", "Reads.", 3);
        let mut sizes = out.family(MetricKind::Gauge, "size_bytes", "Size of a topic.");
        sizes.value(&[("topic", "a\"b\\c\n"), ("partition", "0")], 1.5);
        let mut times = out.family(MetricKind::Summary, "call_seconds", "Calls.");
        times.summary(&[("class", "edge")], 0.5, 2);
        assert_eq!(
            out.into_text(),
            "# HELP reads_total Reads.\n# TYPE reads_total counter\nreads_total 3\n\
             # HELP size_bytes Size of a topic.\n# TYPE size_bytes gauge\n\
             size_bytes{topic=\"a\\\"b\\\\c\\n\",partition=\"0\"} 1.5\n\
             # HELP call_seconds Calls.\n# TYPE call_seconds summary\n\
             call_seconds_sum{class=\"edge\"} 0.5\ncall_seconds_count{class=\"edge\"} 2\n"
        );
    }

    #[test]
    fn a_histogram_ends_with_all_of_its_values() {
        let histogram = Histogram::of_counts();
        histogram.record(100_000);
        let mut out = Exposition::default();
        out.histogram("batch_frames", "Frames.", &histogram.read());
        let text = out.into_text();
        assert!(
            text.contains("batch_frames_bucket{le=\"65536\"} 0\n"),
            "{text}"
        );
        assert!(
            text.contains("batch_frames_bucket{le=\"+Inf\"} 1\n"),
            "{text}"
        );
        assert!(
            text.contains("batch_frames_sum 100000\nbatch_frames_count 1\n"),
            "{text}"
        );
    }
}
