//! The statements of MQTT 3.1.1 (OASIS Standard, October 2014, appendix B).

use super::super::five::{exactly_once, login, subscribe as subscribe5, wills};
use super::super::{held, kept, talk, three};
use super::{OF_CLIENTS, Statement, name, tested, untestable};
use crate::codec::tests as codec;
use crate::topic::tests as topic;

pub(super) fn all() -> Vec<Statement> {
    let mut all = basics();
    all.extend(connect());
    all.extend(publish());
    all.extend(subscribe());
    all.extend(behaviour());
    all.extend(qualities());
    all
}

fn basics() -> Vec<Statement> {
    let wrong = name(three::packets_that_are_wrong_end_the_link_without_a_word);
    let wrong_connect = name(three::a_connect_that_is_wrong_is_refused_or_ended);
    let all = name(talk::messages_of_all_qualities_reach_a_subscriber_once);
    vec![
        tested(
            "MQTT-1.5.3-1",
            "text is well-formed UTF-8 without surrogates, else the link ends",
            &[wrong, wrong_connect],
        ),
        tested(
            "MQTT-1.5.3-2",
            "text has no U+0000, else the link ends",
            &[wrong],
        ),
        tested(
            "MQTT-1.5.3-3",
            "U+FEFF is kept wherever it stands",
            &[name(subscribe5::topics_are_compared_as_they_are)],
        ),
        tested(
            "MQTT-2.2.2-1",
            "reserved flags have the values listed",
            &[wrong],
        ),
        tested("MQTT-2.2.2-2", "invalid flags end the link", &[wrong]),
        tested(
            "MQTT-2.3.1-1",
            "SUBSCRIBE, UNSUBSCRIBE and PUBLISH of QoS 1 and 2 have an identifier that is not 0",
            &[wrong],
        ),
        untestable(
            "MQTT-2.3.1-2",
            "a client assigns an unused identifier",
            OF_CLIENTS,
        ),
        untestable(
            "MQTT-2.3.1-3",
            "a client repeats a packet under the same identifier",
            OF_CLIENTS,
        ),
        tested(
            "MQTT-2.3.1-4",
            "the server does likewise",
            &[name(
                three::qos_2_goes_on_over_a_reconnect_and_an_answered_refusal_is_a_success,
            )],
        ),
        tested(
            "MQTT-2.3.1-5",
            "a PUBLISH of QoS 0 has none",
            &[name(codec::publish_is_read_and_written_alike)],
        ),
        tested(
            "MQTT-2.3.1-6",
            "acknowledgements carry the identifier of their PUBLISH",
            &[all],
        ),
        tested(
            "MQTT-2.3.1-7",
            "SUBACK and UNSUBACK that of their packets",
            &[all],
        ),
    ]
}

fn connect() -> Vec<Statement> {
    let wrong = name(three::a_connect_that_is_wrong_is_refused_or_ended);
    let kept = name(kept::a_kept_session_gets_what_came_meanwhile_also_after_a_restart);
    let will = name(talk::a_will_is_published_unless_the_client_says_goodbye);
    let willed = name(wills::a_will_comes_with_all_that_was_said_of_it);
    let refused = name(talk::connects_that_cannot_be_are_refused_in_the_protocols_words);
    let over = name(three::the_link_that_a_client_had_is_ended);
    let full = name(codec::a_full_connect_is_read);
    vec![
        tested(
            "MQTT-3.1.0-1",
            "the first packet is CONNECT",
            &[name(
                super::super::five::connect::a_second_connect_and_a_first_other_packet_end_the_link,
            )],
        ),
        tested("MQTT-3.1.0-2", "a second CONNECT ends the link", &[over]),
        tested(
            "MQTT-3.1.2-1",
            "another protocol name may end the link",
            &[wrong],
        ),
        tested(
            "MQTT-3.1.2-2",
            "a level that is not spoken is refused with 1",
            &[wrong, refused],
        ),
        tested("MQTT-3.1.2-3", "the reserved flag is 0", &[wrong]),
        tested(
            "MQTT-3.1.2-4",
            "without clean session the session is resumed or made, and kept",
            &[kept],
        ),
        tested("MQTT-3.1.2-5", "it keeps messages of QoS 1 and 2", &[kept]),
        tested(
            "MQTT-3.1.2-6",
            "a clean session forgets, and ends with its link",
            &[kept],
        ),
        tested(
            "MQTT-3.1.2-7",
            "retained messages are no part of a session",
            &[name(talk::retained_messages_are_set_replaced_and_deleted)],
        ),
        tested(
            "MQTT-3.1.2-8",
            "a will is published at the link's end, unless DISCONNECT came",
            &[will],
        ),
        tested(
            "MQTT-3.1.2-9",
            "a will has topic and message",
            &[wrong, full],
        ),
        tested(
            "MQTT-3.1.2-10",
            "it is forgotten once published or at DISCONNECT",
            &[will],
        ),
        tested(
            "MQTT-3.1.2-11",
            "no will: its QoS and retain are 0",
            &[wrong],
        ),
        tested("MQTT-3.1.2-12", "no will: no will is published", &[will]),
        tested("MQTT-3.1.2-13", "no will: will QoS 0", &[wrong]),
        tested("MQTT-3.1.2-14", "will QoS is not 3", &[wrong]),
        tested("MQTT-3.1.2-15", "no will: will retain 0", &[wrong]),
        tested(
            "MQTT-3.1.2-16",
            "a will without retain is not retained",
            &[willed],
        ),
        tested("MQTT-3.1.2-17", "a will with retain is retained", &[willed]),
        tested("MQTT-3.1.2-18", "no user name flag: no user name", &[wrong]),
        tested(
            "MQTT-3.1.2-19",
            "user name flag: a user name",
            &[wrong, full],
        ),
        tested("MQTT-3.1.2-20", "no password flag: no password", &[wrong]),
        tested("MQTT-3.1.2-21", "password flag: a password", &[full]),
        tested("MQTT-3.1.2-22", "no user name: no password", &[wrong]),
        untestable(
            "MQTT-3.1.2-23",
            "a client pings within its keep-alive",
            OF_CLIENTS,
        ),
        tested(
            "MQTT-3.1.2-24",
            "silence of one and a half keep-alives ends the link",
            &[name(
                talk::a_silent_client_is_cut_off_after_one_and_a_half_keep_alives,
            )],
        ),
        tested(
            "MQTT-3.1.3-1",
            "the fields of CONNECT have their order",
            &[full],
        ),
        tested("MQTT-3.1.3-2", "the client id names the session", &[kept]),
        tested(
            "MQTT-3.1.3-3",
            "the client id is there, first of all",
            &[wrong],
        ),
        tested("MQTT-3.1.3-4", "it is UTF-8", &[wrong]),
        tested(
            "MQTT-3.1.3-5",
            "1 to 23 letters and digits are allowed",
            &[name(
                super::super::five::connect::simple_client_ids_of_up_to_23_characters_are_taken,
            )],
        ),
        tested(
            "MQTT-3.1.3-6",
            "an empty one is replaced by a unique one",
            &[refused],
        ),
        untestable(
            "MQTT-3.1.3-7",
            "a client without an id asks for a clean session",
            OF_CLIENTS,
        ),
        tested(
            "MQTT-3.1.3-8",
            "an empty one without clean session is refused with 2",
            &[wrong, refused],
        ),
        tested(
            "MQTT-3.1.3-9",
            "an id that is refused ends the link with 2",
            &[wrong],
        ),
        tested(
            "MQTT-3.1.3-10",
            "a will's topic is UTF-8",
            &[name(
                super::super::five::connect::a_connect_that_is_wrong_is_refused_with_its_reason,
            )],
        ),
        tested(
            "MQTT-3.1.3-11",
            "a user name is UTF-8",
            &[name(codec::a_full_connect_of_5_0_is_read)],
        ),
        tested(
            "MQTT-3.1.4-1",
            "a CONNECT that is malformed ends the link",
            &[wrong],
        ),
        tested(
            "MQTT-3.1.4-2",
            "the link that a client had is ended",
            &[over],
        ),
        tested("MQTT-3.1.4-3", "clean session is processed", &[kept]),
        tested("MQTT-3.1.4-4", "a CONNECT is answered with 0", &[kept]),
        tested(
            "MQTT-3.1.4-5",
            "nothing after a refused CONNECT is processed",
            &[name(
                super::super::five::connect::what_follows_a_refused_connect_is_not_processed,
            )],
        ),
        tested(
            "MQTT-3.2.0-1",
            "the first packet from the server is CONNACK",
            &[kept],
        ),
        tested(
            "MQTT-3.2.2-1",
            "a clean session has no session present",
            &[kept],
        ),
        tested(
            "MQTT-3.2.2-2",
            "otherwise it says whether a session was found",
            &[kept],
        ),
        tested("MQTT-3.2.2-3", "and is 0 where none was", &[kept]),
        tested(
            "MQTT-3.2.2-4",
            "a refusal has no session present",
            &[wrong, refused],
        ),
        tested("MQTT-3.2.2-5", "a refusal ends the link", &[wrong, refused]),
        tested(
            "MQTT-3.2.2-6",
            "where no code fits, the link ends without",
            &[wrong],
        ),
    ]
}

fn publish() -> Vec<Statement> {
    let wrong = name(three::packets_that_are_wrong_end_the_link_without_a_word);
    let kept = name(kept::a_kept_session_gets_what_came_meanwhile_also_after_a_restart);
    let retained = name(talk::retained_messages_are_set_replaced_and_deleted);
    let left_alone = name(subscribe5::retained_messages_are_replaced_deleted_and_left_alone);
    let all = name(talk::messages_of_all_qualities_reach_a_subscriber_once);
    let may_not = name(login::what_a_client_may_not_do_is_told_with_its_reason);
    vec![
        tested("MQTT-3.3.1-1", "what is sent again has DUP", &[kept]),
        tested("MQTT-3.3.1-2", "QoS 0 has no DUP", &[wrong]),
        tested(
            "MQTT-3.3.1-3",
            "DUP to a subscriber says nothing of the publisher's",
            &[name(
                exactly_once::a_publisher_may_repeat_itself_until_it_released_the_identifier,
            )],
        ),
        tested(
            "MQTT-3.3.1-4",
            "there is no QoS 3, else the link ends",
            &[wrong],
        ),
        tested(
            "MQTT-3.3.1-5",
            "a retained message is stored with its QoS",
            &[retained, left_alone],
        ),
        tested(
            "MQTT-3.3.1-6",
            "a new subscription gets the last one of each topic",
            &[retained],
        ),
        tested(
            "MQTT-3.3.1-7",
            "one of QoS 0 replaces the one before",
            &[retained],
        ),
        tested(
            "MQTT-3.3.1-8",
            "what comes by a new subscription has the flag",
            &[retained],
        ),
        tested(
            "MQTT-3.3.1-9",
            "what comes by an existing one has not",
            &[retained],
        ),
        tested("MQTT-3.3.1-10", "an empty payload deletes", &[retained]),
        tested("MQTT-3.3.1-11", "and is not stored", &[left_alone]),
        tested(
            "MQTT-3.3.1-12",
            "a message without the flag changes nothing",
            &[left_alone],
        ),
        tested(
            "MQTT-3.3.2-1",
            "the topic stands first and is UTF-8",
            &[wrong],
        ),
        tested("MQTT-3.3.2-2", "it has no wildcards", &[wrong]),
        tested(
            "MQTT-3.3.2-3",
            "what a subscriber gets matches its filter",
            &[name(topic::filters_match_as_section_4_7_says)],
        ),
        tested("MQTT-3.3.4-1", "each QoS has its answer", &[all]),
        tested(
            "MQTT-3.3.5-1",
            "overlapping subscriptions: the highest QoS",
            &[all],
        ),
        tested(
            "MQTT-3.3.5-2",
            "a PUBLISH that is not allowed is acknowledged, or ends the link",
            &[may_not],
        ),
        tested("MQTT-3.6.1-1", "PUBREL's flags are 0010", &[wrong]),
    ]
}

fn subscribe() -> Vec<Statement> {
    let wrong = name(three::packets_that_are_wrong_end_the_link_without_a_word);
    let all = name(talk::messages_of_all_qualities_reach_a_subscriber_once);
    let limit = name(talk::more_subscriptions_than_allowed_fail_in_the_suback);
    let retained = name(talk::retained_messages_are_set_replaced_and_deleted);
    let late = name(three::what_was_sent_once_is_delivered_and_nothing_else_after_an_unsubscribe);
    let options = name(subscribe5::retained_messages_come_as_the_options_say);
    vec![
        tested("MQTT-3.8.1-1", "SUBSCRIBE's flags are 0010", &[wrong]),
        tested("MQTT-3.8.3-1", "filters are UTF-8", &[wrong]),
        tested(
            "MQTT-3.8.3-2",
            "wildcards are supported, or refused",
            &[all],
        ),
        tested("MQTT-3.8.3-3", "there is at least one filter", &[wrong]),
        tested(
            "MQTT-3.8.3-4",
            "reserved bits are 0 and QoS is 0, 1 or 2",
            &[wrong],
        ),
        tested("MQTT-3.8.4-1", "SUBSCRIBE is answered with SUBACK", &[all]),
        tested("MQTT-3.8.4-2", "of the same packet identifier", &[all]),
        tested(
            "MQTT-3.8.4-3",
            "the same filter replaces its subscription; retained messages come again",
            &[options, limit],
        ),
        tested(
            "MQTT-3.8.4-4",
            "several filters are as several packets",
            &[all],
        ),
        tested(
            "MQTT-3.8.4-5",
            "there is a code for each filter",
            &[all, limit],
        ),
        tested(
            "MQTT-3.8.4-6",
            "a message has the lower of its QoS and the granted one",
            &[all, retained],
        ),
        tested(
            "MQTT-3.9.3-1",
            "codes have the order of the filters",
            &[all, limit],
        ),
        tested("MQTT-3.9.3-2", "they are 0, 1, 2 or 0x80", &[all, limit]),
        tested("MQTT-3.10.1-1", "UNSUBSCRIBE's flags are 0010", &[wrong]),
        tested("MQTT-3.10.3-1", "its filters are UTF-8", &[wrong]),
        tested("MQTT-3.10.3-2", "there is at least one", &[wrong]),
        tested(
            "MQTT-3.10.4-1",
            "a filter is compared character by character",
            &[all, name(subscribe5::topics_are_compared_as_they_are)],
        ),
        tested("MQTT-3.10.4-2", "nothing new is added for it", &[late]),
        tested("MQTT-3.10.4-3", "what was begun is delivered", &[late]),
        tested(
            "MQTT-3.10.4-4",
            "UNSUBSCRIBE is answered with UNSUBACK of its identifier",
            &[all, late],
        ),
        tested("MQTT-3.10.4-5", "also where nothing was deleted", &[late]),
        tested(
            "MQTT-3.10.4-6",
            "several filters are as several packets",
            &[all],
        ),
        tested("MQTT-3.12.4-1", "a PINGREQ is answered", &[all]),
        tested("MQTT-3.14.1-1", "DISCONNECT's flags are 0", &[wrong]),
        untestable(
            "MQTT-3.14.4-1",
            "a client closes after DISCONNECT",
            OF_CLIENTS,
        ),
        untestable("MQTT-3.14.4-2", "and sends nothing more", OF_CLIENTS),
        tested(
            "MQTT-3.14.4-3",
            "DISCONNECT voids the will",
            &[name(
                talk::a_will_is_published_unless_the_client_says_goodbye,
            )],
        ),
    ]
}

fn behaviour() -> Vec<Statement> {
    let kept = name(kept::a_kept_session_gets_what_came_meanwhile_also_after_a_restart);
    let order = name(held::a_slow_reader_holds_back_its_publisher_and_loses_nothing);
    let wrong = name(three::packets_that_are_wrong_end_the_link_without_a_word);
    let filters = name(topic::misplaced_wildcards_are_refused);
    let matching = name(topic::filters_match_as_section_4_7_says);
    const WEBSOCKET: &str = "of the WebSocket transport, which has tests of its own";
    vec![
        tested(
            "MQTT-4.4.0-1",
            "on reconnect what is unacknowledged is sent again under its identifier",
            &[kept],
        ),
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
        tested(
            "MQTT-4.6.0-1",
            "what is sent again keeps its order",
            &[kept],
        ),
        untestable(
            "MQTT-4.6.0-2",
            "PUBACKs have the order of the PUBLISHes",
            OF_CLIENTS,
        ),
        untestable("MQTT-4.6.0-3", "so have PUBRECs", OF_CLIENTS),
        untestable(
            "MQTT-4.6.0-4",
            "and PUBRELs that of the PUBRECs",
            OF_CLIENTS,
        ),
        tested("MQTT-4.6.0-5", "every topic is ordered", &[order]),
        tested(
            "MQTT-4.6.0-6",
            "a topic's messages keep their order to each consumer",
            &[order],
        ),
        tested("MQTT-4.7.1-1", "names have no wildcards", &[filters, wrong]),
        tested(
            "MQTT-4.7.1-2",
            "# fills the whole last level",
            &[filters, wrong],
        ),
        tested("MQTT-4.7.1-3", "+ fills a whole level", &[filters, wrong]),
        tested(
            "MQTT-4.7.2-1",
            "a leading wildcard does not meet $",
            &[matching],
        ),
        tested(
            "MQTT-4.7.3-1",
            "names and filters have at least one character",
            &[filters, wrong],
        ),
        tested("MQTT-4.7.3-2", "and no U+0000", &[filters, wrong]),
        tested("MQTT-4.7.3-3", "and at most 65,535 bytes", &[filters]),
        tested(
            "MQTT-4.7.3-4",
            "they are compared as they are",
            &[name(subscribe5::topics_are_compared_as_they_are)],
        ),
        tested("MQTT-4.8.0-1", "a protocol error ends the link", &[wrong]),
        untestable(
            "MQTT-4.8.0-2",
            "a passing fault of the sender ends the link",
            "the server is not made to fail so",
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
        untestable(
            "MQTT-7.0.0-1",
            "a program that is both client and server conforms as both",
            "the server is no client",
        ),
        untestable(
            "MQTT-7.0.0-2",
            "it needs no extension to work with others",
            "the clients of the whole-system tests show it",
        ),
    ]
}

fn qualities() -> Vec<Statement> {
    let kept = name(kept::a_kept_session_gets_what_came_meanwhile_also_after_a_restart);
    let identifier = name(kept::a_qos_2_identifier_is_known_after_reconnect_and_restart);
    let all = name(talk::messages_of_all_qualities_reach_a_subscriber_once);
    let goes_on = name(three::qos_2_goes_on_over_a_reconnect_and_an_answered_refusal_is_a_success);
    vec![
        tested(
            "MQTT-4.1.0-1",
            "the session lasts as long as its link at least",
            &[kept],
        ),
        untestable(
            "MQTT-4.1.0-2",
            "and is stored for as long as somebody relies on it",
            "an administrator's bound, mqtt.session_expiry, may end it",
        ),
        tested(
            "MQTT-4.2.0-1",
            "the transport is ordered and loses nothing",
            &[all],
        ),
        tested("MQTT-4.3.1-1", "QoS 0 is sent without DUP", &[all]),
        tested(
            "MQTT-4.3.2-1",
            "QoS 1 as a sender: unused identifier, no DUP, unacknowledged until PUBACK",
            &[kept],
        ),
        tested(
            "MQTT-4.3.2-2",
            "as a receiver: PUBACK, after which the identifier is new",
            &[all],
        ),
        tested(
            "MQTT-4.3.3-1",
            "QoS 2 as a sender: PUBLISH until PUBREC, PUBREL until PUBCOMP",
            &[goes_on],
        ),
        tested(
            "MQTT-4.3.3-2",
            "as a receiver: PUBREC until PUBREL, PUBCOMP, after which the identifier is new",
            &[identifier],
        ),
    ]
}
