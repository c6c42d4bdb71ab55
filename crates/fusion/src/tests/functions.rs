//! Functions of one's own in the engine: over restarts, replacements and removals.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use super::house::{House, new};
use crate::{FusionError, NewFunctions, ReplacedState, Replacement, Status};

pub fn module(name: &str, factor: i64) -> NewFunctions {
    let text = format!(
        "(module (func (export \"times\") (param i64) (result i64)
           (i64.mul (local.get 0) (i64.const {factor})))
         (func (export \"over\") (param i64) (result i64)
           (i64.div_s (i64.const 12) (local.get 0))))"
    );
    NewFunctions {
        name: name.to_owned(),
        module: STANDARD.encode(wat::parse_str(text).unwrap()),
        signatures: Vec::new(),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn modules_outlive_a_restart_and_stay_while_statements_call_them() {
    let mut house = House::open().await;
    let unknown = house
        .fusion
        .add(new("s", "SELECT twice.times(v) AS v FROM mqtt.\"in\""))
        .await;
    assert!(matches!(unknown, Err(FusionError::Text(_))), "{unknown:?}");
    let shown = house
        .fusion
        .add_functions(module("twice", 2))
        .await
        .unwrap();
    assert_eq!(
        shown.functions,
        ["twice.over(long) -> long", "twice.times(long) -> long"]
    );
    let taken = house.fusion.add_functions(module("twice", 3)).await;
    assert!(matches!(taken, Err(FusionError::ModuleTaken(_))));
    house
        .add_named(
            "s",
            "INSERT INTO kafka.out SELECT twice.times(v) AS v FROM mqtt.\"in\"",
        )
        .await;
    house.publish("in", "{\"v\":21}");
    assert_eq!(house.rows("out", 1).await, [json!({"v": 42})]);

    house.fusion.close().await;
    house.reopen().await;
    house.publish("in", "{\"v\":4}");
    assert_eq!(house.rows("out", 2).await[1], json!({"v": 8}));
    assert_eq!(
        house.fusion.functions_of("twice").unwrap().statements,
        ["s"]
    );
    let used = house.fusion.remove_functions("twice").await.unwrap_err();
    assert!(
        used.to_string().contains("called by the statement 's'"),
        "{used}"
    );

    // Another version has another name, and the statement moves to it.
    house
        .fusion
        .add_functions(module("thrice", 3))
        .await
        .unwrap();
    let text = "INSERT INTO kafka.out SELECT thrice.times(v) AS v FROM mqtt.\"in\"";
    let replacement = Replacement {
        new: new("s", text),
        state: ReplacedState::Auto,
        origin: None,
    };
    house.fusion.replace("s", replacement).await.unwrap();
    house.fusion.remove_functions("twice").await.unwrap();
    house.publish("in", "{\"v\":4}");
    assert_eq!(house.rows("out", 3).await[2], json!({"v": 12}));
    let gone = house.fusion.remove_functions("twice").await;
    assert!(matches!(gone, Err(FusionError::UnknownModule(_))));

    house.fusion.close().await;
    house.reopen().await;
    let names: Vec<String> = house
        .fusion
        .functions()
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, ["thrice"]);
    assert_eq!(house.fusion.statement("s").unwrap().status, Status::Running);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_modules_are_read_by_their_version() {
    let mut house = House::open().await;
    house.fusion.add_functions(module("m", 2)).await.unwrap();
    house.fusion.close().await;
    let file = house.inside("fusion-functions/m.json");
    let bytes = STANDARD.encode(
        b"\0asm\x01\0\0\0\x01\x05\x01\x60\0\x01\x7f\x03\x02\x01\0\x07\x07\x01\x03one\0\0\x0a\x06\x01\x04\0\x41\x01\x0b",
    );
    let of_version = |version: u32| {
        format!(
            "{{\"version\":{version},\"added_ms\":7,\"signatures\":[\"one() -> int\"],\"module\":\"{bytes}\"}}"
        )
    };
    std::fs::write(&file, of_version(1)).unwrap();
    house.reopen().await;
    let shown = house.fusion.functions_of("m").unwrap();
    assert_eq!(
        (shown.functions, shown.added_ms.0),
        (vec!["m.one() -> int".to_owned()], 7)
    );
    house.fusion.close().await;
    std::fs::write(&file, of_version(2)).unwrap();
    let newer = house.try_reopen().await.map(|_| ()).unwrap_err();
    assert!(matches!(newer, FusionError::Unreadable(_)), "{newer}");
    std::fs::write(&file, of_version(1)).unwrap();
    house.reopen().await;
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_module_that_cannot_be_used_any_more_is_listed_and_added_anew_or_removed() {
    let mut house = House::open().await;
    for name in ["cut", "refused"] {
        house.fusion.add_functions(module(name, 2)).await.unwrap();
    }
    let text = "INSERT INTO kafka.out SELECT refused.times(v) AS v FROM mqtt.\"in\"";
    house.add_named("s", text).await;
    house.add_named("t", &text.replace("refused", "cut")).await;
    house.fusion.close().await;
    let file = |name: &str| house.inside(&format!("fusion-functions/{name}.json"));
    let whole = std::fs::read(file("cut")).unwrap();
    std::fs::write(file("cut"), &whole[..whole.len() / 2]).unwrap();
    let refused = json!({"version": 1, "added_ms": 7, "signatures": [], "module": "AGFzbQ=="});
    std::fs::write(file("refused"), refused.to_string()).unwrap();
    house.reopen().await;
    let listed = house.fusion.functions();
    let told: Vec<(&str, &[String], bool)> = listed
        .iter()
        .map(|one| (&*one.name, &*one.statements, one.error.is_some()))
        .collect();
    let [s, t] = ["s", "t"].map(|name| vec![name.to_owned()]);
    assert_eq!(told, [("cut", &*t, true), ("refused", &*s, true)]);
    assert_eq!((listed[1].module_bytes, listed[1].added_ms.0), (4, 7));
    assert_eq!(house.fusion.statement("s").unwrap().status, Status::Failed);

    house.fusion.remove_functions("cut").await.unwrap();
    let gone = house.fusion.remove_functions("cut").await;
    assert!(matches!(gone, Err(FusionError::UnknownModule(_))));
    let wrong = NewFunctions {
        module: "AGFzbQ==".to_owned(),
        ..module("refused", 3)
    };
    let wrong = house.fusion.add_functions(wrong).await;
    assert!(matches!(wrong, Err(FusionError::Refused(_))), "{wrong:?}");
    let added = house.fusion.add_functions(module("refused", 3)).await;
    assert_eq!(added.unwrap().error, None);
    house.fusion.remove("t").await.unwrap();

    house.fusion.close().await;
    house.reopen().await;
    let listed = house.fusion.functions();
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0].error, None);
    house.publish("in", "{\"v\":4}");
    assert_eq!(house.rows("out", 1).await, [json!({"v": 12})]);
    house.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_on_which_a_call_fails_is_told_on_the_error_topic() {
    let house = House::open().await;
    house.fusion.add_functions(module("m", 2)).await.unwrap();
    house
        .add_named(
            "letters",
            "INSERT INTO kafka.letters SELECT * FROM mqtt.\"errors/statements/#\"",
        )
        .await;
    house
        .add_named(
            "s",
            "INSERT INTO kafka.out SELECT m.over(v) AS v FROM mqtt.\"in\"",
        )
        .await;
    house.publish("in", "{\"v\":0}");
    house.publish("in", "{\"v\":3}");
    assert_eq!(house.rows("out", 1).await, [json!({"v": 4})]);
    let letters = house.rows("letters", 1).await;
    let reason = letters[0]["reason"].as_str().unwrap();
    assert!(reason.contains("the function m.over failed"), "{reason}");
    assert_eq!(letters[0]["payload"], "{\"v\":0}");
    let info = house.until("s", |info| info.errored_total == 1).await;
    assert_eq!(info.in_flight, 0);
    house.close().await;
}
