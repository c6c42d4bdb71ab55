//! The NiFi C2 client library, unchanged, against the fleet.

use crate::harness::{Up, folder};

#[test]
fn placeholder_until_the_client_is_wired() {
    let dir = folder();
    let up = Up::start(&dir.path().join("data"));
    assert_eq!(up.get("/api/v1/agents")["agents"].as_array().unwrap().len(), 0);
}
