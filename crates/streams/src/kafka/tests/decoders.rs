//! The guard's shapes against the codec, and both against bytes that no client would send.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::Rng;
use bytes::Bytes;

use super::super::connection::Frames;
use super::super::fuzzing::{Scribe, round_trip};
use super::super::guard::{self, Field, Refused};
use super::super::shapes;
use super::super::table::APIS;

/// Whether the codec knows the version; what it does not, we read ourselves.
fn is_in_codec(key: i16, version: i16) -> bool {
    !matches!(
        (key, version),
        (18, 5) | (8 | 9, 10) | (78 | 79, 2) | (90, 1)
    )
}

fn for_each_version(mut run: impl FnMut(i16, i16, bool, &'static [Field])) {
    for api in APIS {
        let (key, from, to, flexible_from, shape) = api.facts();
        for version in from..=to {
            run(key, version, version >= flexible_from, shape);
        }
    }
}

fn random_body(seed: u64, version: i16, flexible: bool, shape: &'static [Field]) -> Bytes {
    let mut rng = Rng::from_seed(seed);
    let mut draw = |bound: u64| rng.below(bound);
    let mut scribe = Scribe::new(&mut draw, version, flexible);
    scribe.fields(shape);
    Bytes::from(scribe.out)
}

#[test]
fn shapes_and_codec_agree_on_every_byte_of_every_version() {
    for_each_version(|key, version, flexible, shape| {
        for seed in 0..60 {
            let body = random_body(seed, version, flexible, shape);
            let context = format!("API {key} version {version} seed {seed}");
            let walked = guard::check(shape, version, flexible, &body);
            assert_eq!(walked, Ok(body.len()), "{context}: the guard");
            if !is_in_codec(key, version) {
                continue;
            }
            let (left, again) = round_trip(key, version, flexible, shape, &body)
                .unwrap_or_else(|error| panic!("{context}: the codec refuses: {error}"));
            assert_eq!(left, 0, "{context}: the codec stopped early");
            assert_eq!(again, body, "{context}: the codec writes something else");
        }
    });
}

#[test]
fn tags_that_only_followers_send_are_refused_in_a_fetch() {
    // Waits, sizes and session of zero, and nothing wanted, nothing forgotten, no rack.
    let mut body = vec![0; 4 + 4 + 4 + 1 + 4 + 4];
    body.extend([1, 1, 1]);
    for (tag, expected) in [(0, false), (1, false), (2, true), (9, true)] {
        // One tagged field of two bytes.
        let tagged = [&body[..], &[1, tag, 2, 0, 0]].concat();
        let walked = guard::check(shapes::FETCH, 17, true, &tagged);
        assert_eq!(walked.is_ok(), expected, "tag {tag}: {walked:?}");
    }
}

#[test]
fn every_cut_of_a_request_is_refused() {
    for_each_version(|key, version, flexible, shape| {
        let body = random_body(7, version, flexible, shape);
        for end in 0..body.len() {
            let walked = guard::check(shape, version, flexible, &body[..end]);
            assert!(
                walked.is_err(),
                "API {key} version {version} cut at {end}: {walked:?}"
            );
        }
    });
}

#[test]
fn lengths_larger_than_the_request_are_refused_before_anything_is_allocated() {
    let mut tried = 0;
    for_each_version(|key, version, flexible, shape| {
        if flexible {
            return;
        }
        let body = random_body(3, version, flexible, shape);
        // Wherever a count may stand: a huge one there is refused, or was no count.
        for at in 0..body.len().saturating_sub(3) {
            let mut hostile = body.to_vec();
            hostile[at..at + 4].copy_from_slice(&i32::MAX.to_be_bytes());
            if guard::check(shape, version, flexible, &hostile).is_ok() {
                // It may still be no UTF-8, say; what counts is that this returns at all.
                let _ = round_trip(key, version, flexible, shape, &Bytes::from(hostile));
            } else {
                tried += 1;
            }
        }
    });
    assert!(tried > 1_000, "only {tried} hostile lengths were refused");
}

#[test]
fn many_empty_elements_do_not_become_much_memory() {
    let count = guard::REQUEST_ELEMENTS_MAX + 1;
    let mut body = i32::try_from(count).unwrap().to_be_bytes().to_vec();
    body.extend(std::iter::repeat_n(0, 2 * count));
    let walked = guard::check(shapes::DELETE_GROUPS, 0, false, &body);
    assert_eq!(walked, Err(Refused::Elements));
    // A structure with more tagged fields than Kafka has ever defined.
    let mut tags = vec![0, 33];
    tags.extend(std::iter::repeat_n(0, 66));
    assert_eq!(
        guard::check(shapes::LIST_GROUPS, 4, true, &tags),
        Err(Refused::Elements)
    );
}

#[test]
fn random_bytes_never_panic_a_decoder() {
    for_each_version(|key, version, flexible, shape| {
        for seed in 0..150 {
            let mut rng = Rng::from_seed(seed);
            // Half random bytes, half requests with a few bytes changed: those get deeper.
            let mut bytes = if seed % 2 == 0 {
                let mut bytes = vec![0; usize::try_from(rng.below(120)).unwrap()];
                rng.fill(&mut bytes);
                bytes
            } else {
                random_body(seed, version, flexible, shape).to_vec()
            };
            for _ in 0..rng.below(4) {
                if !bytes.is_empty() {
                    let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                    bytes[at] = u8::try_from(rng.below(256)).unwrap();
                }
            }
            let body = Bytes::from(bytes);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                if guard::check(shape, version, flexible, &body).is_ok() {
                    // Refusing is fine, as is taking.
                    let _ = round_trip(key, version, flexible, shape, &body);
                }
            }));
            assert!(
                outcome.is_ok(),
                "API {key} version {version} seed {seed} panicked"
            );
        }
    });
}

#[test]
fn headers_are_read_whatever_they_say() {
    let mut whole = vec![0, 3, 0, 9, 0, 0, 0, 5, 0, 2];
    whole.extend(b"me");
    let (header, bytes) = guard::read_header(&whole).unwrap();
    assert_eq!((header.key, header.version, header.correlation), (3, 9, 5));
    assert_eq!((header.client_id, bytes), ("me", 12));
    for end in 0..whole.len() {
        assert!(guard::read_header(&whole[..end]).is_err());
    }
    whole[8..10].copy_from_slice(&(-7_i16).to_be_bytes());
    assert_eq!(guard::read_header(&whole), Err(Refused::Length));
}

#[test]
fn frames_come_out_whole_however_they_are_cut() {
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let mut stream = Vec::new();
        let mut sent = Vec::new();
        for _ in 0..rng.below(6) {
            let mut frame = vec![0; usize::try_from(rng.below(300)).unwrap()];
            rng.fill(&mut frame);
            stream.extend(i32::try_from(frame.len()).unwrap().to_be_bytes());
            stream.extend(&frame);
            sent.push(Bytes::from(frame));
        }
        let mut frames = Frames::new(Arc::default());
        let mut received = Vec::new();
        let mut rest = &stream[..];
        while !rest.is_empty() {
            let cut = usize::try_from(rng.below(90) + 1).unwrap().min(rest.len());
            frames.extend(&rest[..cut]);
            rest = &rest[cut..];
            while let Some(frame) = frames.next().unwrap() {
                received.push(frame);
            }
        }
        assert_eq!(received, sent, "seed {seed}");
    }
}

#[test]
fn frames_of_impossible_length_are_refused() {
    for length in [-1, i32::MIN, i32::MAX, (100 << 20) + 1] {
        let mut frames = Frames::new(Arc::default());
        frames.extend(&length.to_be_bytes());
        assert!(frames.next().is_err(), "{length} was taken");
    }
}
