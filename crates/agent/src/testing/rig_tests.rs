//! The rig itself: what it shows is what the processor did.

use std::time::Duration;

use super::Rig;

#[test]
fn a_killed_session_leaves_its_input_where_it_was() {
    let mut rig = Rig::new("UpdateAttribute", &[("mark", "${filename}!")]);
    rig.put(&[("filename", "a")], "content");
    rig.kill_before_commit();
    assert_eq!((rig.waiting(), rig.counts()), (1, vec![]));
    rig.run();
    assert_eq!((rig.waiting(), rig.counts()), (0, vec![("success", 1)]));
    rig.kill();
    let out = rig.one("success");
    assert_eq!((out.text(), out.attribute("mark")), ("content", "a!"));
    assert_eq!(rig.counts(), []);
}

#[test]
fn mistakes_in_properties_are_told_as_users_read_them() {
    let made = Rig::try_new("PutFile", &[("Directori", "x")], serde_json::json!({}));
    let error = made.err().unwrap();
    assert!(error.contains("PutFile has no such property"), "{error}");
}

#[test]
fn relationships_of_properties_and_the_clock_are_the_tests_own() {
    let mut rig = Rig::new("RouteOnAttribute", &[("late", "${now():gt(${then})}")]);
    let then = rig.now().0.to_string();
    rig.put(&[("then", &then)], "");
    rig.run();
    rig.advance(Duration::from_millis(1));
    rig.put(&[("then", &then)], "");
    rig.run();
    assert_eq!(rig.counts(), [("unmatched", 1), ("late", 1)]);
    assert_eq!((rig.state().len(), rig.bulletins()), (0, vec![]));
}
