//! FetchOPCProcessor and PutOPCProcessor against a server of the tests' own.

use std::net::TcpListener;
use std::time::Duration;

use serde_json::json;

use crate::net::limits::OPC_TREE_DEPTH_MAX;
use crate::opcua::{
    Identifier, Kind, Node, NodeId, OpcPeer, Status, Trouble, Variant, opaque, parse, text, whole,
};
use crate::processors::Next;
use crate::testing::{Out, Rig};

fn named(name: &str) -> NodeId {
    NodeId {
        namespace: 1,
        name: Identifier::Text(name.to_owned()),
    }
}

fn said(kind: Kind, content: &str) -> Variant {
    parse(kind, content).unwrap()
}

/// Objects / plant / line / (speed / unit, name, lamp), with a loop from the line to the plant.
fn plant() -> OpcPeer {
    let objects = NodeId::standard(85);
    let (plant, line) = (NodeId::number(1, 10), NodeId::number(1, 11));
    let mut plant_node = Node::below(&objects, 35, plant.clone(), "plant");
    plant_node.parents.push((line.clone(), 35));
    OpcPeer::start(vec![
        plant_node,
        Node::below(&plant, 47, line.clone(), "line"),
        Node::below(&line, 47, named("speed"), "speed").with(whole(7), TIME),
        Node::below(&named("speed"), 46, named("unit"), "unit")
            .with(said(Kind::STRING, "rpm"), TIME),
        Node::below(&line, 47, named("name"), "name").with(said(Kind::STRING, "L1"), TIME),
        Node::below(&line, 47, named("lamp"), "lamp").with(said(Kind::BOOLEAN, "true"), TIME),
    ])
}

fn fetch(peer: &OpcPeer, more: &[(&str, &str)]) -> Rig {
    let endpoint = peer.endpoint();
    let own = [("OPC server endpoint", endpoint.as_str())];
    Rig::new("FetchOPCProcessor", &[&own[..], more].concat())
}

fn put(peer: &OpcPeer, more: &[(&str, &str)]) -> Rig {
    let endpoint = peer.endpoint();
    let own = [
        ("OPC server endpoint", endpoint.as_str()),
        ("Target node ID type", "String"),
        ("Target node ID", "${node}"),
        ("Target node namespace index", "1"),
        ("Value type", "Int32"),
    ];
    let is_own = |name: &str| !more.iter().any(|(other, _)| *other == name);
    let mut all: Vec<(&str, &str)> = own.into_iter().filter(|(name, _)| is_own(name)).collect();
    all.extend_from_slice(more);
    Rig::new("PutOPCProcessor", &all)
}

/// Full paths and contents of what came out.
fn told(rig: &mut Rig) -> Vec<(String, String)> {
    let all = rig.out("success");
    let told = |out: &Out| (out.attribute("Full path").to_owned(), out.text().to_owned());
    all.iter().map(told).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let pairs = pairs.iter();
    pairs
        .map(|(path, value)| ((*path).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn variables_below_a_path_come_once_each_though_there_is_a_loop() {
    let peer = plant();
    let mut rig = fetch(
        &peer,
        &[
            ("Node ID type", "Path"),
            ("Node ID", "plant/line"),
            ("Namespace index", "1"),
            ("Path reference types", "HasComponent"),
        ],
    );
    rig.trigger().unwrap();
    let all = rig.out("success");
    let first = &all[0];
    for (name, value) in [
        ("NodeID", "speed"),
        ("NodeID type", "string"),
        ("Browsename", "speed"),
        ("Full path", "plant/line/speed"),
        ("Sourcetimestamp", "2026-01-31T12:00:00.250Z"),
        ("Typename", "Int32"),
        ("Datasize", "4"),
    ] {
        assert_eq!(first.attribute(name), value, "{name}");
    }
    let expected = [
        ("plant/line/speed", "7"),
        ("plant/line/name", "L1"),
        ("plant/line/lamp", "True"),
        ("plant/line/speed/unit", "rpm"),
    ];
    let came = |out: &Out| (out.attribute("Full path").to_owned(), out.text().to_owned());
    let came: Vec<(String, String)> = all.iter().map(came).collect();
    assert_eq!(came, pairs(&expected));
    assert_eq!(peer.logins(), [None]);
}

#[test]
fn depth_and_kinds_of_ids_say_what_is_fetched() {
    let peer = plant();
    let mut rig = fetch(
        &peer,
        &[
            ("Node ID type", "Int"),
            ("Node ID", "11"),
            ("Namespace index", "1"),
            ("Max depth", "2"),
        ],
    );
    rig.trigger().unwrap();
    let expected = [("/speed", "7"), ("/name", "L1"), ("/lamp", "True")];
    assert_eq!(told(&mut rig), pairs(&expected));
    let mut rig = fetch(
        &peer,
        &[
            ("Node ID type", "String"),
            ("Node ID", "speed"),
            ("Namespace index", "1"),
            ("Max depth", "1"),
        ],
    );
    rig.trigger().unwrap();
    assert_eq!(told(&mut rig), pairs(&[("/speed", "7")]));
    // A server that reads little at once is asked for little.
    peer.be(Some(Trouble::ReadsAtOnce(1)));
    rig.trigger().unwrap();
    assert_eq!(told(&mut rig), pairs(&[("/speed", "7")]));
    assert_eq!(peer.count(461), 2, "sessions are kept");
}

#[test]
fn lazy_modes_leave_out_what_is_as_it_was_over_restarts() {
    let own = [
        ("Node ID type", "Int"),
        ("Node ID", "11"),
        ("Namespace index", "1"),
        ("Max depth", "2"),
    ];
    for mode in ["On", "New Value"] {
        let peer = plant();
        let mut rig = fetch(&peer, &[&own[..], &[("Lazy mode", mode)]].concat());
        rig.trigger().unwrap();
        assert_eq!(told(&mut rig).len(), 3);
        rig.kill();
        assert_eq!(rig.trigger(), Ok(Next::Yield));
        assert_eq!(told(&mut rig), []);
        peer.set(&named("speed"), |told| told.source_time = Some(TIME + 1));
        peer.set(&named("name"), |told| {
            told.value = Some(said(Kind::STRING, "L2"))
        });
        rig.trigger().unwrap();
        let expected = match mode {
            "On" => [("/speed", "7")],
            _ => [("/name", "L2")],
        };
        assert_eq!(told(&mut rig), pairs(&expected), "{mode}");
        // What does not come out is not known, once the agent is killed before its commit.
        peer.set(&named("lamp"), |told| {
            told.source_time = Some(TIME + 1);
            told.value = Some(said(Kind::BOOLEAN, "false"));
        });
        rig.kill_before_commit();
        rig.trigger().unwrap();
        assert_eq!(told(&mut rig), pairs(&[("/lamp", "False")]), "{mode}");
        // A value that cannot be read once is the same when it can.
        peer.set(&named("lamp"), |told| told.status = Status(0x803a_0000));
        rig.trigger().unwrap();
        peer.set(&named("lamp"), |told| told.status = Status(0));
        rig.trigger().unwrap();
        assert_eq!(told(&mut rig), [], "{mode}");
        let bulletins = rig.bulletins();
        let expected = "1 could not be read, the first of them /lamp: BadNotReadable";
        assert!(bulletins.iter().any(|it| it == expected), "{bulletins:?}");
        rig.kill_with("Lazy mode", "Off");
        rig.trigger().unwrap();
        assert_eq!(told(&mut rig).len(), 3);
    }
}

#[test]
fn what_is_not_there_and_what_has_no_text_is_told() {
    let peer = plant();
    for (id_type, id, message) in [
        (
            "Path",
            "plant/elsewhere",
            "there is no object or variable at 'plant/elsewhere'",
        ),
        ("Int", "12", "there is no object or variable at '12'"),
    ] {
        let own = [
            ("Node ID type", id_type),
            ("Node ID", id),
            ("Namespace index", "1"),
        ];
        let mut rig = fetch(&peer, &own);
        assert_eq!(rig.trigger(), Ok(Next::Yield));
        assert_eq!(rig.bulletins(), [message]);
    }
    peer.set(&named("lamp"), |told| told.value = Some(opaque()));
    peer.set(&named("name"), |told| told.value = None);
    let own = [
        ("Node ID type", "Int"),
        ("Node ID", "11"),
        ("Namespace index", "1"),
        ("Max depth", "2"),
    ];
    let mut rig = fetch(&peer, &own);
    rig.trigger().unwrap();
    assert_eq!(told(&mut rig), pairs(&[("/speed", "7")]));
    let failed = rig.one("failure");
    assert_eq!(failed.attribute("Typename"), "NodeId");
    assert_eq!(failed.text(), "");
    let expected = "1 could not be read, the first of them /name: it has no value";
    assert_eq!(rig.bulletins(), [expected]);
}

#[test]
fn a_link_that_breaks_midway_takes_everything_back() {
    let peer = plant();
    let own = [
        ("Node ID type", "Int"),
        ("Node ID", "11"),
        ("Namespace index", "1"),
    ];
    let mut rig = fetch(&peer, &[&own[..], &[("Lazy mode", "On")]].concat());
    // At the second page of references some values were there already.
    for trouble in [
        Trouble::BreaksAt(533),
        Trouble::Refuses(533, Status(0x8026_0000)),
        Trouble::Says(533, vec![1, 0, 0xff]),
        Trouble::Says(631, vec![0; 1_000]),
        Trouble::Refuses(461, Status(0x8056_0000)),
        Trouble::BreaksAt(446),
    ] {
        peer.be(Some(trouble.clone()));
        let error = rig.trigger().unwrap_err();
        assert!(error.starts_with(&peer.endpoint()), "{trouble:?}: {error}");
        assert_eq!(rig.counts(), [], "{trouble:?}");
        assert!(rig.state().is_empty(), "{trouble:?}");
    }
    peer.be(None);
    rig.trigger().unwrap();
    assert_eq!(told(&mut rig).len(), 4, "nothing came twice");
}

#[test]
fn a_large_fetch_is_committed_in_pieces_that_are_known() {
    let objects = NodeId::standard(85);
    let line = NodeId::number(1, 11);
    let large = "x".repeat(1 << 20);
    let mut nodes = vec![Node::below(&objects, 35, line.clone(), "line")];
    for name in ["a", "b", "c"] {
        let node = Node::below(&line, 47, named(name), name);
        nodes.push(node.with(said(Kind::STRING, &large), TIME));
    }
    let peer = OpcPeer::start(nodes);
    let own = [
        ("Node ID type", "Int"),
        ("Node ID", "11"),
        ("Namespace index", "1"),
        ("Lazy mode", "On"),
    ];
    let mut rig = fetch(&peer, &own);
    // All values are there; what is below the first of them is not.
    peer.be(Some(Trouble::BreaksAfter(1, 527)));
    rig.trigger().unwrap_err();
    let paths = |all: &[Out]| {
        let paths = all.iter().map(|out| out.attribute("Full path").to_owned());
        paths.collect::<Vec<String>>()
    };
    assert_eq!(paths(&rig.out("success")), ["/a", "/b"]);
    peer.be(None);
    rig.trigger().unwrap();
    assert_eq!(paths(&rig.out("success")), ["/c"]);
}

#[test]
fn what_is_too_deep_is_left_out_and_told() {
    let objects = NodeId::standard(85);
    let mut nodes = vec![Node::below(&objects, 35, NodeId::number(1, 1), "n")];
    for number in 2..=OPC_TREE_DEPTH_MAX as u32 + 2 {
        let above = NodeId::number(1, number - 1);
        let node = Node::below(&above, 47, NodeId::number(1, number), "n");
        nodes.push(node.with(whole(number.into()), TIME));
    }
    let peer = OpcPeer::start(nodes);
    let own = [
        ("Node ID type", "Int"),
        ("Node ID", "1"),
        ("Namespace index", "1"),
    ];
    let mut rig = fetch(&peer, &own);
    rig.trigger().unwrap();
    let deepest = told(&mut rig).pop().unwrap();
    assert_eq!(deepest.1, OPC_TREE_DEPTH_MAX.to_string());
    assert_eq!(rig.bulletins(), ["nodes deeper than 64 are left out"]);
}

#[test]
fn who_logs_in_does_so_only_where_the_password_may_go() {
    let peer = plant();
    let own = [
        ("Node ID type", "String"),
        ("Node ID", "speed"),
        ("Namespace index", "1"),
        ("Max depth", "1"),
        ("Username", "operator"),
        ("Password", "secret"),
    ];
    let mut rig = fetch(&peer, &own);
    rig.trigger().unwrap();
    assert_eq!(told(&mut rig).len(), 1);
    let login = Some(("operator".to_owned(), "secret".to_owned()));
    assert_eq!(peer.logins(), [login]);
    assert_eq!(
        rig.bulletins(),
        ["the password goes over a link that is not encrypted"]
    );
    peer.be(Some(Trouble::WantsEncryption));
    rig.kill();
    let error = rig.trigger().unwrap_err();
    assert!(
        error.contains("the server's certificate: it holds none"),
        "{error}"
    );
    assert_eq!(peer.logins().len(), 1, "nothing was sent");
    // Who says nothing secret needs no encryption.
    let mut rig = fetch(&peer, &own[..4]);
    rig.trigger().unwrap();
    assert_eq!(told(&mut rig).len(), 1);
}

#[test]
fn what_cannot_be_is_refused_when_the_flow_is_loaded() {
    let own = [
        ("Node ID type", "Path"),
        ("Node ID", "a/b"),
        ("OPC server endpoint", "opc.tcp://h"),
    ];
    for (name, value, why) in [
        (
            "Certificate path",
            "/c.der",
            "Certificate path and Key path: one is there without the other",
        ),
        ("Key path", "/k.der", "one is there without the other"),
        (
            "Trusted server certificate path",
            "/t.der",
            "Trusted server certificate path: it checks nothing",
        ),
        ("Username", "operator", "one is there without the other"),
        (
            "OPC server endpoint",
            "https://h",
            "does not begin with opc.tcp://",
        ),
        ("Node ID type", "Int", "'a/b' is no number"),
        ("Node ID type", "Guid", "'a/b' is no GUID"),
        ("Node ID", "/", "'/' is no path"),
        ("Namespace index", "65536", "out of range"),
        (
            "Path reference types",
            "Organizes/Organizes",
            "there are 2 for the 1",
        ),
        (
            "Path reference types",
            "HasChild",
            "'HasChild' is none of Organizes",
        ),
        ("Lazy mode", "Maybe", "none of On, New Value, Off"),
    ] {
        let mut all: Vec<(&str, &str)> = own.into_iter().filter(|(own, _)| *own != name).collect();
        all.push((name, value));
        let made = Rig::try_new("FetchOPCProcessor", &all, json!({}));
        let error = made.err().unwrap_or_else(|| panic!("{name} was taken"));
        assert!(error.contains(why), "{name}: {error}");
    }
    let made = Rig::try_new("FetchOPCProcessor", &own, json!({}));
    assert!(made.is_ok(), "{:?}", made.err());
}

#[test]
fn content_is_written_and_what_is_refused_fails() {
    let peer = plant();
    let mut rig = put(&peer, &[]);
    for (node, content) in [
        ("speed", " 12\n"),
        ("speed", "fast"),
        ("name", "13"),
        ("missing", "14"),
        ("", "15"),
    ] {
        rig.put(&[("node", node)], content);
    }
    rig.run();
    let told = peer.told(&named("speed")).unwrap();
    assert_eq!(text(&told.value.unwrap()).unwrap(), b"12");
    assert_eq!(rig.one("success").text(), " 12\n");
    rig.advance(Duration::from_secs(60));
    let failed: Vec<String> = rig
        .out("failure")
        .iter()
        .map(|out| out.text().to_owned())
        .collect();
    assert_eq!(failed, ["fast", "13", "14", "15"]);
    let expected = [
        "the content is no Int32",
        "the server refuses: BadTypeMismatch",
        "there is no node ns=1;s=missing, and no parent to make it below",
        "Target node ID is empty",
    ];
    assert_eq!(rig.bulletins(), expected);
    assert_eq!(peer.count(461), 1, "the session is kept");
}

#[test]
fn a_node_that_is_not_there_is_made_below_its_parent_and_written_then() {
    let peer = plant();
    let parent = [
        ("Parent node ID type", "Path"),
        ("Parent node ID", "plant/line"),
        ("Parent node namespace index", "1"),
        ("Path reference types", "HasComponent"),
        ("Target node browse name", "${name}"),
        ("Value type", "String"),
    ];
    let mut rig = put(&peer, &parent);
    // More than one chunk of the server's.
    let long = "long".repeat(5_000);
    rig.put(&[("node", "new"), ("name", "New")], "first");
    rig.put(&[("node", "new"), ("name", "New")], &long);
    rig.put(&[("node", "nameless")], "x");
    rig.run();
    assert_eq!(rig.out("success").len(), 2);
    assert_eq!(rig.count("failure"), 1);
    assert_eq!(peer.count(488), 1, "it is made once");
    let told = peer.told(&named("new")).unwrap();
    assert_eq!(text(&told.value.unwrap()).unwrap(), long.as_bytes());
    let mut rig = fetch(
        &peer,
        &[
            ("Node ID type", "Path"),
            ("Node ID", "plant/line/New"),
            ("Namespace index", "1"),
            ("Path reference types", "HasComponent/HasComponent"),
        ],
    );
    rig.trigger().unwrap();
    assert_eq!(rig.one("success").attribute("Full path"), "plant/line/New");
}

#[test]
fn a_server_that_is_away_leaves_flow_files_where_they_are() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let endpoint = format!("opc.tcp://127.0.0.1:{port}");
    let peer = plant();
    let mut rig = put(&peer, &[]);
    rig.put(&[("node", "speed")], "8");
    for trouble in [
        Trouble::BreaksAt(673),
        Trouble::BreaksAt(631),
        Trouble::BreaksAt(467),
    ] {
        peer.be(Some(trouble.clone()));
        let error = rig.trigger().unwrap_err();
        assert!(error.starts_with(&peer.endpoint()), "{trouble:?}: {error}");
        assert_eq!(
            (rig.waiting(), rig.counts()),
            (1, Vec::new()),
            "{trouble:?}"
        );
        rig.advance(Duration::from_secs(60));
    }
    peer.be(None);
    rig.run();
    assert_eq!(rig.one("success").text(), "8");
    let mut rig = Rig::new(
        "FetchOPCProcessor",
        &[
            ("OPC server endpoint", &endpoint),
            ("Node ID type", "Int"),
            ("Node ID", "1"),
        ],
    );
    let error = rig.trigger().unwrap_err();
    assert!(error.starts_with(&endpoint), "{error}");
}

#[test]
fn a_server_that_does_not_make_nodes_fails_the_flow_file() {
    let peer = plant();
    let parent = [
        ("Parent node ID type", "Int"),
        ("Parent node ID", "11"),
        ("Parent node namespace index", "1"),
        ("Target node browse name", "New"),
    ];
    let mut rig = put(&peer, &parent);
    peer.be(Some(Trouble::Refuses(488, Status(0x800b_0000))));
    rig.put(&[("node", "new")], "8");
    rig.run();
    assert_eq!(rig.counts(), [("failure", 1)]);
    assert_eq!(
        rig.bulletins(),
        ["the server refuses: BadServiceUnsupported"]
    );
    // A device behind the server that does not answer is no fault of the link.
    peer.be(Some(Trouble::Declines(Status(0x8005_0000))));
    let mut rig = put(&peer, &[]);
    rig.put(&[("node", "speed")], "8");
    rig.run();
    assert_eq!(rig.counts(), [("failure", 1)]);
    assert_eq!(
        rig.bulletins(),
        ["the server refuses: BadCommunicationError"]
    );
    // A path that leads nowhere may lead somewhere later.
    let nowhere = [
        ("Parent node ID type", "Path"),
        ("Parent node ID", "nowhere"),
        ("Target node browse name", "New"),
    ];
    let mut rig = put(&peer, &nowhere);
    rig.put(&[("node", "new")], "8");
    let error = rig.trigger().unwrap_err();
    assert!(error.contains("the path leads nowhere"), "{error}");
    assert_eq!(rig.waiting(), 1);
}

/// 2026-01-31T12:00:00.250Z, in steps of 100 ns since 1601.
const TIME: i64 = 134_143_344_002_500_000;
