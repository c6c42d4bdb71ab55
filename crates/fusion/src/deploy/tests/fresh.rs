//! Signed commands that are sent again.

use serde_json::{Value as Json, json};

use super::{Yard, wait};

#[tokio::test(flavor = "multi_thread")]
async fn a_signed_command_that_says_when_it_was_issued_counts_once() {
    let yard = Yard::open(1, false).await;
    let audit = yard.hear("thalweg/audit/+");
    let (answers, errors) = (yard.hear("answers"), yard.hear("/statement/errors/"));
    let fusion = yard.nodes[0].fusion();
    let sealed = |operation: &str, envelope: &Json| {
        let topic = format!("/statement/{operation}");
        yard.sealed(&topic, envelope.to_string().as_bytes())
    };
    let add = || {
        let form = json!({"id": "s", "name": "n", "text": "SELECT v FROM mqtt.\"in\""});
        fusion.add(serde_json::from_value(form).unwrap())
    };
    add().await.unwrap();
    let mut envelope = json!({"id": "q", "targets": [], "returnEndpoint": "answers",
        "issued_ms": fusion.now()});
    let delete = sealed("delete/s", &envelope);
    yard.publish("/statement/delete/s", &delete, false);
    wait("the answer", || answers.count() == 1).await;
    assert_eq!(fusion.statements().len(), 0);
    add().await.unwrap();
    yard.publish("/statement/delete/s", &delete, false);
    wait("the refusal", || audit.count() == 1).await;
    let why = audit.last().1["why"].as_str().unwrap().to_owned();
    assert!(why.contains("had before"), "{why}");
    assert_eq!((fusion.statements().len(), answers.count()), (1, 1));
    // Without it, as before: it counts each time.
    envelope.as_object_mut().unwrap().remove("issued_ms");
    let get = sealed("get", &envelope);
    for _ in 0..2 {
        yard.publish("/statement/get", &get, false);
    }
    wait("the answers", || answers.count() == 3).await;
    // The server's own topics are nobody's endpoint.
    envelope["returnEndpoint"] = json!("$SYS/broker/nothing");
    let sys = yard.hear("$SYS/broker/nothing");
    let before = sys.count();
    yard.publish("/statement/get", &sealed("get", &envelope), false);
    wait("the refusal", || errors.count() == 1).await;
    assert_eq!(errors.last().1["responses"][0]["status"], 400);
    assert_eq!(sys.count(), before);
    yard.close().await;
}
