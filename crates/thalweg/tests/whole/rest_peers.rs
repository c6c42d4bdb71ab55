//! Proxies on one store that reach each other over TLS.

use serde_json::json;

use crate::access::Certificates;
use crate::harness::{Answer, Up, curl, eventually, folder};
use crate::rest_survival::{JSON_V2, proxy_before};

const V2: &str = "application/vnd.kafka.v2+json";

#[test]
fn an_instance_is_found_by_another_proxy_over_tls() {
    let dir = folder();
    let certificates = Certificates::make(dir.path());
    let store = Up::start(&dir.path().join("store"));
    let streams = store.address("streams");
    // Whoever calls shows a certificate, other proxies too.
    let settings = [
        format!("rest.tls.certificate={}", certificates.path("server.pem")),
        format!("rest.tls.key={}", certificates.path("server.key")),
        format!("rest.tls.client_ca={}", certificates.path("ca.pem")),
        "rest.tls.client_auth=required".to_owned(),
        format!("rest.peer_ca={}", certificates.path("ca.pem")),
    ];
    let settings: Vec<&str> = settings.iter().flat_map(|set| ["--set", set]).collect();
    let [mut first, second] =
        ["first", "second"].map(|name| proxy_before(&streams, &dir.path().join(name), &settings));
    let call = |up: &Up, path: &str, media: &str, body: Option<&str>| -> Answer {
        let (ca, certificate) = (certificates.path("ca.pem"), certificates.path("ann.pem"));
        let (key, media) = (
            certificates.path("ann.key"),
            format!("Content-Type: {media}"),
        );
        let url = format!("https://{}{path}", up.address("rest"));
        let accept = format!("Accept: {JSON_V2}, {V2}");
        let mut arguments = vec!["--cacert", &ca, "--cert", &certificate, "--key", &key];
        arguments.extend(["--header", &media, "--header", &accept]);
        if let Some(body) = body {
            arguments.extend(["--data-binary", body]);
        }
        arguments.push(&url);
        curl(&arguments)
    };
    let produced = r#"{"records":[{"value":1},{"value":2}]}"#;
    let answer = call(&first, "/topics/shared", JSON_V2, Some(produced));
    assert_eq!(answer.status, 200, "{}", answer.body);
    let asked = json!({"name": "i", "format": "json", "auto.offset.reset": "earliest"});
    let answer = call(&first, "/consumers/g", V2, Some(&asked.to_string()));
    assert_eq!(answer.status, 200, "{}", answer.body);

    let instance = "/consumers/g/instances/i";
    let topics = r#"{"topics":["shared"]}"#;
    let subscribe = format!("{instance}/subscription");
    let answer = call(&second, &subscribe, V2, Some(topics));
    assert_eq!(answer.status, 204, "{}", answer.body);
    let records = format!("{instance}/records?timeout=1000");
    eventually("the other proxy reads", || {
        let answer = call(&second, &records, V2, None);
        assert_eq!(answer.status, 200, "{}", answer.body);
        (answer.json().as_array().unwrap().len() == 2).then_some(())
    });
    let counted = |up: &Up, name: &str| {
        let metrics = curl(&[&up.url("management", "/metrics")]).body;
        let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name));
        lines
            .next()
            .map_or(0, |rest| rest.trim().parse::<u64>().unwrap())
    };
    assert!(counted(&second, "thalweg_rest_requests_sent_on_total ") >= 2);
    let taken = "thalweg_rest_consumer_instances_taken_over_total ";
    assert_eq!(
        counted(&second, taken),
        0,
        "it was not reached, but taken over"
    );

    // Without the other one it goes on here.
    let answer = call(&second, &format!("{instance}/offsets"), V2, Some(""));
    assert_eq!(answer.status, 200, "{}", answer.body);
    first.kill();
    let more = call(
        &second,
        "/topics/shared",
        JSON_V2,
        Some(r#"{"records":[{"value":3}]}"#),
    );
    assert_eq!(more.status, 200, "{}", more.body);
    eventually("the record behind is read", || {
        let answer = call(&second, &records, V2, None);
        if answer.status == 503 {
            return None;
        }
        assert_eq!(answer.status, 200, "{}", answer.body);
        let told = answer.json();
        let values: Vec<_> = told
            .as_array()
            .unwrap()
            .iter()
            .map(|it| &it["value"])
            .collect();
        values.contains(&&json!(3)).then_some(())
    });
    assert_eq!(counted(&second, taken), 1);
}

#[test]
fn a_file_that_holds_no_certificate_is_told_at_the_start() {
    let dir = folder();
    let store = Up::start(&dir.path().join("store"));
    let servers = format!(
        "streams.kafka.bootstrap_servers={}",
        store.address("streams")
    );
    let path = dir.path().join("ca.pem");
    std::fs::write(&path, "nothing").unwrap();
    let mut command = crate::harness::thalweg_command();
    command.args(["up", "--role", "rest", "--set", &servers]);
    command.args([
        "--set",
        "rest.listen=127.0.0.1:0",
        "--set",
        "fleet.listen=127.0.0.1:0",
    ]);
    command.args(["--set", &format!("rest.peer_ca={}", path.display())]);
    let output = command.arg("--data").arg(dir.path().join("data")).output();
    let output = output.unwrap();
    let told = crate::harness::text(&output.stderr);
    assert!(!output.status.success(), "{told}");
    assert!(
        told.contains("ca.pem") && told.contains("no certificate"),
        "{told}"
    );
}
