//! Checks of the operation's state machine: lost, late, doubled and foreign answers.

use super::*;

const POLICY: Policy = Policy {
    resend_after: Duration::from_secs(60),
    failed_after_attempts: 3,
    queued_timeout: Duration::from_secs(300),
    deployed_timeout: Duration::from_secs(300),
    describe_timeout: Duration::from_secs(30),
    certificate_warning: Duration::ZERO,
};

/// When its agent last called.
const NEVER: UnixMillis = UnixMillis(0);

fn at(seconds: i64) -> UnixMillis {
    UnixMillis(seconds * 1_000)
}

fn update() -> FleetOperation {
    let (kind, operand) = (OperationKind::Update, Operand::Configuration);
    let mut operation = FleetOperation::new(
        Arc::from("op"),
        kind,
        operand,
        Some(Arc::from("flow")),
        at(0),
    );
    operation.stored = true;
    operation
}

#[test]
fn an_agent_that_calls_and_gets_nothing_yet_is_waited_for() {
    let mut operation = update();
    let called = at(200);
    assert!(!operation.expire(at(499), &POLICY, Duration::ZERO, called));
    assert!(operation.expire(at(500), &POLICY, Duration::ZERO, called));
}

#[test]
fn nothing_is_handed_out_before_it_is_durable() {
    let mut operation = update();
    operation.stored = false;
    assert!(!operation.hand_out(at(1), &POLICY));
    assert_eq!(operation.status, OperationStatus::Queued);
    operation.stored = true;
    assert!(operation.hand_out(at(1), &POLICY));
    assert_eq!(operation.status, OperationStatus::Deployed);
}

#[test]
fn a_lost_response_is_sent_again_under_the_same_id() {
    let mut operation = update();
    assert!(operation.hand_out(at(0), &POLICY));
    assert!(
        !operation.hand_out(at(59), &POLICY),
        "the agent may still be at work"
    );
    assert!(operation.hand_out(at(60), &POLICY));
    assert!(
        !operation.hand_out(at(179), &POLICY),
        "the second wait is twice as long"
    );
    assert!(operation.hand_out(at(180), &POLICY));
    assert!(!operation.expire(at(479), &POLICY, Duration::ZERO, NEVER));
    assert!(!operation.is_hopeless(&POLICY));
    assert!(operation.expire(at(480), &POLICY, Duration::ZERO, NEVER));
    assert!(
        operation.is_hopeless(&POLICY),
        "three times in vain counts as failed"
    );
    assert!(operation.hand_out(at(480), &POLICY), "but it is tried on");
    assert_eq!(&*operation.id, "op");
}

#[test]
fn acknowledges_decide() {
    for (state, status) in [
        (AckState::FullyApplied, OperationStatus::Done),
        (AckState::NoOperation, OperationStatus::Done),
        (AckState::PartiallyApplied, OperationStatus::Failed),
        (AckState::NotApplied, OperationStatus::Failed),
        (AckState::OperationNotUnderstood, OperationStatus::Failed),
        (
            AckState::Unknown("MAYBE".to_owned()),
            OperationStatus::Failed,
        ),
    ] {
        let mut operation = update();
        operation.hand_out(at(0), &POLICY);
        assert_eq!(
            operation.acknowledge(&state, "why", at(1)),
            AckEffect::Decided
        );
        assert_eq!(operation.status, status, "{state}");
        assert_eq!(operation.details, format!("{state}: why"));
        assert!(
            !operation.hand_out(at(1_000), &POLICY),
            "what is decided is not sent again"
        );
        assert!(!operation.expire(at(10_000), &POLICY, Duration::ZERO, NEVER));
    }
}

#[test]
fn a_duplicate_acknowledge_changes_nothing() {
    let mut operation = update();
    operation.hand_out(at(0), &POLICY);
    operation.acknowledge(&AckState::FullyApplied, "", at(1));
    // The answer of an agent that got the operation twice.
    let effect = operation.acknowledge(&AckState::NotApplied, "", at(2));
    assert_eq!(effect, AckEffect::Duplicate);
    assert_eq!(
        (operation.status, operation.updated),
        (OperationStatus::Done, at(1))
    );
}

#[test]
fn a_late_acknowledge_still_counts() {
    let mut operation = update();
    operation.hand_out(at(0), &POLICY);
    assert!(operation.expire(at(300), &POLICY, Duration::ZERO, NEVER));
    assert_eq!(
        operation.acknowledge(&AckState::FullyApplied, "", at(301)),
        AckEffect::Late
    );
    assert_eq!(operation.status, OperationStatus::Done);
    assert_eq!(operation.details, "FULLY_APPLIED after it was timed_out");
}

#[test]
fn a_lost_acknowledge_is_made_up_for_by_the_flow_seen_running() {
    let mut operation = update();
    operation.hand_out(at(0), &POLICY);
    assert!(operation.converge(at(30)));
    assert_eq!(operation.status, OperationStatus::Done);
    assert!(
        !operation.acknowledged,
        "that no acknowledge came must stay known"
    );
    assert!(!operation.converge(at(60)));
    // It was only slow.
    assert_eq!(
        operation.acknowledge(&AckState::FullyApplied, "", at(61)),
        AckEffect::Decided
    );
    assert!(operation.acknowledged);
    assert_eq!(operation.status, OperationStatus::Done);
}

#[test]
fn an_agent_that_comes_back_gets_the_same_operation() {
    let mut operation = update();
    operation.hand_out(at(0), &POLICY);
    assert!(operation.expire(at(300), &POLICY, Duration::ZERO, NEVER));
    assert!(!operation.is_hopeless(&POLICY));
    assert!(operation.hand_out(at(9_000), &POLICY));
    assert_eq!(
        (operation.status, operation.attempts),
        (OperationStatus::Deployed, 2)
    );
}

#[test]
fn an_operation_whose_agent_never_calls_times_out() {
    let mut operation = update();
    assert!(!operation.expire(at(299), &POLICY, Duration::ZERO, NEVER));
    assert!(operation.expire(at(300), &POLICY, Duration::ZERO, NEVER));
    assert_eq!(operation.status, OperationStatus::TimedOut);
    assert!(operation.hand_out(at(400), &POLICY));
}

#[test]
fn a_cancelled_operation_stays_cancelled_but_remembers_its_answer() {
    let mut operation = update();
    operation.hand_out(at(0), &POLICY);
    operation.cancel("replaced by version 2", at(1));
    assert!(!operation.hand_out(at(100), &POLICY));
    assert_eq!(
        operation.acknowledge(&AckState::FullyApplied, "", at(2)),
        AckEffect::Late
    );
    assert_eq!(operation.status, OperationStatus::Cancelled);
    assert_eq!(operation.details, "FULLY_APPLIED after it was cancelled");
}

#[test]
fn a_description_that_times_out_is_left_to_another_agent() {
    let (kind, operand) = (OperationKind::Describe, Operand::Manifest);
    let mut operation = FleetOperation::new(Arc::from("op"), kind, operand, None, at(0));
    operation.stored = true;
    assert!(operation.hand_out(at(0), &POLICY));
    // Its agent calls every five minutes.
    let patience = Duration::from_secs(900);
    assert!(!operation.expire(at(30), &POLICY, patience, NEVER));
    assert!(operation.clone().expire(at(900), &POLICY, patience, NEVER));
    assert!(operation.expire(at(30), &POLICY, Duration::ZERO, NEVER));
    assert!(!operation.hand_out(at(31), &POLICY));
}

/// Any order of calls: decided once, never sent again before the wait is over, and an id that
/// was acknowledged is never handed out again.
#[test]
fn no_order_of_events_breaks_the_rules() {
    for seed in 0..2_000 {
        let mut rng = base::Rng::from_seed(seed);
        let mut operation = update();
        let mut now = 0;
        for _ in 0..60 {
            now += i64::try_from(rng.below(100)).expect("below 100");
            let before = operation.clone();
            match rng.below(5) {
                0 | 1 => {
                    let sent = operation.hand_out(at(now), &POLICY);
                    assert!(!(sent && before.acknowledged), "seed {seed}");
                    let early = |last| at(now).since(last) < POLICY.resend_after;
                    assert!(
                        !(sent && before.handed_out.is_some_and(early)),
                        "seed {seed}"
                    );
                }
                2 => {
                    operation.expire(at(now), &POLICY, Duration::ZERO, NEVER);
                }
                3 if rng.one_in(4) => {
                    operation.converge(at(now));
                }
                4 if rng.one_in(6) => {
                    let state = if rng.one_in(2) {
                        AckState::FullyApplied
                    } else {
                        AckState::NotApplied
                    };
                    let effect = operation.acknowledge(&state, "", at(now));
                    assert_eq!(
                        effect == AckEffect::Duplicate,
                        before.acknowledged,
                        "seed {seed}"
                    );
                }
                _ => {}
            }
            if before.acknowledged {
                assert_eq!(operation.status, before.status, "seed {seed}");
            }
            if operation.status == OperationStatus::Done && !operation.acknowledged {
                assert!(operation.details.contains("no acknowledge"), "seed {seed}");
            }
        }
    }
}

#[test]
fn texts_are_cut_between_characters() {
    let mut text = "aé".to_owned();
    truncate(&mut text, 2);
    assert_eq!(text, "a");
}
