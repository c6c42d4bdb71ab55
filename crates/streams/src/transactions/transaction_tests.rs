//! Every step of a transaction, and every refusal.

use super::super::Outcome::{Abort, Commit};
use super::*;

const NOW: UnixMillis = UnixMillis(1_000);
const TIMEOUT: Duration = Duration::from_secs(60);

fn who(epoch: i16) -> ProducerIdentity {
    ProducerIdentity { id: 7, epoch }
}

fn fresh() -> Transaction {
    at_epoch(0)
}

fn at_epoch(epoch: i16) -> Transaction {
    Transaction::of(Standing::fresh(NOW, TIMEOUT, who(epoch), None))
}

fn open(protocol: Protocol) -> Transaction {
    let mut transaction = fresh();
    if protocol == Protocol::Explicit {
        let change = transaction.join(NOW, who(0), &[3]).unwrap().unwrap();
        transaction.apply(change);
    }
    if let Some(change) = transaction.write(NOW, protocol, who(0), 3).unwrap() {
        transaction.apply(change);
    }
    assert_eq!(transaction.standing.phase, Phase::Ongoing);
    transaction
}

fn ended(mut transaction: Transaction, protocol: Protocol, outcome: Outcome) -> Transaction {
    let who = transaction.standing.producer;
    let End::Decide(change) = transaction.end(NOW, protocol, who, outcome, None).unwrap() else {
        panic!("it was not decided");
    };
    transaction.apply(change);
    transaction.apply(TransactionChange::Completed { at: NOW });
    transaction
}

fn offset(offset: i64) -> CommittedOffset {
    CommittedOffset {
        offset,
        leader_epoch: -1,
        metadata: String::new(),
        at: NOW,
    }
}

#[test]
fn the_first_protocol_keeps_the_epoch_and_the_second_takes_the_next() {
    let first = ended(open(Protocol::Explicit), Protocol::Explicit, Commit);
    assert_eq!(first.standing.producer, who(0));
    assert_eq!(first.standing.phase, Phase::Ended(Commit));
    let second = ended(open(Protocol::Implicit), Protocol::Implicit, Commit);
    assert_eq!(second.standing.producer, who(1));
    assert_eq!(
        second.standing.marker,
        who(1),
        "its markers fence the last epoch"
    );
}

#[test]
fn a_batch_goes_where_the_transaction_was_told_of() {
    let mut transaction = fresh();
    let write = |t: &Transaction, number| t.write(NOW, Protocol::Explicit, who(0), number);
    assert_eq!(write(&transaction, 3), Err(TransactionError::NotJoined));
    let change = transaction.join(NOW, who(0), &[3]).unwrap().unwrap();
    transaction.apply(change);
    assert_eq!(write(&transaction, 3), Ok(None));
    assert_eq!(write(&transaction, 4), Err(TransactionError::NotJoined));
    assert_eq!(transaction.join(NOW, who(0), &[3]), Ok(None));
    let transaction = ended(transaction, Protocol::Explicit, Commit);
    assert_eq!(write(&transaction, 3), Err(TransactionError::NotJoined));
}

#[test]
fn offsets_count_from_a_commit_on_and_never_after_an_abort() {
    for outcome in [Commit, Abort] {
        let mut transaction = fresh();
        let offsets = vec![(3, offset(9))];
        let commit = |t: &Transaction, offsets| {
            t.commit_offsets(NOW, Protocol::Explicit, who(0), "g", offsets)
        };
        assert_eq!(
            commit(&transaction, offsets.clone()),
            Err(TransactionError::NotJoined)
        );
        let joins = transaction.join_group(NOW, who(0), "g").unwrap().unwrap();
        transaction.apply(joins);
        let takes = commit(&transaction, offsets).unwrap();
        assert!(transaction.apply(takes).is_empty());
        let End::Decide(change) = transaction
            .end(NOW, Protocol::Explicit, who(0), outcome, None)
            .unwrap()
        else {
            panic!("it was not decided");
        };
        let counted = transaction.apply(change);
        let expected = usize::from(outcome == Commit);
        assert_eq!(counted.len(), expected, "{outcome:?}");
        assert!(transaction.offsets.is_empty());
    }
}

#[test]
fn while_it_is_ending_everything_waits() {
    let mut transaction = open(Protocol::Explicit);
    let End::Decide(change) = transaction
        .end(NOW, Protocol::Explicit, who(0), Commit, None)
        .unwrap()
    else {
        panic!("it was not decided");
    };
    transaction.apply(change);
    let concurrent = TransactionError::Concurrent;
    assert_eq!(transaction.join(NOW, who(0), &[5]), Err(concurrent.clone()));
    assert_eq!(
        transaction.init(NOW, TIMEOUT, None, None),
        Err(concurrent.clone())
    );
    let end = |outcome| transaction.end(NOW, Protocol::Explicit, who(0), outcome, None);
    assert_eq!(end(Commit), Err(concurrent));
    assert!(matches!(end(Abort), Err(TransactionError::InvalidState(_))));
}

#[test]
fn an_end_asked_for_again_is_answered_again() {
    let first = ended(open(Protocol::Explicit), Protocol::Explicit, Commit);
    let end = |t: &Transaction, protocol, outcome| t.end(NOW, protocol, who(0), outcome, None);
    assert_eq!(
        end(&first, Protocol::Explicit, Commit),
        Ok(End::Again(who(0)))
    );
    assert!(matches!(
        end(&first, Protocol::Explicit, Abort),
        Err(TransactionError::InvalidState(_))
    ));
    let second = ended(open(Protocol::Implicit), Protocol::Implicit, Commit);
    assert_eq!(
        end(&second, Protocol::Implicit, Commit),
        Ok(End::Again(who(1)))
    );
    assert_eq!(
        end(&second, Protocol::Implicit, Abort),
        Err(TransactionError::Fenced)
    );
}

#[test]
fn nothing_to_end_is_an_error_but_for_an_abort_of_the_second_protocol() {
    let transaction = fresh();
    let end = |protocol, outcome| transaction.end(NOW, protocol, who(0), outcome, None);
    for (protocol, outcome) in [
        (Protocol::Explicit, Commit),
        (Protocol::Explicit, Abort),
        (Protocol::Implicit, Commit),
    ] {
        assert!(matches!(
            end(protocol, outcome),
            Err(TransactionError::InvalidState(_))
        ));
    }
    assert!(matches!(end(Protocol::Implicit, Abort), Ok(End::Decide(_))));
}

#[test]
fn a_new_instance_aborts_what_is_open_and_fences_the_old_one() {
    let mut transaction = open(Protocol::Explicit);
    let Init::Abort(change) = transaction.init(NOW, TIMEOUT, None, None).unwrap() else {
        panic!("the open transaction was not aborted");
    };
    transaction.apply(change);
    transaction.apply(TransactionChange::Completed { at: NOW });
    assert_eq!(transaction.standing.phase, Phase::Ended(Abort));
    let Init::Begin(change) = transaction.init(NOW, TIMEOUT, None, None).unwrap() else {
        panic!("the new instance was not let in");
    };
    transaction.apply(change);
    assert_eq!(transaction.standing.producer, who(2));
    let fenced = TransactionError::Fenced;
    assert_eq!(transaction.join(NOW, who(0), &[3]), Err(fenced.clone()));
    assert_eq!(
        transaction.end(NOW, Protocol::Explicit, who(0), Commit, None),
        Err(fenced.clone())
    );
    assert_eq!(
        transaction.init(NOW, TIMEOUT, Some(who(0)), None),
        Err(fenced)
    );
    let other = ProducerIdentity { id: 8, epoch: 0 };
    assert_eq!(
        transaction.join(NOW, other, &[3]),
        Err(TransactionError::OtherProducer)
    );
}

#[test]
fn a_producer_that_comes_back_goes_on_and_its_lost_answer_is_repeated() {
    let mut transaction = fresh();
    let Init::Begin(change) = transaction.init(NOW, TIMEOUT, Some(who(0)), None).unwrap() else {
        panic!("it was not let in");
    };
    transaction.apply(change);
    assert_eq!(transaction.standing.producer, who(1));
    assert_eq!(
        transaction.init(NOW, TIMEOUT, Some(who(0)), None),
        Ok(Init::Again(who(1)))
    );
}

/// A new instance without an identity takes over.
fn taken_over(mut transaction: Transaction, fresh_id: Option<i64>) -> Transaction {
    let Init::Begin(change) = transaction.init(NOW, TIMEOUT, None, fresh_id).unwrap() else {
        panic!("the new instance was not let in");
    };
    transaction.apply(change);
    transaction
}

#[test]
fn an_older_instance_never_gets_the_identity_of_its_successor() {
    let protocol = Protocol::Explicit;
    let old = ended(open(protocol), protocol, Commit);
    let fenced = Err(TransactionError::Fenced);
    let comes_back = |t: &Transaction| t.init(NOW, TIMEOUT, Some(who(0)), None);

    // While the new instance has written nothing yet, and once it has.
    let mut new = taken_over(old, None);
    assert_eq!(new.standing.producer, who(1));
    assert_eq!(comes_back(&new), fenced);
    let change = new.join(NOW, who(1), &[3]).unwrap().unwrap();
    new.apply(change);
    let new = ended(new, protocol, Commit);
    assert_eq!(comes_back(&new), fenced);
    // No identity stands for "nobody's".
    for epoch in [-1, i16::MIN] {
        let nobody = new.init(NOW, TIMEOUT, Some(who(epoch)), None);
        assert_eq!(nobody, fenced);
        let ends = new.end(NOW, Protocol::Implicit, who(epoch), Commit, None);
        assert_eq!(ends, Err(TransactionError::Fenced));
    }

    // After the new instance has aborted what was open.
    let mut open = open(protocol);
    let Init::Abort(change) = open.init(NOW, TIMEOUT, None, None).unwrap() else {
        panic!("the open transaction was not aborted");
    };
    open.apply(change);
    open.apply(TransactionChange::Completed { at: NOW });
    let new = taken_over(open, None);
    for epoch in [0, 1] {
        let comes_back = new.init(NOW, TIMEOUT, Some(who(epoch)), None);
        assert_eq!(comes_back, fenced, "epoch {epoch}");
    }

    // Under a fresh id, too, and it hears that it was fenced off.
    let last = i16::MAX - 2;
    let new = taken_over(at_epoch(last), Some(99));
    assert_eq!(new.init(NOW, TIMEOUT, Some(who(last)), None), fenced);
    let joins = new.join(NOW, who(last), &[3]);
    assert_eq!(joins, Err(TransactionError::Fenced));
}

#[test]
fn used_up_epochs_go_on_under_a_fresh_id() {
    let mut transaction = at_epoch(i16::MAX - 2);
    let init = |t: &Transaction, fresh_id| t.init(NOW, TIMEOUT, None, fresh_id).unwrap();
    assert_eq!(init(&transaction, None), Init::NeedsId);
    let Init::Begin(change) = init(&transaction, Some(99)) else {
        panic!("it was not let in");
    };
    transaction.apply(change);
    let expected = ProducerIdentity { id: 99, epoch: 0 };
    assert_eq!(transaction.standing.producer, expected);

    let transaction = at_epoch(i16::MAX - 2);
    let producer = who(i16::MAX - 2);
    let end = |fresh_id| transaction.end(NOW, Protocol::Implicit, producer, Abort, fresh_id);
    assert_eq!(end(None), Ok(End::NeedsId));
    let Ok(End::Decide(TransactionChange::Decided { marker, next, .. })) = end(Some(99)) else {
        panic!("it was not decided");
    };
    assert_eq!((marker, next), (who(i16::MAX - 1), expected));
}

#[test]
fn what_stays_open_too_long_is_aborted_and_fenced() {
    let mut transaction = open(Protocol::Explicit);
    assert_eq!(transaction.deadline(), Some(NOW + TIMEOUT));
    assert_eq!(
        transaction.expire(NOW + (TIMEOUT - Duration::from_millis(1))),
        None
    );
    let change = transaction.expire(NOW + TIMEOUT).unwrap();
    transaction.apply(change);
    transaction.apply(TransactionChange::Completed { at: NOW });
    assert_eq!(transaction.standing.phase, Phase::Ended(Abort));
    assert_eq!(transaction.deadline(), None);
    assert_eq!(
        transaction.end(NOW, Protocol::Explicit, who(0), Commit, None),
        Err(TransactionError::Fenced)
    );
}

#[test]
fn a_snapshot_in_pieces_keeps_the_offsets_of_an_open_transaction() {
    let mut transaction = open(Protocol::Implicit);
    let commit =
        transaction.commit_offsets(NOW, Protocol::Implicit, who(0), "g", vec![(3, offset(9))]);
    transaction.apply(commit.unwrap());
    let before = transaction.clone();
    transaction.apply(TransactionChange::Stands(before.standing.clone()));
    assert_eq!(transaction.offsets, before.offsets);
    let fresh = Standing::fresh(NOW, TIMEOUT, who(1), Some(who(0)));
    transaction.apply(TransactionChange::Stands(fresh));
    assert!(transaction.offsets.is_empty());
}
