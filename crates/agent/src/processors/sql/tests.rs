//! The processors of SQL on a real SQLite file, PostgreSQL and MariaDB.

use serde_json::json;

use crate::testing::{Rig, runtime};

fn rig(kind: &str, address: &str, properties: &[(&str, &str)]) -> Rig {
    let service = json!({ "Controller Services": [{
        "id": "db", "name": "db", "class": "ODBCService",
        "Properties": { "Connection String": address },
    }] });
    let own = [&[("DB Controller Service", "db")], properties].concat();
    Rig::try_new(kind, &own, service).unwrap_or_else(|error| panic!("{error}"))
}

fn put(address: &str, sql: &str) {
    let mut rig = rig("PutSQL", address, &[("SQL Statement", sql)]);
    rig.put(&[], "");
    rig.run();
    assert_eq!(
        rig.counts(),
        [("success", 1)],
        "{sql}: {:?}",
        rig.bulletins()
    );
}

fn asked(address: &str, sql: &str) -> String {
    let mut rig = rig("ExecuteSQL", address, &[("Output Format", "JSON")]);
    rig.put(&[], sql);
    rig.run();
    assert_eq!(
        rig.counts(),
        [("success", 1)],
        "{sql}: {:?}",
        rig.bulletins()
    );
    rig.one("success").text().to_owned()
}

/// What holds on every database.
fn check(address: &str) {
    put(
        address,
        "CREATE TABLE t (id INTEGER, name VARCHAR(100), at VARCHAR(30))",
    );
    // Arguments are values, whatever is in them.
    let nasty = "it's a \\ \" ; DROP TABLE t; -- ä€\u{1F600}";
    let insert = "INSERT INTO t (id, name, at) VALUES (?, ?, ?) -- ?";
    let mut it = rig("PutSQL", address, &[]);
    for (id, name) in [("1", "pump"), ("2", nasty)] {
        let attributes = [
            ("sql.args.1.value", id),
            ("sql.args.2.value", name),
            ("sql.args.3.type", "12"),
        ];
        it.put(&attributes, insert);
    }
    it.put(&[("sql.args.1.value", "3")], insert);
    it.put(&[], "INSERT INTO nowhere VALUES (1)");
    it.run();
    assert_eq!(
        it.counts(),
        [("success", 2), ("failure", 2)],
        "{:?}",
        it.bulletins()
    );
    let refused = it.out("failure");
    assert!(
        refused[0]
            .attribute("putsql.error.message")
            .contains("sql.args.2.value")
    );
    assert!(
        refused[1]
            .attribute("putsql.error.message")
            .contains("nowhere")
    );
    let rows = asked(address, "SELECT id, name, at FROM t ORDER BY id");
    let expected = json!([
        { "id": 1, "name": "pump", "at": null },
        { "id": 2, "name": nasty, "at": null },
    ]);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&rows).unwrap(),
        expected
    );
    // Arguments of a query, compared as what the column is.
    let query = [(
        "SQL select query",
        "SELECT id FROM t WHERE id = ${n:append('')} AND id = ?",
    )];
    let mut it = rig("ExecuteSQL", address, &query);
    it.put(&[("n", "2"), ("sql.args.1.value", "2")], "not looked at");
    it.run();
    let out = it.one("success");
    assert_eq!(
        out.text().split_whitespace().collect::<String>(),
        "[{\"id\":2}]"
    );
    assert_eq!(out.attribute("executesql.row.count"), "1");
    assert!(!out.attribute("input.flowfile.uuid").is_empty());
    table(address);
}

/// Tables are read from where they were read to.
fn table(address: &str) {
    let properties = [
        ("Table Name", "t"),
        ("Maximum-value Columns", "ID"),
        ("Where Clause", "id <> 4 OR id = 4"),
        ("Output Format", "JSON"),
        ("Columns to Return", "id"),
        ("Max Rows Per Flow File", "2"),
        ("initial.maxvalue.id", "1"),
    ];
    let mut it = rig("QueryDatabaseTable", address, &properties);
    it.trigger().unwrap();
    let out = it.one("success");
    assert_eq!(out.text(), "[{\"id\":2}]");
    assert_eq!(out.attribute("maxvalue.ID"), "2");
    assert_eq!(out.attribute("querydbtable.row.count"), "1");
    it.trigger().unwrap();
    assert_eq!(it.count("success"), 0, "nothing is new");
    for id in [10, 9, 3] {
        put(address, &format!("INSERT INTO t (id) VALUES ({id})"));
    }
    // What was read is on record with its rows, or neither is.
    it.kill_before_commit();
    it.trigger().unwrap();
    let out = it.out("success");
    let texts: Vec<&str> = out.iter().map(|out| out.text()).collect();
    assert_eq!(texts, ["[{\"id\":10},{\"id\":9}]", "[{\"id\":3}]"]);
    for (index, out) in out.iter().enumerate() {
        assert_eq!(out.attribute("fragment.index"), index.to_string());
        assert_eq!(out.attribute("fragment.count"), "2");
        assert_eq!(out.attribute("maxvalue.ID"), "10");
    }
    it.kill();
    it.trigger().unwrap();
    assert_eq!(it.count("success"), 0, "it was read before the kill");
}

#[test]
fn a_sqlite_file_is_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    let address = format!("Driver={{SQLite3}};Database={}/it.db", dir.path().display());
    check(&address);
    let rows = asked(
        &address,
        "SELECT 1 AS a, 1.5 AS b, 'x' AS c, NULL AS d, x'00ff' AS e",
    );
    assert_eq!(rows, r#"[{"a":1,"b":1.5,"c":"x","d":null,"e":"AP8="}]"#);
    assert_eq!(asked(&address, "SELECT id FROM t WHERE id > 99"), "[]");
    // Many rows pass one by one.
    let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50000) \
                SELECT i FROM n";
    assert_eq!(asked(&address, many).matches("\"i\"").count(), 50_000);
}

#[test]
fn postgres_is_written_and_read() {
    let address = runtime().block_on(sql::test_servers::postgres().new_database());
    check(&address);
    let rows = asked(
        &address,
        "SELECT true AS a, 9007199254740993::bigint AS b, 1.5::float8 AS c, 12.50::numeric AS d, \
         '2026-01-02 03:04:05'::timestamp AS e, '{\"x\":[1]}'::jsonb AS f, '\\x00ff'::bytea AS g, \
         123456789012345678901234567890.5::numeric AS h, 'NaN'::float8 AS i, '{1,2}'::int[] AS j",
    );
    assert_eq!(
        rows,
        "[{\"a\":true,\"b\":9007199254740993,\"c\":1.5,\"d\":12.5,\"e\":\"2026-01-02 03:04:05\",\
         \"f\":{\"x\":[1]},\"g\":\"AP8=\",\"h\":\"123456789012345678901234567890.5\",\
         \"i\":\"NaN\",\"j\":\"{1,2}\"}]"
    );
    // A time is a time, although arguments are texts.
    put(&address, "CREATE TABLE times (at timestamptz)");
    let mut it = rig(
        "PutSQL",
        &address,
        &[("SQL Statement", "INSERT INTO times VALUES (?)")],
    );
    it.put(&[("sql.args.1.value", "2026-01-02T03:04:05Z")], "");
    it.put(&[("sql.args.1.value", "no time")], "");
    it.run();
    assert_eq!(it.counts(), [("success", 1), ("failure", 1)]);
}

#[test]
fn mariadb_is_written_and_read() {
    let address = runtime().block_on(sql::test_servers::mariadb().new_database());
    put(&address, "ALTER DATABASE CHARACTER SET utf8mb4");
    check(&address);
    let rows = asked(
        &address,
        "SELECT 18446744073709551615 AS a, 1.5e0 AS b, CAST(12.50 AS DECIMAL(5,2)) AS c, \
         TIMESTAMP '2026-01-02 03:04:05' AS d, x'00ff' AS e, NULL AS f",
    );
    assert_eq!(
        rows,
        "[{\"a\":18446744073709551615,\"b\":1.5,\"c\":12.5,\"d\":\"2026-01-02 03:04:05\",\
         \"e\":\"AP8=\",\"f\":null}]"
    );
}

#[test]
fn a_database_that_is_away_holds_flow_files_back() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let address = format!("postgres://ada:s3cret@{address}/x");
    let mut it = rig("PutSQL", &address, &[]);
    it.put(&[], "SELECT 1");
    let error = it.trigger().unwrap_err();
    assert!(!error.contains("s3cret"), "{error}");
    assert_eq!((it.counts(), it.waiting()), (vec![], 1));
}

#[test]
fn connection_strings_that_name_nothing_are_refused_without_their_secret() {
    for address in [
        "s3cret",
        "Driver={Oracle};Pwd=s3cret",
        "Driver={s3cret",
        "postgres://a:s3cret@h:port/x",
    ] {
        let service = json!({ "Controller Services": [{
            "id": "db", "name": "db", "class": "ODBCService",
            "Properties": { "Connection String": address },
        }] });
        let own = [("DB Controller Service", "db")];
        let error = Rig::try_new("PutSQL", &own, service).map(drop).unwrap_err();
        assert!(!error.contains("s3cret"), "{error}");
    }
}
