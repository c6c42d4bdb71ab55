//! A batch with some of its records alone, by whose they are.

use std::collections::HashSet;

use base::TenantId;
use bytes::Bytes;

use super::census::whose;
use crate::batch::BatchHeader;
use crate::compaction::{Rewritten, emptied, rewritten};
use crate::decode::{BatchRecord, BatchRecords};
use crate::error::StreamsError;

/// Leaves out the records that `keep` does not want; the markers of transactions stay.
pub(crate) fn sift(
    batch: &Bytes,
    mut keep: impl FnMut(BatchRecord) -> bool,
) -> Result<Rewritten, StreamsError> {
    if BatchHeader::read(batch)?.is_control() {
        return Ok(Rewritten::Unchanged);
    }
    let mut kept = HashSet::new();
    for record in BatchRecords::of(batch)? {
        let record = record?;
        let offset = record.offset;
        if keep(record) {
            kept.insert(offset);
        }
    }
    rewritten(batch, None, |entry| kept.contains(&entry.offset))
}

/// Batches with a tenant's records alone. What is left out between others leaves a gap; behind the
/// last of them an empty batch says where to go on. A batch that cannot be read is shown to nobody.
pub(crate) fn only(
    tenant: &TenantId,
    batches: impl IntoIterator<Item = Bytes>,
) -> Result<Vec<Bytes>, StreamsError> {
    let mut shown: Vec<Bytes> = Vec::new();
    let mut is_emptied = false;
    for batch in batches {
        if std::mem::take(&mut is_emptied) {
            shown.pop();
        }
        let own = sift(&batch, |record| {
            whose(&record.headers).as_ref() == Some(tenant)
        });
        shown.push(match own {
            Ok(Rewritten::Unchanged) => batch,
            Ok(Rewritten::Batch(own)) => own,
            Ok(Rewritten::Gone) | Err(_) => {
                is_emptied = true;
                emptied(&batch)?
            }
        });
    }
    Ok(shown)
}

#[cfg(test)]
mod tests {
    use base::UnixMillis;

    use super::*;
    use crate::batch;
    use crate::record::Record;

    /// A batch from `offset` on, of records of these tenants.
    fn stored(offset: i64, tenants: &[&str]) -> Bytes {
        let record = |tenant: &&str| Record {
            headers: vec![(
                "thalweg.tenant".to_owned(),
                Some(Bytes::from((*tenant).to_owned())),
            )],
            ..Record::of_value(format!("of {tenant}"))
        };
        let records: Vec<Record> = tenants.iter().map(record).collect();
        let batch = batch::build(&records, UnixMillis(5), None).unwrap();
        let mut placed = batch.to_vec();
        placed[..8].copy_from_slice(&offset.to_be_bytes());
        placed.into()
    }

    #[test]
    fn a_tenant_sees_its_own_records_and_where_to_go_on() {
        let tenant: TenantId = "diku".parse().unwrap();
        let batches = [
            stored(0, &["beta"]),
            stored(1, &["beta", "diku", "beta", "diku"]),
            stored(5, &["diku"]),
            stored(6, &["beta"]),
            stored(7, &["", "dik", "diku2"]),
        ];
        let shown = only(&tenant, batches.clone()).unwrap();
        let offsets = |batch: &Bytes| {
            let records = BatchRecords::of(batch).unwrap();
            records
                .map(|record| record.unwrap().offset)
                .collect::<Vec<_>>()
        };
        let told: Vec<Vec<i64>> = shown.iter().map(offsets).collect();
        assert_eq!(told, [vec![2, 4], vec![5], vec![]]);
        let last = BatchHeader::check_stored(&shown[2]).unwrap();
        assert_eq!((last.last_offset(), last.bytes), (9, shown[2].len()));
        let everything: Vec<u8> = shown.concat();
        let has = |word: &[u8]| everything.windows(word.len()).any(|at| at == word);
        assert!(
            has(b"of diku") && !has(b"of beta"),
            "another tenant's bytes"
        );
    }
}
