//! What is counted where it happens: each metric's meaning, and its series from the start, so that
//! a rate is known from the first event on.

use metrics::{Label, counter, describe_counter, describe_histogram, histogram};

/// Tells the recorder of all of them.
pub fn describe() {
    for (name, help, label) in COUNTERS {
        describe_counter!(name, help);
        let Some((label, values)) = label else {
            counter!(name).increment(0);
            continue;
        };
        for value in values {
            let labels = vec![Label::from_static_parts(label, value)];
            counter!(name, labels).increment(0);
        }
    }
    for (name, help) in HISTOGRAMS {
        describe_histogram!(name, help);
        // Registered; it has no values yet.
        let _ = histogram!(name);
    }
}

/// Name, meaning, and the label with its values, where there is one.
type Counter = (
    &'static str,
    &'static str,
    Option<(&'static str, &'static [&'static str])>,
);

const COUNTERS: [Counter; 25] = [
    (
        "thalweg_fleet_manifests_not_kept_total",
        "Manifests that came and were not kept: too large, too many, or too many new ones of one agent.",
        None,
    ),
    (
        "thalweg_fleet_manifests_removed_total",
        "Manifests that nobody had any more.",
        None,
    ),
    (
        "thalweg_fleet_classes_removed_total",
        "Empty classes that went by themselves.",
        None,
    ),
    (
        "thalweg_fleet_rows_dropped_total",
        "Rows that the database does not take, so that they hold up no others.",
        None,
    ),
    (
        "thalweg_fleet_heartbeats_total",
        "Heartbeats, by what became of them.",
        Some(("result", &["ok", "error"])),
    ),
    (
        "thalweg_fleet_heartbeat_bytes_total",
        "Bytes of heartbeats, unpacked.",
        None,
    ),
    (
        "thalweg_fleet_acknowledges_total",
        "Acknowledges, by what they came to.",
        Some((
            "result",
            &["decided", "late", "duplicate", "foreign", "unknown"],
        )),
    ),
    (
        "thalweg_fleet_operations_asked_total",
        "Operations that operators asked for.",
        None,
    ),
    (
        "thalweg_fleet_operations_handed_out_total",
        "Operations in answers to heartbeats, each time counted.",
        None,
    ),
    (
        "thalweg_fleet_operations_timed_out_total",
        "Operations that timed out.",
        None,
    ),
    (
        "thalweg_fleet_flows_published_total",
        "Flow versions that were published.",
        None,
    ),
    (
        "thalweg_fleet_flows_fetched_total",
        "Flows that agents fetched.",
        None,
    ),
    (
        "thalweg_fleet_rollouts_halted_total",
        "Roll-outs that halted for failures.",
        None,
    ),
    (
        "thalweg_fleet_resources_uploaded_total",
        "Resources that were uploaded.",
        None,
    ),
    (
        "thalweg_fleet_bundles_received_total",
        "Debug bundles that agents sent.",
        None,
    ),
    (
        "thalweg_fleet_agents_removed_total",
        "Agents that were removed for their silence.",
        None,
    ),
    (
        "thalweg_fleet_duplicate_identifiers_total",
        "Times that one identifier was found in use by two agents.",
        None,
    ),
    (
        "thalweg_fleet_wrong_certificates_total",
        "Calls refused because the certificate is another agent's.",
        None,
    ),
    (
        "thalweg_fleet_audit_entries_total",
        "Calls of the management API that were to change something.",
        None,
    ),
    (
        "thalweg_fleet_events_total",
        "Events, by level.",
        Some(("level", &["debug", "info", "warn", "error"])),
    ),
    (
        "thalweg_fleet_events_dropped_total",
        "Events dropped because the database took none for long.",
        None,
    ),
    (
        "thalweg_fleet_alerts_total",
        "Alerts for the webhook, by what became of them.",
        Some(("result", &["sent", "refused", "expired", "dropped"])),
    ),
    (
        "thalweg_fleet_write_behind_agents_total",
        "Agents' rows that the write-behind wrote.",
        None,
    ),
    (
        "thalweg_fleet_forwarded_total",
        "Messages for the topics of heartbeats and acknowledges, by what became of them.",
        Some(("result", &["stored", "dropped", "refused"])),
    ),
    (
        "thalweg_fleet_forward_failures_total",
        "Times that the event store did not take what was to be forwarded; it is tried again.",
        None,
    ),
];

const HISTOGRAMS: [(&str, &str); 2] = [
    (
        "thalweg_fleet_heartbeat_seconds",
        "From a heartbeat's head to its answer.",
    ),
    (
        "thalweg_fleet_write_behind_seconds",
        "Time that one write-behind took.",
    ),
];
