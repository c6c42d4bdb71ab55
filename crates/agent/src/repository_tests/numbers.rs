//! No number of a FlowFile comes twice.

use super::*;

#[test]
fn no_number_comes_twice_even_if_nothing_durable_has_it() {
    for flow_files in [FlowFileKind::Disk, FlowFileKind::Volatile] {
        let options = RepositoryOptions {
            flow_files,
            ..RepositoryOptions::default()
        };
        let dir = tempfile::tempdir().unwrap();
        let mut given_out = 0;
        for start in 0..4 {
            let repository = open_as(dir.path(), options);
            let first = repository.ids(1_000);
            assert!(first >= given_out, "{flow_files:?}: start {start}");
            given_out = first + 1_000;
            if start == 1 {
                // So many that more must be reserved, which the next commit does.
                repository.ids(3 << 30);
                repository.save_state("p", Bytes::new()).unwrap();
                given_out = repository.ids(3 << 30) + (3 << 30);
            }
            repository.close().unwrap();
        }
    }
}
