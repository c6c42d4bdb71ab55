//! An authority and certificates of its, made by openssl.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use rustls::ServerConfig;

use crate::services::{ClientAuthentication, SslContext, SslFiles};

/// A folder with `ca.pem`, and for each name `NAME.pem` (certificate and key) for localhost.
pub(crate) struct Certificates(PathBuf);

/// Runs openssl in a folder, with arguments that have no spaces.
pub(crate) fn openssl(dir: &Path, arguments: &str) {
    let out = Command::new("openssl")
        .current_dir(dir)
        .args(arguments.split_whitespace())
        .output()
        .expect("openssl is installed");
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{arguments}: {error}");
}

impl Certificates {
    pub(crate) fn make(dir: &Path, names: &[&str]) -> Self {
        let run = |text: &str| openssl(dir, text);
        let curve = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
        run(&format!(
            "req -x509 {curve} -keyout ca.key -out ca.pem -days 2 -subj /CN=authority \
             -addext basicConstraints=critical,CA:TRUE"
        ));
        let names_of = "subjectAltName=DNS:localhost,IP:127.0.0.1\n";
        std::fs::write(dir.join("names.ext"), names_of).unwrap();
        for name in names {
            run(&format!(
                "req {curve} -keyout {name}.key -out {name}.csr -subj /O=thalweg/CN={name}"
            ));
            run(&format!(
                "x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out \
                 {name}.crt -days 2 -extfile names.ext"
            ));
            let read = |ending: &str| {
                std::fs::read_to_string(dir.join(format!("{name}.{ending}"))).unwrap()
            };
            let both = read("crt") + &read("key");
            std::fs::write(dir.join(format!("{name}.pem")), both).unwrap();
        }
        Certificates(dir.to_owned())
    }

    /// The path of one of its files.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// What a server of this name presents; it wants clients of the same authority or none.
    pub(crate) fn server(&self, name: &str, clients: ClientAuthentication) -> Arc<ServerConfig> {
        self.context(name)
            .server(clients, rustls::ALL_VERSIONS)
            .unwrap()
    }

    /// What a client of this name presents.
    pub(crate) fn context(&self, name: &str) -> SslContext {
        SslContext::open(&SslFiles {
            certificate: Some(self.path(&format!("{name}.pem"))),
            authority: Some(self.path("ca.pem")),
            ..SslFiles::default()
        })
        .unwrap()
    }

    /// The service of such a client as a flow writes it, under the name `tls`.
    pub(crate) fn service(&self, name: &str) -> String {
        format!(
            "Controller Services:\n- name: tls\n  id: tls\n  class: SSLContextService\n  \
             Properties: {{Client Certificate: {}, CA Certificate: {}}}\n",
            self.path(&format!("{name}.pem")),
            self.path("ca.pem")
        )
    }
}
