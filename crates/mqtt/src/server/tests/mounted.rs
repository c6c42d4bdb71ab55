//! Clients of tenants whose topics lie below their tenants' names, over sockets.

use access::Operation;

use super::client::Client;
use super::five::{Connect, publish, text, two};
use super::guarded::{House, house};

/// Ann is of acme, bob of beta, and carl of no tenant.
async fn mounted() -> House {
    let house = house(MOUNTED).await;
    house.keep_tenants();
    house
}

async fn enter(house: &House, id: &str, user: &str) -> Client {
    let connect = Connect::new(id).password(Some(user), "pencil");
    connect.go(house.running.port).await
}

async fn subscribed(house: &House, id: &str, user: &str, filter: &str) -> Client {
    let mut client = enter(house, id, user).await;
    assert_eq!(client.subscribe5(&[], &[(filter, 0)]).await, [0], "{user}");
    client
}

async fn expect(client: &mut Client, topic: &str, payload: &str) {
    let got = client.got().await;
    assert_eq!((&*got.topic, &*got.payload), (topic, payload));
}

#[tokio::test]
async fn a_tenants_clients_neither_write_nor_see_its_name() {
    let house = mounted().await;
    let mut ann = subscribed(&house, "a", "ann", "#").await;
    let mut bob = subscribed(&house, "b", "bob", "#").await;
    let mut carl = subscribed(&house, "c", "carl", "#").await;
    let mut from_ann = enter(&house, "from-a", "ann").await;
    for (topic, inside) in [
        ("x/y", "acme/x/y"),
        ("/x", "acme//x"),
        // Her own tenant's name, and another one's, are names as others are.
        ("acme/x", "acme/acme/x"),
        ("beta/x", "acme/beta/x"),
    ] {
        assert_eq!(from_ann.publish5(topic, "hers", &[]).await, 0, "{topic}");
        expect(&mut ann, topic, "hers").await;
        expect(&mut carl, inside, "hers").await;
    }
    let mut from_carl = enter(&house, "from-c", "carl").await;
    for topic in ["plant", "acme", "acme/down", "acme/$odd"] {
        assert_eq!(from_carl.publish5(topic, "his", &[]).await, 0, "{topic}");
        expect(&mut carl, topic, "his").await;
    }
    expect(&mut ann, "down", "his").await;
    for client in [&mut ann, &mut bob] {
        client.expect_nothing().await;
    }
    // What begins with `$` is no tenant's.
    let filters = [("$SYS/#", 0), ("$share/g/$SYS/#", 0), ("$odd/#", 0)];
    assert_eq!(ann.subscribe5(&[], &filters).await, [0x87; 3]);
    assert_eq!(from_ann.publish5("$odd", "", &[]).await, 0x87);
    // Below the tenant's name it may be too long.
    let long = "x/".repeat(127);
    assert_eq!(from_ann.publish5(&long, "", &[]).await, 0x90);
    // Whoever ends a subscription writes it as it was begun.
    let unsubscribe = |filter: &str| {
        let body = [&[0, 7, 0][..], &text(filter)].concat();
        super::client::packet(0xa2, &body)
    };
    for (filter, reason) in [("acme/#", 0x11), ("#", 0)] {
        ann.send(&unsubscribe(filter)).await;
        assert_eq!(ann.packet().await, (0xb0, vec![0, 7, 0, reason]));
    }
    assert_eq!(from_ann.publish5("x", "", &[]).await, 0x00);
    ann.expect_nothing().await;
    house.running.stop().await;
}

#[tokio::test]
async fn retained_messages_wills_and_groups_are_a_tenants_own() {
    let house = mounted().await;
    let mut carl = subscribed(&house, "c", "carl", "#").await;
    let connect = Connect::new("dies").password(Some("ann"), "pencil");
    let retained = 0b10_0000;
    let reply = [&[8][..], &text("re")].concat();
    let dies = connect.will("will", retained, reply);
    drop(dies.go(house.running.port).await);
    let got = carl.got().await;
    assert_eq!(
        (&*got.topic, got.properties().response_topic()),
        ("acme/will", Some("acme/re"))
    );
    let mut ann = subscribed(&house, "a", "ann", "will").await;
    let got = ann.got().await;
    assert_eq!((&*got.topic, got.is_retained()), ("will", true));
    assert_eq!(got.properties().response_topic(), Some("re"));
    let mut bob = subscribed(&house, "b", "bob", "#").await;
    bob.expect_nothing().await;
    let refused = Connect::new("sys").password(Some("ann"), "pencil");
    let refused = refused.will("$odd", 0, Vec::new());
    assert_eq!(refused.told(house.running.port).await.1.reason, 0x87);
    // Groups of one name, each of its tenant.
    let mut of_ann = subscribed(&house, "ga", "ann", "$share/g/s").await;
    let mut of_bob = subscribed(&house, "gb", "bob", "$share/g/s").await;
    let mut from_ann = enter(&house, "from-a", "ann").await;
    for _ in 0..4 {
        assert_eq!(from_ann.publish5("s", "", &[]).await, 0);
        expect(&mut of_ann, "s", "").await;
    }
    of_bob.expect_nothing().await;
    house.running.stop().await;
}

#[tokio::test]
async fn aliases_and_response_topics_are_in_each_clients_own_words() {
    let house = mounted().await;
    // One who has numbers for topics, and one who is of no tenant.
    let ann = Connect::new("a").with(two(34, 5));
    let ann = ann.password(Some("ann"), "pencil");
    let mut ann = ann.go(house.running.port).await;
    assert_eq!(ann.subscribe5(&[], &[("#", 0)]).await, [0]);
    let mut carl = subscribed(&house, "c", "carl", "acme/#").await;
    let mut from_ann = enter(&house, "from-a", "ann").await;
    let reply = [&[8][..], &text("re/1")].concat();
    let with_alias = [&two(35, 1)[..], &reply].concat();
    let mut bytes = publish(0x30, "ask", 0, &with_alias, "1");
    bytes.extend(publish(0x30, "", 0, &with_alias, "2"));
    bytes.extend(publish(0x30, "other", 0, &[], "3"));
    bytes.extend(publish(0x30, "", 0, &two(35, 1), "4"));
    from_ann.send(&bytes).await;
    let replies = [Some("1"), Some("1"), None, None];
    let topics = [("ask", 1), ("", 1), ("other", 2), ("", 1)];
    for (n, (reply, (topic, alias))) in replies.into_iter().zip(topics).enumerate() {
        let payload = (n + 1).to_string();
        let got = ann.got().await;
        assert_eq!((&*got.topic, &*got.payload), (topic, &*payload));
        assert_eq!(got.properties().two(35), Some(alias));
        let own = reply.map(|reply| format!("re/{reply}"));
        assert_eq!(got.properties().response_topic(), own.as_deref());
        let inside = match n {
            2 => "acme/other",
            _ => "acme/ask",
        };
        let got = carl.got().await;
        assert_eq!((&*got.topic, &*got.payload), (inside, &*payload));
        let named = own.map(|own| format!("acme/{own}"));
        assert_eq!(got.properties().response_topic(), named.as_deref());
    }
    // An answer finds its way, and a topic that she could not answer to is not told.
    let mut from_carl = enter(&house, "from-c", "carl").await;
    assert_eq!(from_carl.publish5("acme/re/1", "answer", &[]).await, 0);
    expect(&mut ann, "re/1", "answer").await;
    let elsewhere = [&[8][..], &text("desk/re")].concat();
    assert_eq!(from_carl.publish5("acme/ask", "", &elsewhere).await, 0);
    let got = ann.got().await;
    assert_eq!(got.properties().response_topic(), None);
    house.running.stop().await;
}

#[tokio::test]
async fn sessions_outlive_links_and_restarts_also_of_another_setting() {
    let house = mounted().await;
    let kept = |expiry_s| Connect::kept("keeper", expiry_s).password(Some("ann"), "pencil");
    let mut keeper = kept(600).go(house.running.port).await;
    let filters = [("x/#", 1), ("$share/g/s", 1)];
    assert_eq!(keeper.subscribe5(&[], &filters).await, [1, 1]);
    keeper.leave().await;
    let publish = async |house: &House, user: &str, topics: &[&str]| {
        let mut client = enter(house, "from", user).await;
        for topic in topics {
            assert_eq!(client.publish5(topic, "", &[]).await, 0);
        }
    };
    publish(&house, "ann", &["x/1", "s"]).await;
    publish(&house, "bob", &["x/2"]).await;
    let house = house.restart(MOUNTED).await;
    publish(&house, "ann", &["x/3"]).await;
    let (mut keeper, told) = kept(600).told(house.running.port).await;
    assert!(told.present);
    for topic in ["x/1", "s", "x/3"] {
        let got = keeper.got().await;
        assert_eq!(got.topic, topic);
        keeper.ack(0x40, got.id).await;
    }
    keeper.expect_nothing().await;
    keeper.leave().await;
    // Without mount points her session is another one, and each finds its own.
    let house = house.restart(r#"{"security": {"logins": true}}"#).await;
    publish(&house, "ann", &["acme/x/5"]).await;
    let (mut keeper, told) = kept(600).told(house.running.port).await;
    assert!(!told.present);
    assert_eq!(keeper.subscribe5(&[], &[("x/#", 1)]).await, [1]);
    keeper.leave().await;
    publish(&house, "ann", &["x/6"]).await;
    let house = house.restart(MOUNTED).await;
    publish(&house, "carl", &["x/7"]).await;
    let (mut keeper, told) = kept(600).told(house.running.port).await;
    assert!(told.present);
    let got = keeper.got().await;
    assert_eq!(got.topic, "x/5");
    keeper.ack(0x40, got.id).await;
    keeper.expect_nothing().await;
    house.running.stop().await;
}

#[tokio::test]
async fn client_ids_are_each_tenants_own() {
    let house = mounted().await;
    let mut clients = Vec::new();
    for user in ["ann", "bob", "carl"] {
        let kept = Connect::kept("dev", 600).password(Some(user), "pencil");
        let mut client = kept.go(house.running.port).await;
        assert_eq!(client.subscribe5(&[], &[("down", 1)]).await, [1]);
        clients.push(client);
    }
    let named = || {
        let clients = house.running.server.clients().into_iter();
        clients.map(|of| of.client_id).collect::<Vec<_>>()
    };
    assert_eq!(named(), ["acme/dev", "beta/dev", "dev"]);
    // None of them was cut off, and what is for one goes to no other.
    let topics = [("ann", "down"), ("bob", "down"), ("carl", "down")];
    for (client, (user, topic)) in clients.iter_mut().zip(topics) {
        let mut from = enter(&house, "from", user).await;
        assert_eq!(from.publish5(topic, user, &[]).await, 0);
        expect(client, topic, user).await;
    }
    // Who has no mount point and means her session is refused, as another user is.
    let inside = Connect::new("acme/dev").password(Some("carl"), "pencil");
    assert_eq!(inside.told(house.running.port).await.1.reason, 0x85);
    // Her own second client takes over the first, as everywhere.
    let mut again = enter(&house, "dev", "ann").await;
    clients[0].told_to_go(0x8e).await;
    clients[1].expect_nothing().await;
    // And by the name inside an operator sends one away.
    let sent = house.running.server.disconnect("acme/dev", false);
    assert_eq!(sent.unwrap(), Some(true));
    again.told_to_go(0x98).await;
    // An id that is given is given as the client is to write it.
    let (client, told) = Connect::new("")
        .password(Some("ann"), "pencil")
        .told(house.running.port)
        .await;
    let assigned = told.properties().text(18).unwrap().to_owned();
    assert!(!assigned.contains('/'), "{assigned}");
    assert!(named().contains(&format!("acme/{assigned}")));
    drop(client);
    house.running.stop().await;
}

#[tokio::test]
async fn a_client_id_in_an_acl_is_as_its_client_writes_it_also_while_it_is_away() {
    let house = house(JUDGED).await;
    house.keep_tenants();
    house.allow("ann", Operation::Read, "acme/own/%c");
    house.allow("ann", Operation::Write, "acme/say/%c");
    house.allow("carl", Operation::Write, "#");
    let kept = || Connect::kept("dev", 600).password(Some("ann"), "pencil");
    let mut dev = kept().go(house.running.port).await;
    assert_eq!(dev.subscribe5(&[], &[("own/dev", 1)]).await, [1]);
    for (topic, reason) in [("say/dev", 0), ("say/other", 0x87)] {
        assert_eq!(dev.publish5(topic, "", &[]).await, reason, "{topic}");
    }
    dev.leave().await;
    let mut carl = enter(&house, "c", "carl").await;
    assert_eq!(carl.publish5("acme/own/dev", "2", &[]).await, 0);
    let house = house.restart(JUDGED).await;
    let mut carl = enter(&house, "c", "carl").await;
    assert_eq!(carl.publish5("acme/own/dev", "3", &[]).await, 0);
    let mut dev = kept().go(house.running.port).await;
    for payload in ["2", "3"] {
        let got = dev.got().await;
        assert_eq!((&*got.topic, &*got.payload), ("own/dev", payload));
        dev.ack(0x40, got.id).await;
    }
    house.running.stop().await;
}

const MOUNTED: &str = r#"{"security": {"logins": true}, "tenants": {"mount": true}}"#;
/// As well with ACLs.
const JUDGED: &str =
    r#"{"security": {"logins": true, "authorization": "acl"}, "tenants": {"mount": true}}"#;
