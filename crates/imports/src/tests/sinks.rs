//! Formats, policies, search and the counter, on every kind of database.

use sql::test_servers::{mariadb, postgres};

use super::*;

/// The same on a file, PostgreSQL and MariaDB.
pub(super) async fn on_every_database<F: Future<Output = ()>>(run: impl Fn(Service) -> F) {
    for address in [
        None,
        Some(postgres().new_database().await),
        Some(mariadb().new_database().await),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let config = ImportsConfig {
            database: address.map(Into::into),
            ..small_slices(7)
        };
        run(Service::open(folder.path(), config).await).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_format_of_the_same_records_stores_the_same() {
    on_every_database(|service| async move {
        let files: [(&str, Vec<u8>); 3] = [
            ("marc", books(0..40)),
            ("marcxml", as_xml(0..40)),
            ("marcjson", as_json(0..40)),
        ];
        for (format, file) in files {
            let query = format!("format={format}&tenant={format}&sink=records");
            let id = service.import(&query, file).await;
            let job = service.ended(&id).await;
            assert_eq!(job["state"], "completed", "{job}");
            assert_eq!(
                (&job["records_created"], &job["records_total"]),
                (&40.into(), &40.into())
            );
        }
        for n in [0, 17, 39] {
            let of = |format: &str| format!("/api/v1/records/{format}/{n:08}");
            let iso = service.get(&of("marc")).await;
            assert_eq!(
                iso["title"].as_str().unwrap().split(' ').nth(3),
                Some(&*n.to_string())
            );
            for twin in ["marcxml", "marcjson"] {
                assert_eq!(service.get(&of(twin)).await["body"], iso["body"], "{twin}");
            }
        }
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_profile_decides_what_becomes_of_records_that_are_there() {
    on_every_database(|service| async move {
        let profile = |name: &str, text: &str| {
            let path = format!("/api/v1/profiles/{name}?tenant=t");
            let text = text.to_owned();
            let service = &service;
            async move {
                let (status, answer) = service.call("PUT", &path, text).await;
                assert_eq!(status, 200, "{answer}");
            }
        };
        let base = r#""id":"id","match":"isbn","fields":{"by":"author.name"}"#;
        profile("skip", &format!("{{{base},\"on_match\":\"skip\"}}")).await;
        profile("fail", &format!("{{{base},\"on_match\":\"fail\"}}")).await;
        profile("update", &format!("{{{base}}}")).await;
        profile("only", &format!("{{{base},\"on_no_match\":\"skip\"}}")).await;
        let first = "{\"id\":1,\"isbn\":\"a\",\"title\":\"One\",\"author\":{\"name\":\"N\"}}\n\
             {\"id\":2,\"isbn\":\"b\",\"title\":\"Two\"}\n";
        let query = |profile: &str| format!("format=jsonl&tenant=t&profile={profile}&topic=p");
        let id = service.import(&query("update"), first).await;
        assert_eq!(service.ended(&id).await["records_created"], 2);
        let second = "{\"id\":8,\"isbn\":\"a\",\"title\":\"New\"}\n{\"id\":9,\"isbn\":\"c\"}\n";
        let counts = [
            "records_created",
            "records_updated",
            "records_skipped",
            "records_rejected",
        ];
        for (profile, expected) in [
            ("only", [0, 1, 1, 0]),
            ("skip", [1, 0, 1, 0]),
            ("fail", [0, 0, 0, 2]),
            ("update", [0, 2, 0, 0]),
        ] {
            let id = service.import(&query(profile), second).await;
            let job = service.ended(&id).await;
            assert_eq!(
                counts.map(|c| job[c].as_i64().unwrap()),
                expected,
                "{profile}: {job}"
            );
            let journaled = service.journal(&id).await.len();
            assert_eq!(journaled as i64, expected[2] + expected[3], "{profile}");
        }
        // The record that matched keeps its id and has the new text.
        let record = service.get("/api/v1/records/t/1").await;
        assert_eq!(
            (&record["title"], &record["id"]),
            (&"New".into(), &"1".into())
        );
        let (status, _) = service
            .call("GET", "/api/v1/records/t/8", Body::empty())
            .await;
        assert_eq!(status, 404);
        // Every intact record went to the topic, whatever the policy made of it.
        assert_eq!(service.topic("p").await.values().sum::<usize>(), 10);
        let (status, error) = service
            .call(
                "POST",
                "/api/v1/imports?format=jsonl&tenant=t&profile=none",
                "{}",
            )
            .await;
        assert_eq!(status, 404, "{error}");
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_slice_of_a_turn_is_accounted_for() {
    on_every_database(|service| async move {
        let profile = "{\"id\":\"id\",\"match\":\"id\",\"on_match\":\"fail\"}";
        let path = "/api/v1/profiles/once?tenant=t";
        assert_eq!(service.call("PUT", path, profile).await.0, 200);
        // Slices of seven: the second has a line that cannot be read, the third a record that the first
        // has, the fourth nothing but lines that cannot be read.
        let line = |n: usize| match n {
            9 | 21..28 => "{\n".to_owned(),
            16 => "{\"id\":2}\n".to_owned(),
            n => format!("{{\"id\":{n}}}\n"),
        };
        let lines: String = (0..40).map(line).collect();
        let query = "format=jsonl&tenant=t&profile=once&topic=once";
        let id = service.import(query, lines).await;
        let job = service.ended(&id).await;
        let counts = ["records_done", "records_rejected"].map(|count| job[count].as_i64());
        assert_eq!(counts, [31, 9].map(Some), "{job}");
        let select = "SELECT first_ordinal, records, rejected, base_offset FROM import_slices ORDER BY start";
        let database = &service.imports.core.registry.database;
        let rows = database.rows("look", &sql::Statement::new(select)).await;
        let slices: Vec<_> = rows
            .unwrap()
            .iter()
            .map(|row| {
                let number = |column| row.number(column).unwrap();
                let offset = row.maybe_number("base_offset").unwrap();
                (number("first_ordinal"), number("records"), number("rejected"), offset)
            })
            .collect();
        let expected = [
            (1, 7, 0, Some(0)),
            (8, 6, 1, Some(7)),
            (15, 6, 1, Some(13)),
            (22, 0, 7, None),
            (29, 7, 0, Some(20)),
            (36, 5, 0, Some(27)),
        ];
        assert_eq!(slices, expected);
        let journal: Vec<_> = service.journal(&id).await;
        let ordinals = journal.iter().map(|entry| entry["ordinal"].as_u64().unwrap());
        assert_eq!(ordinals.collect::<Vec<_>>(), [10, 17, 22, 23, 24, 25, 26, 27, 28]);
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_is_what_the_database_counts_at_every_look() {
    on_every_database(|service| async move {
        let mut file = books(0..600);
        file.extend_from_slice(b"damage\x1d");
        let id = service.import("format=marc&tenant=t&topic=t", file).await;
        let database = &service.imports.core.registry.database;
        let count = sql::Statement::new(
            "SELECT j.records_done AS done,
             (SELECT count(*) FROM import_records r WHERE r.job = j.number) AS found,
             j.records_rejected AS rejected,
             (SELECT count(*) FROM import_journal e WHERE e.job = j.number) AS journaled
             FROM import_jobs j",
        );
        let mut looks = 0;
        loop {
            let row = database.row("count", &count).await.unwrap().unwrap();
            let n = |column| row.number(column).unwrap();
            assert_eq!((n("done"), n("rejected")), (n("found"), n("journaled")));
            looks += 1;
            if n("done") == 600 && n("rejected") == 1 {
                break;
            }
        }
        assert!(looks > 2, "it was over before it was looked at");
        assert_eq!(service.ended(&id).await["state"], "completed_with_rejects");
        let tenants = service.get("/api/v1/imports/tenants").await;
        assert_eq!(tenants["tenants"][0]["records_done"], 600, "{tenants}");
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_found_by_their_words_and_by_their_tenant_alone() {
    on_every_database(|service| async move {
        let id = service
            .import("format=marc&tenant=one&sink=records", books(0..60))
            .await;
        service.ended(&id).await;
        let lines = "{\"id\":1,\"title\":\"The book of Hours\",\"n\":\"caf\u{e9} 17\"}\n";
        let id = service
            .import("format=jsonl&tenant=two&key=id", lines)
            .await;
        service.ended(&id).await;
        let search = |query: &str| format!("/api/v1/search?{query}");
        service.indexed().await;
        let total = |found: &Value| found["total"].as_u64().unwrap();
        let found = service.get(&search("tenant=one&q=book%2017")).await;
        assert_eq!(
            (total(&found), &found["records"][0]["id"]),
            (1, &"00000017".into()),
            "{found}"
        );
        assert_eq!(total(&service.get(&search("tenant=one&q=boo*")).await), 60);
        assert_eq!(total(&service.get(&search("tenant=one&q=hours")).await), 0);
        assert_eq!(
            total(
                &service
                    .get(&search("tenant=two&q=%22book%20of%22%20cafe"))
                    .await
            ),
            1
        );
        assert_eq!(
            total(&service.get(&search("tenant=two&q=%22of%20book%22")).await),
            0
        );
        // A record that is replaced is found by its new words only.
        let lines = "{\"id\":1,\"title\":\"Days\"}\n";
        let id = service
            .import("format=jsonl&tenant=two&key=id", lines)
            .await;
        service.ended(&id).await;
        service.indexed().await;
        assert_eq!(total(&service.get(&search("tenant=two&q=hours")).await), 0);
        assert_eq!(total(&service.get(&search("tenant=two&q=days")).await), 1);
        let (status, _) = service.post("/api/v1/search/rebuild").await;
        assert_eq!(status, 202);
        service.indexed().await;
        assert_eq!(total(&service.get(&search("tenant=one&q=book")).await), 60);
        let (status, error) = service.call("GET", &search("q=-"), Body::empty()).await;
        assert_eq!(status, 400, "{error}");
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_index_is_made_again_from_the_sink() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(50)).await;
    let id = service
        .import("format=marc&sink=records", books(0..600))
        .await;
    service.ended(&id).await;
    service.close().await;
    for name in ["search.db", "search.db-wal", "search.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join("imports").join(name));
    }
    let service = Service::open(folder.path(), small_slices(50)).await;
    service.indexed().await;
    assert_eq!(service.get("/api/v1/search?q=book").await["total"], 600);
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_out_once_and_an_import_does_not_bring_it_back() {
    on_every_database(|service| async move {
        let lines = "{\"id\":\"a/b\",\"title\":\"One\"}\n";
        let id = service.import("format=jsonl&tenant=t&key=id", lines).await;
        service.ended(&id).await;
        let path = "/api/v1/records/t/a%2Fb";
        let out = format!("{path}/check-out");
        let take = |who: &str| service.call("POST", &out, format!("{{\"holder\":\"{who}\"}}"));
        let (one, two) = tokio::join!(take("ada"), take("bob"));
        let mut statuses = [one.0, two.0];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409], "{one:?} {two:?}");
        let id = service.import("format=jsonl&tenant=t&key=id", lines).await;
        assert_eq!(service.ended(&id).await["records_updated"], 1);
        let record = service.get(path).await;
        assert!(
            ["ada", "bob"].contains(&record["holder"].as_str().unwrap()),
            "{record}"
        );
        let (status, answer) = service.post(&format!("{path}/check-in")).await;
        assert_eq!((status, &answer["version"]), (200, &3.into()), "{answer}");
        let (status, _) = service.post(&format!("{path}/check-in")).await;
        assert_eq!(status, 409);
        let history = service.get(&format!("{path}/history")).await;
        let actions: Vec<&str> = history["entries"]
            .as_array()
            .unwrap()
            .iter()
            .map(|entry| entry["action"].as_str().unwrap())
            .collect();
        assert_eq!(actions, ["check_in", "check_out"]);
        let (status, _) = service.call("POST", &out, "{\"holder\":\"\"}").await;
        assert_eq!(status, 400);
        let (status, _) = service.post("/api/v1/records/u/a%2Fb/check-in").await;
        assert_eq!(status, 404, "another tenant's record");
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_in_parts_while_people_are_served_is_whole() {
    on_every_database(|service| async move {
        let line = |n: usize| format!("{{\"id\":\"b{n}\",\"title\":\"{n}\"}}\n");
        let id = service
            .import("format=jsonl&tenant=t&key=id", line(0))
            .await;
        service.ended(&id).await;
        let (status, out) = service
            .call(
                "POST",
                "/api/v1/records/t/b0/check-out",
                "{\"holder\":\"ada\"}",
            )
            .await;
        assert_eq!(status, 200, "{out}");
        // More than one part, and a rest; one record twice, in two parts.
        let lines: String = (0..120).chain([7]).map(line).collect();
        let id = service.import("format=jsonl&tenant=t&key=id", lines).await;
        let job = service.ended(&id).await;
        let counts = ["records_done", "records_created", "records_updated"];
        assert_eq!(
            counts.map(|count| job[count].as_u64()),
            [121, 119, 2].map(Some)
        );
        for n in 0..120 {
            let record = service.get(&format!("/api/v1/records/t/b{n}")).await;
            assert_eq!(record["title"], n.to_string(), "{record}");
        }
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ids_that_databases_take_for_one_are_one_record() {
    on_every_database(|service| async move {
        let lines = "{\"id\":\"a\\u0000\"}\n{\"id\":\"a\u{fffd}\"}\n{\"id\":\"b\"}\n";
        let id = service.import("format=jsonl&key=id&tenant=t", lines).await;
        let job = service.ended(&id).await;
        let counts = ["records_done", "records_created"].map(|c| job[c].as_u64());
        assert_eq!(counts, [Some(3), Some(2)], "{job}");
        service.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_alone_gets_the_records_of_a_job_that_asks_for_it() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(20)).await;
    let id = service
        .import("format=marc&sink=topic&tenant=t&topic=t", books(0..200))
        .await;
    assert_eq!(service.ended(&id).await["records_done"], 200);
    assert_eq!(service.topic("t").await.len(), 200);
    assert!(sink(folder.path(), "t").await.is_empty());
    let id = service
        .import("format=marc&sink=records&tenant=u&topic=u", books(0..200))
        .await;
    assert_eq!(service.ended(&id).await["topic"], Value::Null);
    assert_eq!(sink(folder.path(), "u").await.len(), 200);
    service.close().await;
}

/// Two processes on one server: the job of the one that dies is taken over by the other.
#[tokio::test(flavor = "multi_thread")]
async fn another_process_takes_over_a_job_whose_file_it_has() {
    let address = postgres().new_database().await;
    let folder = tempfile::tempdir().unwrap();
    let config = ImportsConfig {
        database: Some(address.into()),
        ..small_slices(5)
    };
    let (one, two) = (folder.path().join("one"), folder.path().join("two"));
    let first = Service::open(&one, config.clone()).await;
    let id = first
        .import("format=marc&tenant=t&sink=records", books(0..4_000))
        .await;
    // It stops without a word; its folder is at the other one's hands.
    first.close().await;
    std::fs::create_dir_all(two.join("imports/uploads")).unwrap();
    let second = Service::open(&two, config).await;
    let upload = format!("imports/uploads/{id}");
    std::fs::copy(one.join(&upload), two.join(&upload)).unwrap();
    assert_eq!(second.ended(&id).await["records_done"], 4_000);
    second.close().await;
}

fn as_xml(numbers: std::ops::Range<usize>) -> Vec<u8> {
    let mut file = "<?xml version=\"1.0\"?>\n<collection>\n".to_owned();
    for n in numbers {
        file.push_str(&crate::marc::tests::to_xml(
            &crate::marc::parse(&book(n)).unwrap(),
            "",
        ));
        file.push('\n');
    }
    file.push_str("</collection>\n");
    file.into_bytes()
}

fn as_json(numbers: std::ops::Range<usize>) -> Vec<u8> {
    let mut file = String::from("[");
    for n in numbers {
        crate::marc::write_json(&crate::marc::parse(&book(n)).unwrap(), &mut file);
        file.push_str(",\n");
    }
    file.into_bytes()
}
