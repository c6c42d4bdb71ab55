//! The MQTT role put together: its listeners, who decides about clients, its bridges.

use std::path::Path;
use std::sync::Arc;

use access::{Access, Jwts, Tls};
use axum::Router;
use base::Clock;
use mqtt::{Bridges, Door, Gate, Guard, MqttConfig, OpenGate, Pages, Server};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cli::Failure;
use crate::http::{MqttParts, mqtt_routes};

/// The open ports of the role.
#[derive(Default)]
pub struct MqttListeners {
    /// MQTT over TCP.
    pub tcp: Option<TcpListener>,
    /// MQTT over TLS.
    pub tls: Option<TcpListener>,
    /// MQTT over WebSocket.
    pub ws: Option<TcpListener>,
    /// MQTT over WebSocket over TLS.
    pub wss: Option<TcpListener>,
}

/// The listeners beside the first, each by the name of its endpoint, with its address where it is
/// wanted, and whether it speaks TLS.
pub fn further_listeners(config: &MqttConfig) -> [(&'static str, Option<&str>, bool); 3] {
    let websocket = &config.websocket;
    [
        ("mqtt.tls", config.tls_listen.as_deref(), true),
        ("mqtt.ws", websocket.listen.as_deref(), false),
        ("mqtt.wss", websocket.tls_listen.as_deref(), true),
    ]
}

/// The configuration key of a listener's address, by the name of its endpoint.
pub fn listen_key(name: &str) -> Option<&'static str> {
    match name {
        "mqtt.tls" => Some("mqtt.tls_listen"),
        "mqtt.ws" => Some("mqtt.websocket.listen"),
        "mqtt.wss" => Some("mqtt.websocket.tls_listen"),
        _ => None,
    }
}

/// The role, opened.
pub struct MqttRole {
    /// The server.
    pub server: Server,
    /// Its certificate, where it has listeners with TLS.
    pub tls: Option<Arc<Tls>>,
    /// Users and ACLs, where clients are judged by them.
    pub access: Option<Arc<Access>>,
    /// Its connections to other brokers.
    pub bridges: Arc<Bridges>,
    guard: Option<Arc<Guard>>,
    pages: Pages,
}

impl MqttRole {
    /// Opens the server and its bridges under the data folder. `access` and `jwts` say who clients
    /// are, where the configuration asks them; `allows_remote`: whether everybody who reaches a port
    /// may use it.
    ///
    /// # Errors
    /// What cannot be opened, in words.
    pub fn open(
        folder: &Path,
        config: &MqttConfig,
        (access, jwts): (Arc<Access>, Option<Arc<Jwts>>),
        allows_remote: bool,
        clock: &Arc<dyn Clock>,
    ) -> Result<MqttRole, Failure> {
        let tls = match config.tls.is_on() {
            true => {
                let what = "cannot open the MQTT listeners' certificates ([mqtt.tls])";
                let opened = Tls::open(config.tls.clone(), &[]);
                Some(Arc::new(
                    opened.map_err(|error| Failure::because(what, &error))?,
                ))
            }
            false => None,
        };
        let guard = config
            .guard()
            .map(|settings| Arc::new(Guard::new(access.clone(), jwts, settings, clock.clone())));
        let gate: Arc<dyn Gate> = match &guard {
            Some(guard) => guard.clone(),
            None => Arc::new(OpenGate),
        };
        let dir = folder.join("mqtt");
        let server = Server::open_guarded(&dir, config.clone(), clock.clone(), gate)
            .map_err(|error| Failure::because("cannot open the MQTT server", &error))?;
        let dir = folder.join("bridges");
        let bridges = Bridges::open(&dir, server.clone(), config, clock.clone())
            .map_err(|error| Failure::because("cannot open the MQTT bridges", &error))?;
        Ok(MqttRole {
            server,
            tls,
            access: guard.is_some().then_some(access),
            guard,
            bridges,
            pages: Pages {
                origins: config.websocket.origins.clone().into(),
                by_any_name: allows_remote || config.security.logins,
            },
        })
    }

    /// Serves clients until the shutdown is done.
    pub fn serve(
        &self,
        listeners: MqttListeners,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) {
        let tls = self.tls.clone();
        // By a name that its certificate does not have no page gets to a port with TLS.
        let of_tls = Pages {
            by_any_name: true,
            ..self.pages.clone()
        };
        let doors = [
            (listeners.tcp, None, None),
            (listeners.tls, tls.clone(), None),
            (listeners.ws, None, Some(self.pages.clone())),
            (listeners.wss, tls, Some(of_tls)),
        ];
        for (listener, tls, websocket) in doors {
            let Some(listener) = listener else { continue };
            let (server, shutdown) = (self.server.clone(), shutdown.clone());
            let door = Door { tls, websocket };
            tasks.spawn(async move { server.serve_behind(door, listener, shutdown).await });
        }
        if let Some(guard) = &self.guard {
            let (guard, server) = (guard.clone(), self.server.clone());
            let shutdown = shutdown.clone();
            tasks.spawn(async move {
                tokio::select! {
                    () = guard.keep_told(server) => {}
                    () = shutdown.cancelled() => {}
                }
            });
        }
    }

    /// The role's part of the management API.
    pub fn routes(&self) -> Router {
        mqtt_routes(MqttParts {
            server: self.server.clone(),
            guard: self.guard.clone(),
            bridges: self.bridges.clone(),
        })
    }

    /// Closes the bridges, then the server.
    pub async fn close(&self) {
        self.bridges.close().await;
        self.server.close().await;
    }
}
