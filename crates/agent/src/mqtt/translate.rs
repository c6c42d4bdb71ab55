//! rumqttc's two kinds of events as ours.

use rumqttc::v5::mqttbytes::v5 as five;
use rumqttc::{Event, Outgoing, Packet, QoS, SubscribeReasonCode, v5};

use super::{Happened, Message, Receipt};

pub(super) fn v3(event: Event) -> Option<Happened> {
    Some(match event {
        Event::Incoming(Packet::ConnAck(_)) => Happened::Connected,
        Event::Incoming(Packet::Publish(publish)) => Happened::Message(Box::new(Message {
            topic: publish.topic.clone(),
            payload: publish.payload.clone(),
            qos: publish.qos as u8,
            is_duplicate: publish.dup,
            is_retained: publish.retain,
            content_type: None,
            response_topic: None,
            user_properties: Vec::new(),
            receipt: Receipt::V3(publish),
        })),
        Event::Incoming(Packet::PubAck(ack)) => Happened::Done(ack.pkid, Ok(())),
        Event::Incoming(Packet::PubComp(done)) => Happened::Done(done.pkid, Ok(())),
        Event::Incoming(Packet::SubAck(ack)) => {
            let refused = ack.return_codes.contains(&SubscribeReasonCode::Failure);
            Happened::Subscribed(match refused {
                true => Err("the server refuses the subscription".to_owned()),
                false => Ok(()),
            })
        }
        Event::Outgoing(Outgoing::Publish(id)) => Happened::Sent(id),
        _ => return None,
    })
}

pub(super) fn v5(event: v5::Event) -> Option<Happened> {
    Some(match event {
        v5::Event::Incoming(five::Packet::ConnAck(_)) => Happened::Connected,
        v5::Event::Incoming(five::Packet::Publish(publish)) => message(publish),
        v5::Event::Incoming(five::Packet::PubAck(ack)) => {
            let is_taken = matches!(
                ack.reason,
                five::PubAckReason::Success | five::PubAckReason::NoMatchingSubscribers
            );
            let reason = || format!("the server refuses it: {:?}", ack.reason);
            Happened::Done(ack.pkid, if is_taken { Ok(()) } else { Err(reason()) })
        }
        v5::Event::Incoming(five::Packet::PubComp(done)) => Happened::Done(done.pkid, Ok(())),
        v5::Event::Incoming(five::Packet::SubAck(ack)) => {
            let refused = ack
                .return_codes
                .iter()
                .find(|code| !matches!(code, five::SubscribeReasonCode::Success(_)));
            Happened::Subscribed(match refused {
                Some(code) => Err(format!("the server refuses the subscription: {code:?}")),
                None => Ok(()),
            })
        }
        v5::Event::Incoming(five::Packet::Disconnect(goodbye)) => Happened::Lost(format!(
            "the server ends the link: {:?}",
            goodbye.reason_code
        )),
        v5::Event::Outgoing(Outgoing::Publish(id)) => Happened::Sent(id),
        _ => return None,
    })
}

pub(super) fn to_v5(qos: QoS) -> v5::mqttbytes::QoS {
    match qos {
        QoS::AtMostOnce => v5::mqttbytes::QoS::AtMostOnce,
        QoS::AtLeastOnce => v5::mqttbytes::QoS::AtLeastOnce,
        QoS::ExactlyOnce => v5::mqttbytes::QoS::ExactlyOnce,
    }
}

fn message(publish: five::Publish) -> Happened {
    let properties = publish.properties.clone().unwrap_or_default();
    Happened::Message(Box::new(Message {
        topic: String::from_utf8_lossy(&publish.topic).into_owned(),
        payload: publish.payload.clone(),
        qos: publish.qos as u8,
        is_duplicate: publish.dup,
        is_retained: publish.retain,
        content_type: properties.content_type,
        response_topic: properties.response_topic,
        user_properties: properties.user_properties,
        receipt: Receipt::V5(publish),
    }))
}
