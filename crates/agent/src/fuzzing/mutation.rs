//! The fuzz targets' bodies over mutated corpora, for where there is no fuzzer: a second each, or
//! as many as `THALWEG_FUZZ_SECONDS` says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use base::Rng;

/// Throws mutations of a target's corpus at it; what fails is shown as a text that Rust reads.
fn throw(target: &str, body: fn(&[u8])) {
    let folder = format!("{}/../../fuzz/corpus/{target}", env!("CARGO_MANIFEST_DIR"));
    let mut corpus = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        corpus.push(std::fs::read(entry.unwrap().path()).unwrap());
    }
    let seconds = std::env::var("THALWEG_FUZZ_SECONDS").ok();
    let seconds = seconds.map_or(1, |text| text.parse().unwrap());
    let until = Instant::now() + Duration::from_secs(seconds);
    let seed = match seconds {
        1 => 1,
        _ => Rng::from_entropy().below(u64::MAX),
    };
    let mut random = Rng::from_seed(seed);
    let mut count = 0_u64;
    while Instant::now() < until || count < INPUTS_MIN {
        let mut input = pick(&corpus, &mut random).clone();
        for _ in 0..=random.below(6) {
            mutate(&mut input, &corpus, &mut random);
        }
        input.truncate(BYTES_MAX);
        let begun = Instant::now();
        let outcome = catch_unwind(AssertUnwindSafe(|| body(&input)));
        let shown = || input.escape_ascii().to_string();
        assert!(outcome.is_ok(), "{target}, seed {seed}: b\"{}\"", shown());
        let took = begun.elapsed();
        assert!(
            took < SLOW,
            "{target}, seed {seed}, took {took:?}: b\"{}\"",
            shown()
        );
        count += 1;
    }
    println!("{target}: {count} inputs, seed {seed}");
}

fn pick<'c>(corpus: &'c [Vec<u8>], random: &mut Rng) -> &'c Vec<u8> {
    &corpus[random.below(corpus.len() as u64) as usize]
}

fn mutate(input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Rng) {
    let len = input.len() as u64;
    let at = random.below(len + 1) as usize;
    let some = (random.below(1 + (len - at as u64).min(40))) as usize;
    match random.below(7) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = ODD[random.below(ODD.len() as u64) as usize],
        2 => drop(input.drain(at..at + some)),
        3 => {
            let piece = input[at..at + some].to_vec();
            let times = 1 + random.below(20) as usize;
            input.splice(at..at, piece.repeat(times));
        }
        4 => {
            let other = pick(corpus, random);
            let from = random.below(other.len() as u64 + 1) as usize;
            let piece = &other[from..other.len().min(from + 60)];
            input.splice(at..at, piece.iter().copied());
        }
        5 => {
            let word = WORDS[random.below(WORDS.len() as u64) as usize];
            input.splice(at..at, word.iter().copied());
        }
        _ => {
            let mut bytes = [0; 4];
            random.fill(&mut bytes);
            input.splice(at..at, bytes);
        }
    }
}

#[test]
fn mutated_flows_are_read_or_refused() {
    throw("flow_definition", super::flow_definition);
}

#[test]
fn mutated_expressions_are_evaluated_or_refused() {
    throw("expression", super::expression);
}

#[test]
fn mutated_bytes_of_peers_are_read_or_refused() {
    throw("agent_network", super::network);
}

#[test]
fn mutated_records_are_read_or_refused() {
    throw("agent_records", super::records);
}

#[test]
fn mutated_repositories_are_opened_or_refused() {
    throw("agent_repository", super::repository);
}

#[test]
fn mutated_channels_are_opened_or_refused() {
    throw("agent_channel", channel);
}

/// The fuzz target, with its keys.
pub(super) fn channel(input: &[u8]) {
    super::channel(&KEYS, input);
}

/// Its keys.
pub(super) const KEYS: [[&[u8]; 2]; 2] = [
    [
        include_bytes!("../../../../fuzz/keys/small.der"),
        include_bytes!("../../../../fuzz/keys/small.key"),
    ],
    [
        include_bytes!("../../../../fuzz/keys/large.der"),
        include_bytes!("../../../../fuzz/keys/large.key"),
    ],
];

/// Bytes at borders.
const ODD: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b'"', b'{'];

/// What means something to one of the readers.
const WORDS: [&[u8]; 12] = [
    b"${",
    b"}",
    b"'",
    b"\"",
    b"$$",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"{\"type\":\"array\",\"items\":",
    b"- {",
    b"99999999999999999999",
    b"-9223372036854775808",
    b":format(",
    b"\xed\xa0\x80",
];

/// However slow the machine is.
const INPUTS_MIN: u64 = 20;

/// Longer inputs only repeat themselves.
const BYTES_MAX: usize = 16 << 10;

/// What takes longer is a hang, also on a machine that is busy.
const SLOW: Duration = Duration::from_secs(10);
