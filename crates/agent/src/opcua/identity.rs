//! Certificates and keys: who the agent is to a server, and who the server is.

use std::path::Path;
use std::time::Duration;

use base::UnixMillis;
use pkcs8::der::asn1::UintRef;
use pkcs8::der::{Decode, Reader as _, SliceReader};
use pkcs8::spki::SubjectPublicKeyInfoRef;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ring::rand::{SecureRandom, SystemRandom};
use rsa::{BoxedUint, PrivateKey, PublicKey};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use webpki::EndEntityCert;

use super::policy::{Oaep, Policy};

/// The agent's certificate and its key.
pub(crate) struct Identity {
    pub(crate) certificate: Certificate,
    signing: ring::rsa::KeyPair,
    opening: PrivateKey,
}

/// A certificate with an RSA key, and whoever issued it if that came along.
#[derive(Clone, Debug)]
pub(crate) struct Certificate {
    der: CertificateDer<'static>,
    issuers: Vec<CertificateDer<'static>>,
    key: PublicKey,
    key_bytes: usize,
}

/// Whether a server is the one that was meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// Its certificate is the trusted one, or was issued by it.
    Known,
    /// Nobody said which certificate to trust.
    Unchecked,
}

impl Identity {
    /// Reads both from files, in PEM or DER.
    ///
    /// # Errors
    /// What is wrong with which of them.
    pub(crate) fn read(certificate: &Path, key: &Path) -> Result<Self, String> {
        let certificate = Certificate::read(certificate)?;
        let at = |why: &str| format!("{}: {why}", key.display());
        let bytes = std::fs::read(key).map_err(|error| at(&error.to_string()))?;
        let key = match is_pem(&bytes) {
            true => {
                PrivateKeyDer::from_pem_slice(&bytes).map_err(|error| at(&error.to_string()))?
            }
            false => PrivateKeyDer::try_from(bytes).map_err(at)?,
        };
        Identity::new(certificate, &key).map_err(|why| at(&why))
    }

    pub(crate) fn new(certificate: Certificate, key: &PrivateKeyDer<'_>) -> Result<Self, String> {
        let refused = || "it is no RSA key of 2048 to 4096 bits".to_owned();
        let pkcs1 = match key {
            PrivateKeyDer::Pkcs1(key) => key.secret_pkcs1_der(),
            PrivateKeyDer::Pkcs8(key) => {
                let info = pkcs8::PrivateKeyInfo::from_der(key.secret_pkcs8_der());
                info.map_err(|_| refused())?.private_key
            }
            _ => return Err(refused()),
        };
        let signing = ring::rsa::KeyPair::from_der(pkcs1).map_err(|_| refused())?;
        let opening = private_key(pkcs1).ok_or_else(refused)?;
        if *opening.as_public_key() != certificate.key {
            return Err("it is not the certificate's key".to_owned());
        }
        Ok(Identity {
            certificate,
            signing,
            opening,
        })
    }

    /// Signs a message; as many bytes as the key has.
    pub(crate) fn sign(&self, policy: Policy, message: &[u8]) -> Vec<u8> {
        let mut signature = vec![0; self.certificate.key_bytes];
        let random = SystemRandom::new();
        let signed = self
            .signing
            .sign(policy.signing(), &random, message, &mut signature);
        signed.expect("a key of 2048 bits and more signs a hash");
        signature
    }

    /// Opens blocks that were encrypted to the key.
    pub(crate) fn open(&self, oaep: Oaep, sealed: &[u8]) -> Option<Vec<u8>> {
        let mut content = Vec::with_capacity(sealed.len());
        for block in sealed.chunks(self.certificate.key_bytes) {
            content.extend(
                match oaep {
                    Oaep::Sha1 => self.opening.oaep_decrypt::<sha1::Sha1>(block),
                    Oaep::Sha256 => self.opening.oaep_decrypt::<rsa::sha2::Sha256>(block),
                }
                .ok()?,
            );
        }
        Some(content)
    }
}

impl Certificate {
    /// Reads one from a file, in PEM or DER.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(crate) fn read(file: &Path) -> Result<Self, String> {
        let at = |why: String| format!("{}: {why}", file.display());
        let bytes = std::fs::read(file).map_err(|error| at(error.to_string()))?;
        let certificate = match is_pem(&bytes) {
            true => CertificateDer::pem_slice_iter(&bytes)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| error.to_string())
                .and_then(|all| Certificate::new(all.iter().map(CertificateDer::as_ref))),
            false => Certificate::sent(&bytes),
        };
        certificate.map_err(at)
    }

    /// One as a server sends it: in DER, its issuers behind it.
    pub(crate) fn sent(bytes: &[u8]) -> Result<Self, String> {
        let mut all = SliceReader::new(bytes).map_err(|error| error.to_string())?;
        let mut parts = Vec::new();
        while !all.is_finished() {
            let part = all.tlv_bytes();
            parts.push(part.map_err(|_| "it is no certificate".to_owned())?);
        }
        Certificate::new(parts.into_iter())
    }

    fn new<'a>(mut all: impl Iterator<Item = &'a [u8]>) -> Result<Self, String> {
        let own = |der: &[u8]| CertificateDer::from(der.to_vec());
        let der = own(all.next().ok_or("it holds none")?);
        let parsed = EndEntityCert::try_from(&der).map_err(|error| error.to_string())?;
        let info = parsed.subject_public_key_info();
        let key = SubjectPublicKeyInfoRef::from_der(&info)
            .ok()
            .and_then(|info| public_key(info.subject_public_key.raw_bytes()))
            .ok_or("its key is no RSA key of 2048 bits and more")?;
        let key_bytes = rsa::traits::PublicKeyParts::size(&key);
        Ok(Certificate {
            issuers: all.map(own).collect(),
            der,
            key,
            key_bytes,
        })
    }

    /// The certificate alone.
    pub(crate) fn der(&self) -> &[u8] {
        &self.der
    }

    /// Bytes of its key, and so of each signature and encrypted block.
    pub(crate) fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// What names it to whoever has it.
    pub(crate) fn thumbprint(&self) -> [u8; 20] {
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, &self.der);
        hash.as_ref().try_into().expect("SHA-1 has 20 bytes")
    }

    /// Whether its key signed a message.
    pub(crate) fn has_signed(&self, policy: Policy, message: &[u8], signature: &[u8]) -> bool {
        EndEntityCert::try_from(&self.der)
            .and_then(|own| own.verify_signature(policy.checking(), message, signature))
            .is_ok()
    }

    /// Encrypts to its key, in as many blocks as it takes.
    pub(crate) fn seal(&self, oaep: Oaep, content: &[u8]) -> Result<Vec<u8>, rsa::Error> {
        let room = self.key_bytes - oaep.overhead();
        let mut sealed = Vec::new();
        for part in content.chunks(room) {
            sealed.extend(match oaep {
                Oaep::Sha1 => self.key.oaep_encrypt::<sha1::Sha1>(part),
                Oaep::Sha256 => self.key.oaep_encrypt::<rsa::sha2::Sha256>(part),
            }?);
        }
        Ok(sealed)
    }

    /// Whether a server that has it is one that was meant: it is one of `trusted`, or issued by one.
    ///
    /// # Errors
    /// When it is neither, or no longer valid; what to do then is said.
    pub(crate) fn is_trusted(
        &self,
        trusted: &[Certificate],
        now: UnixMillis,
    ) -> Result<Trust, String> {
        if trusted.is_empty() {
            return Ok(Trust::Unchecked);
        }
        if trusted.iter().any(|trusted| self.der == trusted.der) {
            return Ok(Trust::Known);
        }
        let since = Duration::from_millis(u64::try_from(now.0).unwrap_or_default());
        // One that is no authority issues nothing.
        let anchors = trusted
            .iter()
            .filter_map(|trusted| webpki::anchor_from_trusted_cert(&trusted.der).ok());
        let anchors: Vec<_> = anchors.collect();
        let checked = EndEntityCert::try_from(&self.der).and_then(|own| {
            own.verify_for_usage(
                webpki::ALL_VERIFICATION_ALGS,
                &anchors,
                &self.issuers,
                UnixTime::since_unix_epoch(since),
                webpki::KeyUsage::server_auth(),
                None,
                None,
            )
            .map(|_| Trust::Known)
        });
        checked.map_err(|error| {
            let print = self.thumbprint().map(|byte| format!("{byte:02x}")).concat();
            format!(
                "the server's certificate is neither a trusted one nor issued by one ({error}); \
                 its SHA-1 thumbprint is {print}"
            )
        })
    }
}

/// Bytes that nobody can guess.
pub(crate) fn nonce() -> Vec<u8> {
    let mut bytes = vec![0; NONCE_BYTES];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.expect("the system has random bytes");
    bytes
}

fn is_pem(bytes: &[u8]) -> bool {
    memchr::memmem::find(bytes, b"-----BEGIN ").is_some()
}

/// An RSA key of PKCS #1: modulus and exponent.
fn public_key(der: &[u8]) -> Option<PublicKey> {
    let parts = SliceReader::new(der).ok()?.sequence(|parts| {
        let two = [UintRef::decode(parts)?, UintRef::decode(parts)?];
        Ok::<_, pkcs8::der::Error>(two.map(number))
    });
    let [modulus, exponent] = parts.ok()?;
    let key = PublicKey::new(modulus, exponent).ok()?;
    (rsa::traits::PublicKeyParts::size(&key) >= KEY_BYTES_LEAST).then_some(key)
}

/// An RSA key of PKCS #1: its version, and the numbers that make it up.
fn private_key(der: &[u8]) -> Option<PrivateKey> {
    let parts = SliceReader::new(der).ok()?.sequence(|parts| {
        let mut next = || UintRef::decode(parts).map(number);
        let _version = next()?;
        let five = [next()?, next()?, next()?, next()?, next()?];
        // Three more can be computed.
        while !parts.is_finished() {
            UintRef::decode(parts)?;
        }
        Ok::<_, pkcs8::der::Error>(five)
    });
    let [modulus, public, private, p, q] = parts.ok()?;
    PrivateKey::from_components(modulus, public, private, vec![p, q]).ok()
}

fn number(digits: UintRef<'_>) -> BoxedUint {
    let digits = digits.as_bytes();
    let bits = u32::try_from(digits.len() * 8).unwrap_or(u32::MAX);
    BoxedUint::from_be_slice(digits, bits).expect("there are as many bits as digits")
}

/// Bytes of a channel's nonces in all policies that are spoken.
pub(crate) const NONCE_BYTES: usize = 32;

/// 2048 bits: what all policies that are spoken ask for.
const KEY_BYTES_LEAST: usize = 256;
