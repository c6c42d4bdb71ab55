//! Statements over MQTT messages and Kafka records: each takes events from one source, filters,
//! computes and aggregates them, and sends rows (JSON objects) to one target.
//!
//! A statement is written in EPL ([`epl`]) or SQL ([`sql`]) and compiled onto a [`plan::Plan`],
//! which both share. It runs on the buffer that its source hands over: only the fields that
//! statements name are scanned out of the payload, nothing is built per message, and rows are
//! written as JSON straight into the buffer that goes to the sink.
//!
//! # What statements mean
//!
//! This is said of SQL; what EPL says otherwise stands in docs/epl.md.
//!
//! * **Events** are JSON payloads. `a.b` is field `b` of object `a`; `payload` is the whole
//!   payload (also a bare number or text) and `payload.a` the field `a`, whatever it is called.
//!   Field names are compared exactly. `_topic`, `_timestamp` (ms), `_key`, `_partition` and
//!   `_offset` come from the source (the last three are null for MQTT). A payload that is no JSON
//!   is counted in `errored_total` and changes nothing else; a statement that reads no field takes
//!   any payload. Retained MQTT messages are no events: only what is published now is.
//! * **Null**: a missing field is null. Arithmetic, comparison and functions with a null, or with
//!   a value of a type they do not take, give null. AND, OR and NOT follow three-valued logic; a
//!   WHERE or HAVING that is null lets nothing pass.
//! * **Numbers** are 64-bit integers where the JSON number is one, else doubles. `+ - *` of
//!   integers stay integers (past 64 bits: a double), `/` always gives a double, `%` of integers
//!   an integer. What JSON cannot write (x/0, overflow) is null. Integers and doubles compare
//!   exactly; numbers and texts are never equal, and nothing is converted without a CAST, which
//!   gives null where it cannot. CAST to BIGINT cuts decimals off.
//! * **Texts** compare by code point. `||` and `concat` take numbers too and give null when a part
//!   is null. `length` counts characters. LIKE takes `%`, `_` and ESCAPE; ILIKE ignores case.
//! * **Aggregates** skip nulls and values of a wrong type: `count(x)`, `sum` (an integer while all
//!   values are), `avg` (a double), `min`, `max` (numbers, texts or truth values; of mixed kinds
//!   the first kind counts, where events may come in any order numbers before texts), `first`,
//!   `last`, `stddev` (of the sample; null below two values).
//!   `count(*)` counts events. Of no values, counts are 0 and everything else is null. `FILTER
//!   (WHERE …)` works on each. `min`, `max`, `first` and `last` skip texts over 64 KiB.
//! * **Windows** tumble, hop or are sessions, and are aligned to the epoch (sessions to their first
//!   event). Time is the record's timestamp (Kafka), the
//!   arrival (MQTT), or a named column in milliseconds or by RFC 3339. A window gives one row per
//!   group, groups in the order in which they were first seen (with a `lateness`: of their keys,
//!   since who was first is chance then), and no row when it is empty;
//!   `window_start` and `window_end` are in ms. It closes when the watermark (the greatest time
//!   seen, less `lateness`; over several partitions the least of those that are being read)
//!   reaches its end. Events of closed windows are counted in `late_total` and not applied; by
//!   arrival nothing is late. Time first advances, then the event is applied. Without a time
//!   column a window is also closed by the wall clock, `fusion.close_delay` after its end, when
//!   nothing more waits at the source; with one, only later events close it.
//!   With a time column, or records and a `lateness`, no aggregate hangs on the order in which a
//!   window's events come: sums of doubles are exact, `first` and `last` go by time.
//! * **Joins** are of two sources within a time: see [`plan::Within`]. Events of both sides are taken
//!   in the order of their times; a pair comes with the later one, and an event of an outer side
//!   alone when nothing can join it any more.
//! * **Order**: one event goes through all statements of a source before the next one does, and
//!   the same events in the same order give the same rows whatever batches they come in.
//!
//! # What is kept, and what a crash may cost
//!
//! Statements are durable when their addition is answered, and start again with their state.
//!
//! | from | to | after a crash (process or machine) |
//! | --- | --- | --- |
//! | Kafka | Kafka | every input record counts exactly once in state and rows |
//! | Kafka | MQTT | exactly once in state; rows of up to the last checkpoint interval may come twice |
//! | MQTT | Kafka, MQTT | state goes back to the last checkpoint: messages since then (by default of up to 1 s) are lost to it, also acknowledged ones, and a window whose row was sent to MQTT just before may be sent again; rows of windows into Kafka are stored once |
//!
//! For Kafka sources, input positions and state are one checkpoint; the reader is in no consumer
//! group. Rows into Kafka are kept in the checkpoint before they are produced under the
//! statement's producer id, and so a repeated batch is recognized by the store, also one that the
//! wall clock closed. All rows of a statement go to one partition, in order; a row made of one
//! record keeps that record's key, and its timestamp is the event's time or the last millisecond
//! of its window. A machine's crash may take a lazily written checkpoint back by a few seconds,
//! since those are not synced; the table holds all the same.
//!
//! # Books
//!
//! `received = filtered + emitted_from + errored + late + dropped + in_flight`, at any instant.
//! Rows that a full sink has not taken hold the source back; nothing is dropped for speed. A
//! statement that meets a bound of its state is suspended with an error and counts what comes as
//! dropped; a restart tries again from its last checkpoint.

mod aggregate;
mod chains;
mod codec;
mod config;
mod demand;
pub mod deploy;
mod digest;
pub mod epl;
mod error;
mod expression;
mod feed;
mod file;
pub mod formats;
mod functions;
mod fusion;
pub mod fuzzing;
mod group;
pub mod http;
mod input;
mod json;
mod lane;
mod limits;
mod machine;
mod meter;
mod observe;
mod output;
pub mod plan;
mod polls;
mod query;
mod reader;
mod retry;
mod row;
pub mod rules;
mod session;
pub mod sinks;
pub mod sql;
mod statement;
mod store;
mod suggest;
mod tap;
mod time;
pub mod trial;
mod value;
mod window;
mod writer;

#[cfg(test)]
mod tests;

pub use config::{ErrorsConfig, FunctionsConfig, FusionConfig};
pub use error::{FusionError, TextError};
pub use expression::Expression;
pub use fusion::{Around, Explained, Fusion, NewFunctions, ShownFunctions, ShownType};
pub use json::FieldPath;
pub use polls::{Polled, PollsConfig};
pub use statement::{
    Definition, GroupInfo, Language, NewStatement, Origin, PollInfo, ReplacedState, Replacement,
    Start, StatementInfo, Status,
};
pub use tap::Tail;
