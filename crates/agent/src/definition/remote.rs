//! Remote process groups: each of their ports becomes a processor of its own.
//!
//! # What the site-to-site processors get
//!
//! | in the flow | kind in the table of processors | input | relationships |
//! | --- | --- | --- | --- |
//! | an input port of the remote (we send to it) | [`INPUT_PORT`] | required | none |
//! | an output port of the remote (we receive from it) | [`OUTPUT_PORT`] | forbidden | one: `success` |
//!
//! Properties are those of [`properties`], by the names below; what the text leaves out is not
//! set, so the kinds' defaults hold (`Timeout` 30 sec, `Transport Protocol` RAW, `Use
//! Compression` false). The processor's id is the port's id, its `Port ID` what the remote knows
//! the port by (JSON's `targetId`, else the id), its yield period the group's, its concurrent
//! tasks the port's, and it is EVENT_DRIVEN if it takes input, TIMER_DRIVEN with a period of zero
//! if it is a source. Connections from an output port need not name a relationship.

/// The kind that sends to an input port of a remote NiFi or agent.
pub const INPUT_PORT: &str = "RemoteProcessGroupInputPort";

/// The kind that receives from an output port of a remote NiFi or agent.
pub const OUTPUT_PORT: &str = "RemoteProcessGroupOutputPort";

/// Names of the properties that a port has.
pub mod properties {
    /// Addresses of the remote with commas between them: `http://nifi:8080/nifi`.
    pub const URL: &str = "URL";
    /// What the remote knows the port by.
    pub const PORT_ID: &str = "Port ID";
    /// The port's name.
    pub const PORT_NAME: &str = "Port Name";
    /// `RAW` or `HTTP`.
    pub const TRANSPORT_PROTOCOL: &str = "Transport Protocol";
    /// A duration.
    pub const TIMEOUT: &str = "Timeout";
    /// Name of the network interface to go out by.
    pub const LOCAL_INTERFACE: &str = "Local Network Interface";
    /// Host of an HTTP proxy.
    pub const PROXY_HOST: &str = "Proxy Host";
    /// Port of the proxy.
    pub const PROXY_PORT: &str = "Proxy Port";
    /// User at the proxy.
    pub const PROXY_USER: &str = "Proxy User";
    /// The user's password; sensitive.
    pub const PROXY_PASSWORD: &str = "Proxy Password";
    /// `true` or `false`.
    pub const USE_COMPRESSION: &str = "Use Compression";
    /// FlowFiles of one transaction.
    pub const BATCH_COUNT: &str = "Batch Count";
    /// Bytes of one transaction, a size.
    pub const BATCH_SIZE: &str = "Batch Size";
    /// Longest time of one transaction, a duration.
    pub const BATCH_DURATION: &str = "Batch Duration";
    /// Host of the remote's raw socket, where the port says it itself.
    pub const HOST_NAME: &str = "Host Name";
    /// Port of the remote's raw socket, where the port says it itself.
    pub const PORT: &str = "Port";
    /// The TLS context, a controller service.
    pub const SSL_CONTEXT_SERVICE: &str = "SSL Context Service";
}
