//! Named windows and tables.

use base::Rng;

use super::{events, number, pick, rows, statement};

/// See [`super::FAMILIES`].
pub fn named_windows(rng: &mut Rng) -> Vec<String> {
    let window = match rng.below(4) {
        0 => "#keepall".to_owned(),
        1 => format!("#length({})", number(rng, 1, 4)),
        2 => format!("#time({} sec)", number(rng, 2, 6)),
        _ => "#unique(k)".to_owned(),
    };
    let mut lines = vec![
        statement(&format!("create window W{window} as (k string, a long)")),
        statement("insert into W select k, a from E"),
    ];
    lines.push(statement(&match rng.below(8) {
        0 => format!("select {} k, a from W", rows(rng)),
        1 => format!("select {} sum(a) as s, count(*) as c from W", rows(rng)),
        2 => "on F as f select w.k as k, w.a as a from W as w where w.k = f.k".to_owned(),
        3 => "on F as f update W as w set a = w.a + f.a where w.k = f.k".to_owned(),
        4 => "on F as f merge W as w where w.k = f.k when matched and f.a = 0 then delete \
              when matched then update set a = f.a \
              when not matched then insert select f.k as k, f.a as a"
            .to_owned(),
        5 => "select f.a as a, w.a as w from F as f unidirectional, W as w where w.k = f.k"
            .to_owned(),
        6 => "on F as f select and delete w.a as a from W as w where w.k = f.k".to_owned(),
        _ => "on F as f select sum(w.a) as s, count(*) as c from W as w where w.k = f.k".to_owned(),
    }));
    if rng.one_in(2) {
        lines.push(statement("on G as g delete from W as w where w.k = g.k"));
    }
    if rng.one_in(3) {
        lines.push(statement(
            "select a, (select max(a) from W) as m, \
             exists (select * from W where k = G.k) as e from G",
        ));
    }
    events(rng, &["E", "E", "F", "G"], 18, &mut lines);
    lines
}

/// See [`super::FAMILIES`].
pub fn tables(rng: &mut Rng) -> Vec<String> {
    let mut lines = if rng.one_in(4) {
        vec![
            statement("create table T (n long, s long)"),
            statement(
                "on E as e merge T as t when matched then update set n = t.n + 1, s = t.s + e.a \
                 when not matched then insert select 1 as n, e.a as s",
            ),
            statement("on F select t.n as n, t.s as s from T as t"),
            statement("on G delete from T"),
        ]
    } else {
        keyed(rng)
    };
    events(rng, &["E", "E", "E", "F", "F", "G"], 20, &mut lines);
    lines
}

/// Statements on a table with a key.
fn keyed(rng: &mut Rng) -> Vec<String> {
    let mut lines = vec![
        statement("create table T (k string primary key, n long, s long)"),
        // A second row of a key that is missing would be refused.
        statement(
            "on E(k is not null) as e merge T as t where t.k = e.k \
             when matched and e.a = 0 then delete \
             when matched then update set n = t.n + 1, s = t.s + e.a \
             when not matched then insert select e.k as k, 1 as n, e.a as s",
        ),
    ];
    for _ in 0..number(rng, 1, 2) {
        lines.push(statement(pick(
            rng,
            &[
                "on F as f select t.k as k, t.n as n, t.s as s from T as t where t.k = f.k",
                "on F select count(*) as c, sum(t.n) as n, max(t.s) as m from T as t",
                "on F as f update T as t set s = f.a where t.k = f.k",
                "on F as f delete from T as t where t.k = f.k",
                "on F as f select and delete t.n as n from T as t where t.k = f.k",
                "select f.a as a, t.n as n, t.s as s from F as f unidirectional, T as t \
                 where t.k = f.k",
                "select f.a as a, t.n as n from F as f unidirectional \
                 left outer join T as t on t.k = f.k",
                "select a, (select n from T as t where t.k = f.k) as n, \
                 exists (select * from T as t where t.s > f.a) as e from F as f",
            ],
        )));
    }
    lines.push(statement(
        "on G as g select t.k as k, t.n as n, t.s as s from T as t where t.k = g.k",
    ));
    lines
}
