//! What fuzzing has found or reached, replayed: every file of the corpus through the function that
//! its target calls.

use std::path::Path;

use crate::fuzzing;

type Target = fn(&[u8]);

/// The targets, by the names of their folders.
const TARGETS: [(&str, Target); 7] = [
    ("kafka_request", fuzzing::request),
    ("record_batch", fuzzing::record_batch),
    ("unpack", fuzzing::unpack),
    ("journal_frame", fuzzing::frame),
    ("journal_recovery", fuzzing::recovery),
    ("member_metadata", fuzzing::member_metadata),
    ("login", access::fuzzing::login),
];

#[test]
fn nothing_that_fuzzing_reached_panics() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    for (target, run) in TARGETS {
        let files = std::fs::read_dir(corpus.join(target))
            .unwrap_or_else(|error| panic!("no corpus of {target}: {error}"));
        let mut count = 0;
        for file in files {
            let path = file.unwrap().path();
            let input = std::fs::read(&path).unwrap();
            // The name of the file that fails is what a reader needs.
            let ran = std::panic::catch_unwind(|| run(&input));
            assert!(ran.is_ok(), "{} fails", path.display());
            count += 1;
        }
        assert!(count > 0, "the corpus of {target} is empty");
    }
}
