//! The status as a page of text.

use std::fmt::Write;

use base::{UnixMillis, format_rfc3339};

use super::status::{ProcessorView, QueueView, StatusView};

/// The page; rates are those since `before`, where there is one.
pub(super) fn render(now: &StatusView, before: Option<&StatusView>) -> String {
    let mut out = String::new();
    let name = now.flow_name.as_deref().unwrap_or("no flow");
    let state = match (now.is_running, now.is_paused) {
        (true, true) => "paused".to_owned(),
        (true, false) if !now.stopped_by.is_empty() => {
            "running, but its sources rest: the disk is nearly full".to_owned()
        }
        (true, false) => "running".to_owned(),
        (false, _) if now.stopped_by.is_empty() => "not running".to_owned(),
        (false, _) => format!("stopped by {}", now.stopped_by.join(" and ")),
    };
    let memory = now.resident_bytes.map_or_else(|| "?".to_owned(), size);
    line(&mut out, format_args!("{name}: {state}"));
    if let Some(id) = &now.flow_id {
        line(&mut out, format_args!("flow {id}"));
    }
    let repository = &now.repository;
    line(
        &mut out,
        format_args!(
            "agent {} pid {}, memory {memory}, on disk {}, live content {}, parked {}",
            now.version,
            now.pid,
            size(repository.bytes_on_disk),
            size(repository.content_bytes),
            repository.parked,
        ),
    );
    line(&mut out, format_args!(""));
    line(
        &mut out,
        format_args!(
            "{:<28} {:>8} {:>10} {:>10} {:>11} {:>11}",
            "processor", "state", "in", "out", "in/s", "out/s"
        ),
    );
    for processor in &now.processors {
        let old = before.and_then(|before| before.processors.iter().find(|p| p.id == processor.id));
        let rates = old
            .zip(before)
            .and_then(|(old, before)| rates(processor, old, now, before));
        let (per_second_in, per_second_out) = rates.unwrap_or_default();
        let state = match (processor.is_running, processor.is_active) {
            (false, _) => "stopped",
            (true, true) => "busy",
            (true, false) => "waiting",
        };
        line(
            &mut out,
            format_args!(
                "{:<28} {state:>8} {:>10} {:>10} {per_second_in:>11} {per_second_out:>11}",
                cut(&processor.name, 28),
                processor.flow_files_in,
                processor.flow_files_out,
            ),
        );
    }
    line(&mut out, format_args!(""));
    line(
        &mut out,
        format_args!(
            "{:<28} {:>10} {:>10} {:>5}  ",
            "queue", "FlowFiles", "bytes", "full"
        ),
    );
    for queue in &now.queues {
        let full = fullness(queue);
        line(
            &mut out,
            format_args!(
                "{:<28} {:>10} {:>10} {:>4}%  {}",
                cut(&queue.name, 28),
                queue.flow_files,
                size(queue.bytes),
                full,
                "#".repeat(usize::try_from(full.min(100) / 5).unwrap_or(20)),
            ),
        );
    }
    if !now.bulletins.is_empty() {
        line(&mut out, format_args!(""));
    }
    for bulletin in &now.bulletins {
        line(
            &mut out,
            format_args!(
                "{} {} {}: {}",
                format_rfc3339(UnixMillis(bulletin.time_ms)),
                bulletin.level,
                bulletin.source,
                bulletin.message
            ),
        );
    }
    out
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{text}");
}

/// FlowFiles in and out per second.
fn rates(
    now: &ProcessorView,
    old: &ProcessorView,
    at: &StatusView,
    before: &StatusView,
) -> Option<(String, String)> {
    let millis = u64::try_from(at.time_ms - before.time_ms)
        .ok()
        .filter(|ms| *ms > 0)?;
    // A flow that started anew counts from zero.
    let rate = |now: u64, old: u64| (now.saturating_sub(old) * 1_000 / millis).to_string();
    Some((
        rate(now.flow_files_in, old.flow_files_in),
        rate(now.flow_files_out, old.flow_files_out),
    ))
}

/// How full a queue is, by whatever bound is nearer, in per cent.
fn fullness(queue: &QueueView) -> u64 {
    let share = |value: u64, max: u64| match max {
        0 => 0,
        max => value.saturating_mul(100) / max,
    };
    share(queue.flow_files, queue.flow_files_max).max(share(queue.bytes, queue.bytes_max))
}

fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            let digits = usize::from(unit != "B");
            return format!("{value:.digits$} {unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

fn cut(text: &str, chars: usize) -> String {
    text.chars().take(chars).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(out: u64, time_ms: i64) -> StatusView {
        serde_json::from_value(json!({
            "version": "1", "pid": 7, "time_ms": time_ms, "uptime_ms": 5, "flow_id": "f", "flow_name": "lines",
            "is_running": true, "is_paused": false, "stopped_by": [],
            "processors": [{
                "id": "p", "name": "tail", "kind": "TailFile", "is_running": true, "is_active": false,
                "flow_files_in": 0, "flow_files_out": out, "bytes_in": 0, "bytes_out": 0,
                "bytes_read": 0, "bytes_written": 0, "invocations": 1, "processing_ns": 1,
            }],
            "queues": [{
                "id": "q", "name": "tail to put", "flow_files": 50, "flow_files_max": 100,
                "bytes": 2048, "bytes_max": 0,
            }],
            "repository": {"bytes_on_disk": 1048576, "content_bytes": 0, "provenance_bytes": 0,
                "is_full": false, "parked": 0},
            "bulletins": [], "resident_bytes": 1024, "cpu_ms": 5,
        }))
        .unwrap()
    }

    #[test]
    fn queues_and_rates_are_shown() {
        let before = view(1_000, 10_000);
        let page = render(&view(3_000, 12_000), Some(&before));
        let row = page.lines().find(|line| line.starts_with("tail ")).unwrap();
        let words: Vec<&str> = row.split_whitespace().collect();
        assert_eq!(words, ["tail", "waiting", "0", "3000", "0", "1000"]);
        assert!(page.contains("50    2.0 KiB   50%  ##########\n"), "{page}");
        assert!(page.starts_with("lines: running\n"), "{page}");
    }
}
