//! The normative statements of MQTT 3.1.1 and 5.0, each with the tests that provoke it.
//!
//! The table is the page `docs/mqtt-conformance.md`, which is read here. Tests stand below as
//! functions, so that one which is gone does not compile.

use std::collections::BTreeSet;

/// A row of the page: the statement's number, and the tests or the reason why there is none.
struct Row<'p> {
    id: &'p str,
    by: &'p str,
}

/// The page's parts, each a standard: its rows, and the counts that stand above them.
fn parts() -> Vec<(Vec<Row<'static>>, &'static str)> {
    let parts = PAGE.split("\n## ").skip(1);
    let read = |part: &'static str| {
        let row = |line: &'static str| {
            let cells: Vec<&str> = line.strip_prefix("| MQTT-")?.split(" | ").collect();
            let [number, _about, by] = cells.as_slice() else {
                panic!("three cells: {line}");
            };
            Some(Row {
                id: number,
                by: by.trim_end_matches(" |"),
            })
        };
        let counts = part.lines().find(|line| line.contains(" statements: "));
        (
            part.lines().filter_map(row).collect(),
            counts.unwrap_or_default(),
        )
    };
    parts.map(read).collect()
}

#[test]
fn every_statement_stands_once_and_names_tests_that_are_there() {
    let tests = tests();
    let mut named = BTreeSet::new();
    let parts = parts();
    assert_eq!(parts.len(), 2);
    for ((rows, counts), all) in parts.iter().zip(STATEMENTS) {
        assert_eq!(rows.len(), all);
        let (mut ids, mut untestable) = (BTreeSet::new(), 0);
        for Row { id, by } in rows {
            assert!(ids.insert(id), "{id} stands twice");
            if let Some(why) = by.strip_prefix("not testable: ") {
                assert!(!why.is_empty(), "{id}");
                untestable += 1;
                continue;
            }
            for test in by.split(", ") {
                let test = test.trim_matches('`');
                assert!(
                    tests.contains(test),
                    "{id} names {test}, which is not listed here"
                );
                named.insert(test);
            }
        }
        let expected = format!(
            "{all} statements: {} provoked by tests, {untestable} not testable against a server.",
            all - untestable
        );
        assert_eq!(*counts, expected);
    }
    assert_eq!(
        named.len(),
        tests.len(),
        "a test is listed here and provokes no statement"
    );
}

/// Where a test stands, by the function itself.
fn name<T>(_test: T) -> &'static str {
    let path = std::any::type_name::<T>();
    path.strip_prefix("mqtt::").unwrap_or(path)
}

/// The tests that provoke statements.
fn tests() -> BTreeSet<&'static str> {
    BTreeSet::from([
        name(crate::codec::tests::a_full_connect_is_read),
        name(crate::codec::tests::a_full_connect_of_5_0_is_read),
        name(crate::codec::tests::properties_are_checked_against_their_table),
        name(crate::codec::tests::publish_is_read_and_written_alike),
        name(crate::codec::tests::remaining_lengths_of_table_2_4_read_back),
        name(crate::codec::tests::what_5_0_adds_has_its_golden_bytes),
        name(super::doors::a_client_talks_over_websocket_in_frames_of_any_size),
        name(super::five::connect::a_client_without_an_id_is_given_one),
        name(super::five::connect::a_connect_that_is_wrong_is_refused_with_its_reason),
        name(super::five::connect::a_password_may_come_without_a_user_name),
        name(super::five::connect::a_second_connect_and_a_first_other_packet_end_the_link),
        name(super::five::connect::response_information_comes_only_to_who_asks),
        name(super::five::connect::simple_client_ids_of_up_to_23_characters_are_taken),
        name(super::five::connect::the_connack_tells_what_the_server_takes),
        name(super::five::connect::the_server_shortens_a_keep_alive_and_holds_the_client_to_it),
        name(super::five::connect::what_follows_a_refused_connect_is_not_processed),
        name(super::five::exactly_once::a_client_may_refuse_a_message_and_does_not_get_it_again),
        name(super::five::exactly_once::a_message_to_a_client_goes_through_four_packets_once),
        name(super::five::exactly_once::a_publisher_may_repeat_itself_until_it_released_the_identifier),
        name(super::five::exactly_once::delivery_goes_on_where_it_was_after_reconnect_and_restart),
        name(super::five::flow::a_client_that_sends_more_at_once_than_it_may_is_disconnected),
        name(super::five::flow::a_message_too_large_for_its_client_is_dropped_and_counted),
        name(super::five::flow::clients_give_numbers_to_topics),
        name(super::five::flow::no_more_is_under_way_than_the_client_takes),
        name(super::five::flow::the_server_gives_numbers_to_topics_where_the_client_takes_them),
        name(super::five::login::a_login_of_several_steps_lets_a_client_in_and_may_be_repeated),
        name(super::five::login::a_login_that_goes_wrong_is_refused),
        name(super::five::login::what_a_client_may_not_do_is_told_with_its_reason),
        name(super::five::refusals::a_byte_order_mark_is_a_character_like_others),
        name(super::five::refusals::a_ping_is_answered_and_nothing_follows_a_goodbye),
        name(super::five::refusals::acknowledgements_of_nothing_are_answered_or_ignored),
        name(super::five::refusals::packets_that_are_wrong_end_the_link_with_their_reason),
        name(super::five::sessions::a_client_that_comes_again_takes_its_session_over),
        name(super::five::sessions::a_session_expires_by_itself_and_over_a_restart),
        name(super::five::sessions::a_session_is_kept_for_its_expiry_and_found_again),
        name(super::five::sessions::a_session_without_expiry_ends_with_its_link),
        name(super::five::sessions::what_was_not_acknowledged_comes_again_in_order_with_its_identifier),
        name(super::five::shared::a_member_gets_the_quality_that_it_was_granted_and_no_retained_messages),
        name(super::five::shared::a_message_that_a_member_refuses_goes_to_nobody_else),
        name(super::five::shared::a_qos_2_message_whose_clients_session_ends_goes_to_nobody_else),
        name(super::five::shared::groups_have_a_name_and_a_filter),
        name(super::five::shared::what_a_lost_member_did_not_acknowledge_goes_to_another),
        name(super::five::subscribe::a_subscribe_that_is_wrong_ends_the_link),
        name(super::five::subscribe::acknowledgements_carry_a_code_for_each_filter_in_order),
        name(super::five::subscribe::dollar_topics_need_a_filter_that_says_so),
        name(super::five::subscribe::no_local_keeps_a_clients_own_messages_from_it),
        name(super::five::subscribe::overlapping_filters_give_one_copy_with_all_their_identifiers),
        name(super::five::subscribe::retained_messages_are_replaced_deleted_and_left_alone),
        name(super::five::subscribe::retained_messages_come_as_the_options_say),
        name(super::five::subscribe::the_retain_flag_passes_only_where_it_is_asked_for),
        name(super::five::subscribe::topics_are_compared_as_they_are),
        name(super::five::subscribe::what_was_sent_is_delivered_also_after_an_unsubscribe),
        name(super::five::travel::a_message_expires_while_it_waits_and_its_rest_is_told),
        name(super::five::travel::a_message_that_was_sent_is_delivered_past_its_expiry),
        name(super::five::travel::properties_arrive_unaltered_and_in_order),
        name(super::five::travel::text_that_is_none_is_refused),
        name(super::five::wills::a_goodbye_voids_the_will_and_a_goodbye_with_will_does_not),
        name(super::five::wills::a_will_comes_with_all_that_was_said_of_it),
        name(super::five::wills::a_will_does_not_outwait_its_session),
        name(super::five::wills::a_will_waits_for_its_delay_unless_its_client_comes_back),
        name(super::five::words::answers_have_neither_reason_strings_nor_user_properties),
        name(super::five::words::refusals_have_neither_reason_strings_nor_user_properties),
        name(super::held::a_slow_reader_holds_back_its_publisher_and_loses_nothing),
        name(super::kept::a_kept_session_gets_what_came_meanwhile_also_after_a_restart),
        name(super::kept::a_qos_2_identifier_is_known_after_reconnect_and_restart),
        name(super::talk::a_silent_client_is_cut_off_after_one_and_a_half_keep_alives),
        name(super::talk::a_will_is_published_unless_the_client_says_goodbye),
        name(super::talk::connects_that_cannot_be_are_refused_in_the_protocols_words),
        name(super::talk::messages_of_all_qualities_reach_a_subscriber_once),
        name(super::talk::more_subscriptions_than_allowed_fail_in_the_suback),
        name(super::talk::retained_messages_are_set_replaced_and_deleted),
        name(super::three::a_connect_that_is_wrong_is_refused_or_ended),
        name(super::three::packets_that_are_wrong_end_the_link_without_a_word),
        name(super::three::qos_2_goes_on_over_a_reconnect_and_an_answered_refusal_is_a_success),
        name(super::three::the_link_that_a_client_had_is_ended),
        name(super::three::what_was_sent_once_is_delivered_and_nothing_else_after_an_unsubscribe),
        name(crate::topic::tests::filters_match_as_section_4_7_says),
        name(crate::topic::tests::misplaced_wildcards_are_refused),
        name(crate::websocket::tests::a_client_speaks_mqtt_and_a_page_is_of_this_server_or_named),
        name(crate::websocket::tests::a_text_frame_and_an_endless_one_end_the_link),
        name(crate::websocket::tests::bytes_go_both_ways_whatever_the_frames),
        name(crate::websocket::tests::who_speaks_no_mqtt_is_told_by_http),
    ])
}

const PAGE: &str = include_str!("../../../../../docs/mqtt-conformance.md");
/// Normative statements of 5.0 (March 2019, appendix B) and of 3.1.1 (October 2014, appendix B).
const STATEMENTS: [usize; 2] = [251, 140];
