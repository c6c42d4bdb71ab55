//! The exchange files, each by the test that says what it shows.

use super::*;

#[tokio::test(flavor = "multi_thread")]
async fn metadata_is_answered_as_documented() {
    check("metadata.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn produced_records_are_stored_as_they_came() {
    check("produce.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_strimzis_bridge_find_what_they_know() {
    check("bridge.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_topics_are_created_by_their_streams_policy() {
    check("streams.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_again_under_its_key_is_stored_once() {
    check("idempotency.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_without_a_path_are_the_default_streams() {
    let config = RestConfig {
        default_stream: Some("/streams/test".to_owned()),
        ..RestConfig::default()
    };
    check_with("default-stream.txt", config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_leaves_other_callers_room_for_instances() {
    let config = RestConfig {
        consumer_instances_max_per_caller: 2,
        ..RestConfig::default()
    };
    check_with("consumer-shares.txt", config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribed_instances_read_commit_and_seek() {
    check("consumer.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn assigned_instances_pass_what_they_cannot_read() {
    check("assigned.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn consumer_calls_that_cannot_be_get_their_codes() {
    check("consumer-errors.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_1_reads_topic_by_topic() {
    check("v1.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_managed() {
    check("management.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_tells_of_the_cluster_and_changes_it() {
    check("v3-cluster.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_of_version_1_works() {
    check("quickstart-v1.txt").await;
    check("quickstart-v1-schemas.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_of_version_2_works() {
    check("quickstart-v2.txt").await;
    check("quickstart-v2-schemas.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_of_version_3_works() {
    check("quickstart-v3.txt").await;
    check("quickstart-v3-schemas.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_quick_start_of_mapr_works() {
    check("quickstart-mapr.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_tells_of_brokers_and_where_partitions_lie() {
    check("v3-brokers.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_keeps_acls_and_follows_them() {
    check("v3-acls.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_takes_records_and_gives_receipts() {
    check("v3-records.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn version_3_reads_records_from_where_the_reader_stands() {
    check("v3-reading.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn formats_with_schemas_are_produced_and_read_in_versions_1_and_2() {
    check("formats-v2.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn formats_with_schemas_are_produced_and_read_in_version_3() {
    check("formats-v3.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_registered_found_and_kept_as_records() {
    check("schemas-subjects.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_held_against_those_before() {
    check("schemas-compatibility.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_inherit_what_is_around_a_schema() {
    check("schemas-inheriting.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn configurations_shape_new_schemas() {
    check("schemas-contracts.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_is_registered_anew_with_other_tags_metadata_or_rules() {
    check("schemas-retagging.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schema_has_one_guid_which_is_told_to_who_knows_of_them() {
    check("schemas-guids.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_context_are_on_its_subjects() {
    check("schemas-contexts.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_alias_stands_for_a_subject() {
    check("schemas-aliases.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_deleted_softly_and_for_good() {
    check("schemas-deletion.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_are_of_three_types() {
    check("schemas-types.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn schemas_name_others() {
    check("schemas-references.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn modes_and_contexts_of_schemas_hold() {
    check("schemas-modes.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_another_registry_is_taken_over() {
    check("schemas-taken-over.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_would_lose_schemas_is_refused() {
    check("schemas-unfit.txt").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_exchange_file_is_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("exchanges");
    let source = include_str!("exchanges.rs");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(
            source.contains(&format!("(\"{name}\"")),
            "{name} is not run"
        );
    }
}
