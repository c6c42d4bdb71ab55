//! The statements of MQTT 5.0 (OASIS Standard, March 2019, appendix B).

use super::super::five::{
    connect, exactly_once, flow, login, refusals, sessions, shared, subscribe, travel, wills,
};
use super::super::{held, talk};
use super::{OF_CLIENTS, Statement, name, tested, untestable};
use crate::codec::tests as codec;
use crate::topic::tests as topic;

const NO_REASON_STRINGS: &str = "the server sends no reason strings and no user properties here";

pub(super) fn all() -> Vec<Statement> {
    let mut all = basics();
    all.extend(connect_flags());
    all.extend(connect_payload());
    all.extend(connack());
    all.extend(publish());
    all.extend(acknowledgements());
    all.extend(subscribe_and_unsubscribe());
    all.extend(goodbyes());
    all.extend(behaviour());
    all.extend(last());
    all
}

fn basics() -> Vec<Statement> {
    let wrong = name(refusals::packets_that_are_wrong_end_the_link_with_their_reason);
    let wrong_connect = name(connect::a_connect_that_is_wrong_is_refused_with_its_reason);
    let wrong_subscribe = name(subscribe::a_subscribe_that_is_wrong_ends_the_link);
    let once = name(exactly_once::a_message_to_a_client_goes_through_four_packets_once);
    let first = name(connect::a_second_connect_and_a_first_other_packet_end_the_link);
    vec![
        tested(
            "MQTT-1.5.4-1",
            "text is well-formed UTF-8 without surrogates",
            &[wrong, wrong_connect],
        ),
        tested(
            "MQTT-1.5.4-2",
            "text has no U+0000",
            &[wrong, wrong_connect, wrong_subscribe],
        ),
        tested(
            "MQTT-1.5.4-3",
            "U+FEFF is kept wherever it stands",
            &[
                name(refusals::a_byte_order_mark_is_a_character_like_others),
                name(subscribe::topics_are_compared_as_they_are),
            ],
        ),
        tested(
            "MQTT-1.5.5-1",
            "a variable byte integer takes the fewest bytes",
            &[wrong, name(codec::remaining_lengths_of_table_2_4_read_back)],
        ),
        tested(
            "MQTT-1.5.7-1",
            "both texts of a pair are UTF-8",
            &[name(codec::properties_are_checked_against_their_table)],
        ),
        tested(
            "MQTT-2.1.3-1",
            "reserved flags have the values listed",
            &[wrong, wrong_subscribe],
        ),
        tested(
            "MQTT-2.2.1-2",
            "a PUBLISH of QoS 0 has no packet identifier",
            &[name(codec::publish_is_read_and_written_alike)],
        ),
        tested(
            "MQTT-2.2.1-3",
            "a client's packet identifiers are not 0",
            &[wrong, wrong_subscribe],
        ),
        tested(
            "MQTT-2.2.1-4",
            "the server assigns unused identifiers that are not 0",
            &[name(flow::no_more_is_under_way_than_the_client_takes), once],
        ),
        tested(
            "MQTT-2.2.1-5",
            "acknowledgements carry the identifier of their PUBLISH",
            &[once],
        ),
        tested(
            "MQTT-2.2.1-6",
            "SUBACK and UNSUBACK carry the identifier they answer",
            &[name(
                subscribe::acknowledgements_carry_a_code_for_each_filter_in_order,
            )],
        ),
        tested(
            "MQTT-2.2.2-1",
            "no properties are a length of zero",
            &[name(codec::what_5_0_adds_has_its_golden_bytes)],
        ),
        tested("MQTT-3.1.0-1", "the first packet is CONNECT", &[first]),
        tested("MQTT-3.1.0-2", "a second CONNECT ends the link", &[first]),
        tested(
            "MQTT-3.1.2-1",
            "the protocol name is MQTT",
            &[wrong_connect],
        ),
        tested(
            "MQTT-3.1.2-2",
            "another version is refused with 0x84",
            &[
                wrong_connect,
                name(talk::connects_that_cannot_be_are_refused_in_the_protocols_words),
            ],
        ),
        tested(
            "MQTT-3.1.2-3",
            "the reserved flag of CONNECT is 0",
            &[wrong_connect],
        ),
    ]
}

fn connect_flags() -> Vec<Statement> {
    let wrong_connect = name(connect::a_connect_that_is_wrong_is_refused_with_its_reason);
    let kept = name(sessions::a_session_is_kept_for_its_expiry_and_found_again);
    let will = name(wills::a_will_comes_with_all_that_was_said_of_it);
    let delay = name(wills::a_will_waits_for_its_delay_unless_its_client_comes_back);
    let goodbye = name(wills::a_goodbye_voids_the_will_and_a_goodbye_with_will_does_not);
    let large = name(flow::a_message_too_large_for_its_client_is_dropped_and_counted);
    let server_alias = name(flow::the_server_gives_numbers_to_topics_where_the_client_takes_them);
    let client_alias = name(flow::clients_give_numbers_to_topics);
    let keep_alive = name(connect::the_server_shortens_a_keep_alive_and_holds_the_client_to_it);
    vec![
        tested(
            "MQTT-3.1.2-4",
            "a clean start discards the session",
            &[kept],
        ),
        tested(
            "MQTT-3.1.2-5",
            "without it a session that is there is resumed",
            &[kept],
        ),
        tested("MQTT-3.1.2-6", "and one that is not there is made", &[kept]),
        tested("MQTT-3.1.2-7", "a will is stored with the session", &[will]),
        tested(
            "MQTT-3.1.2-8",
            "it is published after the link's end and its delay, or the session's end",
            &[
                delay,
                name(wills::a_will_does_not_outwait_its_session),
                goodbye,
            ],
        ),
        tested(
            "MQTT-3.1.2-9",
            "a will has properties, topic and payload",
            &[wrong_connect, will],
        ),
        tested(
            "MQTT-3.1.2-10",
            "it is forgotten once published or at a goodbye",
            &[goodbye, delay],
        ),
        tested("MQTT-3.1.2-11", "no will: will QoS 0", &[wrong_connect]),
        tested(
            "MQTT-3.1.2-12",
            "will QoS is 0, 1 or 2",
            &[wrong_connect, will],
        ),
        tested("MQTT-3.1.2-13", "no will: will retain 0", &[wrong_connect]),
        tested(
            "MQTT-3.1.2-14",
            "a will without retain is not retained",
            &[will],
        ),
        tested("MQTT-3.1.2-15", "a will with retain is retained", &[will]),
        tested(
            "MQTT-3.1.2-16",
            "no user name flag: no user name",
            &[wrong_connect],
        ),
        tested(
            "MQTT-3.1.2-17",
            "user name flag: a user name",
            &[wrong_connect],
        ),
        tested(
            "MQTT-3.1.2-18",
            "no password flag: no password",
            &[wrong_connect],
        ),
        tested(
            "MQTT-3.1.2-19",
            "password flag: a password",
            &[
                wrong_connect,
                name(connect::a_password_may_come_without_a_user_name),
            ],
        ),
        untestable(
            "MQTT-3.1.2-20",
            "a client pings within its keep-alive",
            OF_CLIENTS,
        ),
        untestable(
            "MQTT-3.1.2-21",
            "a client takes the server's keep-alive",
            OF_CLIENTS,
        ),
        tested(
            "MQTT-3.1.2-22",
            "silence of one and a half keep-alives ends the link",
            &[keep_alive],
        ),
        tested(
            "MQTT-3.1.2-23",
            "the session outlives its link while its expiry is above 0",
            &[
                kept,
                name(sessions::a_session_without_expiry_ends_with_its_link),
            ],
        ),
        tested(
            "MQTT-3.1.2-24",
            "no packet above the client's maximum is sent",
            &[large],
        ),
        tested(
            "MQTT-3.1.2-25",
            "one that would be is discarded as if it were sent",
            &[large],
        ),
        tested(
            "MQTT-3.1.2-26",
            "no alias above the client's maximum is sent",
            &[server_alias],
        ),
        tested(
            "MQTT-3.1.2-27",
            "and none without a maximum",
            &[client_alias],
        ),
        tested(
            "MQTT-3.1.2-28",
            "response information only on request",
            &[name(connect::response_information_comes_only_to_who_asks)],
        ),
        untestable(
            "MQTT-3.1.2-29",
            "no reason strings where the client wants none",
            NO_REASON_STRINGS,
        ),
        tested(
            "MQTT-3.1.2-30",
            "until CONNACK only AUTH and DISCONNECT follow a CONNECT with a method",
            &[name(login::a_login_that_goes_wrong_is_refused)],
        ),
    ]
}

fn connect_payload() -> Vec<Statement> {
    let wrong_connect = name(connect::a_connect_that_is_wrong_is_refused_with_its_reason);
    let no_id = name(connect::a_client_without_an_id_is_given_one);
    let over = name(sessions::a_client_that_comes_again_takes_its_session_over);
    let follows = name(connect::what_follows_a_refused_connect_is_not_processed);
    let may_not = name(login::what_a_client_may_not_do_is_told_with_its_reason);
    vec![
        tested(
            "MQTT-3.1.3-1",
            "the fields of CONNECT have their order",
            &[name(codec::a_full_connect_of_5_0_is_read)],
        ),
        tested(
            "MQTT-3.1.3-2",
            "the client id names the session",
            &[name(
                sessions::a_session_is_kept_for_its_expiry_and_found_again,
            )],
        ),
        tested(
            "MQTT-3.1.3-3",
            "the client id is there, first of all",
            &[wrong_connect],
        ),
        tested("MQTT-3.1.3-4", "it is UTF-8", &[wrong_connect]),
        tested(
            "MQTT-3.1.3-5",
            "1 to 23 letters and digits are allowed",
            &[name(
                connect::simple_client_ids_of_up_to_23_characters_are_taken,
            )],
        ),
        tested(
            "MQTT-3.1.3-6",
            "an empty one is replaced by a unique one",
            &[no_id],
        ),
        tested("MQTT-3.1.3-7", "which is told in CONNACK", &[no_id]),
        tested(
            "MQTT-3.1.3-8",
            "an id that is refused ends the link",
            &[wrong_connect],
        ),
        tested(
            "MQTT-3.1.3-9",
            "a client that is back within the delay has no will published",
            &[name(
                wills::a_will_waits_for_its_delay_unless_its_client_comes_back,
            )],
        ),
        tested(
            "MQTT-3.1.3-10",
            "a will's user properties keep their order",
            &[name(wills::a_will_comes_with_all_that_was_said_of_it)],
        ),
        tested("MQTT-3.1.3-11", "a will's topic is UTF-8", &[wrong_connect]),
        tested(
            "MQTT-3.1.3-12",
            "a user name is UTF-8",
            &[name(codec::a_full_connect_of_5_0_is_read)],
        ),
        tested(
            "MQTT-3.1.4-1",
            "a CONNECT that is malformed ends the link",
            &[wrong_connect],
        ),
        tested(
            "MQTT-3.1.4-2",
            "a check that fails ends the link",
            &[may_not],
        ),
        tested(
            "MQTT-3.1.4-3",
            "the link that a client had is told 0x8E and ended",
            &[over],
        ),
        tested("MQTT-3.1.4-4", "clean start is processed", &[over]),
        tested(
            "MQTT-3.1.4-5",
            "a CONNECT is answered with success",
            &[name(connect::the_connack_tells_what_the_server_takes)],
        ),
        tested(
            "MQTT-3.1.4-6",
            "nothing after a refused CONNECT is processed",
            &[follows],
        ),
    ]
}

fn connack() -> Vec<Statement> {
    let wrong_connect = name(connect::a_connect_that_is_wrong_is_refused_with_its_reason);
    let kept = name(sessions::a_session_is_kept_for_its_expiry_and_found_again);
    let tells = name(connect::the_connack_tells_what_the_server_takes);
    let keep_alive = name(connect::the_server_shortens_a_keep_alive_and_holds_the_client_to_it);
    const FULL: &str = "the server supports every QoS and retained messages";
    vec![
        tested("MQTT-3.2.0-1", "CONNACK comes before all but AUTH", &[kept]),
        tested("MQTT-3.2.0-2", "there is one CONNACK in a link", &[tells]),
        tested(
            "MQTT-3.2.2-1",
            "the reserved bits of its flags are 0",
            &[tells, kept],
        ),
        tested(
            "MQTT-3.2.2-2",
            "a clean start has no session present",
            &[kept],
        ),
        tested(
            "MQTT-3.2.2-3",
            "otherwise session present says whether one was found",
            &[kept],
        ),
        untestable(
            "MQTT-3.2.2-4",
            "a client without the session ends the link",
            OF_CLIENTS,
        ),
        untestable(
            "MQTT-3.2.2-5",
            "a client forgets a session that the server has not",
            OF_CLIENTS,
        ),
        tested(
            "MQTT-3.2.2-6",
            "a refusal has no session present",
            &[wrong_connect],
        ),
        tested("MQTT-3.2.2-7", "a refusal ends the link", &[wrong_connect]),
        tested(
            "MQTT-3.2.2-8",
            "reason codes are those of CONNACK",
            &[wrong_connect],
        ),
        untestable("MQTT-3.2.2-9", "a lower maximum QoS is told", FULL),
        untestable(
            "MQTT-3.2.2-10",
            "and subscriptions of any QoS are taken all the same",
            FULL,
        ),
        untestable(
            "MQTT-3.2.2-11",
            "a client keeps to the maximum QoS",
            OF_CLIENTS,
        ),
        untestable(
            "MQTT-3.2.2-12",
            "a will of a QoS that is not supported is refused",
            FULL,
        ),
        untestable(
            "MQTT-3.2.2-13",
            "a retained will that is not supported is refused",
            FULL,
        ),
        untestable(
            "MQTT-3.2.2-14",
            "a client does not retain where that is not available",
            OF_CLIENTS,
        ),
        untestable(
            "MQTT-3.2.2-15",
            "a client keeps to the maximum packet size",
            OF_CLIENTS,
        ),
        tested(
            "MQTT-3.2.2-16",
            "an assigned id is new",
            &[name(connect::a_client_without_an_id_is_given_one)],
        ),
        untestable(
            "MQTT-3.2.2-17",
            "a client keeps to the alias maximum",
            OF_CLIENTS,
        ),
        untestable(
            "MQTT-3.2.2-18",
            "and sends none where there is none",
            OF_CLIENTS,
        ),
        untestable(
            "MQTT-3.2.2-19",
            "no reason string makes CONNACK too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.2.2-20",
            "no user property makes CONNACK too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.2.2-21",
            "a client takes the server's keep-alive",
            OF_CLIENTS,
        ),
        tested(
            "MQTT-3.2.2-22",
            "without it the client's own counts",
            &[keep_alive],
        ),
    ]
}

fn publish() -> Vec<Statement> {
    let wrong = name(refusals::packets_that_are_wrong_end_the_link_with_their_reason);
    let again = name(sessions::what_was_not_acknowledged_comes_again_in_order_with_its_identifier);
    let retained = name(subscribe::retained_messages_are_replaced_deleted_and_left_alone);
    let options = name(subscribe::retained_messages_come_as_the_options_say);
    let flag = name(subscribe::the_retain_flag_passes_only_where_it_is_asked_for);
    let unaltered = name(travel::properties_arrive_unaltered_and_in_order);
    let expiry = name(travel::a_message_expires_while_it_waits_and_its_rest_is_told);
    let aliases = name(flow::clients_give_numbers_to_topics);
    let server_aliases = name(flow::the_server_gives_numbers_to_topics_where_the_client_takes_them);
    let overlap = name(subscribe::overlapping_filters_give_one_copy_with_all_their_identifiers);
    let quota = name(flow::no_more_is_under_way_than_the_client_takes);
    vec![
        tested("MQTT-3.3.1-1", "what is sent again has DUP", &[again]),
        tested("MQTT-3.3.1-2", "QoS 0 has no DUP", &[wrong]),
        tested(
            "MQTT-3.3.1-3",
            "DUP to a subscriber says nothing of the publisher's",
            &[
                name(exactly_once::a_publisher_may_repeat_itself_until_it_released_the_identifier),
                again,
            ],
        ),
        tested("MQTT-3.3.1-4", "there is no QoS 3", &[wrong]),
        tested(
            "MQTT-3.3.1-5",
            "a retained message replaces the one before",
            &[retained],
        ),
        tested("MQTT-3.3.1-6", "an empty one deletes it", &[retained]),
        tested("MQTT-3.3.1-7", "and is not stored itself", &[retained]),
        tested(
            "MQTT-3.3.1-8",
            "a message without the flag changes nothing that is retained",
            &[retained],
        ),
        tested("MQTT-3.3.1-9", "retain handling 0 sends them", &[options]),
        tested(
            "MQTT-3.3.1-10",
            "1 sends them to a new subscription only",
            &[options],
        ),
        tested("MQTT-3.3.1-11", "2 never", &[options]),
        tested(
            "MQTT-3.3.1-12",
            "without retain-as-published the flag is cleared",
            &[flag],
        ),
        tested("MQTT-3.3.1-13", "with it the flag is passed on", &[flag]),
        tested(
            "MQTT-3.3.2-1",
            "the topic stands first and is UTF-8",
            &[wrong],
        ),
        tested("MQTT-3.3.2-2", "it has no wildcards", &[wrong]),
        tested(
            "MQTT-3.3.2-3",
            "what a subscriber gets matches its filter",
            &[
                name(subscribe::topics_are_compared_as_they_are),
                name(topic::filters_match_as_section_4_7_says),
            ],
        ),
        tested(
            "MQTT-3.3.2-4",
            "the payload format travels unaltered",
            &[unaltered],
        ),
        tested(
            "MQTT-3.3.2-5",
            "what expired before it was sent is dropped",
            &[expiry],
        ),
        tested(
            "MQTT-3.3.2-6",
            "what is left of the expiry is told",
            &[expiry],
        ),
        tested(
            "MQTT-3.3.2-7",
            "aliases end with their link",
            &[aliases, server_aliases],
        ),
        tested("MQTT-3.3.2-8", "an alias is not 0", &[aliases]),
        tested("MQTT-3.3.2-9", "a client keeps to the maximum", &[aliases]),
        untestable(
            "MQTT-3.3.2-10",
            "a client takes all aliases up to its own",
            OF_CLIENTS,
        ),
        tested(
            "MQTT-3.3.2-11",
            "the server keeps to the client's maximum",
            &[server_aliases],
        ),
        tested(
            "MQTT-3.3.2-12",
            "the server takes all aliases up to its own",
            &[aliases],
        ),
        tested("MQTT-3.3.2-13", "a response topic is UTF-8", &[wrong]),
        tested("MQTT-3.3.2-14", "and has no wildcards", &[wrong]),
        tested("MQTT-3.3.2-15", "it travels unaltered", &[unaltered]),
        tested("MQTT-3.3.2-16", "so does correlation data", &[unaltered]),
        tested("MQTT-3.3.2-17", "so do user properties", &[unaltered]),
        tested("MQTT-3.3.2-18", "in their order", &[unaltered]),
        tested("MQTT-3.3.2-19", "a content type is UTF-8", &[wrong]),
        tested("MQTT-3.3.2-20", "and travels unaltered", &[unaltered]),
        tested(
            "MQTT-3.3.4-1",
            "each QoS has its answer",
            &[
                name(exactly_once::a_message_to_a_client_goes_through_four_packets_once),
                unaltered,
            ],
        ),
        tested(
            "MQTT-3.3.4-2",
            "overlapping subscriptions: the highest QoS",
            &[overlap],
        ),
        tested("MQTT-3.3.4-3", "their identifiers are sent", &[overlap]),
        tested("MQTT-3.3.4-4", "all of them in a single copy", &[overlap]),
        untestable(
            "MQTT-3.3.4-5",
            "each in its own of several copies",
            "the server sends a single copy",
        ),
        tested(
            "MQTT-3.3.4-6",
            "a client's PUBLISH has no subscription identifier",
            &[wrong],
        ),
        tested(
            "MQTT-3.3.4-7",
            "a client keeps to the receive maximum",
            &[name(
                flow::a_client_that_sends_more_at_once_than_it_may_is_disconnected,
            )],
        ),
        untestable("MQTT-3.3.4-8", "and delays nothing else for it", OF_CLIENTS),
        tested("MQTT-3.3.4-9", "the server keeps to the client's", &[quota]),
        tested("MQTT-3.3.4-10", "and delays nothing else for it", &[quota]),
    ]
}

fn acknowledgements() -> Vec<Statement> {
    let wrong = name(refusals::packets_that_are_wrong_end_the_link_with_their_reason);
    let nothing = name(refusals::acknowledgements_of_nothing_are_answered_or_ignored);
    let may_not = name(login::what_a_client_may_not_do_is_told_with_its_reason);
    vec![
        tested(
            "MQTT-3.4.2-1",
            "PUBACK has a reason code of its own",
            &[wrong, may_not],
        ),
        untestable(
            "MQTT-3.4.2-2",
            "no reason string makes it too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.4.2-3",
            "no user property makes it too large",
            NO_REASON_STRINGS,
        ),
        tested(
            "MQTT-3.5.2-1",
            "PUBREC has a reason code of its own",
            &[may_not],
        ),
        untestable(
            "MQTT-3.5.2-2",
            "no reason string makes it too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.5.2-3",
            "no user property makes it too large",
            NO_REASON_STRINGS,
        ),
        tested("MQTT-3.6.1-1", "PUBREL's flags are 0010", &[wrong]),
        tested(
            "MQTT-3.6.2-1",
            "PUBREL has a reason code of its own",
            &[
                wrong,
                name(exactly_once::a_client_may_refuse_a_message_and_does_not_get_it_again),
            ],
        ),
        untestable(
            "MQTT-3.6.2-2",
            "no reason string makes it too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.6.2-3",
            "no user property makes it too large",
            NO_REASON_STRINGS,
        ),
        tested(
            "MQTT-3.7.2-1",
            "PUBCOMP has a reason code of its own",
            &[nothing],
        ),
        untestable(
            "MQTT-3.7.2-2",
            "no reason string makes it too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.7.2-3",
            "no user property makes it too large",
            NO_REASON_STRINGS,
        ),
    ]
}

fn subscribe_and_unsubscribe() -> Vec<Statement> {
    let wrong = name(subscribe::a_subscribe_that_is_wrong_ends_the_link);
    let codes = name(subscribe::acknowledgements_carry_a_code_for_each_filter_in_order);
    let overlap = name(subscribe::overlapping_filters_give_one_copy_with_all_their_identifiers);
    let options = name(subscribe::retained_messages_come_as_the_options_say);
    let late = name(subscribe::what_was_sent_is_delivered_also_after_an_unsubscribe);
    vec![
        tested("MQTT-3.8.1-1", "SUBSCRIBE's flags are 0010", &[wrong]),
        tested("MQTT-3.8.3-1", "filters are UTF-8", &[wrong]),
        tested("MQTT-3.8.3-2", "there is at least one", &[wrong]),
        tested(
            "MQTT-3.8.3-3",
            "no-local keeps a client's own messages from it",
            &[name(
                subscribe::no_local_keeps_a_clients_own_messages_from_it,
            )],
        ),
        tested(
            "MQTT-3.8.3-4",
            "no-local on a shared subscription is an error",
            &[wrong],
        ),
        tested(
            "MQTT-3.8.3-5",
            "reserved bits of the options are 0",
            &[wrong],
        ),
        tested(
            "MQTT-3.8.4-1",
            "SUBSCRIBE is answered with SUBACK",
            &[codes],
        ),
        tested("MQTT-3.8.4-2", "of the same packet identifier", &[codes]),
        tested(
            "MQTT-3.8.4-3",
            "the same filter replaces its subscription",
            &[overlap],
        ),
        tested(
            "MQTT-3.8.4-4",
            "retained messages come again, and none is lost",
            &[options],
        ),
        tested(
            "MQTT-3.8.4-5",
            "several filters are as several packets",
            &[codes, overlap],
        ),
        tested("MQTT-3.8.4-6", "there is a code for each filter", &[codes]),
        tested("MQTT-3.8.4-7", "the QoS granted, or a failure", &[codes]),
        tested(
            "MQTT-3.8.4-8",
            "a message has the lower of its QoS and the granted one",
            &[overlap, options],
        ),
        untestable(
            "MQTT-3.9.2-1",
            "no reason string makes SUBACK too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.9.2-2",
            "no user property makes SUBACK too large",
            NO_REASON_STRINGS,
        ),
        tested(
            "MQTT-3.9.3-1",
            "codes have the order of the filters",
            &[codes],
        ),
        tested("MQTT-3.9.3-2", "each is one of SUBACK's", &[codes]),
        tested("MQTT-3.10.1-1", "UNSUBSCRIBE's flags are 0010", &[wrong]),
        tested("MQTT-3.10.3-1", "its filters are UTF-8", &[wrong]),
        tested("MQTT-3.10.3-2", "there is at least one", &[wrong]),
        tested(
            "MQTT-3.10.4-1",
            "a filter is compared character by character",
            &[codes, name(subscribe::topics_are_compared_as_they_are)],
        ),
        tested("MQTT-3.10.4-2", "nothing new is added for it", &[late]),
        tested("MQTT-3.10.4-3", "what was begun is delivered", &[late]),
        tested(
            "MQTT-3.10.4-4",
            "UNSUBSCRIBE is answered with UNSUBACK",
            &[codes],
        ),
        tested(
            "MQTT-3.10.4-5",
            "of the same packet identifier, also where nothing was deleted",
            &[codes],
        ),
        tested(
            "MQTT-3.10.4-6",
            "several filters are as several packets",
            &[codes],
        ),
        untestable(
            "MQTT-3.11.2-1",
            "no reason string makes UNSUBACK too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.11.2-2",
            "no user property makes UNSUBACK too large",
            NO_REASON_STRINGS,
        ),
        tested(
            "MQTT-3.11.3-1",
            "codes have the order of the filters",
            &[codes],
        ),
        tested("MQTT-3.11.3-2", "each is one of UNSUBACK's", &[codes]),
    ]
}

fn goodbyes() -> Vec<Statement> {
    let wrong = name(refusals::packets_that_are_wrong_end_the_link_with_their_reason);
    let bye = name(refusals::a_ping_is_answered_and_nothing_follows_a_goodbye);
    let login = name(login::a_login_of_several_steps_lets_a_client_in_and_may_be_repeated);
    vec![
        tested("MQTT-3.12.4-1", "a PINGREQ is answered", &[bye]),
        tested(
            "MQTT-3.14.0-1",
            "no DISCONNECT before a CONNACK of success",
            &[name(
                connect::a_second_connect_and_a_first_other_packet_end_the_link,
            )],
        ),
        tested(
            "MQTT-3.14.1-1",
            "DISCONNECT's flags are 0, else 0x81",
            &[wrong],
        ),
        tested(
            "MQTT-3.14.2-1",
            "its reason code is one of its own",
            &[wrong],
        ),
        tested(
            "MQTT-3.14.2-2",
            "the server sends no session expiry in it",
            &[wrong],
        ),
        untestable(
            "MQTT-3.14.2-3",
            "no reason string makes it too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.14.2-4",
            "no user property makes it too large",
            NO_REASON_STRINGS,
        ),
        tested("MQTT-3.14.4-1", "nothing follows it", &[bye, wrong]),
        tested(
            "MQTT-3.14.4-2",
            "its sender closes the connection",
            &[wrong],
        ),
        tested(
            "MQTT-3.14.4-3",
            "0x00 voids the will",
            &[name(
                wills::a_goodbye_voids_the_will_and_a_goodbye_with_will_does_not,
            )],
        ),
        tested("MQTT-3.15.1-1", "AUTH's flags are 0", &[wrong]),
        tested(
            "MQTT-3.15.2-1",
            "its reason code is one of its own",
            &[wrong, login],
        ),
        untestable(
            "MQTT-3.15.2-2",
            "no reason string makes it too large",
            NO_REASON_STRINGS,
        ),
        untestable(
            "MQTT-3.15.2-3",
            "no user property makes it too large",
            NO_REASON_STRINGS,
        ),
    ]
}

fn behaviour() -> Vec<Statement> {
    let kept = name(sessions::a_session_is_kept_for_its_expiry_and_found_again);
    let again = name(sessions::what_was_not_acknowledged_comes_again_in_order_with_its_identifier);
    let four = name(exactly_once::a_message_to_a_client_goes_through_four_packets_once);
    let goes_on = name(exactly_once::delivery_goes_on_where_it_was_after_reconnect_and_restart);
    let repeats =
        name(exactly_once::a_publisher_may_repeat_itself_until_it_released_the_identifier);
    let refuses = name(exactly_once::a_client_may_refuse_a_message_and_does_not_get_it_again);
    let past = name(travel::a_message_that_was_sent_is_delivered_past_its_expiry);
    let quota = name(flow::no_more_is_under_way_than_the_client_takes);
    let all_qualities = name(talk::messages_of_all_qualities_reach_a_subscriber_once);
    let order = name(held::a_slow_reader_holds_back_its_publisher_and_loses_nothing);
    let filters = name(topic::misplaced_wildcards_are_refused);
    let false_text = name(travel::text_that_is_none_is_refused);
    vec![
        tested(
            "MQTT-4.1.0-1",
            "a session lives while its link does",
            &[kept],
        ),
        tested(
            "MQTT-4.1.0-2",
            "and ends when its expiry has passed",
            &[name(
                sessions::a_session_expires_by_itself_and_over_a_restart,
            )],
        ),
        tested(
            "MQTT-4.2-1",
            "the transport is ordered and loses nothing",
            &[all_qualities],
        ),
        tested(
            "MQTT-4.3.1-1",
            "QoS 0 is sent without DUP",
            &[all_qualities],
        ),
        tested(
            "MQTT-4.3.2-1",
            "QoS 1: an unused identifier for each message",
            &[again, quota],
        ),
        tested("MQTT-4.3.2-2", "the first PUBLISH has no DUP", &[again]),
        tested(
            "MQTT-4.3.2-3",
            "it is unacknowledged until PUBACK",
            &[again, quota],
        ),
        tested("MQTT-4.3.2-4", "the receiver answers with PUBACK", &[kept]),
        tested(
            "MQTT-4.3.2-5",
            "after which the identifier is new",
            &[kept, false_text],
        ),
        tested(
            "MQTT-4.3.3-1",
            "QoS 2: an unused identifier for each message",
            &[goes_on],
        ),
        tested("MQTT-4.3.3-2", "the first PUBLISH has no DUP", &[four]),
        tested(
            "MQTT-4.3.3-3",
            "it is unacknowledged until PUBREC",
            &[goes_on],
        ),
        tested("MQTT-4.3.3-4", "PUBREC is answered with PUBREL", &[four]),
        tested(
            "MQTT-4.3.3-5",
            "which is unacknowledged until PUBCOMP",
            &[goes_on],
        ),
        tested(
            "MQTT-4.3.3-6",
            "after it no PUBLISH is sent again",
            &[four, goes_on],
        ),
        tested("MQTT-4.3.3-7", "what was sent does not expire", &[past]),
        tested("MQTT-4.3.3-8", "the receiver answers with PUBREC", &[four]),
        tested(
            "MQTT-4.3.3-9",
            "after a refusal the identifier is new",
            &[false_text],
        ),
        tested(
            "MQTT-4.3.3-10",
            "until PUBREL a repeated PUBLISH is answered and not handed on",
            &[repeats],
        ),
        tested("MQTT-4.3.3-11", "PUBREL is answered with PUBCOMP", &[four]),
        tested(
            "MQTT-4.3.3-12",
            "after which the identifier is new",
            &[repeats],
        ),
        tested(
            "MQTT-4.3.3-13",
            "the sequence goes on also past the expiry",
            &[past],
        ),
        tested(
            "MQTT-4.4.0-1",
            "on reconnect, and only then, what is unacknowledged is sent again",
            &[again, goes_on],
        ),
        tested("MQTT-4.4.0-2", "what was refused is not", &[refuses]),
        tested(
            "MQTT-4.5.0-1",
            "a message is added to the sessions that match",
            &[kept],
        ),
        untestable(
            "MQTT-4.5.0-2",
            "a client acknowledges whatever it gets",
            OF_CLIENTS,
        ),
        untestable(
            "MQTT-4.6.0-1",
            "a client repeats in the order of the first sending",
            OF_CLIENTS,
        ),
        untestable(
            "MQTT-4.6.0-2",
            "a client's PUBACKs have the order of the PUBLISHes",
            OF_CLIENTS,
        ),
        untestable("MQTT-4.6.0-3", "so have its PUBRECs", OF_CLIENTS),
        untestable(
            "MQTT-4.6.0-4",
            "and its PUBRELs that of the PUBRECs",
            OF_CLIENTS,
        ),
        tested(
            "MQTT-4.6.0-5",
            "a topic's messages keep their order to each consumer",
            &[order, again],
        ),
        tested("MQTT-4.6.0-6", "every topic is ordered", &[order]),
        tested("MQTT-4.7.0-1", "names have no wildcards", &[filters]),
        tested("MQTT-4.7.1-1", "# fills the whole last level", &[filters]),
        tested("MQTT-4.7.1-2", "+ fills a whole level", &[filters]),
        tested(
            "MQTT-4.7.2-1",
            "a leading wildcard does not meet $",
            &[name(subscribe::dollar_topics_need_a_filter_that_says_so)],
        ),
        tested(
            "MQTT-4.7.3-1",
            "names and filters have at least one character",
            &[filters],
        ),
        tested("MQTT-4.7.3-2", "and no U+0000", &[filters]),
        tested("MQTT-4.7.3-3", "and at most 65,535 bytes", &[filters]),
        tested(
            "MQTT-4.7.3-4",
            "they are compared as they are",
            &[name(subscribe::topics_are_compared_as_they_are)],
        ),
    ]
}

fn last() -> Vec<Statement> {
    let groups = name(shared::groups_have_a_name_and_a_filter);
    let quota = name(flow::no_more_is_under_way_than_the_client_takes);
    let in_steps = name(login::a_login_of_several_steps_lets_a_client_in_and_may_be_repeated);
    let wrong = name(login::a_login_that_goes_wrong_is_refused);
    let refusals = name(refusals::packets_that_are_wrong_end_the_link_with_their_reason);
    const WEBSOCKET: &str = "of the WebSocket transport, which has tests of its own";
    vec![
        tested(
            "MQTT-4.8.2-1",
            "a shared subscription is $share/, a name, a filter",
            &[groups],
        ),
        tested(
            "MQTT-4.8.2-2",
            "the name has neither / nor wildcards",
            &[groups],
        ),
        tested(
            "MQTT-4.8.2-3",
            "each member gets the QoS that it was granted",
            &[name(
                shared::a_member_gets_the_quality_that_it_was_granted_and_no_retained_messages,
            )],
        ),
        tested(
            "MQTT-4.8.2-4",
            "a QoS 2 message that was begun is completed with its client",
            &[name(
                shared::what_a_lost_member_did_not_acknowledge_goes_to_another,
            )],
        ),
        tested(
            "MQTT-4.8.2-5",
            "and goes to nobody else if that client's session ends",
            &[name(
                shared::a_qos_2_message_whose_clients_session_ends_goes_to_nobody_else,
            )],
        ),
        tested(
            "MQTT-4.8.2-6",
            "what a member refuses goes to nobody else",
            &[name(
                shared::a_message_that_a_member_refuses_goes_to_nobody_else,
            )],
        ),
        tested(
            "MQTT-4.9.0-1",
            "the send quota begins within the receive maximum",
            &[quota],
        ),
        tested(
            "MQTT-4.9.0-2",
            "at zero no more of QoS 1 and 2 is sent",
            &[quota],
        ),
        tested("MQTT-4.9.0-3", "everything else goes on", &[quota]),
        tested(
            "MQTT-4.12.0-1",
            "a method that is not offered ends the link",
            &[wrong],
        ),
        tested(
            "MQTT-4.12.0-2",
            "the server asks with AUTH 0x18",
            &[in_steps],
        ),
        tested(
            "MQTT-4.12.0-3",
            "the client answers with AUTH 0x18",
            &[in_steps, wrong],
        ),
        tested("MQTT-4.12.0-4", "a refusal ends the link", &[wrong]),
        tested(
            "MQTT-4.12.0-5",
            "every AUTH and the CONNACK name the method",
            &[in_steps],
        ),
        tested(
            "MQTT-4.12.0-6",
            "without a method there is no AUTH and none in CONNACK",
            &[wrong],
        ),
        tested(
            "MQTT-4.12.0-7",
            "without a method a client sends no AUTH",
            &[wrong],
        ),
        tested(
            "MQTT-4.12.1-1",
            "a repeated login keeps the method",
            &[in_steps, wrong],
        ),
        tested("MQTT-4.12.1-2", "one that fails ends the link", &[in_steps]),
        tested(
            "MQTT-4.13.1-1",
            "a malformed packet or protocol error ends the link",
            &[refusals],
        ),
        tested(
            "MQTT-4.13.2-1",
            "a reason of 0x80 or more in CONNACK or DISCONNECT ends the link",
            &[refusals],
        ),
        untestable("MQTT-6.0.0-1", "packets go in binary frames", WEBSOCKET),
        untestable(
            "MQTT-6.0.0-2",
            "a frame may hold part of a packet or several",
            WEBSOCKET,
        ),
        untestable(
            "MQTT-6.0.0-3",
            "the client asks for the sub-protocol mqtt",
            WEBSOCKET,
        ),
        untestable("MQTT-6.0.0-4", "the server answers with it", WEBSOCKET),
    ]
}
