//! Certificates of openssl's, both sides of a channel, and which ways of a server's are taken.

use std::path::Path;
use std::sync::Arc;

use base::UnixMillis;

use super::frame::{self, Assembly, HEAD_BYTES, Way};
use super::guard::Guard;
use super::identity::{Certificate, Identity, Trust, nonce};
use super::message::{Created, Endpoint, Token};
use super::policy::{Oaep, Policy};
use super::secrecy;
use super::wire::NodeId;
use super::{Fault, Login};
use crate::testing::openssl;

/// A self-signed certificate as OPC UA's tools make them: `NAME.der`, `NAME.key` and their PEM.
fn make(dir: &Path, name: &str, bits: usize) -> Arc<Identity> {
    openssl(
        dir,
        &format!(
            "req -x509 -newkey rsa:{bits} -nodes -keyout {name}.pem.key -out {name}.pem -days 2 \
             -subj /CN={name} -addext subjectAltName=URI:urn:{name},DNS:localhost \
             -addext basicConstraints=critical,CA:FALSE -addext extendedKeyUsage=serverAuth,clientAuth"
        ),
    );
    openssl(
        dir,
        &format!("x509 -in {name}.pem -outform DER -out {name}.der"),
    );
    openssl(
        dir,
        &format!("rsa -in {name}.pem.key -outform DER -out {name}.key"),
    );
    let (certificate, key) = (
        dir.join(format!("{name}.der")),
        dir.join(format!("{name}.key")),
    );
    Arc::new(Identity::read(&certificate, &key).unwrap())
}

/// A client's guard and its server's.
fn pair(policy: Policy, client: &Arc<Identity>, server: &Arc<Identity>) -> [Guard; 2] {
    [(client, server), (server, client)]
        .map(|(own, peer)| Guard::new(policy, own.clone(), peer.certificate.clone()))
}

/// The body of a chunk.
fn body(chunk: &[u8]) -> &[u8] {
    let (first, body) = chunk.split_first_chunk::<HEAD_BYTES>().unwrap();
    assert_eq!(
        frame::head(*first).unwrap().len,
        body.len(),
        "it tells its length"
    );
    body
}

#[test]
fn a_channel_opens_for_keys_of_any_length_and_for_nothing_that_was_changed() {
    let dir = tempfile::tempdir().unwrap();
    let [small, large] =
        [("small", 2_048), ("large", 3_072)].map(|(name, bits)| make(dir.path(), name, bits));
    for policy in Policy::ALL {
        for (client, server) in [(&small, &large), (&large, &small), (&small, &small)] {
            let [guard, mut peer] = pair(policy, client, server);
            // Around the lengths at which a block is full.
            for (index, len) in [0, 1, 100, 132, 190, 214, 318, 342, 700]
                .into_iter()
                .enumerate()
            {
                let message = vec![b'm'; len];
                let sequence = 1 + index as u32;
                let chunk = frame::open(Some(&guard), sequence, 9, &message).unwrap();
                let opened = frame::opened(Some(&mut peer), body(&chunk)).unwrap();
                assert_eq!(opened, message, "{policy:?}, {len} bytes");
            }
        }
    }
    let policy = Policy::Aes256Sha256RsaPss;
    let [guard, _] = pair(policy, &small, &large);
    let chunk = frame::open(Some(&guard), 1, 9, b"message").unwrap();
    // Channel, policy, certificate and thumbprint are signed, and what follows is encrypted too.
    for at in (HEAD_BYTES..chunk.len())
        .step_by(37)
        .chain([chunk.len() - 1])
    {
        let [_, mut peer] = pair(policy, &small, &large);
        let mut changed = chunk.clone();
        changed[at] ^= 1;
        assert!(
            frame::opened(Some(&mut peer), body(&changed)).is_err(),
            "byte {at}"
        );
    }
    for len in 0..body(&chunk).len() {
        let [_, mut peer] = pair(policy, &small, &large);
        assert!(
            frame::opened(Some(&mut peer), &body(&chunk)[..len]).is_err(),
            "{len} bytes"
        );
    }
    let [_, mut other] = pair(Policy::Basic256Sha256, &small, &large);
    assert!(
        frame::opened(Some(&mut other), body(&chunk)).is_err(),
        "another policy"
    );
    let [mut not_meant, _] = pair(policy, &small, &small);
    assert!(
        frame::opened(Some(&mut not_meant), body(&chunk)).is_err(),
        "another server"
    );
}

#[test]
fn messages_go_in_parts_once_and_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let own = make(dir.path(), "own", 2_048);
    let way = Way {
        channel: 1,
        token: 2,
    };
    let mut greeting = Vec::new();
    for number in [0, 2_048, 2_048, 0, 0_u32] {
        greeting.extend_from_slice(&number.to_le_bytes());
    }
    let bounds = frame::acknowledged(&greeting).unwrap();
    for policy in Policy::ALL {
        let nonces = [nonce(), nonce()];
        let open = || {
            let [mut guard, mut peer] = pair(policy, &own, &own);
            guard.derive(&nonces[0], &nonces[1]).unwrap();
            peer.derive(&nonces[1], &nonces[0]).unwrap();
            (guard, peer)
        };
        let (guard, mut peer) = open();
        assert!(
            open().0.derive(&nonces[0], &[1; 31]).is_err(),
            "a short nonce"
        );
        // Around the lengths at which a chunk is full.
        let room = guard.room(2_048);
        let mut sequence = 1;
        for len in [1, room - 1, room, room + 1, 2 * room, 10_000] {
            let message: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let first = sequence;
            let sent = frame::message(
                Some(&guard),
                *b"MSG",
                way,
                &mut sequence,
                9,
                &message,
                &bounds,
            );
            let sent = sent.unwrap();
            assert_eq!(sequence - first, len.div_ceil(room) as u32);
            assert!(
                !sent
                    .windows(16)
                    .any(|part| message.windows(16).any(|it| it == part))
            );
            let (mut rest, mut assembly, mut whole) = (&sent[..], Assembly::default(), None);
            while let Some((head, more)) = rest.split_first_chunk::<HEAD_BYTES>() {
                let head = frame::head(*head).unwrap();
                assert!(head.len + HEAD_BYTES <= 2_048, "it fits");
                let (body, more) = more.split_at(head.len);
                whole = assembly.add(Some(&mut peer), &head, body, way, 9).unwrap();
                let again = Assembly::default().add(Some(&mut peer), &head, body, way, 9);
                assert!(again.is_err(), "a chunk is taken once");
                rest = more;
            }
            assert_eq!(whole, Some(message));
        }
        let sent = frame::message(Some(&guard), *b"MSG", way, &mut 1, 9, b"message", &bounds);
        let sent = sent.unwrap();
        let (head, body) = sent.split_first_chunk::<HEAD_BYTES>().unwrap();
        let head = frame::head(*head).unwrap();
        for at in 0..body.len() {
            let mut changed = body.to_vec();
            changed[at] ^= 1;
            let taken = Assembly::default().add(Some(&mut open().1), &head, &changed, way, 9);
            assert!(taken.is_err(), "byte {at}");
            let taken = Assembly::default().add(Some(&mut open().1), &head, &body[..at], way, 9);
            assert!(taken.is_err(), "{at} bytes");
        }
        // What was the first of a message is not its last.
        let mut other = head;
        other.is_last = false;
        assert!(
            Assembly::default()
                .add(Some(&mut open().1), &other, body, way, 9)
                .is_err()
        );
        let (_, mut late) = open();
        let second = frame::message(Some(&guard), *b"MSG", way, &mut 7, 9, b"later", &bounds);
        let second = second.unwrap();
        assert!(
            Assembly::default()
                .add(Some(&mut late), &head, body, way, 9)
                .is_ok()
        );
        let (head, body) = second.split_first_chunk::<HEAD_BYTES>().unwrap();
        let head = frame::head(*head).unwrap();
        assert!(
            Assembly::default()
                .add(Some(&mut late), &head, body, way, 9)
                .is_err(),
            "a gap"
        );
    }
}

#[test]
fn files_are_read_in_both_forms_and_belong_together() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let own = make(dir.path(), "own", 2_048);
    make(dir.path(), "other", 2_048);
    let in_pem = Identity::read(&at("own.pem"), &at("own.pem.key")).unwrap();
    assert_eq!(in_pem.certificate.der(), own.certificate.der());
    let curve = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ec.key \
                 -out ec.pem -days 2 -subj /CN=ec";
    openssl(dir.path(), curve);
    let short = "req -x509 -newkey rsa:1024 -nodes -keyout short.key -out short.pem -days 2 \
                 -subj /CN=short";
    openssl(dir.path(), short);
    std::fs::write(at("nothing"), "").unwrap();
    for (certificate, key, why) in [
        ("own.der", "other.key", "it is not the certificate's key"),
        ("ec.pem", "ec.key", "its key is no RSA key"),
        (
            "short.pem",
            "short.key",
            "its key is no RSA key of 2048 bits",
        ),
        ("own.der", "ec.key", "it is no RSA key of 2048 to 4096 bits"),
        ("own.key", "own.key", "own.key: "),
        ("nothing", "own.key", "nothing: it holds none"),
        ("own.der", "nothing", "nothing: "),
        ("absent", "own.key", "absent: No such file"),
        ("own.der", "absent", "absent: No such file"),
    ] {
        let refused = Identity::read(&at(certificate), &at(key));
        let told = refused.err().unwrap_or_default();
        assert!(told.contains(why), "{certificate}, {key}: {told}");
    }
}

#[test]
fn a_server_is_known_by_its_certificate_or_by_who_issued_it() {
    let dir = tempfile::tempdir().unwrap();
    let own = make(dir.path(), "own", 2_048);
    let other = make(dir.path(), "other", 2_048);
    for line in [
        "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 2 -subj /CN=ca \
         -addext basicConstraints=critical,CA:TRUE",
        "req -newkey rsa:2048 -nodes -keyout issued.key -out issued.csr -subj /CN=issued",
    ] {
        openssl(dir.path(), line);
    }
    std::fs::write(dir.path().join("ext"), "subjectAltName=DNS:localhost\n").unwrap();
    openssl(
        dir.path(),
        "x509 -req -in issued.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out issued.pem -days 2 \
         -extfile ext",
    );
    let read = |name: &str| Certificate::read(&dir.path().join(name)).unwrap();
    let (issued, authority) = (read("issued.pem"), read("ca.pem"));
    let alone = std::slice::from_ref::<Certificate>;
    let now = UnixMillis(jiff::Timestamp::now().as_millisecond());
    let own = &own.certificate;
    assert_eq!(own.is_trusted(alone(own), now), Ok(Trust::Known));
    assert_eq!(own.is_trusted(&[], now), Ok(Trust::Unchecked));
    let known = [read("other.pem"), read("ca.pem"), read("own.pem")];
    for certificate in [own, &issued, &other.certificate] {
        assert_eq!(certificate.is_trusted(&known, now), Ok(Trust::Known));
    }
    assert_eq!(issued.is_trusted(alone(&authority), now), Ok(Trust::Known));
    let later = UnixMillis(now.0 + 3 * 86_400_000);
    for (certificate, trusted, at) in [
        (own, &other.certificate, now),
        (&other.certificate, &authority, now),
        (&issued, own, now),
        (&issued, &authority, later),
    ] {
        let told = certificate.is_trusted(alone(trusted), at).unwrap_err();
        assert!(told.contains("its SHA-1 thumbprint is "), "{told}");
    }
}

#[test]
fn the_best_way_that_both_know_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let own = make(dir.path(), "own", 2_048);
    let endpoint = |mode: u32, policy: &str, tokens: &[(&str, u32, &str)]| Endpoint {
        certificate: own.certificate.der().to_vec(),
        mode,
        policy: policy.to_owned(),
        tokens: tokens
            .iter()
            .map(|(name, kind, policy)| Token {
                name: (*name).to_owned(),
                kind: *kind,
                policy: (*policy).to_owned(),
            })
            .collect(),
        transport: String::new(),
    };
    let [basic, _, pss] = Policy::ALL.map(Policy::uri);
    let old = "http://opcfoundation.org/UA/SecurityPolicy#Basic128Rsa15";
    let all = [
        endpoint(
            1,
            frame::POLICY_NONE,
            &[("nobody", 0, ""), ("sealed", 1, basic)],
        ),
        endpoint(2, pss, &[]),
        endpoint(3, old, &[]),
        endpoint(3, basic, &[("named", 1, ""), ("old", 1, old)]),
    ];
    assert_eq!(secrecy::best(&all).unwrap().0, Policy::Basic256Sha256);
    let two = [
        all[3].clone(),
        endpoint(3, pss, &[("open", 1, frame::POLICY_NONE)]),
    ];
    assert_eq!(secrecy::best(&two).unwrap().0, Policy::Aes256Sha256RsaPss);
    let told = secrecy::best(&all[..3]).unwrap_err().to_string();
    assert!(
        told.ends_with("it offers Aes256_Sha256_RsaPss, Basic128Rsa15, None"),
        "{told}"
    );
    let mut elsewhere = all[3].clone();
    elsewhere.transport = "http://opcfoundation.org/UA-Profile/Transport/https-uabinary".to_owned();
    assert!(secrecy::best(&[elsewhere]).is_err(), "another transport");

    let token = |endpoints: &[Endpoint], channel, has_login| {
        secrecy::token(endpoints, channel, has_login)
            .map(|(token, sealing)| (token.name.clone(), sealing))
            .map_err(|fault| fault.to_string())
    };
    let sealed = Some(Policy::Basic256Sha256);
    assert_eq!(token(&all, None, false), Ok(("nobody".to_owned(), None)));
    assert_eq!(token(&all, None, true), Ok(("sealed".to_owned(), sealed)));
    assert_eq!(token(&all, sealed, true), Ok(("named".to_owned(), sealed)));
    let open = Policy::Aes256Sha256RsaPss;
    assert_eq!(token(&two, Some(open), true), Ok(("open".to_owned(), None)));
    let told = token(&all, sealed, false).unwrap_err();
    assert!(
        told.contains("does not let in clients without a user name"),
        "{told}"
    );
    let only_old = [endpoint(1, frame::POLICY_NONE, &[("old", 1, old)])];
    let told = token(&only_old, None, true).unwrap_err();
    assert!(told.contains("encrypted by Basic128Rsa15 alone"), "{told}");
}

#[test]
fn passwords_are_for_the_server_and_the_session_alone() {
    let dir = tempfile::tempdir().unwrap();
    let server = make(dir.path(), "server", 2_048);
    let login = Login {
        user: "ann".to_owned(),
        // Longer than a block holds.
        password: "secret".repeat(60),
    };
    for policy in Policy::ALL {
        let sealing = Some((policy, server.certificate.clone()));
        let said = secrecy::credentials(&login, sealing, b"nonce of the session").unwrap();
        assert_eq!((said.user, said.policy), ("ann", Some(policy)));
        let opened = server.open(policy.oaep(), &said.password).unwrap();
        let expected = [
            &(360_u32 + 20).to_le_bytes(),
            login.password.as_bytes(),
            b"nonce of the session",
        ];
        assert_eq!(opened, expected.concat());
        assert_eq!(server.open(Oaep::Sha256, b"too short"), None);
    }
    let said = secrecy::credentials(&login, None, b"nonce").unwrap();
    assert_eq!(
        (said.password, said.policy),
        (login.password.into_bytes(), None)
    );
}

#[test]
fn a_session_is_with_who_opened_the_channel() {
    let dir = tempfile::tempdir().unwrap();
    let [own, server, other] = ["own", "server", "other"].map(|name| make(dir.path(), name, 2_048));
    for policy in Policy::ALL {
        let guard = Guard::new(policy, own.clone(), server.certificate.clone());
        let own_nonce = nonce();
        let signed = [own.certificate.der(), &own_nonce].concat();
        let created = Created {
            authentication: NodeId::standard(1),
            timeout_ms: 1.0,
            nonce: nonce(),
            certificate: server.certificate.der().to_vec(),
            endpoints: Vec::new(),
            signature: server.sign(policy, &signed),
        };
        let proof = secrecy::proven(&guard, &created, &own_nonce).unwrap();
        let shown = [server.certificate.der(), &created.nonce].concat();
        assert!(own.certificate.has_signed(policy, &shown, &proof.bytes));
        let refused = |change: &dyn Fn(&mut Created)| {
            let mut changed = created.clone();
            change(&mut changed);
            let refused = secrecy::proven(&guard, &changed, &own_nonce);
            assert!(matches!(refused, Err(Fault::Damaged(_))));
        };
        refused(&|created| created.certificate = other.certificate.der().to_vec());
        refused(&|created| created.signature = other.sign(policy, &signed));
        refused(&|created| created.signature.clear());
        assert!(
            secrecy::proven(&guard, &created, &nonce()).is_err(),
            "an older session's"
        );
    }
}
