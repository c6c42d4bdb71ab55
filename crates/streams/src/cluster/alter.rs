//! Sets all settings of a topic or a broker. The wrapper's own call takes whatever the cluster answers
//! about the resource for success, also a refusal.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::ptr::{self, NonNull};
use std::time::Duration;

use rdkafka::bindings::{
    rd_kafka_AdminOptions_destroy, rd_kafka_AdminOptions_new,
    rd_kafka_AdminOptions_set_request_timeout, rd_kafka_AdminOptions_t, rd_kafka_AlterConfigs,
    rd_kafka_AlterConfigs_result_resources, rd_kafka_ConfigResource_destroy,
    rd_kafka_ConfigResource_error, rd_kafka_ConfigResource_new, rd_kafka_ConfigResource_set_config,
    rd_kafka_ConfigResource_t, rd_kafka_ResourceType_t, rd_kafka_admin_op_t,
    rd_kafka_event_AlterConfigs_result, rd_kafka_event_destroy, rd_kafka_event_error,
    rd_kafka_event_t, rd_kafka_queue_destroy, rd_kafka_queue_new, rd_kafka_queue_poll,
    rd_kafka_queue_t, rd_kafka_resp_err_t, rd_kafka_t,
};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};

use crate::topic::TopicName;

/// What has settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    Topic(TopicName),
    Broker(i32),
}

/// Sets these and takes back all others; waits for the cluster's answer.
///
/// # Errors
/// The cluster's, of the call and of the resource.
#[allow(unsafe_code)]
pub(super) fn alter(
    client: *mut rd_kafka_t,
    resource: &Resource,
    set: &BTreeMap<String, String>,
    timeout: Duration,
) -> Result<(), KafkaError> {
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let (kind, name) = match resource {
        Resource::Topic(topic) => (
            rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_TOPIC,
            text(topic.wire_name())?,
        ),
        Resource::Broker(id) => (
            rd_kafka_ResourceType_t::RD_KAFKA_RESOURCE_BROKER,
            text(&id.to_string())?,
        ),
    };
    // SAFETY: the client lives, since who calls holds it; all that is made here is destroyed by its
    // guard, the event (of which the result and its resources are parts) before the queue; names and
    // values are copied by the calls that take them.
    unsafe {
        let made = Made {
            resource: rd_kafka_ConfigResource_new(kind, name.as_ptr()),
            options: rd_kafka_AdminOptions_new(
                client,
                rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_ALTERCONFIGS,
            ),
            queue: rd_kafka_queue_new(client),
        };
        if made.resource.is_null() || made.options.is_null() || made.queue.is_null() {
            return Err(KafkaError::AdminOp(Code::InvalidArgument));
        }
        for (name, value) in set {
            let (name, value) = (text(name)?, text(value)?);
            judged(rd_kafka_ConfigResource_set_config(
                made.resource,
                name.as_ptr(),
                value.as_ptr(),
            ))?;
        }
        let no_text = ptr::null_mut();
        judged(rd_kafka_AdminOptions_set_request_timeout(
            made.options,
            timeout_ms,
            no_text,
            0,
        ))?;
        let mut resources = [made.resource];
        rd_kafka_AlterConfigs(client, resources.as_mut_ptr(), 1, made.options, made.queue);
        // It answers in that time, if only that it is over.
        let event = rd_kafka_queue_poll(made.queue, timeout_ms.saturating_add(1_000));
        let Some(event) = NonNull::new(event).map(Event) else {
            return Err(KafkaError::AdminOp(Code::OperationTimedOut));
        };
        judged(rd_kafka_event_error(event.0.as_ptr()))?;
        let result = rd_kafka_event_AlterConfigs_result(event.0.as_ptr());
        if result.is_null() {
            return Err(KafkaError::AdminOp(Code::BadMessage));
        }
        let mut count = 0;
        let answered = rd_kafka_AlterConfigs_result_resources(result, &raw mut count);
        for nth in 0..count {
            judged(rd_kafka_ConfigResource_error(*answered.add(nth)))?;
        }
        Ok(())
    }
}

fn text(text: &str) -> Result<CString, KafkaError> {
    CString::new(text).map_err(|_| KafkaError::AdminOp(Code::InvalidArgument))
}

fn judged(code: rd_kafka_resp_err_t) -> Result<(), KafkaError> {
    match code {
        rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        code => Err(KafkaError::AdminOp(code.into())),
    }
}

/// What a call is made of.
struct Made {
    resource: *mut rd_kafka_ConfigResource_t,
    options: *mut rd_kafka_AdminOptions_t,
    queue: *mut rd_kafka_queue_t,
}

impl Drop for Made {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: each was made for this value alone, and is destroyed once.
        unsafe {
            if !self.queue.is_null() {
                rd_kafka_queue_destroy(self.queue);
            }
            if !self.options.is_null() {
                rd_kafka_AdminOptions_destroy(self.options);
            }
            if !self.resource.is_null() {
                rd_kafka_ConfigResource_destroy(self.resource);
            }
        }
    }
}

/// What a queue gave.
struct Event(NonNull<rd_kafka_event_t>);

impl Drop for Event {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: the queue gave it to this value alone.
        unsafe { rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}
