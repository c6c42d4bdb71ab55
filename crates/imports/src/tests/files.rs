//! Files that are not what they seem, and what is told of their records afterwards.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn what_is_compressed_or_utf_16_is_refused_and_the_job_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let files = [
        ("csv", "id,title\n1,One\n"),
        ("jsonl", "{\"id\":1}\n"),
        ("marcxml", "<collection></collection>"),
        ("marcjson", "[]"),
    ];
    for (format, text) in files {
        for mark in ["\u{feff}", ""] {
            let units = mark.encode_utf16().chain(text.encode_utf16());
            let file: Vec<u8> = units.flat_map(u16::to_le_bytes).collect();
            let path = format!("/api/v1/imports?format={format}&tenant={format}");
            let (status, error) = service.call("POST", &path, file).await;
            let message = error["message"].as_str().unwrap();
            assert!(status == 400 && message.contains("UTF-16"), "{error}");
            let jobs = format!("/api/v1/imports?tenant={format}");
            let job = &service.get(&jobs).await["jobs"][0];
            assert_eq!(job["state"], "failed", "{job}");
            assert_eq!(job["error"], message, "{job}");
        }
    }
    for (format, packed) in [
        ("marc", &b"\x1f\x8b\x08\0"[..]),
        ("csv", &b"PK\x03\x04\x14\0"[..]),
    ] {
        let path = format!("/api/v1/imports?format={format}");
        let (status, error) = service.call("POST", &path, packed.to_vec()).await;
        let message = error["message"].as_str().unwrap();
        assert!(status == 400 && message.contains("compressed"), "{error}");
    }
    // A file in pieces is told with its last one, and nobody waits for another.
    let id = service.import("format=csv&resumable=true", "").await;
    let path = format!("/api/v1/imports/{id}");
    let last = format!("{path}/file?offset=0&last=true");
    let (status, _) = service.call("PATCH", &last, b"\xff\xfea\0".to_vec()).await;
    assert_eq!(
        (status, &service.get(&path).await["state"]),
        (400, &"failed".into())
    );
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_in_other_encodings_are_stored_as_utf_8() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let record = |id: &str, tag: &str, title: &[u8]| {
        let open = format!(
            "<record><leader>00000nam a2200000 a 4500</leader>\
             <controlfield tag=\"001\">{id}</controlfield>\
             <datafield tag=\"{tag}\" ind1=\" \" ind2=\" \"><subfield code=\"a\">"
        );
        [open.as_bytes(), title, b"</subfield></datafield></record>"].concat()
    };
    let declaration = b"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?>";
    let latin = b"Gr\xf6\xdfe".as_slice();
    let records = [
        record("1", "245", latin),
        record("2", "245", "Größe".as_bytes()),
        record("3", "no tag", latin),
    ];
    let file = [
        declaration,
        &b"\n<collection>"[..],
        &records.concat(),
        b"</collection>",
    ]
    .concat();
    let id = service.import("format=marcxml&tenant=x", file).await;
    let job = service.ended(&id).await;
    assert_eq!(job["records_rejected"], 1, "{job}");
    let title = Some("Größe".to_owned());
    let both = ["1", "2"].map(|id| (id.to_owned(), title.clone()));
    assert_eq!(sink(folder.path(), "x").await, BTreeMap::from(both));
    // The reject file is encoded as the file was, and says so.
    let path = format!("/api/v1/imports/{id}");
    let rejects = service.bytes(&format!("{path}/rejects")).await;
    assert!(rejects.starts_with(declaration), "{rejects:?}");
    assert!(
        memchr::memmem::find(&rejects, latin).is_some(),
        "{rejects:?}"
    );
    let repaired = String::from_utf8_lossy(&rejects).replace("no tag", "245");
    let repaired = repaired.replace("\u{fffd}\u{fffd}", "öß");
    let (status, again) = service
        .call("POST", &format!("{path}/retry"), repaired)
        .await;
    assert_eq!(status, 201, "{again}");
    service.ended(again["id"].as_str().unwrap()).await;
    assert_eq!(sink(folder.path(), "x").await.get("3"), Some(&title));
    // A CSV file says nothing of itself.
    let query = "format=csv&key=id&tenant=c";
    let rows = b"id,title\n1,Gr\xf6\xdfe\n".to_vec();
    let told = format!("{query}&encoding=windows-1252");
    let id = service.import(&told, rows.clone()).await;
    assert_eq!(service.ended(&id).await["state"], "completed");
    let one = BTreeMap::from([("1".to_owned(), title)]);
    assert_eq!(sink(folder.path(), "c").await, one);
    let id = service.import(query, rows.clone()).await;
    assert_eq!(service.ended(&id).await["records_rejected"], 1);
    for (query, file, reason) in [
        (
            format!("{query}&encoding=utf-16"),
            rows.clone(),
            "is not read",
        ),
        (
            "format=jsonl&encoding=latin1".to_owned(),
            rows.clone(),
            "of csv and marcxml",
        ),
        (
            "format=marcxml".to_owned(),
            b"<?xml version='1.0' encoding='iso-2022-jp'?><collection/>".to_vec(),
            "is not read",
        ),
    ] {
        let (status, error) = service
            .call("POST", &format!("/api/v1/imports?{query}"), file)
            .await;
        let message = error["message"].as_str().unwrap();
        assert!(
            status == 400 && message.contains(reason),
            "{query}: {error}"
        );
    }
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_any_record_is_no_import_of_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let long = format!("<html>{}</html>", "<p>gone</p>".repeat(100_000));
    let cases = [
        ("<html><body>502 Bad Gateway</body></html>", 1),
        (long.as_str(), 1),
        ("no XML at all", 1),
        ("<marc:collection xmlns:marc='x'/>\n", 0),
        ("<collection></collection>", 0),
        (" \n", 0),
    ];
    for (file, rejected) in cases {
        let id = service.import("format=marcxml", file.to_owned()).await;
        let job = service.ended(&id).await;
        let what = &file[..file.len().min(60)];
        assert_eq!(job["records_rejected"], rejected, "{what}: {job}");
        let state = ["completed", "completed_with_rejects"][rejected];
        assert_eq!(job["state"], state, "{what}");
        if let Some(entry) = service.journal(&id).await.first() {
            let reason = entry["reason"].as_str().unwrap();
            assert!(reason.contains("no record is in the file"), "{reason}");
        }
    }
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reject_file_of_marc_keeps_its_records_apart() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(3)).await;
    let torn = |n: usize| {
        let mut record = book(n);
        record.truncate(record.len() - 6);
        record[..5].copy_from_slice(b"xxxxx");
        record[12..17].copy_from_slice(b"xxxxx");
        record
    };
    let mut inside = book(6);
    inside[200] = 0x1d;
    let records = [
        book(1),
        torn(2),
        book(3),
        torn(4),
        book(5),
        inside.clone(),
        book(7),
    ];
    let file = records.concat();
    let id = service.import("format=marc&tenant=t", file).await;
    let job = service.ended(&id).await;
    assert_eq!(job["records_rejected"], 3, "{job}");
    let path = format!("/api/v1/imports/{id}");
    let rejects = service.bytes(&format!("{path}/rejects")).await;
    let expected = [torn(2), vec![0x1d], torn(4), vec![0x1d], inside].concat();
    assert_eq!(rejects, expected);
    let (status, again) = service.post(&format!("{path}/retry")).await;
    assert_eq!(status, 201, "{again}");
    let again = service.ended(again["id"].as_str().unwrap()).await;
    let counts = (&again["records_done"], &again["records_rejected"]);
    assert_eq!(counts, (&0.into(), &3.into()), "{again}");
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reject_file_that_cannot_be_read_to_its_end_breaks_off() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), small_slices(20)).await;
    let line = format!("{}\n", "x".repeat(100_000));
    let id = service.import("format=jsonl", line.repeat(150)).await;
    assert_eq!(service.ended(&id).await["records_rejected"], 150);
    let path = format!("/api/v1/imports/{id}");
    let request = Request::get(format!("{path}/rejects"));
    let request = request.body(Body::empty()).unwrap();
    let response = service.router.clone().oneshot(request).await.unwrap();
    let mut body = response.into_body();
    body.frame().await.unwrap().unwrap();
    let imports = folder.path().join("imports/imports.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(imports);
    let mut beside = options.connect().await.unwrap();
    let rename = "ALTER TABLE import_journal RENAME TO gone";
    sqlx::query(rename).execute(&mut beside).await.unwrap();
    let mut last = Ok(());
    while let Some(frame) = body.frame().await {
        last = frame.map(drop);
    }
    assert!(last.is_err(), "a part was told as the whole");
    let back = "ALTER TABLE gone RENAME TO import_journal";
    sqlx::query(back).execute(&mut beside).await.unwrap();
    let whole = service.bytes(&format!("{path}/rejects")).await;
    assert_eq!(whole.len(), 150 * line.len());
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_told_as_it_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    let bodies = [
        r#"{"id":18446744073709551617,"z":1.50,"a":1e999,"title":"First"}"#,
        r#"{"id":18446744073709551618,"lone":"\ud800","title":"Second"}"#,
    ];
    let profile = r#"{"id": "id", "fields": {"z": "z"}}"#;
    let path = "/api/v1/profiles/p?tenant=t";
    assert_eq!(service.call("PUT", path, profile).await.0, 200);
    for query in ["profile=p&tenant=t", "key=id&tenant=u"] {
        let file = bodies.join("\n");
        let id = service.import(&format!("format=jsonl&{query}"), file).await;
        let job = service.ended(&id).await;
        assert_eq!(job["records_created"], 2, "{job}");
        service.indexed().await;
        let tenant = query.rsplit('=').next().unwrap();
        for (id, body) in [
            ("18446744073709551617", bodies[0]),
            ("18446744073709551618", bodies[1]),
        ] {
            let record = service
                .text(&format!("/api/v1/records/{tenant}/{id}"))
                .await;
            assert!(record.contains(&format!("\"body\":{body},")), "{record}");
        }
        let search = format!("/api/v1/search?tenant={tenant}&q=first");
        assert_eq!(
            service.get(&search).await["records"][0]["id"],
            "18446744073709551617"
        );
    }
    service.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_are_read_to_their_end_page_by_page() {
    let folder = tempfile::tempdir().unwrap();
    let service = Service::open(folder.path(), ImportsConfig::default()).await;
    for n in 0..5 {
        let path = format!("/api/v1/profiles/p{n}?tenant=t");
        assert_eq!(service.call("PUT", &path, "{}").await.0, 200);
    }
    let id = service.import("format=marc&tenant=t", books(0..5)).await;
    service.ended(&id).await;
    service.indexed().await;
    let record = "/api/v1/records/t/00000001";
    for n in 0..5 {
        let (what, body) = match n % 2 {
            0 => ("check-out", "{\"holder\":\"ann\"}"),
            _ => ("check-in", ""),
        };
        let (status, _) = service
            .call("POST", &format!("{record}/{what}"), body)
            .await;
        assert_eq!(status, 200);
    }
    let history = format!("{record}/history?limit=2");
    for (path, list, cursor) in [
        ("/api/v1/profiles?tenant=t&limit=2", "profiles", "after"),
        (history.as_str(), "entries", "after"),
        (
            "/api/v1/search?tenant=t&q=book&limit=2",
            "records",
            "offset",
        ),
    ] {
        let (mut found, mut page) = (Vec::new(), service.get(path).await);
        loop {
            let items = page[list].as_array().unwrap();
            assert!(items.len() <= 2, "{page}");
            found.extend(items.iter().map(Value::to_string));
            let next = match &page["next"] {
                Value::Null => break,
                Value::String(name) => name.clone(),
                number => number.to_string(),
            };
            page = service.get(&format!("{path}&{cursor}={next}")).await;
        }
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 5, "{path}: {found:?}");
    }
    let (status, error) = service
        .call("GET", "/api/v1/search?q=x&offset=9001", "")
        .await;
    assert_eq!(status, 400, "{error}");
    service.close().await;
}
