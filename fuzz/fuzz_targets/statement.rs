//! Texts of statements in both languages: compiled or refused at a place of the text.
#![no_main]

use fusion::epl::Catalog;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let lines = text.split('\n').count() as u64;
    for compiled in [
        fusion::epl::compile(text, &Catalog::default()),
        fusion::sql::compile(text),
    ] {
        if let Err(error) = compiled {
            assert!(error.line >= 1 && error.line <= lines && error.column >= 1);
        }
    }
});
