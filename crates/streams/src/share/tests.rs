//! A share partition against a plain list of its records.

use std::sync::Arc;

use base::{Rng, UnixMillis};

use super::in_flight::{Claim, InFlight};
use super::{Acknowledgement, Acquired, Fate};

const DELIVERIES_MAX: u16 = 3;
const LOCK_MS: i64 = 100;

fn claim(member: &str, now: i64, records_max: i64) -> Claim {
    Claim {
        member: Arc::from(member),
        until: UnixMillis(now + LOCK_MS),
        records_max,
        in_flight_max: 50,
    }
}

fn acquired(first: i64, last: i64, deliveries: u16) -> Acquired {
    Acquired {
        first,
        last,
        deliveries,
    }
}

fn said(first: i64, last: i64, fates: &[Fate]) -> Acknowledgement {
    Acknowledgement {
        first,
        last,
        fates: fates.to_vec(),
    }
}

fn acknowledge(
    of: &mut InFlight,
    now: i64,
    member: &str,
    all: &[Acknowledgement],
) -> Result<(), String> {
    let renewed = UnixMillis(now + LOCK_MS);
    let outcome = of.acknowledge(UnixMillis(now), member, all, renewed, DELIVERIES_MAX);
    outcome.map_err(|error| error.to_string())
}

#[test]
fn each_record_goes_to_one_member_until_it_is_dealt_with() {
    let mut of = InFlight::new(10);
    assert_eq!(of.acquire(5, 19, &claim("a", 0, 4)), [acquired(10, 13, 1)]);
    assert_eq!(of.next(50), Some(14));
    assert_eq!(
        of.acquire(10, 19, &claim("b", 0, 100)),
        [acquired(14, 19, 1)]
    );
    assert_eq!(of.acquire(10, 19, &claim("c", 0, 100)), []);
    let fates = [Fate::Accept, Fate::Release, Fate::Reject, Fate::Gap];
    acknowledge(&mut of, 1, "a", &[said(10, 13, &fates)]).unwrap();
    assert_eq!((of.start(), of.next(50)), (11, Some(11)));
    assert_eq!(of.unfinished_before(30), 17);
    assert_eq!(
        of.acquire(10, 19, &claim("b", 1, 100)),
        [acquired(11, 11, 2)]
    );
    // What was done with may be said once more, and what is another's may not.
    acknowledge(&mut of, 2, "b", &[said(10, 11, &[Fate::Accept])]).unwrap();
    assert_eq!(of.start(), 14);
    assert!(acknowledge(&mut of, 2, "a", &[said(14, 15, &[Fate::Accept])]).is_err());
    let all = [said(14, 14, &[Fate::Accept]), said(19, 20, &[Fate::Accept])];
    assert!(acknowledge(&mut of, 2, "b", &all).is_err());
    assert_eq!(of.start(), 14, "all or nothing");
}

#[test]
fn what_is_held_for_too_long_comes_back_and_what_came_too_often_does_not() {
    let mut of = InFlight::new(0);
    for deliveries in 1..=DELIVERIES_MAX {
        let now = i64::from(deliveries) * 1_000;
        let taken = of.acquire(0, 1, &claim("a", now, 100));
        assert_eq!(taken, [acquired(0, 1, deliveries)]);
        assert_eq!(of.next_deadline(), Some(UnixMillis(now + LOCK_MS)));
        assert!(!of.expire(UnixMillis(now + LOCK_MS - 1), DELIVERIES_MAX));
        acknowledge(&mut of, now + 50, "a", &[said(0, 1, &[Fate::Renew])]).unwrap();
        assert!(!of.expire(UnixMillis(now + LOCK_MS), DELIVERIES_MAX));
        assert!(of.expire(UnixMillis(now + 50 + LOCK_MS), DELIVERIES_MAX));
    }
    assert_eq!(
        (of.start(), of.next(50), of.next_deadline()),
        (2, Some(2), None)
    );
    // Late: its time was over.
    of.acquire(2, 2, &claim("a", 10_000, 100));
    let late = acknowledge(
        &mut of,
        10_000 + LOCK_MS,
        "a",
        &[said(2, 2, &[Fate::Accept])],
    );
    assert!(late.is_err());
    assert_eq!(of.next(50), Some(2));
}

#[test]
fn a_process_goes_on_where_the_last_one_stood() {
    let mut of = InFlight::new(0);
    of.acquire(0, 9, &claim("a", 0, 100));
    let fates = [Fate::Release, Fate::Accept, Fate::Release];
    acknowledge(&mut of, 0, "a", &[said(2, 4, &fates)]).unwrap();
    let mut again = InFlight::of_standing(&of.standing());
    assert_eq!(again.standing(), of.standing());
    let taken = again.acquire(0, 20, &claim("b", 0, 100));
    let expected = [acquired(0, 2, 2), acquired(4, 9, 2), acquired(10, 20, 1)];
    assert_eq!(taken, expected);
}

#[test]
fn no_more_is_on_its_way_than_may_be() {
    let mut of = InFlight::new(0);
    assert_eq!(
        of.acquire(0, 999, &claim("a", 0, 500)),
        [acquired(0, 49, 1)]
    );
    assert_eq!(of.next(50), None);
    acknowledge(&mut of, 0, "a", &[said(1, 49, &[Fate::Accept])]).unwrap();
    assert_eq!(of.next(50), None, "the first holds it up");
    acknowledge(&mut of, 0, "a", &[said(0, 0, &[Fate::Release])]).unwrap();
    assert_eq!(of.acquire(0, 999, &claim("b", 0, 500)), [acquired(0, 0, 2)]);
    acknowledge(&mut of, 0, "b", &[said(0, 0, &[Fate::Accept])]).unwrap();
    assert_eq!(
        (of.start(), of.next(50), of.runs_count()),
        (50, Some(50), 0)
    );
}

/// A record of the plain list.
#[derive(Clone, Debug, PartialEq)]
enum Record {
    Unknown,
    Available,
    Acquired(usize, i64),
    Finished,
}

/// The same by one entry for each record.
struct Plain {
    start: i64,
    records: Vec<(Record, u16)>,
}

impl Plain {
    fn release(record: &mut (Record, u16)) {
        record.0 = match record.1 >= DELIVERIES_MAX {
            true => Record::Finished,
            false => Record::Available,
        };
    }

    fn expire(&mut self, now: i64) {
        for record in &mut self.records {
            if matches!(record.0, Record::Acquired(_, until) if until <= now) {
                Plain::release(record);
            }
        }
    }

    fn tidy(&mut self) {
        while self
            .records
            .get(self.start as usize)
            .is_some_and(|r| r.0 == Record::Finished)
        {
            self.start += 1;
        }
    }

    fn next(&self) -> i64 {
        let after = &self.records[self.start as usize..];
        let available = after.iter().position(|r| r.0 == Record::Available);
        let next = available.or(after
            .iter()
            .rposition(|r| r.0 != Record::Unknown)
            .map(|at| at + 1));
        self.start + next.unwrap_or(0) as i64
    }
}

#[test]
fn any_order_of_calls_comes_to_what_a_plain_list_says() {
    for seed in 0..300 {
        let mut rng = Rng::from_seed(seed);
        let mut below = |most: u64| rng.below(most) as i64;
        let mut of = InFlight::new(0);
        let records = vec![(Record::Unknown, 0); 400];
        let mut plain = Plain { start: 0, records };
        let members = ["a", "b", "c"];
        let mut now = 0;
        for step in 0..120 {
            let who = below(3) as usize;
            now += below(30);
            match below(6) {
                0 | 1 => {
                    of.expire(UnixMillis(now), DELIVERIES_MAX);
                    plain.expire(now);
                    plain.tidy();
                    let first = plain.next();
                    let (last, most) = (first + below(20), 1 + below(30));
                    let taken = of.acquire(first, last, &claim(members[who], now, most));
                    let mut given = Vec::new();
                    let known = plain.records.iter().rposition(|r| r.0 != Record::Unknown);
                    let end = known.map_or(0, |at| at as i64 + 1).max(plain.start);
                    for at in first..=last.min(399) {
                        let room = at < end || at < plain.start + 50;
                        let record = &mut plain.records[at as usize];
                        let is_free = matches!(record.0, Record::Available | Record::Unknown);
                        if is_free && room && (given.len() as i64) < most {
                            *record = (Record::Acquired(who, now + LOCK_MS), record.1 + 1);
                            given.push((at, record.1));
                        }
                    }
                    let told: Vec<(i64, u16)> = taken
                        .iter()
                        .flat_map(|run| (run.first..=run.last).map(|at| (at, run.deliveries)))
                        .collect();
                    let context = format!("seed {seed}, step {step}");
                    assert_eq!(told, given, "{context}");
                }
                2 | 3 => {
                    let first = plain.start + below(30);
                    let last = first + below(6);
                    let fates: Vec<Fate> = (first..=last)
                        .map(|_| Fate::of_code(below(5) as i8).unwrap())
                        .collect();
                    plain.expire(now);
                    plain.tidy();
                    let counts = (first.max(plain.start)..=last).all(|at| {
                        let record = plain.records.get(at as usize);
                        record.is_some_and(|r| matches!(r.0, Record::Acquired(m, _) if m == who))
                    });
                    let outcome =
                        acknowledge(&mut of, now, members[who], &[said(first, last, &fates)]);
                    assert_eq!(outcome.is_ok(), counts, "seed {seed}, step {step}");
                    if counts {
                        for (at, fate) in (first..=last).zip(fates) {
                            if at < plain.start {
                                continue;
                            }
                            let record = &mut plain.records[at as usize];
                            match fate {
                                Fate::Gap | Fate::Accept | Fate::Reject => {
                                    record.0 = Record::Finished
                                }
                                Fate::Release => Plain::release(record),
                                Fate::Renew => record.0 = Record::Acquired(who, now + LOCK_MS),
                            }
                        }
                        plain.tidy();
                    }
                }
                4 => {
                    of.release(members[who], DELIVERIES_MAX);
                    for record in &mut plain.records {
                        if matches!(record.0, Record::Acquired(m, _) if m == who) {
                            Plain::release(record);
                        }
                    }
                    plain.tidy();
                }
                _ => {
                    let start = plain.start + below(3);
                    of.begin_at(start);
                    for record in &mut plain.records[..start as usize] {
                        record.0 = Record::Finished;
                    }
                    plain.start = plain.start.max(start);
                    plain.tidy();
                }
            }
            assert_eq!(of.start(), plain.start, "seed {seed}, step {step}");
            let again = InFlight::of_standing(&of.standing());
            assert_eq!(again.standing(), of.standing(), "seed {seed}, step {step}");
            assert!(of.runs_count() <= 50);
        }
    }
}
